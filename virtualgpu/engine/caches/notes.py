"""Accesses of a launch, noted as they happen: which lines of 128 bytes, by which warp, and when in its block.

A note is three words: the line and the sectors of it that are asked for, the warp, and the instruction with
the time. Where a launch makes more accesses than fit, only those to a part of all lines are kept, half of
them each time that the room runs out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.compiled import (
    address_of,
    load64,
    lowest,
    store64,
    struct,
    struct_at,
    translate,
)
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.machine import jit

ROOM = 1 << 21  # notes
NOTE_BYTES = 24
# What is done at an instruction; generic addresses may be of any space.
IGNORED = 0
LOAD = 1
STORE = 2
ATOMIC = 3
PAST_L1 = 4
CONSTANT = 5
LOCAL = 8  # added to it
LOAD_LOCAL = LOAD + LOCAL
STORE_LOCAL = STORE + LOCAL
# A note's first word: the line from `LINE_SHIFT` on, bytes in each sector, what is local, sectors.
LINE_SHIFT = 11
BYTES_SHIFT = 5
LOCAL_BIT = 16
FOUND_BYTES = 24
SITE_SHIFT = 40
SITE_WORDS = 4  # what is done, bytes a lane, requests and passes of constant accesses

_LEAST_PART = 1023
_TAG = 56
SHARED = 1
_OFFSET = (1 << 56) - 1


class Context:
    """Of the engine's context block, the fields that are read here."""

    frames: int
    frame_stride: int
    block_linear: int
    warp: int
    warps: int
    clock: int
    l1_base: int
    watched: int


@struct
class Notes:
    """Where notes go, and where the warp that runs stands."""

    first: int
    next: int
    end: int
    closed: int  # no more notes are taken than there is room for
    part: int  # of a line's hash, the bits that must be 0
    sites: int
    found: int  # lines of one access, with their sectors and bytes
    block: int
    warp: int
    work: int
    base: int
    now: int
    same: int


def scrambled(line: int) -> int:
    """Another order of lines, in which neither neighbours nor lines of one column share the last bits."""
    return line ^ (line >> 5) ^ (line >> 11) ^ (line >> 17)


def kept(line: int, part: int) -> int:
    """Whether a line is among those that are modelled: some sets of each cache, and these whole."""
    return scrambled(line) & part == 0


def each(size: int, sectors: int) -> int:
    """Bytes in each of some sectors, at most 32."""
    count = (sectors & 1) + ((sectors >> 1) & 1) + ((sectors >> 2) & 1) + ((sectors >> 3) & 1)
    if size >= 32 * count:
        return 32
    if count == 4:
        return size >> 2
    if count == 3:
        return (size * 21846) >> 16
    return size >> (count - 1)


def note(c: Context, number: int, lanes: int, mask: int, values: int) -> None:
    """An access of the lanes of a warp."""
    if number < 0:
        return
    g = struct_at(Notes, c.watched)
    site = g.sites + 8 * SITE_WORDS * number
    what = load64(site)
    if what == IGNORED or mask == 0:
        return
    size = load64(site + 8)
    work = load64(c.frames + c.warp * c.frame_stride + layout.WORK_OFFSET)
    if g.block != c.block_linear or g.warp != c.warp or g.work != work:
        g.block = c.block_linear
        g.warp = c.warp
        g.work = work
        g.base = work - c.clock
        g.now = -1
    if g.now == c.clock:
        g.same += 1
    else:
        g.now = c.clock
        g.same = 0
    time = g.base + c.clock + g.same
    count = 0
    line = -1
    slot = 0
    rest = mask
    while rest:
        lane = lowest(rest)
        rest = rest & (rest - 1)
        address = load64(lanes + 8 * lane)
        tag = (address >> _TAG) & 255
        if tag == SHARED:
            continue
        if what == CONSTANT:
            here = address
            bit = 1
        elif tag or what & LOCAL:
            step = size
            if step < 4:
                step = 4
            address = ((address & _OFFSET) >> 2) * 128 + lane * step
            here = ((address >> 7) << LINE_SHIFT) | LOCAL_BIT
            bit = 1 << ((address >> 5) & 3)
        else:
            address = address - c.l1_base
            here = (address >> 7) << LINE_SHIFT
            bit = 1 << ((address >> 5) & 3)
        if here != line:
            line = here
            place = 0
            while place < count and load64(g.found + FOUND_BYTES * place) != here:
                place += 1
            slot = g.found + FOUND_BYTES * place
            if place == count:
                store64(slot, here)
                store64(slot + 8, 0)
                store64(slot + 16, 0)
                count += 1
        store64(slot + 8, load64(slot + 8) | bit)
        store64(slot + 16, load64(slot + 16) + size)
    if count == 0:
        return
    if what == CONSTANT:
        store64(site + 16, load64(site + 16) + 1)
        store64(site + 24, load64(site + 24) + count)
        return
    place = 0
    warp = c.block_linear * c.warps + c.warp
    while place < count:
        slot = g.found + FOUND_BYTES * place
        here = load64(slot)
        sectors = load64(slot + 8)
        if kept(here >> LINE_SHIFT, g.part):
            if g.next == g.end:
                halve(g)
            if g.next < g.end and kept(here >> LINE_SHIFT, g.part):
                store64(g.next, here | (each(load64(slot + 16), sectors) << BYTES_SHIFT) | sectors)
                store64(g.next + 8, warp)
                store64(g.next + 16, (number << SITE_SHIFT) | time)
                g.next += NOTE_BYTES
        place += 1


def halve(g: Notes) -> None:
    """Keep the notes of every other line, until there is room; of too few lines for that, take no more."""
    while g.end - g.next < (g.end - g.first) >> 2 and g.closed == 0:
        g.part = g.part * 2 + 1
        source = g.first
        target = g.first
        while source < g.next:
            if kept(load64(source) >> LINE_SHIFT, g.part):
                store64(target, load64(source))
                store64(target + 8, load64(source + 8))
                store64(target + 16, load64(source + 16))
                target += NOTE_BYTES
            source += NOTE_BYTES
        g.next = target
        if source - target < (source - g.first) >> 3 or g.part >= _LEAST_PART:
            g.closed = 1


@functools.cache
def observer() -> jit.Library:
    """The compiled function that the engine calls."""
    functions: list[Callable[..., object]] = [scrambled, kept, each, note, halve]
    return jit.Library(translate(functions, "note", {"Context": layout.CONTEXT}), "entry_of")


class AccessNotes:
    """An observer of one launch that notes its accesses to global, local and constant memory.

    Parameters
    ----------
    accesses
        The kernel's memory instructions, by number.
    room
        Notes that are kept.
    """

    def __init__(self, accesses: Sequence[ir.Instruction], room: int = ROOM) -> None:
        self._notes = np.empty((room, 3), np.int64)
        self._sites = np.array(
            [(_what(i), memory_ops.size_of(i), 0, 0) for i in accesses] or [(0, 0, 0, 0)], np.int64
        )
        self._found = np.zeros((layout.LANES + 1, FOUND_BYTES // 8), np.int64)
        self._state = state = Notes()
        state.first = state.next = self._notes.ctypes.data
        state.end = state.first + self._notes.nbytes
        state.sites = self._sites.ctypes.data
        state.found = self._found.ctypes.data
        state.block = state.warp = state.work = -1

    def watch(self, _ask: int) -> tuple[int, int]:
        return observer().address, address_of(self._state)

    def access(self, *_: Any) -> bool:
        return False

    def asked(self, *_: Any) -> None:
        pass

    shuffle = barrier = wait = arrive = asked

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The notes, shape (notes, 3)."""
        return self._notes[: (self._state.next - self._state.first) // NOTE_BYTES]

    @property
    def one_in(self) -> int:
        """One line in so many is among them."""
        return self._state.part + 1

    @property
    def is_cut(self) -> bool:
        """Whether some are missing at the end, since a few lines made too many of them."""
        return bool(self._state.closed)

    @property
    def sites(self) -> npt.NDArray[np.int64]:
        """What each instruction does, its bytes a lane, requests and passes of constant memory."""
        return self._sites


def _what(i: ir.Instruction) -> int:
    space = memory_ops.space_of(i)
    kind = memory_ops.kind_of(i)
    if space == "shared":
        return IGNORED
    if space == "const":
        return CONSTANT
    local = LOCAL if space == "local" else 0
    if kind == "atomic":
        return ATOMIC
    if kind == "store":
        return STORE + local
    past = not local and ({"cg", "cv", "volatile", "relaxed", "acquire"} & set(i.parts) or _copies_past_l1(i))
    return PAST_L1 if past else LOAD + local


def _copies_past_l1(i: ir.Instruction) -> bool:
    """Whether it is the load of an asynchronous copy that leaves L1 out."""
    return "cp.async.cg" in i.text or "cp.async.bulk" in i.text
