"""Blocks of PyTorch's caching allocator, and the pools that contain the free blocks in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from gpulab.allocators.torch.device import Device
from gpulab.allocators.torch.settings import MIB


class ExpandableSegment:
    """An expandable segment, which is an address range larger than the device memory. Pages are mapped into
    it on demand.
    """

    __slots__ = ("address", "page_bytes", "size_bytes")

    def __init__(self, device: Device, page_bytes: int) -> None:
        min_bytes = device.capacity_bytes + device.capacity_bytes // 8
        self.page_bytes = page_bytes
        self.size_bytes = -(-min_bytes // page_bytes) * page_bytes
        self.address = device.reserve_addresses(self.size_bytes)


class Block:
    """A part of a segment. The attributes ``previous_block`` and ``next_block`` are the neighbouring
    blocks in the segment.
    """

    __slots__ = (
        "address",
        "expandable_segment",
        "is_allocated",
        "is_mapped",
        "next_block",
        "pending_event_count",
        "pool",
        "previous_block",
        "requested_bytes",
        "search_count_at_insertion",
        "size",
        "stream",
        "using_streams",
    )

    def __init__(
        self,
        pool: Pool,
        stream: int,
        address: int,
        size: int,
        expandable_segment: ExpandableSegment | None = None,
    ) -> None:
        self.pool = pool
        self.stream = stream
        self.address = address
        self.size = size
        self.requested_bytes = 0
        self.is_allocated = False
        self.is_mapped = True
        self.using_streams: set[int] = set()
        self.pending_event_count = 0
        self.search_count_at_insertion = 0
        self.previous_block: Block | None = None
        self.next_block: Block | None = None
        self.expandable_segment = expandable_segment

    @property
    def key(self) -> tuple[int, int, int]:
        return self.stream, self.size, self.address

    @property
    def is_split(self) -> bool:
        return self.previous_block is not None or self.next_block is not None

    @property
    def is_busy(self) -> bool:
        """Return whether the block is in use or waits for the work of another stream."""
        return self.is_allocated or self.pending_event_count > 0 or bool(self.using_streams)

    def insert_after(self, other_block: Block) -> None:
        """Insert this block after `other_block` in the linked list of a segment's blocks."""
        self.previous_block = other_block
        self.next_block = other_block.next_block
        if other_block.next_block is not None:
            other_block.next_block.previous_block = self
        other_block.next_block = self

    def insert_before(self, other_block: Block) -> None:
        """Insert this block before `other_block` in the linked list of a segment's blocks."""
        self.previous_block = other_block.previous_block
        self.next_block = other_block
        if other_block.previous_block is not None:
            other_block.previous_block.next_block = self
        other_block.previous_block = self


class Pool:
    """The free blocks for small or for large requests, ordered by stream, size and address."""

    def __init__(self, is_small: bool) -> None:
        self.is_small = is_small
        self.search_count = 0
        self._keys: list[tuple[int, int, int]] = []
        self._blocks: dict[tuple[int, int, int], Block] = {}
        self._hole_keys: list[tuple[int, int]] = []
        self._holes: dict[tuple[int, int], Block] = {}

    @property
    def name(self) -> str:
        return "small" if self.is_small else "large"

    def __iter__(self) -> Iterator[Block]:
        """Iterate over the free blocks in order; the pool can change during the iteration."""
        return iter([self._blocks[key] for key in self._keys])

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, block: Block) -> None:
        block.search_count_at_insertion = self.search_count
        insort(self._keys, block.key)
        self._blocks[block.key] = block

    def remove(self, block: Block) -> None:
        del self._keys[bisect_left(self._keys, block.key)]
        del self._blocks[block.key]

    def find_block_index(self, stream: int, size: int) -> int:
        """Return the index of the smallest free block of a stream that is at least `size` bytes large."""
        return bisect_left(self._keys, (stream, size, 0))

    def block_at(self, index: int) -> Block | None:
        return self._blocks[self._keys[index]] if 0 <= index < len(self._keys) else None

    def add_hole(self, block: Block) -> None:
        """Add a part of an expandable segment to which no memory is mapped."""
        insort(self._hole_keys, (block.stream, block.address))
        self._holes[block.stream, block.address] = block

    def remove_hole(self, block: Block) -> None:
        del self._hole_keys[bisect_left(self._hole_keys, (block.stream, block.address))]
        del self._holes[block.stream, block.address]

    def list_stream_holes(self, stream: int) -> Iterator[Block]:
        """Return the unmapped parts of a stream's expandable segments, sorted by address."""
        for key in self._hole_keys[bisect_left(self._hole_keys, (stream, 0)) :]:
            if key[0] != stream:
                return
            yield self._holes[key]

    def list_holes(self) -> Iterator[Block]:
        return iter([self._holes[key] for key in self._hole_keys])

    def page_bytes(self, large_segment_bytes: int) -> int:
        """The size in bytes of the pages in expandable segments of this pool."""
        return 2 * MIB if self.is_small else large_segment_bytes
