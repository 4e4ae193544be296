"""Folding of repeated nodes of a graph into groups, such as ``40 × add`` instead of 40 nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtualgpu.records import GraphNode, GraphRecord

MIN_FOLDED_NODES = 4
MAX_PATTERN_LENGTH = 12


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A group of graph nodes that is drawn as one node, because a ``pattern`` repeats ``repetitions`` times.

    Parameters
    ----------
    members
        Numbers of the nodes, in the order of execution.
    pattern
        The nodes that repeat.
    """

    members: tuple[int, ...]
    pattern: tuple[GraphNode, ...]
    repetitions: int = 1
    is_fan: bool = False

    @property
    def key(self) -> object:
        """A key for comparing groups of graph nodes by their operations. Groups with equal operations have
        the same key.
        """
        return tuple(map(make_operation_key, self.pattern)), self.repetitions, self.is_fan


def make_operation_key(node: GraphNode) -> object:
    """Return a key for the operation of a graph node. Nodes with the same operation have equal keys."""
    return node.kind, node.name, node.grid, node.block, node.size_bytes, node.copy_kind


def fold_groups(
    record: GraphRecord, separate_nodes: frozenset[int] = frozenset(), is_folded: bool = True
) -> tuple[list[NodeGroup], list[tuple[int, int]]]:
    """Return the groups of graph nodes to draw, and the edges between the groups.

    Parameters
    ----------
    separate_nodes
        Nodes that are not merged with others.
    is_folded
        Whether to merge repeated nodes; otherwise each node is a group.
    """
    single_groups = [NodeGroup((node.number,), (node,)) for node in record.nodes]
    if not is_folded:
        return single_groups, list(record.edges)
    current_groups = [
        group for node_path in _find_paths(record) for group in _fold_path(record, node_path, separate_nodes)
    ]
    while True:
        edges = _find_group_edges(current_groups, record.edges)
        merged_groups = _merge_fans(current_groups, edges, separate_nodes)
        if len(merged_groups) == len(current_groups):
            return current_groups, edges
        current_groups = merged_groups  # fewer


def _find_paths(record: GraphRecord) -> list[list[int]]:
    """Divide the nodes into paths. Each node of a path is the only successor and predecessor of its
    neighbours.
    """
    successors: dict[int, list[int]] = {}
    predecessors: dict[int, list[int]] = {}
    for start_node, end_node in record.edges:
        successors.setdefault(start_node, []).append(end_node)
        predecessors.setdefault(end_node, []).append(start_node)

    def find_only_successor(node: int) -> int | None:
        """Return the only successor of a node if this successor has no other predecessor, and None
        otherwise.
        """
        next_nodes = successors.get(node, ())
        return next_nodes[0] if len(next_nodes) == 1 and len(predecessors[next_nodes[0]]) == 1 else None

    paths = []
    for start in {node.number for node in record.nodes} - {
        find_only_successor(node.number) for node in record.nodes
    }:
        node_path = [start]
        next_node = find_only_successor(start)
        while next_node is not None:
            node_path.append(next_node)
            next_node = find_only_successor(next_node)
        paths.append(node_path)
    return sorted(paths)


def _fold_path(record: GraphRecord, chain: Sequence[int], separate_nodes: frozenset[int]) -> list[NodeGroup]:
    """Return the groups of a path, with each repeated part merged into one group."""
    nodes = [record.nodes[node_number] for node_number in chain]
    node_keys = [
        object() if node_number in separate_nodes else make_operation_key(record.nodes[node_number])
        for node_number in chain
    ]
    path_groups = []
    path_index = 0
    while path_index < len(chain):
        pattern_length, repetition_count = max(
            (
                _count_repeats(node_keys, path_index, pattern_length)
                for pattern_length in range(1, MAX_PATTERN_LENGTH + 1)
            ),
            key=lambda group: (group[0] * group[1], -group[0]) if group[1] > 1 else (0, 0),
        )
        if pattern_length * repetition_count < MIN_FOLDED_NODES:
            pattern_length = 1
            repetition_count = 1
        end_index = path_index + pattern_length * repetition_count
        path_groups.append(
            NodeGroup(
                tuple(chain[path_index:end_index]),
                tuple(nodes[path_index : path_index + pattern_length]),
                repetition_count,
            )
        )
        path_index = end_index
    return path_groups


def _count_repeats(node_keys: Sequence[object], start: int, length: int) -> tuple[int, int]:
    """Return the pattern's length and the number of its repetitions in a row from index `start`."""
    pattern = node_keys[start : start + length]
    repetition_count = 1
    while node_keys[start + repetition_count * length : start + (repetition_count + 1) * length] == pattern:
        repetition_count += 1
    return length, repetition_count


def _find_group_edges(
    group_list: Sequence[NodeGroup], edges: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    group_of_node = {
        node_number: index for index, group in enumerate(group_list) for node_number in group.members
    }
    group_edges = ((group_of_node[start_node], group_of_node[end_node]) for start_node, end_node in edges)
    return list(dict.fromkeys(edge for edge in group_edges if edge[0] != edge[1]))


def _merge_fans(
    group_list: Sequence[NodeGroup], edges: Sequence[tuple[int, int]], separate_nodes: frozenset[int]
) -> list[NodeGroup]:
    """Merge groups that are equal and have the same neighbours, and return all groups."""
    neighbours_of_group: list[tuple[list[int], list[int]]] = [([], []) for _ in group_list]
    for start_group, end_group in edges:
        neighbours_of_group[start_group][1].append(end_group)
        neighbours_of_group[end_group][0].append(start_group)
    groups_by_key: dict[object, list[int]] = {}
    for index, group in enumerate(group_list):
        is_separate = separate_nodes.intersection(group.members) or group.is_fan
        fan_key = (
            index
            if is_separate
            else (group.key, tuple(neighbours_of_group[index][0]), tuple(neighbours_of_group[index][1]))
        )
        groups_by_key.setdefault(fan_key, []).append(index)
    return [
        group
        for group_indices in groups_by_key.values()
        for group in _merge_fan([group_list[index] for index in group_indices])
    ]


def _merge_fan(similar_groups: list[NodeGroup]) -> list[NodeGroup]:
    """Merge similar parallel groups into one group if there are enough of them; otherwise return them
    unchanged.
    """
    if len(similar_groups) < MIN_FOLDED_NODES:
        return similar_groups
    first_group = similar_groups[0]
    node_numbers = tuple(node_number for group in similar_groups for node_number in group.members)
    return [
        NodeGroup(
            node_numbers, first_group.pattern, first_group.repetitions * len(similar_groups), is_fan=True
        )
    ]
