"""The table of the history of one array element, as text and HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpulab.views.parts.card import make_fold, make_list, make_source_lines, make_strip
from gpulab.views.parts.palette import KERNEL_COLOURS
from gpulab.views.tables import NO_VALUE_MARK, SOURCE_COLUMN, Cell, Column, RecordTable, Table, shorten_source
from gpulab.words import count, number
from virtualgpu.records.faults.history import ElementHistory, Write

_MAX_ROWS = 60
_MAX_STRIP_CELLS = 12


@dataclass(frozen=True, slots=True, repr=False)
class HistoryTable(RecordTable[ElementHistory], ElementHistory):
    """A table of all writes to one array element. The first write is at the top."""

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the table and the array element."""
        return f"History of {self.element}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the number of writes and launches."""
        writes_text = count(len(self.writes) - 1 + self.left_out, "write")
        return f"{writes_text} in {count(self.launches, 'launch', 'launches')}"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the written values, such as ``measured on NVIDIA H200``."""
        return self.provenance.of_results

    @property
    def verdict(self) -> str:
        """A sentence with the value of the array element and its last writer."""
        last_write = self.last
        if last_write.kind == "initial":
            return f"No launch wrote {self.element}: its value was {_format_value(last_write.value)} before."
        launch_text = f" of launch {last_write.launch}" if last_write.launch else ""
        writer_text = f"{last_write.name}{launch_text}"
        if last_write.place is not None:
            writer_text += f", block {last_write.place.block}, thread {last_write.place.thread}"
            writer_text += f", line {last_write.place.line}" if last_write.place.line else ""
        source_text = f" ({last_write.source})" if last_write.source else ""
        return f"{self.element} is {_format_value(last_write.value)}, written by {writer_text}{source_text}."

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row per write. If there are many writes, it contains only the first and the
        last ones.
        """
        write_rows = self._make_rows()
        if len(write_rows) > _MAX_ROWS:
            skipped_count = len(write_rows) - _MAX_ROWS
            omission_row = (
                "",
                Cell(None, f"{number(skipped_count)} more"),
                *[""] * (len(_WRITE_COLUMNS) - 2),
            )
            write_rows = [*write_rows[: _MAX_ROWS // 2], omission_row, *write_rows[-_MAX_ROWS // 2 :]]
        return (Table("", _WRITE_COLUMNS, tuple(write_rows), hide_empty=True),)

    def _list_all_tables(self) -> tuple[Table, ...]:
        return (Table("", _WRITE_COLUMNS, tuple(self._make_rows())),)

    def _make_rows(self) -> list[tuple[Any, ...]]:
        return [(index, *_make_row(write)) for index, write in enumerate(self.writes, self.left_out)]

    def sentences(self) -> list[str]:
        """Return notes on the writes in the table."""
        sentences = []
        if self.left_out:
            sentences.append(
                f"The first {count(self.left_out, 'entry', 'entries')} of the history did not fit into the "
                "recording."
            )
        if any(write.value is None for write in self.writes):
            sentences.append(
                "Several lanes of one instruction wrote the element, and it has the value of the last one."
            )
        if self.error:
            sentences.append(f"After the last write, this error occurred: {self.error}")
        return [*sentences, *filter(None, [self.note])]

    def _make_body(self) -> str:
        last_write = self.last
        line_text = ""
        if last_write.place is not None and last_write.place.line:
            mark_text = f"block {last_write.place.block}, thread {last_write.place.thread}"
            line_text = make_source_lines(
                "",
                {last_write.place.line: mark_text},
                {last_write.place.line: last_write.place.source.strip()},
            )
        tables_html = "".join(table.html() for table in self.tables())
        return (
            self._make_value_strip()
            + line_text
            + make_fold("All writes, in order", tables_html, len(self.writes) <= _MAX_STRIP_CELLS)
            + make_list(self.sentences())
        )

    def _make_value_strip(self) -> str:
        """Return the values in the order of the writes as HTML, with one colour per writer."""
        writer_names = list(dict.fromkeys(write.name for write in self.writes if write.kind != "initial"))
        colour_of_writer = dict(
            zip(writer_names, (*KERNEL_COLOURS, *[KERNEL_COLOURS[-1]] * len(writer_names)), strict=False)
        )
        strip_cells = [
            (_format_value(write.value), _name_writer(write), colour_of_writer.get(write.name, "other"))
            for write in self.writes
        ]
        if len(strip_cells) > _MAX_STRIP_CELLS:
            hidden_text = f"{number(len(strip_cells) - _MAX_STRIP_CELLS)} more"
            strip_cells = [
                *strip_cells[:2],
                ("…", hidden_text, "other"),
                *strip_cells[2 - _MAX_STRIP_CELLS :],
            ]
        return make_strip(strip_cells)


def _name_writer(write: Write) -> str:
    """Return a short text that names the writer of a value."""
    if write.kind == "initial":
        return "before"
    launch_suffix = f", launch {write.launch}" if write.launch else ""
    line_text = f", line {write.place.line}" if write.place is not None and write.place.line else ""
    return f"{write.name}{launch_suffix}{line_text}"


def _make_row(write: Write) -> tuple[Any, ...]:
    write_place = write.place
    position_cells: tuple[Any, ...] = (None, None, None, None)
    if write_place is not None:
        position_cells = (
            write_place.block,
            write_place.thread,
            write_place.line or None,
            write_place.source.strip(),
        )
    writer_name = {"initial": "before", "atomic": f"{write.name} (atomic)"}.get(write.kind, write.name)
    python_cell = None
    if write.source is not None:
        python_location = f"{write.source.file}:{write.source.line}"
        python_cell = Cell(
            f"{python_location} {write.source.text.strip()}",
            f"{python_location} {shorten_source(write.source.text)}",
        )
    return write.value, writer_name, write.launch or None, *position_cells, python_cell


def _format_value(value: Any) -> str:
    if value is None:
        return NO_VALUE_MARK
    return f"{value:.7g}" if isinstance(value, float) else str(value)


_WRITE_COLUMNS = (
    Column("", "write_index"),
    Column("value", format_value=_format_value),
    "by",
    "launch",
    "block",
    "thread",
    "line",
    SOURCE_COLUMN,
    "Python line",
)
