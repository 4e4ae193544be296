"""Contents of a memory pool: its segments and the blocks that tile them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.origin import Provenance

BlockState = Literal["used", "waiting", "free", "unmapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a memory segment that is in use or free.

    The field ``requested_bytes`` is the size that the program requested, and ``label`` describes the
    contents; a free block has neither. ``is_waiting`` is true for a block that the program has freed but
    another stream may still use (PyTorch's ``record_stream``). ``is_unmapped`` is true for a hole in an
    expandable segment, addresses without memory. ``stack`` is the number of the stack trace that allocated it
    in the trace of the map (-1: not known), ``event`` that of the event that caused its state.
    """

    address: int
    size_bytes: int
    is_free: bool
    requested_bytes: int = 0
    label: str = ""
    is_waiting: bool = False
    is_unmapped: bool = False
    stack: int = -1
    event: int = -1

    @property
    def state(self) -> BlockState:
        """The state of the block in one word, such as ``"free"``."""
        if self.is_unmapped:
            return "unmapped"
        if self.is_waiting:
            return "waiting"
        return "free" if self.is_free else "used"

    @property
    def end(self) -> int:
        """The address after the last byte of the block."""
        return self.address + self.size_bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """One allocation of device memory (``cudaMalloc``), which is divided into blocks in the order of
    addresses.

    The field ``stream`` is the handle of the stream that uses the segment. ``pool`` is the name of its pool
    if an allocator has several, such as PyTorch's ``"small"`` and ``"large"``. An expandable segment is a
    range of addresses into which memory is mapped as it is needed.
    """

    address: int
    size_bytes: int
    stream: int
    blocks: tuple[Block, ...]
    pool: str = ""
    is_expandable: bool = False


@dataclass(frozen=True, slots=True)
class BlockMap:
    """All segments and blocks of a memory pool at one moment, in the order of addresses.

    If the pool has no limit, ``limit_bytes`` is 0.
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
        """Number of bytes that the pool has reserved from the device."""
        return sum(block.size_bytes for block in self.blocks if not block.is_unmapped)

    @property
    def used_bytes(self) -> int:
        """Number of bytes in blocks that are in use or wait for a stream. The size of each block is rounded
        up.
        """
        return sum(block.size_bytes for block in self.blocks if block.state in ("used", "waiting"))

    @property
    def free_bytes(self) -> int:
        """Number of reserved bytes that are not in use."""
        return self.total_bytes - self.used_bytes

    @property
    def largest_free_bytes(self) -> int:
        """The size of the largest free block in bytes, over the segments of all streams."""
        return max((block.size_bytes for block in self.blocks if block.state == "free"), default=0)
