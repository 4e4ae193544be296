"""From gathered findings to hazards a learner can read: source lines, threads, elements and remedy.

What is one mistake is one hazard: the same pair of lines among lanes, warps and blocks, and all that an
update without an atomic gives rise to.
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
    ABSENT,
    FREED,
    HASTY,
    OUTSIDE_BLOCK,
    STRAY,
    UNMET,
    UNWRITTEN,
    Apart,
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
    """A race between two lines, in all its relations; ``relation`` is the widest of them."""

    kind: str
    relation: int
    found: Finding
    update: Update | None = None
    sort: str = ""  # a word of `sentences`: of an intended race it says why it may be one
    pairs: frozenset[tuple[int, int]] = frozenset()  # of lines, where they are several


@dataclass(frozen=True, slots=True)
class Report:
    """What is needed to tell of findings: the launch, its source, the names of its places.

    ``updates`` are the kernel's read-modify-writes, by the ids of their instructions; ``checks`` the ids of
    its loads that an atomic compares again.
    """

    findings: Findings
    kernel: str
    lines: Sequence[str]
    grid: Dim3
    block: Dim3
    names: Names
    flow: cfg.Flow
    function: ir.Function
    updates: Mapping[int, Update]
    checks: Set[int]

    def hazards(self) -> list[Hazard]:
        """One hazard a mistake, but none for memory that the system keeps for itself."""
        races: list[_Race] = []
        others: list[Hazard] = []
        for (kind, space, _, _, relation), found in self.findings.found.items():
            if space == "shared" and self._is_reserved(found):
                continue
            if kind in _RACES:
                races.append(_Race(kind, relation, found, self._update(found)))
            else:
                others.append(self._other(kind, space, found))
        apart = [self._apart(found) for found in self.findings.apart_from.values()]
        swapped = {
            race.found.start
            for race in races
            if race.found.space == "global" and any(site.swaps for site in self._sides(race.found))
        }
        wide = {
            (race.found.start, self._lines(race.found)) for race in races if race.relation == sentences.GRID
        }
        races = [replace(race, sort=self._sort(race, swapped, wide)) for race in races]
        merged = list(_merged(races, self._site))
        return [*apart, *(self._race(race, merged) for race in merged), *others]

    @property
    def _ordering(self) -> Ordering:
        assert self.findings.ordering is not None
        return self.findings.ordering

    def _site(self, access: Access) -> Site:
        return self.findings.sites[access.site]

    def _update(self, found: Finding) -> Update | None:
        """The read-modify-write that both sides of a race are."""
        assert found.first is not None
        first, second = (
            self.updates.get(id(self._site(access).instruction)) for access in (found.first, found.second)
        )
        return first if first == second else None

    def _is_reserved(self, found: Finding) -> bool:
        at = self.names.offsets.get(layout.RESERVED_SHARED)
        address = self._address("shared", found)
        return at is not None and at <= address < at + layout.RESERVED_SHARED_BYTES

    def _address(self, space: str, found: Finding) -> int:
        unit = self.findings.granule_bytes
        if space == "global":
            return found.start + found.word * unit
        size = self.names.words if space == "shared" else self.names.local_words
        return found.word % max(size, 1) * unit

    def _element(self, space: str, address: int) -> str:
        if space == "global":
            return self.names.device(address)
        return (
            self.names.shared(address) if space == "shared" else f"byte {address:,} of the thread's own stack"
        )

    def _place(self, access: Access) -> Place:
        number = results.unlinear(self._ordering.block(access.segment), self.grid)
        return self._at(self._site(access).line, number, results.unlinear(access.thread, self.block))

    def _at(self, line: int, block: Dim3, thread: Dim3) -> Place:
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return Place(line, text, block, thread)

    # -- races ---------------------------------------------------------------------------------------

    def _race(self, race: _Race, all_races: Sequence[_Race]) -> Hazard:
        found = race.found
        kind = race.kind
        assert found.first is not None
        first = self._place(found.first)
        second = self._place(found.second)
        address = self._address(found.space, found)
        array = self._element(found.space, address)
        if race.update is not None:
            in_loop, inside, outside = self._turns(found, race.relation)
            message = sentences.update_message(
                race.update,
                first,
                second,
                array,
                race.relation,
                self._locks,
                turns=in_loop and not inside and not outside,
            )
            return Hazard(
                tool="race",
                kind=LOST_UPDATE,
                severity="error",
                space=found.space,
                kernel=self.kernel,
                first=first,
                second=second,
                address=address,
                array=array,
                count=found.count,
                message=message,
            )
        # As compute-sanitizer grades them: lanes of a warp mostly run in step.
        severity: Severity = "warning" if race.relation == sentences.WARP and kind != "WAW" else "error"
        if race.sort in (sentences.STALE, sentences.CHECK) or (kind == "WAW" and found.agree):
            severity = "info"
        elif race.sort:
            severity = "warning"
        where = self._remedied(race, all_races)
        message = sentences.race_message(
            kind, first, second, array, where, found.agree, race.sort, len(race.pairs)
        )
        return Hazard(
            tool="race",
            kind=kind,
            severity=severity,
            space=found.space,
            kernel=self.kernel,
            first=first,
            second=second,
            address=address,
            array=array,
            count=found.count,
            message=message + (sentences.AFTER_COPY if self._site(found.first).copies else ""),
        )

    def _remedied(self, race: _Race, all_races: Sequence[_Race]) -> sentences.Remedied:
        """Where a remedy belongs, and how far it must reach: what parts warps parts lanes as well."""
        mine = self._lines(race.found)
        space = race.found.space
        relation = max(
            other.relation
            for other in all_races
            if self._lines(other.found) == mine and other.found.space == space
        )
        in_loop, inside, outside = self._turns(race.found, relation)
        sites = self.findings.sites
        polls = any(site.flag and site.reads for site in sites)
        if relation == sentences.BLOCK and (self._ordering.has_messages or polls):
            relation = sentences.FLAGS
        sides = self._sides(race.found)
        return sentences.Remedied(
            relation,
            in_loop,
            inside,
            outside,
            signals=polls or any(site.instruction.root == "atom" for site in sites),
            is_flag=any(site.flag and site.reads for site in sides),
            locks=self._locks,
        )

    @property
    def _locks(self) -> bool:
        return any(site.swaps for site in self.findings.sites)

    def _sides(self, found: Finding) -> tuple[Site, Site]:
        assert found.first is not None
        return self._site(found.first), self._site(found.second)

    def _lines(self, found: Finding) -> frozenset[int]:
        assert found.first is not None
        return frozenset((self._site(found.first).line, self._site(found.second).line))

    def _turns(self, found: Finding, relation: int) -> tuple[bool, int, int]:
        """Whether one loop has both accesses, and lines of its barriers: between theirs, and elsewhere.

        Between lanes of a warp, those of a warp count, too.
        """
        assert found.first is not None
        first, second = (self._site(access).instruction for access in (found.first, found.second))
        own = self.function.instructions
        if any(i.pc >= len(own) or own[i.pc] is not i for i in (first, second)):
            return False, 0, 0
        if not self._in_one_loop(first, second):
            return False, 0, 0
        low, high = sorted((first.line, second.line))
        inside = outside = 0
        for i in own:
            of_warp = relation == sentences.WARP and i.root in ("bar", "barrier") and "warp" in i.parts
            if (
                (of_warp or cfg.is_block_barrier(i))
                and self._in_one_loop(first, i)
                and self._in_one_loop(second, i)
            ):
                if low < i.line < high:
                    inside = inside or i.line
                else:
                    outside = outside or i.line
        return True, inside, outside

    def _in_one_loop(self, a: ir.Instruction, b: ir.Instruction) -> bool:
        """Whether two instructions of the kernel stand in one loop, unrolled or not."""
        places = [
            [
                o.pc
                for o in self.function.instructions
                if (o.line, o.column, o.parts) == (i.line, i.column, i.parts)
            ]
            for i in (a, b)
        ]
        if a is b and len(places[0]) > 1:
            return True
        turns = max(places[0]) > min(places[1]) and max(places[1]) > min(places[0])
        return (turns and min(map(len, places)) > 1) or cfg.share_a_loop(self.flow, a.pc, b.pc)

    def _sort(self, race: _Race, swapped: Set[int], wide: Set[tuple[int, frozenset[int]]]) -> str:
        """Why a race may be meant: programs without locks read plainly beside atomics, and mostly may.

        `swapped` are the arrays that compare-and-swaps change, `wide` those with the lines at which blocks
        meet.
        """
        pair = self._sides(race.found)
        for one, other in (pair, pair[::-1]):
            if one.strong and one.writes and not other.writes and not other.strong:
                if one.swaps:
                    return sentences.STALE
                if id(other.instruction) in self.checks:
                    return sentences.CHECK
                if race.found.space == "global" and (race.found.start, self._lines(race.found)) in wide:
                    return sentences.WEAK
        if race.found.space == "global" and race.found.start in swapped and race.update is None:
            return sentences.MIXED
        return ""

    # -- everything else -----------------------------------------------------------------------------

    def _other(self, kind: str, space: str, found: Finding) -> Hazard:
        second = self._place(found.second)
        site = self._site(found.second)
        if kind in (ABSENT, UNMET):
            words = sentences.absent_message if kind == ABSENT else sentences.unmet_message
            return Hazard(
                tool="sync",
                kind=kind,
                severity="warning",
                space="",
                kernel=self.kernel,
                first=None,
                second=second,
                address=None,
                array="",
                count=found.count,
                message=words(second, found.word),
            )
        address = self._address(space, found)
        array = self._element(space, address)
        tool = "memory"
        first = None
        severity: Severity = "error"
        if kind in (FREED, OUTSIDE_BLOCK):
            key = kind, space, 0, site.line, 0
            array, message = sentences.heap_words(
                kind == FREED, site, second, address, *self.findings.heap_blocks[key]
            )
        elif kind == STRAY:
            message = sentences.stray_message(self.findings.memory, site, second, address, array)
        elif kind == UNWRITTEN:
            tool = "init"
            severity = "warning"
            message = sentences.unwritten_message(space, second, array)
        else:
            assert kind == HASTY
            assert found.first is not None
            tool = "race"
            first = self._place(found.first)
            message = sentences.hasty_message(site, first, second, array)
        return Hazard(
            tool=tool,
            kind=kind,
            severity=severity,
            space=space,
            kernel=self.kernel,
            first=first,
            second=second,
            address=address,
            array=array,
            count=found.count,
            message=message,
        )

    def _apart(self, found: Apart) -> Hazard:
        """A barrier that not all threads reach together."""

        def place(arrival: Arrival) -> Place:
            return self._at(
                arrival.instruction.line,
                results.unlinear(found.block, self.grid),
                results.unlinear(arrival.thread, self.block),
            )

        second = place(found.here)
        overlooked = found.other is None and self._is_overlooked(found.here.instruction)
        first = None if found.other is None else place(found.other)
        return Hazard(
            tool="sync",
            kind="divergent barrier",
            severity="warning" if overlooked else "error",
            space="",
            kernel=self.kernel,
            first=first,
            second=second,
            address=None,
            array="",
            count=found.count,
            message=sentences.apart_message(found.here.mask, first, second, overlooked),
        )

    def _is_overlooked(self, barrier: ir.Instruction) -> bool:
        """Whether compute-sanitizer says nothing of a barrier that only some lanes of a warp come to.

        Asked on an H200 (2025.3.1), it sees neither those in loops nor those that vote.
        """
        return "red" in barrier.parts or cfg.is_in_loop(self.flow, barrier.pc)


def _merged(races: Iterable[_Race], site: Callable[[Access], Site]) -> Iterator[_Race]:
    """Races that are one mistake as one, the widest of them for all."""
    groups: dict[tuple[object, ...], list[_Race]] = {}
    for race in races:
        found = race.found
        update = race.update
        assert found.first is not None
        if update is not None:
            key: tuple[object, ...] = found.space, update.load, update.store
        elif race.sort:
            key = race.sort, found.space, found.start
        else:
            key = found.space, race.kind, site(found.first).line, site(found.second).line
        groups.setdefault(key, []).append(race)
    for group in groups.values():
        widest = max(group, key=lambda race: (race.relation, not race.found.agree))
        count = sum(race.found.count for race in group)
        agree = all(race.found.agree for race in group)
        sides = [(race.found.first, race.found.second) for race in group if race.sort]
        pairs = frozenset((site(a).line, site(b).line) for a, b in sides if a is not None)
        yield replace(widest, found=replace(widest.found, count=count, agree=agree), pairs=pairs)
