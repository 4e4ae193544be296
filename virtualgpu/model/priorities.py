"""Streams of different priority: who runs when, if urgent kernels may overtake the blocks of others.

Without priorities each piece of work gets its place when it is given, for good. With them it cannot: a
kernel that comes later may be more urgent than blocks which wait. So work is only noted, and planned when
somebody asks for a time. What had begun before a later piece came stays as it was.

Rules: blocks of a more urgent kernel are the next to be dealt out; blocks that run are never stopped, so the
urgent kernel starts when the blocks of a wave end; a kernel that was overtaken goes on in what room is left.
Copies take their engine in the order in which they can start, whatever their priority (CUDA Runtime API,
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

# Who does a piece of work: the SMs, a copy engine of one direction, or nobody of the device (the host).
EngineName = Literal["compute", "to device", "to host", "none"]

_TINY = 1e-9


@dataclass(slots=True, eq=False)
class Work:
    """One piece of work of a stream, and when it runs as planned.

    ``after`` numbers what has to end first, ``floor_ns`` is when it could start otherwise; ``waves`` tells
    how often its blocks fill the places they may have, and ``share`` how many of the device's these are.
    """

    number: int
    queue: int
    engine: EngineName
    duration_ns: int
    share: float
    waves: int
    priority: int
    floor_ns: int
    after: tuple[int, ...]
    start_ns: int = -1
    end_ns: int = -1


@dataclass(slots=True, eq=False)
class _Run:
    """Work in the plan: what is left of it at full speed, and the room that it has since ``since_ns``."""

    work: Work
    left_ns: float
    waits_for: int = 0
    room: float = 0.0
    since_ns: int = 0
    next_ns: int = 0  # when it ends, or makes room
    yields: bool = False
    followers: list[_Run] = field(default_factory=list)

    @property
    def turn(self) -> tuple[int, bool, int]:
        work = self.work
        urgency = work.priority if work.engine == "compute" else 0
        return urgency, work.start_ns < 0, work.number

    def begin(self, now: int, room: float) -> None:
        if self.work.start_ns < 0:
            self.work.start_ns = now
        self.room = room
        self.since_ns = now
        self.yields = False
        self.next_ns = now + max(ceil(self.left_ns * self.work.share / room - _TINY), 0)

    def pause(self, now: int) -> None:
        self.left_ns -= (now - self.since_ns) * self.room / self.work.share
        if self.left_ns >= self.work.duration_ns - _TINY:
            self.work.start_ns = -1  # none of its blocks has begun
        self.since_ns = now

    def make_room(self, now: int) -> None:
        """Stop dealing out blocks; those that run end with their wave."""
        done = (now - self.since_ns) * self.room / self.work.share
        wave = self.work.duration_ns / self.work.waves
        rest = floor((self.left_ns - done) / wave + 1e-6) * wave
        if rest > _TINY and not self.yields:
            self.yields = True
            self.next_ns = self.since_ns + ceil((self.left_ns - rest) * self.work.share / self.room - _TINY)


Interval = tuple[int, int, float]  # start, end, and the share of an engine that is taken meanwhile


def plan(works: Sequence[Work], taken: Mapping[str, Sequence[Interval]] | None = None) -> None:
    """Give each piece of work its start and end.

    Parameters
    ----------
    works
        In the order in which they were given.
    taken
        Engine -> what has its place already.
    """
    runs = {work.number: _Run(work, float(work.duration_ns)) for work in works}
    arrivals: list[tuple[int, int]] = []
    for run in runs.values():
        run.work.start_ns = run.work.end_ns = -1
        for number in set(run.work.after) & runs.keys():
            runs[number].followers.append(run)
            run.waits_for += 1
        if not run.waits_for:
            heapq.heappush(arrivals, (run.work.floor_ns, run.work.number))
    names = {work.engine for work in works}
    engines = {name: _Engine(name, (taken or {}).get(name, ())) for name in names}
    for engine in engines.values():
        for time_ns in engine.changes:
            heapq.heappush(arrivals, (time_ns, -1))
    while True:
        coming = [run.next_ns for engine in engines.values() for run in engine.running]
        if arrivals:
            coming.append(arrivals[0][0])
        if not coming:
            return
        now = min(coming)
        touched: set[EngineName] = set()
        while arrivals and arrivals[0][0] <= now:
            _, number = heapq.heappop(arrivals)
            if number < 0:
                touched.update(engines)
                continue
            engines[runs[number].work.engine].add(runs[number])
            touched.add(runs[number].work.engine)
        for engine in engines.values():
            for run in engine.due(now):
                touched.add(engine.name)
                if run.work.end_ns < 0:
                    continue
                for other in run.followers:
                    other.waits_for -= 1
                    if not other.waits_for:
                        heapq.heappush(arrivals, (max(other.work.floor_ns, now), other.work.number))
        if arrivals and arrivals[0][0] <= now:
            for name in touched:
                engines[name].stale = True
            continue
        for name, engine in engines.items():
            if name in touched or engine.stale:
                engine.deal(now)


class _Engine:
    """Who has it, and who waits for it, the most urgent first."""

    def __init__(self, name: EngineName, taken: Sequence[Interval]) -> None:
        self.name = name
        steps: defaultdict[int, float] = defaultdict(float)
        for start, end, share in taken:
            steps[start] += share
            steps[end] -= share
        self.changes = sorted(steps)
        self._loads = [0.0, *accumulate(steps[time_ns] for time_ns in self.changes)]
        self.running: list[_Run] = []
        self._ready: list[_Run] = []
        self.stale = False

    def add(self, run: _Run) -> None:
        insort(self._ready, run, key=lambda one: one.turn)

    def due(self, now: int) -> list[_Run]:
        """Take out what has ended or made room by now."""
        found = [run for run in self.running if run.next_ns <= now]
        for run in found:
            self.running.remove(run)
            if run.yields:
                run.pause(now)
                self.add(run)
            else:
                run.work.end_ns = now
        return found

    def deal(self, now: int) -> None:
        """Let those who wait begin, as far as there is room."""
        self.stale = False
        for run in [run for run in self.running if run.room < run.work.share - _TINY and not run.yields]:
            self.running.remove(run)  # may have become able to take more
            run.pause(now)
            self.add(run)
        limited = self.name != "none"
        load = self._loads[bisect_right(self.changes, now)]
        free = 1.0 - load - sum(run.room for run in self.running) if limited else 1.0
        waiting = self._ready
        self._ready = []
        most_urgent: int | None = None
        for run in waiting:
            urgency, fresh, _ = run.turn
            overtaken = not fresh
            if most_urgent is not None and urgency > most_urgent:
                self._ready.append(run)
            elif not limited or run.work.share <= free + _TINY or (overtaken and free > 1e-3):
                room = run.work.share if not limited else min(run.work.share, free)
                run.begin(now, room)
                self.running.append(run)
                free -= room if limited else 0.0
            else:
                self._ready.append(run)
                most_urgent = urgency
                for other in self.running if self.name == "compute" else ():
                    if other.work.priority > urgency and other.work.waves > 1:
                        other.make_room(now)
