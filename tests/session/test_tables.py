"""Counters as tables: the text, the HTML and the numbers in them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from gpulab.views.tables import CounterTable, Table
from virtualgpu.records import AccessCounters, BranchCounters, KernelCounters, Provenance

CODE = "line one\n  y[i] = x[2 * i]; // a < b\n  if (i < n) s[i] = 1;"


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
            AccessCounters(3, 2, "ld.global.f32", "global", "load", 4, 40, 320, 0, 0, 5_120),
            AccessCounters(5, 3, "st.shared.f32", "shared", "store", 4, 40, 0, 80, 40, 5_120),
        ),
        branches=(BranchCounters(4, 3, "@%p1 bra", 1_234, 20),),
    )


class Cells(HTMLParser):
    """The text of every cell, with tags balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("br",):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_a_counter_table_is_the_counters(counters: KernelCounters) -> None:
    table = CounterTable.of(counters, CODE)
    assert isinstance(table, KernelCounters)
    assert table.total("sectors", "global") == 320
    assert table.divergent_branches == 20
    assert table.lane_efficiency == 0.75


def test_text_names_source_device_and_lines(counters: KernelCounters) -> None:
    text = repr(CounterTable.of(counters, CODE, "counted in a replay"))
    first = text.splitlines()[0]
    assert first == (
        "gather: grid 10 × 2, block 64, 2,048 bytes of shared memory a block; "
        "modelled on virtual T4. counted in a replay"
    )
    row = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "40" in row["global loads"]
    assert "320 sectors of 32 bytes, 8.00 a request" in row["global loads"]
    assert "40 bank conflicts" in row["shared accesses"]
    assert "75.0%" in row["lane efficiency"]
    assert "of 1,234" in row["divergent branches"]
    assert "y[i] = x[2 * i]; // a < b" in text


def test_html_has_the_same_cells_and_escapes_the_source(counters: KernelCounters) -> None:
    table = CounterTable.of(counters, CODE)
    markup = table._repr_html_()
    cells = Cells()
    cells.feed(markup)
    assert not cells.open
    expected = [list(row) for part in table.tables() for row in (part.headings, *part.rows)]
    assert cells.rows == expected
    assert "a &lt; b" in markup
    assert "modelled on virtual T4" in markup


def test_unknown_lines_fall_back_to_the_instruction(counters: KernelCounters) -> None:
    assert "ld.global.f32" in repr(CounterTable.of(counters))


def test_columns_line_up() -> None:
    text = Table("", ("name", "count"), (("a", "1,000"), ("longer", "7"))).text()
    assert text.splitlines() == ["name    count", "------  -----", "a       1,000", "longer      7"]


def test_an_empty_table_still_shows_its_headings() -> None:
    assert Table("", ("name", "count"), ()).text().splitlines()[0] == "name  count"
    assert "<th" in Table("", ("name",), ()).html()
