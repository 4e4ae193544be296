"""Blocks of PyTorch's caching allocator, and the pools that contain the free blocks in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from gpulab.allocators.torch.device import Device
from gpulab.allocators.torch.settings import MIB


class Expandable:
    """An expandable segment, which is an address range larger than the device memory. Pages are mapped into
    it on demand.
    """

    __slots__ = ("address", "page_bytes", "size_bytes")

    def __init__(self, device: Device, page_bytes: int) -> None:
        min_bytes = device.capacity_bytes + device.capacity_bytes // 8
        self.page_bytes = page_bytes
        self.size_bytes = -(-min_bytes // page_bytes) * page_bytes
        self.address = device.reserve(self.size_bytes)


class Block:
    """A part of a segment. The attributes ``before`` and ``after`` are the neighbouring blocks in the
    segment.
    """

    __slots__ = (
        "address",
        "after",
        "age_base",
        "before",
        "events",
        "expandable",
        "is_allocated",
        "is_mapped",
        "pool",
        "requested",
        "size",
        "stream",
        "uses",
    )

    def __init__(
        self, pool: Pool, stream: int, address: int, size: int, expandable: Expandable | None = None
    ) -> None:
        self.pool = pool
        self.stream = stream
        self.address = address
        self.size = size
        self.requested = 0
        self.is_allocated = False
        self.is_mapped = True
        self.uses: set[int] = set()
        self.events = 0
        self.age_base = 0
        self.before: Block | None = None
        self.after: Block | None = None
        self.expandable = expandable

    @property
    def key(self) -> tuple[int, int, int]:
        return self.stream, self.size, self.address

    @property
    def is_split(self) -> bool:
        return self.before is not None or self.after is not None

    @property
    def is_busy(self) -> bool:
        """Return whether the block is in use or waits for the work of another stream."""
        return self.is_allocated or self.events > 0 or bool(self.uses)

    def insert_after(self, other: Block) -> None:
        """Insert this block after the block `other` in the linked list of a segment's blocks."""
        self.before = other
        self.after = other.after
        if other.after is not None:
            other.after.before = self
        other.after = self

    def insert_before(self, other: Block) -> None:
        """Insert this block before the block `other` in the linked list of a segment's blocks."""
        self.before = other.before
        self.after = other
        if other.before is not None:
            other.before.after = self
        other.before = self


class Pool:
    """The free blocks for small or for large requests, ordered by stream, size and address."""

    def __init__(self, is_small: bool) -> None:
        self.is_small = is_small
        self.searches = 0
        self._keys: list[tuple[int, int, int]] = []
        self._blocks: dict[tuple[int, int, int], Block] = {}
        self._unmapped: list[tuple[int, int]] = []
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
        block.age_base = self.searches
        insort(self._keys, block.key)
        self._blocks[block.key] = block

    def remove(self, block: Block) -> None:
        del self._keys[bisect_left(self._keys, block.key)]
        del self._blocks[block.key]

    def index_of(self, stream: int, size: int) -> int:
        """Return the index of the smallest free block of a stream that is at least `size` bytes large."""
        return bisect_left(self._keys, (stream, size, 0))

    def at(self, index: int) -> Block | None:
        return self._blocks[self._keys[index]] if 0 <= index < len(self._keys) else None

    def add_hole(self, block: Block) -> None:
        """Add a part of an expandable segment to which no memory is mapped."""
        insort(self._unmapped, (block.stream, block.address))
        self._holes[block.stream, block.address] = block

    def remove_hole(self, block: Block) -> None:
        del self._unmapped[bisect_left(self._unmapped, (block.stream, block.address))]
        del self._holes[block.stream, block.address]

    def list_stream_holes(self, stream: int) -> Iterator[Block]:
        """Return the unmapped parts of a stream's expandable segments, sorted by address."""
        for key in self._unmapped[bisect_left(self._unmapped, (stream, 0)) :]:
            if key[0] != stream:
                return
            yield self._holes[key]

    def list_holes(self) -> Iterator[Block]:
        return iter([self._holes[key] for key in self._unmapped])

    def page_bytes(self, large_segment_bytes: int) -> int:
        """The size in bytes of the pages in expandable segments of this pool."""
        return 2 * MIB if self.is_small else large_segment_bytes
