"""Ranges of addresses that an allocator has taken from the device, as events come and go."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Range(NamedTuple):
    """A segment, or a part of an expandable one that has memory; ``pool`` is a number."""

    address: int
    size: int
    stream: int
    pool: int
    is_expandable: bool

    @property
    def end(self) -> int:
        return self.address + self.size


class Ranges:
    """Ranges in the order of addresses."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._by_start: dict[int, Range] = {one.address: one for one in ranges}
        self._starts = sorted(self._by_start)

    def __iter__(self) -> Iterator[Range]:
        return iter([self._by_start[start] for start in self._starts])

    def around(self, address: int) -> Range | None:
        """Return the range that contains `address`."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        found = self._by_start[self._starts[at]]
        return found if address < found.end else None

    def add(self, new: Range) -> None:
        """Add a range; a range of an expandable segment is merged with its neighbours."""
        if new.is_expandable:
            for other in (self.around(new.address - 1), self.around(new.end)):
                if other is None or not other.is_expandable or other.stream != new.stream:
                    continue
                if other.end == new.address or new.end == other.address:
                    self._drop(other)
                    start = min(other.address, new.address)
                    new = Range(start, other.size + new.size, new.stream, other.pool, True)
        if new.address not in self._by_start:
            insort(self._starts, new.address)
        self._by_start[new.address] = new

    def remove(self, address: int, size: int) -> Range | None:
        """Remove a range, or a part of one, and keep the remaining parts."""
        found = self.around(address)
        if found is None:
            return None
        self._drop(found)
        head = address - found.address
        tail = found.end - address - size
        if found.is_expandable:
            if head > 0:
                self.add(found._replace(size=head))
            if tail > 0:
                self.add(found._replace(address=address + size, size=tail))
        return found

    def _drop(self, one: Range) -> None:
        del self._by_start[one.address]
        del self._starts[bisect_right(self._starts, one.address) - 1]
