"""Which accesses of a launch are ordered before which: barriers, warp syncs, fences with atomics.

The accesses of a block between two synchronisations form a *segment*. A barrier that every thread
passes starts a new *epoch* of its block. Barriers of fewer threads and ``__syncwarp`` end a *cut*: a
matrix then holds, for each thread, up to which cut it knows what each other thread did. What a block
publishes to others by a fence and an atomic ends a *tick*.

Compiled code (`shadow`) does what happens often, full barriers and ``__syncwarp``, and asks about pairs of
accesses; here is the rest, in the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir.compiled import address_of
from virtualgpu.sanitizer import structures

_COLUMNS = ("blocks", "epochs", "cuts", "ticks")


@dataclass(slots=True)
class Message:
    """What lies published at an address: ticks of blocks, and what threads of a block know."""

    ticks: dict[int, int] = field(default_factory=dict)
    rows: dict[int, npt.NDArray[np.int32]] = field(default_factory=dict)


@dataclass(slots=True)
class Slot:
    """The block that one worker runs: what compiled code knows of it, and the memory that this lies in."""

    row: structures.Block
    memory: list[npt.NDArray[np.generic]]
    known: npt.NDArray[np.int32] | None = None
    told: npt.NDArray[np.int64] | None = None
    ticks: dict[int, int] = field(default_factory=dict)  # of other blocks, as in `told`
    heard: dict[int, int] = field(default_factory=dict)  # those that no fence or barrier has come behind yet


class Ordering:
    """The order between accesses, as far as synchronisation makes one.

    Parameters
    ----------
    threads
        Threads in a block, rounded up to whole warps.
    blocks
        Blocks in the grid.
    shared
        What the checks of the launch share with compiled code.
    """

    def __init__(self, threads: int, blocks: int, shared: structures.Checker) -> None:
        self.threads = threads
        self.blocks = blocks
        self.shared = shared
        self.columns = np.zeros((len(_COLUMNS), 0), np.int64)
        self.slots: list[Slot] = []
        self.has_messages = False
        self._held: dict[int, Slot] = {}
        self.grow()

    def grow(self) -> None:
        """Room for more segments."""
        held = self.columns.shape[1]
        columns = np.zeros((len(_COLUMNS), max(1024, 2 * held)), np.int64)
        columns[:, :held] = self.columns
        self.columns = columns
        for name, column in zip(_COLUMNS, columns, strict=True):
            setattr(self.shared, name, column.ctypes.data)
        self.shared.capacity = columns.shape[1]

    def block(self, segment: int) -> int:
        """The block that a segment belongs to."""
        return int(self.columns[0, segment])

    def slot(self, block: int) -> Slot:
        """Where a block in flight is."""
        slot = self._held.get(block)
        if slot is None or slot.row.number != block:
            slot = next(slot for slot in self.slots if slot.row.number == block)
            self._held[block] = slot
            slot.ticks.clear()
            slot.heard.clear()
        return slot

    def _renew(self, row: structures.Block) -> None:
        shared = self.shared
        if shared.count == shared.capacity:
            self.grow()
        self.columns[:, shared.count] = row.number, row.epoch, row.cut, row.tick
        row.segment = shared.count
        shared.count += 1

    def full_barrier(self, block: int) -> None:
        """Every thread of the block waited for every other."""
        row = self.slot(block).row
        row.epoch += 1
        row.known = 0
        self._renew(row)
        row.floor = row.segment + 1 << structures.WHO_BITS

    def partial_barrier(self, block: int, threads: npt.NDArray[np.int64]) -> None:
        """Some threads of the block waited for each other."""
        slot = self.slot(block)
        known = self.matrix(slot)
        row = known[threads].max(axis=0)
        row[threads] = slot.row.cut
        known[threads] = row
        slot.row.cut += 1
        self._renew(slot.row)

    def matrix(self, slot: Slot) -> npt.NDArray[np.int32]:
        """What threads of a block know of each other since its last full barrier."""
        if slot.known is None:
            slot.known = np.zeros((self.threads + 1, self.threads), np.int32)
        # What is left of earlier epochs and blocks is older than any cut of this one.
        slot.row.known = slot.known.ctypes.data
        return slot.known[: self.threads]

    def news(self, block: int, threads: Sequence[int], message: Message) -> bool:
        """Whether a message tells the threads that read it anything."""
        slot = self.slot(block)
        if any(slot.ticks.get(b, -1) < tick for b, tick in message.ticks.items() if b != block):
            return True
        row = message.rows.get(block)
        return row is not None and bool((self.matrix(slot)[threads] < row).any())

    def acquire(self, block: int, threads: Sequence[int], message: Message, fenced: bool = True) -> None:
        """Threads of a block read what others published; of other blocks, a fence is to come behind."""
        slot = self.slot(block)
        for b, tick in message.ticks.items():
            if b != block and max(slot.ticks.get(b, -1), slot.heard.get(b, -1)) < tick:
                slot.heard[b], slot.row.heard = tick, 1
        if fenced:
            self.learn(block)
        row = message.rows.get(block)
        if row is not None:
            known = self.matrix(slot)
            known[threads] = np.maximum(known[threads], row)

    def learn(self, block: int) -> None:
        """Behind a fence or barrier, a block's accesses come after those of blocks that it has heard of."""
        slot = self.slot(block)
        for b, tick in slot.heard.items():
            slot.ticks[b] = tick
            if slot.told is None:
                slot.told = np.zeros(self.blocks, np.int64)
            slot.told[b] = (block + 1 << 32) + tick + 1
            slot.row.published = slot.told.ctypes.data
        slot.heard.clear()
        slot.row.heard = 0

    def release(self, block: int, threads: Sequence[int], message: Message, wide: bool = True) -> None:
        """Threads publish what they did and know, to their block or `wide`; its next access is later."""
        self.has_messages = True
        slot = self.slot(block)
        for b, tick in (*slot.ticks.items(), (block, slot.row.tick)) if wide else ():
            message.ticks[b] = max(message.ticks.get(b, -1), tick)
        row = self.matrix(slot)[threads].max(axis=0)
        row[threads] = slot.row.cut
        old = message.rows.get(block)
        message.rows[block] = row if old is None else np.maximum(old, row)
        slot.row.tick += 1
        slot.row.cut += 1
        self._renew(slot.row)


def new_slot(shared: structures.Checker, ask: int, *, races: bool, unwritten: bool) -> Slot:
    """Room for one worker's blocks; `ask` is the function that compiled code asks."""
    row = structures.Block()
    kept = []

    def zeros(count: int, kind: npt.DTypeLike) -> int:
        kept.append(np.zeros(max(count, 1), kind))
        return kept[-1].ctypes.data

    words = shared.shared_words
    row.checker = address_of(shared)
    row.ask = ask
    row.number = -1
    row.fenced, row.wide = zeros(shared.warps, np.int32), zeros(shared.warps, np.int32)
    if races:
        row.planes = zeros(structures.PLANES * words, np.int64)
        row.step = 8 * words
        if shared.partial:
            row.readers = zeros(words * shared.warps, np.int64)
        row.under_way, row.latest = zeros(words, np.int32), zeros(words, np.int64)
    if unwritten:
        row.written = zeros(words, np.int32)
        row.local = zeros(shared.local_words * shared.threads, np.int32)
    return Slot(row, kept)
