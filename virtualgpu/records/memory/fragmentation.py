"""Fragmentation of a pool's free memory, and the largest possible request."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """The free blocks that one stream can use in one of an allocator's pools.

    The field ``largest_request_bytes`` is the largest request that would succeed now, or None if the device's
    free memory is unknown.
    """

    stream: int
    pool: str
    used_bytes: int
    free_bytes: int
    largest_free_bytes: int
    free_blocks: int
    largest_request_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """The amounts of used, free and reserved memory in a memory pool at one moment.

    Parameters
    ----------
    reserved_bytes, used_bytes
        Bytes that the pool reserved from the device, and bytes of blocks in use or waiting.
    free_bytes, largest_free_bytes
        Free bytes within the pool, and the largest free block.
    rounding_bytes
        Bytes by which blocks in use exceed the requests, if known.
    releasable_bytes
        Bytes that emptying the cache would release: segments without a block in use, or such pages of
        expandable ones.
    room_bytes
        Bytes that the pool can still reserve from the device; None if not known.
    """

    provenance: Provenance
    reserved_bytes: int
    used_bytes: int
    free_bytes: int
    largest_free_bytes: int
    rounding_bytes: int
    releasable_bytes: int
    room_bytes: int | None
    arenas: tuple[Arena, ...]

    @property
    def external(self) -> float:
        """The external fragmentation, which is 1 - largest free block / free memory. The fragmentation is 0
        if there is no free memory.
        """
        return 1 - self.largest_free_bytes / self.free_bytes if self.free_bytes else 0.0

    @property
    def held_bytes(self) -> int:
        """Number of free bytes in segments that cannot be released because they contain a block in use."""
        return self.free_bytes - self.releasable_bytes

    @property
    def largest_request_bytes(self) -> int | None:
        """Size in bytes of the largest memory request that would succeed in any stream, or None if it is not
        known.
        """
        if self.room_bytes is None:
            return None
        arena_requests = [arena.largest_request_bytes for arena in self.arenas]
        known_requests = [size_bytes for size_bytes in arena_requests if size_bytes is not None]
        return max(known_requests, default=self.room_bytes)
