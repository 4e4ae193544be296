"""What a memory pool holds: its segments and the blocks that tile them."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment, in use or free.

    ``requested_bytes`` is what the program asked for (``size_bytes`` is rounded up) and ``label`` says
    what it is; a free block has neither.
    """

    address: int
    size_bytes: int
    is_free: bool
    requested_bytes: int = 0
    label: str = ""

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """One allocation of the device (``cudaMalloc``); its blocks tile it in the order of addresses.

    ``stream`` is the handle of the stream whose allocations the segment serves.
    """

    address: int
    size_bytes: int
    stream: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class BlockMap:
    """All segments of one device's pool at one moment, in the order of addresses.

    ``limit_bytes`` is 0 where the pool has no limit.
    """

    provenance: Provenance
    device_id: int
    time_ns: int
    limit_bytes: int
    segments: tuple[Segment, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of all segments."""
        return tuple(block for segment in self.segments for block in segment.blocks)

    @property
    def total_bytes(self) -> int:
        """What the pool has taken from the device."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def used_bytes(self) -> int:
        """Bytes of the blocks in use, each rounded up."""
        return sum(block.size_bytes for block in self.blocks if not block.is_free)

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - self.used_bytes

    @property
    def largest_free_bytes(self) -> int:
        """The largest request that a free block serves, whichever its stream."""
        return max((block.size_bytes for block in self.blocks if block.is_free), default=0)
