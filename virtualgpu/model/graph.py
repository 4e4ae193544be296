"""Operations of a stream, and the graph of operations that a stream capture records.

The list of operations that CUDA forbids while a stream captures, with status and message, follows the CUDA
Runtime API ("Stream Management") and was checked on an H200 (driver 580, CuPy 14.2).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy.typing as npt

from virtualgpu.cuda_errors import CUDADriverError, CUDARuntimeError
from virtualgpu.model.clock import Schedule
from virtualgpu.model.closures import (
    address_of,
    copy_with_moved_views,
    copy_without_views,
    find_addresses,
    move_views,
)
from virtualgpu.model.links.ports import PeerTransfers
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.model.priorities import EngineName
from virtualgpu.model.recording.program_lines import ProgramLines
from virtualgpu.model.recording.watch import Regions, RunWatched
from virtualgpu.records import (
    Activity,
    ActivityKind,
    CopyKind,
    Dim3,
    GraphNode,
    NodeKind,
    NodeParameter,
    Occupancy,
    SourceLine,
)

# cudaStreamCaptureMode
GLOBAL_MODE = 0
THREAD_LOCAL_MODE = 1
RELAXED_MODE = 2

# Host time of graphs in ns; small kernels by CuPy 14.2 on the host of an H200 (CUDA 13.0, `python -m
# tools.recordings.graphs`). A capture took 168 us for 100 kernels and 2.0 ms for 1,000, end_capture() 20, 63,
# 243 and 3,616 us for 1, 10, 100 and 1,000 nodes, an upload 6.7, 18, 121 and 864 us. The first launch of a
# graph that was not uploaded takes that much longer.
CAPTURE_NODE_NS = 1_750.0
INSTANTIATE_NS = 15_000.0
INSTANTIATE_NODE_NS = 3_000.0
UPLOAD_NS = 6_000.0
UPLOAD_NODE_NS = 950.0

# A copy to or from another device takes ports of both.
_ENGINE_BY_COPY_KIND: dict[CopyKind | None, EngineName] = {
    "HtoD": "to device",
    "DtoH": "to host",
    "PtoP": "none",
}

# Status -> CUDA's name and first words, and the remedy.
_CAPTURE_ERRORS = {
    900: (
        "StreamCaptureUnsupported",
        "operation not permitted when stream is capturing",
        "During a capture, no operation runs, so no wait is possible. Call end_capture() first.",
    ),
    901: (
        "StreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
        "The captured graph cannot be used. Capture it again without the call that failed.",
    ),
    902: (
        "StreamCaptureMerge",
        "operation would result in a merge of separate capture sequences",
        "Capture both streams into one graph: let the second stream wait for an event of the first stream.",
    ),
    903: (
        "StreamCaptureUnmatched",
        "capture was not ended in the same stream as it began",
        "Call end_capture() of the same stream whose begin_capture() started the capture.",
    ),
    904: (
        "StreamCaptureUnjoined",
        "capturing stream has unjoined work",
        "Let the stream that captures wait for an event at the end of every stream that joined the capture.",
    ),
    905: (
        "StreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
        "Record the event within the capture, or wait for it before begin_capture().",
    ),
    906: (
        "StreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
        "Capture on a stream made with non_blocking=True, or use another stream during the capture.",
    ),
    907: (
        "CapturedEvent",
        "operation not permitted on an event last recorded in a capturing stream",
        "An event that was recorded in a capture only orders nodes of the graph. Record it again outside.",
    ),
    908: (
        "StreamCaptureWrongThread",
        "attempt to terminate a thread-local capture sequence from another thread",
        "Call end_capture() in the thread of begin_capture(), or capture in relaxed mode.",
    ),
}


def make_capture_error(
    status: int, is_driver_call: bool = False, reason: str = "", remedy: str = ""
) -> CUDARuntimeError | CUDADriverError:
    """Return CUDA's error for an operation that is forbidden during a capture.

    The error is either a driver error, as for kernel launches, or a runtime error. `reason` is added to
    CUDA's message, `remedy` replaces the usual advice.
    """
    name, explanation, usual_remedy = _CAPTURE_ERRORS[status]
    remedy = remedy or usual_remedy
    message = f"{explanation}{reason}. {remedy}"
    if not is_driver_call:
        return CUDARuntimeError(status, f"cudaError{name}", message)
    driver_name = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name)
    return CUDADriverError(status, f"CUDA_ERROR{driver_name}", message)


# CUDA's kinds of node for the operations of a stream.
_NODE_KINDS: dict[ActivityKind, NodeKind] = {
    "CONCURRENT_KERNEL": "KERNEL",
    "MEMCPY": "MEMCPY",
    "MEMCPY2": "MEMCPY",
    "MEMSET": "MEMSET",
    "HOST_LAUNCH": "HOST",
}


@dataclass(slots=True)
class KernelCounts:
    """The bytes and floating-point operations of the last run of a kernel. A timeline contains these
    counts.
    """

    moved_bytes: int | None = None
    flop: int | None = None
    double_flop: int | None = None


class KernelCall(Protocol):
    """A kernel launch that a graph node can store, with the kernel's parameters."""

    @property
    def parameters(self) -> tuple[NodeParameter, ...]:
        """The parameters of the kernel in the order of its signature."""
        ...

    @property
    def occupancy(self) -> Occupancy:
        """The occupancy of the kernel with its registers and its static and dynamic shared memory."""
        ...

    def make_changed_operation(self, node: GraphNode) -> Operation:
        """Return the launch with the parameters and the grid of a graph node."""
        ...

    def make_graph_operation(self) -> Operation:
        """Return a copy of the launch that does not keep its array arguments alive."""
        ...


@dataclass(frozen=True, slots=True)
class Operation:
    """A device operation of a stream before it runs, such as a kernel or a copy.

    The function ``run`` executes the operation and returns its duration on the device in ns. ``sm_share``
    is the part of the SMs that a kernel keeps busy, ``waves`` the number of times that its blocks fill
    their slots. ``kernel_call`` is set for a kernel that the engine runs, ``node_kind`` for operations
    that only graphs have. ``check_launch`` raises an error if a graph with it cannot be launched.
    ``run_watched`` runs it while its memory accesses are observed, and returns these, too. ``reads`` and
    ``writes`` are the arrays that any other operation uses, as NumPy arrays; pageable host memory is not
    among them, because the call itself reads or fills it. ``run`` stores a kernel's counts in
    ``kernel_counts`` and its traffic between devices in ``peer_transfers``. ``copy_devices`` are the
    source and target device of a copy.
    """

    kind: ActivityKind
    name: str
    run: Callable[[], float]
    size_bytes: int = 0
    copy_kind: CopyKind | None = None
    pinned: bool | None = None
    grid: Dim3 | None = None
    block: Dim3 | None = None
    shared_bytes: int = 0
    kernel_counts: KernelCounts = field(default_factory=KernelCounts)
    sm_share: float = 1.0
    waves: int = 1
    kernel_call: KernelCall | None = None
    node_kind: NodeKind | None = None
    check_launch: Callable[[], None] | None = None
    reads: Sequence[npt.NDArray[Any]] = ()
    writes: Sequence[npt.NDArray[Any]] = ()
    run_watched: Callable[[RunWatched], tuple[float, tuple[Regions, ...]]] | None = None
    peer_transfers: PeerTransfers = field(default_factory=PeerTransfers)
    copy_devices: tuple[int, int] | None = None

    def make_graph_operation(self) -> Operation:
        """Return the operation as a graph node. As in CUDA, the node stores addresses and does not keep
        arrays alive.
        """
        if self.kernel_call is not None:
            return self.kernel_call.make_graph_operation()
        return self if self.kind == "HOST_LAUNCH" else replace(self, run=copy_without_views(self.run))

    @property
    def engine(self) -> EngineName:
        """The hardware unit of the device that executes the operation."""
        if self.kind == "HOST_LAUNCH":
            return "none"
        return _ENGINE_BY_COPY_KIND.get(self.copy_kind, "compute")

    def make_activity(
        self, device_id: int, stream_id: int, number: int, start_ns: int, end_ns: int, after: tuple[int, ...]
    ) -> Activity:
        """Return the `Activity` record of the operation after it has run."""
        return Activity(
            kind=self.kind,
            name=self.name,
            device_id=device_id,
            stream_id=stream_id,
            correlation_id=number,
            start_ns=start_ns,
            end_ns=end_ns,
            size_bytes=self.size_bytes,
            copy_kind=self.copy_kind,
            pinned=self.pinned,
            grid=self.grid,
            block=self.block,
            after=after,
            shared_bytes=self.kernel_call.occupancy.shared_bytes
            if self.kernel_call is not None
            else self.shared_bytes,
            registers_per_thread=self.kernel_call.occupancy.registers_per_thread
            if self.kernel_call is not None
            else 0,
            moved_bytes=self.kernel_counts.moved_bytes,
            flop=self.kernel_counts.flop,
            double_flop=self.kernel_counts.double_flop,
            between=self.copy_devices,
        )


@dataclass(frozen=True, slots=True)
class CapturedNode:
    """A node of a graph, with its operation, its predecessors and its device.

    The field ``stream_id`` is the stream from which the node was captured, and ``source`` is its source line
    if known.
    """

    operation: Operation
    predecessors: tuple[int, ...]
    device_id: int
    schedule: Schedule
    stream_id: int = 0
    source: SourceLine | None = None

    def make_record(self, number: int, memory: DeviceMemory) -> GraphNode:
        """Return the `GraphNode` record of the node. The argument `memory` is the memory of the node's
        device.
        """
        operation = self.operation
        parameters: tuple[NodeParameter, ...] = ()
        if operation.kernel_call is not None:
            parameters = operation.kernel_call.parameters
        elif operation.kind != "HOST_LAUNCH":
            names_by_address: dict[int, str] = {}
            if operation.kind != "CONCURRENT_KERNEL":
                names_by_address |= {address_of(view): "source" for view in operation.reads}
                names_by_address |= {address_of(view): "destination" for view in operation.writes}
            parameters = tuple(
                NodeParameter(
                    address.to_bytes(8, "little"),
                    name=names_by_address.get(address, ""),
                    addresses=(address,),
                )
                for address, _ in find_addresses(operation.run, memory)
            )
        return GraphNode(
            number=number,
            kind=operation.node_kind or _NODE_KINDS[operation.kind],
            name=operation.name,
            grid=operation.grid,
            block=operation.block,
            shared_bytes=operation.shared_bytes,
            parameters=parameters,
            size_bytes=operation.size_bytes if operation.kind != "CONCURRENT_KERNEL" else 0,
            copy_kind=operation.copy_kind,
            device_id=self.device_id,
            source=self.source,
        )

    def make_changed_node(
        self, old_record: GraphNode, new_record: GraphNode, memory: DeviceMemory
    ) -> CapturedNode:
        """Return a copy of the node in which the parameters of the record `old_record` are replaced by those
        of `new_record`.
        """
        operation = self.operation
        if operation.kernel_call is not None:
            return replace(self, operation=operation.kernel_call.make_changed_operation(new_record))
        moves = dict(zip(old_record.addresses, new_record.addresses, strict=True))
        reads = move_views(operation.reads, moves, memory)
        writes = move_views(operation.writes, moves, memory)
        run = copy_with_moved_views(operation.run, moves, memory)
        return replace(self, operation=replace(operation, run=run, reads=reads, writes=writes))


StreamKey = tuple[int, int]  # number of the stream's device, and its handle


@dataclass(eq=False)
class Capture:
    """A graph that is being captured, with its nodes so far and the streams that take part.

    The dictionary ``frontiers`` maps each of these streams to the predecessors of its next node.
    """

    origin_stream: StreamKey
    mode: int
    nodes: list[CapturedNode] = field(default_factory=list)
    frontiers: dict[StreamKey, tuple[int, ...]] = field(default_factory=dict)
    nodes_of_destroyed_streams: tuple[int, ...] = ()  # the last nodes of destroyed streams
    is_invalidated: bool = False
    invalidating_call: str = ""  # the call that broke it, in words
    remedy: str = ""  # if it is not the usual one
    has_ended: bool = False
    program_lines: ProgramLines = field(default_factory=ProgramLines)
    thread_id: int = field(default_factory=threading.get_ident)

    def add(
        self, stream: StreamKey, operation: Operation, schedule: Schedule, source: SourceLine | None = None
    ) -> None:
        """Add the next operation of a stream to the graph."""
        node = CapturedNode(
            operation.make_graph_operation(), self.frontiers[stream], stream[0], schedule, stream[1], source
        )
        self.nodes.append(node)
        self.frontiers[stream] = (len(self.nodes) - 1,)

    def invalidate(self, description: str = "", remedy: str = "") -> None:
        """Invalidate the capture, and store the source line of the call that caused this.

        If `description` is not empty, the error message contains it instead of the name of the call.
        """
        if not self.is_invalidated:
            self.is_invalidated = True
            self.remedy = remedy
            source_line, function_name = self.program_lines.find_current_line()
            if source_line is not None:
                quoted_line = f", `{source_line.text}`" if source_line.text else ""
                self.invalidating_call = (
                    f": {description or function_name or 'a call'} in {source_line}{quoted_line}"
                )

    def make_invalidated_error(self, is_driver_call: bool = False) -> CUDARuntimeError | CUDADriverError:
        """Return CUDA error 901 for a call during an invalidated capture. The error message contains the name
        of the call that invalidated the capture.
        """
        return make_capture_error(901, is_driver_call, self.invalidating_call, self.remedy)

    def join(self, stream: StreamKey, predecessors: tuple[int, ...]) -> None:
        """Make the next node of a stream wait for the given nodes. If the stream is new, it joins the
        capture.
        """
        self.frontiers[stream] = tuple(sorted({*self.frontiers.get(stream, ()), *predecessors}))

    def remove_stream(self, stream: StreamKey) -> None:
        """Remove a stream that the program has destroyed. The capture's first stream must still wait for the
        last nodes of the destroyed stream before the capture ends.
        """
        self.nodes_of_destroyed_streams += self.frontiers.pop(stream, ())

    def has_unjoined_work(self) -> bool:
        """Return whether the capture contains work for which its first stream does not wait."""
        frontier = self.frontiers[self.origin_stream]
        reachable_nodes = {*frontier, *self._find_predecessors(frontier)}
        last_nodes = (self.nodes_of_destroyed_streams, *self.frontiers.values())
        return any(
            node_number not in reachable_nodes for node_numbers in last_nodes for node_number in node_numbers
        )

    def _find_predecessors(self, numbers: tuple[int, ...]) -> set[int]:
        """Return all direct and indirect predecessors of the nodes `numbers`."""
        predecessors: set[int] = set()
        pending_nodes = [
            predecessor for node_number in numbers for predecessor in self.nodes[node_number].predecessors
        ]
        while pending_nodes:
            node_number = pending_nodes.pop()
            if node_number not in predecessors:
                predecessors.add(node_number)
                pending_nodes.extend(self.nodes[node_number].predecessors)
        return predecessors
