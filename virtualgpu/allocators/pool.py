"""CuPy's memory pool of one device, for segments of any kind of memory.

The pool follows CuPy's documented rules: requests are rounded up to 512 bytes; each stream has its
own arena of free chunks; the smallest free chunk that fits is taken and, if larger, split; a freed
chunk merges with free neighbours of its segment; only whole segments are returned to the device.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic

from virtualgpu.allocators.chunks import Arena, Chunk, Mem


class ChunkPool(Generic[Mem]):
    """A memory pool that divides segments of device memory into chunks. The pool keeps a separate collection
    of free chunks for each stream. All sizes are in bytes.

    Parameters
    ----------
    collect_garbage : callable
        Function that collects cyclic garbage. The pool calls it before a request fails.
    handle_release : callable
        Function that the pool calls with the only chunk of each segment that it returns to the device.

    Notes
    -----
    Several threads can use a pool. During a call, the garbage collector can free an array whose hooks use the
    pool. Such a nested call does not change the chunks: freed chunks wait for the next call.
    """

    def __init__(
        self,
        collect_garbage: Callable[[], object] = lambda: None,
        handle_release: Callable[[Chunk[Mem]], object] = lambda chunk: None,
    ) -> None:
        self._collect_garbage = collect_garbage
        self._handle_release = handle_release
        self._arenas: dict[int, Arena[Mem]] = {}
        self._order_numbers = itertools.count()
        self._used_bytes = 0
        self._total_bytes = 0
        self.limit_bytes = 0
        self._returned_chunks: list[Chunk[Mem]] = []
        # An array may die together with its chunk, in a cycle with the frames of an exception. The
        # chunk comes back to the pool then, and its segment must not be finalised with the rest.
        self._first_chunks: set[Chunk[Mem]] = set()  # their first chunks
        self._mutex = threading.RLock()
        self._is_changing = False

    def take_chunk(self, size: int, stream: int, allocate: Callable[[int], Mem | None]) -> Chunk[Mem] | None:
        """Return a free chunk of the stream with handle `stream`, or allocate a new segment.

        The function `allocate` must return new device memory, or None if the device is full. The result is
        None if the limit or the device's memory is exceeded even after free blocks were released.
        """
        with self.lock_pool() as is_alone:
            arena = self._arenas.get(stream)
            if arena is None:
                arena = self._arenas[stream] = Arena(stream, self._order_numbers)
            chunk = arena.take_chunk(size) if is_alone else None
            self._used_bytes += size if chunk else 0
        if chunk is None:
            mem = self._new_segment(size, allocate)
            if mem is None:
                return None
            chunk = Chunk(mem, 0, size, arena)
            with self._mutex:
                self._first_chunks.add(chunk)
                self._used_bytes += size
        return chunk

    def return_chunk(self, chunk: Chunk[Mem]) -> None:
        """Return a chunk to the pool without blocking while another thread uses the pool."""
        if not chunk.mem.ptr:
            return  # the whole pool is garbage, and its segment happened to be finalised first
        self._returned_chunks.append(chunk)
        if self._mutex.acquire(blocking=False):
            try:
                if not self._is_changing:
                    self._add_returned_chunks()
            finally:
                self._mutex.release()

    @contextmanager
    def lock_pool(self) -> Iterator[bool]:
        """Context manager that locks the pool, and yields True if the caller may change its chunks.

        It yields False in a nested call of the same thread, as the notes of the class explain.
        """
        with self._mutex:
            is_alone = not self._is_changing
            if is_alone:
                self._add_returned_chunks()
            self._is_changing = True
            try:
                yield is_alone
            finally:
                self._is_changing = not is_alone

    def _add_returned_chunks(self) -> None:
        self._is_changing = True
        try:
            while self._returned_chunks:
                chunk = self._returned_chunks.pop()
                self._used_bytes -= chunk.size
                chunk.arena.add_chunk(chunk)
        finally:
            self._is_changing = False

    def _new_segment(self, size: int, allocate: Callable[[int], Mem | None]) -> Mem | None:
        """Allocate a segment on the device; free blocks are released if there is not enough memory."""
        if 0 < self.limit_bytes < size or not any(
            self._reserve_bytes(size) for _ in self._iterate_attempts()
        ):
            return None
        memory = None
        try:
            for _ in self._iterate_attempts():
                memory = allocate(size)
                if memory is not None:
                    break
        finally:
            if memory is None:
                with self._mutex:
                    self._total_bytes -= size
        return memory

    def _iterate_attempts(self) -> Iterator[None]:
        """Yield before each of three attempts to get memory. Free blocks are released before the second
        attempt, and cyclic garbage is collected before the third.
        """
        yield
        self.free_all_blocks()
        yield
        self._collect_garbage()
        self.free_all_blocks()
        yield

    def _reserve_bytes(self, size: int) -> bool:
        with self._mutex:
            is_within_limit = not self.limit_bytes or self._total_bytes + size <= self.limit_bytes
            self._total_bytes += size if is_within_limit else 0
        return is_within_limit

    def free_all_blocks(self, stream: int | None = None) -> None:
        """Return the memory of unused segments to the device. If `stream` is given, only the segments of that
        stream are returned.

        A segment with a part in use is kept.
        """
        with self.lock_pool() as is_alone:
            arenas = self._arenas.values() if stream is None else [self._arenas.get(stream)]
            for arena in list(arenas) if is_alone else ():
                for chunk in arena.release_whole_segments() if arena else ():
                    self._total_bytes -= chunk.size
                    self._first_chunks.discard(chunk)
                    self._handle_release(chunk)

    def segments(self) -> list[Chunk[Mem]]:
        """Return the first chunk of each segment in the pool, ordered by address."""
        return sorted(self._first_chunks, key=lambda chunk: chunk.address)

    def n_free_blocks(self) -> int:
        """Number of free blocks of all streams in the pool."""
        with self.lock_pool():
            return sum(map(len, self._arenas.values()))

    def used_bytes(self) -> int:
        """Total size in bytes of the blocks that the program uses."""
        with self.lock_pool():
            return self._used_bytes - sum(chunk.size for chunk in self._returned_chunks)

    def free_bytes(self) -> int:
        """Number of bytes that the pool has allocated but the program does not use."""
        return self._total_bytes - self.used_bytes()

    def total_bytes(self) -> int:
        """Number of bytes that the pool has allocated on the device."""
        return self._total_bytes
