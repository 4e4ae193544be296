"""The display of the result of code in a sandbox: output, error and cause."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import SOURCE_COLUMN, Column, RecordTable, Table
from gpulab.words import count
from virtualgpu.records.faults.sandboxed import SandboxRun
from virtualgpu.records.timeline import SourceLine

_MAX_OUTPUT_LINES = 40


@dataclass(frozen=True, slots=True, repr=False)
class SandboxTable(RecordTable[SandboxRun], SandboxRun):
    """The outcome of code that ran in a sandbox, with a verdict, the output, and a table of the source lines
    of the error.
    """

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the table and the name of the code."""
        mode_text = " with launch blocking" if self.blocking else ""
        return f"{self.name} in a separate process{mode_text}"

    @property
    def origin(self) -> str:
        """A phrase that states on which device the code in the sandbox ran."""
        return self.provenance.of_results

    @property
    def verdict(self) -> str:
        """A sentence with the outcome of the code, and its consequences for the following code."""
        if self.ended:
            return f"{self.name} was ended: {self.ended}"
        if not self.error:
            return f"{self.name} finished."
        error_line = self.error.split("\n", 1)[0].rstrip(".")
        location_text = f" at {self.raised}" if self.raised else ""
        if self.at_end:
            location_text = ", reported at the end, because the program never waits for its work"
        consequence_text = (
            " The context was lost with its process; this notebook has another context."
            if self.sticky
            else ""
        )
        return f"{self.name} raised {error_line}{location_text}.{consequence_text}"

    def tables(self) -> tuple[Table, ...]:
        """Return a table with the line that raised the error and the line of the faulty launch, if the code
        failed.
        """
        rows: list[tuple[Any, ...]] = [("raised", *_make_source_row(self.raised))] if self.raised else []
        if self.culprit is not None:
            launch_text = f"launch {self.culprit.launch}" if self.culprit.launch else "a launch"
            rows.append((f"cause ({launch_text})", *_make_source_row(self.culprit.source)))
            faulty_location = self.culprit.place
            if faulty_location is not None:
                faulty_thread_text = (
                    f"{self.culprit.kernel}, block {faulty_location.block}, thread {faulty_location.thread}"
                )
                rows.append(
                    (
                        faulty_thread_text,
                        "kernel",
                        faulty_location.line or None,
                        faulty_location.source.strip(),
                    )
                )
        return (Table("", (Column("", "role"), "file", "line", SOURCE_COLUMN), tuple(rows)),) if rows else ()

    def sentences(self) -> list[str]:
        """Return the explanation of the error from the virtual GPU, and further notes."""
        sentences = [self.culprit.said] if self.culprit is not None and self.culprit.said else []
        return [*sentences, *self.notes]

    @property
    def printed(self) -> str:
        """The first lines of the output of the code, and the number of further lines."""
        lines = self.output.splitlines()
        omitted_count = self.output_lines - min(len(lines), _MAX_OUTPUT_LINES)
        omission_notes = [f"... and {count(omitted_count, 'more line')}"] if omitted_count > 0 else []
        return "\n".join([*lines[:_MAX_OUTPUT_LINES], *omission_notes])

    def __repr__(self) -> str:
        table_text = super(SandboxTable, self).__repr__()
        return f"{self.printed}\n\n{table_text}" if self.printed else table_text

    def _make_body(self) -> str:
        printed_html = f'<pre class="gl-listing">{html.escape(self.printed)}</pre>' if self.printed else ""
        return printed_html + super(SandboxTable, self)._make_body()


def _make_source_row(source: SourceLine | None) -> tuple[str | None, int | None, str]:
    if source is None:
        return None, None, ""
    return source.file, source.line, source.text.strip()
