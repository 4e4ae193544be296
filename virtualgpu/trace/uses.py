"""Uses of memory: which share a byte, and those of a place."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from virtualgpu.records import SourceLine
from virtualgpu.records.acts import Region
from virtualgpu.trace.order import Moment, StreamKey

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
        item, shape, strides = region.item_bytes, region.shape, region.strides
        if item > _MAX_ITEM_BYTES or not shape:
            shape, strides, item = (*shape, item), (*strides, 1), 1
        self.__array_interface__ = {
            "data": (region.address, False), "shape": shape, "strides": strides, "typestr": f"|V{item}",
            "version": 3,
        }  # fmt: skip

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

    Those whose outer bounds meet are kept together, so that a look-up sees few of the others.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []  # of groups whose bounds do not meet
        self._groups: dict[int, tuple[int, list[T]]] = {}  # by their start: end, members

    def near(self, region: Region) -> list[T]:
        """All whose place may meet a region, and some more, as a list to change: new things go in here."""
        start, end = region.start, region.end
        first = max(bisect_right(self._starts, start) - 1, 0)
        if first < len(self._starts) and self._groups[self._starts[first]][0] <= start:
            first += 1
        last = bisect_left(self._starts, end)
        met = self._starts[first:last]
        if len(met) == 1 and met[0] <= start and end <= self._groups[met[0]][0]:
            return self._groups[met[0]][1]
        members: list[T] = []
        for each in met:
            known_end, inside = self._groups.pop(each)
            start, end = min(start, each), max(end, known_end)
            members += inside
        del self._starts[first:last]
        insort(self._starts, start)
        self._groups[start] = end, members
        return members

    def everything(self) -> Iterator[T]:
        """All there is."""
        for _, members in self._groups.values():
            yield from members
