"""Positions of a graph's nodes: in layers from left to right, with few crossings.

Layers by longest path, orders by weighted medians swept forth and back, heights by the neighbours' mean: the
steps of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981), as Gansner et al. have them in "A Technique for Drawing Directed Graphs" (1993).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

SWEEPS = 12
MOST_EXCHANGED = 60
MOST_TRIED = 200

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layers:
    """Positions of nodes: ``layer`` and ``row`` (0 is the top; fractions occur) of each.

    ``ways`` has, for each edge, the rows that it passes in the layers from its start to its end: an edge over
    several layers has a place of its own in each, so that it goes behind no node.
    """

    layer: tuple[int, ...]
    row: tuple[float, ...]
    ways: tuple[tuple[float, ...], ...]


def layers(count: int, edges: Sequence[Edge]) -> Layers:
    """Return positions of `count` nodes with these edges (before, after).

    Raises
    ------
    ValueError
        If the edges form a circle.
    """
    before: dict[int, list[int]] = {node: [] for node in range(count)}
    for first, then in edges:
        before[then].append(first)
    layer: dict[int, int] = {}
    try:
        for node in TopologicalSorter(before).static_order():
            layer[node] = max((layer[first] + 1 for first in before[node]), default=0)
    except CycleError:
        raise ValueError("The edges form a circle; a graph of work has none.") from None
    # An edge over several layers becomes a chain of places.
    chains: list[list[int]] = []
    for first, then in edges:
        between = range(layer[first] + 1, layer[then])
        places = range(len(layer), len(layer) + len(between))
        layer.update(zip(places, between, strict=True))
        chains.append([first, *places, then])
    steps = [step for chain in chains for step in pairwise(chain)]
    order: list[list[int]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node, at in layer.items():
        order[at].append(node)
    order = _with_few_crossings(order, steps)
    row = _rows(order, steps)
    return Layers(
        tuple(layer[node] for node in range(count)),
        tuple(row[node] for node in range(count)),
        tuple(tuple(row[node] for node in chain) for chain in chains),
    )


def crossings(order: Sequence[Sequence[int]], steps: Sequence[Edge]) -> int:
    """Return the number of crossings of edges between neighbouring layers."""
    place = {node: index for nodes in order for index, node in enumerate(nodes)}
    number = {node: index for index, nodes in enumerate(order) for node in nodes}
    between: dict[int, list[Edge]] = {}
    for first, then in steps:
        between.setdefault(number[first], []).append((place[first], place[then]))
    count = 0
    for pairs in between.values():
        ends: list[int] = []
        for _, end in sorted(pairs):
            count += len(ends) - bisect_left(ends, end + 1)
            insort(ends, end)
    return count


def _neighbours(steps: Sequence[Edge]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    left: dict[int, list[int]] = {}
    right: dict[int, list[int]] = {}
    for first, then in steps:
        right.setdefault(first, []).append(then)
        left.setdefault(then, []).append(first)
    return left, right


def _with_few_crossings(order: list[list[int]], steps: Sequence[Edge]) -> list[list[int]]:
    """Return the best result of several sweeps, in which no exchange of two neighbours saves a crossing."""
    left, right = _neighbours(steps)
    best = order
    fewest = crossings(order, steps)
    starts = [(weigh, back) for weigh in (_median, _mean) for back in (False, True)]
    for weigh, back in starts if len(left) <= MOST_TRIED else starts[:1]:
        now = [list(nodes) for nodes in order]
        for sweep in range(SWEEPS if fewest else 0):
            forth = (sweep % 2 == 0) is not back
            for at in range(1, len(now)) if forth else range(len(now) - 2, -1, -1):
                beside = now[at - 1] if forth else now[at + 1]
                place = {node: place for place, node in enumerate(beside)}
                near = left if forth else right
                weight = {
                    node: weigh([place[each] for each in near[node]]) if node in near else float(here)
                    for here, node in enumerate(now[at])
                }
                now[at].sort(key=weight.__getitem__)
                _exchange(now, at, left, right)
            found = crossings(now, steps)
            if found < fewest:
                best = [list(nodes) for nodes in now]
                fewest = found
    last = fewest + 1
    while fewest < last:
        for at in range(len(best)):
            _exchange(best, at, left, right)
        last = fewest
        fewest = crossings(best, steps)
    return best


def _median(values: Sequence[float]) -> float:
    values = sorted(values)
    middle = len(values) // 2
    return float(values[middle]) if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def _exchange(
    order: list[list[int]], at: int, left: dict[int, list[int]], right: dict[int, list[int]]
) -> None:
    """Exchange neighbours within a layer while that saves crossings."""
    beside = [
        (near, order[other]) for near, other in ((left, at - 1), (right, at + 1)) if 0 <= other < len(order)
    ]
    places = [(near, {node: place for place, node in enumerate(nodes)}) for near, nodes in beside]

    def crossed(a: int, b: int) -> int:
        """Crossings of the edges of two nodes, the first one above."""
        return sum(
            place[i] > place[j] for near, place in places for i in near.get(a, ()) for j in near.get(b, ())
        )

    nodes = order[at]
    for _ in range(len(nodes) if len(nodes) <= MOST_EXCHANGED else 0):
        changed = False
        for place in range(len(nodes) - 1):
            a = nodes[place]
            b = nodes[place + 1]
            if crossed(b, a) < crossed(a, b):
                nodes[place], nodes[place + 1], changed = b, a, True
        if not changed:
            return


def _rows(order: list[list[int]], steps: Sequence[Edge]) -> dict[int, float]:
    """Return heights: each near the mean of its neighbours, in order and at least a row apart."""
    left, right = _neighbours(steps)
    row = {node: float(at) for nodes in order for at, node in enumerate(nodes)}
    for sweep in range(SWEEPS):
        near = (left, right)[sweep % 2]
        for nodes in order if sweep % 2 == 0 else reversed(order):
            wanted = [_mean([row[each] for each in near[n]]) if n in near else row[n] for n in nodes]
            row.update(zip(nodes, _apart(wanted), strict=True))
    least = min(row.values(), default=0.0)
    return {node: place - least for node, place in row.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _apart(wanted: list[float]) -> list[float]:
    """Return heights in the same order, at least 1 apart, nearest to the given ones by least squares."""
    blocks: list[tuple[float, int]] = []  # mean of what its members want of the block's start, and how many
    for at, place in enumerate(wanted):
        mean = place - at
        size = 1
        while blocks and blocks[-1][0] > mean:
            other, many = blocks.pop()
            mean = (mean * size + other * many) / (size + many)
            size = size + many
        blocks.append((mean, size))
    starts = [mean for mean, size in blocks for _ in range(size)]
    return [start + at for at, start in enumerate(starts)]
