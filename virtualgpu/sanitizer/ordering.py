"""Order between the memory accesses of a launch, from barriers, ``__syncwarp``, and fences with atomics.

The accesses of a block between two synchronisations form a *segment*. A barrier that every thread
passes starts a new *epoch* of its block. Barriers of fewer threads and ``__syncwarp`` end a *cut*: a
matrix then contains, for each thread, the last cut of each other thread whose accesses it follows. A message
of a block to others by a fence and an atomic ends a *tick*.
Compiled code (`shadow`) handles the frequent cases, full barriers and ``__syncwarp``, and compares pairs of
accesses; this module handles the rest, in the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir.compiled import get_struct_address
from virtualgpu.sanitizer import structures

_SEGMENT_COLUMNS = ("blocks", "epochs", "cuts", "ticks")


@dataclass(slots=True)
class Message:
    """A record of the accesses that threads published when they wrote to an address. These accesses precede
    the later accesses of threads that read the message.
    """

    tick_by_block: dict[int, int] = field(default_factory=dict)
    cuts_by_block: dict[int, npt.NDArray[np.int32]] = field(default_factory=dict)


@dataclass(slots=True)
class WorkerSlot:
    """The state of the block that one worker runs, and the memory of the worker's tables."""

    block_state: structures.Block
    arrays: list[npt.NDArray[np.generic]]
    known_cuts: npt.NDArray[np.int32] | None = None
    published_ticks: npt.NDArray[np.int64] | None = None
    known_ticks: dict[int, int] = field(
        default_factory=dict
    )  # ticks of other blocks, as in `published_ticks`
    unfenced_ticks: dict[int, int] = field(
        default_factory=dict
    )  # ticks that no fence or barrier has followed yet


class Ordering:
    """A record of which accesses are ordered by synchronization.

    Parameters
    ----------
    threads
        Threads in a block, rounded up to whole warps.
    blocks
        Blocks in the grid.
    shared
        Data of the checks that compiled code shares.
    """

    def __init__(self, threads: int, blocks: int, shared: structures.Checker) -> None:
        self.threads = threads
        self.blocks = blocks
        self.shared_state = shared
        self.segment_columns = np.zeros((len(_SEGMENT_COLUMNS), 0), np.int64)
        self.slots: list[WorkerSlot] = []
        self.has_messages = False
        self._slot_of_block: dict[int, WorkerSlot] = {}
        self.grow_tables()

    def grow_tables(self) -> None:
        """Enlarge the tables so that they can store more segments of accesses."""
        segment_capacity = self.segment_columns.shape[1]
        new_columns = np.zeros((len(_SEGMENT_COLUMNS), max(1024, 2 * segment_capacity)), np.int64)
        new_columns[:, :segment_capacity] = self.segment_columns
        self.segment_columns = new_columns
        for name, column in zip(_SEGMENT_COLUMNS, new_columns, strict=True):
            setattr(self.shared_state, name, column.ctypes.data)
        self.shared_state.segment_capacity = new_columns.shape[1]

    def find_block(self, segment: int) -> int:
        """Return the number of the block to which a segment belongs."""
        return int(self.segment_columns[0, segment])

    def find_slot(self, block: int) -> WorkerSlot:
        """Return the slot of the worker that runs the given block."""
        slot = self._slot_of_block.get(block)
        if slot is None or slot.block_state.number != block:
            slot = next(slot for slot in self.slots if slot.block_state.number == block)
            self._slot_of_block[block] = slot
            slot.known_ticks.clear()
            slot.unfenced_ticks.clear()
        return slot

    def _begin_segment(self, block_state: structures.Block) -> None:
        shared_state = self.shared_state
        if shared_state.segment_count == shared_state.segment_capacity:
            self.grow_tables()
        self.segment_columns[:, shared_state.segment_count] = (
            block_state.number,
            block_state.epoch,
            block_state.cut,
            block_state.tick,
        )
        block_state.segment = shared_state.segment_count
        shared_state.segment_count += 1

    def full_barrier(self, block: int) -> None:
        """Record that all threads of the block have waited for each other."""
        block_state = self.find_slot(block).block_state
        block_state.epoch += 1
        block_state.known_cuts = 0
        self._begin_segment(block_state)
        block_state.record_floor = block_state.segment + 1 << structures.SITE_AND_THREAD_BITS

    def partial_barrier(self, block: int, threads: npt.NDArray[np.int64]) -> None:
        """Record that some threads of the block have waited for each other."""
        slot = self.find_slot(block)
        cuts_by_thread = self.get_order_matrix(slot)
        latest_cuts = cuts_by_thread[threads].max(axis=0)
        latest_cuts[threads] = slot.block_state.cut
        cuts_by_thread[threads] = latest_cuts
        slot.block_state.cut += 1
        self._begin_segment(slot.block_state)

    def get_order_matrix(self, slot: WorkerSlot) -> npt.NDArray[np.int32]:
        """Return the order between the block's threads as a matrix. Entry [t, u] is the last cut of thread u
        that happens before thread t.
        """
        if slot.known_cuts is None:
            slot.known_cuts = np.zeros((self.threads + 1, self.threads), np.int32)
        # Entries of earlier epochs and blocks are older than any cut of this one.
        slot.block_state.known_cuts = slot.known_cuts.ctypes.data
        return slot.known_cuts[: self.threads]

    def orders_more_accesses(self, block: int, threads: Sequence[int], message: Message) -> bool:
        """Return whether a message orders accesses that are not yet ordered before the threads' later
        accesses.
        """
        slot = self.find_slot(block)
        if any(
            slot.known_ticks.get(other_block, -1) < tick
            for other_block, tick in message.tick_by_block.items()
            if other_block != block
        ):
            return True
        published_cuts = message.cuts_by_block.get(block)
        return published_cuts is not None and bool(
            (self.get_order_matrix(slot)[threads] < published_cuts).any()
        )

    def acquire(self, block: int, threads: Sequence[int], message: Message, is_fenced: bool = True) -> None:
        """Record that threads have read a message that other threads have published.

        Accesses from the same block are ordered immediately, and accesses from other blocks only after the
        next fence.
        """
        slot = self.find_slot(block)
        for other_block, tick in message.tick_by_block.items():
            if (
                other_block != block
                and max(slot.known_ticks.get(other_block, -1), slot.unfenced_ticks.get(other_block, -1))
                < tick
            ):
                slot.unfenced_ticks[other_block] = tick
                slot.block_state.has_unfenced_reads = 1
        if is_fenced:
            self.apply_messages(block)
        published_cuts = message.cuts_by_block.get(block)
        if published_cuts is not None:
            cuts_by_thread = self.get_order_matrix(slot)
            cuts_by_thread[threads] = np.maximum(cuts_by_thread[threads], published_cuts)

    def apply_messages(self, block: int) -> None:
        """Order the later accesses of a block after the accesses in all messages that the block has read.

        The engine calls this method at a fence or barrier.
        """
        slot = self.find_slot(block)
        for other_block, tick in slot.unfenced_ticks.items():
            slot.known_ticks[other_block] = tick
            if slot.published_ticks is None:
                slot.published_ticks = np.zeros(self.blocks, np.int64)
            slot.published_ticks[other_block] = (block + 1 << 32) + tick + 1
            slot.block_state.published_ticks = slot.published_ticks.ctypes.data
        slot.unfenced_ticks.clear()
        slot.block_state.has_unfenced_reads = 0

    def release(
        self, block: int, threads: Sequence[int], message: Message, is_for_all_blocks: bool = True
    ) -> None:
        """Add the earlier accesses of threads to a message, and begin a new segment.

        If `is_for_all_blocks` is true, all blocks can see the message; otherwise, only the threads' own block
        can.
        """
        self.has_messages = True
        slot = self.find_slot(block)
        if is_for_all_blocks:
            for other_block, tick in (*slot.known_ticks.items(), (block, slot.block_state.tick)):
                message.tick_by_block[other_block] = max(message.tick_by_block.get(other_block, -1), tick)
        latest_cuts = self.get_order_matrix(slot)[threads].max(axis=0)
        latest_cuts[threads] = slot.block_state.cut
        previous_cuts = message.cuts_by_block.get(block)
        message.cuts_by_block[block] = (
            latest_cuts if previous_cuts is None else np.maximum(previous_cuts, latest_cuts)
        )
        slot.block_state.tick += 1
        slot.block_state.cut += 1
        self._begin_segment(slot.block_state)


def make_slot(
    shared: structures.Checker, callback_address: int, *, checks_races: bool, checks_unwritten: bool
) -> WorkerSlot:
    """Return a new slot for a worker. Compiled code calls the function at `callback_address` in rare
    cases.
    """
    block_state = structures.Block()
    arrays = []

    def allocate_zeros(count: int, dtype: npt.DTypeLike) -> int:
        arrays.append(np.zeros(max(count, 1), dtype))
        return arrays[-1].ctypes.data

    shared_words = shared.shared_words
    block_state.checker = get_struct_address(shared)
    block_state.callback = callback_address
    block_state.number = -1
    block_state.fenced_lanes = allocate_zeros(shared.warps, np.int32)
    block_state.wide_fences = allocate_zeros(shared.warps, np.int32)
    if checks_races:
        block_state.planes = allocate_zeros(structures.PLANE_COUNT * shared_words, np.int64)
        block_state.plane_bytes = 8 * shared_words
        if shared.has_partial_waits:
            block_state.plain_readers = allocate_zeros(shared_words * shared.warps, np.int64)
        block_state.pending_copies = allocate_zeros(shared_words, np.int32)
        block_state.latest_copies = allocate_zeros(shared_words, np.int64)
        block_state.bulk_barriers = allocate_zeros(shared_words, np.int32)
    if checks_unwritten:
        block_state.written_tags = allocate_zeros(shared_words, np.int32)
        block_state.local_tags = allocate_zeros(shared.local_words * shared.threads, np.int32)
    return WorkerSlot(block_state, arrays)
