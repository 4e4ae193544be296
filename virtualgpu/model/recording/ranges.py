"""What a program marked with NVTX on one machine: ranges that have ended, those still open, and marks."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from dataclasses import dataclass, replace

from virtualgpu.model.clock import HostClock
from virtualgpu.records.timeline import NvtxRange

KEPT_RANGES = 65_536


@dataclass(frozen=True, slots=True)
class OpenRange:
    """A range that has not ended."""

    name: str
    color: int | None
    start_ns: int
    thread: int
    depth: int

    def until(self, end_ns: int, is_mark: bool = False) -> NvtxRange:
        """The range as it is if it ends then."""
        return NvtxRange(
            name=self.name,
            color=self.color,
            start_ns=self.start_ns,
            end_ns=end_ns,
            thread=self.thread,
            depth=self.depth,
            is_mark=is_mark,
        )


class RangeLog:
    """Ranges and marks of one machine's program, the last `KEPT_RANGES` of them.

    Parameters
    ----------
    clock
        Gives the host's modelled time.

    Attributes
    ----------
    count : int
        How many have ended so far, those among them that were forgotten since.
    """

    def __init__(self, clock: HostClock) -> None:
        self._clock = clock
        self.ended: deque[NvtxRange] = deque(maxlen=KEPT_RANGES)
        self.stacks: dict[int, list[OpenRange]] = {}  # of RangePush, by thread
        self.started: dict[int, OpenRange] = {}  # of RangeStart, by number
        self.numbers = itertools.count(1)
        self.count = 0

    def open(self, name: str, color: int | None) -> OpenRange:
        thread = threading.get_ident()
        return OpenRange(name, color, self._clock.now_ns, thread, len(self.stacks.get(thread, ())))

    def end(self, opened: OpenRange, *, is_mark: bool = False) -> None:
        now_ns = opened.start_ns if is_mark else self._clock.now_ns
        self.count += 1
        self.ended.append(opened.until(now_ns, is_mark))

    def within(self, start_ns: int, end_ns: int) -> tuple[NvtxRange, ...]:
        """Ranges cut to a stretch of time, those still open among them."""
        still_open = [opened for stack in list(self.stacks.values()) for opened in stack]
        found = [*self.ended, *(opened.until(end_ns) for opened in (*still_open, *self.started.values()))]
        cut = (
            replace(r, start_ns=max(r.start_ns, start_ns), end_ns=min(r.end_ns, end_ns))
            for r in found
            if r.end_ns >= start_ns and r.start_ns <= end_ns
        )
        return tuple(sorted(cut, key=lambda r: (r.start_ns, r.depth)))
