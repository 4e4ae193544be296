"""Positions of a graph's nodes in layers from left to right, with few crossings of edges.

Layers come from longest paths, orders from weighted medians in sweeps in both directions, and heights from
the mean of the neighbours. These are the steps of Sugiyama, Tagawa and Toda, "Methods for Visual
Understanding of Hierarchical System Structures" (1981), as in Gansner et al., "A Technique for Drawing
Directed Graphs" (1993).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

MAX_SWEEPS = 12
MAX_EXCHANGE_NODES = 60
MAX_TRIAL_NODES = 200

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layers:
    """The layer and row of each graph node, and the path of each edge. Row 0 is at the top, and row numbers
    can be fractional.

    ``edge_paths`` contains, for each edge, its rows in the layers from its start to its end. An edge over
    several layers has its own row in each of them, so that no node hides it.
    """

    node_layers: tuple[int, ...]
    node_rows: tuple[float, ...]
    edge_paths: tuple[tuple[float, ...], ...]


def compute_layers(node_count: int, edges: Sequence[Edge]) -> Layers:
    """Return the positions of `node_count` graph nodes with the given edges (source, target).

    Raises
    ------
    ValueError
        If the edges form a cycle.
    """
    predecessors: dict[int, list[int]] = {node: [] for node in range(node_count)}
    for start_node, end_node in edges:
        predecessors[end_node].append(start_node)
    layer_of_node: dict[int, int] = {}
    try:
        for node in TopologicalSorter(predecessors).static_order():
            layer_of_node[node] = max(
                (layer_of_node[start_node] + 1 for start_node in predecessors[node]), default=0
            )
    except CycleError:
        raise ValueError("The edges form a cycle, but a graph of work must not have one.") from None
    # An edge over several layers becomes a chain of dummy nodes.
    node_chains: list[list[int]] = []
    for start_node, end_node in edges:
        passed_layers = range(layer_of_node[start_node] + 1, layer_of_node[end_node])
        dummy_nodes = range(len(layer_of_node), len(layer_of_node) + len(passed_layers))
        layer_of_node.update(zip(dummy_nodes, passed_layers, strict=True))
        node_chains.append([start_node, *dummy_nodes, end_node])
    layer_edges = [layer_edge for chain in node_chains for layer_edge in pairwise(chain)]
    layer_order: list[list[int]] = [[] for _ in range(max(layer_of_node.values(), default=-1) + 1)]
    for node, node_layer in layer_of_node.items():
        layer_order[node_layer].append(node)
    layer_order = _reduce_crossings(layer_order, layer_edges)
    row = _compute_rows(layer_order, layer_edges)
    return Layers(
        tuple(layer_of_node[node] for node in range(node_count)),
        tuple(row[node] for node in range(node_count)),
        tuple(tuple(row[node] for node in chain) for chain in node_chains),
    )


def count_crossings(order: Sequence[Sequence[int]], layer_edges: Sequence[Edge]) -> int:
    """Return the number of crossings between edges that connect neighbouring layers."""
    position_of_node = {node: index for nodes in order for index, node in enumerate(nodes)}
    layer_of_node = {node: index for index, nodes in enumerate(order) for node in nodes}
    edges_by_layer: dict[int, list[Edge]] = {}
    for start_node, end_node in layer_edges:
        edges_by_layer.setdefault(layer_of_node[start_node], []).append(
            (position_of_node[start_node], position_of_node[end_node])
        )
    crossing_count = 0
    for position_pairs in edges_by_layer.values():
        target_positions: list[int] = []
        for _, target_position in sorted(position_pairs):
            crossing_count += len(target_positions) - bisect_left(target_positions, target_position + 1)
            insort(target_positions, target_position)
    return crossing_count


def _find_neighbours(layer_edges: Sequence[Edge]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    left_neighbours: dict[int, list[int]] = {}
    right_neighbours: dict[int, list[int]] = {}
    for start_node, end_node in layer_edges:
        right_neighbours.setdefault(start_node, []).append(end_node)
        left_neighbours.setdefault(end_node, []).append(start_node)
    return left_neighbours, right_neighbours


def _reduce_crossings(initial_order: list[list[int]], layer_edges: Sequence[Edge]) -> list[list[int]]:
    """Return the order of nodes with the fewest crossings among the results of several sweeps."""
    left_neighbours, right_neighbours = _find_neighbours(layer_edges)
    best_order = initial_order
    fewest_crossings = count_crossings(initial_order, layer_edges)
    sweep_settings = [(average, is_backward) for average in (_median, _mean) for is_backward in (False, True)]
    for average, is_backward in (
        sweep_settings if len(left_neighbours) <= MAX_TRIAL_NODES else sweep_settings[:1]
    ):
        candidate_order = [list(nodes) for nodes in initial_order]
        for sweep in range(MAX_SWEEPS if fewest_crossings else 0):
            is_forward = (sweep % 2 == 0) is not is_backward
            for index in (
                range(1, len(candidate_order)) if is_forward else range(len(candidate_order) - 2, -1, -1)
            ):
                fixed_layer = candidate_order[index - 1] if is_forward else candidate_order[index + 1]
                position_of_node = {node: row_index for row_index, node in enumerate(fixed_layer)}
                neighbours = left_neighbours if is_forward else right_neighbours
                weight_of_node = {
                    node: average([position_of_node[neighbour] for neighbour in neighbours[node]])
                    if node in neighbours
                    else float(node_index)
                    for node_index, node in enumerate(candidate_order[index])
                }
                candidate_order[index].sort(key=weight_of_node.__getitem__)
                _exchange_nodes(candidate_order, index, left_neighbours, right_neighbours)
            crossing_count = count_crossings(candidate_order, layer_edges)
            if crossing_count < fewest_crossings:
                best_order = [list(nodes) for nodes in candidate_order]
                fewest_crossings = crossing_count
    previous_crossings = fewest_crossings + 1
    while fewest_crossings < previous_crossings:
        for index in range(len(best_order)):
            _exchange_nodes(best_order, index, left_neighbours, right_neighbours)
        previous_crossings = fewest_crossings
        fewest_crossings = count_crossings(best_order, layer_edges)
    return best_order


def _median(values: Sequence[float]) -> float:
    values = sorted(values)
    middle_index = len(values) // 2
    return (
        float(values[middle_index])
        if len(values) % 2
        else (values[middle_index - 1] + values[middle_index]) / 2
    )


def _exchange_nodes(
    order: list[list[int]],
    index: int,
    left_neighbours: dict[int, list[int]],
    right_neighbours: dict[int, list[int]],
) -> None:
    """Exchange neighbouring nodes in a layer as long as that reduces the number of crossings."""
    neighbour_rows = [
        (neighbours, order[adjacent_index])
        for neighbours, adjacent_index in ((left_neighbours, index - 1), (right_neighbours, index + 1))
        if 0 <= adjacent_index < len(order)
    ]
    position_tables = [
        (neighbours, {node: position for position, node in enumerate(nodes)})
        for neighbours, nodes in neighbour_rows
    ]

    def count_crossed(a: int, b: int) -> int:
        """Return how often the edges of nodes `a` and `b` cross if node `a` is placed above node `b`."""
        return sum(
            position[i] > position[j]
            for neighbours, position in position_tables
            for i in neighbours.get(a, ())
            for j in neighbours.get(b, ())
        )

    nodes = order[index]
    for _ in range(len(nodes) if len(nodes) <= MAX_EXCHANGE_NODES else 0):
        has_changed = False
        for position in range(len(nodes) - 1):
            a = nodes[position]
            b = nodes[position + 1]
            if count_crossed(b, a) < count_crossed(a, b):
                nodes[position], nodes[position + 1], has_changed = b, a, True
        if not has_changed:
            return


def _compute_rows(order: list[list[int]], layer_edges: Sequence[Edge]) -> dict[int, float]:
    """Return the row of each node: near the mean of its neighbours, in order, at least one row apart."""
    left_neighbours, right_neighbours = _find_neighbours(layer_edges)
    row_of_node = {node: float(index) for nodes in order for index, node in enumerate(nodes)}
    for sweep in range(MAX_SWEEPS):
        neighbours = (left_neighbours, right_neighbours)[sweep % 2]
        for nodes in order if sweep % 2 == 0 else reversed(order):
            ideal_row_list = [
                _mean([row_of_node[neighbour] for neighbour in neighbours[layer_node]])
                if layer_node in neighbours
                else row_of_node[layer_node]
                for layer_node in nodes
            ]
            row_of_node.update(zip(nodes, _space_rows(ideal_row_list), strict=True))
    top_row = min(row_of_node.values(), default=0.0)
    return {node: node_row - top_row for node, node_row in row_of_node.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _space_rows(ideal_rows: list[float]) -> list[float]:
    """Return rows in the same order, at least 1 apart, that are nearest to the ideal rows (least squares)."""
    row_blocks: list[
        tuple[float, int]
    ] = []  # mean of the starts that are ideal for its members, and their number
    for index, ideal_row in enumerate(ideal_rows):
        block_mean = ideal_row - index
        block_size = 1
        while row_blocks and row_blocks[-1][0] > block_mean:
            other_mean, other_size = row_blocks.pop()
            block_mean = (block_mean * block_size + other_mean * other_size) / (block_size + other_size)
            block_size = block_size + other_size
        row_blocks.append((block_mean, block_size))
    block_starts = [block_mean for block_mean, block_size in row_blocks for _ in range(block_size)]
    return [block_start + index for index, block_start in enumerate(block_starts)]
