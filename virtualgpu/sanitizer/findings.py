"""What a checker reports, gathered by source lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtualgpu.model.memory import DeviceMemory
from virtualgpu.sanitizer import structures
from virtualgpu.sanitizer.checker import Access, Arrival, Found
from virtualgpu.sanitizer.ordering import Ordering
from virtualgpu.sanitizer.sites import Site

# Pairs of source lines that a report lists at most.
MOST_HAZARDS = 64
UNWRITTEN = "uninitialised read"
ABSENT = "shuffle from an absent lane"
NEVER = "output not written"
UNMET = "mask names an absent lane"
STRAY = "outside its array"
HASTY = "copy not awaited"
FREED = "use after free"
LEAK = "leak"
OUTSIDE_BLOCK = "out of bounds"
_KINDS = {(True, True): "WAW", (True, False): "RAW", (False, True): "WAR"}


@dataclass(slots=True)
class Finding:
    """Occurrences of one hazard, and the first of them."""

    count: int
    agree: bool
    space: str
    start: int
    word: int
    first: Access | None
    second: Access


@dataclass(slots=True)
class Apart:
    """Occurrences of threads at a barrier that others do not reach with them, and the first of them."""

    block: int
    here: Arrival
    other: Arrival | None
    count: int = 0


class Findings:
    """Gathers what a checker reports, one entry a kind and pair of source lines."""

    def __init__(self, memory: DeviceMemory, granule_bytes: int) -> None:
        self.memory = memory
        self.granule_bytes = granule_bytes
        self.more = 0
        self.sites: Sequence[Site] = ()
        self.ordering: Ordering | None = None
        self.found: dict[tuple[str, str, int, int, int], Finding] = {}
        self.apart_from: dict[tuple[int, int], Apart] = {}
        self.heap_blocks: dict[tuple[str, str, int, int, int], tuple[int, int]] = {}

    def add(self, found: Found) -> None:
        """Take in occurrences of one finding at one pair of sites."""
        second = found.second
        first = found.first
        line = self.sites[second.site].line
        entry = Finding(found.count, found.agree, found.space, found.start, found.word, first, second)
        if found.what == structures.UNWRITTEN:
            self._count((UNWRITTEN, found.space, 0, line, 0), entry)
        elif found.what == structures.STRAY:
            self._count((STRAY, "global", self.sites[second.site].low, line, 0), entry)
        else:
            assert first is not None
            kind = HASTY if found.what == structures.HASTY else _KINDS[found.wrote]
            self._count((kind, found.space, self.sites[first.site].line, line, found.relation), entry)

    def absent(self, access: Access, source: int) -> None:
        """A thread shuffled a value from a lane that takes no part, or named one in a vote."""
        site = self.sites[access.site]
        key = (ABSENT if site.instruction.root == "shfl" else UNMET, "", 0, site.line, 0)
        self._count(key, Finding(1, False, "", 0, source, None, access))

    def apart(self, block: int, here: Arrival, other: Arrival | None) -> None:
        """Threads came to a barrier without their warp, or while others waited at another barrier."""
        key = here.instruction.line, other.instruction.line if other is not None else -1
        self.apart_from.setdefault(key, Apart(block, here, other)).count += 1

    def outside_block(self, access: Access, address: int) -> None:
        """An access to the device heap met no block that is in use."""
        heap = self.memory.heap
        assert heap is not None
        freed = heap.freed or {}
        kind = (
            FREED if any(start <= address < start + size for start, size in freed.items()) else OUTSIDE_BLOCK
        )
        key = (kind, "global", 0, self.sites[access.site].line, 0)
        blocks = freed if kind == FREED else heap.used
        start = max((start for start in blocks if start <= address), default=0)
        self.heap_blocks.setdefault(key, (start, blocks.get(start, 0)))
        self._count(key, Finding(1, False, "global", address, 0, None, access))

    def _count(self, key: tuple[str, str, int, int, int], found: Finding) -> None:
        old = self.found.get(key)
        if old is not None:
            old.count += found.count
            old.agree &= found.agree
        elif len(self.found) < MOST_HAZARDS:
            self.found[key] = found
        else:
            self.more += 1
