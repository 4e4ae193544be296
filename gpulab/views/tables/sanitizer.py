"""Display of the report of ``gl.sanitize`` as text and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gpulab._deprecated import make_old_method
from gpulab.views.parts.card import make_paragraph, make_source_lines, place_beside
from gpulab.views.tables import NO_VALUE_MARK, SOURCE_COLUMN, CardOfTables, Cell, Column, RecordTable, Table
from gpulab.words import count, number, shape
from virtualgpu.records import Dim3, Hazard, Place, SanitizerReport

UNAVAILABLE_TEXT = "not available on this machine"
_RACE_ACCESS_ROLES = {
    "RAW": ("writes", "reads it"),
    "WAR": ("reads", "writes it"),
    "WAW": ("writes", "writes it"),
    "lost update": ("updates", "updates it"),
    "missing wait for a copy": ("copies", "too early"),
}


@dataclass(frozen=True, slots=True, repr=False)
class SanitizerTable(RecordTable[SanitizerReport], SanitizerReport):
    """The sanitizer findings about one launch, with a verdict, a table, and a sentence for each finding."""

    note: str = ""
    code: str = ""
    """The source to which lines refer; empty if it is not known."""

    has_numbered_sentences = True

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the table and the kernel."""
        return f"Sanitizer report of {self.kernel_name}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the shape of the launch, and the tools that checked it."""
        shared_bytes = count(self.shared_bytes, "byte")
        shared_text = f", {shared_bytes} of dynamic shared memory" if self.shared_bytes else ""
        tools_text = (
            f"checked by {self.checker}: {', '.join(self.tools)}; order of blocks: {self.block_order}"
        )
        checks_text = "" if self.unavailable else f"; {tools_text}"
        return f"grid {shape(self.grid)}, block {shape(self.block)}{shared_text}{checks_text}"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the results, such as ``measured on NVIDIA H200``. The phrase is
        empty if there are no results.
        """
        return "" if self.unavailable else self.provenance.of_results

    @property
    def remarks(self) -> Sequence[str]:
        """The part of the caption that states the origin and limitations of the results, or the reason why
        there are none.
        """
        if self.unavailable:
            return [f"{self.checker}: {self.unavailable}."]
        return [sentence for sentence in (self.note, self.left_out) if sentence]

    @property
    def verdict(self) -> str:
        """A sentence with the number of findings of each severity."""
        if self.unavailable:
            return UNAVAILABLE_TEXT
        severity_counts = [
            (sum(hazard.severity == severity for hazard in self.hazards), severity_word)
            for severity, severity_word in (("error", "error"), ("warning", "warning"), ("info", "remark"))
        ]
        count_texts = [
            count(finding_count, severity_word)
            for finding_count, severity_word in severity_counts
            if finding_count
        ]
        verdict_text = ", ".join(count_texts) if count_texts else "Nothing found."
        if self.blocks_checked is None:
            return verdict_text
        extent_text = f"{number(self.blocks_checked)} of {count(prod(self.grid), 'block')} checked"
        return f"{extent_text}: {verdict_text[:1].lower()}{verdict_text[1:]}"

    beside = make_old_method("beside", "compare")

    def compare(self, other: SanitizerReport) -> SanitizerComparison:
        """Compare this report line by line with the report of another checker on the same launch.

        Examples
        --------
        >>> ours.compare(gl.sanitize(kernel, 4, 256, (x, y, n), tool="compute-sanitizer"))
        """
        if not isinstance(other, SanitizerReport):
            raise TypeError(f"Compare with the result of gl.sanitize, not with {type(other).__name__}.")
        return SanitizerComparison(self, other)

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row for each location of a finding. If there are no findings, return no
        table.

        A race has two locations; the earlier access comes first.
        """
        place_rows: list[tuple[Any, ...]] = []
        for finding_number, hazard in enumerate(self.hazards, 1):
            finding_cells: tuple[Any, ...] = (
                finding_number,
                hazard.severity,
                _name_hazard(hazard),
                hazard.count,
            )
            for place, access_role in _list_places(hazard):
                place_rows.append((*finding_cells, *_make_place_row(place), access_role))
                # The second location of a finding repeats its label in a data frame only.
                finding_cells = tuple(
                    Cell(value, "")
                    for value in (finding_number, hazard.severity, _name_hazard(hazard), hazard.count)
                )
        columns = (
            Column("", "finding_index"),
            "severity",
            "finding",
            Column("times", format_value=number),
            "line",
            SOURCE_COLUMN,
            Column("block", format_value=_format_index),
            Column("thread", format_value=_format_index),
            Column("", "access"),
        )
        return (Table("", columns, tuple(place_rows)),) if place_rows else ()

    def sentences(self) -> list[str]:
        """Return the explanation of each finding with its remedy."""
        return [hazard.message[:1].upper() + hazard.message[1:] for hazard in self.hazards]

    def _make_body(self) -> str:
        return "".join(self._make_finding(index, hazard) for index, hazard in enumerate(self.hazards, 1))

    def _make_finding(self, index: int, hazard: Hazard) -> str:
        """Return a finding as HTML: its lines in the source, and its explanation."""
        marks_by_line: dict[int, str] = {}
        text_of_line: dict[int, str] = {}
        for place, access_role in _list_places(hazard):
            thread_text = f"block {_format_index(place.block)}, thread {_format_index(place.thread)}"
            access_text = f"{access_role}: {thread_text}" if access_role else thread_text
            if place.line:
                marks_by_line[place.line] = "; ".join(
                    filter(None, [marks_by_line.get(place.line), access_text])
                )
                text_of_line[place.line] = place.source.strip()
        severity_text = f"{hazard.severity}, {_format_repetitions(hazard.count)}"
        return place_beside(
            make_source_lines(self.code, marks_by_line, text_of_line),
            make_paragraph(f"{index}. {_name_hazard(hazard)} ({severity_text})", "strong")
            + make_paragraph(self.sentences()[index - 1]),
        )


class SanitizerComparison(CardOfTables):
    """A line-by-line comparison of the reports of two checkers on one launch. The attribute ``records``
    contains both reports.
    """

    def __init__(self, first_report: SanitizerReport, second_report: SanitizerReport) -> None:
        self.records = first_report, second_report

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the table and the kernel."""
        return f"Sanitizer reports of {self.records[0].kernel_name}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the shape of the launch."""
        return f"grid {shape(self.records[0].grid)}"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the results of both checkers, such as ``measured on NVIDIA
        H200``.
        """
        origins = [record.provenance.of_results for record in self.records if not record.unavailable]
        return "; ".join(dict.fromkeys(origins))

    @property
    def remarks(self) -> Sequence[str]:
        """The part of the caption that states the limitations of each checker."""
        return [f"{record.checker}: {_describe_limits(record)}" for record in self.records]

    @property
    def verdict(self) -> str:
        """A sentence with the result of the comparison if there are no findings."""
        return "" if self.table().rows else "Nothing found."

    def table(self) -> Table:
        """Return a table with one row per source line, in the order of the source."""
        places = [hazard.second for report in self.records for hazard in report.hazards]
        lines = {(place.line, place.source) for place in places}
        line_rows = tuple(
            (line or None, source_line, *(_describe_findings(report, line) for report in self.records))
            for line, source_line in sorted(lines)
        )
        return Table("", ("line", SOURCE_COLUMN, *(record.checker for record in self.records)), line_rows)

    def tables(self) -> tuple[Table, ...]:
        """Return a tuple with the only table, or an empty tuple if there are no findings."""
        return (self.table(),) if self.table().rows else ()

    def _list_all_tables(self) -> tuple[Table, ...]:
        return (self.table(),)


def _describe_limits(record: SanitizerReport) -> str:
    if record.unavailable:
        return f"{UNAVAILABLE_TEXT}: {record.unavailable}."
    fault_text = f" The launch failed: {record.fault.rstrip('.')}." if record.fault else ""
    check_text = f"{record.provenance.of_results}; checked {', '.join(record.tools)}."
    return f"{check_text}{fault_text} {record.left_out}".rstrip()


def _describe_findings(record: SanitizerReport, line: int) -> str:
    if record.unavailable:
        return UNAVAILABLE_TEXT
    hazards = [hazard for hazard in record.hazards if hazard.second.line == line]
    return (
        "; ".join(f"{_name_hazard(hazard)} ({_format_repetitions(hazard.count)})" for hazard in hazards)
        or NO_VALUE_MARK
    )


def _format_repetitions(count: int) -> str:
    """Return a number of times as text: once, 32 times."""
    return "once" if count == 1 else f"{number(count)} times"


def _name_hazard(hazard: Hazard) -> str:
    kind_text = f"{hazard.kind} race" if hazard.kind in ("RAW", "WAR", "WAW") else hazard.kind
    return f"{kind_text}, {hazard.space} memory" if hazard.space else kind_text


def _list_places(hazard: Hazard) -> list[tuple[Place, str]]:
    """Return the locations of a finding, each with its access; the earlier access comes first."""
    if hazard.first is None:
        return [(hazard.second, "")]
    access_roles = _RACE_ACCESS_ROLES.get(hazard.kind, ("", ""))
    return list(zip((hazard.first, hazard.second), access_roles, strict=True))


def _make_place_row(place: Place) -> tuple[int | None, str, Dim3, Dim3]:
    return place.line or None, place.source.strip(), place.block, place.thread


def _format_index(index: Dim3) -> str:
    """Return the text of a block or thread index, without trailing zeros."""
    index_length = 3
    while index_length > 1 and index[index_length - 1] == 0:
        index_length -= 1
    return f"({', '.join(map(str, index[:index_length]))})" if index_length > 1 else str(index[0])
