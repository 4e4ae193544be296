"""The tables of ``gl.machine_code``: the counts of PTX and machine code, and their differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import (
    SOURCE_COLUMN,
    Cell,
    Column,
    RecordTable,
    Table,
    format_counted_name,
    locate_line,
)
from gpulab.words import number, shape
from virtualgpu.records.as_run import AccessAsRun, AsRun, BranchAsRun

_UNKNOWN_COUNT_TEXT = "not known"
_PTX_COUNT_COLUMN = Column("as written", "written", number)
_MACHINE_CODE_COUNT_COLUMN = Column("as run", "executed", number)


@dataclass(frozen=True, slots=True, repr=False)
class AsRunTable(RecordTable[AsRun], AsRun):
    """A comparison of the counts of a launch in PTX (as written) and in machine code (as run). The attribute
    ``code`` contains the source code of the kernel.
    """

    code: str = ""

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the tables and the kernel."""
        return f"PTX and machine code of {self.kernel_name}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the shape of the launch and the target of the machine code."""
        launch_text = f"grid {shape(self.grid)}, block {shape(self.block)}"
        return f"{launch_text}; as written (PTX) and as run (machine code for {self.target})"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the instruction counts, such as ``measured on NVIDIA H200``."""
        return self.provenance.of_results

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the total counts, and a table of source lines with their accesses and
        branches.
        """
        tables_by_line = (self._make_access_table(), self._make_branch_table())
        return self._make_totals_table(), *(table for table in tables_by_line if table.rows)

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each difference between the PTX and the machine code."""
        sentences = list(self.differences) or ["The machine code accesses memory and branches like the PTX."]
        if self.extra:
            opcodes_text = ", ".join(f"{opcode_count} × {opcode}" for opcode, opcode_count in self.extra)
            sentences.append(
                f"The machine code also has instructions that the PTX does not show: {opcodes_text}."
            )
        return tuple(sentences)

    def _make_totals_table(self) -> Table:
        total_rows: list[tuple[Any, ...]] = []
        for space in ("global", "shared", "local", "generic"):
            for access_kind, plural_noun in (("load", "loads"), ("store", "stores"), ("atomic", "atomics")):
                matching_accesses = [
                    access for access in self.accesses if access.space == space and access.kind == access_kind
                ]
                if not matching_accesses:
                    continue
                ptx_count = sum(access.written for access in matching_accesses)
                request_count, execution_count = (
                    self.total(counter_name, space, access_kind)
                    for counter_name in ("requests", "executions")
                )
                total_rows.append(
                    (
                        f"{space} {plural_noun}",
                        ptx_count,
                        _format_count(execution_count),
                        _format_count(request_count),
                    )
                )
        if self.branches:
            ptx_count = sum(branch.written for branch in self.branches)
            divergent_count = _format_count(self.divergent_branches)
            total_rows.append(("divergent branches", ptx_count, divergent_count, Cell(None, "")))
        total_columns = (
            "counter",
            _PTX_COUNT_COLUMN,
            _MACHINE_CODE_COUNT_COLUMN,
            Column("with an active lane", "active_requests", number),
        )
        return Table("", total_columns, tuple(total_rows))

    def _make_access_table(self) -> Table:
        accesses_by_key: dict[tuple[int, str, str], list[AccessAsRun]] = {}
        for access in self.accesses:
            accesses_by_key.setdefault((access.line, access.space, access.kind), []).append(access)
        access_rows = []
        for (line, space, access_kind), line_accesses in accesses_by_key.items():
            ptx_opcodes = Counter(_find_opcode(counted_access.text) for counted_access in line_accesses)
            opcode_counts = Counter(
                counted_access.opcode for counted_access in line_accesses if counted_access.opcode
            )
            access_rows.append(
                (
                    *locate_line(
                        self.code, line, line_accesses[0].text, line_accesses[0].column, is_access=True
                    ),
                    f"{space} {access_kind}",
                    _format_counted_opcodes(ptx_opcodes),
                    sum(counted_access.written for counted_access in line_accesses),
                    _format_counted_opcodes(opcode_counts) or "none",
                    _format_count(
                        _sum_known_counts([counted_access.executions for counted_access in line_accesses])
                    ),
                )
            )
        columns = (
            "line",
            SOURCE_COLUMN,
            "access",
            "PTX",
            _PTX_COUNT_COLUMN,
            "machine code",
            _MACHINE_CODE_COUNT_COLUMN,
        )
        return Table("Memory accesses", columns, tuple(access_rows))

    def _make_branch_table(self) -> Table:
        branches_by_line: dict[int, list[BranchAsRun]] = {}
        for branch in self.branches:
            branches_by_line.setdefault(branch.line, []).append(branch)
        columns = (
            "line",
            SOURCE_COLUMN,
            "PTX",
            _PTX_COUNT_COLUMN,
            "machine code",
            _MACHINE_CODE_COUNT_COLUMN,
        )
        return Table(
            "Divergent branches", columns, tuple(map(self._make_branch_row, branches_by_line.values()))
        )

    def _make_branch_row(self, branches: Sequence[BranchAsRun]) -> tuple[Any, ...]:
        first_branch = branches[0]
        opcode_counts = Counter(branch.opcode for branch in branches if branch.opcode)
        return (
            *locate_line(self.code, first_branch.line, first_branch.text, first_branch.column),
            format_counted_name(len(branches), "bra"),
            sum(branch.written for branch in branches),
            _format_counted_opcodes(opcode_counts) or "none",
            _format_count(_sum_known_counts([branch.divergent for branch in branches])),
        )


def _find_opcode(text: str) -> str:
    """Return the opcode of a PTX instruction, such as ``ld.global.f32``, without a predicate."""
    opcode_words = text.split()
    return opcode_words[1] if opcode_words[0].startswith("@") else opcode_words[0]


def _format_counted_opcodes(opcode_counts: Counter[str]) -> str:
    return ", ".join(
        format_counted_name(opcode_count, opcode) for opcode, opcode_count in sorted(opcode_counts.items())
    )


def _sum_known_counts(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(value for value in counts if value is not None)


def _format_count(value: int | None) -> Any:
    return Cell(None, _UNKNOWN_COUNT_TEXT) if value is None else value
