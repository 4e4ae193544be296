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
from virtualgpu.sanitizer.report.names import ElementNames
from virtualgpu.sanitizer.report.updates import Update
from virtualgpu.sanitizer.sites import Site

LOST_UPDATE = "lost update"
_RACE_KINDS = ("WAW", "RAW", "WAR")


@dataclass(frozen=True, slots=True)
class _Race:
    """A race between two source lines. ``relation`` is the widest relation between its threads, such as
    threads of different blocks.
    """

    kind: str
    relation: int
    finding: Finding
    update: Update | None = None
    intended_reason: str = ""  # a word of `sentences`: the reason why the race may be intended
    line_pairs: frozenset[tuple[int, int]] = frozenset()  # of lines, if there are several


@dataclass(frozen=True, slots=True)
class Report:
    """The data for a report of findings, which are the launch, its source, and the names of its memory.

    The field ``updates_by_id`` maps instruction ids to read-modify-writes, and ``recheck_ids`` contains the
    ids of loads that only decide whether an atomic is necessary.
    """

    findings: Findings
    kernel_name: str
    source_lines: Sequence[str]
    grid: Dim3
    block: Dim3
    element_names: ElementNames
    control_flow: cfg.ControlFlow
    function: ir.Function
    updates_by_id: Mapping[int, Update]
    recheck_ids: Set[int]

    def hazards(self) -> list[Hazard]:
        """Return one hazard for each mistake in the kernel. Memory that is reserved by the system is
        ignored.
        """
        found_races: list[_Race] = []
        other_hazards: list[Hazard] = []
        for (hazard_kind, memory_space, _, _, relation), finding in self.findings.findings_by_key.items():
            if memory_space == "shared" and self._is_reserved(finding):
                continue
            if hazard_kind in _RACE_KINDS:
                found_races.append(_Race(hazard_kind, relation, finding, self._find_update(finding)))
            else:
                other_hazards.append(self._make_other_hazard(hazard_kind, memory_space, relation, finding))
        barrier_hazards = [
            self._make_barrier_hazard(finding) for finding in self.findings.divergent_barriers.values()
        ]
        swapped_starts = {
            race.finding.start
            for race in found_races
            if race.finding.space == "global" and any(site.is_swap for site in self._find_sites(race.finding))
        }
        grid_races = {
            (race.finding.start, self._find_lines(race.finding))
            for race in found_races
            if race.relation == sentences.GRID
        }
        found_races = [
            replace(race, intended_reason=self._find_intended_reason(race, swapped_starts, grid_races))
            for race in found_races
        ]
        merged_races = list(_merge_races(found_races, self._find_site))
        return [
            *barrier_hazards,
            *(self._make_race_hazard(race, merged_races) for race in merged_races),
            *other_hazards,
        ]

    @property
    def _ordering(self) -> Ordering:
        assert self.findings.ordering is not None
        return self.findings.ordering

    def _find_site(self, access: Access) -> Site:
        return self.findings.sites[access.site]

    def _find_update(self, finding: Finding) -> Update | None:
        """Return the read-modify-write to which both accesses of a race belong, or None."""
        assert finding.first_access is not None
        first_update = self.updates_by_id.get(id(self._find_site(finding.first_access).instruction))
        second_update = self.updates_by_id.get(id(self._find_site(finding.second_access).instruction))
        return first_update if first_update == second_update else None

    def _is_reserved(self, finding: Finding) -> bool:
        reserved_start = self.element_names.shared_offsets.get(layout.RESERVED_SHARED_NAME)
        address = self._find_address("shared", finding)
        return (
            reserved_start is not None
            and reserved_start <= address < reserved_start + layout.RESERVED_SHARED_BYTES
        )

    def _find_address(self, space: str, finding: Finding) -> int:
        granule_bytes = self.findings.granule_bytes
        if space == "global":
            return finding.start + finding.word * granule_bytes
        space_words = self.element_names.shared_words if space == "shared" else self.element_names.local_words
        return finding.word % max(space_words, 1) * granule_bytes

    def _make_element_name(self, space: str, address: int) -> str:
        if space == "global":
            return self.element_names.name_device_element(address)
        if space == "shared":
            return self.element_names.name_shared_element(address)
        return f"byte {address:,} of the thread's own stack"

    def _find_place(self, access: Access) -> Place:
        block_number = results.from_linear_index(self._ordering.find_block(access.segment), self.grid)
        return self._make_place(
            self._find_site(access).line, block_number, results.from_linear_index(access.thread, self.block)
        )

    def _make_place(self, line: int, block: Dim3, thread: Dim3) -> Place:
        line_text = self.source_lines[line - 1].strip() if 0 < line <= len(self.source_lines) else ""
        return Place(line, line_text, block, thread)

    # -- races ---------------------------------------------------------------------------------------

    def _make_race_hazard(self, race: _Race, all_races: Sequence[_Race]) -> Hazard:
        finding = race.finding
        hazard_kind = race.kind
        assert finding.first_access is not None
        first_place = self._find_place(finding.first_access)
        second_place = self._find_place(finding.second_access)
        address = self._find_address(finding.space, finding)
        element_name = self._make_element_name(finding.space, address)
        if race.update is not None:
            is_in_loop, barrier_between, barrier_elsewhere = self._find_loop_barriers(finding, race.relation)
            message = sentences.make_lost_update_message(
                race.update,
                first_place,
                second_place,
                element_name,
                race.relation,
                self._uses_locks,
                is_in_loop=is_in_loop and not barrier_between and not barrier_elsewhere,
            )
            return Hazard(
                tool="race",
                kind=LOST_UPDATE,
                severity="error",
                space=finding.space,
                kernel=self.kernel_name,
                first=first_place,
                second=second_place,
                address=address,
                array=element_name,
                count=finding.count,
                message=message,
            )
        # The severity of compute-sanitizer, because lanes of a warp mostly run in step.
        copy_hint = ""
        if self._find_site(finding.first_access).is_async_copy:
            copy_hint = sentences.COPY_WAIT_ADVICE
        elif hazard_kind == "WAR" and self._find_site(finding.second_access).is_async_copy:
            copy_hint = sentences.STAGE_IN_USE_ADVICE
        severity: Severity = (
            "warning" if race.relation == sentences.WARP and hazard_kind != "WAW" else "error"
        )
        if race.intended_reason in (sentences.STALE_READ, sentences.REPEATED_CHECK) or (
            hazard_kind == "WAW" and finding.values_agree
        ):
            severity = "info"
        elif race.intended_reason:
            severity = "warning"
        remedy_context = self._make_remedy_context(race, all_races)
        message = sentences.make_race_message(
            hazard_kind,
            first_place,
            second_place,
            element_name,
            remedy_context,
            finding.values_agree,
            race.intended_reason,
            len(race.line_pairs),
        )
        return Hazard(
            tool="race",
            kind=hazard_kind,
            severity=severity,
            space=finding.space,
            kernel=self.kernel_name,
            first=first_place,
            second=second_place,
            address=address,
            array=element_name,
            count=finding.count,
            message=message + copy_hint,
        )

    def _make_remedy_context(self, race: _Race, all_races: Sequence[_Race]) -> sentences.RemedyContext:
        """Return the context from which a race's remedy is written."""
        race_lines = self._find_lines(race.finding)
        space = race.finding.space
        relation = max(
            other_race.relation
            for other_race in all_races
            if self._find_lines(other_race.finding) == race_lines and other_race.finding.space == space
        )
        is_in_loop, barrier_between, barrier_elsewhere = self._find_loop_barriers(race.finding, relation)
        all_sites = self.findings.sites
        has_polling = any(site.is_flag_access and site.reads for site in all_sites)
        if relation == sentences.BLOCK and (self._ordering.has_messages or has_polling):
            relation = sentences.BLOCK_WITH_FLAGS
        sites_of_race = self._find_sites(race.finding)
        return sentences.RemedyContext(
            relation,
            is_in_loop,
            barrier_between,
            barrier_elsewhere,
            has_signals=has_polling or any(site.instruction.root == "atom" for site in all_sites),
            is_flag=any(site.is_flag_access and site.reads for site in sites_of_race),
            uses_locks=self._uses_locks,
        )

    @property
    def _uses_locks(self) -> bool:
        return any(site.is_swap for site in self.findings.sites)

    def _find_sites(self, finding: Finding) -> tuple[Site, Site]:
        assert finding.first_access is not None
        return self._find_site(finding.first_access), self._find_site(finding.second_access)

    def _find_lines(self, finding: Finding) -> frozenset[int]:
        assert finding.first_access is not None
        return frozenset(
            (self._find_site(finding.first_access).line, self._find_site(finding.second_access).line)
        )

    def _find_loop_barriers(self, finding: Finding, relation: int) -> tuple[bool, int, int]:
        """Return whether one loop contains both accesses, and the lines of two barriers in this loop.

        The first barrier is between the accesses, and the second one is elsewhere. A line is 0 if there is no
        such barrier. For lanes of one warp, barriers of a warp count, too.
        """
        assert finding.first_access is not None
        first_instruction = self._find_site(finding.first_access).instruction
        second_instruction = self._find_site(finding.second_access).instruction
        kernel_code = self.function.instructions
        if any(
            i.pc >= len(kernel_code) or kernel_code[i.pc] is not i
            for i in (first_instruction, second_instruction)
        ):
            return False, 0, 0
        if not self._are_in_same_loop(first_instruction, second_instruction):
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
                and self._are_in_same_loop(first_instruction, i)
                and self._are_in_same_loop(second_instruction, i)
            ):
                if first_line < i.line < last_line:
                    barrier_between = barrier_between or i.line
                else:
                    barrier_elsewhere = barrier_elsewhere or i.line
        return True, barrier_between, barrier_elsewhere

    def _are_in_same_loop(self, a: ir.Instruction, b: ir.Instruction) -> bool:
        """Return whether two instructions of the kernel are in the same loop, unrolled or not."""
        pcs_a = self._find_copied_pcs(a)
        pcs_b = self._find_copied_pcs(b)
        if a is b and len(pcs_a) > 1:
            return True
        is_interleaved = max(pcs_a) > min(pcs_b) and max(pcs_b) > min(pcs_a)
        is_unrolled = is_interleaved and min(len(pcs_a), len(pcs_b)) > 1
        return is_unrolled or cfg.share_a_loop(self.control_flow, a.pc, b.pc)

    def _find_copied_pcs(self, i: ir.Instruction) -> list[int]:
        """Return the program counters of all copies of an instruction in an unrolled loop."""
        source_place = (i.line, i.column, i.parts)
        return [
            copy_instruction.pc
            for copy_instruction in self.function.instructions
            if (copy_instruction.line, copy_instruction.column, copy_instruction.parts) == source_place
        ]

    def _find_intended_reason(
        self, race: _Race, swapped_starts: Set[int], grid_races: Set[tuple[int, frozenset[int]]]
    ) -> str:
        """Return the reason why a race may be intended, as in programs without locks, or an empty string.

        `swapped_starts` are the arrays that compare-and-swaps change, `grid_races` those with the lines of
        races between blocks.
        """
        access_sites = self._find_sites(race.finding)
        for site, other_site in (access_sites, access_sites[::-1]):
            if site.is_strong and site.writes and not other_site.writes and not other_site.is_strong:
                if site.is_swap:
                    return sentences.STALE_READ
                if id(other_site.instruction) in self.recheck_ids:
                    return sentences.REPEATED_CHECK
                if (
                    race.finding.space == "global"
                    and (race.finding.start, self._find_lines(race.finding)) in grid_races
                ):
                    return sentences.PLAIN_READ
        if race.finding.space == "global" and race.finding.start in swapped_starts and race.update is None:
            return sentences.PLAIN_WRITE
        return ""

    # -- everything else -----------------------------------------------------------------------------

    def _make_other_hazard(self, hazard_kind: str, space: str, relation: int, finding: Finding) -> Hazard:
        second_place = self._find_place(finding.second_access)
        site = self._find_site(finding.second_access)
        if hazard_kind in (ABSENT_LANE, ABSENT_MASK_LANE):
            make_message = (
                sentences.make_absent_lane_message
                if hazard_kind == ABSENT_LANE
                else sentences.make_absent_mask_lane_message
            )
            return Hazard(
                tool="sync",
                kind=hazard_kind,
                severity="warning",
                space="",
                kernel=self.kernel_name,
                first=None,
                second=second_place,
                address=None,
                array="",
                count=finding.count,
                message=make_message(second_place, finding.word),
            )
        address = self._find_address(space, finding)
        element_name = self._make_element_name(space, address)
        tool_name = "memory"
        first_place = None
        severity: Severity = "error"
        if hazard_kind in (FREED, OUTSIDE_BLOCK):
            finding_key = hazard_kind, space, 0, site.line, 0
            element_name, message = sentences.make_heap_message(
                hazard_kind == FREED, site, second_place, address, *self.findings.heap_blocks[finding_key]
            )
        elif hazard_kind == OUTSIDE_ARRAY:
            message = sentences.make_outside_array_message(
                self.findings.memory, site, second_place, address, element_name
            )
        elif hazard_kind == UNWRITTEN:
            tool_name = "init"
            severity = "warning"
            message = sentences.make_unwritten_message(space, second_place, element_name)
        else:
            assert hazard_kind == PENDING_COPY
            assert finding.first_access is not None
            tool_name = "race"
            first_place = self._find_place(finding.first_access)
            copy_site = self._find_site(finding.first_access)
            message = sentences.make_pending_copy_message(
                copy_site, site, first_place, second_place, element_name, relation != 0
            )
        return Hazard(
            tool=tool_name,
            kind=hazard_kind,
            severity=severity,
            space=space,
            kernel=self.kernel_name,
            first=first_place,
            second=second_place,
            address=address,
            array=element_name,
            count=finding.count,
            message=message,
        )

    def _make_barrier_hazard(self, barrier: DivergentBarrier) -> Hazard:
        """Return the hazard of a barrier that not all threads reach together."""

        def make_arrival_place(arrival: Arrival) -> Place:
            return self._make_place(
                arrival.instruction.line,
                results.from_linear_index(barrier.block, self.grid),
                results.from_linear_index(arrival.first_thread, self.block),
            )

        second_place = make_arrival_place(barrier.own_arrival)
        is_overlooked = barrier.other_arrival is None and self._is_overlooked(barrier.own_arrival.instruction)
        first_place = None if barrier.other_arrival is None else make_arrival_place(barrier.other_arrival)
        return Hazard(
            tool="sync",
            kind="divergent barrier",
            severity="warning" if is_overlooked else "error",
            space="",
            kernel=self.kernel_name,
            first=first_place,
            second=second_place,
            address=None,
            array="",
            count=barrier.count,
            message=sentences.make_barrier_message(
                barrier.own_arrival.mask, first_place, second_place, is_overlooked
            ),
        )

    def _is_overlooked(self, barrier: ir.Instruction) -> bool:
        """Return whether compute-sanitizer does not report a barrier that only some lanes of a warp reach.

        On an H200 (2025.3.1), it reports neither barriers in loops nor barriers with a vote.
        """
        return "red" in barrier.parts or cfg.is_in_loop(self.control_flow, barrier.pc)


def _merge_races(races: Iterable[_Race], find_site: Callable[[Access], Site]) -> Iterator[_Race]:
    """Merge races that have the same cause into one, which gets the widest relation between threads."""
    race_groups: dict[tuple[object, ...], list[_Race]] = {}
    for race in races:
        finding = race.finding
        update = race.update
        assert finding.first_access is not None
        if update is not None:
            group_key: tuple[object, ...] = finding.space, update.load_line, update.store_line
        elif race.intended_reason:
            group_key = race.intended_reason, finding.space, finding.start
        else:
            group_key = (
                finding.space,
                race.kind,
                find_site(finding.first_access).line,
                find_site(finding.second_access).line,
            )
        race_groups.setdefault(group_key, []).append(race)
    for race_group in race_groups.values():
        widest_race = max(race_group, key=lambda race: (race.relation, not race.finding.values_agree))
        occurrence_count = sum(race.finding.count for race in race_group)
        values_agree = all(race.finding.values_agree for race in race_group)
        accesses = [
            (race.finding.first_access, race.finding.second_access)
            for race in race_group
            if race.intended_reason
        ]
        line_pairs = frozenset((find_site(a).line, find_site(b).line) for a, b in accesses if a is not None)
        yield replace(
            widest_race,
            finding=replace(widest_race.finding, count=occurrence_count, values_agree=values_agree),
            line_pairs=line_pairs,
        )
