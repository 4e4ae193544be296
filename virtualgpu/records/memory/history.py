"""An allocator's trace as lives: each block and each mapped range from the step that began it to its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.memory.events import AllocatorTrace

Column = npt.NDArray[np.int64]
Steps = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLives:
    """All blocks that ever were in use, in the order of their addresses, as columns of equal length.

    Parameters
    ----------
    addresses, size_bytes, requested_bytes, streams
        As in `Block` and `AllocatorEvents`.
    stacks
        Number of the stack trace that allocated it, -1 for none.
    segments
        Its segment, an index into `SegmentLives`.
    begins, freed, ends
        Steps: from `begins` on it is in use, from `freed` on it waits, from `ends` on it is free. Step k is
        the state after the first k events; one past the last step means never.
    labels
        What each is, where that is known, by its place in the columns.
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
    """Ranges of addresses with memory behind them, in the order of addresses; see `BlockLives`.

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
    """All segments that ever were. ``is_seen`` is False for one known only from blocks that lay in it."""

    streams: tuple[int, ...]
    pools: tuple[str, ...]
    is_expandable: tuple[bool, ...]
    is_seen: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.streams)


@dataclass(frozen=True, slots=True)
class AllocatorHistory:
    """A trace, with the lives that its events began and ended.

    ``event_blocks`` has the block that each event was about, as an index into `blocks`, or -1.
    """

    trace: AllocatorTrace
    blocks: BlockLives
    ranges: RangeLives
    segments: SegmentLives
    event_blocks: npt.NDArray[np.int32]

    @property
    def last_step(self) -> int:
        return len(self.trace.events)

    @property
    def used_bytes(self) -> Column:
        """Bytes of blocks in use or waiting, at each step."""
        return self._sums(self.blocks)

    @property
    def reserved_bytes(self) -> Column:
        """Bytes taken from the device, at each step."""
        return self._sums(self.ranges)

    def _sums(self, lives: BlockLives | RangeLives) -> Column:
        change = np.zeros(self.last_step + 2, np.int64)
        np.add.at(change, lives.begins, lives.size_bytes)
        np.add.at(change, lives.ends, -lives.size_bytes)
        return np.cumsum(change[:-1])
