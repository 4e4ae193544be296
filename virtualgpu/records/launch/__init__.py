"""One launch: how many blocks fit, and where and when each ran."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTrace:
    """Block placement of one launch: block -> SM, start, end. Columns have one row a block.

    ``start_ns`` counts from the first block's start. Blocks are numbered x fastest:
    ``x + y * grid.x + z * grid.x * grid.y``. When ``sampled`` is above 1 about one block in
    ``sampled`` is listed, chosen so that every SM and every stretch of time has its share.
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
        return math.prod(self.grid) / self.blocks_per_wave if self.blocks_per_wave else 0.0

    @property
    def warps_per_block(self) -> int:
        return -(-math.prod(self.block) // WARP_SIZE)

    def busy(self, join_ns: float = 0) -> tuple[npt.NDArray[np.int32], Times, Times]:
        """SM, start and end of every stretch of time in which an SM held at least one block.

        Stretches that are no more than `join_ns` apart count as one. Of a sampled launch they are joined
        over what the sample leaves out.
        """
        if not self.sm_id.size:
            return self.sm_id, self.start_ns, self.end_ns
        if self.sampled > 1:
            # Blocks listed next to each other on an SM are less than two times `sampled` apart.
            each = np.bincount(self.sm_id)
            join_ns = max(join_ns, 2.5 * self.span_ns / float(each[each > 0].mean()))
        order = np.lexsort((self.start_ns, self.sm_id))
        sm = self.sm_id[order]
        # One long axis on which no SM's times meet another's.
        far = sm.astype(np.int64) * (self.span_ns + int(join_ns) + 2)
        start = self.start_ns[order] + far
        end = np.maximum.accumulate(self.end_ns[order] + far)
        first = np.flatnonzero(np.append(True, start[1:] > end[:-1] + join_ns))
        last = np.append(first[1:], order.size) - 1
        return sm[first], self.start_ns[order][first], end[last] - far[last]

    @property
    def sm_busy_ns(self) -> Times:
        """How long each SM held at least one block, SM 0 first."""
        sm, start, end = self.busy()
        return np.bincount(sm, end - start, minlength=self.sm_count).astype(np.int64)

    @property
    def achieved_occupancy(self) -> float:
        """Resident warps over the warps an SM can hold, on average over SMs while they were busy.

        As Nsight Compute's "Achieved Occupancy", ``sm__warps_active.avg.pct_of_peak_sustained_active``
        (its ``Occupancy.section``), with a block's warps taken to stay as long as the block: where a
        block's warps end one by one, the hardware counts a little less.
        """
        return self._resident(int(self.sm_busy_ns.sum()))

    @property
    def achieved_on_device(self) -> float:
        """The same over all SMs and the whole span of the launch, idle SMs and idle times included."""
        return self._resident(self.sm_count * self.span_ns)

    def _resident(self, sm_ns: int) -> float:
        warp_ns = int((self.end_ns - self.start_ns).sum()) * self.sampled * self.warps_per_block
        room = sm_ns * self.occupancy.max_warps_per_sm
        return min(1.0, warp_ns / room) if room else 0.0

    def thinned(self, most: int) -> LaunchTrace:
        """The same launch with no more than about `most` blocks listed, of every SM its share.

        Of each SM's blocks, in the order in which they are listed, one in so many consecutive ones is kept,
        and which one is drawn by lot: no period of the grid or of the SMs can meet that of the sampling.
        """
        step = -(-self.sm_id.size // most)
        if step <= 1:
            return self
        by_sm = np.argsort(self.sm_id, kind="stable")
        sm = self.sm_id[by_sm]
        begins = np.flatnonzero(np.append(True, sm[1:] != sm[:-1]))
        counts = np.diff(np.append(begins, sm.size))
        rank = np.arange(sm.size) - np.repeat(begins, counts)
        first = np.flatnonzero(rank % step == 0)
        length = np.diff(np.append(first, sm.size))
        lots = np.random.default_rng(0).random(first.size)
        kept = np.sort(by_sm[first + (lots * length).astype(np.int64)])
        listed = {name: getattr(self, name)[kept] for name in ("block_index", "sm_id", "start_ns", "end_ns")}
        return replace(self, sampled=self.sampled * step, **listed)
