"""Waves of a launch: what fits at once, the tail, and where each block sits on its SM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from virtualgpu.records.launch import LaunchTrace

STRETCHES = 200


@dataclass(frozen=True)
class LaunchWaves:
    """A launch trace with its blocks in order of their start."""

    trace: LaunchTrace

    @cached_property
    def order(self) -> npt.NDArray[np.int64]:
        """Rows of the trace by start, then block number."""
        return np.lexsort((self.trace.block_index, self.trace.start_ns))

    @cached_property
    def blocks(self) -> int:
        return math.prod(self.trace.grid)

    @cached_property
    def full_waves(self) -> int:
        per_wave = self.trace.blocks_per_wave
        return self.blocks // per_wave if per_wave else 0

    @cached_property
    def tail_blocks(self) -> int:
        """Blocks of the last wave where it does not fill the device, else 0."""
        per_wave = self.trace.blocks_per_wave
        return self.blocks % per_wave if per_wave else 0

    @cached_property
    def wave(self) -> npt.NDArray[np.uint16]:
        """Wave of each row in `order`: rank by start over the blocks that fit at once."""
        per_wave = max(1, self.trace.blocks_per_wave)
        ranks = np.arange(self.order.size, dtype=np.int64) * self.trace.sampled
        return np.minimum(ranks // per_wave, np.iinfo(np.uint16).max).astype(np.uint16)

    @cached_property
    def in_tail(self) -> npt.NDArray[np.bool_]:
        """Whether each row in `order` belongs to the last, partly filled wave of several."""
        if not self.full_waves or not self.tail_blocks:
            return np.zeros(self.order.size, np.bool_)
        return self.wave >= min(self.full_waves, int(np.iinfo(np.uint16).max))

    @cached_property
    def slot(self) -> npt.NDArray[np.int32]:
        """Place of each row in `order` on its SM: the first one that is free at its start."""
        sm_ids, starts, ends = (
            column[self.order].tolist()
            for column in (self.trace.sm_id, self.trace.start_ns, self.trace.end_ns)
        )
        free_at: dict[int, list[int]] = {}
        slots = []
        for sm, start, end in zip(sm_ids, starts, ends, strict=True):
            places = free_at.setdefault(sm, [])
            for place, busy_until in enumerate(places):
                if busy_until <= start:
                    places[place] = end
                    break
            else:
                place = len(places)
                places.append(end)
            slots.append(place)
        return np.asarray(slots, dtype=np.int32)

    def running(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Running blocks over time as a staircase: moments in nanoseconds, and how many from each on.

        Of a sampled launch the average over each of `STRETCHES`: a moment says little of those left out.
        """
        trace = self.trace
        if trace.sampled > 1:
            moments = np.linspace(0, trace.span_ns, STRETCHES + 1)
            ran = _before(moments, trace.start_ns) - _before(moments, trace.end_ns)
            mean = np.diff(ran) * trace.sampled / max(1e-9, moments[1])
            return moments, np.append(mean, 0.0)
        times = np.concatenate([trace.start_ns, trace.end_ns])
        change = np.concatenate([np.ones(trace.start_ns.size), -np.ones(trace.end_ns.size)])
        moments, where = np.unique(times, return_inverse=True)
        running = np.cumsum(np.bincount(where, weights=change, minlength=moments.size))
        return moments.astype(np.float64), running.astype(np.float64)

    def running_on_busy(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Running blocks per SM, over the SMs that are busy at that moment, in the form of `running`."""
        moments, blocks = self.running()
        _, start, end = self.trace.busy()
        if self.trace.sampled > 1:
            ran = _before(moments, start) - _before(moments, end)
            busy = np.append(np.diff(ran) / max(1e-9, float(moments[1])), 0.0)
        else:
            begun = np.searchsorted(np.sort(start), moments, side="right")
            busy = begun - np.searchsorted(np.sort(end), moments, side="right").astype(np.float64)
        return moments, np.divide(blocks, busy, out=np.zeros_like(blocks), where=busy > 0)


def _before(moments: npt.NDArray[np.float64], times: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The sum, for each moment, of how long before it each of the times lies."""
    ordered = np.sort(times).astype(np.float64)
    reached = np.searchsorted(ordered, moments)
    before: npt.NDArray[np.float64] = moments * reached - np.append(0.0, np.cumsum(ordered))[reached]
    return before
