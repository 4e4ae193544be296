"""A graph of work as a plot: nodes in layers from left to right, arrows between, long chains in bands."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpulab.views.parts import plots
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, Nodes, Rules
from gpulab.views.parts.layers import Layers, layers

COLUMNS = 7
LEAST_COLUMNS = 5
ROOM = 0.74  # of a column, for the node; the rest is for arrows
NODE_PX = 34
GAP_PX = 12
LOW_PX = 18
LOW_GAP_PX = 5
BAND_PX = 12
EDGE_PX = 5.0  # for outlines
SHAPES = ("box", "copy", "set", "round", "hexagon")


@dataclass(frozen=True, slots=True)
class Shown:
    """A node as it is drawn.

    Parameters
    ----------
    text, detail
        Its name, and a smaller line below it.
    colour
        A colour's name.
    shape
        One of `SHAPES`.
    say
        What is told of it when it is pointed at.
    members
        Numbers that it stands for: those of a trait that choose it.
    mark
        Outlined in this colour.
    """

    text: str
    colour: str = "accent"
    shape: str = "box"
    detail: str = ""
    say: str = ""
    members: tuple[int, ...] = ()
    mark: str = ""


Leg = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class _Way:
    """An arrow: pieces of a line, x in columns and y in pixels, the last with the head."""

    ends: tuple[int, int]
    legs: list[Leg]


@dataclass(frozen=True, slots=True)
class _Places:
    """Positions of nodes and arrows."""

    x: list[float]
    y: list[float]
    ways: list[_Way]
    height: float


def dag(
    nodes: Mapping[str, tuple[str, str] | Shown],
    edges: Sequence[tuple[str, str]],
    *,
    label: str,
    trait: str = "",
    most_px: float = math.inf,
    marked: Collection[str | tuple[str, str]] = (),
    **more: Any,
) -> Plot:
    """Draw nodes in layers, each as far left as its predecessors allow, with arrows between them.

    Parameters
    ----------
    nodes
        Name of each -> what is drawn, or (text, colour name).
    edges
        Pairs (before, after).
    label
        Read aloud.
    trait
        Gets a node's first member when it is clicked or Enter is pressed, and outlines the node that its
        value belongs to.
    most_px
        Nodes are lower where the plot would be higher than this.
    marked
        Arrows that are red, as pairs, and nodes all of whose arrows are.

    Raises
    ------
    ValueError
        If the edges form a circle.
    """
    number = {name: index for index, name in enumerate(nodes)}
    shown = [node if isinstance(node, Shown) else Shown(*node) for node in nodes.values()]
    pairs = [(number[first], number[then]) for first, then in edges]
    placed = layers(len(shown), pairs)
    high = NODE_PX
    places = _places(placed, pairs, NODE_PX, GAP_PX)
    if places.height > most_px:
        high = LOW_PX
        places = _places(placed, pairs, LOW_PX, LOW_GAP_PX)
    columns = min(COLUMNS, max(LEAST_COLUMNS, max(placed.layer, default=0) + 1))
    several = max(placed.layer, default=0) >= COLUMNS
    colours = sorted({node.colour for node in shown} | {node.mark for node in shown if node.mark})
    owner = {member: index for index, node in enumerate(shown) for member in node.members}
    left = np.array(places.x)
    top = np.array(places.y)
    names = [*nodes]
    red = {
        pair for pair in pairs if not {names[pair[0]], (names[pair[0]], names[pair[1]])}.isdisjoint(marked)
    }
    return plots.plot(
        places.height,
        (-0.13 if several else -0.02, columns - 1 + ROOM + (0.15 if several else 0.02)),
        Nodes(
            x0=left,
            x1=left + ROOM,
            y0=top,
            y1=top + high,
            colour=[colours.index(node.colour) for node in shown],
            colours=colours,
            mark=[colours.index(node.mark) if node.mark else -1 for node in shown],
            shape=[SHAPES.index(node.shape) for node in shown],
            text=[node.text for node in shown],
            detail=[node.detail if high == NODE_PX else "" for node in shown],
            say=[["node", "says"]],
            columns={
                "node": np.arange(len(shown)),
                "says": [node.say or node.text for node in shown],
                "first": [node.members[0] if node.members else -1 for node in shown],
                "owner": [owner.get(member, -1) for member in range(max(owner, default=-1) + 1)],
                "layer": list(placed.layer),
                "picks": trait,
            },
        ),
        *_arrows([way for way in places.ways if way.ends not in red], "muted", 1),
        *_arrows([way for way in places.ways if way.ends in red], "error", 2),
        label=label,
        name="dag",
        **more,
    )


def _arrows(ways: Sequence[_Way], colour: str, width: float) -> list[Item]:
    lines = np.array([leg for way in ways for leg in way.legs[:-1]] or np.empty((0, 4)))
    heads = np.array([way.legs[-1] for way in ways] or np.empty((0, 4)))
    return [
        Rules(legs[:, 0], legs[:, 1], legs[:, 2], legs[:, 3], colour, width, arrow=legs is heads)
        for legs in (lines, heads)
    ]


def _places(found: Layers, edges: Sequence[tuple[int, int]], node_px: float, gap_px: float) -> _Places:
    """Return positions in pixels: bands of `COLUMNS` layers, one below the other."""
    pitch = node_px + gap_px
    bands = max(found.layer, default=-1) // COLUMNS + 1
    ways = [
        [*zip(range(found.layer[first], found.layer[then] + 1), way, strict=True)]
        for (first, then), way in zip(edges, found.ways, strict=True)
    ]
    # A band keeps the order of its rows, without the empty rows above it.
    rows: list[list[float]] = [[] for _ in range(bands)]
    for layer, row in (*zip(found.layer, found.row, strict=True), *(spot for way in ways for spot in way)):
        rows[layer // COLUMNS].append(row)
    tops = []
    y = EDGE_PX
    for band in rows:
        tops.append(y - min(band) * pitch)
        y += (max(band) - min(band) + 1) * pitch + BAND_PX

    def place(layer: int, row: float) -> tuple[float, float]:
        return float(layer % COLUMNS), tops[layer // COLUMNS] + row * pitch

    arrows = []
    for ends, way in zip(edges, ways, strict=True):
        legs: list[Leg] = []
        for here, there in pairwise(way):
            (x0, y0), (x1, y1) = place(*here), place(*there)
            y0 = y0 + node_px / 2
            y1 = y1 + node_px / 2
            if x1 > x0:
                legs.append((x0 + ROOM, y0, x1, y1))
            else:  # on the next band: out at the right, in again at the left
                legs += [(x0 + ROOM, y0, x0 + ROOM + 0.12, y0), (-0.12, y1, x1, y1)]
            if there is not way[-1]:
                legs.append((x1, y1, x1 + ROOM, y1))
        arrows.append(_Way(ends, legs))
    at = [place(layer, row) for layer, row in zip(found.layer, found.row, strict=True)]
    height = max(y - BAND_PX - gap_px, node_px) + EDGE_PX
    return _Places([x for x, _ in at], [top for _, top in at], arrows, height)
