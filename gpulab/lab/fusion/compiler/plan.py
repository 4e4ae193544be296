"""Division of a graph's expressions into kernels, with their inputs, outputs and fusion boundaries.

There are three ways to build kernels. Each can fuse more than the one before:

``"maps"``
    fuses element-wise expressions of one shape, as in an `ElementwiseKernel`;
``"reductions"``
    also fuses one reduction at their end, and expressions of its result, as in a `ReductionKernel`;
``"rows"``
    also fuses any number of reductions over rows that fit into a block's shared memory, as in a kernel
    that is written by hand.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from gpulab.lab.fusion.compiler.trace import Node, Trace, have_same_elements, overlaps

FusionMode = Literal["single", "maps", "reductions", "rows"]
ROW_BYTES = 48 * 1024  # of shared memory, which every block may have
WORK_KINDS = ("map", "reduce", "matmul", "kernel", "other")

REDUCTION_REASON = "a row must be complete before its consumer begins"
REDUCTION_BETWEEN_REASON = "a reduction between them must be complete first"
CONSUMERS_REASON = (
    "two consumers: another kernel also needs the inputs, so they are either stored or computed twice"
)
ALIAS_REASON = "in place: the expression reads other elements of the memory that it changes"
SHAPE_REASON = "different shapes: the threads of the two expressions do not match"
MATMUL_REASON = "a matrix multiplication: each element needs a whole row and a whole column"
KERNEL_REASON = "a kernel of your own is used unchanged"
OTHER_REASON = "not an expression of elements"
STREAM_REASON = "another stream or device"
HOST_REASON = "Python needs a value in between"


@dataclass(frozen=True, slots=True)
class RefusedEdge:
    """A dependency between expressions in different kernels. The attribute `reason` states why the
    expressions are not fused.
    """

    first_number: int
    second_number: int
    reason: str


class Plan:
    """A plan that divides the expressions of a graph into kernels. The fusion mode determines which
    expressions can be fused.

    Attributes
    ----------
    groups : list of list of int
        Nodes of each kernel, in an order in which they can run.
    edges : list of Edge
        The dependencies between kernels, each of which costs a round trip through memory.
    """

    def __init__(self, trace: Trace, fusion_mode: FusionMode = "reductions") -> None:
        self.trace = trace
        self.nodes = trace.nodes
        self.fusion_mode = fusion_mode
        self.work_nodes = [n for n in self.nodes if n.kind in WORK_KINDS]
        self.sources = {n.number: [*_find_sources(self.nodes, n)] for n in self.nodes}
        self.consumers: dict[int, set[int]] = defaultdict(set)
        for node in self.nodes:
            for origin_number, _ in self.sources[node.number]:
                self.consumers[origin_number].add(node.number)
        self.kept_numbers = {_find_origin(self.nodes, n) for n in trace.outputs}
        self.group_of_node = {n.number: n.number for n in self.work_nodes}
        self.ordered_pairs = self._find_ordered_pairs()
        self.edges: list[RefusedEdge] = []
        refused_edges: list[RefusedEdge] = []
        for node in self.work_nodes:
            for origin_number, source_node in self.sources[node.number]:
                if (
                    self.nodes[origin_number].kind in WORK_KINDS
                    and self.group_of_node[origin_number] != self.group_of_node[node.number]
                ):
                    reason = self._find_fusion_obstacle(self.nodes[origin_number], node, source_node)
                    if reason:
                        refused_edges.append(RefusedEdge(origin_number, node.number, reason))
                    else:
                        self._merge_groups(origin_number, node.number)
        self.edges = [
            edge
            for edge in refused_edges
            if self.group_of_node[edge.first_number] != self.group_of_node[edge.second_number]
        ]
        self.groups = self._sort_groups()

    def _find_members(self, group_number: int) -> list[Node]:
        return [
            n for n in self.work_nodes if self.group_of_node[n.number] == self.group_of_node[group_number]
        ]

    def _merge_groups(self, first_node: int, second_node: int) -> None:
        old_group = self.group_of_node[second_node]
        new_group = self.group_of_node[first_node]
        self.group_of_node.update(
            {n: new_group for n, group in self.group_of_node.items() if group == old_group}
        )

    def _find_fusion_obstacle(self, first_node: Node, second_node: Node, source_node: Node) -> str:
        """Return the reason why two expressions cannot share a kernel, or an empty string.

        `source_node` is the node that `second_node` reads.
        """
        for node in (first_node, second_node):
            if node.kind in ("matmul", "kernel", "other"):
                return {"matmul": MATMUL_REASON, "kernel": KERNEL_REASON, "other": OTHER_REASON}[node.kind]
        if self.fusion_mode == "single" or (
            self.fusion_mode == "maps" and "reduce" in (first_node.kind, second_node.kind)
        ):
            return REDUCTION_REASON
        if (first_node.stream, first_node.device) != (second_node.stream, second_node.device):
            return STREAM_REASON
        members = [*self._find_members(first_node.number), *self._find_members(second_node.number)]
        reason = self._find_reduction_obstacle(members, first_node, second_node, source_node)
        if reason and self.fusion_mode == "rows":
            reason = self._find_row_obstacle(members)
        return (
            reason
            or self.find_alias_reason(members)
            or self._find_cycle_reason({n.number for n in members}, members)
        )

    def _find_reduction_obstacle(
        self, members: list[Node], first_node: Node, second_node: Node, source_node: Node
    ) -> str:
        reductions = [n for n in members if n.kind == "reduce"]
        if (first_node.kind == "reduce" and second_node.shape != first_node.shape) or len(reductions) > 1:
            return REDUCTION_REASON
        if source_node is not first_node and source_node.shape != first_node.shape:
            return SHAPE_REASON
        if not reductions:
            return SHAPE_REASON if len({n.shape for n in members}) > 1 else ""
        reduction = reductions[0]
        input_nodes = [source_node for _, source_node in self.sources[reduction.number]]
        loop_shape = input_nodes[0].shape if input_nodes else ()
        needed_numbers = {n.number for n in members} & self._find_ancestors(reduction.number)
        for node in members:
            if node is reduction:
                continue
            if node.number in needed_numbers:
                if node.shape != loop_shape:
                    return SHAPE_REASON
                if node.number in self.kept_numbers or self.consumers[node.number] - {
                    n.number for n in members
                }:
                    return CONSUMERS_REASON
            elif node.shape != reduction.shape:
                return REDUCTION_REASON
            elif reduction.number not in self._find_ancestors(node.number):
                return SHAPE_REASON
        return ""

    def _find_row_obstacle(self, members: list[Node]) -> str:
        """Return why a kernel with one row per block cannot compute a group, or an empty string."""
        full_shape = max(
            (source_node.shape for n in members for _, source_node in self.sources[n.number]), key=math.prod
        )
        if not full_shape or full_shape[-1] * members[0].dtype.itemsize > ROW_BYTES:
            return f"{REDUCTION_REASON}, and is longer than a block's shared memory"
        for node in members:
            reduces_rows = node.kind == "reduce" and math.prod(node.shape) == math.prod(full_shape[:-1])
            is_row_value = math.prod(node.shape) == math.prod(full_shape[:-1])
            if not (reduces_rows or (node.kind == "map" and (node.shape == full_shape or is_row_value))):
                return REDUCTION_REASON if node.kind == "reduce" else SHAPE_REASON
        return ""

    def find_alias_reason(self, members: list[Node]) -> str:
        """Return the reason why nodes with overlapping memory cannot be fused, or an empty string. A node
        must not write memory from which another node reads different elements.
        """
        for node in members:
            if node.overwritten_number is None:
                continue
            for reader in members:
                read_arrays = [self.nodes[n].result for n in reader.read_numbers]
                if any(
                    overlaps(node.result, read_array) and not have_same_elements(node.result, read_array)
                    for read_array in read_arrays
                ):
                    return ALIAS_REASON
        return ""

    def _find_cycle_reason(self, fused_numbers: set[int], members: list[Node]) -> str:
        """Return a reason if a fused kernel would depend on its own result, or an empty string."""
        group_of_node = {n: -1 if n in fused_numbers else group for n, group in self.group_of_node.items()}
        group_graph: dict[int, set[int]] = defaultdict(set)
        for first_node, second_node in self.ordered_pairs:
            if group_of_node[first_node] != group_of_node[second_node]:
                group_graph[group_of_node[second_node]].add(group_of_node[first_node])
        try:
            TopologicalSorter(group_graph).prepare()
        except CycleError:
            lowest_number = min(fused_numbers)
            highest_number = max(fused_numbers)
            kinds_between = {
                n.kind for n in self.nodes[lowest_number:highest_number] if n.number not in fused_numbers
            }
            return (
                HOST_REASON
                if "host" in kinds_between
                else REDUCTION_BETWEEN_REASON
                if "reduce" in kinds_between
                else OTHER_REASON
            )
        return ""

    def _find_ordered_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of nodes whose order is fixed by data, by shared memory or by the host."""
        ordered_pairs = [
            (origin_number, n.number) for n in self.work_nodes for origin_number, _ in self.sources[n.number]
        ]
        writers = [n for n in self.work_nodes if n.overwritten_number is not None]
        for writer in writers:
            for other_node in self.work_nodes:
                accessed_arrays = [self.nodes[k].result for k in other_node.read_numbers]
                accessed_arrays += [other_node.result] if other_node.overwritten_number is not None else []
                if other_node is not writer and any(_may_overlap(writer.result, a) for a in accessed_arrays):
                    ordered_pairs.append(
                        (min(writer.number, other_node.number), max(writer.number, other_node.number))
                    )
        host_numbers = [n.number for n in self.nodes if n.kind == "host"]
        for host_number in host_numbers:
            ordered_pairs += [
                (a.number, b.number)
                for a in self.work_nodes
                for b in self.work_nodes
                if a.number < host_number < b.number
            ]
        return [
            (a, b)
            for a, b in dict.fromkeys(ordered_pairs)
            if a in self.group_of_node and b in self.group_of_node
        ]

    def _find_ancestors(self, node_number: int) -> set[int]:
        ancestors: set[int] = set()
        pending_numbers = [node_number]
        while pending_numbers:
            for origin_number, _ in self.sources[pending_numbers.pop()]:
                if origin_number not in ancestors:
                    ancestors.add(origin_number)
                    pending_numbers.append(origin_number)
        return ancestors

    def _sort_groups(self) -> list[list[int]]:
        group_graph: dict[int, set[int]] = {group: set() for group in self.group_of_node.values()}
        for first_node, second_node in self.ordered_pairs:
            if self.group_of_node[first_node] != self.group_of_node[second_node]:
                group_graph[self.group_of_node[second_node]].add(self.group_of_node[first_node])
        return [
            [n.number for n in self._find_members(group)]
            for group in TopologicalSorter(group_graph).static_order()
        ]

    # --- traffic ------------------------------------------------------------------------------------------
    def find_reads(self, group: Sequence[int]) -> list[Node]:
        """Return the nodes whose arrays a kernel reads from memory. Each node is listed once."""
        read_numbers = dict.fromkeys(n for node_number in group for n in self.nodes[node_number].read_numbers)
        return [
            *_find_distinct_nodes(
                self.nodes[n] for n in read_numbers if _find_origin(self.nodes, n) not in group
            )
        ]

    def find_writes(self, group: Sequence[int]) -> list[Node]:
        """Return the nodes whose arrays a kernel stores in memory. These arrays are results, kept arrays, or
        inputs of other kernels.
        """
        output_nodes = [
            self.nodes[n]
            for n in reversed(group)  # of several changes of one array the last is stored
            if n in self.kept_numbers
            or self.nodes[n].overwritten_number is not None
            or self.consumers[n] - {*group}
        ]
        return [*_find_distinct_nodes(output_nodes)][::-1]

    def count_moved_bytes(self, bytes_by_node: Mapping[int, int]) -> int:
        """Return the total number of bytes that all kernels read and write.

        The parameter `bytes_by_node` maps node numbers to measured byte counts, which replace the computed
        counts.
        """
        return sum(
            bytes_by_node[group[0]]
            if group[0] in bytes_by_node
            else sum(n.nbytes for n in (*self.find_reads(group), *self.find_writes(group)))
            for group in self.groups
        )


def _find_sources(nodes: list[Node], node: Node) -> Iterator[tuple[int, Node]]:
    """Yield a pair for each array that a node reads: the number of the node that computed the array, and the
    array's own node.
    """
    for read_number in node.read_numbers:
        yield _find_origin(nodes, read_number), nodes[read_number]


def _find_origin(nodes: list[Node], node_number: int) -> int:
    """Return the number of the node that computed the array to which a view refers."""
    while nodes[node_number].kind in ("view", "host") and nodes[node_number].read_numbers:
        node_number = nodes[node_number].read_numbers[0]
    return node_number


def _find_distinct_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    distinct_nodes: list[Node] = []
    for node in nodes:
        if not any(have_same_elements(node.result, listed_node.result) for listed_node in distinct_nodes):
            distinct_nodes.append(node)
            yield node


def _may_overlap(first_array: object, second_array: object) -> bool:
    return (
        hasattr(first_array, "strides")
        and hasattr(second_array, "strides")
        and overlaps(first_array, second_array)
    )
