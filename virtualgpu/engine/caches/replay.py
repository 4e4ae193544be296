"""Noted accesses played through caches: an L1 for each SM, L2 in parts that copy each other's lines.

Caches hold lines of 128 bytes by sectors of 32, and give up the line of a set that was used longest ago.
Which set a line belongs to is a hash of it. Functions here are compiled (`virtualgpu.engine.ir.compiled`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.caches import notes
from virtualgpu.engine.ir.compiled import address_of, load64, store64, struct, translate
from virtualgpu.engine.run import jit
from virtualgpu.model.caches.geometry import LINE_BYTES, CacheSizes

L1_WAYS, L2_WAYS = 16, 16
# An entry: its line plus 1 (0: none), sectors that are there and those that memory does not have yet, its
# last use.
ENTRY_BYTES, DIRTY = 24, 4
FILL = 16  # besides what instructions do (`notes`): L2 gets a line that an earlier launch left there
# What is counted for each instruction.
COLUMNS = ("l1", "l1_hit", "l2", "l2_hit", "far", "far_hit", "dram")
SITE_BYTES = 8 * len(COLUMNS)
_L1, _L1_HIT, _L2, _L2_HIT, _FAR, _FAR_HIT, _DRAM = range(0, SITE_BYTES, 8)
_MIX, _WORD = 0xD6E8FEB86659FD93 - (1 << 64), 0xFFFFFFFF
# Set, and part of L2 that a line belongs to.
_SET_SHIFT, _HOME_SHIFT = 24, 60


@struct
class Player:
    """Notes in the order of their times, two words each; the caches; what is counted."""

    notes: int
    count: int
    site_count: int
    whats: int
    sums: int
    l1: int
    l1_sets: int
    l2: int
    l2_sets: int
    parts: int
    written: int  # sectors to memory
    now: int


def ones(sectors: int) -> int:
    """How many of four sectors."""
    return (sectors & 1) + ((sectors >> 1) & 1) + ((sectors >> 2) & 1) + ((sectors >> 3) & 1)


def bump(p: Player, site: int, column: int, sectors: int) -> None:
    """Count sectors for an instruction."""
    place = p.sums + site * SITE_BYTES + column
    store64(place, load64(place) + ones(sectors))


def find(base: int, sets: int, ways: int, line: int) -> int:
    """The entry that holds a line, or minus the one that it is to replace."""
    number = (((line * _MIX) >> _SET_SHIFT) & _WORD) * sets >> 32
    entry = base + number * ways * ENTRY_BYTES
    end = entry + ways * ENTRY_BYTES
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


def settle(p: Player, entry: int, line: int) -> int:
    """Give an entry of L2 to a line; what it held goes to memory if it has to."""
    p.written += ones(load64(entry + 8) >> DIRTY)
    store64(entry, line + 1)
    store64(entry + 8, 0)
    return entry


def home_of(p: Player, line: int) -> int:
    """The part of L2 that is next to a line's memory."""
    if p.parts == 1:
        return 0
    return ((line * _MIX) >> _HOME_SHIFT) & 1


def part_at(p: Player, part: int) -> int:
    """Where a part of L2 begins."""
    return p.l2 + part * p.l2_sets * L2_WAYS * ENTRY_BYTES


def read_l2(p: Player, site: int, part: int, line: int, sectors: int) -> None:
    """Sectors that an SM beside a part of L2 asks for."""
    near = find(part_at(p, part), p.l2_sets, L2_WAYS, line)
    if near < 0:
        near = settle(p, -near, line)
    there = load64(near + 8)
    bump(p, site, _L2, sectors)
    bump(p, site, _L2_HIT, sectors & there)
    store64(near + 8, there | sectors)
    store64(near + 16, p.now)
    missed = sectors & (15 - (there & 15))
    if missed == 0:
        return
    home = home_of(p, line)
    if home != part:
        far = find(part_at(p, home), p.l2_sets, L2_WAYS, line)
        if far < 0:
            far = settle(p, -far, line)
        there = load64(far + 8)
        bump(p, site, _FAR, missed)
        bump(p, site, _FAR_HIT, missed & there)
        store64(far + 8, there | missed)
        store64(far + 16, p.now)
        missed = missed & (15 - (there & 15))
    bump(p, site, _DRAM, missed)


def write_l2(p: Player, site: int, part: int, line: int, sectors: int) -> None:
    """Sectors that an SM beside a part of L2 stores to, or changes."""
    home = home_of(p, line)
    entry = find(part_at(p, home), p.l2_sets, L2_WAYS, line)
    if entry < 0:
        entry = settle(p, -entry, line)
    store64(entry + 8, load64(entry + 8) | sectors | (sectors << DIRTY))
    store64(entry + 16, p.now)
    bump(p, site, _L2, sectors)
    bump(p, site, _L2_HIT, sectors)
    if home != part:
        bump(p, site, _FAR, sectors)
        bump(p, site, _FAR_HIT, sectors)


def play(p: Player, number: int, lanes: int, mask: int, values: int) -> None:
    """All notes, one after another."""
    note = p.notes
    end = note + 16 * p.count
    l1_bytes = p.l1_sets * L1_WAYS * ENTRY_BYTES
    while note < end:
        p.now += 1
        line = load64(note) >> 4
        sectors = load64(note) & 15
        site = load64(note + 8) & _WORD
        sm = load64(note + 8) >> 32
        part = sm & (p.parts - 1)
        what = load64(p.whats + 8 * site)
        note += 16
        if what in (notes.LOAD, notes.LOAD_LOCAL, notes.STORE_LOCAL):
            entry = find(p.l1 + sm * l1_bytes, p.l1_sets, L1_WAYS, line)
            if entry < 0:
                entry = -entry
                store64(entry, line + 1)
                store64(entry + 8, 0)
            there = load64(entry + 8)
            store64(entry + 8, there | sectors)
            store64(entry + 16, p.now)
            bump(p, site, _L1, sectors)
            bump(p, site, _L1_HIT, sectors & there)
            if what == notes.STORE_LOCAL:
                write_l2(p, site, part, line, sectors)
            elif sectors & (15 - there):
                read_l2(p, site, part, line, sectors & (15 - there))
        elif what == notes.PAST_L1:
            bump(p, site, _L1, sectors)
            read_l2(p, site, part, line, sectors)
        elif what == notes.STORE:
            bump(p, site, _L1, sectors)
            write_l2(p, site, part, line, sectors)
        elif what == FILL:
            entry = find(part_at(p, home_of(p, line)), p.l2_sets, L2_WAYS, line)
            if entry < 0:
                entry = settle(p, -entry, line)
            store64(entry + 8, 15)
            store64(entry + 16, p.now)
        elif what == notes.ATOMIC:
            read_l2(p, site, home_of(p, line), line, sectors)
            entry = find(part_at(p, home_of(p, line)), p.l2_sets, L2_WAYS, line)
            store64(entry + 8, load64(entry + 8) | (sectors << DIRTY))


_FUNCTIONS = (ones, bump, find, settle, home_of, part_at, read_l2, write_l2, play)
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
    """Sectors by instruction, one column of `COLUMNS` each, and those that went to memory."""

    sums: npt.NDArray[np.int64]
    written: int


def replay(
    packed: npt.NDArray[np.int64],
    whats: npt.NDArray[np.int64],
    sizes: CacheSizes,
    sm_count: int,
    one_in: int = 1,
) -> Played:
    """Play notes through caches that are empty before.

    Parameters
    ----------
    packed
        Shape (notes, 2), in order of time: the line times 16 with its sectors, the SM times 2^32 with the
        instruction's number.
    whats
        What each instruction does (`notes`), or `FILL`.
    sizes
        The caches.
    sm_count
        SMs.
    one_in
        Each so manieth line was noted; the caches are as much smaller.
    """
    l1_sets = max(sizes.l1_bytes // LINE_BYTES // L1_WAYS // one_in, 1)
    l2_sets = max(sizes.l2_bytes // LINE_BYTES // sizes.l2_parts // L2_WAYS // one_in, 1)
    l1 = np.zeros(sm_count * l1_sets * L1_WAYS * ENTRY_BYTES, np.uint8)
    l2 = np.zeros(sizes.l2_parts * l2_sets * L2_WAYS * ENTRY_BYTES, np.uint8)
    sums = np.zeros((len(whats), len(COLUMNS)), np.int64)
    packed, whats = np.ascontiguousarray(packed), np.ascontiguousarray(whats)
    state = Player()
    state.notes, state.count = packed.ctypes.data, len(packed)
    state.whats, state.sums, state.site_count = whats.ctypes.data, sums.ctypes.data, len(whats)
    state.l1, state.l1_sets = l1.ctypes.data, l1_sets
    state.l2, state.l2_sets, state.parts = l2.ctypes.data, l2_sets, sizes.l2_parts
    player()[1](address_of(state), 0, None, 0, None)
    return Played(sums, state.written)
