"""Tables of records as text and HTML, each with a caption that names the origin of its numbers."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from itertools import zip_longest
from typing import Any, Generic, Self, TypeVar

from gpulab.views._saving import Saved, Writers, text_writer
from gpulab.words import number

Record = TypeVar("Record")

SOURCE_CHARACTERS = 60
NOTHING = "–"
_ACCESS = re.compile(r"\w\s*\[|\b(?:atomic|__ld|__st)\w*\s*\(|=\s*\*|\*\w+\s*=")
# Text that a narrow page may break into lines, but not within words.
_WIDTHS = {"source": "min-width:11em;", "meaning": "min-width:11em;", "access": "min-width:6em;"}
_NUMBER_START = frozenset("0123456789-–<")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    heading
        The text above the column.
    name
        The name of the column in a data frame, with the unit: ``time_ns``. The heading if it is empty.
    show
        Returns the text of a value. None is shown as a dash.
    """

    heading: str
    name: str = ""
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with a text of its own, where the column's format does not fit."""

    value: Any
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Rows of raw values under columns. Values become text when the table is shown.

    Parameters
    ----------
    title
        The caption of the table.
    columns
        A `Column` each, or a heading for values that `str` can show.
    rows
        The raw values. Columns in which every text begins with a digit are aligned right.
    inner
        For each row, the table that a page shows when the learner opens the row, or None.
    hide_empty
        Whether columns without any value are left out when the table is shown.
    most
        The number of rows to show; a data frame has all rows.
    rest
        A row that is shown in place of the rows beyond `most`.
    """

    title: str
    columns: tuple[Column | str, ...]
    rows: tuple[tuple[Any, ...], ...]
    inner: tuple[Table | None, ...] = ()
    hide_empty: bool = False
    most: int | None = None
    rest: tuple[Any, ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the columns that are shown."""
        return tuple(self._columns()[index].heading for index in self._shown_columns())

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The texts of the rows and columns that are shown."""
        kept = self._shown_columns()
        return tuple(tuple(row[index] for index in kept) for row in self._texts())

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
        names = [column.name or column.heading for column in self._columns()]
        rows = [[cell.value if isinstance(cell, Cell) else cell for cell in row] for row in self.rows]
        return pandas.DataFrame(rows, columns=names)

    def text(self) -> str:
        """The table in fixed-width characters."""
        headings = self.headings
        cells = self.cells
        widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
        right = self._right()
        lines = [self.title] if self.title else []
        lines.append(_line(headings, widths, right))
        lines.append("  ".join("-" * width for width in widths))
        lines += [_line(row, widths, right) for row in cells]
        return "\n".join(lines)

    def html(self) -> str:
        """The table as HTML that follows the page's own colours."""
        # A number stays next to its unit.
        aligns = ["right;white-space:nowrap" if right else "left" for right in self._right()]
        headings = self.headings
        head = "".join(
            f'<th scope="col" style="text-align:{align.partition(";")[0]}">{_breaking(heading)}</th>'
            for heading, align in zip(headings, aligns, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="{_WIDTHS.get(heading, "")}text-align:{align}">{_html_cell(cell)}</td>'
                for cell, align, heading in zip(row, aligns, headings, strict=True)
            )
            + "</tr>"
            + (self._opened(inner) if inner else "")
            for row, inner in zip_longest(self.cells, self.inner)
        )
        caption = (
            f'<caption style="text-align:left;caption-side:top">{html.escape(self.title)}</caption>'
            if self.title
            else ""
        )
        inside = f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        return f'<table style="font-size:12px">{inside}</table>'

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()

    def _columns(self) -> list[Column]:
        return [Column(column) if isinstance(column, str) else column for column in self.columns]

    def _texts(self) -> list[tuple[str, ...]]:
        """The texts of the rows that are shown, with all columns."""
        rows = list(self.rows[: self.most])
        if self.rest and len(rows) < len(self.rows):
            rows.append(self.rest)
        shows = [column.show for column in self._columns()]
        return [tuple(_text(value, show) for value, show in zip(row, shows, strict=True)) for row in rows]

    def _shown_columns(self) -> list[int]:
        """The indices of the columns that are shown."""
        if not self.hide_empty:
            return list(range(len(self.columns)))
        return [
            index for index, texts in enumerate(zip(*self._texts(), strict=True)) if set(texts) != {NOTHING}
        ]

    def _opened(self, inner: Table) -> str:
        kept = self._shown_columns()
        same = replace(
            inner,
            title="",
            columns=tuple(inner.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in inner.rows),
        )
        summary = f"<summary>{html.escape(inner.title)}</summary>"
        return (
            f'<tr><td></td><td colspan="{len(kept) - 1}" style="text-align:left">'
            f"<details>{summary}{same.html()}</details></td></tr>"
        )

    def _right(self) -> list[bool]:
        columns = list(zip(*self.cells, strict=True)) or [()] * len(self.headings)
        return [
            bool(column) and all(not cell or cell[0] in _NUMBER_START for cell in column)
            for column in columns
        ]


def _text(value: Any, show: Callable[[Any], str]) -> str:
    if isinstance(value, Cell):
        return value.text
    return NOTHING if value is None else show(value)


def _import_pandas() -> Any:
    try:
        return import_module("pandas")
    except ImportError as error:
        message = "to_pandas() needs pandas, which is not installed. Install it with: pip install pandas"
        raise ImportError(message, name="pandas") from error


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, at_right in zip(cells, widths, right, strict=True):
        space = " " * (width - len(cell))
        padded.append(space + cell if at_right else cell + space)
    return "  ".join(padded).rstrip()


def _breaking(heading: str) -> str:
    """Return a heading as HTML; long names of nvidia-smi may break at a dot or an underscore."""
    return re.sub(r"(?<=\w)([._])(?=\w)", r"\1<wbr>", html.escape(heading))


def _html_cell(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")


def short(text: str, column: int = 1) -> str:
    """Return a source line of at most `SOURCE_CHARACTERS`: the part around a column (1-based)."""
    indent = len(text) - len(text.lstrip())
    text = text.strip()
    index = max(0, column - 1 - indent)
    if len(text) <= SOURCE_CHARACTERS:
        return text
    begin = max(0, min(index - SOURCE_CHARACTERS // 3, len(text) - SOURCE_CHARACTERS))
    end = begin + SOURCE_CHARACTERS
    before = "…" if begin else ""
    after = "…" if end < len(text) else ""
    return before + text[begin + len(before) : end - len(after)] + after


SOURCE = Column("source", show=short)
"""A column of source lines: shortened when shown, whole in a data frame."""


def place(code: str, line: int, text: str, column: int = 1, access: bool = False) -> tuple[int | None, Cell]:
    """Return the number of a source line (1-based) and its text, or `text` if `code` has no such line.

    NVRTC reports the column of the first statement of a line. Where a line is too long to be shown whole and
    the place is an `access` to memory, the part around its first subscript is shown instead.
    """
    lines = code.split("\n")  # as NVRTC counts them: at no other character
    whole = lines[line - 1] if 1 <= line <= len(lines) else ""
    if access and (subscript := _ACCESS.search(whole, max(0, column - 1))):
        column = subscript.start() + 1
    return line or None, Cell(whole.strip() or text, short(whole, column) or text)


def times(count: int, name: str) -> str:
    """Return a name with its count: ``LDG``, ``4 × LDG``."""
    return f"{number(count)} × {name}" if count > 1 else name


class Tabular:
    """A base class of objects that have tables."""

    __slots__ = ()

    def tables(self) -> tuple[Table, ...]:
        """The tables, in the order in which they are shown."""
        raise NotImplementedError

    def to_pandas(self, title: str = "") -> Any:
        """Return a table as a `pandas.DataFrame` of raw values.

        Parameters
        ----------
        title
            How the title of the table begins, such as ``"Copies"``. The first table if it is empty.

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
        tables = self._all_tables()
        for table in tables:
            if table.title.startswith(title):
                return table.to_pandas()
        kind = type(self).__name__
        if not tables:
            raise ValueError(f"This {kind} has no table.")
        titles = ", ".join(repr(table.title) for table in tables)
        raise ValueError(f"This {kind} has no table {title!r}. Its tables are: {titles}.")

    def _all_tables(self) -> tuple[Table, ...]:
        """The tables that `to_pandas` can return."""
        return self.tables()


class Texts(Saved):
    """A base class of objects that display as tables and sentences: as text, as a page, and in files."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def _writers(self) -> Writers:
        def page() -> str:
            return f'<!doctype html>\n<meta charset="utf-8">\n{self._repr_html_()}\n'

        return {".html": text_writer(page), ".txt": text_writer(lambda: f"{self!r}\n")}

    def describe(self) -> str:
        """Return the complete text."""
        return repr(self)


class Shown(Tabular, Texts, Generic[Record]):
    """A record that displays as tables: a subclass of this one and, second, of the record's own class."""

    __slots__ = ()

    @classmethod
    def of(cls, record: Record, **more: str) -> Self:
        """Return a displayable copy of the record, with texts to show next to it."""
        return cls(**_values_of(cls, record), **more)

    @property
    def record(self) -> Record:
        """Return the record alone."""
        alone: Record = type(self).__bases__[1](**_values_of(type(self), self))
        return alone

    @property
    def caption(self) -> str:
        """A line above the tables: the subject, and the origin of the numbers."""
        raise NotImplementedError

    def sentences(self) -> Sequence[str]:
        """Sentences that complete the tables."""
        return ()

    def __repr__(self) -> str:
        sentences = ["\n".join(self.sentences())] if self.sentences() else []
        return "\n\n".join([self.caption, *(table.text() for table in self.tables()), *sentences])

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}, {}

    def _repr_html_(self) -> str:
        tables = "".join(table.html() for table in self.tables())
        items = "".join(f"<li>{html.escape(text)}</li>" for text in self.sentences())
        sentences = f"<ul>{items}</ul>" if items else ""
        return f'<div role="group"><p>{html.escape(self.caption)}</p>{tables}{sentences}</div>'


def _values_of(shown: type[Any], record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(shown.__bases__[1])}
