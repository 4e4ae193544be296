"""What the caches make of a launch: its accesses, on SMs and in time, played through a model of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from virtualgpu.model.caches.geometry import cache_sizes
from virtualgpu.records import SECTOR_BYTES, AccessCounters, CacheCounters, KernelCounters
from virtualgpu.records.kernel import LINE_BYTES

if TYPE_CHECKING:
    from virtualgpu.engine.caches.notes import AccessNotes
    from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch

# Local memory lies where no array is; lines of an array come before this one.
_LOCAL_LINE = 1 << 44


@dataclass(frozen=True, slots=True)
class CacheWatch:
    """What notes the accesses of a launch, as its observer, and what of its arrays L2 holds before it."""

    notes: AccessNotes
    resident: dict[int, int]


def watch_caches(prepared: PreparedLaunch) -> CacheWatch:
    """Make ready to see a launch's accesses, from empty caches if it is cold, or as earlier ones left L2."""
    from virtualgpu.engine.caches.notes import AccessNotes

    device = prepared.device
    kernel = prepared.module.program(device).counting(prepared.packed.name)
    resident = {} if prepared.cold else device.l2.resident(prepared.arrays)
    return CacheWatch(AccessNotes([i for _, i in kernel.tables.accesses]), resident)


def with_caches(finished: FinishedLaunch, watch: CacheWatch) -> KernelCounters:
    """The counters of a launch with what the caches make of its accesses.

    Notes
    -----
    Blocks run where and when the time model has them; within a block, a warp's accesses follow each other by
    the instructions that it has executed.
    """
    from virtualgpu.engine.caches.replay import COLUMNS, replay
    from virtualgpu.engine.observe.results import sum_by_source

    notes = watch.notes
    prepared = finished.prepared
    counters = finished.result.counters
    assert counters is not None
    stats = prepared.stats
    info = prepared.device.info
    shared = stats.static_shared_bytes + prepared.packed.shared_bytes + info.reserved_shared_per_block_bytes
    sizes = cache_sizes(info, shared, prepared.blocks_per_sm)
    tables = finished.result.kernel.tables
    packed = _in_time(finished, notes.rows)
    before = _left(watch, prepared, packed) if watch.resident else None
    played = replay(packed, notes.sites[:, 0], sizes, info.sm_count, notes.one_in, before)
    columns = np.concatenate([played.sums, notes.sites[:, 2:]], axis=1)[: len(tables.accesses)]
    rows = [row for _, row in sum_by_source(tables.accesses, columns)]
    names = (*COLUMNS, "requests", "passes")
    totals = dict.fromkeys(names, 0.0)
    accesses = []
    for access, row in zip(counters.accesses, rows, strict=True):
        sums = _of_all(access, dict(zip(names, map(float, row), strict=True)), notes)
        for name in totals:
            totals[name] += sums[name]
        accesses.append(replace(access, l1_hit_sectors=round(sums["l1_hit"])))
    found = CacheCounters(
        start="cold" if prepared.cold else "warm",
        l1_sectors=round(totals["l1"]),
        l1_hit_sectors=round(totals["l1_hit"]),
        l2_sectors=round(totals["l2"]),
        l2_hit_sectors=round(totals["l2_hit"]),
        dram_read_bytes=(round(totals["dram"]) + played.completed * notes.one_in) * SECTOR_BYTES,
        dram_write_bytes=played.written * notes.one_in * SECTOR_BYTES,
        constant_requests=round(totals["requests"]),
        constant_passes=round(totals["passes"]),
        one_in=notes.one_in,
    )
    return replace(counters, accesses=tuple(accesses), caches=found)


def _of_all(access: AccessCounters, sums: dict[str, float], notes: AccessNotes) -> dict[str, float]:
    """What was noted of a part of the lines, for all sectors of an instruction."""
    asked = sums["asked"]
    if not asked:  # it goes to few lines, and none of them is in the part: they stay in the caches
        found = float(access.sectors) if access.space not in ("shared", "const") else 0.0
        where = ("l1", "l1_hit") if access.kind == "load" else ("l2", "l2_hit")
        return sums | dict.fromkeys(where, found)
    scale = access.sectors / asked
    scaled = {name: sums[name] * (scale if name not in ("requests", "passes") else 1.0) for name in sums}
    if access.kind == "atomic" or notes.is_cut:
        # Lanes take turns at a word, which is fetched once; and what is missing goes to lines that are there.
        missed = {level: (sums[level] - sums[f"{level}_hit"]) * notes.one_in for level in ("l1", "l2")}
        if access.kind != "atomic":
            scaled["l2"] = min(scaled["l2"], sums["l2"] * notes.one_in)
        for level in missed:
            if sums[f"{level}_hit"]:  # else it passes that cache by
                scaled[f"{level}_hit"] = max(scaled[level] - missed[level], 0.0)
        scaled["dram"] = sums["dram"] * notes.one_in
    return scaled


def _left(
    watch: CacheWatch, prepared: PreparedLaunch, packed: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Of a launch's notes those to what L2 still holds of its arrays: of each the end.

    What used an array before is taken to have done so from the same SMs.
    """
    from virtualgpu.engine.caches.replay import line_of

    line = line_of(packed)
    base = prepared.device.memory.base_address
    there = np.zeros(len(packed), bool)
    for address, size_bytes in watch.resident.items():
        end = address + prepared.arrays[address] - base
        there |= (line >= (end - size_bytes) // LINE_BYTES) & (line < -(-end // LINE_BYTES))
    return packed[there]


def _in_time(finished: FinishedLaunch, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Notes as `replay` wants them: in the order of their times, with SMs for warps."""
    from virtualgpu.engine.caches.notes import BYTES_SHIFT, LINE_SHIFT, LOCAL_BIT, SITE_SHIFT
    from virtualgpu.engine.caches.replay import pack_lines

    sm, begin, end = finished.placement
    warps = -(-finished.prepared.launch.block_threads // 32)
    line = rows[:, 0] >> LINE_SHIFT
    sectors = rows[:, 0] & 15
    block = rows[:, 1] // warps
    site = rows[:, 2] >> SITE_SHIFT
    longest = np.maximum(finished.result.block_longest, 1)
    share = (rows[:, 2] & ((1 << SITE_SHIFT) - 1)) / longest[block]
    time = begin[block] + (end - begin)[block] * share
    local = (rows[:, 0] & LOCAL_BIT) != 0
    if local.any():
        # Each warp that an SM holds has its own lines, which the next one in its place takes over.
        per_sm = finished.prepared.blocks_per_sm
        place = sm[block].astype(np.int64) * per_sm + _nth_on_its_sm(sm)[block] % per_sm
        words = int(line[local].max()) + 1
        own = (place * warps + rows[:, 1] % warps) * words + line
        line = np.where(local, _LOCAL_LINE + own, line)
    order = np.argsort(time, kind="stable")
    packed = np.empty((len(rows), 3), np.int64)
    size_bytes = rows[:, 0] >> BYTES_SHIFT & 63
    packed[:, 0] = pack_lines(line, sectors, size_bytes)[order]
    packed[:, 1] = (sm[block].astype(np.int64) << 32 | site)[order]
    packed[:, 2] = time[order].astype(np.int64)
    return packed


def _nth_on_its_sm(sm: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """How many blocks came to each block's SM before it."""
    order = np.argsort(sm, kind="stable")
    sorted_sm = sm[order]
    firsts = np.searchsorted(sorted_sm, sorted_sm, side="left")
    nth = np.empty(sm.size, np.int64)
    nth[order] = np.arange(sm.size) - firsts
    return nth
