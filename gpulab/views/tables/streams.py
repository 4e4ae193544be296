"""The display of the report of ``gl.check_streams`` as text and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import SOURCE_COLUMN, Cell, Column, RecordTable, Table
from gpulab.words import count, number
from virtualgpu.records import StreamReport, StreamUse


@dataclass(frozen=True, slots=True, repr=False)
class StreamTable(RecordTable[StreamReport], StreamReport):
    """A report on accesses by several streams without a defined order. The report contains a verdict, the
    accesses, and the missing waits.
    """

    has_numbered_sentences = True

    @property
    def heading(self) -> str:
        """The heading of the card, which states the kind of the table."""
        return "Order between streams"

    @property
    def facts(self) -> str:
        """The part of the caption that states the number of checked operations and streams."""
        return f"{count(self.operations, 'operation')} in {count(len(self.streams), 'stream')}"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the checked operations, such as ``measured on NVIDIA H200``."""
        return self.provenance.of_results

    @property
    def remarks(self) -> Sequence[str]:
        """The part of the caption that states the limitations of the check."""
        return [self.left_out] if self.left_out else []

    @property
    def verdict(self) -> str:
        """A sentence with the number of pairs of accesses that have no defined order."""
        if not self.findings:
            return "Nothing found: all uses of the same bytes are ordered."
        pairs_text = count(len(self.findings), "pair of uses", "pairs of uses")
        return f"{pairs_text} of the same bytes without order."

    def tables(self) -> tuple[Table, ...]:
        """Return a table with two rows per finding, in which the earlier access comes first. If there are no
        findings, return no table.
        """
        use_rows: list[tuple[Any, ...]] = []
        for finding_number, finding in enumerate(self.findings, 1):
            finding_cells = (finding_number, finding.kind, finding.count, finding.array)
            use_rows.append((*finding_cells, *_make_use_row(finding.first)))
            # The second use of a finding repeats its label in a data frame only.
            use_rows.append((*(Cell(value, "") for value in finding_cells), *_make_use_row(finding.second)))
        columns = (
            Column("", "finding_index"),
            "finding",
            Column("times", format_value=number),
            "array",
            "line",
            SOURCE_COLUMN,
            "stream",
            "does",
            "operation",
        )
        return (Table("", columns, tuple(use_rows)),) if use_rows else ()

    def sentences(self) -> list[str]:
        """Return the explanation of each finding with the code that should be added."""
        return [finding.message for finding in self.findings]

    def _make_body(self) -> str:
        remedies_html = "".join(
            f"<li>{html.escape(f'{finding.cause} {finding.where}')}"
            + (f"<pre>{html.escape(finding.remedy)}</pre></li>" if finding.remedy else "</li>")
            for finding in self.findings
        )
        return "".join(f"{table.html()}<ol>{remedies_html}</ol>" for table in self.tables())


def _make_use_row(use: StreamUse) -> tuple[str | None, str, str, str, str]:
    source_line = None
    source_text = ""
    if use.source is not None:
        source_line = f"{use.source.file}:{use.source.line}"
        source_text = use.source.text.strip()
    return source_line, source_text, use.stream or "host", "writes" if use.writes else "reads", use.name
