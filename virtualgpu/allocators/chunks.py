"""Chunks of memory segments, and the free chunks of each stream."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class SegmentMemory(Protocol):
    """Interface for the device memory that one segment of a memory pool uses."""

    @property
    def ptr(self) -> int:
        """Address of the first byte of the memory, or 0 after the memory has been freed."""


Mem = TypeVar("Mem", bound=SegmentMemory)


class Chunk(Generic[Mem]):
    """A contiguous range of memory within one segment of a memory pool, either in use or free. The chunks
    `prev` and `next` are its neighbours in address order.

    A segment's first chunk stays the same object: splitting and joining keep the lower one.
    """

    __slots__ = ("arena", "is_free", "mem", "next", "offset", "order_number", "prev", "size")

    def __init__(self, mem: Mem, offset: int, size: int, arena: Arena[Mem]) -> None:
        self.mem = mem
        self.offset = offset
        self.size = size
        self.arena = arena
        self.is_free = False
        self.order_number = next(arena.order_numbers)
        self.prev: Chunk[Mem] | None = None
        self.next: Chunk[Mem] | None = None

    @property
    def address(self) -> int:
        return self.mem.ptr + self.offset

    @property
    def is_whole_segment(self) -> bool:
        """Return whether the chunk covers its whole segment."""
        return self.prev is None and self.next is None

    def iterate_to_end(self) -> Iterator[Chunk[Mem]]:
        """Return this chunk and all chunks after it in the same segment."""
        chunk: Chunk[Mem] | None = self
        while chunk is not None:
            yield chunk
            chunk = chunk.next

    def split(self, size: int) -> Chunk[Mem] | None:
        """Shorten the chunk to `size` bytes, and return a new chunk for the rest. Return None if nothing
        remains.
        """
        if self.size == size:
            return None
        remainder_chunk = Chunk(self.mem, self.offset + size, self.size - size, self.arena)
        remainder_chunk.prev = self
        remainder_chunk.next = self.next
        if self.next is not None:
            self.next.prev = remainder_chunk
        self.next = remainder_chunk
        self.size = size
        return remainder_chunk

    def absorb_next(self) -> None:
        """Merge the next chunk of the segment into this one."""
        absorbed_chunk = self.next
        assert absorbed_chunk is not None
        self.size += absorbed_chunk.size
        self.next = absorbed_chunk.next
        if absorbed_chunk.next is not None:
            absorbed_chunk.next.prev = self


class Arena(Generic[Mem]):
    """A sorted collection of a memory pool's free chunks for one stream. The attribute `stream` is the handle
    of that stream.

    If several free chunks have the same size, CuPy uses the one whose record has the lowest address in host
    memory. This address differs from run to run and cannot be predicted (tested with 359 recorded choices).
    The arena uses the chunk that was recorded first; `order_numbers` counts the records of a pool.
    """

    def __init__(self, stream: int, order_numbers: Iterator[int] | None = None) -> None:
        self.stream = stream
        self.order_numbers = itertools.count() if order_numbers is None else order_numbers
        self._sort_keys: list[tuple[int, int]] = []  # size, order
        self._chunks: dict[int, Chunk[Mem]] = {}  # by order

    def __len__(self) -> int:
        return len(self._sort_keys)

    def take_chunk(self, size: int) -> Chunk[Mem] | None:
        """Remove the smallest free chunk of at least `size` bytes, shorten it to that size, and return it."""
        i = bisect_left(self._sort_keys, (size, 0))
        if i == len(self._sort_keys):
            return None
        chunk = self._chunks[self._sort_keys[i][1]]
        self._remove_free_chunk(chunk)
        remainder = chunk.split(size)
        if remainder is not None:
            self._add_free_chunk(remainder)
        return chunk

    def add_chunk(self, chunk: Chunk[Mem]) -> None:
        """Merge a chunk with its free neighbours, and add the merged chunk to the collection."""
        while chunk.next is not None and chunk.next.is_free:
            self._remove_free_chunk(chunk.next)
            chunk.absorb_next()
        while chunk.prev is not None and chunk.prev.is_free:
            chunk = chunk.prev
            self._remove_free_chunk(chunk)
            chunk.absorb_next()
        self._add_free_chunk(chunk)

    def release_whole_segments(self) -> list[Chunk[Mem]]:
        """Remove the free chunks that are whole segments, and return them."""
        released_chunks = [chunk for chunk in self._chunks.values() if chunk.is_whole_segment]
        for chunk in released_chunks:
            self._remove_free_chunk(chunk)
        return released_chunks

    def _add_free_chunk(self, chunk: Chunk[Mem]) -> None:
        chunk.is_free = True
        insort(self._sort_keys, (chunk.size, chunk.order_number))
        self._chunks[chunk.order_number] = chunk

    def _remove_free_chunk(self, chunk: Chunk[Mem]) -> None:
        chunk.is_free = False
        del self._sort_keys[bisect_left(self._sort_keys, (chunk.size, chunk.order_number))]
        del self._chunks[chunk.order_number]
