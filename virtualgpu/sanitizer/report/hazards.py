"""Conversion of findings to hazards for the reader: source lines, threads, elements and remedy.

One mistake is one hazard: races of the same pair of lines between lanes, warps and blocks are merged, and
so are all findings of an update without an atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.observe import results
from virtualgpu.records import Dim3, Hazard, Place, Severity
from virtualgpu.sanitizer.checker import Access, Arrival
from virtualgpu.sanitizer.findings import (
    ABSENT_LANE,
    ABSENT_MASK_LANE,
    FREED,
    OUTSIDE_ARRAY,
    OUTSIDE_BLOCK,
    PENDING_COPY,
    UNWRITTEN,
    DivergentBarrier,
    Finding,
    Findings,
)
from virtualgpu.sanitizer.ordering import Ordering
from virtualgpu.sanitizer.report import sentences
from virtualgpu.sanitizer.report.names import Names
from virtualgpu.sanitizer.report.updates import Update
from virtualgpu.sanitizer.sites import Site

LOST_UPDATE = "lost update"
_RACES = ("WAW", "RAW", "WAR")


@dataclass(frozen=True, slots=True)
class _Race:
    """A race between two source lines. ``relation`` is the widest one of its threads, such as blocks."""

    kind: str
    relation: int
    finding: Finding
    update: Update | None = None
    sort: str = ""  # a word of `sentences`: the reason why the race may be intended
    pairs: frozenset[tuple[int, int]] = frozenset()  # of lines, if there are several


@dataclass(frozen=True, slots=True)
class Report:
    """The data for a report of findings, which are the launch, its source, and the names of its memory.

    The field ``updates`` maps instruction ids to read-modify-writes, and ``checks`` contains the ids of loads
    that only decide whether an atomic is necessary.
    """

    findings: Findings
    kernel: str
    lines: Sequence[str]
    grid: Dim3
    block: Dim3
    names: Names
    flow: cfg.ControlFlow
    function: ir.Function
    updates: Mapping[int, Update]
    checks: Set[int]

    def hazards(self) -> list[Hazard]:
        """Return one hazard for each mistake in the kernel. Memory that is reserved by the system is
        ignored.
        """
        races: list[_Race] = []
        other_hazards: list[Hazard] = []
        for (hazard_kind, space, _, _, relation), finding in self.findings.found.items():
            if space == "shared" and self._is_reserved(finding):
                continue
            if hazard_kind in _RACES:
                races.append(_Race(hazard_kind, relation, finding, self._update(finding)))
            else:
                other_hazards.append(self._other_hazard(hazard_kind, space, relation, finding))
        barrier_hazards = [
            self._barrier_hazard(finding) for finding in self.findings.divergent_barriers.values()
        ]
        swapped_starts = {
            race.finding.start
            for race in races
            if race.finding.space == "global" and any(site.swaps for site in self._both_sites(race.finding))
        }
        grid_races = {
            (race.finding.start, self._lines_of(race.finding))
            for race in races
            if race.relation == sentences.GRID
        }
        races = [replace(race, sort=self._sort(race, swapped_starts, grid_races)) for race in races]
        merged_races = list(_merge_races(races, self._site_of))
        return [
            *barrier_hazards,
            *(self._race_hazard(race, merged_races) for race in merged_races),
            *other_hazards,
        ]

    @property
    def _ordering(self) -> Ordering:
        assert self.findings.ordering is not None
        return self.findings.ordering

    def _site_of(self, access: Access) -> Site:
        return self.findings.sites[access.site]

    def _update(self, finding: Finding) -> Update | None:
        """Return the read-modify-write to which both accesses of a race belong, or None."""
        assert finding.first is not None
        first_update = self.updates.get(id(self._site_of(finding.first).instruction))
        second_update = self.updates.get(id(self._site_of(finding.second).instruction))
        return first_update if first_update == second_update else None

    def _is_reserved(self, finding: Finding) -> bool:
        start = self.names.offsets.get(layout.RESERVED_SHARED)
        address = self._address_of("shared", finding)
        return start is not None and start <= address < start + layout.RESERVED_SHARED_BYTES

    def _address_of(self, space: str, finding: Finding) -> int:
        granule_bytes = self.findings.granule_bytes
        if space == "global":
            return finding.start + finding.word * granule_bytes
        space_words = self.names.words if space == "shared" else self.names.local_words
        return finding.word % max(space_words, 1) * granule_bytes

    def _element_name(self, space: str, address: int) -> str:
        if space == "global":
            return self.names.device(address)
        if space == "shared":
            return self.names.shared(address)
        return f"byte {address:,} of the thread's own stack"

    def _place_of(self, access: Access) -> Place:
        block_number = results.unlinear(self._ordering.block(access.segment), self.grid)
        return self._place_at(
            self._site_of(access).line, block_number, results.unlinear(access.thread, self.block)
        )

    def _place_at(self, line: int, block: Dim3, thread: Dim3) -> Place:
        line_text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return Place(line, line_text, block, thread)

    # -- races ---------------------------------------------------------------------------------------

    def _race_hazard(self, race: _Race, all_races: Sequence[_Race]) -> Hazard:
        finding = race.finding
        hazard_kind = race.kind
        assert finding.first is not None
        first_place = self._place_of(finding.first)
        second_place = self._place_of(finding.second)
        address = self._address_of(finding.space, finding)
        element = self._element_name(finding.space, address)
        if race.update is not None:
            in_loop, barrier_between, barrier_elsewhere = self._loop_barriers(finding, race.relation)
            message = sentences.update_message(
                race.update,
                first_place,
                second_place,
                element,
                race.relation,
                self._uses_locks,
                turns=in_loop and not barrier_between and not barrier_elsewhere,
            )
            return Hazard(
                tool="race",
                kind=LOST_UPDATE,
                severity="error",
                space=finding.space,
                kernel=self.kernel,
                first=first_place,
                second=second_place,
                address=address,
                array=element,
                count=finding.count,
                message=message,
            )
        # The severity of compute-sanitizer, because lanes of a warp mostly run in step.
        copy_hint = ""
        if self._site_of(finding.first).copies:
            copy_hint = sentences.AFTER_COPY
        elif hazard_kind == "WAR" and self._site_of(finding.second).copies:
            copy_hint = sentences.IN_USE
        severity: Severity = (
            "warning" if race.relation == sentences.WARP and hazard_kind != "WAW" else "error"
        )
        if race.sort in (sentences.STALE, sentences.CHECK) or (hazard_kind == "WAW" and finding.agree):
            severity = "info"
        elif race.sort:
            severity = "warning"
        context = self._remedy_context(race, all_races)
        message = sentences.race_message(
            hazard_kind,
            first_place,
            second_place,
            element,
            context,
            finding.agree,
            race.sort,
            len(race.pairs),
        )
        return Hazard(
            tool="race",
            kind=hazard_kind,
            severity=severity,
            space=finding.space,
            kernel=self.kernel,
            first=first_place,
            second=second_place,
            address=address,
            array=element,
            count=finding.count,
            message=message + copy_hint,
        )

    def _remedy_context(self, race: _Race, all_races: Sequence[_Race]) -> sentences.RemedyContext:
        """Return the context from which a race's remedy is written."""
        lines = self._lines_of(race.finding)
        space = race.finding.space
        relation = max(
            other_race.relation
            for other_race in all_races
            if self._lines_of(other_race.finding) == lines and other_race.finding.space == space
        )
        in_loop, barrier_between, barrier_elsewhere = self._loop_barriers(race.finding, relation)
        all_sites = self.findings.sites
        polls = any(site.flag and site.reads for site in all_sites)
        if relation == sentences.BLOCK and (self._ordering.has_messages or polls):
            relation = sentences.FLAGS
        sites_of_race = self._both_sites(race.finding)
        return sentences.RemedyContext(
            relation,
            in_loop,
            barrier_between,
            barrier_elsewhere,
            signals=polls or any(site.instruction.root == "atom" for site in all_sites),
            is_flag=any(site.flag and site.reads for site in sites_of_race),
            locks=self._uses_locks,
        )

    @property
    def _uses_locks(self) -> bool:
        return any(site.swaps for site in self.findings.sites)

    def _both_sites(self, finding: Finding) -> tuple[Site, Site]:
        assert finding.first is not None
        return self._site_of(finding.first), self._site_of(finding.second)

    def _lines_of(self, finding: Finding) -> frozenset[int]:
        assert finding.first is not None
        return frozenset((self._site_of(finding.first).line, self._site_of(finding.second).line))

    def _loop_barriers(self, finding: Finding, relation: int) -> tuple[bool, int, int]:
        """Return whether a loop contains both accesses, and lines of barriers between them and elsewhere.

        For lanes of one warp, barriers of a warp count, too.
        """
        assert finding.first is not None
        first_instruction = self._site_of(finding.first).instruction
        second_instruction = self._site_of(finding.second).instruction
        kernel_code = self.function.instructions
        if any(
            i.pc >= len(kernel_code) or kernel_code[i.pc] is not i
            for i in (first_instruction, second_instruction)
        ):
            return False, 0, 0
        if not self._in_one_loop(first_instruction, second_instruction):
            return False, 0, 0
        first_line, last_line = sorted((first_instruction.line, second_instruction.line))
        barrier_between = 0
        barrier_elsewhere = 0
        for i in kernel_code:
            is_warp_barrier = (
                relation == sentences.WARP and i.root in ("bar", "barrier") and "warp" in i.parts
            )
            if (
                (is_warp_barrier or cfg.is_block_barrier(i))
                and self._in_one_loop(first_instruction, i)
                and self._in_one_loop(second_instruction, i)
            ):
                if first_line < i.line < last_line:
                    barrier_between = barrier_between or i.line
                else:
                    barrier_elsewhere = barrier_elsewhere or i.line
        return True, barrier_between, barrier_elsewhere

    def _in_one_loop(self, a: ir.Instruction, b: ir.Instruction) -> bool:
        """Return whether two instructions of the kernel are in the same loop, unrolled or not."""
        pcs_a = self._copied_pcs(a)
        pcs_b = self._copied_pcs(b)
        if a is b and len(pcs_a) > 1:
            return True
        is_interleaved = max(pcs_a) > min(pcs_b) and max(pcs_b) > min(pcs_a)
        is_unrolled = is_interleaved and min(len(pcs_a), len(pcs_b)) > 1
        return is_unrolled or cfg.share_a_loop(self.flow, a.pc, b.pc)

    def _copied_pcs(self, i: ir.Instruction) -> list[int]:
        """Return the program counters of all copies of an instruction in an unrolled loop."""
        source_place = (i.line, i.column, i.parts)
        return [
            copy.pc
            for copy in self.function.instructions
            if (copy.line, copy.column, copy.parts) == source_place
        ]

    def _sort(self, race: _Race, swapped: Set[int], grid_races: Set[tuple[int, frozenset[int]]]) -> str:
        """Return the reason why a race may be intended, as in programs without locks, or an empty string.

        `swapped` are the arrays that compare-and-swaps change, `grid_races` those with the lines of races
        between blocks.
        """
        sites = self._both_sites(race.finding)
        for site, other_site in (sites, sites[::-1]):
            if site.strong and site.writes and not other_site.writes and not other_site.strong:
                if site.swaps:
                    return sentences.STALE
                if id(other_site.instruction) in self.checks:
                    return sentences.CHECK
                if (
                    race.finding.space == "global"
                    and (race.finding.start, self._lines_of(race.finding)) in grid_races
                ):
                    return sentences.WEAK
        if race.finding.space == "global" and race.finding.start in swapped and race.update is None:
            return sentences.MIXED
        return ""

    # -- everything else -----------------------------------------------------------------------------

    def _other_hazard(self, hazard_kind: str, space: str, relation: int, finding: Finding) -> Hazard:
        second_place = self._place_of(finding.second)
        site = self._site_of(finding.second)
        if hazard_kind in (ABSENT_LANE, ABSENT_MASK_LANE):
            message_of = sentences.absent_message if hazard_kind == ABSENT_LANE else sentences.unmet_message
            return Hazard(
                tool="sync",
                kind=hazard_kind,
                severity="warning",
                space="",
                kernel=self.kernel,
                first=None,
                second=second_place,
                address=None,
                array="",
                count=finding.count,
                message=message_of(second_place, finding.word),
            )
        address = self._address_of(space, finding)
        element = self._element_name(space, address)
        tool = "memory"
        first_place = None
        severity: Severity = "error"
        if hazard_kind in (FREED, OUTSIDE_BLOCK):
            key = hazard_kind, space, 0, site.line, 0
            element, message = sentences.heap_message(
                hazard_kind == FREED, site, second_place, address, *self.findings.heap_blocks[key]
            )
        elif hazard_kind == OUTSIDE_ARRAY:
            message = sentences.stray_message(self.findings.memory, site, second_place, address, element)
        elif hazard_kind == UNWRITTEN:
            tool = "init"
            severity = "warning"
            message = sentences.unwritten_message(space, second_place, element)
        else:
            assert hazard_kind == PENDING_COPY
            assert finding.first is not None
            tool = "race"
            first_place = self._place_of(finding.first)
            copy_site = self._site_of(finding.first)
            message = sentences.hasty_message(
                copy_site, site, first_place, second_place, element, relation != 0
            )
        return Hazard(
            tool=tool,
            kind=hazard_kind,
            severity=severity,
            space=space,
            kernel=self.kernel,
            first=first_place,
            second=second_place,
            address=address,
            array=element,
            count=finding.count,
            message=message,
        )

    def _barrier_hazard(self, barrier: DivergentBarrier) -> Hazard:
        """Return the hazard of a barrier that not all threads reach together."""

        def arrival_place(arrival: Arrival) -> Place:
            return self._place_at(
                arrival.instruction.line,
                results.unlinear(barrier.block, self.grid),
                results.unlinear(arrival.thread, self.block),
            )

        second_place = arrival_place(barrier.here)
        is_overlooked = barrier.other is None and self._is_overlooked(barrier.here.instruction)
        first_place = None if barrier.other is None else arrival_place(barrier.other)
        return Hazard(
            tool="sync",
            kind="divergent barrier",
            severity="warning" if is_overlooked else "error",
            space="",
            kernel=self.kernel,
            first=first_place,
            second=second_place,
            address=None,
            array="",
            count=barrier.count,
            message=sentences.apart_message(barrier.here.mask, first_place, second_place, is_overlooked),
        )

    def _is_overlooked(self, barrier: ir.Instruction) -> bool:
        """Return whether compute-sanitizer does not report a barrier that only some lanes of a warp reach.

        On an H200 (2025.3.1), it reports neither barriers in loops nor barriers with a vote.
        """
        return "red" in barrier.parts or cfg.is_in_loop(self.flow, barrier.pc)


def _merge_races(races: Iterable[_Race], site: Callable[[Access], Site]) -> Iterator[_Race]:
    """Merge races that have the same cause into one, which gets the widest relation between threads."""
    race_groups: dict[tuple[object, ...], list[_Race]] = {}
    for race in races:
        finding = race.finding
        update = race.update
        assert finding.first is not None
        if update is not None:
            key: tuple[object, ...] = finding.space, update.load, update.store
        elif race.sort:
            key = race.sort, finding.space, finding.start
        else:
            key = finding.space, race.kind, site(finding.first).line, site(finding.second).line
        race_groups.setdefault(key, []).append(race)
    for race_group in race_groups.values():
        widest_race = max(race_group, key=lambda race: (race.relation, not race.finding.agree))
        occurrence_count = sum(race.finding.count for race in race_group)
        agree = all(race.finding.agree for race in race_group)
        accesses = [(race.finding.first, race.finding.second) for race in race_group if race.sort]
        line_pairs = frozenset((site(a).line, site(b).line) for a, b in accesses if a is not None)
        yield replace(
            widest_race,
            finding=replace(widest_race.finding, count=occurrence_count, agree=agree),
            pairs=line_pairs,
        )
