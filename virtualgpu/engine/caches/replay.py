"""Noted accesses played through caches: an L1 for each SM, L2 in parts that copy each other's lines.

Caches hold lines of 128 bytes by sectors of 32, and give up the line of a set that was used longest ago. What
is said of hardware here was read off an H200's counters (``tests/counters/data/h200_caches.json``). Functions
are compiled (`virtualgpu.engine.ir.compiled`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.caches import notes
from virtualgpu.engine.caches.notes import scrambled
from virtualgpu.engine.ir.compiled import address_of, load64, store64, struct, translate
from virtualgpu.engine.machine import jit
from virtualgpu.model.caches.geometry import CacheSizes
from virtualgpu.records.kernel import LINE_BYTES

L1_WAYS = 16
L2_WAYS = 16
# An entry: its line plus 1 (0: none); sectors that are there, those that memory does not have yet, and how
# many bytes were stored to each that is not there; its last use.
ENTRY_BYTES = 24
DIRTY = 4
STORED = 8
STORED_BITS = 6
FULL = 32
SET_BYTES = 16 * ENTRY_BYTES
# Lines of a set that memory need not have: of whatever is stored, 736,000 sectors (3/8 of L2) stay.
DIRTY_WAYS = 6
# A line that a store brings to L1 counts as used before, by this share of as many accesses as L1 has lines.
STORES_AGED = 1.0
# Pieces of 64 bytes in a set with sectors that were stored in part: the others are completed and written.
PARTIAL_PIECES = 4
# Requests of neighbouring SMs for the same sectors become one, if they come within so many nanoseconds.
MERGE_NS = 300
MERGE_SLOTS = 256
SLOT_BYTES = 16
SIDE_SMS = 6  # SMs that take up blocks one after another and lie beside the same part of L2
# What is counted for each instruction.
COLUMNS = ("asked", "l1", "l1_hit", "l2", "l2_hit", "far", "far_hit", "dram")
SITE_BYTES = 8 * len(COLUMNS)
_ASKED, _L1, _L1_HIT, _L2, _L2_HIT, _FAR, _FAR_HIT, _DRAM = range(0, SITE_BYTES, 8)
_WORD = 0xFFFFFFFF
_LINE = 10
_BYTES = 4
_NUMBER_BITS = 24
_INVERSE_BITS = 36


@struct
class Player:
    """Notes in the order of their times, three words each; the caches; what is counted."""

    notes: int
    count: int
    whats: int
    sums: int
    level: int  # each 1 << level-th line was noted
    l1: int
    l1_sets: int
    l1_inverse: int
    l2: int
    l2_sets: int
    l2_inverse: int
    parts: int
    sides: int  # by SM, the part of L2 beside it
    merges: int
    stores_aged: int  # how long ago a line seems to have been used that a store brings to L1
    groups: int  # by SM, with which others its requests become one; 0: with none
    written: int  # sectors to memory
    completed: int  # sectors from memory, for those that were stored in part
    now: int


def ones(sectors: int) -> int:
    """How many of four sectors."""
    return (sectors & 1) + ((sectors >> 1) & 1) + ((sectors >> 2) & 1) + ((sectors >> 3) & 1)


def bump(p: Player, site: int, column: int, sectors: int) -> None:
    """Count sectors for an instruction."""
    place = p.sums + site * SITE_BYTES + column
    store64(place, load64(place) + ones(sectors))


def set_at(base: int, sets: int, inverse: int, number: int) -> int:
    """The set of a line with some number: its remainder."""
    number = (number ^ (number >> _NUMBER_BITS)) & ((1 << _NUMBER_BITS) - 1)
    number = number - ((number * inverse) >> _INVERSE_BITS) * sets
    if number < 0:
        number += sets
    return base + number * SET_BYTES


def find(first: int, line: int) -> int:
    """The entry of a set that holds a line, or minus the one that it is to replace."""
    entry = first
    end = entry + SET_BYTES
    oldest = entry
    since = load64(entry + 16)
    while entry < end:
        if load64(entry) == line + 1:
            return entry
        if load64(entry + 16) < since:
            oldest = entry
            since = load64(entry + 16)
        entry += ENTRY_BYTES
    return -oldest


def home_of(p: Player, line: int) -> int:
    """The part of L2 that is next to a line's memory."""
    if p.parts == 1:
        return 0
    mixed = scrambled(line) >> p.level
    return (mixed ^ (mixed >> 1) ^ (mixed >> 6) ^ (mixed >> 13)) & 1


def l2_set(p: Player, part: int, line: int) -> int:
    """The set of a part of L2 for a line."""
    number = scrambled(line) >> p.level
    if p.parts == 2:
        number = number >> 1
    return set_at(p.l2 + part * p.l2_sets * SET_BYTES, p.l2_sets, p.l2_inverse, number)


def at_l2(p: Player, first: int, line: int) -> int:
    """The entry of a set of L2 for a line, which may be new to it; then what was there is written."""
    entry = find(first, line)
    if entry < 0:
        entry = -entry
        clean(p, entry)
        store64(entry, line + 1)
        store64(entry + 8, 0)
    store64(entry + 16, p.now)
    return entry


def partial(state: int) -> int:
    """Sectors that were stored in part, and are not there else."""
    return (state >> DIRTY) & 15 & ~state


def clean(p: Player, entry: int) -> None:
    """Write an entry's sectors that memory lacks; those that were stored in part have to be read first."""
    state = load64(entry + 8)
    p.written += ones(state >> DIRTY)
    p.completed += ones(partial(state))
    store64(entry + 8, (state | partial(state)) & 15)


def stored(state: int, sectors: int, size: int) -> int:
    """A state after some bytes were stored to each of some sectors: those that are whole are there."""
    if size >= FULL:
        return state | sectors
    one = 0
    while one < 4:
        if (sectors >> one) & 1 and (state >> one) & 1 == 0:
            shift = STORED + STORED_BITS * one
            total = ((state >> shift) & 63) + size
            if total >= FULL:
                state = state | (1 << one)
                total = 0
            state = (state & ~(63 << shift)) | (total << shift)
        one += 1
    return state


def complete(p: Player, first: int, entry: int) -> None:
    """Of too many pieces in a set that were stored in part, write the oldest line's."""
    pieces = 0
    oldest = 0
    since = 0
    one = first
    while one < first + SET_BYTES:
        missing = partial(load64(one + 8))
        if missing:
            pieces += (missing & 3) != 0
            pieces += (missing & 12) != 0
            if one != entry and (oldest == 0 or load64(one + 16) < since):
                oldest = one
                since = load64(one + 16)
        one += ENTRY_BYTES
    if pieces > PARTIAL_PIECES and oldest:
        clean(p, oldest)


def soil(p: Player, first: int, entry: int, sectors: int, size: int) -> None:
    """Store to an entry of L2; of too many lines in its set that memory lacks, the oldest is written."""
    state = load64(entry + 8)
    if (state >> DIRTY) & 15 == 0:
        count = 0
        oldest = 0
        since = 0
        one = first
        while one < first + SET_BYTES:
            if (load64(one + 8) >> DIRTY) & 15:
                count += 1
                if oldest == 0 or load64(one + 16) < since:
                    oldest = one
                    since = load64(one + 16)
            one += ENTRY_BYTES
        if count >= DIRTY_WAYS:
            clean(p, oldest)
    state = stored(state, sectors, size) | (sectors << DIRTY)
    store64(entry + 8, state)
    if partial(state):
        complete(p, first, entry)


def read_l2(p: Player, site: int, sm: int, line: int, sectors: int) -> None:
    """Sectors that an SM asks the part of L2 beside it for."""
    part = load64(p.sides + 8 * sm)
    near = at_l2(p, l2_set(p, part, line), line)
    there = load64(near + 8)
    bump(p, site, _L2, sectors)
    bump(p, site, _L2_HIT, sectors & there)
    missed = sectors & (15 - (there & 15))
    if missed == 0:
        return
    # Memory gives 64 bytes at a time.
    pairs = missed | ((missed & 5) << 1) | ((missed & 10) >> 1)
    home = home_of(p, line)
    if home != part:
        far = at_l2(p, l2_set(p, home, line), line)
        there = load64(far + 8)
        bump(p, site, _FAR, pairs)
        bump(p, site, _FAR_HIT, pairs & there)
        missed = missed & (15 - (there & 15))
        fetched = (missed | ((missed & 5) << 1) | ((missed & 10) >> 1)) & (15 - (there & 15))
        store64(far + 8, there | fetched)
        bump(p, site, _DRAM, fetched)
    else:
        bump(p, site, _DRAM, pairs & (15 - (there & 15)))
    store64(near + 8, load64(near + 8) | pairs)


def write_l2(p: Player, site: int, sm: int, line: int, sectors: int, size: int) -> None:
    """Sectors that an SM stores to: the part beside it keeps them, and that at home has to write them."""
    part = load64(p.sides + 8 * sm)
    bump(p, site, _L2, sectors)
    bump(p, site, _L2_HIT, sectors)
    home = home_of(p, line)
    if home != part:
        bump(p, site, _FAR, sectors)
        bump(p, site, _FAR_HIT, sectors)
        near = at_l2(p, l2_set(p, part, line), line)
        store64(near + 8, stored(load64(near + 8), sectors, size))
    first = l2_set(p, home, line)
    soil(p, first, at_l2(p, first, line), sectors, size)


def change_l2(p: Player, site: int, sm: int, line: int, sectors: int) -> None:
    """Sectors that an SM changes by atomics: done at home; the part beside the SM only passes them on."""
    home = home_of(p, line)
    first = l2_set(p, home, line)
    entry = at_l2(p, first, line)
    there = load64(entry + 8)
    bump(p, site, _L2, sectors)
    if home == load64(p.sides + 8 * sm):
        bump(p, site, _L2_HIT, sectors & there)
    else:
        bump(p, site, _L2_HIT, sectors)
        bump(p, site, _FAR, sectors)
        bump(p, site, _FAR_HIT, sectors & there)
    missed = sectors & (15 - (there & 15))
    fetched = (missed | ((missed & 5) << 1) | ((missed & 10) >> 1)) & (15 - (there & 15))
    bump(p, site, _DRAM, fetched)
    store64(entry + 8, there | fetched)
    soil(p, first, entry, sectors, FULL)


def merged(p: Player, sm: int, line: int, sectors: int, time: int) -> int:
    """What remains of a request for sectors that neighbours have not just asked for."""
    if p.groups == 0:
        return sectors
    slot = (
        p.merges
        + (load64(p.groups + 8 * sm) * MERGE_SLOTS + (scrambled(line) & (MERGE_SLOTS - 1))) * SLOT_BYTES
    )
    if load64(slot) == line * 16 + sectors and time - load64(slot + 8) < MERGE_NS:
        return 0
    store64(slot, line * 16 + sectors)
    store64(slot + 8, time)
    return sectors


def play(p: Player, number: int, lanes: int, mask: int, values: int) -> None:
    """All notes, one after another."""
    note = p.notes
    end = note + 24 * p.count
    while note < end:
        p.now += 1
        line = load64(note) >> _LINE
        sectors = load64(note) & 15
        size = (load64(note) >> _BYTES) & 63
        site = load64(note + 8) & _WORD
        sm = load64(note + 8) >> 32
        time = load64(note + 16)
        what = load64(p.whats + 8 * site)
        note += 24
        bump(p, site, _ASKED, sectors)
        l1 = p.l1 + sm * p.l1_sets * SET_BYTES
        if what in (notes.LOAD, notes.LOAD_LOCAL, notes.STORE_LOCAL):
            entry = find(set_at(l1, p.l1_sets, p.l1_inverse, scrambled(line) >> p.level), line)
            if entry < 0:
                entry = -entry
                store64(entry, line + 1)
                store64(entry + 8, 0)
            there = load64(entry + 8)
            store64(entry + 8, there | sectors)
            store64(entry + 16, p.now)
            if what == notes.STORE_LOCAL:
                write_l2(p, site, sm, line, sectors, size)
            else:
                bump(p, site, _L1, sectors)
                bump(p, site, _L1_HIT, sectors & there)
                sectors = sectors & (15 - there)
                if sectors:
                    sectors = merged(p, sm, line, sectors, time)
                    if sectors:
                        read_l2(p, site, sm, line, sectors)
        elif what == notes.PAST_L1:
            bump(p, site, _L1, sectors)
            read_l2(p, site, sm, line, sectors)
        elif what == notes.STORE:
            if size >= FULL:
                entry = find(set_at(l1, p.l1_sets, p.l1_inverse, scrambled(line) >> p.level), line)
                if entry < 0:
                    entry = -entry
                    store64(entry, line + 1)
                    store64(entry + 8, 0)
                    store64(entry + 16, p.now - p.stores_aged)
                store64(entry + 8, load64(entry + 8) | sectors)
            write_l2(p, site, sm, line, sectors, size)
        elif what == notes.ATOMIC:
            change_l2(p, site, sm, line, sectors)


_FUNCTIONS = (
    scrambled,
    ones,
    bump,
    set_at,
    find,
    home_of,
    l2_set,
    at_l2,
    partial,
    clean,
    stored,
    complete,
    soil,
    read_l2,
    write_l2,
    change_l2,
    merged,
    play,
)
_ENTRY = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
)


@functools.cache
def player() -> tuple[jit.Library, Callable[..., None]]:
    """The compiled function that plays notes; its machine code is kept with it."""
    library = jit.Library(translate(_FUNCTIONS, "play", {}), "entry_of")
    return library, _ENTRY(library.address)


@dataclass(frozen=True, slots=True)
class Played:
    """Sectors by instruction, one column of `COLUMNS` each.

    Also those that went to memory, and those that came from there since they had been stored in part.
    """

    sums: npt.NDArray[np.int64]
    written: int
    completed: int


def packed_lines(
    line: npt.NDArray[np.int64], sectors: npt.NDArray[np.int64] | int, size_bytes: npt.NDArray[np.int64] | int
) -> npt.NDArray[np.int64]:
    """First words for `replay`: lines, sectors of them, and how many bytes of each sector."""
    return line << _LINE | size_bytes << _BYTES | sectors


def line_of(packed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The lines of notes as `replay` takes them."""
    line: npt.NDArray[np.int64] = packed[:, 0] >> _LINE
    return line


def replay(
    packed: npt.NDArray[np.int64],
    whats: npt.NDArray[np.int64],
    sizes: CacheSizes,
    sm_count: int,
    one_in: int = 1,
    before: npt.NDArray[np.int64] | None = None,
) -> Played:
    """Play notes through caches.

    Parameters
    ----------
    packed
        Shape (notes, 3), in order of time: `packed_lines`, the SM times 2^32 with the instruction's number,
        and the time in nanoseconds.
    whats
        What each instruction does (`notes`).
    sizes
        The caches.
    sm_count
        SMs.
    one_in
        One line in so many was noted; the caches are as much smaller.
    before
        Notes of what filled L2 before, which are not counted; None: it is empty.
    """
    l1_sets = max(sizes.l1_bytes // LINE_BYTES // L1_WAYS // one_in, 1)
    l2_sets = max(sizes.l2_bytes // LINE_BYTES // sizes.l2_parts // L2_WAYS // one_in, 1)
    l1 = np.zeros(sm_count * l1_sets * SET_BYTES, np.uint8)
    l2 = np.zeros(sizes.l2_parts * l2_sets * SET_BYTES, np.uint8)
    merges = np.zeros(sm_count * MERGE_SLOTS * SLOT_BYTES, np.uint8)
    sums = np.zeros((len(whats), len(COLUMNS)), np.int64)
    packed = np.ascontiguousarray(packed)
    whats = np.ascontiguousarray(whats)
    state = Player()
    state.whats, state.sums, state.level = whats.ctypes.data, sums.ctypes.data, one_in.bit_length() - 1
    state.l1, state.l1_sets, state.l1_inverse = l1.ctypes.data, l1_sets, _inverse(l1_sets)
    state.l2, state.l2_sets, state.l2_inverse = l2.ctypes.data, l2_sets, _inverse(l2_sets)
    state.parts = sizes.l2_parts
    groups = np.arange(sm_count) // max(sizes.merging_sms, 1)
    state.groups = groups.ctypes.data if sizes.merging_sms else 0
    sides = np.arange(sm_count) // SIDE_SMS % sizes.l2_parts
    state.sides = sides.ctypes.data
    state.merges = merges.ctypes.data
    state.now = 1 << 40  # what is empty has 0
    state.stores_aged = int(sm_count * l1_sets * L1_WAYS * STORES_AGED)
    if before is not None:
        before = np.ascontiguousarray(before)
        state.notes, state.count = before.ctypes.data, len(before)
        player()[1](address_of(state), 0, None, 0, None)
        for array in (l1, merges, sums):
            array[:] = 0
        state.written = state.completed = 0
    state.notes, state.count = packed.ctypes.data, len(packed)
    player()[1](address_of(state), 0, None, 0, None)
    return Played(sums, state.written, state.completed)


def _inverse(sets: int) -> int:
    return -(-(1 << _INVERSE_BITS) // sets)
