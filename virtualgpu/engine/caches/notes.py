"""Record the memory accesses of a kernel launch: the cache line, the warp and the time of each access.

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
    find_lowest_bit,
    get_struct_address,
    load64,
    make_structure,
    store64,
    translate,
    view_struct,
)
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.machine import jit

NOTE_CAPACITY = 1 << 21  # notes
NOTE_BYTES = 24
# Kinds of instructions; generic addresses may be of any space.
IGNORED_NOTE = 0
LOAD_NOTE = 1
STORE_NOTE = 2
ATOMIC_NOTE = 3
L1_BYPASS_NOTE = 4
CONSTANT_NOTE = 5
LOCAL_FLAG = 8  # added to the kind
LOCAL_LOAD_NOTE = LOAD_NOTE + LOCAL_FLAG
LOCAL_STORE_NOTE = STORE_NOTE + LOCAL_FLAG
# A note's first word: the line from `LINE_SHIFT` on, bytes in each sector, the local bit, sectors.
LINE_SHIFT = 11
BYTES_SHIFT = 5
LOCAL_BIT = 16
LINE_ENTRY_BYTES = 24
SITE_SHIFT = 40
SITE_WORDS = 4  # kind, bytes per lane, requests and passes of constant accesses

_MAX_HASH_MASK = 1023
_TAG_SHIFT = 56
SHARED_TAG = 1
_OFFSET_MASK = (1 << 56) - 1


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


@make_structure
class Notes:
    """The state of the access recorder, such as its buffer and the current warp."""

    buffer_start: int
    next_note: int
    buffer_end: int
    is_full: int  # the buffer is full and cannot be thinned out
    hash_mask: int  # the bits of a line's hash that must be 0
    sites: int
    access_lines: int  # lines of one access, with their sectors and bytes
    block: int
    warp: int
    warp_work: int
    time_base: int
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


def count_sector_bytes(size: int, sectors: int) -> int:
    """Return the average number of bytes that an access requests from each of its sectors."""
    sector_count = (sectors & 1) + ((sectors >> 1) & 1) + ((sectors >> 2) & 1) + ((sectors >> 3) & 1)
    if size >= 32 * sector_count:
        return 32
    if sector_count == 4:
        return size >> 2
    if sector_count == 3:
        return (size * 21846) >> 16
    return size >> (sector_count - 1)


def record_access(context: Context, instruction_number: int, lanes: int, mask: int, values: int) -> None:
    """Record one memory access by the lanes of a warp."""
    if instruction_number < 0:
        return
    notes_state = view_struct(Notes, context.watched)
    site_address = notes_state.sites + 8 * SITE_WORDS * instruction_number
    access_kind = load64(site_address)
    if access_kind == IGNORED_NOTE or mask == 0:
        return
    bytes_per_lane = load64(site_address + 8)
    warp_work = load64(context.frames + context.warp * context.frame_stride + layout.INSTRUCTION_COUNT_OFFSET)
    if (
        notes_state.block != context.block_linear
        or notes_state.warp != context.warp
        or notes_state.warp_work != warp_work
    ):
        notes_state.block = context.block_linear
        notes_state.warp = context.warp
        notes_state.warp_work = warp_work
        notes_state.time_base = warp_work - context.clock
        notes_state.current_time = -1
    if notes_state.current_time == context.clock:
        notes_state.accesses_at_time += 1
    else:
        notes_state.current_time = context.clock
        notes_state.accesses_at_time = 0
    note_time = notes_state.time_base + context.clock + notes_state.accesses_at_time
    line_count = 0
    last_line = -1
    line_entry = 0
    remaining_lanes = mask
    while remaining_lanes:
        lane = find_lowest_bit(remaining_lanes)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        address = load64(lanes + 8 * lane)
        space_tag = (address >> _TAG_SHIFT) & 255
        if space_tag == SHARED_TAG:
            continue
        if access_kind == CONSTANT_NOTE:
            first_word = address
            sector_bit = 1
        elif space_tag or access_kind & LOCAL_FLAG:
            lane_stride = bytes_per_lane
            if lane_stride < 4:
                lane_stride = 4
            address = ((address & _OFFSET_MASK) >> 2) * 128 + lane * lane_stride
            first_word = ((address >> 7) << LINE_SHIFT) | LOCAL_BIT
            sector_bit = 1 << ((address >> 5) & 3)
        else:
            address = address - context.l1_base
            first_word = (address >> 7) << LINE_SHIFT
            sector_bit = 1 << ((address >> 5) & 3)
        if first_word != last_line:
            last_line = first_word
            line_index = 0
            while (
                line_index < line_count
                and load64(notes_state.access_lines + LINE_ENTRY_BYTES * line_index) != first_word
            ):
                line_index += 1
            line_entry = notes_state.access_lines + LINE_ENTRY_BYTES * line_index
            if line_index == line_count:
                store64(line_entry, first_word)
                store64(line_entry + 8, 0)
                store64(line_entry + 16, 0)
                line_count += 1
        store64(line_entry + 8, load64(line_entry + 8) | sector_bit)
        store64(line_entry + 16, load64(line_entry + 16) + bytes_per_lane)
    if line_count == 0:
        return
    if access_kind == CONSTANT_NOTE:
        store64(site_address + 16, load64(site_address + 16) + 1)
        store64(site_address + 24, load64(site_address + 24) + line_count)
        return
    line_index = 0
    warp = context.block_linear * context.warps + context.warp
    while line_index < line_count:
        line_entry = notes_state.access_lines + LINE_ENTRY_BYTES * line_index
        first_word = load64(line_entry)
        sector_mask = load64(line_entry + 8)
        if is_sampled(first_word >> LINE_SHIFT, notes_state.hash_mask):
            if notes_state.next_note == notes_state.buffer_end:
                thin_out_notes(notes_state)
            if notes_state.next_note < notes_state.buffer_end and is_sampled(
                first_word >> LINE_SHIFT, notes_state.hash_mask
            ):
                store64(
                    notes_state.next_note,
                    first_word
                    | (count_sector_bytes(load64(line_entry + 16), sector_mask) << BYTES_SHIFT)
                    | sector_mask,
                )
                store64(notes_state.next_note + 8, warp)
                store64(notes_state.next_note + 16, (instruction_number << SITE_SHIFT) | note_time)
                notes_state.next_note += NOTE_BYTES
        line_index += 1


def thin_out_notes(state: Notes) -> None:
    """Discard the notes of every second cache line until a quarter of the buffer is free.

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
            or state.hash_mask >= _MAX_HASH_MASK
        ):
            state.is_full = 1


@functools.cache
def compile_observer() -> jit.LibraryCode:
    """Return the compiled function that the engine calls for each memory access."""
    functions: list[Callable[..., object]] = [
        hash_line,
        is_sampled,
        count_sector_bytes,
        record_access,
        thin_out_notes,
    ]
    return jit.LibraryCode(translate(functions, "record_access", {"Context": layout.CONTEXT}), "entry_of")


class AccessNotes:
    """An observer of a kernel launch that records accesses to global, local and constant memory.

    Parameters
    ----------
    accesses
        The kernel's memory instructions, by number.
    capacity
        Maximum number of notes.
    """

    def __init__(self, accesses: Sequence[ir.Instruction], capacity: int = NOTE_CAPACITY) -> None:
        self._notes = np.empty((capacity, 3), np.int64)
        self._sites = np.array(
            [
                (_find_note_kind(instruction), memory_ops.size_of(instruction), 0, 0)
                for instruction in accesses
            ]
            or [(0, 0, 0, 0)],
            np.int64,
        )
        self._lines = np.zeros((layout.LANES + 1, LINE_ENTRY_BYTES // 8), np.int64)
        self._state = state = Notes()
        state.buffer_start = state.next_note = self._notes.ctypes.data
        state.buffer_end = state.buffer_start + self._notes.nbytes
        state.sites = self._sites.ctypes.data
        state.access_lines = self._lines.ctypes.data
        state.block = state.warp = state.warp_work = -1

    def watch(self, _callback: int) -> tuple[int, int]:
        return compile_observer().address, get_struct_address(self._state)

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
    def sampling_ratio(self) -> int:
        """Sampling ratio n of the recorder, which records accesses to one in n cache lines."""
        return self._state.hash_mask + 1

    @property
    def is_truncated(self) -> bool:
        """Whether the recorder stopped early because its buffer was full."""
        return bool(self._state.is_full)

    @property
    def sites(self) -> npt.NDArray[np.int64]:
        """Table with the access type, bytes per lane and constant-memory counts of each memory
        instruction.
        """
        return self._sites


def _find_note_kind(instruction: ir.Instruction) -> int:
    space = memory_ops.space_of(instruction)
    access_kind = memory_ops.kind_of(instruction)
    if space == "shared":
        return IGNORED_NOTE
    if space == "const":
        return CONSTANT_NOTE
    local_flag = LOCAL_FLAG if space == "local" else 0
    if access_kind == "atomic":
        return ATOMIC_NOTE
    if access_kind == "store":
        return STORE_NOTE + local_flag
    bypasses_l1 = not local_flag and (
        {"cg", "cv", "volatile", "relaxed", "acquire"} & set(instruction.parts)
        or _copies_past_l1(instruction)
    )
    return L1_BYPASS_NOTE if bypasses_l1 else LOAD_NOTE + local_flag


def _copies_past_l1(instruction: ir.Instruction) -> bool:
    """Return whether an instruction is an asynchronous copy whose load bypasses L1."""
    return "cp.async.cg" in instruction.text or "cp.async.bulk" in instruction.text
