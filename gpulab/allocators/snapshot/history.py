"""Reconstruct what a snapshot does not contain: the state before its first event, and sizes of blocks.

PyTorch's trace has the requested bytes; blocks are larger. Because the final state is known, the events are
undone one by one to find the first state, and then applied again with the allocator's rules for sizes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass

from gpulab.allocators.snapshot.ranges import Range, Ranges
from gpulab.allocators.snapshot.tables import ACTION_CODES, FREE, USED, WAITING, DeviceTables
from gpulab.allocators.torch.settings import SMALL_REQUEST_BYTES, SMALL_SEGMENT_BYTES, Settings

ALLOC = ACTION_CODES["alloc"]
FREE_REQUESTED = ACTION_CODES["free_requested"]
FREE_COMPLETED = ACTION_CODES["free_completed"]
SEGMENT_ALLOC = ACTION_CODES["segment_alloc"]
SEGMENT_FREE = ACTION_CODES["segment_free"]
SEGMENT_MAP = ACTION_CODES["segment_map"]
SEGMENT_UNMAP = ACTION_CODES["segment_unmap"]


@dataclass(slots=True)
class LiveBlock:
    """A block of memory that is in use or waits for a stream. The attribute `size` is 0 until the size is
    known.
    """

    size: int
    requested_bytes: int
    state: int
    stack_number: int
    event_index: int = -1


@dataclass(frozen=True, slots=True)
class DeviceHistory:
    """The state of a device's memory before and after all events, with the block size of each event."""

    first_ranges: list[Range]
    first_blocks: dict[int, LiveBlock]
    last_ranges: list[Range]
    last_blocks: dict[int, LiveBlock]
    block_sizes: list[int]
    mismatch_count: int


def reconstruct_history(device_tables: DeviceTables, settings: Settings) -> DeviceHistory:
    """Reconstruct the first memory state of a device from its last state and its events, and find the block
    size of each event.
    """
    segment_ranges = Ranges(device_tables.segments)
    blocks = {
        block.address: LiveBlock(block.size, block.requested_bytes, block.state_code, block.stack_number)
        for block in device_tables.blocks
        if block.state_code != FREE
    }
    last_blocks = {
        address: LiveBlock(block.size, block.requested_bytes, block.state, block.stack_number)
        for address, block in blocks.items()
    }
    mismatch_count = _undo_events(device_tables, segment_ranges, blocks)
    first_ranges = list(segment_ranges)
    large_segments = _LargeSegments(
        [
            segment_range
            for segment_range in segment_ranges
            if not segment_range.is_expandable and segment_range.size > SMALL_SEGMENT_BYTES
        ]
    )
    for address in sorted(blocks, reverse=True):
        block = blocks[address]
        if not block.size:
            block.size = large_segments.find_block_size(address, block.requested_bytes, settings)
        large_segments.add_block(address)
    allocated_sizes = _redo_events(device_tables, blocks, large_segments, settings, last_blocks)
    return DeviceHistory(
        first_ranges, blocks, device_tables.segments, last_blocks, allocated_sizes, mismatch_count
    )


def _undo_events(device_tables: DeviceTables, ranges: Ranges, blocks: dict[int, LiveBlock]) -> int:
    mismatch_count = 0
    block_sizes = device_tables.block_sizes or [0] * len(device_tables.sizes)
    event_rows = zip(
        device_tables.actions,
        device_tables.addresses,
        device_tables.sizes,
        device_tables.streams,
        block_sizes,
        strict=True,
    )
    for action, address, size, stream, block_size in reversed(list(event_rows)):
        if action == ALLOC:
            mismatch_count += blocks.pop(address, None) is None
        elif action == FREE_COMPLETED:
            mismatch_count += address in blocks
            blocks[address] = LiveBlock(block_size, size, WAITING, -1)
        elif action == FREE_REQUESTED:
            if address in blocks:
                blocks[address].state = USED
            else:
                blocks[address] = LiveBlock(block_size, size, USED, -1)
        elif action in (SEGMENT_ALLOC, SEGMENT_MAP):
            mismatch_count += ranges.remove_range(address, size) is None
        elif action in (SEGMENT_FREE, SEGMENT_UNMAP):
            pool = 0 if action == SEGMENT_FREE and size == SMALL_SEGMENT_BYTES else 1
            ranges.add_range(Range(address, size, stream, pool, action == SEGMENT_UNMAP))
    return mismatch_count


def _redo_events(
    device_tables: DeviceTables,
    first_blocks: dict[int, LiveBlock],
    large_segments: _LargeSegments,
    settings: Settings,
    last_blocks: dict[int, LiveBlock],
) -> list[int]:
    current_sizes = {address: block.size for address, block in first_blocks.items()}
    event_block_sizes = list(device_tables.sizes)
    rounded_sizes: dict[int, int] = {}
    for i, (action, address, size) in enumerate(
        zip(device_tables.actions, device_tables.addresses, device_tables.sizes, strict=True)
    ):
        if action == ALLOC:
            if size not in rounded_sizes:
                rounded_sizes[size] = settings.round_size(size)
            block_size = rounded_sizes[size]
            if block_size > SMALL_REQUEST_BYTES:
                block_size = large_segments.find_block_size(address, size, settings)
                large_segments.add_block(address)
            event_block_sizes[i] = current_sizes[address] = block_size
            if address in last_blocks:
                last_blocks[address].event_index = i
        elif action == FREE_REQUESTED:
            event_block_sizes[i] = current_sizes.get(address) or settings.round_size(size)
            if address in last_blocks:
                last_blocks[address].event_index = i
        elif action == FREE_COMPLETED:
            event_block_sizes[i] = current_sizes.pop(address, 0) or settings.round_size(size)
            large_segments.remove_block(address)
        elif action == SEGMENT_ALLOC:
            if size > SMALL_SEGMENT_BYTES:
                large_segments.add_segment(address, size)
        elif action == SEGMENT_FREE:
            large_segments.remove_segment(address)
    if device_tables.block_sizes:
        return device_tables.block_sizes
    # The final state is more exact about its blocks than the events that created them.
    for block in last_blocks.values():
        if block.event_index >= 0:
            event_block_sizes[block.event_index] = block.size
    return event_block_sizes


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

    def _find_segment_start(self, address: int) -> int | None:
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ends[self._starts[index]]:
            return None
        return self._starts[index]

    def add_block(self, address: int) -> None:
        segment_start = self._find_segment_start(address)
        if segment_start is not None:
            insort(self._blocks[segment_start], address)

    def remove_block(self, address: int) -> None:
        segment_start = self._find_segment_start(address)
        if segment_start is None:
            return
        blocks = self._blocks[segment_start]
        index = bisect_left(blocks, address)
        if index < len(blocks) and blocks[index] == address:
            del blocks[index]

    def find_block_size(self, address: int, requested_bytes: int, settings: Settings) -> int:
        """Return the size of the block that an allocator uses for a request. The size is that of the rounded
        request, or of the whole free range if the range is not split.
        """
        rounded_bytes = settings.round_size(requested_bytes)
        segment_start = self._find_segment_start(address)
        if segment_start is None:
            return rounded_bytes
        blocks = self._blocks[segment_start]
        next_index = bisect_right(blocks, address)
        gap_bytes = (blocks[next_index] if next_index < len(blocks) else self._ends[segment_start]) - address
        if gap_bytes >= rounded_bytes and settings.splits_block(
            gap_bytes, rounded_bytes, is_small=False, is_expandable=False
        ):
            return rounded_bytes
        return gap_bytes
