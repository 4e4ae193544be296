"""Waves of a launch: full waves, the tail, and the slot of each block on its SM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from virtualgpu.records.launch import LaunchTrace

SAMPLE_INTERVALS = 200


@dataclass(frozen=True)
class LaunchWaves:
    """A launch trace whose blocks are sorted by start time."""

    trace: LaunchTrace

    @cached_property
    def order(self) -> npt.NDArray[np.int64]:
        """The rows of the trace, sorted by start time and then by block number."""
        return np.lexsort((self.trace.block_index, self.trace.start_ns))

    @cached_property
    def blocks(self) -> int:
        """Number of blocks in the grid."""
        return math.prod(self.trace.grid)

    @cached_property
    def full_waves(self) -> int:
        """Number of waves that fill the device completely."""
        per_wave = self.trace.blocks_per_wave
        return self.blocks // per_wave if per_wave else 0

    @cached_property
    def tail_blocks(self) -> int:
        """Number of blocks in the last wave if it does not fill the device, else 0."""
        per_wave = self.trace.blocks_per_wave
        return self.blocks % per_wave if per_wave else 0

    @cached_property
    def wave(self) -> npt.NDArray[np.uint16]:
        """The wave number of each block, sorted as in `order`."""
        per_wave = max(1, self.trace.blocks_per_wave)
        start_ranks = np.arange(self.order.size, dtype=np.int64) * self.trace.sampled
        return np.minimum(start_ranks // per_wave, np.iinfo(np.uint16).max).astype(np.uint16)

    @cached_property
    def in_tail(self) -> npt.NDArray[np.bool_]:
        """Return for each row in `order` whether it belongs to a last wave that does not fill the device. If
        the grid has only one wave, all values are False.
        """
        if not self.full_waves or not self.tail_blocks:
            return np.zeros(self.order.size, np.bool_)
        return self.wave >= min(self.full_waves, int(np.iinfo(np.uint16).max))

    @cached_property
    def slot(self) -> npt.NDArray[np.int32]:
        """The slot number of each block on its SM, sorted as in `order`. Each block gets the lowest slot
        number that is free when the block starts.
        """
        sm_ids = self.trace.sm_id[self.order].tolist()
        starts_ns = self.trace.start_ns[self.order].tolist()
        ends_ns = self.trace.end_ns[self.order].tolist()
        ends_by_sm: dict[int, list[int]] = {}
        slot_of_block = []
        for sm, start, end in zip(sm_ids, starts_ns, ends_ns, strict=True):
            slot_ends = ends_by_sm.setdefault(sm, [])
            for slot, slot_end in enumerate(slot_ends):
                if slot_end <= start:
                    slot_ends[slot] = end
                    break
            else:
                slot = len(slot_ends)
                slot_ends.append(end)
            slot_of_block.append(slot)
        return np.asarray(slot_of_block, dtype=np.int32)

    def running(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the times in ns at which the number of running blocks changes. The second array contains the
        number of running blocks after each change.

        For a sampled launch the numbers are averages over each of `SAMPLE_INTERVALS`, because not all blocks
        are listed.
        """
        trace = self.trace
        if trace.sampled > 1:
            sample_times_ns = np.linspace(0, trace.span_ns, SAMPLE_INTERVALS + 1)
            block_ns = _elapsed_ns(sample_times_ns, trace.start_ns) - _elapsed_ns(
                sample_times_ns, trace.end_ns
            )
            mean_running = np.diff(block_ns) * trace.sampled / max(1e-9, sample_times_ns[1])
            return sample_times_ns, np.append(mean_running, 0.0)
        change_times_ns = np.concatenate([trace.start_ns, trace.end_ns])
        running_changes = np.concatenate([np.ones(trace.start_ns.size), -np.ones(trace.end_ns.size)])
        sample_times_ns, sample_indices = np.unique(change_times_ns, return_inverse=True)
        running_blocks = np.cumsum(
            np.bincount(sample_indices, weights=running_changes, minlength=sample_times_ns.size)
        )
        return sample_times_ns.astype(np.float64), running_blocks.astype(np.float64)

    def count_running_on_busy(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the mean number of running blocks per busy SM over time. The result has the same two arrays
        as the result of `running`.
        """
        moments_ns, running_blocks = self.running()
        _, starts_ns, ends_ns = self.trace.busy()
        if self.trace.sampled > 1:
            sm_ns = _elapsed_ns(moments_ns, starts_ns) - _elapsed_ns(moments_ns, ends_ns)
            busy_sms = np.append(np.diff(sm_ns) / max(1e-9, float(moments_ns[1])), 0.0)
        else:
            started_counts = np.searchsorted(np.sort(starts_ns), moments_ns, side="right")
            busy_sms = started_counts - np.searchsorted(np.sort(ends_ns), moments_ns, side="right").astype(
                np.float64
            )
        return moments_ns, np.divide(
            running_blocks, busy_sms, out=np.zeros_like(running_blocks), where=busy_sms > 0
        )


def _elapsed_ns(
    moments_ns: npt.NDArray[np.float64], times_ns: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return for each moment the sum of (moment - time) over all times before it."""
    sorted_ns = np.sort(times_ns).astype(np.float64)
    earlier_counts = np.searchsorted(sorted_ns, moments_ns)
    elapsed_ns: npt.NDArray[np.float64] = (
        moments_ns * earlier_counts - np.append(0.0, np.cumsum(sorted_ns))[earlier_counts]
    )
    return elapsed_ns
