"""Memory maps of random traces, for tests of the view."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gpulab.allocators import steps
from gpulab.allocators.cupy import CuPyAllocator
from gpulab.allocators.fragments import measure_fragmentation
from gpulab.allocators.replay import replay
from gpulab.allocators.torch.allocator import TorchAllocator
from gpulab.views.allocator.maps import PoolMaps, PoolPanel
from gpulab.views.allocator.view import AllocatorView
from tests.allocators.traces import MIB, Row, random_requests, random_rows, trace_of
from tests.views.synthetic import MODELLED
from virtualgpu.records.memory import AllocatorTrace


def panel(trace: AllocatorTrace, name: str = "", after: np.ndarray | None = None) -> PoolPanel:
    lives = steps.make_history(replace(trace, provenance=MODELLED))
    figures = partial(measure_fragmentation, capacity_bytes=trace.capacity_bytes)
    return PoolPanel(lives, name or trace.allocator, partial(steps.make_block_map, lives), figures, after)


def one(events: int = 300, seed: int = 2) -> AllocatorView:
    """A pool with two streams, refusals and blocks that wait."""
    return AllocatorView(PoolMaps([panel(trace_of(random_rows(seed, events), limit_bytes=40 * MIB))]))


def two(count: int = 200, seed: int = 3, settings: str = "") -> AllocatorView:
    """CuPy's and PyTorch's allocators with the same requests."""
    requests = [replace(r, time_ns=index) for index, r in enumerate(random_requests(seed, count), 1)]
    panels = []
    for model in (CuPyAllocator(capacity_bytes=150 * MIB), TorchAllocator(settings, 150 * MIB)):
        trace = replay(requests, model)
        after = np.searchsorted(trace.events.time_ns, np.arange(len(requests) + 1), side="right")
        panels.append(panel(trace, after=after))
    return AllocatorView(PoolMaps(panels, requests))


def expandable() -> AllocatorView:
    """The end of a trace: blocks from before it, some that wait, and addresses without memory."""
    trace = trace_of(random_rows(7, 400, expandable=True), limit_bytes=60 * MIB)
    return AllocatorView(PoolMaps([panel(steps.keep_last_events(trace, 200))]), step=198)


def crowded() -> AllocatorView:
    """A segment over several rows: a block over most of them, and others of less than a pixel."""
    base = 1 << 40
    tiny = 512
    sizes = [*[30 * MIB + 4096] * 2, *[100 << 10] * 70, *[tiny] * 1200]
    rows: list[Row] = [("segment_alloc", base, 80 * MIB, 0, 0, -1)]
    index = base
    for number, size in enumerate(sizes):
        rows.append(("alloc", index, size, size - number % 3, 0, number % 9 - 1))
        index += size + tiny * (number % 4)
    rows += [(kind, base, sizes[0], 0, 0, -1) for kind in ("free_requested", "free_completed")]
    return AllocatorView(PoolMaps([panel(trace_of(rows))]), step=len(rows))


def streams(many: int) -> AllocatorView:
    """A segment for each stream, the later ones larger, and a block in each; no limit is known."""
    base = 1 << 40
    rows: list[Row] = []
    for index in range(many):
        rows.append(("segment_alloc", base + index * 64 * MIB, (2 + index) * MIB, 0, index, -1))
        rows.append(("alloc", base + index * 64 * MIB, (1 + index) * MIB, 0, index, index % 8))
    view = AllocatorView(PoolMaps([panel(trace_of(rows))]))
    view.colour_by = "stream"
    return view
