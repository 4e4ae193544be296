"""Reconstruct the parts that a snapshot lacks: the state before its first event, and all block sizes.

PyTorch's trace has the bytes that were asked for; blocks are larger. The final state is known, so the events
are undone one by one to find the first one, and then done again with the allocator's rules for sizes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass

from gpulab.allocators.snapshot.ranges import Range, Ranges
from gpulab.allocators.snapshot.tables import CODES, FREE, USED, WAITING, DeviceTables
from gpulab.allocators.torch.settings import SMALL_REQUEST_BYTES, SMALL_SEGMENT_BYTES, Settings

ALLOC = CODES["alloc"]
ASKED = CODES["free_requested"]
FREED = CODES["free_completed"]
TAKEN = CODES["segment_alloc"]
GIVEN = CODES["segment_free"]
MAPPED = CODES["segment_map"]
UNMAPPED = CODES["segment_unmap"]


@dataclass(slots=True)
class Alive:
    """A block that is not free; `size` is 0 while it is not known."""

    size: int
    requested: int
    state: int
    stack: int
    event: int = -1


@dataclass(frozen=True, slots=True)
class History:
    """The first and the last state, and the size of the block of each event."""

    first_ranges: list[Range]
    first_blocks: dict[int, Alive]
    last_ranges: list[Range]
    last_blocks: dict[int, Alive]
    sizes: list[int]
    strange: int


def history(tables: DeviceTables, settings: Settings) -> History:
    """Undo the events of a device to find its first state, then apply them again."""
    ranges = Ranges(tables.segments)
    alive = {
        block.address: Alive(block.size, block.requested, block.state, block.stack)
        for block in tables.blocks
        if block.state != FREE
    }
    last = {address: Alive(b.size, b.requested, b.state, b.stack) for address, b in alive.items()}
    strange = _undo(tables, ranges, alive)
    first_ranges = list(ranges)
    large = _LargeSegments(
        [one for one in ranges if not one.is_expandable and one.size > SMALL_SEGMENT_BYTES]
    )
    for address in sorted(alive, reverse=True):
        block = alive[address]
        if not block.size:
            block.size = large.size_of(address, block.requested, settings)
        large.put(address)
    sizes = _redo(tables, alive, large, settings, last)
    return History(first_ranges, alive, tables.segments, last, sizes, strange)


def _undo(tables: DeviceTables, ranges: Ranges, alive: dict[int, Alive]) -> int:
    strange = 0
    given = tables.block_sizes or [0] * len(tables.sizes)
    rows = zip(tables.actions, tables.addresses, tables.sizes, tables.streams, given, strict=True)
    for action, address, size, stream, block_size in reversed(list(rows)):
        if action == ALLOC:
            strange += alive.pop(address, None) is None
        elif action == FREED:
            strange += address in alive
            alive[address] = Alive(block_size, size, WAITING, -1)
        elif action == ASKED:
            if address in alive:
                alive[address].state = USED
            else:
                alive[address] = Alive(block_size, size, USED, -1)
        elif action in (TAKEN, MAPPED):
            strange += ranges.remove(address, size) is None
        elif action in (GIVEN, UNMAPPED):
            pool = 0 if action == GIVEN and size == SMALL_SEGMENT_BYTES else 1
            ranges.add(Range(address, size, stream, pool, action == UNMAPPED))
    return strange


def _redo(
    tables: DeviceTables,
    first: dict[int, Alive],
    large: _LargeSegments,
    settings: Settings,
    last: dict[int, Alive],
) -> list[int]:
    current = {address: block.size for address, block in first.items()}
    sizes = list(tables.sizes)
    rounded: dict[int, int] = {}
    for i, (action, address, size) in enumerate(
        zip(tables.actions, tables.addresses, tables.sizes, strict=True)
    ):
        if action == ALLOC:
            if size not in rounded:
                rounded[size] = settings.rounded(size)
            found = rounded[size]
            if found > SMALL_REQUEST_BYTES:
                found = large.size_of(address, size, settings)
                large.put(address)
            sizes[i] = current[address] = found
            if address in last:
                last[address].event = i
        elif action == ASKED:
            sizes[i] = current.get(address) or settings.rounded(size)
            if address in last:
                last[address].event = i
        elif action == FREED:
            sizes[i] = current.pop(address, 0) or settings.rounded(size)
            large.take(address)
        elif action == TAKEN:
            if size > SMALL_SEGMENT_BYTES:
                large.segment(address, size)
        elif action == GIVEN:
            large.no_segment(address)
    if tables.block_sizes:
        return tables.block_sizes
    # The final state is more exact about its blocks than the events that created them.
    for block in last.values():
        if block.event >= 0:
            sizes[block.event] = block.size
    return sizes


class _LargeSegments:
    """Blocks of the large pool's segments, where a block may be larger than its request rounded up."""

    def __init__(self, segments: list[Range]) -> None:
        self._starts = sorted(one.address for one in segments)
        self._ends = {one.address: one.end for one in segments}
        self._blocks: dict[int, list[int]] = {one.address: [] for one in segments}

    def segment(self, address: int, size: int) -> None:
        if address not in self._ends:
            insort(self._starts, address)
        self._ends[address] = address + size
        self._blocks[address] = []

    def no_segment(self, address: int) -> None:
        if address in self._ends:
            del self._starts[bisect_left(self._starts, address)]
            del self._ends[address], self._blocks[address]

    def _of(self, address: int) -> int | None:
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._ends[self._starts[at]]:
            return None
        return self._starts[at]

    def put(self, address: int) -> None:
        start = self._of(address)
        if start is not None:
            insort(self._blocks[start], address)

    def take(self, address: int) -> None:
        start = self._of(address)
        if start is None:
            return
        blocks = self._blocks[start]
        at = bisect_left(blocks, address)
        if at < len(blocks) and blocks[at] == address:
            del blocks[at]

    def size_of(self, address: int, requested: int, settings: Settings) -> int:
        """Return the size of a block at `address`: the rounded request, or the gap if that is not split."""
        size = settings.rounded(requested)
        start = self._of(address)
        if start is None:
            return size
        blocks = self._blocks[start]
        at = bisect_right(blocks, address)
        gap = (blocks[at] if at < len(blocks) else self._ends[start]) - address
        if gap >= size and settings.splits(gap, size, is_small=False, is_expandable=False):
            return size
        return gap
