"""The graph view: the nodes of a CUDA graph, changed arrays, and timelines with and without the graph."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import traitlets

from gpulab.views._base import View
from gpulab.views.graph import graph_text
from gpulab.views.graph.folding import NodeGroup, fold_groups
from gpulab.views.parts import boxes
from gpulab.views.parts.boxes import Box, Plot, column, legend, player
from gpulab.views.parts.dag import DrawnNode, draw_dag
from gpulab.views.parts.palette import KERNEL_COLOURS
from gpulab.views.parts.plots import nice_step
from gpulab.views.timeline.chart import (
    choose_kernel_colours,
    draw_chart,
    make_kernel_legend,
    make_legend_entries,
    make_panels,
)
from gpulab.views.timeline.lanes import DEVICE_ENGINES, ENGINES, NO_OPERATION
from gpulab.views.timeline.view import HINT_TEXT as MEASURE_HINT
from gpulab.views.timeline.view import KEYS_TEXT
from gpulab.words import count, duration, listing, number
from virtualgpu.records import DanglingArray, GraphComparison, GraphRecord, Timeline

# Largest height of the graph alone, its largest height above timelines, and the height of timelines.
ALONE_HEIGHT_PX = 330
BESIDE_HEIGHT_PX = 150
ROWS_HEIGHT_PX = 150
MAX_SINGLE_NODES = 21
# Seconds that Play takes for the replay of the graph at each of its rates, before rounding.
REPLAY_DURATIONS_S = (12, 5, 2)
SHAPE_OF_KIND = {"KERNEL": "box", "MEMCPY": "copy", "MEMSET": "set", "HOST": "round"}
TIMELINE_NAMES = ("piece by piece", "as a graph")
TIMELINE_LABEL = f"Timelines without and with the graph on one axis; the graph is below. {KEYS_TEXT}"
HINT_TEXT = "Point at a node, or focus the graph and use Tab or the arrow keys. Enter or a click marks it"


class GraphView(View):
    """A view of the nodes of a graph in execution order. The view is linked with a timeline of a graph
    launch.

    Parameters
    ----------
    record
        The graph.
    comparison
        The costs of the graph, optionally with timelines with and without the graph.
    name
        The name of the captured function.

    Attributes
    ----------
    node
        The number of the node that is marked in both pictures, or -1. ``selected`` and ``panel`` are as in
        `TimelineView`.
    moment_ns
        The time in ns up to which Play has shown the graph, or -1 before Play was used.
    """

    selected = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)
    node = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)
    panel = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)
    moment_ns = traitlets.Float(-1).tag(sync=True, echo_update=False)

    def __init__(
        self, record: GraphRecord, comparison: GraphComparison | None = None, name: str = "fn"
    ) -> None:
        self.graph = record
        self.comparison = comparison
        self.name = name
        compared_timelines = (
            [timeline for timeline in (comparison.eager, comparison.replay) if timeline] if comparison else []
        )
        self.panels = (
            make_panels(compared_timelines, TIMELINE_NAMES, ROWS_HEIGHT_PX)
            if len(compared_timelines) == len(TIMELINE_NAMES)
            else []
        )
        self._node_spans = _find_node_spans(comparison.replay) if comparison and comparison.replay else {}
        self._node_times_ns = {
            node: end_ns - start_ns for node, (start_ns, end_ns) in self._node_spans.items()
        }
        separate_nodes = frozenset(
            node for dangling_array in record.dangling for node in dangling_array.nodes[:1]
        )
        self.groups, self.edges = fold_groups(
            record, separate_nodes, is_folded=len(record.nodes) > MAX_SINGLE_NODES
        )
        if self._draw_dag().height > self._max_height_px:
            self.groups, self.edges = fold_groups(record, separate_nodes, is_folded=True)
        super().__init__(
            title=f"Graph of {name}", source=record.provenance.source, caption=self._make_caption()
        )
        self.redraw()

    @property
    def record(self) -> GraphRecord | tuple[GraphRecord, GraphComparison]:
        """The record of the graph, or a tuple of the record and the record of a comparison."""
        return self.graph if self.comparison is None else (self.graph, self.comparison)

    def sentence(self) -> str:
        cost_text = f" {graph_text.cost_sentence(self.comparison)}" if self.comparison else ""
        return f"{graph_text.describe_graph(self.graph, self.name)}{cost_text}"

    def describe(self) -> str:
        lines = [self.sentence(), *map(graph_text.dangling_sentence, self.graph.dangling)]
        predecessors: dict[int, list[int]] = {}
        for start_group, end_group in self.edges:
            predecessors.setdefault(end_group, []).append(start_group)
        for index, group in enumerate(self.groups):
            waits_text = listing(
                [_name_group(self.groups[start_group]) for start_group in predecessors.get(index, ())]
            )
            text = graph_text.group_sentence(self.graph, group, self._node_times_ns)
            lines.append(f"{text} After {waits_text}." if waits_text else text)
        return "\n".join(lines)

    def draw(self) -> Box:
        timelines = (
            draw_chart(
                self.panels,
                TIMELINE_LABEL,
                rows_px=ROWS_HEIGHT_PX,
                hint=MEASURE_HINT,
                moment_trait="moment_ns",
            )
            if self.panels
            else None
        )
        return column(
            *(
                boxes.words(graph_text.dangling_sentence(dangling), "strong")
                for dangling in self.graph.dangling
            ),
            boxes.words(graph_text.compare_costs(self.comparison)) if self.comparison else None,
            legend(self._make_legend(timelines)),
            self._make_player(timelines.domain[1]) if timelines and self._node_spans else None,
            self._draw_dag() if self.groups else boxes.words(self.graph.note or "The graph has no nodes."),
            self._draw_unfolded(),
            timelines,
            gap=6,
        )

    def _make_player(self, last_ns: float) -> Box:
        """Return the Play buttons, which show the recorded times with and without the graph."""
        replay = self.panels[-1].record
        end_times = [
            (
                name,
                sorted(
                    activity.end_ns - timeline_lanes.record.start_ns
                    for activity in timeline_lanes.record.activities
                ),
            )
            for name, timeline_lanes in zip(TIMELINE_NAMES, self.panels, strict=True)
        ]
        rates_ns_per_s = dict.fromkeys(
            nice_step(replay.duration_ns / seconds) for seconds in REPLAY_DURATIONS_S
        )
        return player(
            "moment_ns",
            last_ns,
            [(f"{duration(rate_ns_per_s)} per s", rate_ns_per_s) for rate_ns_per_s in rates_ns_per_s],
            [*rates_ns_per_s][len(rates_ns_per_s) // 2],
            smooth=True,
            stops=sorted({time_ns for span in self._node_spans.values() for time_ns in span}),
            counts=end_times,
            origin=f"times {replay.provenance.label}",
        )

    @property
    def _max_height_px(self) -> int:
        """The maximum height of the graph in pixels."""
        return BESIDE_HEIGHT_PX if self.panels else ALONE_HEIGHT_PX

    def _draw_dag(self) -> Plot:
        old_array_keys = {_make_old_array_key(array) for array in self.graph.dangling}
        group_of_node = {
            node_number: index for index, group in enumerate(self.groups) for node_number in group.members
        }
        arrow_key_pairs = [
            (_make_old_array_key(array), str(group_of_node[array.nodes[0]])) for array in self.graph.dangling
        ]
        arrow_key_pairs += [(str(start_group), str(end_group)) for start_group, end_group in self.edges]
        unfold_text = (
            "; a node for several nodes unfolds"
            if any(group.repetitions > 1 for group in self.groups)
            else ""
        )
        return draw_dag(
            {**self._make_array_nodes(), **self._make_nodes()},
            arrow_key_pairs,
            label=f"{graph_text.describe_graph(self.graph, self.name)} "
            "Tab and arrow keys go from node to node.",
            trait="node",
            moment="moment_ns",
            max_height_px=self._max_height_px,
            marked=old_array_keys,
            hint=f"{HINT_TEXT}{' there and in the timeline' if self.panels else ''}{unfold_text}.",
        )

    def _make_array_nodes(self) -> dict[str, DrawnNode]:
        """Return a drawn node for each array of the graph whose name now refers to another array."""
        array_nodes = {}
        for array in self.graph.dangling:
            name = array.array.name
            description = graph_text.dangling_sentence(array)
            old_elements = graph_text.first_elements(array.in_graph)
            array_nodes[_make_old_array_key(array)] = DrawnNode(
                f"old {name}", "error-bg", "hexagon", old_elements, description, outline_colour="error"
            )
            if array.address_now is not None:
                new_elements = graph_text.first_elements(array.now)
                array_nodes[f"{name} now"] = DrawnNode(
                    f"{name} now", "grid", "hexagon", new_elements, description
                )
        return array_nodes

    def _make_nodes(self) -> dict[str, DrawnNode]:
        affected_nodes = {node for dangling_array in self.graph.dangling for node in dangling_array.nodes}
        return {str(index): self._make_node(group, affected_nodes) for index, group in enumerate(self.groups)}

    def _make_node(self, group: NodeGroup, affected_nodes: Collection[int] = ()) -> DrawnNode:
        group_label, group_detail = graph_text.group_text(group)
        return DrawnNode(
            group_label,
            self._choose_colour(group),
            SHAPE_OF_KIND.get(group.pattern[0].kind, "hexagon"),
            group_detail,
            graph_text.group_sentence(self.graph, group, self._node_times_ns),
            group.members,
            "error" if set(affected_nodes).intersection(group.members) else "",
            self._find_span(group),
        )

    def _find_span(self, group: NodeGroup) -> tuple[float, float]:
        """Return the start of a group's first node and the end of its last node in the replay."""
        node_spans_ns = [
            self._node_spans[node_number] for node_number in group.members if node_number in self._node_spans
        ]
        if not node_spans_ns:
            return (-1, -1)
        return (min(start_ns for start_ns, _ in node_spans_ns), max(end_ns for _, end_ns in node_spans_ns))

    def _draw_unfolded(self) -> Box | None:
        """Return a picture of the nodes in the selected group, which is shown below the graph."""
        members_by_node = {
            group.members[0]: self._draw_members(group) for group in self.groups if group.repetitions > 1
        }
        if not members_by_node:
            return None
        selected_node = self.node if self.node in members_by_node else NO_OPERATION
        return boxes.switch("node", selected_node, {NO_OPERATION: column(), **members_by_node})

    def _draw_members(self, group: NodeGroup) -> Box:
        """Return a graph of a group's first nodes, and the number of nodes that are not in it."""
        single_groups = [
            NodeGroup((node_number,), (self.graph.nodes[node_number],))
            for node_number in group.members[:MAX_SINGLE_NODES]
        ]
        drawn_members = {
            node_number for single_group in single_groups for node_number in single_group.members
        }
        member_edges = [
            (str(start_node), str(end_node))
            for start_node, end_node in self.graph.edges
            if start_node in drawn_members and end_node in drawn_members
        ]
        group_label = f"{graph_text.group_text(group)[0]}, unfolded"
        omitted_count = len(group.members) - len(single_groups)
        return column(
            boxes.words(
                f"{group_label}; {number(omitted_count)} more like them" if omitted_count else group_label,
                "strong",
            ),
            draw_dag(
                {
                    str(single_group.members[0]): self._make_node(single_group)
                    for single_group in single_groups
                },
                member_edges,
                label=f"{group_label}.",
                moment="moment_ns",
            ),
        )

    def _choose_colour(self, group: NodeGroup) -> str:
        """Return the colour of a group, which is the same in the timeline."""
        engine = _find_engine(group)
        if engine == "kernel":
            return KERNEL_COLOURS[self._kernel_colours[group.pattern[0].name]]
        return ENGINES[engine][0]

    @cached_property
    def _kernel_colours(self) -> dict[str, int]:
        """The colour of each kernel name, assigned in order of appearance."""
        names = [name for timeline_lanes in self.panels for name in timeline_lanes.kernels]
        return choose_kernel_colours(
            [*names, *(node.name for node in self.graph.nodes if node.kind == "KERNEL")]
        )

    def _make_legend(self, timelines: Plot | None) -> list[tuple[str, str]]:
        if timelines:
            legend_entries = make_legend_entries(timelines)
        else:
            used_colours = {self._choose_colour(group) for group in self.groups}
            engine_entries = [*ENGINES.values()][len(KERNEL_COLOURS) : DEVICE_ENGINES]
            legend_entries = [
                *make_kernel_legend([*self._kernel_colours]),
                *(entry for entry in engine_entries if entry[0] in used_colours),
            ]
        return [*legend_entries, *([("error", "uses an old array")] if self.graph.dangling else [])]

    def _make_caption(self) -> str:
        folding_text = f"{count(len(self.graph.nodes), 'node')} drawn as {len(self.groups)}."
        caption_texts = [
            f"Nodes and edges: captured on {self.graph.provenance.device}.",
            folding_text if len(self.groups) < len(self.graph.nodes) else "",
            f"Times {self.comparison.provenance.label}." if self.comparison else "",
            self.graph.note,
        ]
        return " ".join(filter(None, caption_texts))


def _make_old_array_key(dangling_array: DanglingArray) -> str:
    return f"old {dangling_array.array.name}"


def _name_group(group: NodeGroup) -> str:
    first_node = min(group.members)
    last_node = max(group.members)
    return f"node {first_node}" if first_node == last_node else f"nodes {first_node} to {last_node}"


def _find_engine(group: NodeGroup) -> str:
    node = group.pattern[0]
    if node.kind in ("KERNEL", "HOST"):
        return node.kind.lower()
    return node.copy_kind if node.copy_kind in ("HtoD", "DtoH") else "DtoD"


def _find_node_spans(replay: Timeline) -> dict[int, tuple[int, int]]:
    """Return the start and the end of each node by its number, in ns since the start of a replay."""
    return {
        activity.graph_node_id: (activity.start_ns - replay.start_ns, activity.end_ns - replay.start_ns)
        for activity in replay.activities
        if activity.graph_id
    }
