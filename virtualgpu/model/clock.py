"""Modelled time of one virtual device: in-order queues, engines and the host that feeds them.

This module keeps *time* only; `virtualgpu.model.queue` runs the work. The host clock advances when the
program submits work, queries it or waits for it, never with the real clock, so the same program always
gets the same times.

Rules: work of one queue runs in order; the legacy default queue and the blocking queues wait for
each other (CUDA C++ Programming Guide, "Default stream"); copies to and from the host use copy
engines; kernels, device-side copies and memory sets share the SMs. Once there are streams of another
priority than 0, urgent kernels may overtake others: see `virtualgpu.model.priorities`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from virtualgpu.model.orders.deferral import StreamDeferral
from virtualgpu.model.priorities import EngineName, PlannedWork, plan_works
from virtualgpu.model.recording.recorder import Recorder
from virtualgpu.model.recording.watch import StreamWatch
from virtualgpu.records import Activity

LEGACY_QUEUE = 0
LEGACY_ALIAS = 1  # cudaStreamLegacy
PER_THREAD_QUEUE = 2  # cudaStreamPerThread

# Host time of one cudaEventQuery or cudaStreamQuery; without it a polling loop never ends.
EVENT_QUERY_NS = 1_000
_MAX_INTERVALS = 256
MAX_ACTIVITIES = 65_536
# The range of `cudaDeviceGetStreamPriorityRange` since Volta; other values are clamped to it.
HIGHEST_PRIORITY = -5
LOWEST_PRIORITY = 0
_MAX_PENDING = 4096  # number of pending operations from which the older part is planned finally


class HostClock:
    """The modelled clock of the host, which all devices of one machine share.

    The attribute ``waits`` counts how often the host has waited. ``recorder`` records calls and waits while a
    timeline is recorded, ``watch`` records ordering and memory use while streams are checked, and
    ``deferral`` holds work back while another order of the streams is tried.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.waits = 0
        self.recorder: Recorder | None = None
        self.watch: StreamWatch | None = None
        self.deferral: StreamDeferral | None = None
        self.lock = threading.RLock()

    def advance(self, duration_ns: float) -> int:
        """Move the clock forward by a duration, and return the new time."""
        with self.lock:
            self.now_ns += round(duration_ns)
            return self.now_ns

    def wait_until(self, time_ns: int) -> int:
        """Let the host wait until the given time, and return the new time."""
        with self.lock:
            self.waits += 1
            self.now_ns = max(self.now_ns, time_ns)
            return self.now_ns


class Engine:
    """A hardware unit of a device, such as a copy engine. Concurrent operations share the engine's capacity
    of 1.0.
    """

    def __init__(self) -> None:
        self._intervals: list[tuple[int, int, float]] = []
        self._earliest_start_ns = 0
        self._last_end_ns = 0

    def find_earliest_start(self, ready_ns: int, duration_ns: int, share: float, now_ns: int) -> int:
        """Return the earliest time at which the hardware unit can start an operation."""
        start_ns = max(ready_ns, self._earliest_start_ns)
        if start_ns < self._last_end_ns:
            self._intervals = [interval for interval in self._intervals if interval[1] > now_ns]
            candidate_starts_ns = sorted(
                {start_ns, *(end_ns for _, end_ns, _ in self._intervals if end_ns > start_ns)}
            )
            # The last candidate always fits: nothing is planned after it.
            for start_ns in candidate_starts_ns:
                if self._find_highest_load(start_ns, start_ns + duration_ns) + share <= 1.0 + 1e-9:
                    break
        return start_ns

    def reserve(self, start_ns: int, end_ns: int, share: float) -> None:
        """Reserve a share of the hardware unit for an operation from `start_ns` to `end_ns`."""
        self._last_end_ns = max(self._last_end_ns, end_ns)
        self._intervals.append((start_ns, end_ns, share))
        if len(self._intervals) > _MAX_INTERVALS:
            self._intervals.sort(key=lambda interval: interval[1])
            half_count = len(self._intervals) // 2
            self._earliest_start_ns = max(self._earliest_start_ns, self._intervals[half_count - 1][1])
            del self._intervals[:half_count]

    def intervals_after(self, after_ns: int) -> list[tuple[int, int, float]]:
        """Return the intervals (start, end, share) of the hardware unit that are reserved and end after the
        given time.
        """
        return [interval for interval in self._intervals if interval[1] > after_ns]

    def _find_highest_load(self, start_ns: int, range_end_ns: int) -> float:
        """Return the highest sum of shares that are reserved at any time within ``[start, end)``."""
        overlapping_intervals = [
            interval for interval in self._intervals if interval[0] < range_end_ns and interval[1] > start_ns
        ]
        highest_load = 0.0
        for time_ns in [
            start_ns,
            *(interval[0] for interval in overlapping_intervals if interval[0] > start_ns),
        ]:
            load_at_time = sum(
                reserved_share
                for begin_ns, end_ns, reserved_share in overlapping_intervals
                if begin_ns <= time_ns < end_ns
            )
            highest_load = max(highest_load, load_at_time)
        return highest_load


@dataclass(slots=True)
class StreamQueue:
    """The queue of a stream, whose operations run one after the other. The next operation starts at the time
    ``tail_ns`` or later.

    ``last_operation`` is the number of its last operation. ``awaited_operations`` contains the numbers of the
    operations that the next one must follow; ``waits_for_others`` is true if operations of other queues are
    among them.
    """

    blocking: bool
    priority: int
    tail_ns: int = 0
    last_operation: int = 0
    awaited_operations: tuple[int, ...] = ()
    waits_for_others: bool = False


@dataclass(slots=True, eq=False)
class QueuePosition:
    """A position in the work queue of a stream. The position is reached when the operations
    ``awaited_operations`` have ended and the time ``time_ns`` has passed.
    """

    time_ns: int
    awaited_operations: tuple[int, ...]


class Schedule:
    """The queues and hardware units of one device, with the start and end times of its operations.

    Parameters
    ----------
    clock : HostClock
        The machine's host clock.
    copy_engines : int
        Copy engines of the device; with 1, both directions share it.
    first_handle : int
        Handle of the first stream that is created.

    Attributes
    ----------
    log : deque of Activity
        The last operations that ran, in the order of submission.
    """

    def __init__(self, clock: HostClock, copy_engines: int, first_handle: int = 0x1000) -> None:
        self.clock = clock
        self._log: deque[Activity] = deque(maxlen=MAX_ACTIVITIES)
        self._queues = {LEGACY_QUEUE: StreamQueue(True, 0), PER_THREAD_QUEUE: StreamQueue(True, 0)}
        self._next_queue = first_handle
        to_device = Engine()
        self._engines: dict[EngineName, Engine] = {
            "compute": Engine(),
            "to device": to_device,
            "to host": Engine() if copy_engines != 1 else to_device,
        }
        self._last_end_ns = 0
        self._retired_tail_ns = 0
        self._retired_operations: tuple[int, ...] = ()
        self._per_thread: dict[int, int] = {}
        # Work whose times may still change; None as long as all streams have one priority.
        self._pending_works: dict[int, PlannedWork] | None = None
        self._is_planned = True
        self._pending_positions: list[QueuePosition] = []  # of the pending work

    def engine(self, name: EngineName) -> Engine:
        """Return the hardware unit of the device with the given name."""
        return self._engines[name]

    def has_queue(self, handle: int) -> bool:
        """Return whether a stream with this handle was created on this device."""
        return handle > PER_THREAD_QUEUE and handle in self._queues

    def create_queue(self, blocking: bool, priority: int) -> int:
        """Create a stream, and return its CUDA handle."""
        with self.clock.lock:
            handle = self._next_queue
            self._next_queue += 0x10
            priority = min(max(priority, HIGHEST_PRIORITY), LOWEST_PRIORITY)
            self._queues[handle] = StreamQueue(blocking, priority)
            if priority and self._pending_works is None:
                self._pending_works = {}
            return handle

    def select_queue(self, handle: int) -> int:
        """Return the handle of the queue that a stream handle selects in the calling thread.

        Each thread has its own per-thread default stream.
        """
        if handle != PER_THREAD_QUEUE:
            return LEGACY_QUEUE if handle == LEGACY_ALIAS else handle
        thread = threading.get_ident()
        with self.clock.lock:
            if thread not in self._per_thread:
                is_first_thread = not self._per_thread
                self._per_thread[thread] = PER_THREAD_QUEUE if is_first_thread else self.create_queue(True, 0)
            return self._per_thread[thread]

    def destroy_queue(self, handle: int) -> None:
        """Remove a stream's queue. Operations that were already submitted still run."""
        with self.clock.lock:
            self.plan_pending()
            queue = self._queues.pop(handle, None)
            if queue is not None and self._pending_works:
                queue.tail_ns = self._find_latest_end(queue.tail_ns, queue.awaited_operations)
                self._last_end_ns = max(self._last_end_ns, queue.tail_ns)
            if queue is not None and queue.blocking:
                # The legacy default stream still waits for work of a destroyed blocking stream.
                self._retired_tail_ns = max(self._retired_tail_ns, queue.tail_ns)
                last_number = self._queues[LEGACY_QUEUE].last_operation
                self._retired_operations = (
                    *(
                        operation_number
                        for operation_number in self._retired_operations
                        if operation_number > last_number
                    ),
                    *queue.awaited_operations,
                )

    @property
    def log(self) -> deque[Activity]:
        """The most recently submitted operations, in the order of submission."""
        if self._pending_works:
            self.plan_pending()
        return self._log

    def queue(self, handle: int) -> StreamQueue:
        """Return the queue of the stream with the given handle."""
        handle = self.select_queue(handle)
        try:
            return self._queues[handle]
        except KeyError:
            # A handle of another library, or of a destroyed stream: an ordinary blocking queue.
            return self._queues.setdefault(handle, StreamQueue(True, 0))

    def ready_ns(self, handle: int) -> int:
        """Return the earliest time at which the next operation of a queue can start."""
        with self.clock.lock:
            if not self._pending_works:
                return self._ready_ns(handle)
            self.plan_pending()
            return self._find_latest_end(self._ready_ns(handle), self._find_predecessors(self.queue(handle)))

    def tail_ns(self, handle: int) -> int:
        """Return the time at which the last operation of a queue ends."""
        with self.clock.lock:
            queue = self.queue(handle)
            if not self._pending_works:
                return queue.tail_ns
            self.plan_pending()
            return self._find_latest_end(queue.tail_ns, queue.awaited_operations)

    def _ready_ns(self, handle: int) -> int:
        with self.clock.lock:
            queue = self.queue(handle)
            ready_ns = max(self.clock.now_ns, queue.tail_ns)
            if handle in (LEGACY_QUEUE, LEGACY_ALIAS):
                # A copy of the list, because garbage collection can destroy a queue during the loop.
                tails_ns = [
                    queue_of_device.tail_ns
                    for queue_of_device in [*self._queues.values()]
                    if queue_of_device.blocking
                ]
                return max(ready_ns, self._retired_tail_ns, *tails_ns)
            return max(ready_ns, self._queues[LEGACY_QUEUE].tail_ns) if queue.blocking else ready_ns

    def place_operation(
        self,
        handle: int,
        engine: EngineName,
        duration_ns: float,
        sm_share: float = 1.0,
        ports: Sequence[tuple[Engine, float]] = (),
    ) -> tuple[int, int]:
        """Schedule the next operation of a queue, and return its start and end in ns of modelled time.

        Parameters
        ----------
        sm_share : float
            Part of the SMs that a kernel keeps busy (0 to 1); kernels of different queues overlap
            while their shares fit.
        ports : sequence
            Engines of other devices that it also needs, and the share of each.
        """
        with self.clock.lock:
            start_ns, end_ns = self.place_operation_at(
                self.ready_ns(handle), engine, duration_ns, sm_share, ports
            )
            self.queue(handle).tail_ns = end_ns
            return start_ns, end_ns

    def submit(
        self,
        handle: int,
        operation_number: int,
        engine: EngineName,
        duration_ns: float,
        sm_share: float,
        waves: int,
        activity: Callable[[int, int, tuple[int, ...]], Activity],
        ports: Sequence[tuple[Engine, float]] = (),
    ) -> Activity:
        """Schedule an operation of a queue, and add it to the log of operations.

        Parameters
        ----------
        waves : int
            Number of times that the blocks of a kernel fill their slots: a more urgent kernel can start
            between two waves.
        activity : callable
            Makes its record from its start, its end and the operations that it followed.
        ports : sequence
            Engines of other devices that it also needs, and the share of each.
        """
        with self.clock.lock:
            if self._pending_works is not None and len(self._pending_works) >= _MAX_PENDING:
                self._finalize_pending()
            predecessors = self.append_operation(handle, operation_number)
            if self._pending_works is None:
                start_ns, end_ns = self.place_operation(handle, engine, duration_ns, sm_share, ports)
                self._log.append(activity(start_ns, end_ns, predecessors))
                return self._log[-1]
            whole_duration_ns = max(1, round(duration_ns))
            engine_share = min(1.0, max(0.001, sm_share))
            floor_ns = max(self._ready_ns(handle), self.clock.now_ns)
            for port, _ in ports:  # not planned again if something more urgent is submitted
                floor_ns = port.find_earliest_start(floor_ns, whole_duration_ns, 1.0, self.clock.now_ns)
            for port, share_of_port in ports:
                port.reserve(floor_ns, floor_ns + whole_duration_ns, share_of_port)
            priority = self.queue(handle).priority
            self._pending_works[operation_number] = PlannedWork(
                operation_number,
                handle,
                engine,
                whole_duration_ns,
                engine_share if engine == "compute" else 1.0,
                waves,
                priority,
                floor_ns,
                tuple(n for n in predecessors if n in self._pending_works),
            )
            self._is_planned = False
            self._log.append(activity(floor_ns, floor_ns + whole_duration_ns, predecessors))
            if engine != "compute":
                self.plan_pending()  # the host may want to wait for it
            return self._log[-1]

    def plan_pending(self) -> None:
        """Plan the start and end of all pending operations, and update their times in the log."""
        if not self._pending_works or self._is_planned:
            return
        pending_works = list(self._pending_works.values())
        begin_ns = min(planned_work.earliest_start_ns for planned_work in pending_works)
        plan_works(
            pending_works, {name: engine.intervals_after(begin_ns) for name, engine in self._engines.items()}
        )
        corrected_activities: dict[int, Activity] = {}
        for position, planned_work in enumerate(reversed(pending_works), 1):
            activity = self._log[-position]
            if (activity.start_ns, activity.end_ns) != (planned_work.start_ns, planned_work.end_ns):
                corrected_activities[planned_work.number] = replace(
                    activity, start_ns=planned_work.start_ns, end_ns=planned_work.end_ns
                )
                self._log[-position] = corrected_activities[planned_work.number]
        if self.clock.recorder is not None:
            self.clock.recorder.update_times(corrected_activities)
        self._is_planned = True
        if max(planned_work.end_ns for planned_work in pending_works) <= self.clock.now_ns:
            self._finalize_pending()

    def _finalize_pending(self) -> None:
        """Plan all pending operations, and make their times final."""
        self.plan_pending()
        if not self._pending_works:
            return
        for queue in [*self._queues.values()]:
            queue.tail_ns = self._find_latest_end(queue.tail_ns, queue.awaited_operations)
        for queue_position in self._pending_positions:
            queue_position.time_ns = self._find_latest_end(
                queue_position.time_ns, queue_position.awaited_operations
            )
        for planned_work in self._pending_works.values():
            self._last_end_ns = max(self._last_end_ns, planned_work.end_ns)
            if planned_work.engine != "none" and planned_work.end_ns > self.clock.now_ns:
                self._engines[planned_work.engine].reserve(
                    planned_work.start_ns, planned_work.end_ns, planned_work.requested_share
                )
        self._pending_positions.clear()
        self._pending_works.clear()

    def _find_latest_end(self, time_ns: int, operation_numbers: tuple[int, ...]) -> int:
        """Return the later of `time_ns` and the ends of those operations among `operation_numbers` that are
        pending.
        """
        pending_works = self._pending_works or {}
        ends_ns = [
            pending_works[operation_number].end_ns
            for operation_number in operation_numbers
            if operation_number in pending_works
        ]
        return max([time_ns, *ends_ns])

    def place_operation_at(
        self,
        ready_ns: int,
        engine: EngineName,
        duration_ns: float,
        sm_share: float = 1.0,
        ports: Sequence[tuple[Engine, float]] = (),
    ) -> tuple[int, int]:
        """Schedule an operation that belongs to no queue, such as a graph node. The operation starts at the
        time `ready_ns` or later.

        The arguments and the result are those of `place_operation`.
        """
        with self.clock.lock:
            if self._pending_works:
                self._finalize_pending()
            whole_duration_ns = max(1, round(duration_ns))
            start_ns = ready_ns
            previous_start_ns = -1
            port_shares = list(ports)
            if engine != "none":
                engine_share = min(1.0, max(0.001, sm_share)) if engine == "compute" else 1.0
                port_shares.append((self._engines[engine], engine_share))
            while start_ns != previous_start_ns:  # until all engines that it needs are free
                previous_start_ns = start_ns
                for required_engine, engine_share in port_shares:
                    start_ns = required_engine.find_earliest_start(
                        start_ns, whole_duration_ns, engine_share, self.clock.now_ns
                    )
            for required_engine, engine_share in port_shares:
                required_engine.reserve(start_ns, start_ns + whole_duration_ns, engine_share)
            self._last_end_ns = max(self._last_end_ns, start_ns + whole_duration_ns)
            return start_ns, start_ns + whole_duration_ns

    def append_graph(self, handle: int, end_ns: int, last_operations: tuple[int, ...]) -> None:
        """Make the next operation of a queue wait until a launched graph has ended. The argument
        `last_operations` contains the numbers of the graph's last operations.
        """
        with self.clock.lock:
            queue = self.queue(handle)
            queue.tail_ns = max(queue.tail_ns, end_ns)
            queue.awaited_operations = last_operations
            queue.last_operation = max(last_operations, default=queue.last_operation)
            queue.waits_for_others = False

    def find_queue_end(self, handle: int) -> QueuePosition:
        """Return the position at the current end of a queue."""
        with self.clock.lock:
            queue_position = QueuePosition(
                self._ready_ns(handle), self._find_predecessors(self.queue(handle))
            )
            if self._pending_works:
                self._pending_positions.append(queue_position)
            return queue_position

    def find_reached_time(self, queue_position: QueuePosition) -> int:
        """Return the time at which a queue reaches a position."""
        with self.clock.lock:
            self.plan_pending()
            return self._find_latest_end(queue_position.time_ns, queue_position.awaited_operations)

    def append_operation(self, handle: int, operation_number: int) -> tuple[int, ...]:
        """Append an operation to a queue, and return the numbers of the operations that it waits for."""
        with self.clock.lock:
            queue = self.queue(handle)
            predecessors = self._find_predecessors(queue)
            queue.awaited_operations = (operation_number,)
            queue.last_operation = operation_number
            queue.waits_for_others = False
            return predecessors

    def _find_predecessors(self, queue: StreamQueue) -> tuple[int, ...]:
        """Return the operations, in this and other queues, that the next one of a queue must follow."""
        legacy_queue = self._queues[LEGACY_QUEUE]
        if not queue.blocking:
            return queue.awaited_operations
        other_queues = [*self._queues.values()] if queue is legacy_queue else [legacy_queue]
        new_operations = [
            other_queue.awaited_operations
            for other_queue in other_queues
            if other_queue.blocking
            and (other_queue.waits_for_others or other_queue.last_operation > queue.last_operation)
        ]
        if queue is legacy_queue and self._retired_operations:
            new_operations.append(
                tuple(
                    operation_number
                    for operation_number in self._retired_operations
                    if operation_number > queue.last_operation
                )
            )
        if not new_operations:
            return queue.awaited_operations
        return tuple(
            dict.fromkeys(
                (
                    *queue.awaited_operations,
                    *(
                        operation_number
                        for operation_numbers in new_operations
                        for operation_number in operation_numbers
                    ),
                )
            )
        )

    def hold_until(self, handle: int, time_ns: int, awaited_operations: tuple[int, ...] = ()) -> None:
        """Make the next operations of a queue wait for the time `time_ns` and for the operations
        `awaited_operations`.
        """
        with self.clock.lock:
            queue = self.queue(handle)
            queue.tail_ns = max(queue.tail_ns, time_ns)
            queue.awaited_operations = tuple(dict.fromkeys((*queue.awaited_operations, *awaited_operations)))
            queue.waits_for_others = queue.waits_for_others or bool(awaited_operations)

    def has_passed(self, time_ns: int) -> bool:
        """Return whether the modelled clock has passed the given time. The query itself also takes time on
        the host.
        """
        return self.clock.advance(EVENT_QUERY_NS) >= time_ns

    def synchronize(self, handle: int | None = None) -> None:
        """Let the host wait for one queue, or for all operations of the device if `handle` is None."""
        with self.clock.lock:
            if handle is None:
                self._finalize_pending()
                end_ns = self._last_end_ns
            else:
                end_ns = (
                    self.ready_ns(handle)
                    if self.select_queue(handle) == LEGACY_QUEUE
                    else self.tail_ns(handle)
                )
            self.clock.wait_until(end_ns)
            if (
                self._pending_works
                and max(planned_work.end_ns for planned_work in self._pending_works.values())
                <= self.clock.now_ns
            ):
                self._finalize_pending()
