"""Tables of records as text and HTML, each with the caption that says where its numbers come from."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, Self, TypeVar

from gpulab.views._text import number, shape
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE, AccessCounters, KernelCounters

Record = TypeVar("Record")

SOURCE_CHARACTERS = 60
_NUMBER_START = frozenset("0123456789-–")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of ready-made text under headings. Cells that start with a digit are aligned right."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

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
        aligns = ["right" if right else "left" for right in self._right()]
        head = "".join(
            f'<th scope="col" style="text-align:{align}">{html.escape(heading)}</th>'
            for heading, align in zip(self.headings, aligns, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align:{align}">{_html_cell(cell)}</td>'
                for cell, align in zip(row, aligns, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        caption = (
            f'<caption style="text-align:left;caption-side:top">{html.escape(self.title)}</caption>'
            if self.title
            else ""
        )
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

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


def _html_cell(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")


def short(text: str) -> str:
    """A source line that leaves room for what stands beside it."""
    return text if len(text) <= SOURCE_CHARACTERS else text[: SOURCE_CHARACTERS - 1] + "…"


def place(code: str, line: int, text: str) -> tuple[str, str]:
    """A source line (1-based) and what stands there, shortened; `text` where `code` has no such line."""
    lines = code.split("\n")  # as NVRTC counts them: at no other character
    known = short(lines[line - 1].strip()) if 1 <= line <= len(lines) else ""
    return str(line) if line else "–", known or text


class Shown(Generic[Record]):
    """A record that displays as tables: a subclass of this one and, second, of the record's own class."""

    __slots__ = ()

    @classmethod
    def of(cls, record: Record, *more: str) -> Self:
        """The same record, with the texts (in the order of the fields) to show beside it."""
        return cls(*_values_of(cls, record), *more)

    @property
    def record(self) -> Record:
        """The record alone."""
        alone: Record = type(self).__bases__[1](*_values_of(type(self), self))
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

    def _repr_html_(self) -> str:
        tables = "".join(table.html() for table in self.tables())
        items = "".join(f"<li>{html.escape(text)}</li>" for text in self.sentences())
        said = f"<ul>{items}</ul>" if items else ""
        return f'<div role="group"><p>{html.escape(self.caption)}</p>{tables}{said}</div>'


def _values_of(shown: type[Any], record: Any) -> list[Any]:
    return [getattr(record, field.name) for field in fields(shown.__bases__[1])]


@dataclass(frozen=True, slots=True, repr=False)
class CounterTable(Shown[KernelCounters], KernelCounters):
    """The counters of one launch, shown as tables. ``code`` is the source that lines refer to."""

    code: str = ""
    note: str = ""

    @property
    def caption(self) -> str:
        launch = f"{self.kernel_name}: grid {shape(self.grid)}, block {shape(self.block)}"
        if self.shared_bytes:
            launch += f", {number(self.shared_bytes)} bytes of shared memory a block"
        return f"{launch}; {self.provenance.label}" + (f". {self.note}" if self.note else "")

    def tables(self) -> tuple[Table, ...]:
        """Totals, then memory accesses and branches line by line where there are any."""
        by_line = (self._accesses(), self._branches())
        return self._totals(), *(table for table in by_line if table.rows)

    def _totals(self) -> Table:
        lanes = self.lane_efficiency
        rows = [
            ("warp instructions", number(self.warp_instructions), "issued, summed over all warps"),
            ("thread instructions", number(self.thread_instructions), "one for each active lane"),
            ("lane efficiency", f"{lanes:.1%}",
             f"{lanes * WARP_SIZE:.1f} of {WARP_SIZE} lanes active on average"),
        ]  # fmt: skip
        for kind, name in (("load", "loads"), ("store", "stores"), ("atomic", "atomics")):
            requests = self.total("requests", "global", kind)
            if requests:
                sectors = self.total("sectors", "global", kind)
                each = f"{sectors / requests:.2f} a request"
                meaning = f"requests, {number(sectors)} sectors of {SECTOR_BYTES} bytes, {each}"
                rows.append((f"global {name}", number(requests), meaning))
        shared = self.total("requests", "shared")
        if shared:
            waves = self.total("wavefronts", "shared")
            conflicts = self.total("bank_conflicts", "shared")
            meaning = f"requests, {number(waves)} wavefronts, {number(conflicts)} bank conflicts"
            rows.append(("shared accesses", number(shared), meaning))
        if self.branches:
            executed = sum(branch.executed for branch in self.branches)
            meaning = f"of {number(executed)} conditional branches"
            rows.append(("divergent branches", number(self.divergent_branches), meaning))
        return Table("", ("counter", "value", "meaning"), tuple(rows))

    def _accesses(self) -> Table:
        what = ("access", "bytes", "requests", "sectors", "sectors/request", "conflicts")
        headings = ("line", "source", *what)
        return Table("Memory accesses", headings, tuple(self._access_row(access) for access in self.accesses))

    def _access_row(self, access: AccessCounters) -> tuple[str, ...]:
        in_sectors = access.space not in ("shared", "const")
        ratio = access.sectors / access.requests if access.requests else 0.0
        return (
            *place(self.code, access.line, access.text),
            f"{access.space} {access.kind}",
            str(access.size_bytes),
            number(access.requests),
            number(access.sectors) if in_sectors else "–",
            f"{ratio:.2f}" if in_sectors else "–",
            number(access.bank_conflicts) if access.space == "shared" else "–",
        )

    def _branches(self) -> Table:
        rows = tuple(
            (*place(self.code, b.line, b.text), number(b.executed), number(b.divergent))
            for b in self.branches
        )
        return Table("Conditional branches", ("line", "source", "executed", "divergent"), rows)
