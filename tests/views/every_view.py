"""Every view that is tested, made of records that no test has to run anything for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpulab.views import (
    AccessMicroscope,
    AllocatorView,
    FragmentView,
    GraphView,
    LaunchChart,
    LoadChart,
    TimelineView,
    WarpStepper,
)
from gpulab.views.allocator.maps import PoolMaps
from tests.allocators.traces import trace_of
from tests.views import (
    exchanges,
    fragment_traces,
    graphs,
    pipelines,
    pools,
    synthetic,
    timelines,
    unusual,
    warps,
)
from tests.views.makers import FIGURES, MAKERS
from virtualgpu.records import DanglingArray, GraphArray
from virtualgpu.records.access import AccessPattern


def _allocator(colour_by: str) -> AllocatorView:
    view = pools.two(300, 5)
    view.step //= 2
    return _coloured(view, colour_by)


def _coloured(view: AllocatorView, colour_by: str) -> AllocatorView:
    view.colour_by = colour_by
    return view


def _folded() -> GraphView:
    """Steps that come again, a library's kernel, and one that uses what was freed."""
    names = [*["norm", "matmul", "softmax"] * 20, graphs.CUB, "gelu"]
    nodes = [graphs.kernel(n, name, 4 + n % 3) for n, name in enumerate(names)]
    freed = GraphArray("x", graphs.OLD, 4096, "float32", (1024,))
    gone = DanglingArray(freed, graphs.X, (len(nodes),), (1.0, 2.0), (3.0, 4.0))
    return GraphView(
        graphs.graph(*nodes, graphs.kernel(len(nodes), "last", address=graphs.OLD), dangling=(gone,))
    )


def _launch(threads: int, blocks: int, sms: int, slower: int, **fields: Any) -> LaunchChart:
    trace = synthetic.launch_trace(threads, sm_count=sms, blocks=blocks)
    times = {name: getattr(trace, name) * slower for name in ("start_ns", "end_ns")}
    return LaunchChart(replace(trace, **times, **fields), synthetic.launch_trace)


def _very_many_blocks() -> LaunchChart:
    """More than are drawn, for more than 2.1 s, with a pause on every second SM."""
    trace = synthetic.wide_launch(70_000)
    pause_ns = 30_000 * ((trace.sm_id % 2 == 1) & (trace.block_index >= 40_000))
    return LaunchChart(
        replace(trace, start_ns=(trace.start_ns + pause_ns) * 5_000, end_ns=(trace.end_ns + pause_ns) * 5_000)
    )


def _many_orders() -> TimelineView:
    """More arrows than are drawn at once, and two reads that came too early."""
    view = TimelineView(timelines.many(5000, 5))
    view.panels[0].faults = [(3, 9), (20, 21)]
    view.redraw()
    return view


def _stepped(trace: Any, measured: Any, warp: int | None, **chosen: Any) -> WarpStepper:
    view = WarpStepper(trace, measured, warp)
    for name, value in chosen.items():
        setattr(view, name, value)
    return view


def _chosen_fragments(view: FragmentView, **chosen: Any) -> FragmentView:
    for name, value in chosen.items():
        setattr(view, name, value)
    return view


VIEWS: dict[str, Callable[[], Any]] = {
    **FIGURES,
    **MAKERS,
    **unusual.ALL,
    **exchanges.ALL,
    **pipelines.ALL,
    "launch of nothing": lambda: _launch(256, 0, 4, 1),
    "launch on one SM": lambda: _launch(128, 1, 1, 1, timer_step_ns=32, note="The SM was busy before."),
    "launch on 14 SMs": lambda: _launch(192, 1000, 14, 40_000, grid=(10, 20, 5), block=(64, 3, 1)),
    "launch on 17 SMs": lambda: _launch(256, 1229, 17, 1, grid=(1229, 1, 1)),
    "launch of very many": _very_many_blocks,
    "allocators by line": lambda: _allocator("line"),
    "allocators by stream": lambda: _allocator("stream"),
    "allocators by age": lambda: _allocator("age"),
    "allocators without refusals": lambda: pools.two(50, 3),
    "allocator of nothing": lambda: AllocatorView(PoolMaps([pools.panel(trace_of([]))])),
    "allocator of expandable segments": pools.expandable,
    "allocator by age": lambda: _coloured(pools.expandable(), "age"),
    "allocator of a crowded segment": pools.crowded,
    "allocator of five streams": lambda: pools.streams(5),
    "allocator of nine streams": lambda: pools.streams(9),
    "graph folded": _folded,
    "timelines of a graph": lambda: TimelineView(
        timelines.tiny_kernels(50), timelines.tiny_kernels(50, graph=True), names=("eager", "graph")
    ),
    "timeline of two devices": lambda: TimelineView(timelines.two_devices()),
    "timeline of one operation": lambda: TimelineView(timelines.alone(), selected=5, node=2, panel=0),
    "timeline of nothing": lambda: TimelineView(timelines.empty()),
    "timeline of threads": lambda: TimelineView(timelines.threads()),
    "timeline of many streams": lambda: TimelineView(timelines.overlapped(30, 90)),
    "timeline of many orders": _many_orders,
    "stepper of a block": lambda: _stepped(warps.block(), synthetic.measured_blocks(warps.warp_of(2)), 1),
    "stepper of a warp": lambda: _stepped(
        warps.warp_of(1, 1, stops=()), None, None, lane=9, step=5, by_line=False
    ),
    "stepper of a warp that stops": lambda: _stepped(warps.warp_of(2, 2, watched=()), None, None, step=20),
    "stepper of many steps": lambda: _stepped(warps.long(), None, None, step=700),
    "stepper of no steps": lambda: _stepped(warps.nothing(), None, None),
    "access": lambda: AccessMicroscope(AccessPattern(stride=3, offset=1, padding=1)),
    "fragments": lambda: FragmentView(fragment_traces.trace()),
    "fragments of a load": lambda: _chosen_fragments(
        FragmentView(fragment_traces.trace(), line=4), lane=9, matrix=2, element=1, shown="value"
    ),
    "fragments of a swizzled load": lambda: FragmentView(fragment_traces.trace(swizzled=True), line=4),
    "fragments of a store": lambda: _chosen_fragments(
        FragmentView(fragment_traces.trace(), line=3, note="Counted in a replay"), lane=31
    ),
    "fragments of wmma": lambda: _chosen_fragments(
        FragmentView(fragment_traces.of_wmma()), execution=7, matrix=2, shown="address"
    ),
    "graph": lambda: GraphView(graphs.chain(5)),
    "graph compared": lambda: GraphView(graphs.chain(12), graphs.compared(graphs.chain(12))),
    "load": lambda: LoadChart(lambda: synthetic.load_samples()),
}
