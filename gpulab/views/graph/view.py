"""Graph view: the nodes of a CUDA graph, dangling arrays, and its replay next to single launches."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import traitlets

from gpulab.views._base import View
from gpulab.views.graph import graph_text
from gpulab.views.graph.folding import Group, groups
from gpulab.views.parts import boxes
from gpulab.views.parts.boxes import Box, Plot, column, legend
from gpulab.views.parts.dag import DrawnNode, dag
from gpulab.views.timeline.chart import chart, lanes_of, legend_entries
from gpulab.views.timeline.lanes import DEVICE_ENGINES, ENGINES, NO_OPERATION
from gpulab.words import count, listing, number
from virtualgpu.records import DanglingArray, GraphComparison, GraphRecord, Timeline

# The graph has this height at most, alone and above timelines, which then share the next number.
ALONE_PX = 330
BESIDE_PX = 150
ROWS_PX = 150
MOST_SINGLE = 21
SHAPES = {"KERNEL": "box", "MEMCPY": "copy", "MEMSET": "set", "HOST": "round"}
WAYS = ("piece by piece", "as a graph")
SPOKEN = (
    "Both ways on one axis, the graph below. Arrow keys go from bar to bar, Enter marks one and its node."
)
HINT = "Point at a node, or focus the graph and use Tab or the arrow keys. Enter or a click marks it"


class GraphView(View):
    """The nodes of a graph in the order of their work, linked with a timeline of its replay.

    Parameters
    ----------
    record
        The graph.
    comparison
        What it costs, with timelines of both ways if it has them.
    name
        Of the function that was captured.

    Attributes
    ----------
    node
        Number of the node that is marked in both pictures; -1 for none. ``selected`` and ``panel`` are
        those of `TimelineView`.
    """

    selected = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)
    node = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)
    panel = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)

    def __init__(
        self, record: GraphRecord, comparison: GraphComparison | None = None, name: str = "fn"
    ) -> None:
        self.graph = record
        self.comparison = comparison
        self.name = name
        timelines = [each for each in (comparison.eager, comparison.replay) if each] if comparison else []
        self.panels = lanes_of(timelines, WAYS, ROWS_PX) if len(timelines) == len(WAYS) else []
        self._took = _times(comparison.replay) if comparison and comparison.replay else {}
        apart = frozenset(node for found in record.dangling for node in found.nodes[:1])
        self.groups, self.edges = groups(record, apart, fold=len(record.nodes) > MOST_SINGLE)
        if self._dag().height > self._most_px:
            self.groups, self.edges = groups(record, apart, fold=True)
        super().__init__(title=f"Graph of {name}", source=record.provenance.source, caption=self._caption())
        self.redraw()

    @property
    def record(self) -> GraphRecord | tuple[GraphRecord, GraphComparison]:
        """The graph and its costs."""
        return self.graph if self.comparison is None else (self.graph, self.comparison)

    def sentence(self) -> str:
        cost = f" {graph_text.cost_sentence(self.comparison)}" if self.comparison else ""
        return f"{graph_text.sentence(self.graph, self.name)}{cost}"

    def describe(self) -> str:
        lines = [self.sentence(), *map(graph_text.dangling_sentence, self.graph.dangling)]
        before: dict[int, list[int]] = {}
        for first, then in self.edges:
            before.setdefault(then, []).append(first)
        for at, group in enumerate(self.groups):
            waits = listing([_called(self.groups[first]) for first in before.get(at, ())])
            text = graph_text.group_sentence(self.graph, group, self._took)
            lines.append(f"{text} After {waits}." if waits else text)
        return "\n".join(lines)

    def draw(self) -> Box:
        timelines = chart(self.panels, SPOKEN, rows_px=ROWS_PX) if self.panels else None
        return column(
            *(boxes.words(graph_text.dangling_sentence(found), "strong") for found in self.graph.dangling),
            boxes.words(graph_text.costs(self.comparison)) if self.comparison else None,
            legend(self._legend(timelines)),
            self._dag() if self.groups else boxes.words(self.graph.note or "The graph has no nodes."),
            self._unfolded(),
            timelines,
            gap=6,
        )

    @property
    def _most_px(self) -> int:
        return BESIDE_PX if self.panels else ALONE_PX

    def _dag(self) -> Plot:
        dangling = {_old(array) for array in self.graph.dangling}
        owner = {member: index for index, group in enumerate(self.groups) for member in group.members}
        arrows = [(_old(array), str(owner[array.nodes[0]])) for array in self.graph.dangling]
        arrows += [(str(first), str(then)) for first, then in self.edges]
        unfolds = "; one that stands for several unfolds" if any(g.times > 1 for g in self.groups) else ""
        return dag(
            {**self._arrays(), **self._nodes()},
            arrows,
            label=f"{graph_text.sentence(self.graph, self.name)} Tab and arrow keys go from node to node.",
            trait="node",
            max_height_px=self._most_px,
            marked=dangling,
            hint=f"{HINT}{' there and in the timeline' if self.panels else ''}{unfolds}.",
        )

    def _arrays(self) -> dict[str, DrawnNode]:
        """Return arrays that the graph reads although their names refer to others by now."""
        shown = {}
        for array in self.graph.dangling:
            name = array.array.name
            say = graph_text.dangling_sentence(array)
            old = graph_text.first_elements(array.in_graph)
            shown[_old(array)] = DrawnNode(f"old {name}", "error-bg", "hexagon", old, say, mark="error")
            if array.address_now is not None:
                new = graph_text.first_elements(array.now)
                shown[f"{name} now"] = DrawnNode(f"{name} now", "grid", "hexagon", new, say)
        return shown

    def _nodes(self) -> dict[str, DrawnNode]:
        hit = {node for found in self.graph.dangling for node in found.nodes}
        return {str(at): self._node(group, hit) for at, group in enumerate(self.groups)}

    def _node(self, group: Group, hit: Collection[int] = ()) -> DrawnNode:
        text, detail = graph_text.group_text(group)
        return DrawnNode(
            text,
            self._colour(group),
            SHAPES.get(group.pattern[0].kind, "hexagon"),
            detail,
            graph_text.group_sentence(self.graph, group, self._took),
            group.members,
            "error" if set(hit).intersection(group.members) else "",
        )

    def _unfolded(self) -> Box | None:
        """Return the nodes of the marked group, for display below the graph."""
        folded = {group.members[0]: self._members(group) for group in self.groups if group.times > 1}
        if not folded:
            return None
        chosen = self.node if self.node in folded else NO_OPERATION
        return boxes.switch("node", chosen, {NO_OPERATION: column(), **folded})

    def _members(self, group: Group) -> Box:
        """Return a group's first nodes, one after the other or side by side, and the number of others."""
        drawn = [Group((member,), (self.graph.nodes[member],)) for member in group.members[:MOST_SINGLE]]
        inside = {member for each in drawn for member in each.members}
        edges = [(str(a), str(b)) for a, b in self.graph.edges if a in inside and b in inside]
        text = f"{graph_text.group_text(group)[0]}, unfolded"
        more = len(group.members) - len(drawn)
        return column(
            boxes.words(f"{text}; {number(more)} more like them" if more else text, "strong"),
            dag({str(each.members[0]): self._node(each) for each in drawn}, edges, label=f"{text}."),
        )

    def _colour(self, group: Group) -> str:
        """Return the colour of the timeline, in which kernels of different names alternate."""
        engine = _engine(group)
        if engine == "kernel" and self._turns[group.pattern[0].name] % 2:
            engine = "other kernel"
        return ENGINES[engine][0]

    @cached_property
    def _turns(self) -> dict[str, int]:
        names = [name for lanes in self.panels for name in lanes.kernels]
        names += [node.name for node in self.graph.nodes if node.kind == "KERNEL"]
        return {name: at for at, name in enumerate(dict.fromkeys(names))}

    def _legend(self, timelines: Plot | None) -> list[tuple[str, str]]:
        if timelines:
            entries = legend_entries(timelines)
        else:
            used = {self._colour(group) for group in self.groups}
            entries = [entry for entry in [*ENGINES.values()][:DEVICE_ENGINES] if entry[0] in used]
        return [*entries, *([("error", "uses an old array")] if self.graph.dangling else [])]

    def _caption(self) -> str:
        drawn = f"{count(len(self.graph.nodes), 'node')} drawn as {len(self.groups)}."
        parts = [
            f"Nodes and edges: captured on {self.graph.provenance.device}.",
            drawn if len(self.groups) < len(self.graph.nodes) else "",
            f"Times {self.comparison.provenance.label}." if self.comparison else "",
            self.graph.note,
        ]
        return " ".join(filter(None, parts))


def _old(found: DanglingArray) -> str:
    return f"old {found.array.name}"


def _called(group: Group) -> str:
    first = min(group.members)
    last = max(group.members)
    return f"node {first}" if first == last else f"nodes {first} to {last}"


def _engine(group: Group) -> str:
    node = group.pattern[0]
    if node.kind in ("KERNEL", "HOST"):
        return node.kind.lower()
    return node.copy_kind if node.copy_kind in ("HtoD", "DtoH") else "DtoD"


def _times(replay: Timeline) -> dict[int, float]:
    """Time of each node in a replay, by its number."""
    return {a.graph_node_id: a.end_ns - a.start_ns for a in replay.activities if a.graph_id}
