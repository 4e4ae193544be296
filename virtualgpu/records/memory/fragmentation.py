"""How broken up the free memory of a pool is, and which request would fail."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """The free blocks that serve one stream (and one of an allocator's pools), and no other one.

    ``largest_request_bytes`` is the largest request that would be served now: from a free block, or with
    memory of the device after unused segments were given back; None where it is not known what the device
    could give.
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
    """A pool's memory at one moment, in bytes.

    Parameters
    ----------
    reserved_bytes, used_bytes
        What the pool took from the device, and what blocks in use or waiting have of it.
    free_bytes, largest_free_bytes
        Free within the pool, and the largest piece.
    rounding_bytes
        What blocks in use are larger than what was asked for, where that is known.
    releasable_bytes
        What emptying the cache would give back: segments without a block in use, or such pages of expandable
        ones.
    room_bytes
        What the pool may still take from the device; None where that is not known.
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
        """1 - largest free block / free memory: 0 if all free memory is one piece (or there is none)."""
        return 1 - self.largest_free_bytes / self.free_bytes if self.free_bytes else 0.0

    @property
    def held_bytes(self) -> int:
        """Free, but in segments that a block in use keeps."""
        return self.free_bytes - self.releasable_bytes

    @property
    def largest_request_bytes(self) -> int | None:
        """The largest request that any stream would be served; None where that is not known."""
        known = [a.largest_request_bytes for a in self.arenas if a.largest_request_bytes is not None]
        if self.room_bytes is None:
            return None
        return max(known, default=self.room_bytes)
