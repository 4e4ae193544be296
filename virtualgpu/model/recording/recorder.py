"""A timeline while it is recorded on a virtual machine: operations, calls and waits.

`HostClock.recorder` is the open one. What gives a device work or waits for it tells it so; each call has
the line of the program that made it. A wait is *hidden* where that line called something other than a
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

# More of each kind than this is counted and not kept: some 300 MB.
MAX_RECORDS = 1_000_000

# The calls that ask for a wait, as CuPy names them.
_ASKED = frozenset(
    {"synchronize", "deviceSynchronize", "streamSynchronize", "eventSynchronize", "get_elapsed_time"}
)
_CALLS: dict[ActivityKind, str] = {
    "CONCURRENT_KERNEL": "cuLaunchKernel",
    "MEMCPY": "cudaMemcpyAsync",
    "MEMCPY2": "cudaMemcpyPeerAsync",
    "MEMSET": "cudaMemsetAsync",
    "HOST_LAUNCH": "cudaLaunchHostFunc",
}

# name, start, end, thread, operation, line: a `HostCall` in the making.
_Call = tuple[str, int, int, int, int, SourceLine | None]


class StreamFacts(Protocol):
    """What a timeline says of a stream."""

    blocking: bool
    priority: int


class Recorder:
    """What is recorded so far.

    Parameters
    ----------
    now
        Gives the host's modelled time in ns.

    Attributes
    ----------
    begun : SourceLine, optional
        The line that began it.
    lost : int
        Records that there was no room for.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lines = ProgramLines()
        self.begun, _ = self._lines.here()
        self.start_ns = now()
        self.activities: list[Activity] = []
        self.waits: list[Synchronization] = []
        self.streams: dict[tuple[int, int], StreamFacts] = {}
        self.lost = 0
        self._calls: list[_Call] = []

    @property
    def calls(self) -> tuple[HostCall, ...]:
        return tuple(HostCall(*call) for call in self._calls)

    def ran(self, activity: Activity, stream: StreamFacts, begun_ns: int) -> None:
        """An operation was given to a stream by a call that began at `begun_ns`."""
        self.streams.setdefault((activity.device_id, activity.stream_id), stream)
        if len(self.activities) < MAX_RECORDS:
            self.activities.append(activity)
        else:
            self.lost += 1
        self.called(_CALLS.get(activity.kind, activity.kind), begun_ns, activity.correlation_id)

    def ran_graph(self, activities: Sequence[Activity], stream: StreamFacts, begun_ns: int) -> None:
        """A graph was launched; its call has the number of the operation that was first."""
        for activity in activities[: max(0, MAX_RECORDS - len(self.activities))]:
            self.streams.setdefault((activity.device_id, activity.stream_id), stream)
            self.activities.append(activity)
        first = activities[0].correlation_id if activities else 0
        self.called("cudaGraphLaunch", begun_ns, first)

    def moved(self, planned: Mapping[int, Activity]) -> None:
        """Operations, by number, turned out to run at another time: a more urgent one came in between."""
        if planned:
            first = min(planned)
            for at in reversed(range(len(self.activities))):
                number = self.activities[at].correlation_id
                if number < first:
                    return
                self.activities[at] = planned.get(number, self.activities[at])

    def captured(self, kind: ActivityKind, begun_ns: int) -> None:
        """A call became a node of a graph."""
        self.called(_CALLS.get(kind, kind), begun_ns)

    def called(self, name: str, begun_ns: int, number: int = 0) -> None:
        """A call returns now; `number` is the operation it gave to a stream."""
        if len(self._calls) >= MAX_RECORDS:
            self.lost += 1
            return
        line, _ = self._lines.here()
        self._calls.append((name, begun_ns, self._now(), threading.get_ident(), number, line))

    def waited(
        self,
        type: SynchronizationType,
        name: str,
        begun_ns: int,
        device_id: int,
        stream_id: int | None,
        after: tuple[int, ...] = (),
        event_id: int = 0,
    ) -> None:
        """The host waited until now, in a call of its own."""
        now_ns, (line, called) = self._now(), self._lines.here()
        self._calls.append((name, begun_ns, now_ns, threading.get_ident(), 0, line))
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
                hidden=called not in _ASKED,
                source=line,
            )
        )

    def held_up(self, copy: Activity, begun_ns: int, waited: bool) -> None:
        """The call that gave out a copy lasted until now, since it read pageable memory or `waited`."""
        now_ns = self._now()
        line = None
        for at in reversed(range(len(self._calls))):
            name, start_ns, _, thread, number, line = self._calls[at]
            if number == copy.correlation_id:
                self._calls[at] = (name, start_ns, now_ns, thread, number, line)
                break
        if not waited:
            return
        self.waits.append(
            Synchronization(
                type="STREAM_SYNCHRONIZE",
                device_id=copy.device_id,
                stream_id=copy.stream_id,
                start_ns=begun_ns,
                end_ns=now_ns,
                name=_CALLS[copy.kind],
                after=(copy.correlation_id,),
                hidden=True,
                source=line,
            )
        )

    def ordered(
        self,
        device_id: int,
        stream_id: int,
        event_id: int,
        event_stream_id: int | None,
        after: tuple[int, ...],
        stream: StreamFacts,
    ) -> None:
        """A stream was told to wait for an event."""
        self.streams.setdefault((device_id, stream_id), stream)
        now_ns, (line, _) = self._now(), self._lines.here()
        self._calls.append(("cudaStreamWaitEvent", now_ns, now_ns, threading.get_ident(), 0, line))
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
                source=line,
            )
        )
