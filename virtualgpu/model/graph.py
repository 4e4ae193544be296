"""Operations of a stream, and the graph of them that a capture records.

What CUDA forbids while a stream captures, with status and words, follows the CUDA Runtime API ("Stream
Management") and was seen on an H200 (driver 580, CuPy 14.2).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy.typing as npt

from virtualgpu.cuda_errors import CUDADriverError, CUDARuntimeError
from virtualgpu.model.clock import Schedule
from virtualgpu.model.closures import address_of, addresses, moved, moved_views, released
from virtualgpu.model.links.ports import Passage
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

# What graphs cost the host, in ns; small kernels by CuPy 14.2 on the host of an H200 (CUDA 13.0, `python -m
# tools.recordings.graphs`). A capture took 168 us for 100 kernels and 2.0 ms for 1,000, end_capture() 20, 63,
# 243 and 3,616 us for 1, 10, 100 and 1,000 nodes, an upload 6.7, 18, 121 and 864 us: that much longer is the
# first launch of a graph that was not uploaded.
CAPTURE_NODE_NS = 1_750.0
INSTANTIATE_NS = 15_000.0
INSTANTIATE_NODE_NS = 3_000.0
UPLOAD_NS = 6_000.0
UPLOAD_NODE_NS = 950.0

# A copy to or from another device takes ports of both.
_COPY_ENGINES: dict[CopyKind | None, EngineName] = {"HtoD": "to device", "DtoH": "to host", "PtoP": "none"}

# Status -> CUDA's name and first words, and what to do.
_REFUSALS = {
    900: (
        "StreamCaptureUnsupported",
        "operation not permitted when stream is capturing",
        "While a graph is captured nothing runs, so nothing can be waited for: end_capture() first.",
    ),
    901: (
        "StreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
        "The graph is lost: capture it again without the call that was refused.",
    ),
    902: (
        "StreamCaptureMerge",
        "operation would result in a merge of separate capture sequences",
        "Capture both streams into one graph: let the second wait for an event of the first.",
    ),
    903: (
        "StreamCaptureUnmatched",
        "capture was not ended in the same stream as it began",
        "Call end_capture() of the stream whose begin_capture() started it.",
    ),
    904: (
        "StreamCaptureUnjoined",
        "capturing stream has unjoined work",
        "Let the stream that captures wait for an event at the end of every stream that joined it.",
    ),
    905: (
        "StreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
        "Record the event within the capture, or wait for it before begin_capture().",
    ),
    906: (
        "StreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
        "Capture on a stream made with non_blocking=True, or work on another stream meanwhile.",
    ),
    907: (
        "CapturedEvent",
        "operation not permitted on an event last recorded in a capturing stream",
        "Such an event only orders the nodes of the graph; record it again outside of a capture.",
    ),
    908: (
        "StreamCaptureWrongThread",
        "attempt to terminate a thread-local capture sequence from another thread",
        "Call end_capture() in the thread of begin_capture(), or capture in relaxed mode.",
    ),
}


def refusal(
    status: int, driver: bool = False, why: str = "", remedy: str = ""
) -> CUDARuntimeError | CUDADriverError:
    """CUDA's error for what a capture forbids; of the driver, which launches kernels, or of the runtime.

    `why` is said after CUDA's own words, `remedy` instead of the usual one.
    """
    name, words, usual = _REFUSALS[status]
    remedy = remedy or usual
    message = f"{words}{why}. {remedy}"
    if not driver:
        return CUDARuntimeError(status, f"cudaError{name}", message)
    upper = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name)
    return CUDADriverError(status, f"CUDA_ERROR{upper}", message)


# CUDA's kinds of node for what a stream can hold.
_NODE_KINDS: dict[ActivityKind, NodeKind] = {
    "CONCURRENT_KERNEL": "KERNEL",
    "MEMCPY": "MEMCPY",
    "MEMCPY2": "MEMCPY",
    "MEMSET": "MEMSET",
    "HOST_LAUNCH": "HOST",
}


@dataclass(slots=True)
class Counted:
    """What is known of a kernel's last run while a timeline is recorded; see `Activity`."""

    moved_bytes: int | None = None
    flop: int | None = None
    double_flop: int | None = None


class KernelCall(Protocol):
    """A kernel that the engine runs: its parameters, and the same kernel with others."""

    @property
    def parameters(self) -> tuple[NodeParameter, ...]: ...

    @property
    def occupancy(self) -> Occupancy:
        """How it fits the device, with its registers and all of its shared memory."""
        ...

    def changed(self, node: GraphNode) -> Operation:
        """The launch with the parameters and the shape of a record."""
        ...

    def released(self) -> Operation:
        """The launch without its hold on the arrays among its arguments."""
        ...


@dataclass(frozen=True, slots=True)
class Operation:
    """One piece of device work, before it runs.

    ``run`` does it and returns what it takes on the device in ns. ``sm_share`` is the part of the SMs that
    a kernel keeps busy, ``waves`` how often its blocks fill the places that they may have. ``call`` is there
    for a kernel that the engine runs. ``node_kind`` is there for what only graphs have, ``check`` raises what
    forbids to launch a graph with it. ``watched`` then runs it where what it touches is to be seen, and
    returns that, too. ``reads`` and ``writes`` are the arrays that anything else uses, as NumPy sees them; of
    pageable host memory none, since the call itself reads or fills that. ``run`` leaves in ``counted`` what
    a kernel did, and in ``passage`` what it moved between devices. ``between`` are the devices that a copy
    goes from and to.
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
    counted: Counted = field(default_factory=Counted)
    sm_share: float = 1.0
    waves: int = 1
    call: KernelCall | None = None
    node_kind: NodeKind | None = None
    check: Callable[[], None] | None = None
    reads: Sequence[npt.NDArray[Any]] = ()
    writes: Sequence[npt.NDArray[Any]] = ()
    watched: Callable[[RunWatched], tuple[float, tuple[Regions, ...]]] | None = None
    passage: Passage = field(default_factory=Passage)
    between: tuple[int, int] | None = None

    def released(self) -> Operation:
        """The operation as a node: it holds addresses, as CUDA's does, and keeps no array alive."""
        if self.call is not None:
            return self.call.released()
        return self if self.kind == "HOST_LAUNCH" else replace(self, run=released(self.run))

    @property
    def engine(self) -> EngineName:
        """Which part of the device is busy with it."""
        if self.kind == "HOST_LAUNCH":
            return "none"
        return _COPY_ENGINES.get(self.copy_kind, "compute")

    def activity(
        self, device_id: int, stream_id: int, number: int, start_ns: int, end_ns: int, after: tuple[int, ...]
    ) -> Activity:
        """The record of it, once it has run."""
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
            shared_bytes=self.call.occupancy.shared_bytes if self.call is not None else self.shared_bytes,
            registers_per_thread=self.call.occupancy.registers_per_thread if self.call is not None else 0,
            moved_bytes=self.counted.moved_bytes,
            flop=self.counted.flop,
            double_flop=self.counted.double_flop,
            between=self.between,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """An operation of a graph, the numbers of the nodes it follows, and the device it runs on.

    ``stream_id`` is the stream that it was captured in, ``source`` the line, where it was noted.
    """

    operation: Operation
    after: tuple[int, ...]
    device_id: int
    schedule: Schedule
    stream_id: int = 0
    source: SourceLine | None = None

    def record(self, number: int, memory: DeviceMemory) -> GraphNode:
        """What the node does; `memory` is its device's."""
        operation = self.operation
        parameters: tuple[NodeParameter, ...] = ()
        if operation.call is not None:
            parameters = operation.call.parameters
        elif operation.kind != "HOST_LAUNCH":
            ends: dict[int, str] = {}
            if operation.kind != "CONCURRENT_KERNEL":
                ends |= {address_of(view): "source" for view in operation.reads}
                ends |= {address_of(view): "destination" for view in operation.writes}
            parameters = tuple(
                NodeParameter(address.to_bytes(8, "little"), name=ends.get(address, ""), addresses=(address,))
                for address, _ in addresses(operation.run, memory)
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

    def changed(self, before: GraphNode, now: GraphNode, memory: DeviceMemory) -> Node:
        """The node with the parameters of `now` in the place of those of `before`, its record."""
        operation = self.operation
        if operation.call is not None:
            return replace(self, operation=operation.call.changed(now))
        moves = dict(zip(before.addresses, now.addresses, strict=True))
        ends = [moved_views(views, moves, memory) for views in (operation.reads, operation.writes)]
        run = moved(operation.run, moves, memory)
        return replace(self, operation=replace(operation, run=run, reads=ends[0], writes=ends[1]))


Place = tuple[int, int]  # a stream: number of its device, and its handle there


@dataclass(eq=False)
class Capture:
    """A graph in the making: nodes in the order of their capture, and where each stream in it stands.

    ``frontiers`` has, for every stream that takes part, the nodes that its next one will follow.
    """

    origin: Place
    mode: int
    nodes: list[Node] = field(default_factory=list)
    frontiers: dict[Place, tuple[int, ...]] = field(default_factory=dict)
    left: tuple[int, ...] = ()  # the last nodes of streams that are gone
    broken: bool = False
    spoiler: str = ""  # in words: the call that broke it
    remedy: str = ""  # where it is not the usual one
    ended: bool = False
    lines: ProgramLines = field(default_factory=ProgramLines)
    thread: int = field(default_factory=threading.get_ident)

    def add(
        self, place: Place, operation: Operation, schedule: Schedule, source: SourceLine | None = None
    ) -> None:
        """Take in the next operation of a stream."""
        node = Node(operation.released(), self.frontiers[place], place[0], schedule, place[1], source)
        self.nodes.append(node)
        self.frontiers[place] = (len(self.nodes) - 1,)

    def spoil(self, what: str = "", remedy: str = "") -> None:
        """Lose the graph; the call of the program that does so first is remembered, or `what` it was."""
        if not self.broken:
            self.broken = True
            self.remedy = remedy
            line, called = self.lines.here()
            if line is not None:
                text = f", `{line.text}`" if line.text else ""
                self.spoiler = f": {what or called or 'a call'} in {line}{text}"

    def lost(self, driver: bool = False) -> CUDARuntimeError | CUDADriverError:
        """The error for what is asked of a capture that is lost (901), with the call that broke it."""
        return refusal(901, driver, self.spoiler, self.remedy)

    def join(self, place: Place, after: tuple[int, ...]) -> None:
        """Let the next node of a stream, which may be new here, follow these nodes too."""
        self.frontiers[place] = tuple(sorted({*self.frontiers.get(place, ()), *after}))

    def leave(self, place: Place) -> None:
        """A stream that took part is gone; the origin's must still wait for what it was given."""
        self.left += self.frontiers.pop(place, ())

    def unjoined(self) -> bool:
        """Whether the origin's stream would end before another one that takes part."""
        last = self.frontiers[self.origin]
        reached = {*last, *self._before(last)}
        ends = (self.left, *self.frontiers.values())
        return any(number not in reached for after in ends for number in after)

    def _before(self, numbers: tuple[int, ...]) -> set[int]:
        """The nodes that come before these, directly or not."""
        found: set[int] = set()
        todo = [before for number in numbers for before in self.nodes[number].after]
        while todo:
            number = todo.pop()
            if number not in found:
                found.add(number)
                todo.extend(self.nodes[number].after)
        return found
