"""A model of CuPy's memory pool, as its documentation and source state the rules.

Each segment is a row of 512-byte units, and free blocks are found as runs of units that nobody owns: there
are neither chunks nor lists nor joins here that could go wrong in the same way as in a pool.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

UNIT = 512


@dataclass
class ModelSegment:
    address: int
    stream: int
    owners: list[int]  # of each unit; 0: nobody

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Address, units and owner of each block."""
        at = self.address
        for owner, units in itertools.groupby(self.owners):
            count = len(list(units))
            yield at, count, owner
            at += count * UNIT


class ModelPool:
    """CuPy's rules, as its documentation and source state them."""

    def __init__(self) -> None:
        self.segments: list[ModelSegment] = []
        self.limit = 0
        self.names = itertools.count(1)

    def units(self, used: bool) -> int:
        return sum(bool(owner) is used for segment in self.segments for owner in segment.owners)

    def fitting(self, units: int, stream: int) -> set[int]:
        """Addresses of the smallest free blocks that are large enough."""
        free = [
            (count, at)
            for segment in self.segments
            if segment.stream == stream
            for at, count, owner in segment.runs()
            if not owner and count >= units
        ]
        return {at for count, at in free if count == min(free)[0]}

    def refuses(self, units: int) -> bool:
        """Whether a new segment would break the limit. If it would at first, free blocks go back."""
        if not self.limit:
            return False
        if units * UNIT > self.limit:
            return True
        if (self.units(True) + self.units(False) + units) * UNIT > self.limit:
            self.free_all_blocks()
        return (self.units(True) + self.units(False) + units) * UNIT > self.limit

    def take(self, address: int, units: int, stream: int, new: bool) -> int:
        if new:
            self.segments.append(ModelSegment(address, stream, [0] * units))
        (segment,) = [s for s in self.segments if 0 <= address - s.address < len(s.owners) * UNIT]
        first = (address - segment.address) // UNIT
        name = next(self.names)
        assert not any(segment.owners[first : first + units])
        segment.owners[first : first + units] = [name] * units
        return name

    def free(self, name: int) -> None:
        for segment in self.segments:
            segment.owners = [0 if owner == name else owner for owner in segment.owners]

    def free_all_blocks(self, stream: int | None = None) -> None:
        self.segments = [s for s in self.segments if any(s.owners) or stream not in (None, s.stream)]
