"""Additional columns of a virtual GPU's trace: values, stores, order and loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.kernel import WARP_SIZE

WORD_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWrites:
    """The writes of a block's warps to shared memory. Each row describes a part of a write with at most 8
    bytes per lane.

    A piece has at most 8 bytes per lane; ``offset`` (bytes in shared memory) and ``value`` have one entry per
    lane, and those in ``mask`` are valid. Rows, and the lanes of a row, are in the order in which they took
    effect. ``sequence`` is the step's position among all recorded steps and ``type_index`` the index of the
    piece's PTX type in ``types``. ``final`` is the memory at the end of the block.
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


SHARED_ACCESS_KINDS = ("load", "store", "atomic", "copy")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAccesses:
    """The accesses of a block's warps to shared memory. The table has one row for each request of a step.

    ``sequence`` is the step's position among all recorded steps, and rows are sorted by it. ``kind`` is an
    index into `SHARED_ACCESS_KINDS`. A copy is an asynchronous one to shared memory, at the step that starts
    it; its data are in `SharedWrites`, at the step that completes it. ``offset`` (bytes in shared memory) has
    32 entries per row, -1 where there is no access. Of a bulk copy, they belong to pieces of one lane's
    range.
    """

    sequence: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    width_bytes: npt.NDArray[np.int16]
    offset: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable in the source code, and the instructions that write it.

    The field ``kind`` is the format of the bits, such as ``s32``, and the scope consists of the lines from
    ``first_line`` to ``last_line``. ``written_by`` are indices into `WarpTrace.instruction` whose first
    result is always the variable's new value, proven for this launch by running the kernel compiled for
    debugging, too. It is empty if the variable has no register of its own. ``function`` declares it.
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
    """Additional data about the steps of one warp, such as the values of further registers that the steps
    wrote.

    The field ``sequence`` is the position of a step among the recorded steps of all warps, and ``depth`` is
    the call depth, which is 0 in the kernel itself. ``extra_`` columns have one row for each further register
    that a step wrote (named in ``extra_register``, typed in ``extra_type``). ``stored_`` columns have one row
    for each piece of at most 8 bytes that a step wrote to memory: a store's value, or the result of an
    atomic. ``order`` is the position of every instruction in scheduling order; a row of ``loops`` is a loop's
    first position, where each iteration begins, and its last. The same row of ``unroll_factors`` is the
    number of source iterations in one iteration of the compiled loop, proven for this launch; 0 if it is not
    known.
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
    unroll_factors: tuple[int, ...] = ()


def expand_lane_masks(masks: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Convert lane masks to a table of booleans with one row per step and one column per lane."""
    return (masks[:, None] >> np.arange(WARP_SIZE, dtype=np.uint32) & 1).astype(np.bool_)


class SharedEvents:
    """The changes of each 4-byte word of a block's shared memory, in the order of time.

    Events are sorted by word and then by time, and the events of a word are ``word_events[word]`` to
    ``word_events[word + 1]``. ``bits`` is the word after the event, ``row`` its row in `SharedWrites`, and
    ``second`` is true for the upper half of a piece of 8 bytes. ``moments`` are the sequence numbers that
    wrote; after n of them ``written_bytes[n]`` bytes are written, and the last one wrote ``changed_bytes[n]``
    of them.
    """

    def __init__(self, shared: SharedWrites) -> None:
        self.shared = shared
        self.words = -(-shared.size_bytes // WORD_BYTES)
        write_rows, write_lanes = np.nonzero(expand_lane_masks(shared.mask))
        byte_offsets = shared.offset[write_rows, write_lanes].astype(np.int64)
        width_bytes = shared.width_bytes[write_rows].astype(np.int64)
        byte_in_word = (byte_offsets % WORD_BYTES).astype(np.uint64)
        bits_in_word = shared.value[write_rows, write_lanes] << np.uint64(8) * byte_in_word
        byte_masks = (np.uint64(1) << width_bytes.astype(np.uint64)) - np.uint64(1) << byte_in_word
        # A piece of 8 bytes is an event of two words.
        long_pieces = np.flatnonzero(width_bytes > WORD_BYTES)
        piece_index = np.append(np.arange(write_rows.size), long_pieces)
        second_word = np.repeat([0, 1], [write_rows.size, long_pieces.size])
        word_index = byte_offsets[piece_index] // WORD_BYTES + second_word
        word_order = np.lexsort((piece_index, word_index))
        word_order = word_order[word_index[word_order] < self.words]
        piece_index = piece_index[word_order]
        self.second = second_word[word_order]
        self.word = word_index[word_order]
        self.row = write_rows[piece_index]
        self.lane = write_lanes[piece_index]
        half_bits = 8 * WORD_BYTES * self.second.astype(np.uint64)
        bits_in_word = bits_in_word[piece_index] >> half_bits
        byte_masks = byte_masks[piece_index] >> np.uint64(WORD_BYTES) * (self.second > 0)
        self.word_events = np.searchsorted(self.word, np.arange(self.words + 1))
        self.moments, moment_indices = np.unique(shared.sequence, return_inverse=True)
        self._moment_numbers = moment_indices[self.row] + 1
        self._compute_words(bits_in_word, byte_masks)

    def _compute_words(
        self, bits_in_word: npt.NDArray[np.uint64], byte_masks: npt.NDArray[np.uint64]
    ) -> None:
        """Compute the contents of the word after each event, and count the bytes that are new or changed."""
        self.bits = np.zeros(bits_in_word.size, np.uint32)
        first_events = self.word_events[self.word]
        event_indices = np.arange(bits_in_word.size)
        new_byte_counts = np.zeros(self.moments.size + 1, np.int64)
        change_counts = np.zeros(self.moments.size + 1, np.int64)
        for byte_index in range(WORD_BYTES):
            is_written = (byte_masks >> np.uint64(byte_index) & np.uint64(1)).astype(np.bool_)
            last_writers = np.maximum.accumulate(np.where(is_written, event_indices, -1))
            bit_shift = np.uint64(8 * byte_index)
            word_bits = np.where(
                last_writers >= first_events,
                bits_in_word[last_writers] >> bit_shift & np.uint64(255),
                np.uint64(255),
            )
            self.bits |= (word_bits << bit_shift).astype(np.uint32)
            word_index = self.word[is_written]
            moment_numbers = self._moment_numbers[is_written]
            is_new = np.diff(word_index, prepend=-1) > 0
            new_byte_counts += np.bincount(moment_numbers[is_new], minlength=new_byte_counts.size)
            change_counts += np.bincount(
                moment_numbers[is_new | (np.diff(moment_numbers, prepend=-1) != 0)],
                minlength=new_byte_counts.size,
            )
        self.written_bytes = np.cumsum(new_byte_counts)
        self.changed_bytes = change_counts

    def count_moments_until(self, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many steps have written to shared memory up to and including each sequence number."""
        return np.searchsorted(self.moments, sequence, side="right")
