"""Tables of records as text and HTML, each with the caption that says where its numbers come from."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import Any, Generic, Self, TypeVar

from gpulab.views._saving import Saved, Writers, text_writer
from gpulab.words import number

Record = TypeVar("Record")

SOURCE_CHARACTERS = 60
NOTHING = "–"
_ACCESS = re.compile(r"\w\s*\[|\b(?:atomic|__ld|__st)\w*\s*\(|=\s*\*|\*\w+\s*=")
# What a narrow page may break into lines, but not into letters.
_WIDTHS = {"source": "min-width:11em;", "meaning": "min-width:11em;", "access": "min-width:6em;"}
_NUMBER_START = frozenset("0123456789-–<")


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Rows of ready-made text under headings. Cells that start with a digit are aligned right.

    ``inner`` has for each row the table that a page shows when the learner opens it, or None.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    inner: tuple[Table | None, ...] = ()

    def text(self) -> str:
        """The table in fixed-width characters."""
        widths = [max(len(cell) for cell in column) for column in zip(self.headings, *self.rows, strict=True)]
        right = self._right()
        lines = [self.title] if self.title else []
        lines.append(_line(self.headings, widths, right))
        lines.append("  ".join("-" * width for width in widths))
        lines += [_line(row, widths, right) for row in self.rows]
        return "\n".join(lines)

    def html(self) -> str:
        """The table as HTML that follows the page's own colours."""
        # A figure stays beside its unit.
        aligns = ["right;white-space:nowrap" if right else "left" for right in self._right()]
        head = "".join(
            f'<th scope="col" style="text-align:{align.partition(";")[0]}">{_breaking(heading)}</th>'
            for heading, align in zip(self.headings, aligns, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="{_WIDTHS.get(heading, "")}text-align:{align}">{_html_cell(cell)}</td>'
                for cell, align, heading in zip(row, aligns, self.headings, strict=True)
            )
            + "</tr>"
            + (self._opened(inner) if inner else "")
            for row, inner in zip_longest(self.rows, self.inner)
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

    def without_empty_columns(self) -> Table:
        """The same table less the columns in which no row has anything."""
        kept = [at for at, cells in enumerate(zip(*self.rows, strict=True)) if set(cells) != {NOTHING}]

        def less(rows: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
            return tuple(tuple(row[at] for at in kept) for row in rows)

        headings = less((self.headings,))[0]
        inner = tuple(
            table and replace(table, headings=headings, rows=less(table.rows)) for table in self.inner
        )
        return Table(self.title, headings, less(self.rows), inner)

    def _opened(self, inner: Table) -> str:
        summary = f"<summary>{html.escape(inner.title)}</summary>"
        return (
            f'<tr><td></td><td colspan="{len(self.headings) - 1}" style="text-align:left">'
            f"<details>{summary}{replace(inner, title='').html()}</details></td></tr>"
        )

    def _right(self) -> list[bool]:
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.headings)
        return [
            bool(column) and all(not cell or cell[0] in _NUMBER_START for cell in column)
            for column in columns
        ]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, at_right in zip(cells, widths, right, strict=True):
        space = " " * (width - len(cell))
        padded.append(space + cell if at_right else cell + space)
    return "  ".join(padded).rstrip()


def _breaking(heading: str) -> str:
    """A heading as HTML; names as long as nvidia-smi's may break where they have a dot or an underscore."""
    return re.sub(r"(?<=\w)([._])(?=\w)", r"\1<wbr>", html.escape(heading))


def _html_cell(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")


def short(text: str, column: int = 1) -> str:
    """A source line that leaves room for what stands beside it: what lies around a column (1-based)."""
    indent = len(text) - len(text.lstrip())
    text = text.strip()
    at = max(0, column - 1 - indent)
    if len(text) <= SOURCE_CHARACTERS:
        return text
    begin = max(0, min(at - SOURCE_CHARACTERS // 3, len(text) - SOURCE_CHARACTERS))
    end = begin + SOURCE_CHARACTERS
    before = "…" if begin else ""
    after = "…" if end < len(text) else ""
    return before + text[begin + len(before) : end - len(after)] + after


def place(code: str, line: int, text: str, column: int = 1, access: bool = False) -> tuple[str, str]:
    """A source line (1-based) and what stands there, shortened; `text` where `code` has no such line.

    NVRTC tells the column of the first statement of a line. Where a line is too long to be shown whole and
    the place is an `access` to memory, what lies around its first subscript is shown instead.
    """
    lines = code.split("\n")  # as NVRTC counts them: at no other character
    whole = lines[line - 1] if 1 <= line <= len(lines) else ""
    if access and (found := _ACCESS.search(whole, max(0, column - 1))):
        column = found.start() + 1
    return str(line) if line else NOTHING, short(whole, column) or text


def times(count: int, what: str) -> str:
    """``LDG``, ``4 × LDG``."""
    return f"{number(count)} × {what}" if count > 1 else what


class Texts(Saved):
    """What displays as tables and sentences: the same as text, as a page, and in files."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def _writers(self) -> Writers:
        def page() -> str:
            return f'<!doctype html>\n<meta charset="utf-8">\n{self._repr_html_()}\n'

        return {".html": text_writer(page), ".txt": text_writer(lambda: f"{self!r}\n")}

    def describe(self) -> str:
        """All of it as text."""
        return repr(self)


class Shown(Texts, Generic[Record]):
    """A record that displays as tables: a subclass of this one and, second, of the record's own class."""

    __slots__ = ()

    @classmethod
    def of(cls, record: Record, **more: str) -> Self:
        """The same record, with the texts to show beside it."""
        return cls(**_values_of(cls, record), **more)

    @property
    def record(self) -> Record:
        """The record alone."""
        alone: Record = type(self).__bases__[1](**_values_of(type(self), self))
        return alone

    @property
    def caption(self) -> str:
        """What ran, and where the numbers come from."""
        raise NotImplementedError

    def tables(self) -> tuple[Table, ...]:
        """Tables in the order in which they are shown."""
        raise NotImplementedError

    def sentences(self) -> Sequence[str]:
        """What the tables leave unsaid."""
        return ()

    def __repr__(self) -> str:
        said = ["\n".join(self.sentences())] if self.sentences() else []
        return "\n\n".join([self.caption, *(table.text() for table in self.tables()), *said])

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}, {}

    def _repr_html_(self) -> str:
        tables = "".join(table.html() for table in self.tables())
        items = "".join(f"<li>{html.escape(text)}</li>" for text in self.sentences())
        said = f"<ul>{items}</ul>" if items else ""
        return f'<div role="group"><p>{html.escape(self.caption)}</p>{tables}{said}</div>'


def _values_of(shown: type[Any], record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(shown.__bases__[1])}
