"""The report of ``gl.sanitize`` as text and HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass
from math import prod
from typing import Any

from gpulab._deprecated import old_method
from gpulab.views.tables import NOTHING, SOURCE, Cell, Column, Shown, Table, Texts
from gpulab.words import count, number, shape
from virtualgpu.records import Dim3, Hazard, Place, SanitizerReport

NOT_HERE = "not available on this machine"
_RACES = {
    "RAW": ("writes", "reads it"),
    "WAR": ("reads", "writes it"),
    "WAW": ("writes", "writes it"),
    "lost update": ("updates", "updates it"),
    "copy not awaited": ("copies", "comes too early"),
}


@dataclass(frozen=True, slots=True, repr=False)
class SanitizerTable(Shown[SanitizerReport], SanitizerReport):
    """Findings of one launch: a verdict, a table, and a sentence for each finding."""

    note: str = ""

    @property
    def caption(self) -> str:
        """The launch, the tools that checked it, and the device."""
        launch = f"{self.kernel_name}: grid {shape(self.grid)}, block {shape(self.block)}"
        if self.shared_bytes:
            launch += f", {count(self.shared_bytes, 'byte')} of dynamic shared memory"
        if self.unavailable:
            return f"{launch}; {self.checker}: {self.unavailable}."
        text = (
            f"{launch}; {self.provenance.of_results}. Checked: {', '.join(self.tools)}; "
            f"order of blocks: {self.block_order}."
        )
        return " ".join(part for part in (text, self.note, self.left_out) if part)

    @property
    def verdict(self) -> str:
        """The number of findings of each severity."""
        if self.unavailable:
            return NOT_HERE
        counts = [
            (sum(hazard.severity == severity for hazard in self.hazards), word)
            for severity, word in (("error", "error"), ("warning", "warning"), ("info", "remark"))
        ]
        texts = [count(times, word) for times, word in counts if times]
        text = ", ".join(texts) if texts else "Nothing found."
        if self.blocks_checked is None:
            return text
        done = f"{number(self.blocks_checked)} of {count(prod(self.grid), 'block')} checked"
        return f"{done}: {text[:1].lower()}{text[1:]}"

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
        """Return one row per location: a race has two, the earlier one first; no table without findings."""
        rows: list[tuple[Any, ...]] = []
        for row, hazard in enumerate(self.hazards, 1):
            label: tuple[Any, ...] = (row, hazard.severity, _name(hazard), hazard.count)
            places = [place for place in (hazard.first, hazard.second) if place is not None]
            roles = _RACES.get(hazard.kind, ("", ""))[-len(places) :] if len(places) > 1 else ("",)
            for place, role in zip(places, roles, strict=True):
                rows.append((*label, *_row(place), role))
                # The second place of a finding repeats its label in a data frame only.
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
        """Explain each finding, with the remedy."""
        return [hazard.message[:1].upper() + hazard.message[1:] for hazard in self.hazards]

    def __repr__(self) -> str:
        numbered = "\n".join(f"{n}. {text}" for n, text in enumerate(self.sentences(), 1))
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
    """Two checkers' reports of one launch, a row for each line of either; ``records`` has both."""

    def __init__(self, ours: SanitizerReport, theirs: SanitizerReport) -> None:
        self.records = ours, theirs

    @property
    def caption(self) -> str:
        """The launch, and the limits of each checker."""
        texts = [f"{record.checker}: {_seen(record)}" for record in self.records]
        return f"{self.records[0].kernel_name}: grid {shape(self.records[0].grid)}. {' '.join(texts)}"

    def table(self) -> Table:
        """Return a row per line, in the order of the source."""
        lines = {(hazard.second.line, hazard.second.source) for one in self.records for hazard in one.hazards}
        rows = tuple(
            (line or None, source, *(_found(one, line) for one in self.records))
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


def _seen(record: SanitizerReport) -> str:
    if record.unavailable:
        return f"{NOT_HERE}: {record.unavailable}."
    ended = f" The launch ended with {record.fault.rstrip('.')}." if record.fault else ""
    checked = f"{record.provenance.of_results}; checked {', '.join(record.tools)}."
    return f"{checked}{ended} {record.left_out}".rstrip()


def _found(record: SanitizerReport, line: int) -> str:
    if record.unavailable:
        return NOT_HERE
    hazards = [hazard for hazard in record.hazards if hazard.second.line == line]
    return "; ".join(f"{_name(hazard)} ({_times(hazard.count)})" for hazard in hazards) or NOTHING


def _times(count: int) -> str:
    """Return a count in words: once, 32 times."""
    return "once" if count == 1 else f"{number(count)} times"


def _name(hazard: Hazard) -> str:
    kind = f"{hazard.kind} race" if hazard.kind in ("RAW", "WAR", "WAW") else hazard.kind
    return f"{kind}, {hazard.space} memory" if hazard.space else kind


def _row(place: Place) -> tuple[int | None, str, Dim3, Dim3]:
    return place.line or None, place.source.strip(), place.block, place.thread


def _index(index: Dim3) -> str:
    """Return an index without trailing zeros."""
    used = 3
    while used > 1 and index[used - 1] == 0:
        used -= 1
    return f"({', '.join(map(str, index[:used]))})" if used > 1 else str(index[0])
