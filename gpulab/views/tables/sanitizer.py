"""Display of the report of ``gl.sanitize`` as text and HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass
from math import prod
from typing import Any

from gpulab._deprecated import old_method
from gpulab.views.tables import NOTHING, SOURCE, Cell, Column, RecordTable, Table, Texts
from gpulab.words import count, number, shape
from virtualgpu.records import Dim3, Hazard, Place, SanitizerReport

UNAVAILABLE = "not available on this machine"
_RACES = {
    "RAW": ("writes", "reads it"),
    "WAR": ("reads", "writes it"),
    "WAW": ("writes", "writes it"),
    "lost update": ("updates", "updates it"),
    "missing wait for a copy": ("copies", "too early"),
}


@dataclass(frozen=True, slots=True, repr=False)
class SanitizerTable(RecordTable[SanitizerReport], SanitizerReport):
    """Findings of one launch: a verdict, a table, and a sentence for each finding."""

    note: str = ""

    @property
    def caption(self) -> str:
        """Line with the launch, the tools that checked it, and the device."""
        launch = f"{self.kernel_name}: grid {shape(self.grid)}, block {shape(self.block)}"
        if self.shared_bytes:
            launch += f", {count(self.shared_bytes, 'byte')} of dynamic shared memory"
        if self.unavailable:
            return f"{launch}; {self.checker}: {self.unavailable}."
        text = (
            f"{launch}; {self.provenance.of_results}. Checked: {', '.join(self.tools)}; "
            f"order of blocks: {self.block_order}."
        )
        return " ".join(sentence for sentence in (text, self.note, self.left_out) if sentence)

    @property
    def verdict(self) -> str:
        """Sentence with the number of findings of each severity."""
        if self.unavailable:
            return UNAVAILABLE
        counts = [
            (sum(hazard.severity == severity for hazard in self.hazards), word)
            for severity, word in (("error", "error"), ("warning", "warning"), ("info", "remark"))
        ]
        texts = [count(times, word) for times, word in counts if times]
        text = ", ".join(texts) if texts else "Nothing found."
        if self.blocks_checked is None:
            return text
        extent = f"{number(self.blocks_checked)} of {count(prod(self.grid), 'block')} checked"
        return f"{extent}: {text[:1].lower()}{text[1:]}"

    beside = old_method("beside", "compare")

    def compare(self, other: SanitizerReport) -> SanitizerComparison:
        """Compare with another checker's report of the same launch, line by line.

        Examples
        --------
        >>> ours.compare(gl.sanitize(kernel, 4, 256, (x, y, n), tool="compute-sanitizer"))
        """
        if not isinstance(other, SanitizerReport):
            raise TypeError(f"Compare with the result of gl.sanitize, not with {type(other).__name__}.")
        return SanitizerComparison(self, other)

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row per location of each finding; no table without findings.

        A race has two locations; the earlier access comes first.
        """
        rows: list[tuple[Any, ...]] = []
        for row, hazard in enumerate(self.hazards, 1):
            label: tuple[Any, ...] = (row, hazard.severity, _name(hazard), hazard.count)
            places = [place for place in (hazard.first, hazard.second) if place is not None]
            roles = _RACES.get(hazard.kind, ("", ""))[-len(places) :] if len(places) > 1 else ("",)
            for place, role in zip(places, roles, strict=True):
                rows.append((*label, *_row(place), role))
                # The second location of a finding repeats its label in a data frame only.
                label = tuple(
                    Cell(value, "") for value in (row, hazard.severity, _name(hazard), hazard.count)
                )
        columns = (
            Column("", "finding_index"),
            "severity",
            "finding",
            Column("times", show=number),
            "line",
            SOURCE,
            Column("block", show=_index),
            Column("thread", show=_index),
            Column("", "access"),
        )
        return (Table("", columns, tuple(rows)),) if rows else ()

    def sentences(self) -> list[str]:
        """Return the explanation of each finding, with the remedy."""
        return [hazard.message[:1].upper() + hazard.message[1:] for hazard in self.hazards]

    def __repr__(self) -> str:
        numbered = "\n".join(f"{index}. {text}" for index, text in enumerate(self.sentences(), 1))
        parts = [self.caption, self.verdict, *(table.text() for table in self.tables()), numbered]
        return "\n\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in self.sentences())
        body = "".join(f"{table.html()}<ol>{items}</ol>" for table in self.tables())
        return (
            f'<div role="group"><p>{html.escape(self.caption)}</p>'
            f"<p><strong>{html.escape(self.verdict)}</strong></p>{body}</div>"
        )


class SanitizerComparison(Texts):
    """Comparison of two checkers' reports of one launch, line by line; ``records`` contains both."""

    def __init__(self, first_report: SanitizerReport, second_report: SanitizerReport) -> None:
        self.records = first_report, second_report

    @property
    def caption(self) -> str:
        """Line with the launch and the limits of each checker."""
        texts = [f"{record.checker}: {_limits_text(record)}" for record in self.records]
        return f"{self.records[0].kernel_name}: grid {shape(self.records[0].grid)}. {' '.join(texts)}"

    def table(self) -> Table:
        """Return a table with a row per source line, in the order of the source."""
        places = [hazard.second for report in self.records for hazard in report.hazards]
        lines = {(place.line, place.source) for place in places}
        rows = tuple(
            (line or None, source, *(_findings_text(report, line) for report in self.records))
            for line, source in sorted(lines)
        )
        return Table("", ("line", SOURCE, *(record.checker for record in self.records)), rows)

    def to_pandas(self) -> Any:
        """Return the table as a `pandas.DataFrame`; see `Table.to_pandas`."""
        return self.table().to_pandas()

    def __repr__(self) -> str:
        table = self.table()
        return "\n\n".join([self.caption, table.text()] if table.rows else [self.caption, "Nothing found."])

    def _repr_html_(self) -> str:
        table = self.table()
        body = table.html() if table.rows else "<p>Nothing found.</p>"
        return f'<div role="group"><p>{html.escape(self.caption)}</p>{body}</div>'


def _limits_text(record: SanitizerReport) -> str:
    if record.unavailable:
        return f"{UNAVAILABLE}: {record.unavailable}."
    fault_text = f" The launch failed: {record.fault.rstrip('.')}." if record.fault else ""
    check_text = f"{record.provenance.of_results}; checked {', '.join(record.tools)}."
    return f"{check_text}{fault_text} {record.left_out}".rstrip()


def _findings_text(record: SanitizerReport, line: int) -> str:
    if record.unavailable:
        return UNAVAILABLE
    hazards = [hazard for hazard in record.hazards if hazard.second.line == line]
    return "; ".join(f"{_name(hazard)} ({_times_text(hazard.count)})" for hazard in hazards) or NOTHING


def _times_text(count: int) -> str:
    """Return a number of times in words: once, 32 times."""
    return "once" if count == 1 else f"{number(count)} times"


def _name(hazard: Hazard) -> str:
    kind = f"{hazard.kind} race" if hazard.kind in ("RAW", "WAR", "WAW") else hazard.kind
    return f"{kind}, {hazard.space} memory" if hazard.space else kind


def _row(place: Place) -> tuple[int | None, str, Dim3, Dim3]:
    return place.line or None, place.source.strip(), place.block, place.thread


def _index(index: Dim3) -> str:
    """Return the text of a block or thread index, without trailing zeros."""
    index_length = 3
    while index_length > 1 and index[index_length - 1] == 0:
        index_length -= 1
    return f"({', '.join(map(str, index[:index_length]))})" if index_length > 1 else str(index[0])
