"""Timelines: operations of devices, calls and waits of the host, and NVTX ranges, with CUPTI's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance

# CUPTI's activity kinds (``CUpti_ActivityKind``) of operations of a stream; MEMCPY2 is a copy between GPUs.
# RANGE is not one of CUPTI's: the work between a pair of events, if single operations cannot be recorded.
ActivityKind = Literal["CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "HOST_LAUNCH", "RANGE"]
# CUPTI's ``CUpti_ActivityMemcpyKind``, as nsys spells it.
CopyKind = Literal["HtoD", "DtoH", "DtoD", "PtoP"]
# CUPTI's ``CUpti_ActivitySynchronizationType``.
SynchronizationType = Literal[
    "EVENT_SYNCHRONIZE", "STREAM_WAIT_EVENT", "STREAM_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE"
]
# Source of the intervals.
TimelineMethod = Literal["CUPTI", "events", "model", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One operation of a stream, such as a kernel or a copy, with its start and end.

    The field ``correlation_id`` is the number of the operation in the order of submission, and ``after``
    contains the operations that had to end first. Operations of a graph launch share its ``graph_id`` (0:
    none). A kernel has ``registers_per_thread`` (0: not known) and, if they were counted, ``moved_bytes``
    (between SMs and L2), ``flop`` (floating-point operations) and ``double_flop`` (those in FP64).
    ``between`` are the source and target device of a copy between GPUs.
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
        """The duration of the operation in ns."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program, with its number, its text, and the displayed name of its file or cell."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call of a CUDA function such as ``cudaMemcpyAsync``, with its start and end on the host.

    The field ``correlation_id`` is the number of the operation that the call submitted, or 0 if there is
    none; all operations in a graph launch share the number of the launching call.
    """

    name: str
    start_ns: int
    end_ns: int
    thread: int
    correlation_id: int = 0
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronization:
    """A wait of the host for the device, or of a stream for an event.

    For a wait of the host, ``start_ns`` and ``end_ns`` are the beginning and the end of the wait. For
    ``STREAM_WAIT_EVENT`` these are the times of the call; ``stream_id`` is the stream that waits,
    ``event_stream_id`` the one that the event was recorded in, and ``after`` the operations before the event.
    ``hidden`` is true for an implicit wait: a copy to pageable memory, ``float(array)``, an allocation that
    frees.
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
    """A named interval on the host's clock, or a mark without a duration.

    The field ``color`` is a number of the form 0xAARRGGBB, or None if the program has set no colour.
    ``thread`` is Python's identifier of the thread that began the range, and ``depth`` counts the ranges
    around it on that thread.
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
    """A stream in a timeline. The field ``name`` is the displayed name, such as ``default stream``."""

    device_id: int
    stream_id: int
    name: str
    non_blocking: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The operations of devices and the calls of the host between two moments, with times of the same clock.

    The field ``method`` is the recording method, ``lost`` is the number of records beyond the recorder's
    limit, and ``note`` describes what the method cannot record. Activities are in the order of their start.
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
        """The duration of the timeline in ns."""
        return self.end_ns - self.start_ns

    @property
    def span_ns(self) -> int:
        """The time in ns from the start of the first operation to the end of the last one. The time is 0 if
        there are no operations.
        """
        if not self.activities:
            return 0
        last_end_ns = max(activity.end_ns for activity in self.activities)
        return last_end_ns - min(activity.start_ns for activity in self.activities)
