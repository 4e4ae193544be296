"""A CUDA graph: what its nodes do, with which parameters, and in which order."""

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
    """One parameter of a node, as the bytes that a launch hands over.

    ``offset`` is its place in the parameter buffer. ``name`` and ``type`` are as the kernel's source spells
    them, empty where that is unknown. ``addresses`` are the device addresses found in it: one for a pointer,
    one or more for a structure, none for a number.
    """

    data: bytes
    offset: int = 0
    name: str = ""
    type: str = ""
    addresses: tuple[int, ...] = ()

    def moved(self, moves: Mapping[int, int]) -> NodeParameter:
        """The parameter with other addresses, old to new."""
        if not moves.keys() & set(self.addresses):
            return self
        data = bytearray(self.data)
        for at in range(0, len(data) - ADDRESS_BYTES + 1, ADDRESS_BYTES):
            word = int.from_bytes(data[at : at + ADDRESS_BYTES], "little")
            if word in self.addresses and word in moves:
                data[at : at + ADDRESS_BYTES] = moves[word].to_bytes(ADDRESS_BYTES, "little")
        return replace(self, data=bytes(data), addresses=tuple(moves.get(a, a) for a in self.addresses))


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """One node: a kernel's name, launch shape and parameters, or what is copied or set and how much of it.

    ``source`` is the program's line that gave it to the stream, where that is known. A copy has the
    parameters called ``source`` and ``destination``, a memory set ``destination``; those that lie in the
    host's memory have no ``addresses``.
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
        """Every device address among the parameters."""
        return tuple(address for parameter in self.parameters for address in parameter.addresses)

    def moved(self, moves: Mapping[int, int]) -> GraphNode:
        """The node with other addresses, old to new; itself if it has none of them."""
        parameters = tuple(parameter.moved(moves) for parameter in self.parameters)
        return self if parameters == self.parameters else replace(self, parameters=parameters)


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """Something that this machine does not have, and why; false where a truth value is asked for."""

    what: str
    why: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.what}: not available here, {self.why}."

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class GraphArray:
    """An array that the program knows by name, at the addresses that the graph has of it."""

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
    """A name that means another array than the one whose address the graph has, or none any more.

    ``nodes`` are the numbers of the nodes that still use the old address. ``in_graph`` and ``now`` are the
    first elements of the array that the graph reads and of the one that the name means; ``address_now`` is
    None where the name means no array.
    """

    array: GraphArray
    address_now: int | None
    nodes: tuple[int, ...]
    in_graph: tuple[float, ...] = ()
    now: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """The nodes of a graph, numbered in the order of their capture, and its edges (before, after).

    ``arrays`` are those that the program has names for; what else the nodes use is temporary. ``note`` says
    in words what could not be seen.
    """

    provenance: Provenance
    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...]
    arrays: tuple[GraphArray, ...] = ()
    dangling: tuple[DanglingArray, ...] = ()
    note: str = ""

    def array_at(self, address: int) -> GraphArray | None:
        """The array that an address lies in, if the program has a name for it."""
        return next((array for array in self.arrays if address in array), None)

    def users(self, array: GraphArray) -> tuple[int, ...]:
        """Numbers of the nodes with an address in an array."""
        return tuple(node.number for node in self.nodes if any(a in array for a in node.addresses))

    @property
    def layers(self) -> tuple[int, ...]:
        """Layer of each node: 0 where it waits for none, else one more than the last that it waits for."""
        before: dict[int, list[int]] = {}
        for first, then in self.edges:
            before.setdefault(then, []).append(first)
        layer: dict[int, int] = {}
        for node in self._in_order(before):
            layer[node] = max((layer[first] + 1 for first in before.get(node, ())), default=0)
        return tuple(layer[node.number] for node in self.nodes)

    @property
    def depth(self) -> int:
        """Nodes on the longest chain: those that no number of SMs can run at the same time."""
        return max(self.layers, default=-1) + 1

    def _in_order(self, before: Mapping[int, list[int]]) -> tuple[int, ...]:
        """Numbers of the nodes, each behind all that it waits for."""
        from graphlib import TopologicalSorter

        return tuple(
            TopologicalSorter({n.number: before.get(n.number, ()) for n in self.nodes}).static_order()
        )

    def cannot_become(self, other: GraphRecord) -> str:
        """What keeps an executable graph from taking another one's parameters, in words; empty for nothing.

        The rules of ``cuGraphExecUpdate``, as an H200 keeps them (CUDA 13.0): the same nodes and edges, each
        node of its kind and on its device, a copy between the same kinds of memory. A kernel may become
        another one.
        """
        if len(self.nodes) != len(other.nodes) or set(self.edges) != set(other.edges):
            return "the other graph has other nodes or edges"
        for mine, its in zip(self.nodes, other.nodes, strict=True):
            if mine.kind != its.kind:
                return f"node {mine.number} would become a {its.name or its.kind}"
            if (mine.device_id, mine.copy_kind) != (its.device_id, its.copy_kind):
                return f"node {mine.number} would work on memory of another kind or device"
        return ""

    def replaced(self, changed: Mapping[int, GraphNode]) -> GraphRecord:
        """The record with other nodes in the places of these numbers."""
        return replace(self, nodes=tuple(changed.get(node.number, node) for node in self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphComparison:
    """The same work given to a stream piece by piece and launched as a graph, `repeats` times each.

    Times are of one run: ``..._device_ns`` between two events around all of them, ``..._host_ns`` what the
    calls took the host. ``eager`` and ``replay`` are timelines of one run each, with the numbers of the
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
        """Time between two pieces of work in the stream."""
        return self.eager_device_ns / max(1, self.nodes)

    @property
    def graph_node_ns(self) -> float:
        """Time of one node of the graph."""
        return self.graph_device_ns / max(1, self.nodes)

    @property
    def speedup(self) -> float:
        """How many times as fast the graph is."""
        return self.eager_device_ns / self.graph_device_ns
