"""Uses of memory: which share a byte, and those of a place."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from gpulab.analysis.order import Clock, Moment, StreamKey
from virtualgpu.records import SourceLine
from virtualgpu.records.acts import Region

# Steps that NumPy may take to decide whether two strided regions meet; after that they count as meeting.
_MAX_WORK: Any = 20_000  # NumPy's stubs know only its two special values
_MAX_ITEM_BYTES = 2**31 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Use:
    """One operation's use of one region: who, where, when."""

    region: Region
    writes: bool
    moment: Moment
    at: int
    name: str
    stream: StreamKey | None  # None: the host
    source: SourceLine | None
    launch: int = 0  # of a graph's node, with the stream it was captured in
    inner: StreamKey | None = None
    atomic: bool = False  # then it writes, too

    def clashes(self, other: Use) -> bool:
        """Whether the two need an order, if they share a byte."""
        return (self.writes or other.writes) and not (self.atomic and other.atomic)

    def hides(self, other: Use) -> bool:
        """Whether whatever clashes with an earlier use of the same bytes, clashes with this one, too."""
        if self.atomic:
            return other.atomic
        return self.writes or not other.writes


class _Somewhere:
    """What NumPy takes for an array at an address. Nothing is ever read there."""

    def __init__(self, region: Region) -> None:
        item = region.item_bytes
        shape = region.shape
        strides = region.strides
        if item > _MAX_ITEM_BYTES or not shape:
            shape = (*shape, item)
            strides = (*strides, 1)
            item = 1
        self.__array_interface__ = {
            "data": (region.address, False),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{item}",
            "version": 3,
        }

    def array(self) -> npt.NDArray[np.void]:
        return np.asarray(self)


def overlap(a: Region, b: Region) -> bool:
    """Whether two regions share a byte, exactly unless their layouts are a puzzle."""
    if a.memory != b.memory or a.start >= b.end or b.start >= a.end:
        return False
    if not a.shape and not b.shape:
        return True
    try:
        return np.shares_memory(_Somewhere(a).array(), _Somewhere(b).array(), max_work=_MAX_WORK)
    except np.exceptions.TooHardError:
        return True


def covers(a: Region, b: Region) -> bool:
    """Whether a region surely has every byte of another one."""
    if not a.shape:
        return a.start <= b.start and b.end <= a.end
    return (a.address, a.item_bytes, a.shape, a.strides) == (b.address, b.item_bytes, b.shape, b.strides)


class Places(Generic[T]):
    """Things at places of one memory, found by the bytes that they may share with others.

    They are kept by the size of their place, in powers of two: what meets a range begins less than that
    before it.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[list[int], dict[int, list[T]]]] = {}  # starts, and what begins there

    def meeting(self, region: Region) -> list[list[T]]:
        """Lists of things that may meet a region, each to be changed in place."""
        start = region.start
        end = region.end
        found = []
        for size, (starts, lists) in self._sizes.items():
            first = bisect_right(starts, start - (1 << size))
            last = bisect_left(starts, end)
            for at in starts[first:last]:
                members = lists[at]
                if members:
                    found.append(members)
                else:
                    del lists[at], starts[bisect_left(starts, at)]
        return found

    def add(self, region: Region, thing: T) -> None:
        """Keep a thing at a region."""
        start = region.start
        starts, lists = self._sizes.setdefault((region.end - start).bit_length(), ([], {}))
        if start not in lists:
            lists[start] = []
            insort(starts, start)
        lists[start].append(thing)


@dataclass(slots=True)
class Block:
    """A block that was given back or given out, and when. Of one given back, what its next owner follows."""

    region: Region
    at: int
    source: SourceLine | None
    clock: Clock = field(default_factory=dict)
    is_private: bool = False


class Blocks:
    """Blocks of one memory that do not meet, by their start."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: dict[int, Block] = {}

    def meeting(self, region: Region) -> list[Block]:
        """Those that a region meets."""
        first, last = self._span(region)
        return [self._blocks[start] for start in self._starts[first:last]]

    def take(self, region: Region) -> list[Block]:
        """Remove those that a region meets, and return them."""
        first, last = self._span(region)
        taken = [self._blocks.pop(start) for start in self._starts[first:last]]
        del self._starts[first:last]
        return taken

    def put(self, block: Block) -> None:
        """Add one in the place of those that it meets."""
        self.take(block.region)
        insort(self._starts, block.region.start)
        self._blocks[block.region.start] = block

    def _span(self, region: Region) -> tuple[int, int]:
        first = max(bisect_right(self._starts, region.start) - 1, 0)
        if first < len(self._starts) and self._blocks[self._starts[first]].region.end <= region.start:
            first += 1
        return first, bisect_left(self._starts, region.end)
