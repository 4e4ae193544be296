"""Recorder of an open timeline on a virtual machine: operations, calls of the host, and waits.

`HostClock.recorder` is the open recorder. Functions that submit work or wait for it report to it; each call
has the line of the program that made it. A wait is *hidden* if that line called something other than a
``synchronize``: ``array.get()``, ``float(array)``, a copy of pageable memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from virtualgpu.model.recording.program_lines import ProgramLines
from virtualgpu.records import (
    Activity,
    ActivityKind,
    HostCall,
    SourceLine,
    Synchronization,
    SynchronizationType,
)

# Largest number of records of each kind (some 300 MB); more are only counted.
MAX_RECORDS = 1_000_000

# Names in CuPy of the calls that wait explicitly.
_EXPLICIT_WAITS = frozenset(
    {"synchronize", "deviceSynchronize", "streamSynchronize", "eventSynchronize", "get_elapsed_time"}
)
_CALL_NAMES: dict[ActivityKind, str] = {
    "CONCURRENT_KERNEL": "cuLaunchKernel",
    "MEMCPY": "cudaMemcpyAsync",
    "MEMCPY2": "cudaMemcpyPeerAsync",
    "MEMSET": "cudaMemsetAsync",
    "HOST_LAUNCH": "cudaLaunchHostFunc",
}

# name, start, end, thread, operation, line: the fields of a `HostCall`.
_CallFields = tuple[str, int, int, int, int, SourceLine | None]


class StreamFacts(Protocol):
    """The properties of a stream that a timeline contains."""

    blocking: bool
    priority: int


class Recorder:
    """The records of a timeline while it is being recorded.

    Parameters
    ----------
    read_clock
        Returns the host's modelled time in ns.

    Attributes
    ----------
    begin_line : SourceLine, optional
        The source line that began the timeline.
    lost_records : int
        Number of records beyond the limit.
    """

    def __init__(self, read_clock: Callable[[], int]) -> None:
        self._read_clock = read_clock
        self._lines = ProgramLines()
        self.begin_line, _ = self._lines.find_current_line()
        self.start_ns = read_clock()
        self.activities: list[Activity] = []
        self.waits: list[Synchronization] = []
        self.streams: dict[tuple[int, int], StreamFacts] = {}
        self.lost_records = 0
        self._calls: list[_CallFields] = []

    @property
    def calls(self) -> tuple[HostCall, ...]:
        """The recorded calls of CUDA functions on the host."""
        return tuple(HostCall(*call_fields) for call_fields in self._calls)

    def record_operation(self, activity: Activity, stream: StreamFacts, begun_ns: int) -> None:
        """Record an operation of a stream, and the host call that submitted it. The call began at the time
        `begun_ns`.
        """
        self.streams.setdefault((activity.device_id, activity.stream_id), stream)
        if len(self.activities) < MAX_RECORDS:
            self.activities.append(activity)
        else:
            self.lost_records += 1
        self.record_call(_CALL_NAMES.get(activity.kind, activity.kind), begun_ns, activity.correlation_id)

    def record_graph(self, activities: Sequence[Activity], stream: StreamFacts, begun_ns: int) -> None:
        """Record the launch of a graph. The recorded host call has the number of the graph's first
        operation.
        """
        for activity in activities[: max(0, MAX_RECORDS - len(self.activities))]:
            self.streams.setdefault((activity.device_id, activity.stream_id), stream)
            self.activities.append(activity)
        first_number = activities[0].correlation_id if activities else 0
        self.record_call("cudaGraphLaunch", begun_ns, first_number)

    def update_times(self, planned_activities: Mapping[int, Activity]) -> None:
        """Update the times of operations that a more urgent operation has delayed."""
        if planned_activities:
            first_number = min(planned_activities)
            for index in reversed(range(len(self.activities))):
                correlation_id = self.activities[index].correlation_id
                if correlation_id < first_number:
                    return
                self.activities[index] = planned_activities.get(correlation_id, self.activities[index])

    def record_captured_call(self, kind: ActivityKind, begun_ns: int) -> None:
        """Record a host call that added a node to a graph during its capture."""
        self.record_call(_CALL_NAMES.get(kind, kind), begun_ns)

    def record_call(self, name: str, begun_ns: int, number: int = 0) -> None:
        """Record a host call that ends now and submitted the operation with the given number."""
        if len(self._calls) >= MAX_RECORDS:
            self.lost_records += 1
            return
        source_line, _ = self._lines.find_current_line()
        self._calls.append((name, begun_ns, self._read_clock(), threading.get_ident(), number, source_line))

    def record_wait(
        self,
        type: SynchronizationType,
        name: str,
        begun_ns: int,
        device_id: int,
        stream_id: int | None,
        after: tuple[int, ...] = (),
        event_id: int = 0,
    ) -> None:
        """Record a wait of the host as a separate call. The wait began at the time `begun_ns` and ends
        now.
        """
        now_ns = self._read_clock()
        source_line, function_name = self._lines.find_current_line()
        self._calls.append((name, begun_ns, now_ns, threading.get_ident(), 0, source_line))
        self.waits.append(
            Synchronization(
                type=type,
                device_id=device_id,
                stream_id=stream_id,
                start_ns=begun_ns,
                end_ns=now_ns,
                name=name,
                event_id=event_id,
                after=after,
                hidden=function_name not in _EXPLICIT_WAITS,
                source=source_line,
            )
        )

    def extend_call_to_now(self, copy_activity: Activity, begun_ns: int, has_waited: bool) -> None:
        """Set the end of a copy's host call to now, because the copy has blocked the host.

        If `has_waited` is true, the host has waited for the end of the copy; otherwise, it has read pageable
        memory.
        """
        now_ns = self._read_clock()
        source_line = None
        for index in reversed(range(len(self._calls))):
            name, start_ns, _, thread, correlation_id, source_line = self._calls[index]
            if correlation_id == copy_activity.correlation_id:
                self._calls[index] = (name, start_ns, now_ns, thread, correlation_id, source_line)
                break
        if not has_waited:
            return
        self.waits.append(
            Synchronization(
                type="STREAM_SYNCHRONIZE",
                device_id=copy_activity.device_id,
                stream_id=copy_activity.stream_id,
                start_ns=begun_ns,
                end_ns=now_ns,
                name=_CALL_NAMES[copy_activity.kind],
                after=(copy_activity.correlation_id,),
                hidden=True,
                source=source_line,
            )
        )

    def record_order(
        self,
        device_id: int,
        stream_id: int,
        event_id: int,
        event_stream_id: int | None,
        after: tuple[int, ...],
        stream: StreamFacts,
    ) -> None:
        """Record that a stream waits for an event."""
        self.streams.setdefault((device_id, stream_id), stream)
        now_ns = self._read_clock()
        source_line, _ = self._lines.find_current_line()
        self._calls.append(("cudaStreamWaitEvent", now_ns, now_ns, threading.get_ident(), 0, source_line))
        self.waits.append(
            Synchronization(
                type="STREAM_WAIT_EVENT",
                device_id=device_id,
                stream_id=stream_id,
                start_ns=now_ns,
                end_ns=now_ns,
                name="cudaStreamWaitEvent",
                event_id=event_id,
                event_stream_id=event_stream_id,
                after=after,
                source=source_line,
            )
        )
