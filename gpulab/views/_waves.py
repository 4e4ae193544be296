"""Reading a launch trace: waves, tail, idle places and where each block sits on its SM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views._text import count, duration, listing, number, percent, product
from virtualgpu.records import LaunchTrace, Occupancy


@dataclass(frozen=True)
class Waves:
    """A launch trace with its blocks in order of their start, and its numbers in words."""

    trace: LaunchTrace

    @cached_property
    def order(self) -> npt.NDArray[np.int64]:
        """Rows of the trace by start, then block number."""
        return np.lexsort((self.trace.block_index, self.trace.start_ns))

    @cached_property
    def blocks(self) -> int:
        return product(self.trace.grid)

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
        """Running blocks over time as a staircase: moments in nanoseconds, and how many from each on."""
        trace = self.trace
        times = np.concatenate([trace.start_ns, trace.end_ns])
        change = np.concatenate([np.ones(trace.start_ns.size), -np.ones(trace.end_ns.size)]) * trace.sampled
        moments, where = np.unique(times, return_inverse=True)
        running = np.cumsum(np.bincount(where, weights=change, minlength=moments.size))
        return moments.astype(np.float64), running.astype(np.float64)

    @cached_property
    def idle_share(self) -> float:
        """Share of (block places on the device) x (span of the launch) in which no block ran."""
        room = self.trace.blocks_per_wave * self.trace.span_ns
        busy = int((self.trace.end_ns - self.trace.start_ns).sum()) * self.trace.sampled
        return max(0.0, 1 - busy / room) if room else 0.0

    def wave_words(self) -> str:
        """The waves in words: ``2 full waves and a tail of 40 blocks (31 % full)``."""
        if not self.trace.blocks_per_wave:
            return "no block fits on an SM"
        if not self.full_waves:
            share = percent(self.tail_blocks / self.trace.blocks_per_wave)
            return f"less than one wave ({share} of the blocks that fit at once)"
        full = count(self.full_waves, "full wave")
        if not self.tail_blocks:
            return full
        share = percent(self.tail_blocks / self.trace.blocks_per_wave)
        return f"{full} and a tail of {count(self.tail_blocks, 'block')} ({share} full)"

    def numbers(self) -> list[list[str]]:
        """Rows of ``[term, value, detail]`` for a panel."""
        trace, fit = self.trace, self.trace.occupancy
        median = float(np.median(trace.end_ns - trace.start_ns)) if trace.end_ns.size else 0.0
        per_wave = f"{number(trace.sm_count)} SMs × {count(fit.blocks_per_sm, 'block')}"
        waves = trace.waves
        tail = (
            f"{percent(self.tail_blocks / trace.blocks_per_wave)} full"
            if self.tail_blocks and self.full_waves
            else "none"
        )
        return [
            ["Blocks in the grid", number(self.blocks), f"of {count(product(trace.block), 'thread')}"],
            ["Blocks at once (one wave)", number(trace.blocks_per_wave), per_wave],
            ["Waves", _wave_count(waves), f"tail: {tail}"],
            ["Theoretical occupancy", percent(fit.fraction), occupancy_words(fit)],
            ["Span", duration(trace.span_ns), f"median block {duration(median)}"],
            ["Idle room for blocks", percent(self.idle_share), "of blocks at once × span"],
        ]


def _wave_count(waves: float) -> str:
    """Two decimals, and more where these would hide a tail: 217 of 216 blocks are not 1.00 waves."""
    if waves >= 100:
        return number(waves)
    if waves < 0.1:
        return f"{waves:.2g}"
    hides_a_tail = round(waves, 2).is_integer() and not float(waves).is_integer()
    return f"{waves:.3f}" if hides_a_tail else f"{waves:.2f}"


def occupancy_words(fit: Occupancy) -> str:
    return f"{fit.warps_per_sm} of {fit.max_warps_per_sm} warps per SM"


def limiter_words(fit: Occupancy) -> str:
    """``limited by registers``, or that nothing fits."""
    if not fit.blocks_per_sm:
        return f"no block fits: {listing(fit.limiters)}" if fit.limiters else "no block fits"
    return f"limited by {listing(fit.limiters)}" if fit.limiters else "no single limit"


def limit_bars(fit: Occupancy, colours: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """One bar a limit: the blocks per SM it alone would allow, and whether it is the one that counts.

    The limit on blocks fills a bar, for what is above it can never be reached.
    """
    most = max(fit.blocks_by_limit.values(), default=1)
    full = max(1, min(most, fit.blocks_by_limit.get("blocks", most)))
    rows = []
    for limit, blocks in fit.blocks_by_limit.items():
        bar: dict[str, Any] = {"label": limit, "share": blocks / full, "value": number(blocks)}
        if limit in fit.limiters:
            bar |= {"mark": "◀ limits", "strong": True, "colour": (colours or {}).get(limit, "accent")}
        rows.append(bar)
    return rows
