"""One launch: how many blocks fit, and where and when each ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Theoretical occupancy of one launch shape and what limits it.

    ``blocks_by_limit`` maps each limit (``warps``, ``blocks``, ``registers``, ``shared memory``)
    to the resident blocks it alone would allow; ``limiters`` are those that equal the result.
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
        return self.warps_per_sm / self.max_warps_per_sm if self.max_warps_per_sm else 0.0


@dataclass(frozen=True, slots=True)
class LaunchTrace:
    """Block placement of one launch: block -> SM, start, end. Columns have one row a block.

    ``start_ns`` counts from the first block's start. Blocks are numbered x fastest:
    ``x + y * grid.x + z * grid.x * grid.y``. When ``sampled`` is above 1 only every
    ``sampled``-th block is listed.
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
        return int(self.end_ns.max()) if self.end_ns.size else 0

    @property
    def blocks_per_wave(self) -> int:
        return self.occupancy.blocks_per_sm * self.sm_count

    @property
    def waves(self) -> float:
        """Blocks in the grid over blocks that fit at once (``tail`` = the fractional part)."""
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        return blocks / self.blocks_per_wave if self.blocks_per_wave else 0.0
