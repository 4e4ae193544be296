"""What ran on a device and when, and what the host did meanwhile: CUPTI's names, and NVTX ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance

# CUPTI's activity kinds (``CUpti_ActivityKind``) of what a stream can hold; MEMCPY2 is a copy between GPUs.
# RANGE is none of CUPTI's: what ran between a pair of events, where single operations cannot be seen.
ActivityKind = Literal["CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "HOST_LAUNCH", "RANGE"]
# CUPTI's ``CUpti_ActivityMemcpyKind``, as nsys spells it.
CopyKind = Literal["HtoD", "DtoH", "DtoD", "PtoP"]
# CUPTI's ``CUpti_ActivitySynchronizationType``.
SynchronizationType = Literal[
    "EVENT_SYNCHRONIZE", "STREAM_WAIT_EVENT", "STREAM_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE"
]
# Where the intervals come from.
TimelineMethod = Literal["CUPTI", "events", "model", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One operation of a stream: what it was, and from when to when it ran.

    ``correlation_id`` numbers the operations of a machine in the order in which the program gave them;
    ``after`` names those that had to end first (of the same stream, of events waited for, of the legacy
    default stream). Operations of a graph launch share its ``graph_id`` (0: none). Of a kernel are known
    ``registers_per_thread`` (0: not known) and, where it was counted, ``moved_bytes``, what the SMs and L2
    exchanged, ``flop``, its floating-point operations, and ``double_flop``, those of them in FP64.
    ``between`` are the devices that a copy from one GPU to another went from and to.
    """

    kind: ActivityKind
    name: str
    device_id: int
    stream_id: int
    correlation_id: int
    start_ns: int
    end_ns: int
    size_bytes: int = 0
    copy_kind: CopyKind | None = None
    pinned: bool | None = None
    grid: Dim3 | None = None
    block: Dim3 | None = None
    shared_bytes: int = 0
    after: tuple[int, ...] = ()
    graph_id: int = 0
    graph_node_id: int = 0
    registers_per_thread: int = 0
    moved_bytes: int | None = None
    flop: int | None = None
    double_flop: int | None = None
    between: tuple[int, int] | None = None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the learner's program: the file's or cell's name as shown, the line's number and its text."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, slots=True)
class HostCall:
    """One call into CUDA: its name there (``cudaMemcpyAsync``), when it began and returned on the host.

    ``correlation_id`` is that of the operation it gave to a stream, 0 if it gave none; several operations
    of one graph launch share that of their call.
    """

    name: str
    start_ns: int
    end_ns: int
    thread: int
    correlation_id: int = 0
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronization:
    """The host waited for the device, or one stream for another's event.

    A wait of the host lasts from ``start_ns`` to ``end_ns``. For ``STREAM_WAIT_EVENT`` these are when the
    call was made; ``stream_id`` is the stream that waits, ``event_stream_id`` the one that the event was
    recorded in, and ``after`` the operations that the event stands for. ``hidden`` says that the program
    asked for no wait: a copy to pageable memory, ``float(array)``, an allocation that frees.
    """

    type: SynchronizationType
    device_id: int
    stream_id: int | None
    start_ns: int
    end_ns: int
    name: str = ""
    event_id: int = 0
    event_stream_id: int | None = None
    after: tuple[int, ...] = ()
    hidden: bool = False
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvtxRange:
    """A named stretch of the host's time, or a mark, which takes none.

    ``color`` is 0xAARRGGBB, None where the program gave none. ``thread`` is Python's identifier of the
    thread that began the range, and ``depth`` counts the ranges around it on that thread.
    """

    name: str
    color: int | None
    start_ns: int
    end_ns: int
    thread: int
    depth: int = 0
    is_mark: bool = False


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream that a timeline speaks of: ``name`` is what pictures call it, such as ``default stream``."""

    device_id: int
    stream_id: int
    name: str
    non_blocking: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What devices and host did from ``start_ns`` to ``end_ns``, all on one clock.

    ``method`` says how it was seen; ``lost`` counts what the recorder had no room for; ``note`` has in words
    what the method cannot see. Activities are in the order of their start.
    """

    provenance: Provenance
    method: TimelineMethod
    start_ns: int
    end_ns: int
    activities: tuple[Activity, ...] = ()
    calls: tuple[HostCall, ...] = ()
    synchronizations: tuple[Synchronization, ...] = ()
    ranges: tuple[NvtxRange, ...] = ()
    streams: tuple[StreamInfo, ...] = ()
    lost: int = 0
    note: str = ""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def span_ns(self) -> int:
        """From the first operation's start to the last one's end; 0 without operations."""
        if not self.activities:
            return 0
        return max(a.end_ns for a in self.activities) - min(a.start_ns for a in self.activities)
