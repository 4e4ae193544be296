"""Counters as tables: the text, the HTML and the numbers in them."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gpulab.views.tables import Cell, Table, place, short, times
from gpulab.views.tables.count import CounterTable
from virtualgpu.records import AccessCounters, BranchCounters, CacheCounters, KernelCounters, Provenance

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
            AccessCounters(
                pc=3,
                line=2,
                text="ld.global.f32",
                space="global",
                kind="load",
                size_bytes=4,
                requests=40,
                sectors=320,
                wavefronts=0,
                ideal_wavefronts=0,
                bytes_requested=5_120,
            ),
            AccessCounters(
                pc=5,
                line=3,
                text="st.shared.f32",
                space="shared",
                kind="store",
                size_bytes=4,
                requests=40,
                sectors=0,
                wavefronts=80,
                ideal_wavefronts=40,
                bytes_requested=5_120,
            ),
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
    table = CounterTable.of(counters, code=CODE)
    assert isinstance(table, KernelCounters)
    assert table.total("sectors", "global") == 320
    assert table.divergent_branches == 20
    assert table.lane_efficiency == 0.75


def test_text_names_source_device_and_lines(counters: KernelCounters) -> None:
    text = repr(CounterTable.of(counters, code=CODE, note="counted in a replay"))
    first = text.splitlines()[0]
    assert first == (
        "gather: grid 10 × 2, block 64, 2,048 bytes of shared memory a block; "
        "modelled on virtual T4. counted in a replay"
    )
    row = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "40" in row["global loads"]
    assert "320 sectors of 32 bytes, 8.00 a request, at best 4.00" in row["global loads"]
    assert "40 bank conflicts" in row["shared accesses"]
    assert "75.0 %" in row["lane efficiency"]
    assert "of 1,234" in row["divergent branches"]
    assert "y[i] = x[2 * i]; // a < b" in text


def test_floating_point_operations_are_told_by_type(counters: KernelCounters) -> None:
    counted = replace(counters, flops={"f16": 8_192, "f32": 1_234}, tensor_flops={"f16": 4_096})
    row = {line.split("  ")[0]: line for line in repr(CounterTable.of(counted)).splitlines()}
    assert "8,192" in row["f16 operations"]
    assert row["f16 operations"].endswith("; 4,096 by tensor cores")
    assert "1,234" in row["f32 operations"]
    assert "tensor" not in row["f32 operations"]


def test_html_has_the_same_cells_and_escapes_the_source(counters: KernelCounters) -> None:
    table = CounterTable.of(counters, code=CODE)
    markup = table._repr_html_()
    cells = Cells()
    cells.feed(markup)
    assert not cells.open
    expected = [list(row) for part in table.tables() for row in (part.headings, *part.cells)]
    assert cells.rows == expected
    assert "a &lt; b" in markup
    assert "modelled on virtual T4" in markup


def test_long_names_in_headings_may_break_at_dots_and_underscores() -> None:
    said = Table("", ("clocks_event_reasons.active", "device time."), (("1", "2"),)).html()
    assert "clocks_<wbr>event_<wbr>reasons.<wbr>active" in said
    assert "device time.</th>" in said


def test_what_the_caches_make_of_it_is_said_to_be_modelled(counters: KernelCounters) -> None:
    load, store = counters.accesses
    caches = CacheCounters(
        start="cold",
        l1_sectors=320,
        l1_hit_sectors=80,
        l2_sectors=240,
        l2_hit_sectors=60,
        dram_read_bytes=5_760,
        dram_write_bytes=640,
        constant_requests=10,
        constant_passes=70,
        one_in=4,
    )
    known = replace(counters, caches=caches, accesses=(replace(load, l1_hit_sectors=80), store))
    text = repr(CounterTable.of(known, code=CODE))
    row = {line.split("  ")[0]: line for line in text.splitlines()}
    assert (
        "25.0 %  80 of 320 sectors of loads; modelled from empty caches, from one line in 4"
        in row["L1 hit rate"]
    )
    assert "25.0 %  60 of 240 sectors" in row["L2 hit rate"]
    assert "6,400  bytes, 5,760 read, 640 written; modelled" in row["memory (DRAM)"]
    assert "10  requests, 70 passes" in row["constant accesses"]
    accesses = CounterTable.of(known, code=CODE).tables()[1]
    at = accesses.headings.index("L1 hits")
    assert [line[at] for line in accesses.cells] == ["25 %", "–"]
    assert [line[7] for line in accesses.rows] == [0.25, None]
    plain = CounterTable.of(counters, code=CODE)
    assert "modelled from" not in repr(plain)
    assert "L1 hits" not in plain.tables()[1].headings


LONG = (
    "  for (int dy = -r; dy <= r; ++dy) for (int dx = -r; dx <= r; ++dx) if (inside(x + dx, y + dy)) "
    "sum += in[(y + dy) * w + x + dx] * weight;"
)


def unrolled() -> KernelCounters:
    """A loop body that the compiler copied: two copies ran, one never did; and a line that never ran."""
    load: dict[str, Any] = {"text": "ld.global.f32", "space": "global", "kind": "load", "size_bytes": 4}
    none = dict.fromkeys(("requests", "sectors", "wavefronts", "ideal_wavefronts", "bytes_requested"), 0)
    return KernelCounters(
        provenance=Provenance("modelled", "virtual T4"),
        kernel_name="blur",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        shared_bytes=0,
        warp_instructions=100,
        thread_instructions=3_200,
        accesses=(
            AccessCounters(
                pc=1,
                line=1,
                **load,
                requests=10,
                sectors=130,
                wavefronts=0,
                ideal_wavefronts=0,
                bytes_requested=1_280,
                column=3,
            ),
            AccessCounters(pc=2, line=1, **load, **none, column=3),
            AccessCounters(
                pc=3,
                line=1,
                **load,
                requests=30,
                sectors=30,
                wavefronts=0,
                ideal_wavefronts=0,
                bytes_requested=3_840,
                column=3,
            ),
            AccessCounters(pc=4, line=2, **load, **none, column=3),
            AccessCounters(
                pc=5,
                line=1,
                text="st.shared.f32",
                space="shared",
                kind="store",
                size_bytes=4,
                requests=10,
                sectors=0,
                wavefronts=40,
                ideal_wavefronts=10,
                bytes_requested=1_280,
                column=3,
            ),
        ),
        branches=(
            BranchCounters(6, 1, "@%p1 bra", 50, 2, 3),
            BranchCounters(7, 1, "@%p2 bra", 0, 0, 3),
            BranchCounters(8, 1, "@%p3 bra", 20, 5, 3),
        ),
    )


def test_copies_of_a_line_are_one_row_and_open_to_those_that_ran() -> None:
    table = CounterTable.of(unrolled(), code=LONG + "\n  y[i] = x[i];")
    _, accesses, branches = table.tables()
    named = [dict(zip(accesses.headings, row, strict=True)) for row in accesses.cells]
    first, never, shared = named
    assert (first["line"], first["access"], first["requests"]) == ("1", "2 × global load, 4 B", "40")
    assert (first["sectors"], first["at best"], first["per request"]) == ("160", "70", "4.00")
    assert (never["line"], never["requests"]) == ("2", "0"), "that a line never ran is worth a row"
    assert (shared["sectors"], shared["at best"], shared["conflicts"]) == ("–", "–", "30")
    inner, *others = accesses.inner
    assert others == [None, None]
    assert inner is not None
    assert [row[3] for row in inner.rows] == [10, 30]
    assert inner.title == "the 2 accesses of line 1 one by one"
    assert [row[2:] for row in branches.rows] == [(70, 7)]
    assert "conflicts" in accesses.headings
    plain = replace(unrolled(), accesses=unrolled().accesses[:4])
    assert "conflicts" not in CounterTable.of(plain, code=LONG).tables()[1].headings
    page = Cells()
    page.feed(table._repr_html_())
    assert not page.open
    assert table._repr_html_().count("<details>") == 2
    assert "one by one" not in repr(table)


def test_a_long_line_shows_what_accesses_memory() -> None:
    table = CounterTable.of(unrolled(), code=LONG)
    source = table.tables()[1].cells[0][1]
    assert "sum += in[(y + dy) * w + x + dx] * weight;" in source
    assert source.startswith("…")
    assert len(source) == 60
    branch = table.tables()[2].cells[0][1]
    assert branch.startswith("for (int dy = -r;")
    assert branch.endswith("…")
    middle = short("a" * 100 + " x[i] = 1; " + "b" * 100, 102)
    assert middle.startswith("…")
    assert middle.endswith("…")
    assert " x[i] = 1; " in middle


@pytest.mark.parametrize(
    ("sectors", "bytes_requested", "requests", "best"),
    [
        (320, 5_120, 40, 160),  # every other word: half of each sector is wasted
        (160, 5_120, 40, 160),
        (40, 5_120, 40, 40),  # side by side; all lanes one word
        (40, 160, 40, 40),
        (1_280, 5_120, 40, 160),  # one lane a request; a sector for each lane
    ],
)
def test_sectors_at_best(sectors: int, bytes_requested: int, requests: int, best: int) -> None:
    access = AccessCounters(
        pc=0,
        line=0,
        text="ld",
        space="global",
        kind="load",
        size_bytes=4,
        requests=requests,
        sectors=sectors,
        wavefronts=0,
        ideal_wavefronts=0,
        bytes_requested=bytes_requested,
    )
    assert access.ideal_sectors == best


def test_unknown_lines_fall_back_to_the_instruction(counters: KernelCounters) -> None:
    assert "ld.global.f32" in repr(CounterTable.of(counters))


def test_columns_line_up() -> None:
    text = Table("", ("name", "count"), (("a", "1,000"), ("longer", "7"))).text()
    assert text.splitlines() == ["name    count", "------  -----", "a       1,000", "longer      7"]


def test_an_empty_table_still_shows_its_headings() -> None:
    assert Table("", ("name", "count"), ()).text().splitlines()[0] == "name  count"
    assert "<th" in Table("", ("name",), ()).html()


DIGITS = "0123456789" * 8


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (0, f"{DIGITS[:59]}…"),
        (23, f"{DIGITS[:59]}…"),
        (24, f"…{DIGITS[2:60]}…"),
        (42, f"…{DIGITS[20:78]}…"),
        (43, f"…{DIGITS[21:]}"),
        (80, f"…{DIGITS[21:]}"),
    ],
)
def test_of_a_long_line_what_lies_around_a_column_is_shown(column: int, shown: str) -> None:
    assert short(f"  {DIGITS}", column) == shown
    assert short(f"  {DIGITS[:60]} ", column) == DIGITS[:60]


def test_of_a_place_the_line_is_given_or_the_instruction() -> None:
    first = "y[i] = 1; "
    second = "x[j] = 2; "
    code = f"one\n{first}{' ' * 80}{second}\x0b\n  last"

    def shown(*where: Any, **more: Any) -> str:
        return place(code, *where, **more)[1].text

    assert place(code, 3, "ld", 1) == (3, Cell("last", "last")), "lines are separated by line breaks alone"
    assert place(code, 4, "ld") == (4, Cell("ld", "ld"))
    assert place(code, 0, "ld") == (None, Cell("ld", "ld"))
    assert place(code, -1, "ld") == (-1, Cell("ld", "ld"))
    assert shown(2, "st", access=True).startswith(first)
    assert place(code, 2, "st")[1].value == f"{first}{' ' * 80}{second.strip()}", "the value is whole"
    for column in (0, 1):
        assert shown(2, "st", column, access=True).startswith(first)
    assert second.strip() in shown(2, "st", 2 + len(first), access=True)
    assert second.strip() not in shown(2, "st", 1)
    assert shown(2, "st", 500, access=True).endswith(second.strip())


def test_how_often() -> None:
    assert [times(n, "LDG") for n in (0, 1, 2, 1_000)] == ["LDG", "LDG", "2 × LDG", "1,000 × LDG"]


def test_columns_of_figures_stand_at_the_right_and_those_without_any_are_left_out() -> None:
    table = Table(
        "<a>",
        ("name", "1", "none", "source"),
        (("x", "1", "–", "a\nb"), ("y", "", "–", "")),
        (Table("inner", ("name", "1", "none", "source"), (("z", "2", "3", "c"),)), None),
    )
    assert table.headings == ("name", "1", "none", "source")
    table = replace(table, hide_empty=True)
    assert table.headings == ("name", "1", "source")
    assert table.cells == (("x", "1", "a\nb"), ("y", "", ""))
    less = table
    page = less.html()
    assert page.count("white-space:nowrap") == 3, "a figure stays beside its unit, in both rows and within"
    assert 'min-width:11em;text-align:left">a<br>b</td>' in page
    assert '<caption style="text-align:left;caption-side:top">&lt;a&gt;</caption>' in page
    assert page.count("<details>") == 1
    assert ">c</td>" in page
    assert ">3</td>" not in page, "the inner table has the columns of the outer one"
    assert 'colspan="2"' in page
    assert str(table) == table.text()
    assert table._repr_html_() == table.html()


def test_a_table_of_a_record_is_the_record_and_shows_as_text_and_page(counters: KernelCounters) -> None:
    shown = CounterTable.of(counters, code=CODE, note="once")
    assert shown.record == counters
    assert type(shown.record) is KernelCounters
    assert (shown.code, shown.note) == (CODE, "once")
    assert shown.describe() == repr(shown)
    bundle, more = shown._repr_mimebundle_(include=None)
    assert bundle == {"text/plain": repr(shown), "text/html": shown._repr_html_()}
    assert more == {}


def test_a_table_is_saved_as_text_and_as_a_page(counters: KernelCounters, tmp_path: Path) -> None:
    shown = CounterTable.of(counters, code=CODE)
    assert shown.save(tmp_path / "counts.txt").read_text(encoding="utf-8") == f"{shown!r}\n"
    page = shown.save(tmp_path / "counts.html").read_text(encoding="utf-8")
    assert page == f'<!doctype html>\n<meta charset="utf-8">\n{shown._repr_html_()}\n'
