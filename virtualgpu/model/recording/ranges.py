"""NVTX ranges and marks that a program creates on one machine."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from dataclasses import dataclass, replace

from virtualgpu.model.clock import HostClock
from virtualgpu.records.timeline import NvtxRange

MAX_RANGES = 65_536


@dataclass(frozen=True, slots=True)
class OpenRange:
    """An NVTX range that has not ended yet."""

    name: str
    color: int | None
    start_ns: int
    thread: int
    depth: int

    def make_finished_range(self, end_ns: int, is_mark: bool = False) -> NvtxRange:
        """Return a finished copy of the range that ends at the given time."""
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
    """A log of the most recent NVTX ranges and marks of the program, at most `MAX_RANGES`.

    Parameters
    ----------
    clock
        The clock of the host's modelled time.

    Attributes
    ----------
    ended_count : int
        Number of ranges that have ended so far, including those that were removed since.
    """

    def __init__(self, clock: HostClock) -> None:
        self._clock = clock
        self.ended_ranges: deque[NvtxRange] = deque(maxlen=MAX_RANGES)
        self.range_stacks: dict[int, list[OpenRange]] = {}  # of RangePush, by thread
        self.started_ranges: dict[int, OpenRange] = {}  # of RangeStart, by number
        self.range_numbers = itertools.count(1)
        self.ended_count = 0

    def begin_range(self, name: str, color: int | None) -> OpenRange:
        """Begin an NVTX range in the calling thread, and return it."""
        thread = threading.get_ident()
        return OpenRange(name, color, self._clock.now_ns, thread, len(self.range_stacks.get(thread, ())))

    def end_range(self, open_range: OpenRange, *, is_mark: bool = False) -> None:
        """End an open NVTX range now, or record a mark, which has no duration."""
        now_ns = open_range.start_ns if is_mark else self._clock.now_ns
        self.ended_count += 1
        self.ended_ranges.append(open_range.make_finished_range(now_ns, is_mark))

    def find_ranges(self, start_ns: int, end_ns: int) -> tuple[NvtxRange, ...]:
        """Return the NVTX ranges within a time interval, cut at its start and end. Ranges that are still open
        are included.
        """
        pushed_ranges = [open_range for stack in list(self.range_stacks.values()) for open_range in stack]
        open_ranges = [*pushed_ranges, *self.started_ranges.values()]
        ranges = [*self.ended_ranges, *(open_range.make_finished_range(end_ns) for open_range in open_ranges)]
        clipped_ranges = [
            replace(
                nvtx_range,
                start_ns=max(nvtx_range.start_ns, start_ns),
                end_ns=min(nvtx_range.end_ns, end_ns),
            )
            for nvtx_range in ranges
            if nvtx_range.end_ns >= start_ns and nvtx_range.start_ns <= end_ns
        ]
        return tuple(sorted(clipped_ranges, key=lambda nvtx_range: (nvtx_range.start_ns, nvtx_range.depth)))
