"""Columns that a virtual GPU's trace has beyond a real one's: values, stores, order, loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.kernel import WARP_SIZE

WORD_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWrites:
    """What a block's warps wrote to its shared memory. Columns have one row for each piece a step wrote.

    A piece has at most 8 bytes a lane; ``offset`` (bytes in shared memory) and ``value`` have one entry
    a lane, of which those in ``mask`` count. Rows, and the lanes of a row, are in the order in which
    they took effect. ``sequence`` is the step's place among all recorded steps and ``type_index`` tells
    the piece's PTX type in ``types``. ``final`` is the memory as it was when the block ended.
    """

    size_bytes: int
    sequence: npt.NDArray[np.int64]
    warp: npt.NDArray[np.int16]
    mask: npt.NDArray[np.uint32]
    offset: npt.NDArray[np.int32]
    width_bytes: npt.NDArray[np.int8]
    value: npt.NDArray[np.uint64]
    type_index: npt.NDArray[np.int16]
    types: tuple[str, ...]
    final: npt.NDArray[np.uint8] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of the source, and which instructions write it.

    ``kind`` tells how to read its bits, such as ``s32``; ``first_line`` to ``last_line`` is its scope.
    ``written_by`` are places in `WarpTrace.instruction` whose first result is always the variable's new
    value, proven for this launch by running the kernel compiled for debugging, too. It is empty where the
    compiler keeps the variable in no register of its own. ``function`` declares it.
    """

    name: str
    type: str
    kind: str
    first_line: int
    last_line: int
    written_by: tuple[int, ...] = ()
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDetail:
    """What else the steps of one warp did; `WarpTrace.value` is the first register each wrote.

    ``sequence`` is a step's place among the recorded steps of all warps and ``depth`` the depth of
    calls, 0 in the kernel itself. ``extra_`` columns have one row for each further register a step
    wrote (named in ``extra_register``, typed in ``extra_type``). ``stored_`` columns have one row for
    each piece of at most 8 bytes that a step wrote to memory: a store's value, or what an atomic left
    there. ``order`` is the place of every instruction in scheduling order; a row of ``loops`` is a
    loop's first place, where each iteration begins, and its last.
    """

    sequence: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int16]
    extra_step: npt.NDArray[np.int32]
    extra_name: npt.NDArray[np.int32]
    extra_value: npt.NDArray[np.uint64]
    extra_register: tuple[str, ...]
    extra_type: tuple[str, ...]
    stored_step: npt.NDArray[np.int32]
    stored_part: npt.NDArray[np.int16]
    stored_width_bytes: npt.NDArray[np.int8]
    stored_value: npt.NDArray[np.uint64]
    stored_type: tuple[str, ...]
    order: npt.NDArray[np.int32]
    loops: npt.NDArray[np.int32]
    shared: SharedWrites


def lanes_of(masks: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Lane masks as a table of booleans, ``[step, lane]``."""
    return (masks[:, None] >> np.arange(WARP_SIZE, dtype=np.uint32) & 1).astype(np.bool_)


class SharedEvents:
    """A block's shared memory after every step: for each 4-byte word its values in the order of time.

    Events are sorted by word, then by time: those of a word are ``word_events[word]`` to
    ``word_events[word + 1]``. ``bits`` is the word after the event, ``row`` the row in `SharedWrites`
    that it came from, and ``second`` tells the upper half of a piece of 8 bytes. ``moments`` are the
    sequence numbers that wrote; after n of them ``written_bytes[n]`` bytes are written, and the last one
    wrote ``changed_bytes[n]`` of them.
    """

    def __init__(self, shared: SharedWrites) -> None:
        self.shared = shared
        self.words = -(-shared.size_bytes // WORD_BYTES)
        row, lane = np.nonzero(lanes_of(shared.mask))
        offset = shared.offset[row, lane].astype(np.int64)
        width = shared.width_bytes[row].astype(np.int64)
        low = (offset % WORD_BYTES).astype(np.uint64)
        held = shared.value[row, lane] << np.uint64(8) * low
        mask = (np.uint64(1) << width.astype(np.uint64)) - np.uint64(1) << low
        # A piece of 8 bytes is an event of two words.
        long = np.flatnonzero(width > WORD_BYTES)
        piece = np.append(np.arange(row.size), long)
        second = np.repeat([0, 1], [row.size, long.size])
        word = offset[piece] // WORD_BYTES + second
        order = np.lexsort((piece, word))
        order = order[word[order] < self.words]
        piece = piece[order]
        self.second = second[order]
        self.word = word[order]
        self.row = row[piece]
        self.lane = lane[piece]
        half = 8 * WORD_BYTES * self.second.astype(np.uint64)
        held = held[piece] >> half
        mask = mask[piece] >> np.uint64(WORD_BYTES) * (self.second > 0)
        self.word_events = np.searchsorted(self.word, np.arange(self.words + 1))
        self.moments, moment = np.unique(shared.sequence, return_inverse=True)
        self._moment = moment[self.row] + 1
        self._play(held, mask)

    def _play(self, held: npt.NDArray[np.uint64], mask: npt.NDArray[np.uint64]) -> None:
        """Each byte of an event is its own or the last one before in its word; count what is new."""
        self.bits = np.zeros(held.size, np.uint32)
        first = self.word_events[self.word]
        here = np.arange(held.size)
        new, changed = np.zeros((2, self.moments.size + 1), np.int64)
        for byte in range(WORD_BYTES):
            wrote = (mask >> np.uint64(byte) & np.uint64(1)).astype(np.bool_)
            last = np.maximum.accumulate(np.where(wrote, here, -1))
            shift = np.uint64(8 * byte)
            value = np.where(last >= first, held[last] >> shift & np.uint64(255), np.uint64(255))
            self.bits |= (value << shift).astype(np.uint32)
            word = self.word[wrote]
            moment = self._moment[wrote]
            fresh = np.diff(word, prepend=-1) > 0
            new += np.bincount(moment[fresh], minlength=new.size)
            changed += np.bincount(moment[fresh | (np.diff(moment, prepend=-1) != 0)], minlength=new.size)
        self.written_bytes = np.cumsum(new)
        self.changed_bytes = changed

    def moments_until(self, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many moments there are up to each of these places in the block's order."""
        return np.searchsorted(self.moments, sequence, side="right")
