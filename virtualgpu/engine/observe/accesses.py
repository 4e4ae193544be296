"""Conversion of a traced block's raw data to memory accesses, with one row per request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.ops import async_ops, memory_ops
from virtualgpu.engine.observe import results
from virtualgpu.engine.observe.trace_buffers import TraceRequest
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.records import KernelCounters, Space
from virtualgpu.records.access import SPACES, AccessTrace, Rule
from virtualgpu.records.warp.columns import SHARED_ACCESS_KINDS, SharedAccesses

_TAG_SHIFT = 56
_ADDRESS_BITS = (1 << _TAG_SHIFT) - 1
_TAGGED_SPACES: tuple[Space, ...] = ("global", "shared", "local")  # by the tags of generic addresses


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A memory request of a traced warp, with the addresses of its lanes.

    An access with generic addresses becomes one request per state space. Addresses of inactive lanes are -1.
    """

    step: int
    site: int
    space: Space
    address: npt.NDArray[np.int64]


def read_requests(launch: RunningLaunch, warp_index: int | None = None) -> Iterator[AccessRequest]:
    """Yield the memory requests of one traced warp, or of all traced warps, in order."""
    raw_trace = launch.trace
    assert raw_trace is not None
    access_sites = launch.kernel.tables.accesses
    sites_by_instruction: dict[tuple[int, int], list[int]] = defaultdict(list)
    for site_number, (function_index, instruction) in enumerate(access_sites):
        sites_by_instruction[function_index, instruction.pc].append(site_number)
    address_rows = raw_trace.rows[
        (raw_trace.rows["kind"] == layout.ROW_ADDRESS) & (raw_trace.rows["mask"] != 0)
    ]
    address_rows = address_rows[np.argsort(address_rows["step"], kind="stable")]
    step_records = raw_trace.steps[address_rows["step"]]
    if warp_index is not None:
        is_of_warp = step_records["warp"] == warp_index
        address_rows = address_rows[is_of_warp]
        step_records = step_records[is_of_warp]
    previous_step = -1
    access_index_in_step = 0
    lane_numbers = np.arange(layout.LANES, dtype=np.uint32)
    for row_record, step_index, function_index, pc in zip(
        address_rows,
        address_rows["step"].tolist(),
        step_records["function"].tolist(),
        step_records["pc"].tolist(),
        strict=True,
    ):
        access_index_in_step = access_index_in_step + 1 if step_index == previous_step else 0
        previous_step = step_index
        step_sites = sites_by_instruction.get((function_index, pc))
        if not step_sites:
            continue
        site_index = step_sites[_find_site_in_step(access_index_in_step, len(step_sites))]
        lanes = (row_record["mask"] >> lane_numbers & 1).astype(bool)
        for space, active_lanes, address in _split_by_space(
            memory_ops.space_of(access_sites[site_index][1]), lanes, row_record["lanes"]
        ):
            yield AccessRequest(step_index, site_index, space, np.where(active_lanes, address, -1))


def _find_site_in_step(access_index: int, site_count: int) -> int:
    """Return the index of the site, among an instruction's sites, to which its n-th access in a step belongs.

    The last two sites of a copy are for reading and for writing, and a bulk copy repeats both for each part
    of its range. Fragments have one site for all of their accesses.
    """
    repeated_site_count = min(site_count, 2)
    return (
        access_index
        if access_index < site_count
        else site_count - repeated_site_count + (access_index - site_count) % repeated_site_count
    )


def find_shared_accesses(launch: RunningLaunch) -> SharedAccesses:
    """Return all accesses to shared memory that the traced warps made."""
    access_sites = [instruction for _, instruction in launch.kernel.tables.accesses]
    accesses = [request for request in read_requests(launch) if request.space == "shared"]
    site_indices = [request.site for request in accesses]
    return SharedAccesses(
        sequence=np.array([request.step for request in accesses], np.int64),
        kind=np.array([_find_shared_kind(instruction) for instruction in access_sites], np.int8)[
            site_indices
        ],
        width_bytes=np.array([memory_ops.size_of(instruction) for instruction in access_sites], np.int16)[
            site_indices
        ],
        offset=np.array([request.address for request in accesses], np.int32).reshape(-1, layout.LANES),
    )


def _find_shared_kind(instruction: ir.Instruction) -> int:
    """Return the kind of an access to shared memory as an index into `SHARED_ACCESS_KINDS`."""
    return SHARED_ACCESS_KINDS.index(
        "copy" if async_ops.ASYNC_COPY_MARK in instruction.parts else memory_ops.kind_of(instruction)
    )


def make_access_trace(launch: RunningLaunch, counters: KernelCounters, request: TraceRequest) -> AccessTrace:
    """Return the addresses that the traced warp accessed, and the counters of the whole launch."""
    raw_trace = launch.trace
    assert raw_trace is not None
    kernel = launch.kernel
    access_sites = kernel.tables.accesses
    site_of_access = results.assign_source_numbers(access_sites)
    rules: dict[int, Rule] = {}
    for access_number, (function_index, instruction) in enumerate(access_sites):
        rules.setdefault(
            site_of_access[access_number],
            memory_ops.rule_of(kernel.plans[function_index].function, instruction),
        )
    site_column = []
    space_column = []
    address_column = []
    for access in read_requests(launch, request.warp_index):
        address = access.address
        if access.space == "local":
            interleaved_address = results.interleave_local_offsets(
                address, memory_ops.size_of(access_sites[access.site][1])
            )
            address = np.where(address >= 0, interleaved_address, -1)
        site_column.append(site_of_access[access.site])
        space_column.append(SPACES.index(access.space))
        address_column.append(address)
    return AccessTrace(
        counters=counters,
        rules=tuple(rules[site_number] for site_number in sorted(rules)),
        code=launch.source,
        block_index=request.block_index,
        warp_index=request.warp_index,
        site=np.array(site_column, np.int32),
        space=np.array(space_column, np.int8),
        address=np.array(address_column, np.int64).reshape(-1, layout.LANES),
        truncated=raw_trace.truncated,
    )


def _split_by_space(
    space: str, lanes: npt.NDArray[np.bool_], address: npt.NDArray[np.uint64]
) -> Iterator[tuple[Space, npt.NDArray[np.bool_], npt.NDArray[np.int64]]]:
    """Yield each state space to which lanes point, with those lanes and the addresses without tags."""
    signed_offsets = address.astype(np.int64)
    for known_space in SPACES:
        if space == known_space:
            yield known_space, lanes, signed_offsets
            return
    tag = address >> np.uint64(_TAG_SHIFT)
    for space_tag, name in enumerate(_TAGGED_SPACES):
        space_lanes = lanes & ((tag == space_tag) if space_tag else (tag != 1) & (tag != 2))
        if space_lanes.any():
            yield name, space_lanes, signed_offsets & _ADDRESS_BITS
