"""Modelled time of one virtual device: in-order queues, engines and the host that feeds them.

Only *time* is kept here; what the work does is the business of `virtualgpu.model.queue`. The host clock
moves when the program gives out work, asks about it or waits for it, never with the real clock, so the
same program always gets the same times.

Rules: work of one queue runs in order; the legacy default queue and the blocking queues wait for
each other (CUDA C++ Programming Guide, "Default stream"); copies to and from the host use copy
engines; kernels, device-side copies and memory sets share the SMs.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Literal

from virtualgpu.model.recording.recorder import Recorder
from virtualgpu.records import Activity

# Who does a piece of work: the SMs, a copy engine of one direction, or nobody of the device (the host).
EngineName = Literal["compute", "to device", "to host", "none"]

LEGACY_QUEUE = 0
LEGACY_ALIAS = 1  # cudaStreamLegacy
PER_THREAD_QUEUE = 2  # cudaStreamPerThread

# What one cudaEventQuery or cudaStreamQuery costs the host; without it a polling loop never ends.
QUERY_NS = 1_000
_KEPT_INTERVALS = 256
KEPT_ACTIVITIES = 65_536


class HostClock:
    """The host's modelled clock, shared by all devices of one machine.

    ``waits`` counts the host's waits; ``recorder`` is told of calls and waits while a timeline is recorded.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.waits = 0
        self.recorder: Recorder | None = None
        self.lock = threading.RLock()

    def advance(self, duration_ns: float) -> int:
        with self.lock:
            self.now_ns += round(duration_ns)
            return self.now_ns

    def wait_until(self, time_ns: int) -> int:
        with self.lock:
            self.waits += 1
            self.now_ns = max(self.now_ns, time_ns)
            return self.now_ns


class _Engine:
    """Capacity 1.0, shared by overlapping intervals; work takes the earliest place that fits."""

    def __init__(self) -> None:
        self._intervals: list[tuple[int, int, float]] = []
        self._floor_ns = 0
        self._last_end_ns = 0

    def place(self, ready_ns: int, duration_ns: int, share: float, now_ns: int) -> int:
        start = max(ready_ns, self._floor_ns)
        if start < self._last_end_ns:
            self._intervals = [i for i in self._intervals if i[1] > now_ns]
            candidates = sorted({start, *(end for _, end, _ in self._intervals if end > start)})
            # The last candidate always fits: nothing is planned after it.
            start = next(t for t in candidates if self._load(t, t + duration_ns) + share <= 1.0 + 1e-9)
        end = start + duration_ns
        self._last_end_ns = max(self._last_end_ns, end)
        self._intervals.append((start, end, share))
        if len(self._intervals) > _KEPT_INTERVALS:
            self._intervals.sort(key=lambda interval: interval[1])
            half = len(self._intervals) // 2
            self._floor_ns = max(self._floor_ns, self._intervals[half - 1][1])
            del self._intervals[:half]
        return start

    def _load(self, start: int, end: int) -> float:
        """Highest total share in use within ``[start, end)``."""
        busy = [i for i in self._intervals if i[0] < end and i[1] > start]
        return max(
            (
                sum(s for a, b, s in busy if a <= t < b)
                for t in [start, *(i[0] for i in busy if i[0] > start)]
            ),
            default=0.0,
        )


@dataclass(slots=True)
class Queue:
    """One stream of a device: its work runs in order, and the next piece not before `tail_ns`.

    ``last`` is its last operation, ``frontier`` names those that the next one has to follow, ``waits``
    tells whether operations of other queues are among them.
    """

    blocking: bool
    priority: int
    tail_ns: int = 0
    last: int = 0
    frontier: tuple[int, ...] = ()
    waits: bool = False


class Schedule:
    """Queues and engines of one device: when its work runs.

    Parameters
    ----------
    clock : HostClock
        The machine's host clock.
    copy_engines : int
        Copy engines of the device; with 1, both directions share it.

    Attributes
    ----------
    log : deque of Activity
        The last operations that ran, in the order in which they were given.
    """

    def __init__(self, clock: HostClock, copy_engines: int) -> None:
        self.clock = clock
        self.log: deque[Activity] = deque(maxlen=KEPT_ACTIVITIES)
        self._queues = {LEGACY_QUEUE: Queue(True, 0), PER_THREAD_QUEUE: Queue(True, 0)}
        self._next_queue = 0x1000
        to_device = _Engine()
        self._engines: dict[EngineName, _Engine] = {
            "compute": _Engine(),
            "to device": to_device,
            "to host": _Engine() if copy_engines != 1 else to_device,
        }
        self._last_end_ns = 0
        self._retired_tail_ns = 0
        self._retired: tuple[int, ...] = ()

    def create_queue(self, blocking: bool, priority: int) -> int:
        """A new queue; the number stands for CUDA's stream handle."""
        with self.clock.lock:
            handle = self._next_queue
            self._next_queue += 0x10
            self._queues[handle] = Queue(blocking, priority)
            return handle

    def destroy_queue(self, handle: int) -> None:
        """Forget a queue; what it has already been given still runs."""
        with self.clock.lock:
            queue = self._queues.pop(handle, None)
            if queue is not None and queue.blocking:
                # The legacy default stream still waits for work of a destroyed blocking stream.
                self._retired_tail_ns = max(self._retired_tail_ns, queue.tail_ns)
                last = self._queues[LEGACY_QUEUE].last
                self._retired = (*(n for n in self._retired if n > last), *queue.frontier)

    def queue(self, handle: int) -> Queue:
        if handle == LEGACY_ALIAS:
            handle = LEGACY_QUEUE
        try:
            return self._queues[handle]
        except KeyError:
            # A handle of another library, or of a stream that is gone: an ordinary blocking queue.
            return self._queues.setdefault(handle, Queue(True, 0))

    def ready_ns(self, handle: int) -> int:
        """When work submitted to a queue now could start at the earliest."""
        with self.clock.lock:
            queue = self.queue(handle)
            ready = max(self.clock.now_ns, queue.tail_ns)
            if handle in (LEGACY_QUEUE, LEGACY_ALIAS):
                tails = (q.tail_ns for q in self._queues.values() if q.blocking)
                return max(ready, self._retired_tail_ns, *tails)
            return max(ready, self._queues[LEGACY_QUEUE].tail_ns) if queue.blocking else ready

    def place(
        self, handle: int, engine: EngineName, duration_ns: float, sm_share: float = 1.0
    ) -> tuple[int, int]:
        """Give the next work of a queue its place: start and end in ns on the modelled clock.

        Parameters
        ----------
        sm_share : float
            Part of the SMs that a kernel keeps busy (0 to 1); kernels of different queues overlap
            while their shares fit.
        """
        with self.clock.lock:
            start, end = self.place_at(self.ready_ns(handle), engine, duration_ns, sm_share)
            self.queue(handle).tail_ns = end
            return start, end

    def place_at(
        self, ready_ns: int, engine: EngineName, duration_ns: float, sm_share: float = 1.0
    ) -> tuple[int, int]:
        """Like `place`, for work of no queue that could start at `ready_ns`: a node of a graph."""
        with self.clock.lock:
            duration = max(1, round(duration_ns))
            start = ready_ns
            if engine != "none":
                share = min(1.0, max(0.001, sm_share)) if engine == "compute" else 1.0
                start = self._engines[engine].place(ready_ns, duration, share, self.clock.now_ns)
            self._last_end_ns = max(self._last_end_ns, start + duration)
            return start, start + duration

    def extend(self, handle: int, end_ns: int, last: tuple[int, ...]) -> None:
        """Let a queue end at `end_ns` with the operations `last`: those of a graph that it ran."""
        with self.clock.lock:
            queue = self.queue(handle)
            queue.tail_ns = max(queue.tail_ns, end_ns)
            queue.frontier, queue.last, queue.waits = last, max(last, default=queue.last), False

    def point(self, handle: int) -> tuple[int, tuple[int, ...]]:
        """Where a queue stands now: when what it was given ends, and the operations that means."""
        with self.clock.lock:
            return self.ready_ns(handle), self._frontier(self.queue(handle))

    def follow(self, handle: int, number: int) -> tuple[int, ...]:
        """Let operation `number` be the queue's last, and return those that it has to follow."""
        with self.clock.lock:
            queue = self.queue(handle)
            after = self._frontier(queue)
            queue.frontier, queue.last, queue.waits = (number,), number, False
            return after

    def _frontier(self, queue: Queue) -> tuple[int, ...]:
        """What the next operation of a queue follows; of other queues, what is newer than its last one."""
        legacy = self._queues[LEGACY_QUEUE]
        if not queue.blocking:
            return queue.frontier
        others = self._queues.values() if queue is legacy else (legacy,)
        news = [q.frontier for q in others if q.blocking and (q.waits or q.last > queue.last)]
        if queue is legacy and self._retired:
            news.append(tuple(number for number in self._retired if number > queue.last))
        if not news:
            return queue.frontier
        return tuple(dict.fromkeys((*queue.frontier, *(number for numbers in news for number in numbers))))

    def hold_until(self, handle: int, time_ns: int, after: tuple[int, ...] = ()) -> None:
        """Let nothing given to a queue later start before `time_ns`, when the operations `after` end."""
        with self.clock.lock:
            queue = self.queue(handle)
            queue.tail_ns = max(queue.tail_ns, time_ns)
            queue.frontier = tuple(dict.fromkeys((*queue.frontier, *after)))
            queue.waits = queue.waits or bool(after)

    def is_done(self, time_ns: int) -> bool:
        """Whether the modelled clock has passed `time_ns`; asking costs the host a query."""
        return self.clock.advance(QUERY_NS) >= time_ns

    def synchronize(self, handle: int | None = None) -> None:
        """Let the host wait for one queue, or (None) for everything on the device."""
        with self.clock.lock:
            end = self._last_end_ns if handle is None else self.queue(handle).tail_ns
            if handle in (LEGACY_QUEUE, LEGACY_ALIAS):
                end = self.ready_ns(LEGACY_QUEUE)
            self.clock.wait_until(end)
