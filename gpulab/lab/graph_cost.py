"""The cost of launching a graph, compared with launching the same operations one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpulab import session, views
from gpulab.lab._base import PicturedResult
from gpulab.views.graph.graph_text import cost_sentence
from virtualgpu.errors import GpulabError
from virtualgpu.records import Activity, GraphComparison, GraphNode, GraphRecord, Timeline

_COPY_KINDS = ("MEMCPY", "MEMCPY2")


class ComparedGraph(PicturedResult):
    """A comparison of a graph with the function from which it was captured. The comparison consists of a
    sentence, the graph and both timelines.

    Attributes
    ----------
    record : GraphComparison
        The times per run and per node, on the device and on the host.
    graph : GraphRecord
        The graph that was compared.
    """

    def __init__(self, record: GraphComparison, graph: GraphRecord, name: str) -> None:
        self.record = record
        self.graph = graph
        self.name = name

    def view(self) -> views.GraphView:
        """The picture of the comparison as a widget."""
        return views.GraphView(self.graph, self.record, self.name)

    _picture = view

    def __repr__(self) -> str:
        return cost_sentence(self.record)


def compare_costs(
    graph: GraphRecord,
    call_function: Callable[[], object],
    launch_graph: Callable[[], object],
    stream: Any,
    repeats: int,
) -> GraphComparison:
    """Measure `repeats` runs of a graph and of its function in a stream, and record a timeline of both."""
    with session.show_steps(4, "graph.compare") as begin_step:
        begin_step()
        eager_times = _measure_ns(call_function, stream, repeats)
        begin_step()
        graph_times = _measure_ns(launch_graph, stream, repeats)
        begin_step()
        eager_timeline = _record_timeline(call_function, stream)
        begin_step()
        replay = _record_timeline(launch_graph, stream)
    return GraphComparison(
        provenance=session.backend().provenance,
        nodes=len(graph.nodes),
        repeats=repeats,
        eager_device_ns=eager_times[0],
        graph_device_ns=graph_times[0],
        eager_host_ns=eager_times[1],
        graph_host_ns=graph_times[1],
        eager=eager_timeline,
        replay=replay and number_nodes(replay, graph),
    )


def _measure_ns(run_once: Callable[[], object], stream: Any, repeats: int) -> tuple[float, float]:
    """Return the mean time per run in ns, once between two events and once on the host."""
    cp = session.cp()
    read_host_ns = session.backend().host_ns
    run_once()
    stream.synchronize()
    begin_event = stream.record()
    start_ns = read_host_ns()
    for _ in range(repeats):
        run_once()
    host_ns = read_host_ns() - start_ns
    end_event = stream.record()
    end_event.synchronize()
    return cp.cuda.get_elapsed_time(begin_event, end_event) * 1e6 / repeats, host_ns / repeats


def _record_timeline(run_once: Callable[[], object], stream: Any) -> Timeline | None:
    """Return a timeline of one run, or None if another timeline is already being recorded."""
    recorder = session.backend().timeline_recorder()
    stream.synchronize()
    try:
        recorder.start()
    except GpulabError:
        return None
    try:
        run_once()
    finally:
        record = recorder.stop()
    return record


def number_nodes(replay: Timeline, graph: GraphRecord) -> Timeline:
    """Return a copy of the timeline of a graph launch. Operations in the copy contain the numbers of their
    graph nodes.

    CUPTI uses its own numbers. Operations with the same kind and name are matched in the order of the nodes.
    """
    if replay.provenance.source == "modelled":
        return replay
    pending_nodes: dict[object, list[int]] = defaultdict(list)
    layers = graph.layers
    for node in sorted(graph.nodes, key=lambda node: (layers[node.number], node.number)):
        pending_nodes[_make_node_key(node)].append(node.number)
    numbered_activities = []
    for activity in replay.activities:
        node_numbers = pending_nodes.get(_make_activity_key(activity)) if activity.graph_id else None
        numbered_activities.append(
            replace(activity, graph_node_id=node_numbers.pop(0)) if node_numbers else activity
        )
    return replace(replay, activities=tuple(numbered_activities))


def _make_node_key(node: GraphNode) -> object:
    return node.kind, node.name if node.kind == "KERNEL" else node.copy_kind


def _make_activity_key(activity: Activity) -> object:
    operation_kind = {"CONCURRENT_KERNEL": "KERNEL", "HOST_LAUNCH": "HOST"}.get(activity.kind, activity.kind)
    operation_kind = "MEMCPY" if operation_kind in _COPY_KINDS else operation_kind
    return operation_kind, activity.name if operation_kind == "KERNEL" else activity.copy_kind
