"""Reconstruct what a snapshot does not contain: the state before its first event, and sizes of blocks.

PyTorch's trace has the requested bytes; blocks are larger. Because the final state is known, the events are
undone one by one to find the first state, and then applied again with the allocator's rules for sizes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass

from gpulab.allocators.snapshot.ranges import Range, Ranges
from gpulab.allocators.snapshot.tables import CODES, FREE, USED, WAITING, DeviceTables
from gpulab.allocators.torch.settings import SMALL_REQUEST_BYTES, SMALL_SEGMENT_BYTES, Settings

ALLOC = CODES["alloc"]
FREE_REQUESTED = CODES["free_requested"]
FREE_COMPLETED = CODES["free_completed"]
SEGMENT_ALLOC = CODES["segment_alloc"]
SEGMENT_FREE = CODES["segment_free"]
SEGMENT_MAP = CODES["segment_map"]
SEGMENT_UNMAP = CODES["segment_unmap"]


@dataclass(slots=True)
class LiveBlock:
    """A block of memory that is in use or waits for a stream. The attribute `size` is 0 until the size is
    known.
    """

    size: int
    requested: int
    state: int
    stack: int
    event: int = -1


@dataclass(frozen=True, slots=True)
class History:
    """The state of a device's memory before and after all events, with the block size of each event."""

    first_ranges: list[Range]
    first_blocks: dict[int, LiveBlock]
    last_ranges: list[Range]
    last_blocks: dict[int, LiveBlock]
    sizes: list[int]
    strange: int


def history(tables: DeviceTables, settings: Settings) -> History:
    """Reconstruct the first memory state of a device from its last state and its events, and find the block
    size of each event.
    """
    ranges = Ranges(tables.segments)
    blocks = {
        block.address: LiveBlock(block.size, block.requested, block.state, block.stack)
        for block in tables.blocks
        if block.state != FREE
    }
    last_blocks = {address: LiveBlock(b.size, b.requested, b.state, b.stack) for address, b in blocks.items()}
    mismatch_count = _undo_events(tables, ranges, blocks)
    first_ranges = list(ranges)
    large_segments = _LargeSegments(
        [
            segment_range
            for segment_range in ranges
            if not segment_range.is_expandable and segment_range.size > SMALL_SEGMENT_BYTES
        ]
    )
    for address in sorted(blocks, reverse=True):
        block = blocks[address]
        if not block.size:
            block.size = large_segments.size_of(address, block.requested, settings)
        large_segments.put(address)
    sizes = _redo_events(tables, blocks, large_segments, settings, last_blocks)
    return History(first_ranges, blocks, tables.segments, last_blocks, sizes, mismatch_count)


def _undo_events(tables: DeviceTables, ranges: Ranges, blocks: dict[int, LiveBlock]) -> int:
    contradictions = 0
    block_sizes = tables.block_sizes or [0] * len(tables.sizes)
    rows = zip(tables.actions, tables.addresses, tables.sizes, tables.streams, block_sizes, strict=True)
    for action, address, size, stream, block_size in reversed(list(rows)):
        if action == ALLOC:
            contradictions += blocks.pop(address, None) is None
        elif action == FREE_COMPLETED:
            contradictions += address in blocks
            blocks[address] = LiveBlock(block_size, size, WAITING, -1)
        elif action == FREE_REQUESTED:
            if address in blocks:
                blocks[address].state = USED
            else:
                blocks[address] = LiveBlock(block_size, size, USED, -1)
        elif action in (SEGMENT_ALLOC, SEGMENT_MAP):
            contradictions += ranges.remove(address, size) is None
        elif action in (SEGMENT_FREE, SEGMENT_UNMAP):
            pool = 0 if action == SEGMENT_FREE and size == SMALL_SEGMENT_BYTES else 1
            ranges.add(Range(address, size, stream, pool, action == SEGMENT_UNMAP))
    return contradictions


def _redo_events(
    tables: DeviceTables,
    first_blocks: dict[int, LiveBlock],
    large_segments: _LargeSegments,
    settings: Settings,
    last_blocks: dict[int, LiveBlock],
) -> list[int]:
    current_sizes = {address: block.size for address, block in first_blocks.items()}
    sizes = list(tables.sizes)
    rounded_sizes: dict[int, int] = {}
    for i, (action, address, size) in enumerate(
        zip(tables.actions, tables.addresses, tables.sizes, strict=True)
    ):
        if action == ALLOC:
            if size not in rounded_sizes:
                rounded_sizes[size] = settings.rounded(size)
            block_size = rounded_sizes[size]
            if block_size > SMALL_REQUEST_BYTES:
                block_size = large_segments.size_of(address, size, settings)
                large_segments.put(address)
            sizes[i] = current_sizes[address] = block_size
            if address in last_blocks:
                last_blocks[address].event = i
        elif action == FREE_REQUESTED:
            sizes[i] = current_sizes.get(address) or settings.rounded(size)
            if address in last_blocks:
                last_blocks[address].event = i
        elif action == FREE_COMPLETED:
            sizes[i] = current_sizes.pop(address, 0) or settings.rounded(size)
            large_segments.take(address)
        elif action == SEGMENT_ALLOC:
            if size > SMALL_SEGMENT_BYTES:
                large_segments.add_segment(address, size)
        elif action == SEGMENT_FREE:
            large_segments.remove_segment(address)
    if tables.block_sizes:
        return tables.block_sizes
    # The final state is more exact about its blocks than the events that created them.
    for block in last_blocks.values():
        if block.event >= 0:
            sizes[block.event] = block.size
    return sizes


class _LargeSegments:
    """Blocks in segments of the large pool, where a block can be larger than its rounded request."""

    def __init__(self, segments: list[Range]) -> None:
        self._starts = sorted(segment.address for segment in segments)
        self._ends = {segment.address: segment.end for segment in segments}
        self._blocks: dict[int, list[int]] = {segment.address: [] for segment in segments}

    def add_segment(self, address: int, size: int) -> None:
        if address not in self._ends:
            insort(self._starts, address)
        self._ends[address] = address + size
        self._blocks[address] = []

    def remove_segment(self, address: int) -> None:
        if address in self._ends:
            del self._starts[bisect_left(self._starts, address)]
            del self._ends[address], self._blocks[address]

    def _start_of(self, address: int) -> int | None:
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ends[self._starts[index]]:
            return None
        return self._starts[index]

    def put(self, address: int) -> None:
        start = self._start_of(address)
        if start is not None:
            insort(self._blocks[start], address)

    def take(self, address: int) -> None:
        start = self._start_of(address)
        if start is None:
            return
        blocks = self._blocks[start]
        index = bisect_left(blocks, address)
        if index < len(blocks) and blocks[index] == address:
            del blocks[index]

    def size_of(self, address: int, requested: int, settings: Settings) -> int:
        """Return the size of the block that an allocator uses for a request. The size is that of the rounded
        request, or of the whole free range if the range is not split.
        """
        size = settings.rounded(requested)
        start = self._start_of(address)
        if start is None:
            return size
        blocks = self._blocks[start]
        index = bisect_right(blocks, address)
        gap = (blocks[index] if index < len(blocks) else self._ends[start]) - address
        if gap >= size and settings.splits(gap, size, is_small=False, is_expandable=False):
            return size
        return gap
