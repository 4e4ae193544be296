"""Address ranges that an allocator has allocated on the device, updated by its events."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Range(NamedTuple):
    """A range of addresses that is a segment or a mapped part of an expandable segment. The attribute
    ``pool`` is the number of its memory pool.
    """

    address: int
    size: int
    stream: int
    pool: int
    is_expandable: bool

    @property
    def end(self) -> int:
        return self.address + self.size


class Ranges:
    """A collection of address ranges, sorted by address. Ranges can be added, merged and removed."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._range_by_start: dict[int, Range] = {
            address_range.address: address_range for address_range in ranges
        }
        self._starts = sorted(self._range_by_start)

    def __iter__(self) -> Iterator[Range]:
        return iter([self._range_by_start[start] for start in self._starts])

    def find_range(self, address: int) -> Range | None:
        """Return the address range that contains `address`."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        preceding_range = self._range_by_start[self._starts[index]]
        return preceding_range if address < preceding_range.end else None

    def add_range(self, added_range: Range) -> None:
        """Add an address range. A range of an expandable segment is merged with its neighbours."""
        if added_range.is_expandable:
            for neighbour in (self.find_range(added_range.address - 1), self.find_range(added_range.end)):
                if neighbour is None or not neighbour.is_expandable or neighbour.stream != added_range.stream:
                    continue
                if neighbour.end == added_range.address or added_range.end == neighbour.address:
                    self._remove_whole_range(neighbour)
                    merged_start = min(neighbour.address, added_range.address)
                    added_range = Range(
                        merged_start,
                        neighbour.size + added_range.size,
                        added_range.stream,
                        neighbour.pool,
                        True,
                    )
        if added_range.address not in self._range_by_start:
            insort(self._starts, added_range.address)
        self._range_by_start[added_range.address] = added_range

    def remove_range(self, address: int, size: int) -> Range | None:
        """Remove an address range or a part of one. The remaining parts are kept."""
        affected_range = self.find_range(address)
        if affected_range is None:
            return None
        self._remove_whole_range(affected_range)
        head_bytes = address - affected_range.address
        tail_bytes = affected_range.end - address - size
        if affected_range.is_expandable:
            if head_bytes > 0:
                self.add_range(affected_range._replace(size=head_bytes))
            if tail_bytes > 0:
                self.add_range(affected_range._replace(address=address + size, size=tail_bytes))
        return affected_range

    def _remove_whole_range(self, address_range: Range) -> None:
        del self._range_by_start[address_range.address]
        del self._starts[bisect_right(self._starts, address_range.address) - 1]
