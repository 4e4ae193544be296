"""Counters as tables: text, HTML and the numbers in them."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from gpulab.views.tables import Cell, Table, locate_line, shorten_source
from gpulab.views.tables.count import CounterTable
from virtualgpu.records import AccessCounters, BranchCounters, KernelCounters, Provenance

CODE = "line one\n  y[i] = x[2 * i]; // a < b\n  if (i < n) s[i] = 1;"


def access(line: int, space: str = "global", kind: str = "load", **counts: int) -> AccessCounters:
    """Return counters of a load or store of 4 bytes. Omitted counts are 0."""
    names = ("requests", "sectors", "wavefronts", "ideal_wavefronts", "bytes_requested")
    text = f"{'ld' if kind == 'load' else 'st'}.{space}.f32"
    numbers: Any = {"pc": 0, "size_bytes": 4, **dict.fromkeys(names, 0), **counts}
    return AccessCounters(line=line, text=text, space=space, kind=kind, **numbers)  # type: ignore[arg-type]


@pytest.fixture
def counters() -> KernelCounters:
    return KernelCounters(
        provenance=Provenance("modelled", "virtual T4"),
        kernel_name="gather",
        grid=(10, 2, 1),
        block=(64, 1, 1),
        shared_bytes=2048,
        warp_instructions=1_000,
        thread_instructions=24_000,
        accesses=(
            access(2, requests=40, sectors=320, bytes_requested=5_120),
            access(
                3, "shared", "store", requests=40, wavefronts=80, ideal_wavefronts=40, bytes_requested=5_120
            ),
        ),
        branches=(BranchCounters(4, 3, "@%p1 bra", 1_234, 20),),
    )


class Cells(HTMLParser):
    """Collect the text of every table cell and check that tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th", "span") and {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += data


def rows(table: CounterTable) -> dict[str, str]:
    """Return the lines of a table's text by their first cell."""
    return {line.split("  ")[0]: line for line in repr(table).splitlines()}


def test_the_page_has_the_same_cells_and_escapes_the_source(counters: KernelCounters) -> None:
    table = CounterTable.of(counters, code=CODE)
    markup = table._repr_html_()
    cells = Cells()
    cells.feed(markup)
    assert not cells.open
    expected = [list(row) for part in table.tables() for row in (part.headings, *part.cells)]
    assert cells.rows == expected
    assert "a &lt; b" in markup
    assert "executed on virtual T4" in markup


LONG = (
    "  for (int dy = -r; dy <= r; ++dy) for (int dx = -r; dx <= r; ++dx) if (inside(x + dx, y + dy)) "
    "sum += in[(y + dy) * w + x + dx] * weight;"
)


def unrolled() -> KernelCounters:
    """Return counters of an unrolled loop: two copies ran and one did not; another line never ran."""
    return KernelCounters(
        provenance=Provenance("modelled", "virtual T4"),
        kernel_name="blur",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        shared_bytes=0,
        warp_instructions=100,
        thread_instructions=3_200,
        accesses=(
            access(1, pc=1, requests=10, sectors=130, bytes_requested=1_280, column=3),
            access(1, pc=2, column=3),
            access(1, pc=3, requests=30, sectors=30, bytes_requested=3_840, column=3),
            access(2, pc=4, column=3),
            access(1, "shared", "store", pc=5, requests=10, wavefronts=40, ideal_wavefronts=10, column=3),
        ),
        branches=(
            BranchCounters(6, 1, "@%p1 bra", 50, 2, 3),
            BranchCounters(7, 1, "@%p2 bra", 0, 0, 3),
            BranchCounters(8, 1, "@%p3 bra", 20, 5, 3),
        ),
    )


def test_unrolled_copies_of_a_line_share_a_row_with_an_inner_table() -> None:
    table = CounterTable.of(unrolled(), code=LONG + "\n  y[i] = x[i];")
    _, accesses, branches = table.tables()
    first, never, shared = (dict(zip(accesses.headings, row, strict=True)) for row in accesses.cells)
    assert (first["line"], first["access"], first["requests"]) == ("1", "2 × global load, 4 B", "40")
    assert (first["sectors"], first["at best"], first["per request"]) == ("160", "70", "4.00")
    assert (never["line"], never["requests"]) == ("2", "0"), "a line that never ran has a row"
    assert (shared["sectors"], shared["at best"], shared["conflicts"]) == ("–", "–", "30")
    inner, *others = accesses.inner_tables
    assert others == [None, None]
    assert inner is not None
    assert [row[3] for row in inner.rows] == [10, 30]
    assert [row[2:] for row in branches.rows] == [(70, 7)]
    plain = replace(unrolled(), accesses=unrolled().accesses[:4])
    assert "conflicts" not in CounterTable.of(plain, code=LONG).tables()[1].headings
    page = Cells()
    page.feed(table._repr_html_())
    assert not page.open
    assert table._repr_html_().count("<details>") == 2
    assert inner.title not in repr(table)


@pytest.mark.parametrize(
    ("sectors", "bytes_requested", "ideal"),
    [
        (320, 5_120, 160),  # every other word: half of each sector is wasted
        (160, 5_120, 160),
        (40, 5_120, 40),  # adjacent; all lanes load one word
        (40, 160, 40),
        (1_280, 5_120, 160),  # a sector for each lane
    ],
)
def test_ideal_sectors_of_an_access(sectors: int, bytes_requested: int, ideal: int) -> None:
    assert access(1, requests=40, sectors=sectors, bytes_requested=bytes_requested).ideal_sectors == ideal


DIGITS = "0123456789" * 8


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (0, f"{DIGITS[:59]}…"),
        (23, f"{DIGITS[:59]}…"),
        (24, f"…{DIGITS[2:60]}…"),
        (42, f"…{DIGITS[20:78]}…"),
        (43, f"…{DIGITS[21:]}"),
        (80, f"…{DIGITS[21:]}"),
    ],
)
def test_a_long_line_is_shown_around_a_column(column: int, expected: str) -> None:
    assert shorten_source(f"  {DIGITS}", column) == expected
    assert shorten_source(f"  {DIGITS[:60]} ", column) == DIGITS[:60]


def test_a_location_shows_its_source_line_or_its_instruction() -> None:
    first = "y[i] = 1; "
    second = "x[j] = 2; "
    code = f"one\n{first}{' ' * 80}{second}\x0b\n  last"

    def text(*where: Any, **options: Any) -> str:
        return locate_line(code, *where, **options)[1].text

    assert locate_line(code, 3, "ld", 1) == (3, Cell("last", "last")), (
        "lines are separated by line breaks alone"
    )
    assert locate_line(code, 4, "ld") == (4, Cell("ld", "ld"))
    assert locate_line(code, 0, "ld") == (None, Cell("ld", "ld"))
    assert text(2, "st", is_access=True).startswith(first)
    assert locate_line(code, 2, "st")[1].value == f"{first}{' ' * 80}{second.strip()}", "the value is whole"
    assert second.strip() in text(2, "st", 2 + len(first), is_access=True)
    assert second.strip() not in text(2, "st", 1)
    assert text(2, "st", 500, is_access=True).endswith(second.strip())


def test_empty_columns_are_left_out_in_inner_tables_too() -> None:
    headings = ("name", "1", "none", "source")
    table = Table(
        "<a>",
        headings,
        (("x", "1", "–", "a\nb"), ("y", "", "–", "")),
        (Table("inner", headings, (("z", "2", "3", "c"),)), None),
    )
    assert table.headings == headings
    table = replace(table, hide_empty=True)
    assert table.headings == ("name", "1", "source")
    assert table.cells == (("x", "1", "a\nb"), ("y", "", ""))
    page = table.html()
    assert page.count("white-space:nowrap") == 3, "a number is not separated from its unit"
    assert 'text-align:left">a<br>b</td>' in page
    assert "&lt;a&gt;</caption>" in page
    assert page.count("<details>") == 1
    assert ">c</td>" in page
    assert ">3</td>" not in page
    assert 'colspan="2"' in page
    assert table.text().splitlines()[1].startswith("name  ")
