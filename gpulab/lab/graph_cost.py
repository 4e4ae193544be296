"""What a graph costs beside the same work given piece by piece."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulab import session
from gpulab.lab.timeline import TimelineReport
from virtualgpu.errors import GpulabError
from virtualgpu.records import Activity, GraphComparison, GraphNode, GraphRecord, Timeline

if TYPE_CHECKING:
    from gpulab.views import GraphView

_COPIES = ("MEMCPY", "MEMCPY2")


class ComparedGraph:
    """What `CapturedGraph.compare` found. Its text is a sentence, its picture the graph and both timelines.

    Attributes
    ----------
    record : GraphComparison
        Times of one run and of one node, on the device and on the host.
    graph : GraphRecord
        What was compared.
    """

    def __init__(self, record: GraphComparison, graph: GraphRecord, name: str) -> None:
        self.record, self.graph, self.name = record, graph, name

    def view(self) -> GraphView:
        """The picture as a widget."""
        from gpulab.views import GraphView

        return GraphView(self.graph, self.record, self.name)

    def save(self, path: str | Path) -> None:
        """Write a page that works alone (``x.html``) or the static picture (any other name: PNG)."""
        self.view().save(path)

    def describe(self) -> str:
        """The picture in words."""
        return self.view().describe()

    def __repr__(self) -> str:
        from gpulab.views.graph.words import cost_sentence

        return cost_sentence(self.record)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.view()._repr_mimebundle_(**kwargs)


def compared(
    graph: GraphRecord, eager: Callable[[], object], launch: Callable[[], object], stream: Any, repeats: int
) -> GraphComparison:
    """Time `repeats` runs of each in a stream, and record one of each."""
    first, then = _timed(eager, stream, repeats), _timed(launch, stream, repeats)
    begun, replay = _recorded(eager, stream), _recorded(launch, stream)
    return GraphComparison(
        session.backend().provenance, len(graph.nodes), repeats, first[0], then[0], first[1], then[1], begun,
        replay and numbered(replay, graph),
    )  # fmt: skip


def _timed(run: Callable[[], object], stream: Any, repeats: int) -> tuple[float, float]:
    """Time of one run in ns, between events and on the host."""
    cp, clock = session.cp(), session.backend().host_ns
    run()
    stream.synchronize()
    begin = stream.record()
    started = clock()
    for _ in range(repeats):
        run()
    host_ns = clock() - started
    end = stream.record()
    end.synchronize()
    return cp.cuda.get_elapsed_time(begin, end) * 1e6 / repeats, host_ns / repeats


def _recorded(run: Callable[[], object], stream: Any) -> Timeline | None:
    """A timeline of one run; None where one is being recorded already."""
    report = TimelineReport()
    stream.synchronize()
    try:
        report.start()
    except GpulabError:
        return None
    try:
        run()
    finally:
        report.stop()
    return report.record


def numbered(replay: Timeline, graph: GraphRecord) -> Timeline:
    """The timeline of one launch with the graph's own numbers of the nodes.

    CUPTI has numbers of its own: operations of one kind and name are taken in the order of the nodes.
    """
    if replay.provenance.source == "modelled":
        return replay
    waiting: dict[object, list[int]] = defaultdict(list)
    layers = graph.layers
    for node in sorted(graph.nodes, key=lambda node: (layers[node.number], node.number)):
        waiting[_of_node(node)].append(node.number)
    activities = []
    for activity in replay.activities:
        numbers = waiting.get(_of_activity(activity)) if activity.graph_id else None
        activities.append(replace(activity, graph_node_id=numbers.pop(0)) if numbers else activity)
    return replace(replay, activities=tuple(activities))


def _of_node(node: GraphNode) -> object:
    return node.kind, node.name if node.kind == "KERNEL" else node.copy_kind


def _of_activity(activity: Activity) -> object:
    kind = {"CONCURRENT_KERNEL": "KERNEL", "HOST_LAUNCH": "HOST"}.get(activity.kind, activity.kind)
    kind = "MEMCPY" if kind in _COPIES else kind
    return kind, activity.name if kind == "KERNEL" else activity.copy_kind
