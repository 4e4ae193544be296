"""``cp.cuda.Graph``: captured work that is launched as a whole, any number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.model.graph import UPLOAD_NODE_NS, UPLOAD_NS, Node
from virtualgpu.model.machine import Machine
from virtualgpu.records import Dim3, GraphNode, GraphRecord, Provenance

# cudaGraphDebugDotFlags: everything, or the parameters of kernels only.
_VERBOSE = 1 << 0
_KERNEL_PARAMETERS = 1 << 2
_FIRST_HANDLE = 0x6000_0000
# How CUDA draws the nodes.
_SHAPES = {
    "MEMCPY": 'style="solid" shape="trapezium"',
    "MEMCPY2": 'style="solid" shape="trapezium"',
    "MEMSET": 'style="solid" shape="invtrapezium"',
    "HOST_LAUNCH": 'style="solid" shape="rectangle" ',
}


class Graph:
    """A graph of kernels, copies, memory sets and host functions, made by `Stream.end_capture`.

    A launch runs every node anew, on the addresses of the capture. As on a GPU, the program has to keep the
    arrays alive that have these addresses: the graph does not.

    Attributes
    ----------
    graph, graphExec : int
        Numbers that stand for CUDA's handles.
    """

    graph: int
    graphExec: int  # noqa: N815 - CuPy's name

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "currently this class cannot be initiated by the user and must be created via stream capture"
        )

    @classmethod
    def _of(cls, nodes: Sequence[Node], machine: Machine, current: Callable[[], Any]) -> Graph:
        graph = cls.__new__(cls)
        graph._nodes = tuple(nodes)
        graph._executable = list(nodes)
        graph._machine = machine
        graph._is_uploaded = False
        graph._current = current
        graph._id = machine.next_graph()
        graph.graph = _FIRST_HANDLE + 2 * graph._id
        graph.graphExec = graph.graph + 1
        machine.graphs[graph.graph] = machine.graphs[graph.graphExec] = graph
        if machine.clock.watch is not None:
            machine.clock.watch.graph_made(graph._id)
        return graph

    _nodes: tuple[Node, ...]  # as captured
    _executable: list[Node]  # as instantiated, and updated since
    _machine: Machine
    _is_uploaded: bool
    _current: Callable[[], Any]
    _id: int

    def launch(self, stream: Any = None) -> None:
        """Run all nodes in `stream` (the current one by default), each when those it follows have ended."""
        (stream or self._current()).launch_graph(self._id, self._executable, self._upload_ns)
        self._is_uploaded = True

    def upload(self, stream: Any = None) -> None:
        """Bring the graph to the device: its first launch then is as short as the later ones."""
        (stream or self._current()).upload_graph(self._upload_ns)
        self._is_uploaded = True

    @property
    def _upload_ns(self) -> float:
        """What the next launch or upload takes the host longer than one of a graph that was uploaded."""
        return 0.0 if self._is_uploaded else UPLOAD_NS + len(self._nodes) * UPLOAD_NODE_NS

    def _record(self, provenance: Provenance) -> GraphRecord:
        """Nodes and edges as captured, with the parameters of the next launch."""
        nodes = [self._record_of(number) for number in range(len(self._nodes))]
        edges = sorted((before, n) for n, node in enumerate(self._nodes) for before in node.after)
        return GraphRecord(provenance, tuple(nodes), tuple(edges))

    def _record_of(self, number: int) -> GraphNode:
        node = self._executable[number]
        return node.record(number, self._machine.device(node.device_id).memory)

    def _set_node(self, node: GraphNode) -> None:
        """``cuGraphExecKernelNodeSetParams``: let the next launches run a node with these parameters."""
        before = self._record_of(node.number)
        memory = self._machine.device(node.device_id).memory
        self._executable[node.number] = self._executable[node.number].changed(before, node, memory)

    def _update(self, other: Graph) -> None:
        """Take the parameters of a graph with the same nodes and edges: ``cuGraphExecUpdate``.

        Raises
        ------
        CUDADriverError
            Status 910, ``CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE``.
        """
        nowhere = Provenance("modelled", "")
        why = self._record(nowhere).cannot_become(other._record(nowhere))
        if why:
            raise CUDADriverError(
                910,
                "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
                "the graph update was not performed because it included changes which violated constraints "
                f"specific to instantiated graph update: {why}.",
            )
        self._executable = list(other._nodes)

    def debug_dot_str(self, flags: int = 0) -> str:
        """The graph in the DOT language, as ``cudaGraphDebugDotPrint`` writes it.

        Parameters
        ----------
        flags : int
            ``runtime.cudaGraphDebugDotFlags...``; 1 (verbose) or 4 add the kernels' launch shapes.
        """
        name = f"graph_{self._id}"
        lines = ["digraph dot {", f"subgraph cluster_{self._id} {{", f'label="{name}" graph[style="dashed"];']
        lines += [
            f'"{name}_node_{number}"[{_looks(number, node, flags)}];\n'
            for number, node in enumerate(self._nodes)
        ]
        lines += [
            f'"{name}_node_{before}" -> "{name}_node_{number}"{" [headlabel=0]" if flags & _VERBOSE else ""};'
            for before, number in sorted((b, n) for n, node in enumerate(self._nodes) for b in node.after)
        ]
        return "\n".join([*lines, "}", "}", ""])


def _looks(number: int, node: Node, flags: int) -> str:
    """Attributes of one node: shape and label."""
    operation = node.operation
    if operation.kind == "CONCURRENT_KERNEL":
        kernel = _escaped(operation.name)
        shape = ""
        if flags & (_VERBOSE | _KERNEL_PARAMETERS) and operation.grid and operation.block:
            sizes = f"{_extent(operation.grid)},{_extent(operation.block)},{operation.shared_bytes}"
            shape = f"\\<\\<\\<{sizes}\\>\\>\\>"
        if flags & _VERBOSE:
            return f'style="bold" shape="record" label="{{KERNEL\n| {{ID | {number} | {kernel}{shape}}}\n}}"'
        return f'style="bold" shape="octagon" label="{number}\n{kernel}\n{shape}"'
    if operation.node_kind is not None:
        return f'{_SHAPES["HOST_LAUNCH"]}label="{number}\n{operation.node_kind}\n"'
    detail = {
        "MEMSET": f"MEMSET\n(0,{operation.size_bytes})\n",
        "HOST_LAUNCH": "HOST\n",
    }.get(operation.kind, f"MEMCPY\n({operation.copy_kind},{operation.size_bytes})\n")
    return f'{_SHAPES[operation.kind]}label="{number}\n{detail}"'


def _extent(sizes: Dim3) -> str:
    """A launch shape as CUDA writes it: a number, or as many as there are dimensions in braces."""
    x, y, z = sizes
    if y == z == 1:
        return str(x)
    return f"\\{{{x},{y}\\}}" if z == 1 else f"\\{{{x},{y},{z}\\}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
