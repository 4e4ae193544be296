"""``cp.cuda.Graph``: captured operations, which can be launched together any number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.model.graph import UPLOAD_NODE_NS, UPLOAD_NS, CapturedNode
from virtualgpu.model.machine import Machine
from virtualgpu.records import Dim3, GraphNode, GraphRecord, Provenance

# cudaGraphDebugDotFlags: everything, or the parameters of kernels only.
_VERBOSE_FLAG = 1 << 0
_KERNEL_PARAMETERS_FLAG = 1 << 2
_FIRST_HANDLE = 0x6000_0000
# Shapes of the nodes in CUDA's drawings.
_DOT_SHAPES = {
    "MEMCPY": 'style="solid" shape="trapezium"',
    "MEMCPY2": 'style="solid" shape="trapezium"',
    "MEMSET": 'style="solid" shape="invtrapezium"',
    "HOST_LAUNCH": 'style="solid" shape="rectangle" ',
}


class Graph:
    """A graph of kernels, copies, memsets and host functions. The method `Stream.end_capture` returns it.

    A launch runs every node again, with the addresses of the capture. As on a GPU, the program must keep
    the arrays at these addresses alive; the graph does not.

    Attributes
    ----------
    graph, graphExec : int
        Numbers in place of CUDA's handles.
    """

    graph: int
    graphExec: int  # noqa: N815 - CuPy's name

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "currently this class cannot be initiated by the user and must be created via stream capture"
        )

    @classmethod
    def _from_nodes(
        cls, nodes: Sequence[CapturedNode], machine: Machine, get_current_stream: Callable[[], Any]
    ) -> Graph:
        graph = cls.__new__(cls)
        graph._nodes = tuple(nodes)
        graph._executable_nodes = list(nodes)
        graph._machine = machine
        graph._is_uploaded = False
        graph._get_current_stream = get_current_stream
        graph._id = machine.next_graph_number()
        graph.graph = _FIRST_HANDLE + 2 * graph._id
        graph.graphExec = graph.graph + 1
        machine.graphs[graph.graph] = machine.graphs[graph.graphExec] = graph
        if machine.clock.watch is not None:
            machine.clock.watch.note_graph_creation(graph._id)
        return graph

    _nodes: tuple[CapturedNode, ...]  # in the state of the capture
    _executable_nodes: list[CapturedNode]  # in the state of the last update
    _machine: Machine
    _is_uploaded: bool
    _get_current_stream: Callable[[], Any]
    _id: int

    def launch(self, stream: Any = None) -> None:
        """Run the nodes of the graph in `stream`, by default the current stream. Each node runs after the
        nodes on which it depends.
        """
        (stream or self._get_current_stream()).launch_graph(self._id, self._executable_nodes, self._upload_ns)
        self._is_uploaded = True

    def upload(self, stream: Any = None) -> None:
        """Upload the graph to the device, so that its first launch is as fast as later launches."""
        (stream or self._get_current_stream()).upload_graph(self._upload_ns)
        self._is_uploaded = True

    @property
    def _upload_ns(self) -> float:
        """Additional host time of the first launch or upload, compared with an uploaded graph."""
        return 0.0 if self._is_uploaded else UPLOAD_NS + len(self._nodes) * UPLOAD_NODE_NS

    def _make_record(self, provenance: Provenance) -> GraphRecord:
        """Return a record of the nodes and edges, with the parameters of the next launch."""
        nodes = [self._make_node_record(node_number) for node_number in range(len(self._nodes))]
        edges = sorted(
            (predecessor, successor)
            for successor, node in enumerate(self._nodes)
            for predecessor in node.predecessors
        )
        return GraphRecord(provenance, tuple(nodes), tuple(edges))

    def _make_node_record(self, node_number: int) -> GraphNode:
        node = self._executable_nodes[node_number]
        return node.make_record(node_number, self._machine.device(node.device_id).memory)

    def _set_node(self, node: GraphNode) -> None:
        """Set the parameters of a node for later launches, like ``cuGraphExecKernelNodeSetParams``."""
        current_record = self._make_node_record(node.number)
        memory = self._machine.device(node.device_id).memory
        self._executable_nodes[node.number] = self._executable_nodes[node.number].make_changed_node(
            current_record, node, memory
        )

    def _update(self, other: Graph) -> None:
        """Copy the parameters of another graph with the same nodes and edges, like ``cuGraphExecUpdate``.

        Raises
        ------
        CUDADriverError
            Status 910, ``CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE``.
        """
        provenance = Provenance("modelled", "")
        refusal_reason = self._make_record(provenance).find_update_obstacle(other._make_record(provenance))
        if refusal_reason:
            raise CUDADriverError(
                910,
                "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
                "the graph update was not performed because it included changes which violated constraints "
                f"specific to instantiated graph update: {refusal_reason}.",
            )
        self._executable_nodes = list(other._nodes)

    def debug_dot_str(self, flags: int = 0) -> str:
        """Return the graph as text in the DOT language, in the format of ``cudaGraphDebugDotPrint``.

        Parameters
        ----------
        flags : int
            ``runtime.cudaGraphDebugDotFlags...``; 1 (verbose) or 4 add the kernels' launch shapes.
        """
        name = f"graph_{self._id}"
        edge_label = " [headlabel=0]" if flags & _VERBOSE_FLAG else ""
        lines = ["digraph dot {", f"subgraph cluster_{self._id} {{", f'label="{name}" graph[style="dashed"];']
        lines += [
            f'"{name}_node_{node_number}"[{_format_dot_attributes(node_number, node, flags)}];\n'
            for node_number, node in enumerate(self._nodes)
        ]
        lines += [
            f'"{name}_node_{predecessor}" -> "{name}_node_{node_number}"{edge_label};'
            for predecessor, node_number in sorted(
                (predecessor, n) for n, node in enumerate(self._nodes) for predecessor in node.predecessors
            )
        ]
        return "\n".join([*lines, "}", "}", ""])


def _format_dot_attributes(node_number: int, node: CapturedNode, flags: int) -> str:
    """Return the DOT attributes of one node: shape and label."""
    operation = node.operation
    if operation.kind == "CONCURRENT_KERNEL":
        kernel = _escape_dot(operation.name)
        shape_attribute = ""
        if flags & (_VERBOSE_FLAG | _KERNEL_PARAMETERS_FLAG) and operation.grid and operation.block:
            grid_and_block = f"{_format_dot_extent(operation.grid)},{_format_dot_extent(operation.block)}"
            launch_sizes = f"{grid_and_block},{operation.shared_bytes}"
            shape_attribute = f"\\<\\<\\<{launch_sizes}\\>\\>\\>"
        if flags & _VERBOSE_FLAG:
            label = f"{{KERNEL\n| {{ID | {node_number} | {kernel}{shape_attribute}}}\n}}"
            return f'style="bold" shape="record" label="{label}"'
        return f'style="bold" shape="octagon" label="{node_number}\n{kernel}\n{shape_attribute}"'
    if operation.node_kind is not None:
        return f'{_DOT_SHAPES["HOST_LAUNCH"]}label="{node_number}\n{operation.node_kind}\n"'
    operation_detail = {
        "MEMSET": f"MEMSET\n(0,{operation.size_bytes})\n",
        "HOST_LAUNCH": "HOST\n",
    }.get(operation.kind, f"MEMCPY\n({operation.copy_kind},{operation.size_bytes})\n")
    return f'{_DOT_SHAPES[operation.kind]}label="{node_number}\n{operation_detail}"'


def _format_dot_extent(sizes: Dim3) -> str:
    """Return a launch shape in CUDA's notation: a number, or the sizes of all dimensions in braces."""
    x, y, z = sizes
    if y == z == 1:
        return str(x)
    return f"\\{{{x},{y}\\}}" if z == 1 else f"\\{{{x},{y},{z}\\}}"


def _escape_dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
