"""The plot of a graph of work: nodes in layers from left to right, connected by arrows.

Graphs of many layers continue in bands below each other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpulab.views.parts import plots
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, LineSegments, Nodes
from gpulab.views.parts.layers import Layers, compute_layers

MAX_COLUMNS = 7
MIN_COLUMNS = 5
NODE_WIDTH_SHARE = 0.74  # share of a column's width; the rest is for arrows
NODE_PX = 34
GAP_PX = 12
LOW_NODE_PX = 18
LOW_NODE_GAP_PX = 5
BAND_GAP_PX = 12
OUTLINE_TOLERANCE_PX = 5.0  # for outlines
NODE_SHAPES = ("box", "copy", "set", "round", "hexagon")


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """The appearance of a graph node in a drawing.

    Parameters
    ----------
    text, detail
        Its name, and a smaller line below it.
    colour
        The name of its colour.
    shape
        One of `NODE_SHAPES`.
    sentence
        The sentence that is shown when the node is selected.
    members
        Numbers that the node represents: the trait's values that select it.
    outline_colour
        The name of the colour of its outline; without one, the node has no outline.
    moment_span
        Its start and end, for a drawing with a `moment`; (-1, -1) if they are not known.
    """

    text: str
    colour: str = "accent"
    shape: str = "box"
    detail: str = ""
    sentence: str = ""
    members: tuple[int, ...] = ()
    outline_colour: str = ""
    moment_span: tuple[float, float] = (-1, -1)


Segment = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class _Arrow:
    """An arrow as line segments, with x in columns and y in pixels; the last segment has the head."""

    edge: tuple[int, int]
    segments: list[Segment]


@dataclass(frozen=True, slots=True)
class _Positions:
    """The positions of nodes and arrows, and the height of the plot."""

    x: list[float]
    y: list[float]
    arrows: list[_Arrow]
    height: float


def draw_dag(
    nodes: Mapping[str, tuple[str, str] | DrawnNode],
    edges: Sequence[tuple[str, str]],
    *,
    label: str,
    trait: str = "",
    moment: str = "",
    max_height_px: float = math.inf,
    marked: Collection[str | tuple[str, str]] = (),
    **options: Any,
) -> Plot:
    """Draw a graph in layers from left to right. Each node is as far left as its predecessors allow.

    Parameters
    ----------
    nodes
        The appearance of each node by name, or (text, colour name).
    edges
        Pairs of names (source, target).
    label
        Text for screen readers.
    trait
        The trait that receives a node's first member on a click or Enter; the node with the trait's value is
        outlined.
    moment
        The trait with a time: nodes that start later are pale, and those that run have an outline.
    max_height_px
        If the plot would be higher than this, the nodes become lower.
    marked
        Edges, as pairs, that are red, and names of nodes from which all edges are red.

    Raises
    ------
    ValueError
        If the edges form a cycle.
    """
    index_of_name = {name: index for index, name in enumerate(nodes)}
    node_list = [node if isinstance(node, DrawnNode) else DrawnNode(*node) for node in nodes.values()]
    index_edges = [(index_of_name[start_node], index_of_name[end_node]) for start_node, end_node in edges]
    graph_layers = compute_layers(len(node_list), index_edges)
    node_height = NODE_PX
    positions = _compute_positions(graph_layers, index_edges, NODE_PX, GAP_PX)
    if positions.height > max_height_px:
        node_height = LOW_NODE_PX
        positions = _compute_positions(graph_layers, index_edges, LOW_NODE_PX, LOW_NODE_GAP_PX)
    column_count = min(MAX_COLUMNS, max(MIN_COLUMNS, max(graph_layers.node_layers, default=0) + 1))
    has_many_bands = max(graph_layers.node_layers, default=0) >= MAX_COLUMNS
    colours = sorted(
        {node.colour for node in node_list}
        | {node.outline_colour for node in node_list if node.outline_colour}
    )
    node_of_member = {
        node_member: index for index, node in enumerate(node_list) for node_member in node.members
    }
    left_x = np.array(positions.x)
    top_px = np.array(positions.y)
    node_names = [*nodes]
    red_edges = {
        edge
        for edge in index_edges
        if not {node_names[edge[0]], (node_names[edge[0]], node_names[edge[1]])}.isdisjoint(marked)
    }
    return plots.plot(
        positions.height,
        (
            -0.13 if has_many_bands else -0.02,
            column_count - 1 + NODE_WIDTH_SHARE + (0.15 if has_many_bands else 0.02),
        ),
        Nodes(
            x0=left_x,
            x1=left_x + NODE_WIDTH_SHARE,
            y0=top_px,
            y1=top_px + node_height,
            colour=[colours.index(node.colour) for node in node_list],
            colours=colours,
            mark=[colours.index(node.outline_colour) if node.outline_colour else -1 for node in node_list],
            shape=[NODE_SHAPES.index(node.shape) for node in node_list],
            text=[node.text for node in node_list],
            detail=[node.detail if node_height == NODE_PX else "" for node in node_list],
            say=[["node", "says"]],
            columns={
                "node": np.arange(len(node_list)),
                "says": [node.sentence or node.text for node in node_list],
                "first": [node.members[0] if node.members else -1 for node in node_list],
                "owner": [
                    node_of_member.get(node_member, -1)
                    for node_member in range(max(node_of_member, default=-1) + 1)
                ],
                "layer": list(graph_layers.node_layers),
                "picks": trait,
                "moment": moment,
                "starts": [node.moment_span[0] for node in node_list],
                "ends": [node.moment_span[1] for node in node_list],
            },
        ),
        *_draw_arrows([arrow for arrow in positions.arrows if arrow.edge not in red_edges], "muted", 1),
        *_draw_arrows([arrow for arrow in positions.arrows if arrow.edge in red_edges], "error", 2),
        label=label,
        name="dag",
        **options,
    )


def _draw_arrows(arrows: Sequence[_Arrow], colour: str, width: float) -> list[Item]:
    shaft_segments = np.array(
        [segment for arrow in arrows for segment in arrow.segments[:-1]] or np.empty((0, 4))
    )
    head_segments = np.array([arrow.segments[-1] for arrow in arrows] or np.empty((0, 4)))
    return [
        LineSegments(
            segment_table[:, 0],
            segment_table[:, 1],
            segment_table[:, 2],
            segment_table[:, 3],
            colour,
            width,
            arrow=segment_table is head_segments,
        )
        for segment_table in (shaft_segments, head_segments)
    ]


def _compute_positions(
    graph_layers: Layers, edges: Sequence[tuple[int, int]], node_px: float, gap_px: float
) -> _Positions:
    """Return the positions of nodes and arrows. `MAX_COLUMNS` layers form a band, and bands are below each
    other.
    """
    row_pitch_px = node_px + gap_px
    band_count = max(graph_layers.node_layers, default=-1) // MAX_COLUMNS + 1
    edge_paths = [
        [
            *zip(
                range(graph_layers.node_layers[start_node], graph_layers.node_layers[end_node] + 1),
                path,
                strict=True,
            )
        ]
        for (start_node, end_node), path in zip(edges, graph_layers.edge_paths, strict=True)
    ]
    # A band keeps the order of its rows, without the empty rows above it.
    rows_of_band: list[list[float]] = [[] for _ in range(band_count)]
    for layer, row in (
        *zip(graph_layers.node_layers, graph_layers.node_rows, strict=True),
        *(layer_position for path in edge_paths for layer_position in path),
    ):
        rows_of_band[layer // MAX_COLUMNS].append(row)
    band_tops = []
    y = OUTLINE_TOLERANCE_PX
    for band_rows in rows_of_band:
        band_tops.append(y - min(band_rows) * row_pitch_px)
        y += (max(band_rows) - min(band_rows) + 1) * row_pitch_px + BAND_GAP_PX

    def compute_position(layer: int, row: float) -> tuple[float, float]:
        return float(layer % MAX_COLUMNS), band_tops[layer // MAX_COLUMNS] + row * row_pitch_px

    arrows = []
    for edge, path in zip(edges, edge_paths, strict=True):
        segments: list[Segment] = []
        for layer_position, next_position in pairwise(path):
            (x0, y0), (x1, y1) = compute_position(*layer_position), compute_position(*next_position)
            y0 = y0 + node_px / 2
            y1 = y1 + node_px / 2
            if x1 > x0:
                segments.append((x0 + NODE_WIDTH_SHARE, y0, x1, y1))
            else:  # on the next band: out at the right, in again at the left
                segments += [
                    (x0 + NODE_WIDTH_SHARE, y0, x0 + NODE_WIDTH_SHARE + 0.12, y0),
                    (-0.12, y1, x1, y1),
                ]
            if next_position is not path[-1]:
                segments.append((x1, y1, x1 + NODE_WIDTH_SHARE, y1))
        arrows.append(_Arrow(edge, segments))
    node_positions = [
        compute_position(layer, row)
        for layer, row in zip(graph_layers.node_layers, graph_layers.node_rows, strict=True)
    ]
    height = max(y - BAND_GAP_PX - gap_px, node_px) + OUTLINE_TOLERANCE_PX
    return _Positions(
        [x for x, _ in node_positions], [node_y for _, node_y in node_positions], arrows, height
    )
