"""Replay of recorded accesses through a model of the caches: an L1 per SM, and an L2 with one or two parts.

Each part of L2 keeps copies of lines from the other part.

Caches hold lines of 128 bytes in sectors of 32 bytes, and replace the line of a set that was used longest
ago. Facts about hardware come from an H200's counters (``tests/counters/data/h200_caches.json``). The
functions are compiled (`virtualgpu.engine.ir.compiled`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.caches import notes
from virtualgpu.engine.caches.notes import hash_line
from virtualgpu.engine.ir.compiled import get_struct_address, load64, make_structure, store64, translate
from virtualgpu.engine.machine import jit
from virtualgpu.model.caches.geometry import CacheSizes
from virtualgpu.records.kernel import LINE_BYTES

L1_WAYS = 16
L2_WAYS = 16
# An entry: its line plus 1 (0: none); valid sectors, sectors not yet written to memory, and the number of
# bytes stored to each invalid sector; its last use.
ENTRY_BYTES = 24
DIRTY_SHIFT = 4
STORED_BYTES_SHIFT = 8
STORED_BYTES_WIDTH = 6
FULL_SECTOR_BYTES = 32
SET_BYTES = 16 * ENTRY_BYTES
# Dirty lines of a set: 736,000 sectors (3/8 of L2) can wait to be written to memory.
MAX_DIRTY_WAYS = 6
# Age of a line that a store brings to L1, as a share of the number of lines in L1.
STORE_AGE_SHARE = 1.0
# Number of 64-byte pieces in a set with partly stored sectors; more are completed and written.
MAX_PARTIAL_PIECES = 4
# Requests of neighbouring SMs for the same sectors are merged if they are at most this many nanoseconds
# apart.
MERGE_WINDOW_NS = 300
MERGE_SLOTS = 256
MERGE_SLOT_BYTES = 16
SMS_PER_L2_SIDE = 6  # consecutive SMs that are next to the same part of L2
# Columns of counts for each instruction.
COLUMNS = ("asked", "l1", "l1_hit", "l2", "l2_hit", "far", "far_hit", "dram")
SITE_BYTES = 8 * len(COLUMNS)
(
    _REQUESTED_COLUMN,
    _L1_COLUMN,
    _L1_HIT_COLUMN,
    _L2_COLUMN,
    _L2_HIT_COLUMN,
    _FAR_COLUMN,
    _FAR_HIT_COLUMN,
    _DRAM_COLUMN,
) = range(0, SITE_BYTES, 8)
_SITE_MASK = 0xFFFFFFFF
_LINE_BIT = 10
_BYTES_BIT = 4
_LINE_NUMBER_BITS = 24
_INVERSE_BITS = 36


@make_structure
class ReplayState:
    """The state of a replay, such as the recorded accesses, the modelled caches and the counters."""

    notes: int
    note_count: int
    access_kinds: int
    sector_sums: int
    sampling_bits: int  # one line in 1 << sampling_bits was recorded
    l1: int
    l1_sets: int
    l1_inverse: int
    l2: int
    l2_sets: int
    l2_inverse: int
    l2_part_count: int
    l2_side_by_sm: int  # by SM, the part of L2 next to it
    merge_slots: int
    store_age: int  # age of a line that a store brings to L1
    merging_group_by_sm: int  # by SM, the group whose requests are merged; 0: no merging
    written_sectors: int  # sectors to memory
    completed_sectors: int  # sectors read from memory to complete partly stored ones
    use_time: int


def count_sectors(sectors: int) -> int:
    """Return the number of sectors that a four-bit mask contains."""
    return (sectors & 1) + ((sectors >> 1) & 1) + ((sectors >> 2) & 1) + ((sectors >> 3) & 1)


def add_sectors(replay_state: ReplayState, site: int, column: int, sectors: int) -> None:
    """Add the number of sectors in a mask to one counter of a memory instruction."""
    address = replay_state.sector_sums + site * SITE_BYTES + column
    store64(address, load64(address) + count_sectors(sectors))


def find_set(cache_address: int, set_count: int, set_count_inverse: int, line_number: int) -> int:
    """Return the address of the cache set in which a line can be stored."""
    line_number = (line_number ^ (line_number >> _LINE_NUMBER_BITS)) & ((1 << _LINE_NUMBER_BITS) - 1)
    line_number = line_number - ((line_number * set_count_inverse) >> _INVERSE_BITS) * set_count
    if line_number < 0:
        line_number += set_count
    return cache_address + line_number * SET_BYTES


def find_entry(first_entry: int, line: int) -> int:
    """Return the address of a line's entry in a cache set. If the set does not contain the line, return the
    negated address of the entry to replace.
    """
    entry = first_entry
    set_end = entry + SET_BYTES
    oldest_entry = entry
    oldest_use = load64(entry + 16)
    while entry < set_end:
        if load64(entry) == line + 1:
            return entry
        if load64(entry + 16) < oldest_use:
            oldest_entry = entry
            oldest_use = load64(entry + 16)
        entry += ENTRY_BYTES
    return -oldest_entry


def find_home_part(replay_state: ReplayState, line: int) -> int:
    """Return the number of the L2 part that is connected to the memory of a cache line."""
    if replay_state.l2_part_count == 1:
        return 0
    line_hash = hash_line(line) >> replay_state.sampling_bits
    return (line_hash ^ (line_hash >> 1) ^ (line_hash >> 6) ^ (line_hash >> 13)) & 1


def find_l2_set(replay_state: ReplayState, l2_part: int, line: int) -> int:
    """Return the address of the cache set for a line in one part of L2."""
    line_number = hash_line(line) >> replay_state.sampling_bits
    if replay_state.l2_part_count == 2:
        line_number = line_number >> 1
    return find_set(
        replay_state.l2 + l2_part * replay_state.l2_sets * SET_BYTES,
        replay_state.l2_sets,
        replay_state.l2_inverse,
        line_number,
    )


def find_l2_entry(replay_state: ReplayState, first_entry: int, line: int) -> int:
    """Return the address of a line's entry in a cache set of L2.

    A new line replaces an old one, which is written back to memory.
    """
    entry = find_entry(first_entry, line)
    if entry < 0:
        entry = -entry
        write_back(replay_state, entry)
        store64(entry, line + 1)
        store64(entry + 8, 0)
    store64(entry + 16, replay_state.use_time)
    return entry


def find_partial_sectors(entry_state: int) -> int:
    """Return a mask of the sectors of which stores have written only a part of the bytes."""
    return (entry_state >> DIRTY_SHIFT) & 15 & ~entry_state


def write_back(replay_state: ReplayState, entry: int) -> None:
    """Write the dirty sectors of a cache entry to memory. Sectors that were stored only in part are read
    first.
    """
    entry_state = load64(entry + 8)
    replay_state.written_sectors += count_sectors(entry_state >> DIRTY_SHIFT)
    replay_state.completed_sectors += count_sectors(find_partial_sectors(entry_state))
    store64(entry + 8, (entry_state | find_partial_sectors(entry_state)) & 15)


def add_store_to_state(entry_state: int, sectors: int, size_bytes: int) -> int:
    """Return the state of a cache entry after a store of `size_bytes` bytes to some of its sectors.

    Sectors that were stored completely become valid.
    """
    if size_bytes >= FULL_SECTOR_BYTES:
        return entry_state | sectors
    sector_index = 0
    while sector_index < 4:
        if (sectors >> sector_index) & 1 and (entry_state >> sector_index) & 1 == 0:
            stored_bytes_shift = STORED_BYTES_SHIFT + STORED_BYTES_WIDTH * sector_index
            stored_bytes = ((entry_state >> stored_bytes_shift) & 63) + size_bytes
            if stored_bytes >= FULL_SECTOR_BYTES:
                entry_state = entry_state | (1 << sector_index)
                stored_bytes = 0
            entry_state = (entry_state & ~(63 << stored_bytes_shift)) | (stored_bytes << stored_bytes_shift)
        sector_index += 1
    return entry_state


def write_back_oldest_partial(replay_state: ReplayState, first_entry: int, entry: int) -> None:
    """Write back the oldest line with partly stored sectors if a cache set has too many such sectors."""
    partial_halves = 0
    oldest_entry = 0
    oldest_use = 0
    other_entry = first_entry
    while other_entry < first_entry + SET_BYTES:
        partial_sectors = find_partial_sectors(load64(other_entry + 8))
        if partial_sectors:
            partial_halves += (partial_sectors & 3) != 0
            partial_halves += (partial_sectors & 12) != 0
            if other_entry != entry and (oldest_entry == 0 or load64(other_entry + 16) < oldest_use):
                oldest_entry = other_entry
                oldest_use = load64(other_entry + 16)
        other_entry += ENTRY_BYTES
    if partial_halves > MAX_PARTIAL_PIECES and oldest_entry:
        write_back(replay_state, oldest_entry)


def store_l2(replay_state: ReplayState, first_entry: int, entry: int, sectors: int, size_bytes: int) -> None:
    """Store sectors to a cache entry of L2.

    If the set has too many dirty lines, the oldest one is written back.
    """
    entry_state = load64(entry + 8)
    if (entry_state >> DIRTY_SHIFT) & 15 == 0:
        dirty_lines = 0
        oldest_entry = 0
        oldest_use = 0
        other_entry = first_entry
        while other_entry < first_entry + SET_BYTES:
            if (load64(other_entry + 8) >> DIRTY_SHIFT) & 15:
                dirty_lines += 1
                if oldest_entry == 0 or load64(other_entry + 16) < oldest_use:
                    oldest_entry = other_entry
                    oldest_use = load64(other_entry + 16)
            other_entry += ENTRY_BYTES
        if dirty_lines >= MAX_DIRTY_WAYS:
            write_back(replay_state, oldest_entry)
    entry_state = add_store_to_state(entry_state, sectors, size_bytes) | (sectors << DIRTY_SHIFT)
    store64(entry + 8, entry_state)
    if find_partial_sectors(entry_state):
        write_back_oldest_partial(replay_state, first_entry, entry)


def read_l2(replay_state: ReplayState, site: int, sm: int, line: int, sectors: int) -> None:
    """Read sectors for an SM from the part of L2 next to the SM."""
    near_part_number = load64(replay_state.l2_side_by_sm + 8 * sm)
    entry = find_l2_entry(replay_state, find_l2_set(replay_state, near_part_number, line), line)
    entry_state = load64(entry + 8)
    add_sectors(replay_state, site, _L2_COLUMN, sectors)
    add_sectors(replay_state, site, _L2_HIT_COLUMN, sectors & entry_state)
    missing_sectors = sectors & (15 - (entry_state & 15))
    if missing_sectors == 0:
        return
    # Memory transfers 64 bytes at a time.
    sector_pairs = missing_sectors | ((missing_sectors & 5) << 1) | ((missing_sectors & 10) >> 1)
    home_part_number = find_home_part(replay_state, line)
    if home_part_number != near_part_number:
        home_entry = find_l2_entry(replay_state, find_l2_set(replay_state, home_part_number, line), line)
        entry_state = load64(home_entry + 8)
        add_sectors(replay_state, site, _FAR_COLUMN, sector_pairs)
        add_sectors(replay_state, site, _FAR_HIT_COLUMN, sector_pairs & entry_state)
        missing_sectors = missing_sectors & (15 - (entry_state & 15))
        fetched_sectors = (missing_sectors | ((missing_sectors & 5) << 1) | ((missing_sectors & 10) >> 1)) & (
            15 - (entry_state & 15)
        )
        store64(home_entry + 8, entry_state | fetched_sectors)
        add_sectors(replay_state, site, _DRAM_COLUMN, fetched_sectors)
    else:
        add_sectors(replay_state, site, _DRAM_COLUMN, sector_pairs & (15 - (entry_state & 15)))
    store64(entry + 8, load64(entry + 8) | sector_pairs)


def write_l2(replay_state: ReplayState, site: int, sm: int, line: int, sectors: int, size_bytes: int) -> None:
    """Store sectors to the part of L2 next to an SM and to their home part, which then writes to memory."""
    near_part_number = load64(replay_state.l2_side_by_sm + 8 * sm)
    add_sectors(replay_state, site, _L2_COLUMN, sectors)
    add_sectors(replay_state, site, _L2_HIT_COLUMN, sectors)
    home_part_number = find_home_part(replay_state, line)
    if home_part_number != near_part_number:
        add_sectors(replay_state, site, _FAR_COLUMN, sectors)
        add_sectors(replay_state, site, _FAR_HIT_COLUMN, sectors)
        entry = find_l2_entry(replay_state, find_l2_set(replay_state, near_part_number, line), line)
        store64(entry + 8, add_store_to_state(load64(entry + 8), sectors, size_bytes))
    first_entry = find_l2_set(replay_state, home_part_number, line)
    store_l2(replay_state, first_entry, find_l2_entry(replay_state, first_entry, line), sectors, size_bytes)


def run_l2_atomics(replay_state: ReplayState, site: int, sm: int, line: int, sectors: int) -> None:
    """Execute the atomics of an SM on sectors in their home part of L2.

    The L2 part next to the SM only forwards the atomics.
    """
    home_part_number = find_home_part(replay_state, line)
    first_entry = find_l2_set(replay_state, home_part_number, line)
    entry = find_l2_entry(replay_state, first_entry, line)
    entry_state = load64(entry + 8)
    add_sectors(replay_state, site, _L2_COLUMN, sectors)
    if home_part_number == load64(replay_state.l2_side_by_sm + 8 * sm):
        add_sectors(replay_state, site, _L2_HIT_COLUMN, sectors & entry_state)
    else:
        add_sectors(replay_state, site, _L2_HIT_COLUMN, sectors)
        add_sectors(replay_state, site, _FAR_COLUMN, sectors)
        add_sectors(replay_state, site, _FAR_HIT_COLUMN, sectors & entry_state)
    missing_sectors = sectors & (15 - (entry_state & 15))
    fetched_sectors = (missing_sectors | ((missing_sectors & 5) << 1) | ((missing_sectors & 10) >> 1)) & (
        15 - (entry_state & 15)
    )
    add_sectors(replay_state, site, _DRAM_COLUMN, fetched_sectors)
    store64(entry + 8, entry_state | fetched_sectors)
    store_l2(replay_state, first_entry, entry, sectors, FULL_SECTOR_BYTES)


def keep_unmerged_sectors(replay_state: ReplayState, sm: int, line: int, sectors: int, time_ns: int) -> int:
    """Return the requested sectors, or 0 if a neighbouring SM has just requested the same ones."""
    if replay_state.merging_group_by_sm == 0:
        return sectors
    merge_slot = (
        replay_state.merge_slots
        + (
            load64(replay_state.merging_group_by_sm + 8 * sm) * MERGE_SLOTS
            + (hash_line(line) & (MERGE_SLOTS - 1))
        )
        * MERGE_SLOT_BYTES
    )
    if load64(merge_slot) == line * 16 + sectors and time_ns - load64(merge_slot + 8) < MERGE_WINDOW_NS:
        return 0
    store64(merge_slot, line * 16 + sectors)
    store64(merge_slot + 8, time_ns)
    return sectors


def play_notes(replay_state: ReplayState, number: int, lanes: int, mask: int, values: int) -> None:
    """Replay all recorded memory accesses, one after another."""
    note_address = replay_state.notes
    notes_end = note_address + 24 * replay_state.note_count
    while note_address < notes_end:
        replay_state.use_time += 1
        line = load64(note_address) >> _LINE_BIT
        sectors = load64(note_address) & 15
        store_bytes = (load64(note_address) >> _BYTES_BIT) & 63
        site_index = load64(note_address + 8) & _SITE_MASK
        sm = load64(note_address + 8) >> 32
        note_time_ns = load64(note_address + 16)
        access_kind = load64(replay_state.access_kinds + 8 * site_index)
        note_address += 24
        add_sectors(replay_state, site_index, _REQUESTED_COLUMN, sectors)
        l1 = replay_state.l1 + sm * replay_state.l1_sets * SET_BYTES
        if access_kind in (notes.LOAD_NOTE, notes.LOCAL_LOAD_NOTE, notes.LOCAL_STORE_NOTE):
            entry = find_entry(
                find_set(
                    l1,
                    replay_state.l1_sets,
                    replay_state.l1_inverse,
                    hash_line(line) >> replay_state.sampling_bits,
                ),
                line,
            )
            if entry < 0:
                entry = -entry
                store64(entry, line + 1)
                store64(entry + 8, 0)
            entry_state = load64(entry + 8)
            store64(entry + 8, entry_state | sectors)
            store64(entry + 16, replay_state.use_time)
            if access_kind == notes.LOCAL_STORE_NOTE:
                write_l2(replay_state, site_index, sm, line, sectors, store_bytes)
            else:
                add_sectors(replay_state, site_index, _L1_COLUMN, sectors)
                add_sectors(replay_state, site_index, _L1_HIT_COLUMN, sectors & entry_state)
                sectors = sectors & (15 - entry_state)
                if sectors:
                    sectors = keep_unmerged_sectors(replay_state, sm, line, sectors, note_time_ns)
                    if sectors:
                        read_l2(replay_state, site_index, sm, line, sectors)
        elif access_kind == notes.L1_BYPASS_NOTE:
            add_sectors(replay_state, site_index, _L1_COLUMN, sectors)
            read_l2(replay_state, site_index, sm, line, sectors)
        elif access_kind == notes.STORE_NOTE:
            if store_bytes >= FULL_SECTOR_BYTES:
                entry = find_entry(
                    find_set(
                        l1,
                        replay_state.l1_sets,
                        replay_state.l1_inverse,
                        hash_line(line) >> replay_state.sampling_bits,
                    ),
                    line,
                )
                if entry < 0:
                    entry = -entry
                    store64(entry, line + 1)
                    store64(entry + 8, 0)
                    store64(entry + 16, replay_state.use_time - replay_state.store_age)
                store64(entry + 8, load64(entry + 8) | sectors)
            write_l2(replay_state, site_index, sm, line, sectors, store_bytes)
        elif access_kind == notes.ATOMIC_NOTE:
            run_l2_atomics(replay_state, site_index, sm, line, sectors)


_FUNCTIONS = (
    hash_line,
    count_sectors,
    add_sectors,
    find_set,
    find_entry,
    find_home_part,
    find_l2_set,
    find_l2_entry,
    find_partial_sectors,
    write_back,
    add_store_to_state,
    write_back_oldest_partial,
    store_l2,
    read_l2,
    write_l2,
    run_l2_atomics,
    keep_unmerged_sectors,
    play_notes,
)
_ENTRY_FUNCTION_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
)


@functools.cache
def compile_replay() -> tuple[jit.LibraryCode, Callable[..., None]]:
    """Return the compiled function that replays memory accesses. The function is compiled only once."""
    library = jit.LibraryCode(translate(_FUNCTIONS, "play_notes", {}), "entry_of")
    return library, _ENTRY_FUNCTION_TYPE(library.address)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The numbers of sectors that each memory instruction accessed in a replay. The tuple `COLUMNS` contains
    the names of the columns.

    ``written_sectors`` counts sectors written to memory, ``completed_sectors`` sectors read from memory to
    complete partly stored ones.
    """

    sector_sums: npt.NDArray[np.int64]
    written_sectors: int
    completed_sectors: int


def pack_lines(
    line: npt.NDArray[np.int64], sectors: npt.NDArray[np.int64] | int, size_bytes: npt.NDArray[np.int64] | int
) -> npt.NDArray[np.int64]:
    """Pack cache lines, sectors and bytes per sector into the first integers of `replay` records."""
    return line << _LINE_BIT | size_bytes << _BYTES_BIT | sectors


def unpack_lines(packed_lines: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the cache line numbers in records that `pack_lines` has packed."""
    line: npt.NDArray[np.int64] = packed_lines[:, 0] >> _LINE_BIT
    return line


def replay(
    note_words: npt.NDArray[np.int64],
    access_kinds: npt.NDArray[np.int64],
    cache_sizes: CacheSizes,
    sm_count: int,
    sampling_ratio: int = 1,
    earlier_notes: npt.NDArray[np.int64] | None = None,
) -> ReplayResult:
    """Replay recorded accesses through the modelled caches, and return the numbers of sectors per
    instruction.

    Parameters
    ----------
    note_words
        Shape (notes, 3), in order of time: `packed_lines`, the SM times 2^32 with the instruction's number,
        and the time in nanoseconds.
    access_kinds
        Kind of each instruction (`notes`).
    cache_sizes
        Sizes of the caches.
    sm_count
        Number of SMs.
    sampling_ratio
        Number of lines of which one was recorded; the caches are smaller by this factor.
    earlier_notes
        Notes that filled L2 earlier, which are not counted; None: L2 is empty.
    """
    l1_sets = max(cache_sizes.l1_bytes // LINE_BYTES // L1_WAYS // sampling_ratio, 1)
    l2_sets = max(cache_sizes.l2_bytes // LINE_BYTES // cache_sizes.l2_parts // L2_WAYS // sampling_ratio, 1)
    l1 = np.zeros(sm_count * l1_sets * SET_BYTES, np.uint8)
    l2 = np.zeros(cache_sizes.l2_parts * l2_sets * SET_BYTES, np.uint8)
    merge_slots = np.zeros(sm_count * MERGE_SLOTS * MERGE_SLOT_BYTES, np.uint8)
    sector_sums = np.zeros((len(access_kinds), len(COLUMNS)), np.int64)
    note_words = np.ascontiguousarray(note_words)
    access_kinds = np.ascontiguousarray(access_kinds)
    replay_state = ReplayState()
    replay_state.access_kinds, replay_state.sector_sums, replay_state.sampling_bits = (
        access_kinds.ctypes.data,
        sector_sums.ctypes.data,
        sampling_ratio.bit_length() - 1,
    )
    replay_state.l1, replay_state.l1_sets, replay_state.l1_inverse = (
        l1.ctypes.data,
        l1_sets,
        _compute_inverse(l1_sets),
    )
    replay_state.l2, replay_state.l2_sets, replay_state.l2_inverse = (
        l2.ctypes.data,
        l2_sets,
        _compute_inverse(l2_sets),
    )
    replay_state.l2_part_count = cache_sizes.l2_parts
    merging_groups = np.arange(sm_count) // max(cache_sizes.merging_sms, 1)
    replay_state.merging_group_by_sm = merging_groups.ctypes.data if cache_sizes.merging_sms else 0
    l2_side_of_sm = np.arange(sm_count) // SMS_PER_L2_SIDE % cache_sizes.l2_parts
    replay_state.l2_side_by_sm = l2_side_of_sm.ctypes.data
    replay_state.merge_slots = merge_slots.ctypes.data
    replay_state.use_time = 1 << 40  # empty entries have 0
    replay_state.store_age = int(sm_count * l1_sets * L1_WAYS * STORE_AGE_SHARE)
    if earlier_notes is not None:
        earlier_notes = np.ascontiguousarray(earlier_notes)
        replay_state.notes, replay_state.note_count = earlier_notes.ctypes.data, len(earlier_notes)
        compile_replay()[1](get_struct_address(replay_state), 0, None, 0, None)
        for array in (l1, merge_slots, sector_sums):
            array[:] = 0
        replay_state.written_sectors = replay_state.completed_sectors = 0
    replay_state.notes, replay_state.note_count = note_words.ctypes.data, len(note_words)
    compile_replay()[1](get_struct_address(replay_state), 0, None, 0, None)
    return ReplayResult(sector_sums, replay_state.written_sectors, replay_state.completed_sectors)


def _compute_inverse(set_count: int) -> int:
    return -(-(1 << _INVERSE_BITS) // set_count)
