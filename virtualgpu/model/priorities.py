"""Schedule of streams with different priorities: blocks of urgent kernels start before waiting blocks.

Without priorities the times of each operation are final when it is submitted. With priorities they cannot be:
a later kernel may be more urgent than blocks which wait. So work is only recorded, and planned when a time is
needed. Work that had begun before later work was submitted stays unchanged.
Rules: blocks of a more urgent kernel start next. Running blocks are never stopped, so the urgent kernel
starts when the blocks of a wave end. A kernel that was overtaken continues on the free part of the SMs.
Copies use their engine in the order in which they can start, whatever their priority (CUDA Runtime API,
``cudaStreamCreateWithPriority``).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, floor
from typing import Literal

# The engine of an operation: the SMs, a copy engine of one direction, or none of the device (the host).
EngineName = Literal["compute", "to device", "to host", "none"]

_SHARE_TOLERANCE = 1e-9


@dataclass(slots=True, eq=False)
class PlannedWork:
    """An operation of a stream with its planned start and end times.

    The operation starts when the operations ``after`` have ended, but not before the time
    ``earliest_start_ns``. ``waves`` is the number of times that the blocks fill their slots,
    ``requested_share`` the part of the device's
    slots that they can use.
    """

    number: int
    queue_id: int
    engine: EngineName
    duration_ns: int
    requested_share: float
    waves: int
    priority: int
    earliest_start_ns: int
    after: tuple[int, ...]
    start_ns: int = -1
    end_ns: int = -1


@dataclass(slots=True, eq=False)
class _OperationRun:
    """The state of an operation during planning: its remaining time, and its share of the engine."""

    work: PlannedWork
    remaining_ns: float
    open_predecessors: int = 0
    engine_share: float = 0.0
    updated_ns: int = 0
    next_change_ns: int = 0  # when it ends, or yields
    will_yield: bool = False
    followers: list[_OperationRun] = field(default_factory=list)

    @property
    def sort_key(self) -> tuple[int, bool, int]:
        """The key by which waiting operations are sorted. Urgent operations come first, followed by
        operations that have already begun.
        """
        planned_work = self.work
        urgency = planned_work.priority if planned_work.engine == "compute" else 0
        return urgency, planned_work.start_ns < 0, planned_work.number

    def begin(self, now_ns: int, engine_share: float) -> None:
        """Start or continue the operation with a share of the capacity of its hardware unit."""
        if self.work.start_ns < 0:
            self.work.start_ns = now_ns
        self.engine_share = engine_share
        self.updated_ns = now_ns
        self.will_yield = False
        self.next_change_ns = now_ns + max(
            ceil(self.remaining_ns * self.work.requested_share / engine_share - _SHARE_TOLERANCE), 0
        )

    def pause(self, now_ns: int) -> None:
        """Pause the operation, and update the remaining time."""
        self.remaining_ns -= (now_ns - self.updated_ns) * self.engine_share / self.work.requested_share
        if self.remaining_ns >= self.work.duration_ns - _SHARE_TOLERANCE:
            self.work.start_ns = -1  # none of its blocks has begun
        self.updated_ns = now_ns

    def yield_engine(self, now_ns: int) -> None:
        """Let the operation pause at the end of its current wave of blocks."""
        done_ns = (now_ns - self.updated_ns) * self.engine_share / self.work.requested_share
        wave_ns = self.work.duration_ns / self.work.waves
        remaining_ns = floor((self.remaining_ns - done_ns) / wave_ns + 1e-6) * wave_ns
        if remaining_ns > _SHARE_TOLERANCE and not self.will_yield:
            self.will_yield = True
            self.next_change_ns = self.updated_ns + ceil(
                (self.remaining_ns - remaining_ns) * self.work.requested_share / self.engine_share
                - _SHARE_TOLERANCE
            )


ReservedInterval = tuple[int, int, float]  # start, end, and the share of an engine in use


def plan_works(
    works: Sequence[PlannedWork], reserved_intervals: Mapping[str, Sequence[ReservedInterval]] | None = None
) -> None:
    """Compute the start and end times of all operations, and store them in the `PlannedWork` objects.

    Parameters
    ----------
    works
        The operations in the order in which they were submitted.
    reserved_intervals
        Engine -> intervals that are in use already.
    """
    run_by_number = {
        planned_work.number: _OperationRun(planned_work, float(planned_work.duration_ns))
        for planned_work in works
    }
    arrival_times: list[tuple[int, int]] = []
    for run in run_by_number.values():
        run.work.start_ns = -1
        run.work.end_ns = -1
        for work_number in set(run.work.after) & run_by_number.keys():
            run_by_number[work_number].followers.append(run)
            run.open_predecessors += 1
        if not run.open_predecessors:
            heapq.heappush(arrival_times, (run.work.earliest_start_ns, run.work.number))
    names = {planned_work.engine for planned_work in works}
    engines = {name: _EnginePlan(name, (reserved_intervals or {}).get(name, ())) for name in names}
    for engine in engines.values():
        for time_ns in engine.change_times_ns:
            heapq.heappush(arrival_times, (time_ns, -1))
    while True:
        next_times = [run.next_change_ns for engine in engines.values() for run in engine.running_operations]
        if arrival_times:
            next_times.append(arrival_times[0][0])
        if not next_times:
            return
        now_ns = min(next_times)
        changed_engines: set[EngineName] = set()
        while arrival_times and arrival_times[0][0] <= now_ns:
            _, work_number = heapq.heappop(arrival_times)
            if work_number < 0:
                changed_engines.update(engines)
                continue
            engines[run_by_number[work_number].work.engine].add_ready(run_by_number[work_number])
            changed_engines.add(run_by_number[work_number].work.engine)
        for engine in engines.values():
            for run in engine.remove_due_runs(now_ns):
                changed_engines.add(engine.name)
                if run.work.end_ns < 0:
                    continue
                for follower in run.followers:
                    follower.open_predecessors -= 1
                    if not follower.open_predecessors:
                        heapq.heappush(
                            arrival_times,
                            (max(follower.work.earliest_start_ns, now_ns), follower.work.number),
                        )
        if arrival_times and arrival_times[0][0] <= now_ns:
            for name in changed_engines:
                engines[name].is_stale = True
            continue
        for name, engine in engines.items():
            if name in changed_engines or engine.is_stale:
                engine.start_waiting_runs(now_ns)


class _EnginePlan:
    """An engine with its running operations and its waiting ones, the most urgent first."""

    def __init__(self, name: EngineName, reserved_intervals: Sequence[ReservedInterval]) -> None:
        self.name = name
        share_changes: defaultdict[int, float] = defaultdict(float)
        for start_ns, end_ns, reserved_share in reserved_intervals:
            share_changes[start_ns] += reserved_share
            share_changes[end_ns] -= reserved_share
        self.change_times_ns = sorted(share_changes)
        self._reserved_shares = [0.0, *accumulate(share_changes[time_ns] for time_ns in self.change_times_ns)]
        self.running_operations: list[_OperationRun] = []
        self._ready_runs: list[_OperationRun] = []
        self.is_stale = False

    def add_ready(self, run: _OperationRun) -> None:
        """Add an operation that is ready to run to the waiting operations."""
        insort(self._ready_runs, run, key=lambda waiting_run: waiting_run.sort_key)

    def remove_due_runs(self, now_ns: int) -> list[_OperationRun]:
        """Remove and return the operations that have ended or paused by the given time."""
        due_runs = [run for run in self.running_operations if run.next_change_ns <= now_ns]
        for run in due_runs:
            self.running_operations.remove(run)
            if run.will_yield:
                run.pause(now_ns)
                self.add_ready(run)
            else:
                run.work.end_ns = now_ns
        return due_runs

    def start_waiting_runs(self, now_ns: int) -> None:
        """Begin the waiting operations for which the hardware unit has free capacity."""
        self.is_stale = False
        slowed_runs = [
            run
            for run in self.running_operations
            if run.engine_share < run.work.requested_share - _SHARE_TOLERANCE and not run.will_yield
        ]
        for run in slowed_runs:
            self.running_operations.remove(run)  # it can possibly use more of the engine now
            run.pause(now_ns)
            self.add_ready(run)
        is_limited = self.name != "none"
        reserved_share = self._reserved_shares[bisect_right(self.change_times_ns, now_ns)]
        free_share = (
            1.0 - reserved_share - sum(run.engine_share for run in self.running_operations)
            if is_limited
            else 1.0
        )
        waiting_runs = self._ready_runs
        self._ready_runs = []
        highest_urgency: int | None = None
        for run in waiting_runs:
            urgency, is_fresh, _ = run.sort_key
            is_continued = not is_fresh
            if highest_urgency is not None and urgency > highest_urgency:
                self._ready_runs.append(run)
            elif (
                not is_limited
                or run.work.requested_share <= free_share + _SHARE_TOLERANCE
                or (is_continued and free_share > 1e-3)
            ):
                engine_share = (
                    run.work.requested_share if not is_limited else min(run.work.requested_share, free_share)
                )
                run.begin(now_ns, engine_share)
                self.running_operations.append(run)
                free_share -= engine_share if is_limited else 0.0
            else:
                self._ready_runs.append(run)
                highest_urgency = urgency
                for running_work in self.running_operations if self.name == "compute" else ():
                    if running_work.work.priority > urgency and running_work.work.waves > 1:
                        running_work.yield_engine(now_ns)
