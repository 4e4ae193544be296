"""Cache counters of a launch, from a replay of its recorded accesses in a model of the caches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from virtualgpu.model.caches.geometry import compute_cache_sizes
from virtualgpu.records import SECTOR_BYTES, AccessCounters, CacheCounters, KernelCounters
from virtualgpu.records.kernel import LINE_BYTES

if TYPE_CHECKING:
    from virtualgpu.engine.caches.notes import AccessNotes
    from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch

# First cache line of local memory, above the lines of all arrays.
_FIRST_LOCAL_LINE = 1 << 44


@dataclass(frozen=True, slots=True)
class CacheRecorder:
    """A recorder for the memory accesses of a launch, which also stores what L2 contains at the start."""

    access_notes: AccessNotes
    resident_bytes: dict[int, int]


def start_cache_recorder(prepared_launch: PreparedLaunch) -> CacheRecorder:
    """Return a recorder for the memory accesses of a launch. For a cold launch, the L2 cache is empty at the
    start.
    """
    from virtualgpu.engine.caches.notes import AccessNotes

    device = prepared_launch.device
    kernel = prepared_launch.kernel.program.generate_counted(prepared_launch.packed_launch.name)
    resident_bytes = {} if prepared_launch.is_cold else device.l2.find_resident_bytes(prepared_launch.arrays)
    return CacheRecorder(AccessNotes([i for _, i in kernel.tables.accesses]), resident_bytes)


def add_cache_counters(finished_launch: FinishedLaunch, recorder: CacheRecorder) -> KernelCounters:
    """Simulate the caches for the recorded accesses of a launch, and add the results to its counters.

    Notes
    -----
    Blocks run on the SMs and at the times that the time model computes. Within a block, a warp's accesses are
    ordered by the number of instructions that it has executed.
    """
    from virtualgpu.engine.caches.replay import COLUMNS, replay
    from virtualgpu.engine.observe.results import sum_counters_by_source

    access_notes = recorder.access_notes
    prepared_launch = finished_launch.prepared_launch
    counters = finished_launch.result.counters
    assert counters is not None
    stats = prepared_launch.kernel.stats
    info = prepared_launch.device.info
    shared_bytes = (
        stats.static_shared_bytes
        + prepared_launch.packed_launch.shared_bytes
        + info.reserved_shared_per_block_bytes
    )
    cache_sizes = compute_cache_sizes(info, shared_bytes, prepared_launch.blocks_per_sm)
    tables = finished_launch.result.kernel.tables
    sorted_accesses = _sort_accesses_by_time(finished_launch, access_notes.rows)
    earlier_accesses = (
        _make_resident_accesses(recorder, prepared_launch, sorted_accesses)
        if recorder.resident_bytes
        else None
    )
    replay_result = replay(
        sorted_accesses,
        access_notes.sites[:, 0],
        cache_sizes,
        info.sm_count,
        access_notes.sampling_ratio,
        earlier_accesses,
    )
    site_columns = np.concatenate([replay_result.sector_sums, access_notes.sites[:, 2:]], axis=1)[
        : len(tables.accesses)
    ]
    access_sums = [column_sums for _, column_sums in sum_counters_by_source(tables.accesses, site_columns)]
    counter_names = (*COLUMNS, "requests", "passes")
    counter_totals = dict.fromkeys(counter_names, 0.0)
    accesses = []
    for access, column_sums in zip(counters.accesses, access_sums, strict=True):
        counter_sums = _scale_to_all_sectors(
            access, dict(zip(counter_names, map(float, column_sums), strict=True)), access_notes
        )
        for name in counter_totals:
            counter_totals[name] += counter_sums[name]
        accesses.append(replace(access, l1_hit_sectors=round(counter_sums["l1_hit"])))
    cache_counters = CacheCounters(
        start="cold" if prepared_launch.is_cold else "warm",
        l1_sectors=round(counter_totals["l1"]),
        l1_hit_sectors=round(counter_totals["l1_hit"]),
        l2_sectors=round(counter_totals["l2"]),
        l2_hit_sectors=round(counter_totals["l2_hit"]),
        dram_read_bytes=(
            round(counter_totals["dram"]) + replay_result.completed_sectors * access_notes.sampling_ratio
        )
        * SECTOR_BYTES,
        dram_write_bytes=replay_result.written_sectors * access_notes.sampling_ratio * SECTOR_BYTES,
        constant_requests=round(counter_totals["requests"]),
        constant_passes=round(counter_totals["passes"]),
        one_in=access_notes.sampling_ratio,
    )
    return replace(counters, accesses=tuple(accesses), caches=cache_counters)


def _scale_to_all_sectors(
    access: AccessCounters, counter_sums: dict[str, float], access_notes: AccessNotes
) -> dict[str, float]:
    """Scale the counts of an instruction from the sampled cache lines to all of its sectors."""
    sampled_sectors = counter_sums["asked"]
    if not sampled_sectors:  # it accesses few lines and none of the sampled ones: they stay in the caches
        sector_count = float(access.sectors) if access.space not in ("shared", "const") else 0.0
        counted_levels = ("l1", "l1_hit") if access.kind == "load" else ("l2", "l2_hit")
        return counter_sums | dict.fromkeys(counted_levels, sector_count)
    sector_ratio = access.sectors / sampled_sectors
    scaled_sums = {
        name: counter_sums[name] * (sector_ratio if name not in ("requests", "passes") else 1.0)
        for name in counter_sums
    }
    if access.kind == "atomic" or access_notes.is_truncated:
        # Lanes access a word one after another, but it is fetched once; remaining sectors belong to cached
        # lines.
        missed_sectors = {
            level: (counter_sums[level] - counter_sums[f"{level}_hit"]) * access_notes.sampling_ratio
            for level in ("l1", "l2")
        }
        if access.kind != "atomic":
            scaled_sums["l2"] = min(scaled_sums["l2"], counter_sums["l2"] * access_notes.sampling_ratio)
        for level in missed_sectors:
            if counter_sums[f"{level}_hit"]:  # else it bypasses that cache
                scaled_sums[f"{level}_hit"] = max(scaled_sums[level] - missed_sectors[level], 0.0)
        scaled_sums["dram"] = counter_sums["dram"] * access_notes.sampling_ratio
    return scaled_sums


def _make_resident_accesses(
    recorder: CacheRecorder, prepared_launch: PreparedLaunch, accesses: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return accesses that fill the modelled caches with the parts of arrays that L2 contains.

    These parts are the ends of the arrays. Earlier kernels are assumed to have used them from the same SMs.
    """
    from virtualgpu.engine.caches.replay import unpack_lines

    line_numbers = unpack_lines(accesses)
    base_address = prepared_launch.device.memory.base_address
    is_resident = np.zeros(len(accesses), bool)
    for address, size_bytes in recorder.resident_bytes.items():
        end_bytes = address + prepared_launch.arrays[address] - base_address
        is_resident |= (line_numbers >= (end_bytes - size_bytes) // LINE_BYTES) & (
            line_numbers < -(-end_bytes // LINE_BYTES)
        )
    return accesses[is_resident]


def _sort_accesses_by_time(
    finished_launch: FinishedLaunch, access_rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return recorded accesses sorted by time, with SMs instead of warps, as `replay` needs them."""
    from virtualgpu.engine.caches.notes import BYTES_SHIFT, LINE_SHIFT, LOCAL_BIT, SITE_SHIFT
    from virtualgpu.engine.caches.replay import pack_lines

    sm_of_block, begin_ns, end_ns = finished_launch.placement
    warps_per_block = -(-finished_launch.prepared_launch.launch.block_threads // 32)
    line_numbers = access_rows[:, 0] >> LINE_SHIFT
    sector_masks = access_rows[:, 0] & 15
    block_numbers = access_rows[:, 1] // warps_per_block
    site_numbers = access_rows[:, 2] >> SITE_SHIFT
    longest_warp = np.maximum(finished_launch.result.block_longest_warp, 1)
    block_progress = (access_rows[:, 2] & ((1 << SITE_SHIFT) - 1)) / longest_warp[block_numbers]
    time_ns = begin_ns[block_numbers] + (end_ns - begin_ns)[block_numbers] * block_progress
    is_local = (access_rows[:, 0] & LOCAL_BIT) != 0
    if is_local.any():
        # Each warp slot of an SM has its own lines, which the next warp in the slot reuses.
        blocks_per_sm = finished_launch.prepared_launch.blocks_per_sm
        block_slot = (
            sm_of_block[block_numbers].astype(np.int64) * blocks_per_sm
            + _number_blocks_on_sm(sm_of_block)[block_numbers] % blocks_per_sm
        )
        line_count = int(line_numbers[is_local].max()) + 1
        local_line = (
            block_slot * warps_per_block + access_rows[:, 1] % warps_per_block
        ) * line_count + line_numbers
        line_numbers = np.where(is_local, _FIRST_LOCAL_LINE + local_line, line_numbers)
    time_order = np.argsort(time_ns, kind="stable")
    packed_rows = np.empty((len(access_rows), 3), np.int64)
    size_bytes = access_rows[:, 0] >> BYTES_SHIFT & 63
    packed_rows[:, 0] = pack_lines(line_numbers, sector_masks, size_bytes)[time_order]
    packed_rows[:, 1] = (sm_of_block[block_numbers].astype(np.int64) << 32 | site_numbers)[time_order]
    packed_rows[:, 2] = time_ns[time_order].astype(np.int64)
    return packed_rows


def _number_blocks_on_sm(sm_of_block: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return for each block the number of blocks that ran on its SM before it."""
    order = np.argsort(sm_of_block, kind="stable")
    sorted_sm = sm_of_block[order]
    first_positions = np.searchsorted(sorted_sm, sorted_sm, side="left")
    index_on_sm = np.empty(sm_of_block.size, np.int64)
    index_on_sm[order] = np.arange(sm_of_block.size) - first_positions
    return index_on_sm
