"""The one door for device work: kernels, copies, memory sets and host functions, in the order of a stream.

Whatever runs on a virtual device is an `Operation`. `WorkQueue.enqueue` numbers it, notes what it has to
follow, and then lets it run: the operation itself says how long it took on the device, the device's
schedule when. A stream that captures a graph keeps the operation instead, to run it at each launch of
the graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from virtualgpu.model.clock import EngineName, HostClock, Schedule
from virtualgpu.records import Activity, ActivityKind, CopyKind, Dim3

KEPT_ACTIVITIES = 65_536
_COPY_ENGINES: dict[CopyKind | None, EngineName] = {
    "HtoD": "to device",
    "DtoH": "to host",
    "PtoP": "to device",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One piece of device work, before it runs.

    ``run`` does it and returns what it takes on the device in ns. ``sm_share`` is the part of the SMs that
    a kernel keeps busy.
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
    sm_share: float = 1.0

    @property
    def engine(self) -> EngineName:
        """Which part of the device is busy with it."""
        if self.kind == "HOST_LAUNCH":
            return "none"
        return _COPY_ENGINES.get(self.copy_kind, "compute")


class WorkQueue:
    """The streams of one device, and the log of what they did.

    Parameters
    ----------
    device_id : int
        Number of the device.
    clock : HostClock
        The machine's clock.
    copy_engines : int
        Copy engines of the device.
    launch_ns : float
        What giving out one operation costs the host.
    next_number : callable
        Numbers the operations of the machine.

    Attributes
    ----------
    schedule : Schedule
        When the work runs.
    log : deque of Activity
        The last operations that ran, in the order in which they were given.
    """

    def __init__(
        self,
        device_id: int,
        clock: HostClock,
        copy_engines: int,
        launch_ns: float,
        next_number: Callable[[], int],
    ) -> None:
        self._device_id = device_id
        self._clock = clock
        self._launch_ns = launch_ns
        self._next_number = next_number
        self.schedule = Schedule(clock, copy_engines)
        self.log: deque[Activity] = deque(maxlen=KEPT_ACTIVITIES)

    def enqueue(self, stream_id: int, operation: Operation) -> Activity | None:
        """Give an operation to a stream and return when it ran; the host pays for the call."""
        number = self._next_number()
        duration_ns = operation.run()
        with self._clock.lock:
            self._clock.advance(self._launch_ns)
            after = self.schedule.follow(stream_id, number)
            start, end = self.schedule.place(stream_id, operation.engine, duration_ns, operation.sm_share)
        activity = Activity(
            operation.kind,
            operation.name,
            self._device_id,
            stream_id,
            number,
            start,
            end,
            operation.size_bytes,
            operation.copy_kind,
            operation.pinned,
            operation.grid,
            operation.block,
            operation.shared_bytes,
            after,
        )
        self.log.append(activity)
        return activity
