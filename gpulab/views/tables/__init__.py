"""Tables of records as text and HTML, each with a caption that states the origin of its numbers."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from itertools import zip_longest
from typing import Any, ClassVar, Generic, Self, TypeVar

from gpulab.views._saving import Savable, Writers, make_text_writer
from gpulab.views.parts.card import make_bar, make_bars, make_card, make_list, make_paragraph
from gpulab.views.parts.palette import COLOURS
from gpulab.words import duration, number

Record = TypeVar("Record")

MAX_SOURCE_LENGTH = 60
NO_VALUE_MARK = "–"
_ACCESS_PATTERN = re.compile(r"\w\s*\[|\b(?:atomic|__ld|__st)\w*\s*\(|=\s*\*|\*\w+\s*=")
# Text that a narrow page may break into lines, but not within words.
_MIN_WIDTH_STYLES = {"source": "min-width:11em;", "meaning": "min-width:11em;", "access": "min-width:6em;"}
_DARK_PAGE = f"background: {COLOURS['bg'][1]}; color: {COLOURS['fg'][1]}"
_PAGE_STYLE = (
    "<style>body { margin: 12px; font-family: system-ui, sans-serif; }\n"
    f"@media (prefers-color-scheme: dark) {{ body {{ {_DARK_PAGE} }} }}</style>\n"
)
_NUMBER_START = frozenset("0123456789-–<")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, with its heading, its name in a data frame, and its format.

    Parameters
    ----------
    heading
        The text above the column.
    name
        The name of the column in a data frame, with the unit: ``time_ns``. The heading if it is empty.
    format_value
        Function that returns the text of a value. None is shown as a dash.
    """

    heading: str
    name: str = ""
    format_value: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Cell:
    """A table value that is shown with its own text. The text is used instead of the format of the column.

    Parameters
    ----------
    bars
        Shares between 0 and 1, each with a colour; a page shows them as bars below the text.
    """

    value: Any
    text: str
    bars: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """A table of raw values with a heading for each column. The values are converted to text when the table
    is shown.

    Parameters
    ----------
    title
        The caption of the table.
    columns
        The columns: each is a `Column`, or a heading for values that `str` can show.
    rows
        The raw values. Columns in which every text begins with a digit are aligned right.
    inner_tables
        For each row, the table that a page shows when the learner opens the row, or None.
    hide_empty
        Whether columns without any value are left out when the table is shown.
    max_rows
        The number of rows to show; a data frame has all rows.
    omission_row
        A row that is shown in place of the rows beyond `max_rows`.
    """

    title: str
    columns: tuple[Column | str, ...]
    rows: tuple[tuple[Any, ...], ...]
    inner_tables: tuple[Table | None, ...] = ()
    hide_empty: bool = False
    max_rows: int | None = None
    omission_row: tuple[Any, ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the visible columns."""
        return tuple(self._make_columns()[index].heading for index in self._find_shown_columns())

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The texts of the visible rows and columns."""
        column_indices = self._find_shown_columns()
        return tuple(tuple(row[index] for index in column_indices) for row in self._format_rows())

    def to_pandas(self) -> Any:
        """Return the raw values of all rows and columns as a `pandas.DataFrame`.

        Returns
        -------
        pandas.DataFrame
            Numbers are numbers; the name of a column ends in its unit, such as ``time_ns``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pandas = _import_pandas()
        names = [column.name or column.heading for column in self._make_columns()]
        rows = [[cell.value if isinstance(cell, Cell) else cell for cell in row] for row in self.rows]
        return pandas.DataFrame(rows, columns=names)

    def text(self) -> str:
        """Return the table as text in fixed-width characters."""
        headings = self.headings
        cell_texts = self.cells
        widths = [max(map(len, column)) for column in zip(headings, *cell_texts, strict=True)]
        right_alignments = self._find_right_alignments()
        lines = [self.title] if self.title else []
        lines.append(_format_line(headings, widths, right_alignments))
        lines.append("  ".join("-" * width for width in widths))
        lines += [_format_line(row, widths, right_alignments) for row in cell_texts]
        return "\n".join(lines)

    def html(self) -> str:
        """Return the table as HTML in the colours of the page."""
        # A number stays next to its unit.
        alignments = [
            "right;white-space:nowrap" if is_right else "left" for is_right in self._find_right_alignments()
        ]
        headings = self.headings
        head_html = "".join(
            f'<th scope="col" style="text-align:{alignment.partition(";")[0]}">'
            f"{_make_html_heading(heading)}</th>"
            for heading, alignment in zip(headings, alignments, strict=True)
        )
        body_html = "".join(
            "<tr>"
            + "".join(
                f'<td style="{_MIN_WIDTH_STYLES.get(heading, "")}text-align:{align}">'
                f"{_make_html_cell(cell, bars)}</td>"
                for cell, bars, align, heading in zip(row, row_bars, alignments, headings, strict=True)
            )
            + "</tr>"
            + (self._make_inner_row(inner_table) if inner_table else "")
            for row, row_bars, inner_table in zip_longest(self.cells, self._make_bars(), self.inner_tables)
        )
        caption = (
            f'<caption style="text-align:left;caption-side:top">{html.escape(self.title)}</caption>'
            if self.title
            else ""
        )
        table_html = f"{caption}<thead><tr>{head_html}</tr></thead><tbody>{body_html}</tbody>"
        return f'<div style="overflow-x:auto"><table style="font-size:12px">{table_html}</table></div>'

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.card()

    def card(self, title: str = "", origin: str = "") -> str:
        """Return the table as an HTML card with its own title or another title."""
        return make_card(title or self.title, replace(self, title="").html(), origin=origin)

    def _make_columns(self) -> list[Column]:
        return [Column(column) if isinstance(column, str) else column for column in self.columns]

    def _format_rows(self) -> list[tuple[str, ...]]:
        """Return the texts of the visible rows, with all columns."""
        formatters = [column.format_value for column in self._make_columns()]
        return [
            tuple(
                _format_value(value, format_cell) for value, format_cell in zip(row, formatters, strict=True)
            )
            for row in self._find_shown_rows()
        ]

    def _find_shown_rows(self) -> list[tuple[Any, ...]]:
        rows = list(self.rows[: self.max_rows])
        return [*rows, self.omission_row] if self.omission_row and len(rows) < len(self.rows) else rows

    def _make_bars(self) -> list[list[str]]:
        """Return the bars of the visible cells as HTML."""
        column_indices = self._find_shown_columns()
        return [[_make_html_bars(row[index]) for index in column_indices] for row in self._find_shown_rows()]

    def _find_shown_columns(self) -> list[int]:
        """Return the indices of the visible columns."""
        if not self.hide_empty:
            return list(range(len(self.columns)))
        return [
            index
            for index, column_texts in enumerate(zip(*self._format_rows(), strict=True))
            if set(column_texts) != {NO_VALUE_MARK}
        ]

    def _make_inner_row(self, inner_table: Table) -> str:
        """Return the HTML of a row that opens to show an inner table."""
        column_indices = self._find_shown_columns()
        visible_table = replace(
            inner_table,
            title="",
            columns=tuple(inner_table.columns[index] for index in column_indices),
            rows=tuple(tuple(row[index] for index in column_indices) for row in inner_table.rows),
        )
        summary = f"<summary>{html.escape(inner_table.title)}</summary>"
        return (
            f'<tr><td></td><td colspan="{len(column_indices) - 1}" style="text-align:left">'
            f"<details>{summary}{visible_table.html()}</details></td></tr>"
        )

    def _find_right_alignments(self) -> list[bool]:
        """Return a flag for each visible column that is true if the column is aligned right. All texts of
        such a column begin with a digit.
        """
        columns = list(zip(*self.cells, strict=True)) or [()] * len(self.headings)
        return [
            bool(column) and all(not cell or cell[0] in _NUMBER_START for cell in column)
            for column in columns
        ]


def _format_value(value: Any, format_plain_value: Callable[[Any], str]) -> str:
    if isinstance(value, Cell):
        return value.text
    return NO_VALUE_MARK if value is None else format_plain_value(value)


def _import_pandas() -> Any:
    try:
        return import_module("pandas")
    except ImportError as error:
        missing_message = (
            "to_pandas() needs pandas, which is not installed. Install it with: pip install pandas"
        )
        raise ImportError(missing_message, name="pandas") from error


def _format_line(cells: Sequence[str], widths: Sequence[int], right_alignments: Sequence[bool]) -> str:
    padded_cells = []
    for cell, width, is_right in zip(cells, widths, right_alignments, strict=True):
        padding_spaces = " " * (width - len(cell))
        padded_cells.append(padding_spaces + cell if is_right else cell + padding_spaces)
    return "  ".join(padded_cells).rstrip()


def _make_html_heading(heading: str) -> str:
    """Return a heading as HTML; long names of nvidia-smi can break at a dot or an underscore."""
    return re.sub(r"(?<=\w)([._])(?=\w)", r"\1<wbr>", html.escape(heading))


def _make_html_cell(text: str, bars: str) -> str:
    cell_html = html.escape(text).replace("\n", "<br>")
    return f'<span class="gl-cell">{bars}<span>{cell_html}</span></span>' if bars else cell_html


def _make_html_bars(value: Any) -> str:
    if not isinstance(value, Cell) or not value.bars:
        return ""
    return f'<span class="gl-cell-bars">{"".join(make_bar(*bar) for bar in value.bars)}</span>'


def make_share_cell(
    share: float | None, format_share: Callable[[float], str], colour: str = "accent"
) -> Cell | None:
    """Return a table cell with a text and a bar for a share. If the share is None, return None."""
    return None if share is None else Cell(share, format_share(share), ((share, colour),))


def compare_times(
    time_before: tuple[str, float], time_after: tuple[str, float], colour: str = "accent"
) -> str:
    """Return the HTML of two bars that compare two named times in ns on the same scale."""
    longest_ns = max(time_before[1], time_after[1], 1e-9)
    return make_bars(
        (name, time_ns / longest_ns, duration(time_ns), bar_colour)
        for (name, time_ns), bar_colour in ((time_before, "other"), (time_after, colour))
    )


def shorten_source(text: str, column: int = 1) -> str:
    """Return at most `MAX_SOURCE_LENGTH` characters of a source line around the given column. The first
    column has the number 1.
    """
    indent = len(text) - len(text.lstrip())
    text = text.strip()
    column_index = max(0, column - 1 - indent)
    if len(text) <= MAX_SOURCE_LENGTH:
        return text
    start_index = max(0, min(column_index - MAX_SOURCE_LENGTH // 3, len(text) - MAX_SOURCE_LENGTH))
    end_index = start_index + MAX_SOURCE_LENGTH
    start_mark = "…" if start_index else ""
    end_mark = "…" if end_index < len(text) else ""
    return start_mark + text[start_index + len(start_mark) : end_index - len(end_mark)] + end_mark


SOURCE_COLUMN = Column("source", format_value=shorten_source)
"""Column of source lines, which are shortened when shown, and complete in a data frame."""


def locate_line(
    code: str, line: int, text: str, column: int = 1, is_access: bool = False
) -> tuple[int | None, Cell]:
    """Return the number and the text of a source line, counted from 1. If the source has no such line, return
    `text` as the text of the line.

    NVRTC reports the column of the first statement of a line. If a line is too long to be shown completely
    and is an `is_access` to memory, the part around its first subscript is shown instead.
    """
    lines = code.split("\n")  # as NVRTC counts them: at no other character
    line_text = lines[line - 1] if 1 <= line <= len(lines) else ""
    if is_access and (subscript := _ACCESS_PATTERN.search(line_text, max(0, column - 1))):
        column = subscript.start() + 1
    return line or None, Cell(line_text.strip() or text, shorten_source(line_text, column) or text)


def format_counted_name(count: int, name: str) -> str:
    """Return a name with its count, such as ``4 × LDG``. A count of 1 is omitted."""
    return f"{number(count)} × {name}" if count > 1 else name


class HasTables:
    """The base class of objects whose data can be displayed or exported as tables."""

    __slots__ = ()

    def tables(self) -> tuple[Table, ...]:
        """Return the tables of this object, in the order in which they are shown."""
        raise NotImplementedError

    def to_pandas(self, title: str = "") -> Any:
        """Return one table of this object as a `pandas.DataFrame` of raw values.

        Parameters
        ----------
        title
            The beginning of the table's title, such as ``"Copies"``. If it is empty, the first table.

        Returns
        -------
        pandas.DataFrame
            All rows and columns; the name of a column ends in its unit, such as ``time_ns``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        ValueError
            If there is no such table; the message lists the titles.
        """
        tables = self._list_all_tables()
        for table in tables:
            if table.title.startswith(title):
                return table.to_pandas()
        class_name = type(self).__name__
        if not tables:
            raise ValueError(f"This {class_name} has no table.")
        titles = ", ".join(repr(table.title) for table in tables)
        raise ValueError(f"This {class_name} has no table {title!r}. Its tables are: {titles}.")

    def _list_all_tables(self) -> tuple[Table, ...]:
        """Return the tables that `to_pandas` can return."""
        return self.tables()


class TextDisplay(Savable):
    """The base class of objects that are displayed and saved as tables and sentences."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def _make_writers(self) -> Writers:
        def make_page_html() -> str:
            head_html = f'<!doctype html>\n<html lang="en"><meta charset="utf-8">\n{_PAGE_STYLE}'
            return f"{head_html}{self._repr_html_()}\n"

        return {".html": make_text_writer(make_page_html), ".txt": make_text_writer(lambda: f"{self!r}\n")}

    def describe(self) -> str:
        """Return all tables and sentences of this object as text."""
        return repr(self)


class CardOfTables(HasTables, TextDisplay):
    """The base class of objects that are displayed as a card with tables and sentences.

    Subclasses implement `heading`, `origin` and `tables`, and can override the other properties and methods.
    """

    __slots__ = ()

    has_numbered_sentences: ClassVar[bool] = False
    """Whether the sentences are numbered, like the rows of the table."""

    @property
    def heading(self) -> str:
        """The heading of the card, such as ``Profile of step``. The heading contains the kind of the tables
        and the subject of the results.
        """
        raise NotImplementedError

    @property
    def facts(self) -> str:
        """The part of the caption after the heading, such as the shape of the launch."""
        return ""

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the numbers in the tables, such as ``measured on NVIDIA
        H200``.
        """
        raise NotImplementedError

    @property
    def remarks(self) -> Sequence[str]:
        """The remarks in the caption, which state the limitations of the tables."""
        return ()

    @property
    def caption(self) -> str:
        """The line above the tables, with the heading, the facts, the origin of the numbers, and the
        remarks.
        """
        facts_text = f": {self.facts}" if self.facts else ""
        origin_text = f"; {self.origin}" if self.origin else ""
        return " ".join([f"{self.heading}{facts_text}{origin_text}.", *self.remarks])

    @property
    def verdict(self) -> str:
        """A sentence that summarizes the result. The sentence is empty if the tables alone show the
        result.
        """
        return ""

    def sentences(self) -> Sequence[str]:
        """Return the sentences that are shown in addition to the tables."""
        return ()

    def __repr__(self) -> str:
        lines = [
            f"{index}. {text}" if self.has_numbered_sentences else text
            for index, text in enumerate(self.sentences(), 1)
        ]
        paragraphs = [
            self.caption,
            self.verdict,
            *(table.text() for table in self.tables()),
            "\n".join(lines),
        ]
        return "\n\n".join(filter(None, paragraphs))

    def _repr_html_(self) -> str:
        return make_card(
            self.heading,
            make_paragraph(self.facts),
            make_paragraph(self.verdict, "strong"),
            self._make_body(),
            origin=self.origin,
            notes=self.remarks,
        )

    def _make_body(self) -> str:
        """Return the contents of the card below the verdict."""
        return "".join(table.html() for table in self.tables()) + make_list(
            self.sentences(), self.has_numbered_sentences
        )


class RecordTable(CardOfTables, Generic[Record]):
    """The base class of records that are displayed as tables. A subclass inherits from this class and from
    the class of the displayed record.
    """

    __slots__ = ()

    @classmethod
    def of(cls, record: Record, **added_texts: str) -> Self:
        """Create an object that displays the given record as tables with additional texts."""
        return cls(**_read_values(cls, record), **added_texts)

    @property
    def record(self) -> Record:
        """The displayed data as a record of the original class, without tables."""
        plain_record: Record = type(self).__bases__[1](**_read_values(type(self), self))
        return plain_record

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}, {}


def _read_values(table_class: type[Any], record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(table_class.__bases__[1])}
