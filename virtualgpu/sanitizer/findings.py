"""Findings of a checker, grouped by pairs of source lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtualgpu.model.memory import DeviceMemory
from virtualgpu.sanitizer import structures
from virtualgpu.sanitizer.checker import Access, Arrival, FindingOccurrences
from virtualgpu.sanitizer.ordering import Ordering
from virtualgpu.sanitizer.sites import Site

# Largest number of pairs of source lines in a report.
MAX_HAZARDS = 64
UNWRITTEN = "uninitialised read"
ABSENT_LANE = "shuffle from an absent lane"
NOT_WRITTEN = "output not written"
ABSENT_MASK_LANE = "mask names an absent lane"
OUTSIDE_ARRAY = "outside its array"
PENDING_COPY = "copy not awaited"
FREED = "use after free"
LEAK = "leak"
OUTSIDE_BLOCK = "out of bounds"
_RACE_KINDS = {(True, True): "WAW", (True, False): "RAW", (False, True): "WAR"}


@dataclass(slots=True)
class Finding:
    """A hazard between two source lines, with the number of its occurrences and the accesses of the first
    occurrence.
    """

    count: int
    values_agree: bool
    space: str
    start: int
    word: int
    first_access: Access | None
    second_access: Access


@dataclass(slots=True)
class DivergentBarrier:
    """A barrier that only some threads reach, with the number of occurrences and the first occurrence."""

    block: int
    own_arrival: Arrival
    other_arrival: Arrival | None
    count: int = 0


class Findings:
    """A collection of the findings that checkers report. The collection has one entry per kind and pair of
    source lines.
    """

    def __init__(self, memory: DeviceMemory, granule_bytes: int) -> None:
        self.memory = memory
        self.granule_bytes = granule_bytes
        self.omitted_count = 0
        self.sites: Sequence[Site] = ()
        self.ordering: Ordering | None = None
        self.findings_by_key: dict[tuple[str, str, int, int, int], Finding] = {}
        self.divergent_barriers: dict[tuple[int, int], DivergentBarrier] = {}
        self.heap_blocks: dict[tuple[str, str, int, int, int], tuple[int, int]] = {}

    def add(self, occurrences: FindingOccurrences) -> None:
        """Add the occurrences of a finding at one pair of instructions."""
        second_access = occurrences.second_access
        first_access = occurrences.first_access
        source_line = self.sites[second_access.site].line
        finding = Finding(
            occurrences.count,
            occurrences.values_agree,
            occurrences.space,
            occurrences.start,
            occurrences.word,
            first_access,
            second_access,
        )
        if occurrences.finding_kind == structures.UNWRITTEN:
            self._add_finding((UNWRITTEN, occurrences.space, 0, source_line, 0), finding)
        elif occurrences.finding_kind == structures.OUTSIDE_ARRAY:
            self._add_finding(
                (OUTSIDE_ARRAY, "global", self.sites[second_access.site].low_address, source_line, 0), finding
            )
        else:
            assert first_access is not None
            finding_kind = (
                PENDING_COPY
                if occurrences.finding_kind == structures.PENDING_COPY
                else _RACE_KINDS[occurrences.are_writes]
            )
            self._add_finding(
                (
                    finding_kind,
                    occurrences.space,
                    self.sites[first_access.site].line,
                    source_line,
                    occurrences.relation,
                ),
                finding,
            )

    def add_absent_lane(self, access: Access, source_lane: int) -> None:
        """Add a shuffle from an inactive lane, or a vote whose mask contains an inactive lane."""
        site = self.sites[access.site]
        finding_key = (
            ABSENT_LANE if site.instruction.root == "shfl" else ABSENT_MASK_LANE,
            "",
            0,
            site.line,
            0,
        )
        self._add_finding(finding_key, Finding(1, False, "", 0, source_lane, None, access))

    def add_divergent_barrier(self, block: int, arrival: Arrival, other_arrival: Arrival | None) -> None:
        """Add a barrier that only some threads reach, such as a part of a warp."""
        both_lines = (
            arrival.instruction.line,
            other_arrival.instruction.line if other_arrival is not None else -1,
        )
        self.divergent_barriers.setdefault(
            both_lines, DivergentBarrier(block, arrival, other_arrival)
        ).count += 1

    def add_outside_block(self, access: Access, address: int) -> None:
        """Add an access to the device heap that is outside of all allocated blocks."""
        heap = self.memory.heap
        assert heap is not None
        freed_blocks = heap.freed_blocks or {}
        is_freed = any(start <= address < start + size for start, size in freed_blocks.items())
        finding_kind = FREED if is_freed else OUTSIDE_BLOCK
        finding_key = (finding_kind, "global", 0, self.sites[access.site].line, 0)
        blocks = freed_blocks if finding_kind == FREED else heap.used_blocks
        start = max((start for start in blocks if start <= address), default=0)
        self.heap_blocks.setdefault(finding_key, (start, blocks.get(start, 0)))
        self._add_finding(finding_key, Finding(1, False, "global", address, 0, None, access))

    def _add_finding(self, key: tuple[str, str, int, int, int], finding: Finding) -> None:
        earlier_finding = self.findings_by_key.get(key)
        if earlier_finding is not None:
            earlier_finding.count += finding.count
            earlier_finding.values_agree &= finding.values_agree
        elif len(self.findings_by_key) < MAX_HAZARDS:
            self.findings_by_key[key] = finding
        else:
            self.omitted_count += 1
