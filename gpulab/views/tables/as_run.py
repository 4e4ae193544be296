"""The result of ``gl.machine_code`` as tables: counts of PTX and machine code, and their differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import SOURCE, Cell, Column, Shown, Table, place, times
from gpulab.words import number, shape
from virtualgpu.records.as_run import AccessAsRun, AsRun, BranchAsRun

_NOT_KNOWN = "not known"
_WRITTEN = Column("as written", "written", number)
_RUN = Column("as run", "executed", number)


@dataclass(frozen=True, slots=True, repr=False)
class AsRunTable(Shown[AsRun], AsRun):
    """Counts of one launch as written and as run, shown as tables. ``code`` is the source."""

    code: str = ""

    @property
    def caption(self) -> str:
        """The launch, and the origin of the counts."""
        launch = f"{self.kernel_name}: grid {shape(self.grid)}, block {shape(self.block)}"
        return (
            f"{launch}; as written (PTX) and as run (machine code for {self.target}); {self.provenance.label}"
        )

    def tables(self) -> tuple[Table, ...]:
        """Totals, then source lines with their accesses and branches."""
        by_line = (self._accesses(), self._branches())
        return self._totals(), *(table for table in by_line if table.rows)

    def sentences(self) -> tuple[str, ...]:
        """Explain each difference between PTX and machine code in a sentence."""
        sentences = list(self.differences) or [
            "The machine code accesses memory and branches as the PTX does."
        ]
        if self.extra:
            others = ", ".join(f"{count} × {opcode}" for opcode, count in self.extra)
            sentences.append(f"The machine code also has what the PTX does not show: {others}.")
        return tuple(sentences)

    def _totals(self) -> Table:
        rows: list[tuple[Any, ...]] = []
        for space in ("global", "shared", "local", "generic"):
            for kind, name in (("load", "loads"), ("store", "stores"), ("atomic", "atomics")):
                chosen = [a for a in self.accesses if a.space == space and a.kind == kind]
                if not chosen:
                    continue
                written = sum(a.written for a in chosen)
                requests, executed = (
                    self.total(counter, space, kind) for counter in ("requests", "executions")
                )
                rows.append((f"{space} {name}", written, _known(executed), _known(requests)))
        if self.branches:
            written = sum(branch.written for branch in self.branches)
            divergent = _known(self.divergent_branches)
            rows.append(("divergent branches", written, divergent, Cell(None, "")))
        columns = ("counter", _WRITTEN, _RUN, Column("with an active lane", "active_requests", number))
        return Table("", columns, tuple(rows))

    def _accesses(self) -> Table:
        groups: dict[tuple[int, str, str], list[AccessAsRun]] = {}
        for access in self.accesses:
            groups.setdefault((access.line, access.space, access.kind), []).append(access)
        rows = []
        for (line, space, kind), members in groups.items():
            written = Counter(_opcode(member.text) for member in members)
            opcodes = Counter(member.opcode for member in members if member.opcode)
            rows.append(
                (
                    *place(self.code, line, members[0].text, members[0].column, access=True),
                    f"{space} {kind}",
                    _times(written),
                    sum(member.written for member in members),
                    _times(opcodes) or "none",
                    _known(_sum([member.executions for member in members])),
                )
            )
        columns = ("line", SOURCE, "access", "PTX", _WRITTEN, "machine code", _RUN)
        return Table("Memory accesses", columns, tuple(rows))

    def _branches(self) -> Table:
        groups: dict[int, list[BranchAsRun]] = {}
        for branch in self.branches:
            groups.setdefault(branch.line, []).append(branch)
        columns = ("line", SOURCE, "PTX", _WRITTEN, "machine code", _RUN)
        return Table("Divergent branches", columns, tuple(map(self._branch_row, groups.values())))

    def _branch_row(self, branches: Sequence[BranchAsRun]) -> tuple[Any, ...]:
        first = branches[0]
        opcodes = Counter(branch.opcode for branch in branches if branch.opcode)
        return (
            *place(self.code, first.line, first.text, first.column),
            times(len(branches), "bra"),
            sum(branch.written for branch in branches),
            _times(opcodes) or "none",
            _known(_sum([branch.divergent for branch in branches])),
        )


def _opcode(text: str) -> str:
    """``ld.global.f32`` of an instruction's text, without a predicate."""
    words = text.split()
    return words[1] if words[0].startswith("@") else words[0]


def _times(names: Counter[str]) -> str:
    return ", ".join(times(count, name) for name, count in sorted(names.items()))


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(v for v in values if v is not None)


def _known(value: int | None) -> Any:
    return Cell(None, _NOT_KNOWN) if value is None else value
