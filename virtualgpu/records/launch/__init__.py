"""Records of one launch: its occupancy, and the SM and times of each block."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from virtualgpu.records.kernel import WARP_SIZE, Dim3
from virtualgpu.records.origin import Provenance

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """The theoretical occupancy of a launch shape, and the resources that limit it.

    The dictionary ``blocks_by_limit`` maps each limit to the number of resident blocks that it would allow
    alone, and ``limiters`` are the limits with the smallest number.
    """

    provenance: Provenance
    block_threads: int
    registers_per_thread: int
    shared_bytes: int
    blocks_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    blocks_by_limit: dict[str, int]
    limiters: tuple[str, ...]

    @property
    def fraction(self) -> float:
        """Number of resident warps divided by the maximum number of warps of an SM."""
        return self.warps_per_sm / self.max_warps_per_sm if self.max_warps_per_sm else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTrace:
    """The SM, the start and the end of each block of a launch, with one row per block.

    The times in ``start_ns`` count from the start of the first block. Blocks are numbered x fastest: ``x + y
    * grid.x + z * grid.x * grid.y``. When ``sampled`` is above 1 about one block in ``sampled`` is listed,
    chosen so that every SM and every interval of time has its share.
    """

    provenance: Provenance
    kernel_name: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    sm_count: int
    block_index: npt.NDArray[np.int64]
    sm_id: npt.NDArray[np.int32]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    occupancy: Occupancy
    timer_step_ns: int = 1
    sampled: int = 1
    note: str = ""

    @property
    def span_ns(self) -> int:
        """The time from the start of the first block to the end of the last block in ns."""
        return int(self.end_ns.max()) if self.end_ns.size else 0

    @property
    def blocks_per_wave(self) -> int:
        """Number of blocks that fit on the device at the same time."""
        return self.occupancy.blocks_per_sm * self.sm_count

    @property
    def waves(self) -> float:
        """Number of waves, which is the size of the grid divided by the number of blocks that fit on the
        device at once.

        The fractional part is the size of the last, incomplete wave.
        """
        return math.prod(self.grid) / self.blocks_per_wave if self.blocks_per_wave else 0.0

    @property
    def warps_per_block(self) -> int:
        """Number of warps in each block."""
        return -(-math.prod(self.block) // WARP_SIZE)

    def busy(self, join_ns: float = 0) -> tuple[npt.NDArray[np.int32], Times, Times]:
        """Return the intervals in which each SM ran at least one block.

        Intervals with a gap of no more than `join_ns` are merged. In a sampled launch they are joined over
        the blocks that are not listed.
        """
        if not self.sm_id.size:
            return self.sm_id, self.start_ns, self.end_ns
        if self.sampled > 1:
            # Consecutive listed blocks of an SM are less than two times `sampled` apart.
            blocks_by_sm = np.bincount(self.sm_id)
            join_ns = max(join_ns, 2.5 * self.span_ns / float(blocks_by_sm[blocks_by_sm > 0].mean()))
        time_order = np.lexsort((self.start_ns, self.sm_id))
        sorted_sm_ids = self.sm_id[time_order]
        # Shift the times of each SM so that different SMs never overlap.
        shift_ns = sorted_sm_ids.astype(np.int64) * (self.span_ns + int(join_ns) + 2)
        shifted_starts_ns = self.start_ns[time_order] + shift_ns
        shifted_ends_ns = np.maximum.accumulate(self.end_ns[time_order] + shift_ns)
        first_blocks = np.flatnonzero(np.append(True, shifted_starts_ns[1:] > shifted_ends_ns[:-1] + join_ns))
        last_blocks = np.append(first_blocks[1:], time_order.size) - 1
        return (
            sorted_sm_ids[first_blocks],
            self.start_ns[time_order][first_blocks],
            shifted_ends_ns[last_blocks] - shift_ns[last_blocks],
        )

    @property
    def sm_busy_ns(self) -> Times:
        """The time in ns during which each SM ran at least one block. The first element belongs to SM 0."""
        sm, starts_ns, ends_ns = self.busy()
        return np.bincount(sm, ends_ns - starts_ns, minlength=self.sm_count).astype(np.int64)

    @property
    def achieved_occupancy(self) -> float:
        """Mean number of resident warps of a busy SM, as a fraction of the maximum number of warps.

        The number corresponds to Nsight Compute's "Achieved Occupancy",
        ``sm__warps_active.avg.pct_of_peak_sustained_active``, but assumes that warps stay as long as their
        block.
        """
        return self._compute_occupancy(int(self.sm_busy_ns.sum()))

    @property
    def achieved_on_device(self) -> float:
        """The achieved occupancy of the whole launch, as a mean over all SMs. The mean includes SMs without
        blocks and times at which an SM runs no block.
        """
        return self._compute_occupancy(self.sm_count * self.span_ns)

    def _compute_occupancy(self, sm_ns: int) -> float:
        warp_ns = int((self.end_ns - self.start_ns).sum()) * self.sampled * self.warps_per_block
        capacity_ns = sm_ns * self.occupancy.max_warps_per_sm
        return min(1.0, warp_ns / capacity_ns) if capacity_ns else 0.0

    def take_sample(self, max_blocks: int) -> LaunchTrace:
        """Return a sample of at most about `max_blocks` blocks. The blocks are taken evenly from all SMs.

        One block of each group of consecutive listed blocks of an SM is chosen at random, so that no period
        of the grid or of the SMs can coincide with that of the sampling.
        """
        sampling_step = -(-self.sm_id.size // max_blocks)
        if sampling_step <= 1:
            return self
        sm_order = np.argsort(self.sm_id, kind="stable")
        sorted_sm_ids = self.sm_id[sm_order]
        sm_starts = np.flatnonzero(np.append(True, sorted_sm_ids[1:] != sorted_sm_ids[:-1]))
        blocks_per_sm = np.diff(np.append(sm_starts, sorted_sm_ids.size))
        rank_in_sm = np.arange(sorted_sm_ids.size) - np.repeat(sm_starts, blocks_per_sm)
        group_starts = np.flatnonzero(rank_in_sm % sampling_step == 0)
        group_sizes = np.diff(np.append(group_starts, sorted_sm_ids.size))
        random_positions = np.random.default_rng(0).random(group_starts.size)
        chosen_rows = np.sort(sm_order[group_starts + (random_positions * group_sizes).astype(np.int64)])
        columns = {
            name: getattr(self, name)[chosen_rows] for name in ("block_index", "sm_id", "start_ns", "end_ns")
        }
        return replace(self, sampled=self.sampled * sampling_step, **columns)
