"""The waves of a launch and its occupancy, as sentences and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.words import count, duration, listing, number, percent
from virtualgpu.records import Occupancy
from virtualgpu.records.launch.waves import LaunchWaves

MAX_DRAWN_BLOCKS = 1 << 16


class Waves(LaunchWaves):
    """The waves in which the blocks of a launch run, with texts that describe them."""

    def describe_waves(self) -> str:
        """Return a phrase that describes the waves of blocks, such as ``2 full waves and a tail of 40 blocks
        (31 % full)``.
        """
        if not self.trace.blocks_per_wave:
            return "no block fits on an SM"
        tail_percent = percent(self.tail_blocks / self.trace.blocks_per_wave)
        if not self.full_waves:
            return f"less than one wave ({tail_percent} of the blocks that fit at once)"
        full_text = count(self.full_waves, "full wave")
        tail_text = f" and a tail of {count(self.tail_blocks, 'block')} ({tail_percent} full)"
        return full_text + tail_text if self.tail_blocks else full_text

    def make_number_rows(self) -> list[list[str]]:
        """Return the numbers of the waves as rows of the form ``[term, value, detail]`` for display."""
        trace = self.trace
        occupancy = self.trace.occupancy
        median_ns = float(np.median(trace.end_ns - trace.start_ns)) if trace.end_ns.size else 0.0
        per_wave_text = f"{count(trace.sm_count, 'SM')} × {count(occupancy.blocks_per_sm, 'block')}"
        tail_text = (
            f"{percent(self.tail_blocks / trace.blocks_per_wave)} full"
            if self.tail_blocks and self.full_waves
            else "none"
        )
        return [
            ["Blocks in the grid", number(self.blocks), f"of {count(math.prod(trace.block), 'thread')}"],
            ["Blocks at once (one wave)", number(trace.blocks_per_wave), per_wave_text],
            ["Waves", _format_wave_count(trace.waves), f"tail: {tail_text}"],
            ["Span", duration(trace.span_ns), f"a block {duration(median_ns)}"],
            [
                "Theoretical occupancy",
                percent(occupancy.fraction),
                f"{occupancy.warps_per_sm} of {count(occupancy.max_warps_per_sm, 'warp')}",
            ],
            ["Achieved occupancy", percent(self.achieved_occupancy), self.achieved_occupancy_note],
        ]

    @cached_property
    def sms(self) -> npt.NDArray[np.int32]:
        """The numbers of the SMs that ran a block, in ascending order."""
        return np.unique(self.trace.sm_id)

    @property
    def idle_sms(self) -> int:
        """The number of SMs on which no block ran."""
        return max(0, self.trace.sm_count - int(self.sms.size))

    @cached_property
    def achieved_occupancy(self) -> float:
        """The achieved occupancy as an average over the SMs that ran a block."""
        return self.trace.achieved_occupancy

    @property
    def achieved_occupancy_note(self) -> str:
        """A note that the average occupancy includes only busy SMs, with the value for the whole device."""
        return f"busy SMs; device {percent(self.trace.achieved_on_device)}"

    @cached_property
    def block_sample(self) -> Waves:
        """The waves that a picture of the launch shows. If a launch has too many blocks, the picture shows
        only a sample of the blocks of each SM.
        """
        sampled_trace = self.trace.take_sample(MAX_DRAWN_BLOCKS)
        return self if sampled_trace is self.trace else Waves(sampled_trace)


def _format_wave_count(waves: float) -> str:
    """Return a wave count with two decimals, or more for a short tail (217 blocks in waves of 216)."""
    if waves >= 100:
        return number(waves)
    if waves < 0.1:
        return f"{waves:.2g}"
    hides_tail = round(waves, 2).is_integer() and not float(waves).is_integer()
    return f"{waves:.3f}" if hides_tail else f"{waves:.2f}"


def describe_occupancy(occupancy: Occupancy) -> str:
    """Return a text with the number of warps that fit on an SM and the maximum number."""
    return f"{occupancy.warps_per_sm} of {occupancy.max_warps_per_sm} warps per SM"


def describe_limiters(occupancy: Occupancy) -> str:
    """Return a phrase with the resources that limit occupancy, such as ``limited by registers``."""
    if not occupancy.blocks_per_sm:
        return f"no block fits: {listing(occupancy.limiters)}" if occupancy.limiters else "no block fits"
    return f"limited by {listing(occupancy.limiters)}" if occupancy.limiters else "no single limit"


def make_limit_bars(occupancy: Occupancy, colours: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return a bar for each resource with the number of blocks per SM that it allows. Limiting resources are
    marked.

    A full bar represents the hardware's limit on blocks, because larger values cannot be reached.
    """
    highest_blocks = max(occupancy.blocks_by_limit.values(), default=1)
    full_bar_blocks = max(1, min(highest_blocks, occupancy.blocks_by_limit.get("blocks", highest_blocks)))
    bar_rows = []
    for resource, blocks in occupancy.blocks_by_limit.items():
        bar_row: dict[str, Any] = {
            "label": resource,
            "share": blocks / full_bar_blocks,
            "value": number(blocks),
        }
        if resource in occupancy.limiters:
            bar_row |= {"mark": "◀ limits", "strong": True, "colour": (colours or {}).get(resource, "accent")}
        bar_rows.append(bar_row)
    return bar_rows
