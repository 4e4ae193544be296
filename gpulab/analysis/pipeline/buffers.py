"""Buffers of a block's shared memory, and the accesses that fill or use each buffer.

A buffer consists of the bytes that are filled for the first time by the same group of copies, or by stores
between the same two waits, and that are then read for the first time between the same two waits. In a block
that never waits, stores after reads take the place of waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpulab.analysis.pipeline.order import Ints, Steps
from virtualgpu.records.warp.columns import SHARED_ACCESS_KINDS, SharedWrites, expand_lane_masks

_LOAD_KIND, _STORE_KIND, _COPY_KIND = (SHARED_ACCESS_KINDS.index(name) for name in ("load", "store", "copy"))
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Writes:
    """A table of the writes to shared memory by a block's stores and asynchronous copies. Each memory request
    has one row.

    ``step`` starts the write. Its data have landed at ``landing_step`` (-1: never), and the steps know it
    that follow ``landing_tick`` of ``landing_chain``. ``wait_step`` is the first one that has waited for them
    (-1: none). ``key`` is equal for writes of one group of copies, or between the same two waits.
    """

    step: Ints
    key: Ints
    is_asynchronous: npt.NDArray[np.bool_]
    landing_step: Ints
    wait_step: Ints
    landing_chain: Ints
    landing_tick: Ints


@dataclass(frozen=True, slots=True)
class PieceAccesses:
    """A table of the pieces of shared memory that each memory request accesses. In each row, ``row`` is the
    index of a request, and ``piece`` is the index of a piece.
    """

    row: Ints
    piece: Ints


class Buffers:
    """A record of a block's shared-memory buffers and of the accesses to them.

    Attributes
    ----------
    piece_bytes
        Size of the parts into which shared memory is divided.
    writes, read_step
        The writes, and the steps that read, one row for each request.
    written_pieces, read_pieces
        The pieces of the buffers that these rows access.
    buffer_of_piece
        The buffer of each piece, -1 if it has none.
    fill_numbers
        For each of the pieces in `written_pieces`, the number of the fill among those of its buffer.
    fill_counts
        The number of fills of each buffer.
    """

    def __init__(self, steps: Steps, shared: SharedWrites) -> None:
        accesses = steps.accesses
        access_step = steps.find_step(accesses.sequence)
        is_read = accesses.kind == _LOAD_KIND
        write_sizes = accesses.width_bytes[~is_read]
        self.piece_bytes = int(min(_WORD_BYTES, write_sizes.min(initial=_WORD_BYTES)))
        self.piece_count = -(-shared.size_bytes // self.piece_bytes)
        wait_counts = (
            steps.waits[access_step]
            if steps.waits.any()
            else _count_rewrites(steps.warp[access_step], is_read)
        )
        self.writes = _make_writes(steps, shared, ~is_read, access_step[~is_read], wait_counts[~is_read])
        self.read_step: Ints = access_step[is_read]
        written_pieces = self._find_pieces(accesses.offset[~is_read], accesses.width_bytes[~is_read])
        read_pieces = self._find_pieces(accesses.offset[is_read], accesses.width_bytes[is_read])
        self.buffer_of_piece = self._group_pieces(written_pieces, read_pieces, wait_counts[is_read])
        self.written_pieces = written_pieces
        is_buffer = self.buffer_of_piece[read_pieces.piece] >= 0
        self.read_pieces = PieceAccesses(read_pieces.row[is_buffer], read_pieces.piece[is_buffer])
        self._number_fills()

    def _find_pieces(
        self, offset: npt.NDArray[np.int32], width_bytes: npt.NDArray[np.int16]
    ) -> PieceAccesses:
        """Return the pieces of shared memory that the 32 lanes of each memory request access."""
        access_rows, access_lanes = np.nonzero(offset >= 0)
        first_piece = offset[access_rows, access_lanes].astype(np.int64) // self.piece_bytes
        last_piece = (offset[access_rows, access_lanes] + width_bytes[access_rows] - 1).astype(
            np.int64
        ) // self.piece_bytes
        piece_counts = last_piece - first_piece + 1
        first_piece_indices = np.cumsum(piece_counts) - piece_counts
        piece_numbers = np.repeat(first_piece - first_piece_indices, piece_counts) + np.arange(
            int(piece_counts.sum())
        )
        piece_rows = np.repeat(access_rows, piece_counts)
        # The lanes of a row can share a piece.
        row_piece_keys = np.unique(piece_rows * np.int64(self.piece_count) + piece_numbers)
        return PieceAccesses(row_piece_keys // self.piece_count, row_piece_keys % self.piece_count)

    def _group_pieces(
        self, written_pieces: PieceAccesses, read_pieces: PieceAccesses, read_wait_counts: Ints
    ) -> Ints:
        """Return the buffer of each piece; buffers are numbered by their first byte.

        `read_wait_counts` has the number of waits before each row that reads.
        """
        unknown_step = np.iinfo(np.int64).max
        first_write = np.full(self.piece_count, unknown_step)
        np.minimum.at(first_write, written_pieces.piece, self.writes.step[written_pieces.row])
        is_written = first_write < unknown_step
        first_key = np.full(self.piece_count, -1)
        step_order = np.argsort(-self.writes.step[written_pieces.row], kind="stable")
        first_key[written_pieces.piece[step_order]] = self.writes.key[written_pieces.row[step_order]]
        first_wait = np.full(self.piece_count, unknown_step)
        np.minimum.at(first_wait, read_pieces.piece, read_wait_counts[read_pieces.row])
        # A piece that is never read, such as an unused component, belongs to the one before it.
        key_order = np.lexsort((np.arange(self.piece_count), first_key))
        is_read = (first_wait < unknown_step)[key_order]
        is_group_start = is_read | (np.diff(first_key[key_order], prepend=-2) != 0)
        key_source = np.maximum.accumulate(np.where(is_group_start, np.arange(self.piece_count), 0))
        first_wait[key_order] = first_wait[key_order][key_source]
        key_pairs = np.stack([first_key, first_wait], axis=1)[is_written]
        distinct_pairs, first_piece, buffer_key = np.unique(
            key_pairs, axis=0, return_index=True, return_inverse=True
        )
        buffer_ranks = np.empty(len(distinct_pairs), np.int64)
        buffer_ranks[np.argsort(first_piece)] = np.arange(len(distinct_pairs))
        buffer_of_piece = np.full(self.piece_count, -1)
        buffer_of_piece[is_written] = buffer_ranks[buffer_key.reshape(-1)]
        return buffer_of_piece

    def _number_fills(self) -> None:
        """Number the fills of each buffer in the order in which they start."""
        buffer_numbers = self.buffer_of_piece[self.written_pieces.piece]
        key_count = int(self.writes.key.max(initial=0)) + 1
        buffer_key = buffer_numbers * key_count + self.writes.key[self.written_pieces.row]
        buffer_keys, first_pairs, key_index = np.unique(buffer_key, return_index=True, return_inverse=True)
        fill_starts = np.full(buffer_keys.size, np.iinfo(np.int64).max)
        np.minimum.at(fill_starts, key_index, self.writes.step[self.written_pieces.row])
        buffer_of_pair = buffer_numbers[first_pairs]
        fill_order = np.lexsort((fill_starts, buffer_of_pair))
        self.fill_counts = np.bincount(
            buffer_of_pair, minlength=int(self.buffer_of_piece.max(initial=-1)) + 1
        )
        fill_number = np.empty(buffer_keys.size, np.int64)
        first_fills = np.cumsum(self.fill_counts) - self.fill_counts
        fill_number[fill_order] = np.arange(buffer_keys.size) - np.repeat(first_fills, self.fill_counts)
        self.fill_numbers = fill_number[key_index]


def _count_rewrites(warp: Ints, is_read: npt.NDArray[np.bool_]) -> Ints:
    """Return for each access how many times its warp has changed from reading to writing so far."""
    warp_order = np.argsort(warp, kind="stable")
    is_write_after_read = np.zeros(warp.size, np.bool_)
    is_write_after_read[1:] = (
        ~is_read[warp_order][1:] & is_read[warp_order][:-1] & (np.diff(warp[warp_order]) == 0)
    )
    cumulative_counts = np.cumsum(is_write_after_read)
    warp_starts = np.searchsorted(warp[warp_order], warp[warp_order])
    rewrite_counts = np.empty(warp.size, np.int64)
    rewrite_counts[warp_order] = cumulative_counts - cumulative_counts[warp_starts]
    return rewrite_counts


def _make_writes(
    steps: Steps, shared: SharedWrites, is_write: npt.NDArray[np.bool_], step: Ints, wait_counts: Ints
) -> Writes:
    """Return the stores and copies, with the steps at which the data of the copies land.

    `wait_counts` has the number of waits before each of them.
    """
    accesses = steps.accesses
    is_copy = accesses.kind[is_write] == _COPY_KIND
    landing_step = np.where(is_copy, -1, step)
    landing_step[is_copy] = _find_landing_steps(
        steps, shared, accesses.offset[is_write][is_copy], step[is_copy]
    )
    landing_warp = np.where(landing_step < 0, 0, steps.warp[landing_step])
    landing_tick = np.where(landing_step < 0, 0, steps.tick[landing_step])
    mbarrier_chain = np.where(is_copy & (landing_step >= 0), steps.mbarrier_chain[landing_step], -1)
    # Copies are grouped by commits, stores by waits; even and odd keys are different.
    write_key = np.where(is_copy, 2 * steps.commits[step], 2 * wait_counts + 1)
    return Writes(
        step=step,
        key=write_key,
        is_asynchronous=is_copy,
        landing_step=landing_step,
        wait_step=_find_wait_steps(steps, mbarrier_chain, landing_step),
        landing_chain=np.where(mbarrier_chain >= 0, mbarrier_chain, landing_warp),
        landing_tick=np.where(mbarrier_chain >= 0, landing_step + 1, landing_tick),
    )


def _find_wait_steps(steps: Steps, mbarrier_chain: Ints, landing_step: Ints) -> Ints:
    """Return for each write the step that waits until its data have landed. If the data do not land on an
    mbarrier, this is the landing step itself.
    """
    chain_step_pairs, pair_indices = np.unique(
        np.stack([mbarrier_chain, landing_step], axis=1), axis=0, return_inverse=True
    )
    wait_steps = [
        steps.find_first_wait(chain, step) if chain >= 0 else step
        for chain, step in chain_step_pairs.tolist()
    ]
    return np.array(wait_steps, np.int64)[pair_indices.reshape(-1)]


def _find_landing_steps(
    steps: Steps, shared: SharedWrites, offset: npt.NDArray[np.int32], step: Ints
) -> Ints:
    """Return the steps at which copies land, -1 for those that never do.

    The copies to one address land in the order in which they started.
    """
    shared_rows, shared_lanes = np.nonzero(expand_lane_masks(shared.mask))
    landing_step = steps.find_step(shared.sequence[shared_rows])
    landing_offset = shared.offset[shared_rows, shared_lanes]
    is_landing = ~np.isin(
        shared.sequence[shared_rows], steps.accesses.sequence[steps.accesses.kind == _STORE_KIND]
    )
    landing_step, landing_offset = landing_step[is_landing], landing_offset[is_landing]
    landing_order = np.lexsort((landing_step, landing_offset))
    landing_step, landing_offset = landing_step[landing_order], landing_offset[landing_order]
    first_lane = np.argmax(offset >= 0, axis=1)
    copy_offset = offset[np.arange(step.size), first_lane]
    copy_order = np.lexsort((step, copy_offset))
    # The n-th copy to an address belongs to its n-th landing.
    copy_rank = np.arange(step.size) - np.searchsorted(copy_offset[copy_order], copy_offset[copy_order])
    landing_index = np.searchsorted(landing_offset, copy_offset[copy_order]) + copy_rank
    is_known = landing_index < landing_step.size
    landing_index[~is_known] = 0
    landing_of_copy = np.full(step.size, -1)
    if landing_step.size:
        is_known &= (landing_offset[landing_index] == copy_offset[copy_order]) & (
            landing_step[landing_index] >= step[copy_order]
        )
        landing_of_copy[copy_order[is_known]] = landing_step[landing_index[is_known]]
    return landing_of_copy
