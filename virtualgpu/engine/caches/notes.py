"""Recorder of a launch's memory accesses; for each it stores the cache line, the warp and the time.

A note is three words: the line and its requested sectors, the warp, and the instruction with the time. If a
launch makes more accesses than fit, only those to a part of all lines are kept: half of them each time that
the buffer is full.
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

CAPACITY = 1 << 21  # notes
NOTE_BYTES = 24
# Kinds of instructions; generic addresses may be of any space.
IGNORED = 0
LOAD = 1
STORE = 2
ATOMIC = 3
PAST_L1 = 4
CONSTANT = 5
LOCAL = 8  # added to the kind
LOAD_LOCAL = LOAD + LOCAL
STORE_LOCAL = STORE + LOCAL
# A note's first word: the line from `LINE_SHIFT` on, bytes in each sector, the local bit, sectors.
LINE_SHIFT = 11
BYTES_SHIFT = 5
LOCAL_BIT = 16
LINE_ENTRY_BYTES = 24
SITE_SHIFT = 40
SITE_WORDS = 4  # kind, bytes per lane, requests and passes of constant accesses

_MAX_PART = 1023
_TAG_SHIFT = 56
SHARED = 1
_OFFSET_BITS = (1 << 56) - 1


class Context:
    """The part of the engine's context block that the access recorder reads."""

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
    """The state of the access recorder, such as its buffer and the current warp."""

    buffer_start: int
    next_note: int
    buffer_end: int
    is_full: int  # the buffer is full and cannot be thinned out
    hash_mask: int  # the bits of a line's hash that must be 0
    sites: int
    lines: int  # lines of one access, with their sectors and bytes
    block: int
    warp: int
    work: int
    base: int
    current_time: int
    accesses_at_time: int


def hash_line(line: int) -> int:
    """Return the hash value of a cache line's number.

    The last bits of the hash differ for neighbouring lines and for lines of one matrix column.
    """
    return line ^ (line >> 5) ^ (line >> 11) ^ (line >> 17)


def is_sampled(line: int, hash_mask: int) -> int:
    """Return whether a cache line belongs to the sample of lines whose accesses are recorded.

    The sample contains all lines that belong to certain sets of each cache.
    """
    return hash_line(line) & hash_mask == 0


def bytes_per_sector(size: int, sectors: int) -> int:
    """Return the average number of bytes that an access requests from each of its sectors."""
    sector_count = (sectors & 1) + ((sectors >> 1) & 1) + ((sectors >> 2) & 1) + ((sectors >> 3) & 1)
    if size >= 32 * sector_count:
        return 32
    if sector_count == 4:
        return size >> 2
    if sector_count == 3:
        return (size * 21846) >> 16
    return size >> (sector_count - 1)


def note(context: Context, number: int, lanes: int, mask: int, values: int) -> None:
    """Record one memory access by the lanes of a warp."""
    if number < 0:
        return
    state = struct_at(Notes, context.watched)
    site = state.sites + 8 * SITE_WORDS * number
    access_kind = load64(site)
    if access_kind == IGNORED or mask == 0:
        return
    size = load64(site + 8)
    warp_work = load64(context.frames + context.warp * context.frame_stride + layout.WORK_OFFSET)
    if state.block != context.block_linear or state.warp != context.warp or state.work != warp_work:
        state.block = context.block_linear
        state.warp = context.warp
        state.work = warp_work
        state.base = warp_work - context.clock
        state.current_time = -1
    if state.current_time == context.clock:
        state.accesses_at_time += 1
    else:
        state.current_time = context.clock
        state.accesses_at_time = 0
    time = state.base + context.clock + state.accesses_at_time
    line_count = 0
    line = -1
    slot = 0
    remaining_lanes = mask
    while remaining_lanes:
        lane = lowest(remaining_lanes)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        address = load64(lanes + 8 * lane)
        tag = (address >> _TAG_SHIFT) & 255
        if tag == SHARED:
            continue
        if access_kind == CONSTANT:
            first_word = address
            bit = 1
        elif tag or access_kind & LOCAL:
            lane_stride = size
            if lane_stride < 4:
                lane_stride = 4
            address = ((address & _OFFSET_BITS) >> 2) * 128 + lane * lane_stride
            first_word = ((address >> 7) << LINE_SHIFT) | LOCAL_BIT
            bit = 1 << ((address >> 5) & 3)
        else:
            address = address - context.l1_base
            first_word = (address >> 7) << LINE_SHIFT
            bit = 1 << ((address >> 5) & 3)
        if first_word != line:
            line = first_word
            index = 0
            while index < line_count and load64(state.lines + LINE_ENTRY_BYTES * index) != first_word:
                index += 1
            slot = state.lines + LINE_ENTRY_BYTES * index
            if index == line_count:
                store64(slot, first_word)
                store64(slot + 8, 0)
                store64(slot + 16, 0)
                line_count += 1
        store64(slot + 8, load64(slot + 8) | bit)
        store64(slot + 16, load64(slot + 16) + size)
    if line_count == 0:
        return
    if access_kind == CONSTANT:
        store64(site + 16, load64(site + 16) + 1)
        store64(site + 24, load64(site + 24) + line_count)
        return
    index = 0
    warp = context.block_linear * context.warps + context.warp
    while index < line_count:
        slot = state.lines + LINE_ENTRY_BYTES * index
        first_word = load64(slot)
        sectors = load64(slot + 8)
        if is_sampled(first_word >> LINE_SHIFT, state.hash_mask):
            if state.next_note == state.buffer_end:
                halve(state)
            if state.next_note < state.buffer_end and is_sampled(first_word >> LINE_SHIFT, state.hash_mask):
                store64(
                    state.next_note,
                    first_word | (bytes_per_sector(load64(slot + 16), sectors) << BYTES_SHIFT) | sectors,
                )
                store64(state.next_note + 8, warp)
                store64(state.next_note + 16, (number << SITE_SHIFT) | time)
                state.next_note += NOTE_BYTES
        index += 1


def halve(state: Notes) -> None:
    """Discard the records of every second cache line until a quarter of the buffer is free.

    If too few lines are left, stop recording.
    """
    while (
        state.buffer_end - state.next_note < (state.buffer_end - state.buffer_start) >> 2
        and state.is_full == 0
    ):
        state.hash_mask = state.hash_mask * 2 + 1
        read_address = state.buffer_start
        write_address = state.buffer_start
        while read_address < state.next_note:
            if is_sampled(load64(read_address) >> LINE_SHIFT, state.hash_mask):
                store64(write_address, load64(read_address))
                store64(write_address + 8, load64(read_address + 8))
                store64(write_address + 16, load64(read_address + 16))
                write_address += NOTE_BYTES
            read_address += NOTE_BYTES
        state.next_note = write_address
        if (
            read_address - write_address < (read_address - state.buffer_start) >> 3
            or state.hash_mask >= _MAX_PART
        ):
            state.is_full = 1


@functools.cache
def observer() -> jit.LibraryCode:
    """Return the compiled function that the engine calls for each memory access."""
    functions: list[Callable[..., object]] = [hash_line, is_sampled, bytes_per_sector, note, halve]
    return jit.LibraryCode(translate(functions, "note", {"Context": layout.CONTEXT}), "entry_of")


class AccessNotes:
    """An observer of a kernel launch that records accesses to global, local and constant memory.

    Parameters
    ----------
    accesses
        The kernel's memory instructions, by number.
    room
        Maximum number of notes.
    """

    def __init__(self, accesses: Sequence[ir.Instruction], capacity: int = CAPACITY) -> None:
        self._notes = np.empty((capacity, 3), np.int64)
        self._sites = np.array(
            [(_kind_of(instruction), memory_ops.size_of(instruction), 0, 0) for instruction in accesses]
            or [(0, 0, 0, 0)],
            np.int64,
        )
        self._lines = np.zeros((layout.LANES + 1, LINE_ENTRY_BYTES // 8), np.int64)
        self._state = state = Notes()
        state.buffer_start = state.next_note = self._notes.ctypes.data
        state.buffer_end = state.buffer_start + self._notes.nbytes
        state.sites = self._sites.ctypes.data
        state.lines = self._lines.ctypes.data
        state.block = state.warp = state.work = -1

    def watch(self, _callback: int) -> tuple[int, int]:
        return observer().address, address_of(self._state)

    def access(self, *_: Any) -> bool:
        return False

    def custom_event(self, *_: Any) -> None:
        pass

    shuffle = custom_event
    barrier = custom_event
    wait = custom_event
    arrive = custom_event

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Recorded memory accesses as an array of shape (accesses, 3). Each row contains three 64-bit
        integers.
        """
        return self._notes[: (self._state.next_note - self._state.buffer_start) // NOTE_BYTES]

    @property
    def one_in(self) -> int:
        """Sampling ratio n of the recorder, which records accesses to one in n cache lines."""
        return self._state.hash_mask + 1

    @property
    def is_cut(self) -> bool:
        """Whether the recorder stopped early because its buffer was full."""
        return bool(self._state.is_full)

    @property
    def sites(self) -> npt.NDArray[np.int64]:
        """Table with the access type, bytes per lane and constant-memory counts of each memory
        instruction.
        """
        return self._sites


def _kind_of(instruction: ir.Instruction) -> int:
    space = memory_ops.space_of(instruction)
    access_kind = memory_ops.kind_of(instruction)
    if space == "shared":
        return IGNORED
    if space == "const":
        return CONSTANT
    local = LOCAL if space == "local" else 0
    if access_kind == "atomic":
        return ATOMIC
    if access_kind == "store":
        return STORE + local
    bypasses_l1 = not local and (
        {"cg", "cv", "volatile", "relaxed", "acquire"} & set(instruction.parts)
        or _copies_past_l1(instruction)
    )
    return PAST_L1 if bypasses_l1 else LOAD + local


def _copies_past_l1(instruction: ir.Instruction) -> bool:
    """Return whether an instruction is an asynchronous copy whose load bypasses L1."""
    return "cp.async.cg" in instruction.text or "cp.async.bulk" in instruction.text
