"""How long a launch may compute, and whether anything comes of it meanwhile."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Sequence
from typing import Protocol

from virtualgpu.cuda_errors import Progress
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.engine.run.worker import Worker

# Wall time counts, too, from here on, where a launch has computed for a share of its limit meanwhile: its
# thread may get a small share of a core.
_BUSY_S = 20.0
_SHARE = 0.2
# How often in its limit a launch's memory is looked at, and how long it computes in between at least.
_LOOKS = 10
_LEAST_S = 0.1
# Above this nobody looks: a look would take longer than what it tells is worth.
_MOST_BYTES = 256 << 20
# Lanes store one after the other, and a look may fall between them, on a busy machine for milliseconds:
# glances with pauses are taken for so long before what they show counts as new.
_GLANCES_S = 0.05
_PAUSE_S = 0.002


class Crew(Protocol):
    """What runs a part of a launch's blocks on one thread."""

    workers: list[Worker]

    @property
    def spent_s(self) -> float:
        """Seconds that it has computed."""

    @property
    def ended(self) -> int:
        """Blocks that have come to their end so far."""

    @property
    def state(self) -> tuple[int, int, int]:
        """Blocks that have ended, the block that runs, and how many of its threads have ended."""


class Watchdog:
    """Decides when a launch has computed long enough.

    The limit is processor time, not wall time: on a busy machine a kernel gets a share of a core. Where no
    thread comes to its end any more, though, a launch is stopped when its limit has passed as wall time, and
    20 s at least. A patient watchdog lets a launch go on while threads end, since it will end, too. All
    readings are seconds that the launch has computed, over all its pieces.
    """

    def __init__(self, launch: RunningLaunch) -> None:
        self._launch = launch
        self._limit_s = launch.options.watchdog_s
        self._patient = launch.options.patient
        self._idle_limit_s = launch.options.idle_s or math.inf
        self._crews: Sequence[Crew] = ()
        self._seen: list[tuple[int, int, int]] = []
        self._ended = 0  # blocks of earlier pieces
        self._earlier_s = 0.0
        self._began_s: float | None = None  # on the wall
        self._moved_s = 0.0  # a thread or block was last seen to end
        self._new_s = 0.0  # something was last seen to be stored or printed
        self._printed = 0
        self._memory: set[int] = set()  # all that it was seen to hold, by checksums
        self._every_s = max(min(self._limit_s, 2 * self._idle_limit_s) / _LOOKS, _LEAST_S)
        self._look_s = self._every_s
        self.progress: Progress | None = None  # how far a launch had come when it was told to stop

    def begin(self, crews: Sequence[Crew]) -> None:
        """Watch the crews of the launch's next piece."""
        self._earlier_s = self.spent_s
        self._ended = self.ended
        self._crews = crews
        self._seen = [crew.state for crew in crews]
        self._moved_s = self._new_s = self._earlier_s

    @property
    def spent_s(self) -> float:
        """What the launch has computed so far; crews work at the same time."""
        return self._earlier_s + max((crew.spent_s for crew in self._crews), default=0.0)

    @property
    def ended(self) -> int:
        """Blocks that have come to their end so far."""
        return self._ended + sum(crew.ended for crew in self._crews)

    @property
    def still_s(self) -> float:
        """How long it has computed since the last thread or block was seen to end."""
        return self.spent_s - self._moved_s

    def is_over(self) -> bool:
        """Look at the launch; whether it is to be stopped."""
        if self.has_stopped:
            return True
        spent_s = self.spent_s
        if spent_s and self._began_s is None:
            self._began_s = time.monotonic()
        now = [crew.state for crew in self._crews]
        if any(map(_moved, self._seen, now)):
            self._moved_s = spent_s
        self._seen = now
        if self._launch.printed.calls > self._printed:
            self._printed = self._launch.printed.calls
            self._new_s = spent_s
        if spent_s >= self._look_s:
            self._look(spent_s)
        idle_s = spent_s - max(self._moved_s, self._new_s)
        busy = self._wall_s > max(self._limit_s, _BUSY_S) and spent_s > _SHARE * self._limit_s
        over = spent_s > self._limit_s and not (self._patient and not self._is_still(spent_s))
        if over or idle_s > self._idle_limit_s or (busy and self._is_still(spent_s)):
            # Told of this moment: workers may take long to stop on a busy machine, and looks take a while.
            moving = not self._is_still(spent_s)
            self._look(spent_s)
            self.progress = Progress(
                self.ended,
                self._launch.block_clock.size,
                moving,
                spent_s - self._new_s < min(spent_s / 2, self._idle_limit_s),
                min(spent_s, self._limit_s),
            )
        return self.has_stopped

    @property
    def has_stopped(self) -> bool:
        """Whether it has told a launch to stop."""
        return self.progress is not None

    @property
    def _wall_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    def _is_still(self, spent_s: float) -> bool:
        """Whether for half of the time no thread has ended."""
        return spent_s - self._moved_s >= min(spent_s, self._limit_s) / 2

    def _look(self, spent_s: float) -> None:
        """Whether memory holds anything that it did not hold before; what cannot be told counts as new."""
        found: set[int] = set()
        ends_s = time.monotonic() + _GLANCES_S
        while True:
            memory = self._checksum()
            if memory is None or memory in self._memory:
                break
            found.add(memory)
            if time.monotonic() > ends_s:
                break
            time.sleep(_PAUSE_S)
        if memory is None or (memory in found and self._memory):
            self._new_s = spent_s
        self._memory |= found
        self._look_s = spent_s + self._every_s

    def _checksum(self) -> int | None:
        """Of all memory that the kernel can write to: the device's, and its blocks' own."""
        memory = self._launch.memory
        starts, ends = (column.tolist() for column in memory.live())
        workers = [worker for crew in self._crews for worker in list(crew.workers)]
        own = [array for worker in workers for array in worker.own_memory]
        if memory.uses_remote_memory or sum(ends) - sum(starts) + sum(a.nbytes for a in own) > _MOST_BYTES:
            return None
        total = 0
        for start, end in zip(starts, ends, strict=True):
            total = zlib.crc32(memory.view(start, end - start).data, total)
        for array in own:
            total = zlib.crc32(array.data, total)
        return total


def _moved(before: tuple[int, int, int], now: tuple[int, int, int]) -> bool:
    """Whether a block has ended, or a thread of the block that runs."""
    return now[0] > before[0] or (now[1] == before[1] and now[2] > before[2])
