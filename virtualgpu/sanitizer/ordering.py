"""Which accesses of a launch are ordered before which: barriers, warp syncs, fences with atomics.

The accesses of a block between two synchronisations form a *segment*. A barrier that every thread
passes starts a new *epoch* of its block. Barriers of fewer threads and ``__syncwarp`` end a *cut*: a
matrix then holds, for each thread, up to which cut it knows what each other thread did. What a block
publishes to others by a fence and an atomic ends a *tick*.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_COLUMNS = ("block", "epoch", "cut", "tick")


@dataclass(slots=True)
class _Block:
    epoch: int = 0
    cut: int = 1
    tick: int = 0
    segment: int = -1
    open: list[int] = field(default_factory=list)  # segments of the present epoch
    known: npt.NDArray[np.int32] | None = None
    published: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Message:
    """What lies published at an address: ticks of blocks, and what threads of a block know."""

    ticks: dict[int, int] = field(default_factory=dict)
    rows: dict[int, npt.NDArray[np.int32]] = field(default_factory=dict)


class Ordering:
    """The order between accesses, as far as synchronisation makes one.

    Parameters
    ----------
    threads
        Threads in a block, rounded up to whole warps.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.columns = np.zeros((len(_COLUMNS), 1024), np.int64)
        self.passed = np.zeros(1024, np.bool_)  # segments of epochs that are over
        self.count = 0
        self.has_messages = False
        self._blocks: dict[int, _Block] = {}

    def segment(self, block: int) -> int:
        """The segment that the block's next access belongs to."""
        state = self._blocks.get(block)
        if state is None:
            state = self._blocks[block] = _Block()
            self._renew(block, state)
        return state.segment

    def _renew(self, block: int, state: _Block) -> None:
        if self.count == self.columns.shape[1]:
            self.columns = np.concatenate([self.columns, np.zeros_like(self.columns)], axis=1)
            self.passed = np.concatenate([self.passed, np.zeros_like(self.passed)])
        self.columns[:, self.count] = block, state.epoch, state.cut, state.tick
        state.segment = self.count
        state.open.append(self.count)
        self.count += 1

    def has_partial(self, block: int) -> bool:
        """Whether threads of a block have synchronised in part since its last full barrier."""
        state = self._blocks.get(block)
        return state is not None and state.known is not None

    def full_barrier(self, block: int) -> None:
        """Every thread of the block waited for every other."""
        self.segment(block)
        state = self._blocks[block]
        state.epoch += 1
        state.known = None
        self._pass(state)
        self._renew(block, state)

    def _pass(self, state: _Block) -> None:
        self.passed[state.open] = True
        state.open.clear()

    def end(self, block: int) -> None:
        """The block will access nothing more."""
        if block in self._blocks:
            self._pass(self._blocks[block])

    def partial_barrier(self, block: int, threads: npt.NDArray[np.int64]) -> None:
        """Some threads of the block waited for each other."""
        self.segment(block)
        state = self._blocks[block]
        known = self._matrix(state)
        row = known[threads].max(axis=0)
        row[threads] = state.cut
        known[threads] = row
        state.cut += 1
        self._renew(block, state)

    def _matrix(self, state: _Block) -> npt.NDArray[np.int32]:
        if state.known is None:
            state.known = np.zeros((self.threads, self.threads), np.int32)
        return state.known

    def news(self, block: int, threads: list[int], message: Message) -> bool:
        """Whether a message tells the threads that read it anything."""
        self.segment(block)
        state = self._blocks[block]
        if any(state.published.get(b, -1) < tick for b, tick in message.ticks.items() if b != block):
            return True
        row = message.rows.get(block)
        return row is not None and bool((self._matrix(state)[threads] < row).any())

    def acquire(self, block: int, threads: list[int], message: Message) -> None:
        """Threads of a block read what others published."""
        self.segment(block)
        state = self._blocks[block]
        for b, tick in message.ticks.items():
            if b != block and state.published.get(b, -1) < tick:
                state.published[b] = tick
        row = message.rows.get(block)
        if row is not None:
            known = self._matrix(state)
            known[threads] = np.maximum(known[threads], row)

    def release(self, block: int, threads: list[int], message: Message) -> None:
        """Threads of a block publish what they did and know; the block's next access is later."""
        self.has_messages = True
        self.segment(block)
        state = self._blocks[block]
        for b, tick in (*state.published.items(), (block, state.tick)):
            message.ticks[b] = max(message.ticks.get(b, -1), tick)
        row = self._matrix(state)[threads].max(axis=0)
        row[threads] = state.cut
        old = message.rows.get(block)
        message.rows[block] = row if old is None else np.maximum(old, row)
        state.tick += 1
        state.cut += 1
        self._renew(block, state)

    def forget(self, block: int) -> None:
        """A block is over and all its accesses are checked."""
        self._blocks.pop(block, None)

    def unordered(
        self,
        first_segment: npt.NDArray[np.int64],
        first_thread: npt.NDArray[np.int64],
        second_segment: npt.NDArray[np.int64],
        second_thread: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        """Pairs of accesses by different threads that nothing orders. The second ones are recent."""
        block_a, epoch_a, cut_a, tick_a = self.columns[:, first_segment]
        block_b, epoch_b = self.columns[:2, second_segment]
        same = block_a == block_b
        free: npt.NDArray[np.bool_] = ~same | ((epoch_a == epoch_b) & (first_thread != second_thread))
        inside = np.flatnonzero(same & free)
        for block in np.unique(block_b[inside]).tolist():
            known = self._blocks[block].known if block in self._blocks else None
            if known is not None:
                rows = inside[block_b[inside] == block]
                free[rows] = known[second_thread[rows], first_thread[rows]] < cut_a[rows]
        across = np.flatnonzero(~same)
        for block in np.unique(block_b[across]).tolist():
            published = self._blocks[block].published if block in self._blocks else {}
            if published:
                rows = across[block_b[across] == block]
                ticks = np.array([published.get(b, -1) for b in block_a[rows].tolist()])
                free[rows] = ticks < tick_a[rows]
        return free
