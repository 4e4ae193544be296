"""Lifetimes of an allocator's blocks and mapped ranges, as steps of its trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.memory.events import AllocatorTrace

Column = npt.NDArray[np.int64]
Steps = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLives:
    """The lifetimes of all blocks that were in use, as columns of equal length. The blocks are sorted by
    address.

    Parameters
    ----------
    addresses, size_bytes, requested_bytes, streams
        As in `Block` and `AllocatorEvents`.
    stacks
        Number of the stack trace that allocated it, -1 for none.
    segments
        Its segment, an index into `SegmentLives`.
    begins, freed, ends
        Steps: a block is in use from `begins` on, waits from `freed` on, and is free from `ends` on. Step k
        is the state after the first k events; one past the last step means never.
    labels
        Descriptions of known contents, by index into the columns.
    """

    addresses: Column
    size_bytes: Column
    requested_bytes: Column
    streams: Column
    stacks: npt.NDArray[np.int32]
    segments: npt.NDArray[np.int32]
    begins: Steps
    freed: Steps
    ends: Steps
    labels: dict[int, str]

    def __len__(self) -> int:
        return len(self.addresses)


@dataclass(frozen=True, slots=True)
class RangeLives:
    """The lifetimes of all address ranges with mapped memory, sorted by address. The columns are the same as
    those of `BlockLives`.

    A plain segment is one range; an expandable one gains and loses ranges.
    """

    addresses: Column
    size_bytes: Column
    segments: npt.NDArray[np.int32]
    begins: Steps
    ends: Steps

    def __len__(self) -> int:
        return len(self.addresses)


@dataclass(frozen=True, slots=True)
class SegmentLives:
    """All memory segments of a trace. The column ``is_seen`` is False for a segment that is known only from
    its blocks.
    """

    streams: tuple[int, ...]
    pools: tuple[str, ...]
    is_expandable: tuple[bool, ...]
    is_seen: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.streams)


@dataclass(frozen=True, slots=True)
class AllocatorHistory:
    """The trace of an allocator, with the lifetimes of its blocks, ranges and segments.

    The array ``event_blocks`` contains the block of each event as an index into `blocks`, or -1.
    """

    trace: AllocatorTrace
    blocks: BlockLives
    ranges: RangeLives
    segments: SegmentLives
    event_blocks: npt.NDArray[np.int32]

    @property
    def last_step(self) -> int:
        """The number of the last step of the trace."""
        return len(self.trace.events)

    @property
    def used_bytes(self) -> Column:
        """Number of bytes at each step in blocks that are in use or wait for a stream."""
        return self._sum_size_bytes(self.blocks)

    @property
    def reserved_bytes(self) -> Column:
        """Number of bytes at each step that are reserved from the device."""
        return self._sum_size_bytes(self.ranges)

    def _sum_size_bytes(self, lifetimes: BlockLives | RangeLives) -> Column:
        byte_changes = np.zeros(self.last_step + 2, np.int64)
        np.add.at(byte_changes, lifetimes.begins, lifetimes.size_bytes)
        np.add.at(byte_changes, lifetimes.ends, -lifetimes.size_bytes)
        return np.cumsum(byte_changes[:-1])
