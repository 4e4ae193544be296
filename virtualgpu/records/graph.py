"""Record of a CUDA graph: its nodes with their parameters, and their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import CopyKind, SourceLine, Timeline

# CUDA's kinds of node (``CUgraphNodeType``).
NodeKind = Literal[
    "KERNEL",
    "MEMCPY",
    "MEMSET",
    "HOST",
    "GRAPH",
    "EMPTY",
    "WAIT_EVENT",
    "EVENT_RECORD",
    "MEM_ALLOC",
    "MEM_FREE",
    "CONDITIONAL",
    "OTHER",
]
ADDRESS_BYTES = 8


@dataclass(frozen=True, slots=True)
class NodeParameter:
    """One parameter of a graph node, stored as the bytes that a launch passes to the kernel.

    The field ``offset`` is its offset in the parameter buffer. ``name`` and ``type`` are those of the
    kernel's source, empty if unknown. ``addresses`` are the device addresses in it: one for a pointer, one or
    more for a structure, none for a number.
    """

    data: bytes
    offset: int = 0
    name: str = ""
    type: str = ""
    addresses: tuple[int, ...] = ()

    def replace_addresses(self, new_addresses: Mapping[int, int]) -> NodeParameter:
        """Return the parameter with its old addresses replaced. The dictionary `new_addresses` maps old
        addresses to new ones.
        """
        if not new_addresses.keys() & set(self.addresses):
            return self
        moved_bytes = bytearray(self.data)
        for offset in range(0, len(moved_bytes) - ADDRESS_BYTES + 1, ADDRESS_BYTES):
            stored_address = int.from_bytes(moved_bytes[offset : offset + ADDRESS_BYTES], "little")
            if stored_address in self.addresses and stored_address in new_addresses:
                moved_bytes[offset : offset + ADDRESS_BYTES] = new_addresses[stored_address].to_bytes(
                    ADDRESS_BYTES, "little"
                )
        addresses = tuple(new_addresses.get(address, address) for address in self.addresses)
        return replace(self, data=bytes(moved_bytes), addresses=addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """One node of a graph. The node of a kernel has a launch shape and parameters, and the node of a copy or
    memset has a size.

    ``source`` is the program's line that submitted it, if known. A copy has the parameters ``source`` and
    ``destination``, a memory set ``destination``; parameters in the host's memory have no ``addresses``.
    """

    number: int
    kind: NodeKind
    name: str
    grid: Dim3 | None = None
    block: Dim3 | None = None
    shared_bytes: int = 0
    parameters: tuple[NodeParameter, ...] = ()
    size_bytes: int = 0
    copy_kind: CopyKind | None = None
    device_id: int = 0
    source: SourceLine | None = None

    @property
    def addresses(self) -> tuple[int, ...]:
        """All device addresses among the node's parameters."""
        return tuple(address for parameter in self.parameters for address in parameter.addresses)

    def replace_addresses(self, new_addresses: Mapping[int, int]) -> GraphNode:
        """Return the node with new addresses in its parameters. The dictionary `new_addresses` maps old
        addresses to new ones.
        """
        parameters = tuple(parameter.replace_addresses(new_addresses) for parameter in self.parameters)
        return self if parameters == self.parameters else replace(self, parameters=parameters)


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """A feature that this machine does not support, with the reason. The truth value of this object is
    False.
    """

    what: str
    why: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.what}: not available here, {self.why}."

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class GraphArray:
    """An array of the program that a graph uses, with its name and its address in the graph."""

    name: str
    address: int
    size_bytes: int
    dtype: str
    shape: tuple[int, ...]
    is_output: bool = False

    def __contains__(self, address: int) -> bool:
        return self.address <= address < self.address + self.size_bytes


@dataclass(frozen=True, slots=True)
class DanglingArray:
    """A variable of the program that no longer refers to the array whose address a graph uses.

    The field ``nodes`` contains the numbers of the nodes that still use the old address. ``in_graph`` and
    ``now`` are the first elements of the array that the graph reads and of the current array of the name;
    ``address_now`` is None if the name has no array any more.
    """

    array: GraphArray
    address_now: int | None
    nodes: tuple[int, ...]
    in_graph: tuple[float, ...] = ()
    now: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """The nodes and edges of a graph. Nodes are numbered in the order of capture, and each edge is a pair
    (before, after).

    ``arrays`` are those with names in the program; all other memory of the nodes is temporary. ``note``
    describes parts that could not be observed.
    """

    provenance: Provenance
    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...]
    arrays: tuple[GraphArray, ...] = ()
    dangling: tuple[DanglingArray, ...] = ()
    note: str = ""

    def array_at(self, address: int) -> GraphArray | None:
        """Return the named array that contains an address, or None."""
        return next((array for array in self.arrays if address in array), None)

    def users(self, array: GraphArray) -> tuple[int, ...]:
        """Return the numbers of the nodes that have an address within the array as a parameter."""
        return tuple(
            node.number for node in self.nodes if any(address in array for address in node.addresses)
        )

    @property
    def layers(self) -> tuple[int, ...]:
        """The layer of each node. The layer is 0 for a node without predecessors, and otherwise one more than
        the largest layer of the predecessors.
        """
        predecessors: dict[int, list[int]] = {}
        for predecessor, successor in self.edges:
            predecessors.setdefault(successor, []).append(predecessor)
        layer_of_node: dict[int, int] = {}
        for node_number in self._topological_order(predecessors):
            layer_of_node[node_number] = max(
                (layer_of_node[predecessor] + 1 for predecessor in predecessors.get(node_number, ())),
                default=0,
            )
        return tuple(layer_of_node[node.number] for node in self.nodes)

    @property
    def depth(self) -> int:
        """Number of nodes on the longest chain of dependent nodes, which must run one after another."""
        return max(self.layers, default=-1) + 1

    def _topological_order(self, predecessors: Mapping[int, list[int]]) -> tuple[int, ...]:
        """Return the numbers of the nodes in an order in which each node follows its predecessors."""
        from graphlib import TopologicalSorter

        graph = {node.number: predecessors.get(node.number, ()) for node in self.nodes}
        return tuple(TopologicalSorter(graph).static_order())

    def find_update_obstacle(self, other_graph: GraphRecord) -> str:
        """Return the reason why a graph cannot be updated to another graph, or an empty string if it can.

        As in ``cuGraphExecUpdate`` on an H200 (CUDA 13.0), both graphs must have the same nodes and edges.
        Corresponding nodes must be of the same kind and on the same device, and copies must be between the
        same kinds of memory. The kernel of a node can change.
        """
        if len(self.nodes) != len(other_graph.nodes) or set(self.edges) != set(other_graph.edges):
            return "the graphs have different nodes or edges"
        for node, new_node in zip(self.nodes, other_graph.nodes, strict=True):
            if node.kind != new_node.kind:
                return f"node {node.number} would become a {new_node.name or new_node.kind}"
            if (node.device_id, node.copy_kind) != (new_node.device_id, new_node.copy_kind):
                return f"node {node.number} would use memory of another kind or device"
        return ""

    def replace_nodes(self, changed_nodes: Mapping[int, GraphNode]) -> GraphRecord:
        """Return a copy of the record in which some nodes are replaced by those in `changed_nodes`."""
        return replace(self, nodes=tuple(changed_nodes.get(node.number, node) for node in self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphComparison:
    """The times of the same work, executed as single operations and as a graph. Both versions are run
    `repeats` times.

    Times are of one run: ``..._device_ns`` between two events around all of them, ``..._host_ns`` the time of
    the calls on the host. ``eager`` and ``replay`` are timelines of one run each, with the numbers of the
    nodes as ``graph_node_id`` in the second.
    """

    provenance: Provenance
    nodes: int
    repeats: int
    eager_device_ns: float
    graph_device_ns: float
    eager_host_ns: float
    graph_host_ns: float
    eager: Timeline | None = None
    replay: Timeline | None = None

    @property
    def eager_node_ns(self) -> float:
        """Mean device time in ns of one operation without a graph."""
        return self.eager_device_ns / max(1, self.nodes)

    @property
    def graph_node_ns(self) -> float:
        """Mean device time in ns of one node of the graph."""
        return self.graph_device_ns / max(1, self.nodes)

    @property
    def speedup(self) -> float:
        """The time of the single operations divided by the time of the graph."""
        return self.eager_device_ns / self.graph_device_ns
