"""From the raw rows of a traced block to the memory accesses of one warp: one row for each request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.observe import results
from virtualgpu.engine.observe.trace_buffers import TraceRequest
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.records import KernelCounters, Space
from virtualgpu.records.access import SPACES, AccessTrace, Rule

_TAG_SHIFT = 56
_PLACE = (1 << _TAG_SHIFT) - 1
_POINTED_TO: tuple[Space, ...] = ("global", "shared", "local")  # by the tags of generic addresses


def access_trace(launch: RunningLaunch, counters: KernelCounters, request: TraceRequest) -> AccessTrace:
    """The record of the traced warp's accesses, beside the counters of the whole launch."""
    raw = launch.trace
    assert raw is not None
    kernel = launch.kernel
    sites = kernel.tables.accesses
    place = results.places(sites)
    rules: dict[int, Rule] = {}
    sites_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (function, i) in enumerate(sites):
        rules.setdefault(place[number], memory_ops.rule_of(kernel.plans[function].function, i))
        sites_of[function, i.pc].append(number)
    rows = raw.rows[(raw.rows["kind"] == layout.ROW_ADDRESS) & (raw.rows["mask"] != 0)]
    rows = rows[np.argsort(rows["step"], kind="stable")]
    steps = raw.steps[rows["step"]]
    mine = steps["warp"] == request.warp_index
    rows = rows[mine]
    steps = steps[mine]
    before = -1
    nth = 0
    found_site = []
    found_space = []
    found_address = []
    bits = np.arange(layout.LANES, dtype=np.uint32)
    for row, step, function, pc in zip(
        rows, rows["step"].tolist(), steps["function"].tolist(), steps["pc"].tolist(), strict=True
    ):
        nth = nth + 1 if step == before else 0
        before = step
        own = sites_of.get((function, pc))
        if not own:
            continue
        # Copies have a site for each of their accesses, fragments one for all.
        site = own[min(nth, len(own) - 1)]
        i = sites[site][1]
        lanes = (row["mask"] >> bits & 1).astype(bool)
        for space, taking, address in _by_space(memory_ops.space_of(i), lanes, row["lanes"]):
            if space == "local":
                address = results.interleaved(address, memory_ops.size_of(i))
            found_site.append(place[site])
            found_space.append(SPACES.index(space))
            found_address.append(np.where(taking, address, -1))
    return AccessTrace(
        counters=counters,
        rules=tuple(rules[at] for at in sorted(rules)),
        code=launch.source,
        block_index=request.block_index,
        warp_index=request.warp_index,
        site=np.array(found_site, np.int32),
        space=np.array(found_space, np.int8),
        address=np.array(found_address, np.int64).reshape(-1, layout.LANES),
        truncated=raw.truncated,
    )


def _by_space(
    space: str, lanes: npt.NDArray[np.bool_], address: npt.NDArray[np.uint64]
) -> Iterator[tuple[Space, npt.NDArray[np.bool_], npt.NDArray[np.int64]]]:
    """Lanes by the space that their addresses point to, and the addresses without its tag."""
    plain = address.astype(np.int64)
    for named in SPACES:
        if space == named:
            yield named, lanes, plain
            return
    tag = address >> np.uint64(_TAG_SHIFT)
    for number, name in enumerate(_POINTED_TO):
        taking = lanes & ((tag == number) if number else (tag != 1) & (tag != 2))
        if taking.any():
            yield name, taking, plain & _PLACE
