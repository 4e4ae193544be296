"""Cards of HTML: the frame of tables, their bars, and marked source lines."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gpulab.views.parts import card
from gpulab.views.tables import Cell, Table
from tests.views.every_table import CODE, TABLES, cause, diagnosis, with_baseline

# Elements without an end tag.
VOID = {"br", "wbr"}


class Page(HTMLParser):
    """Text, ids and attributes of a page with balanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.marked: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "mark":
            self.marked.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words += data
        if "mark" in self.open:
            self.marked[-1] += data

    def of(self, name: str) -> list[dict[str, str | None]]:
        """Return the attributes of the elements of a class."""
        return [attrs for _, attrs in self.tags if name in (attrs.get("class") or "").split()]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_a_card_with_title_origin_and_full_view(name: str) -> None:
    table = TABLES[name]()
    page = Page(table._repr_html_())
    (frame,) = page.of("gpulab-card")
    (button,) = page.of("gl-filling")
    (chip,) = page.of("gl-chip")
    assert frame["aria-label"] == table.heading
    assert button["popovertarget"] == frame["id"], "the button opens this card"
    assert chip["data-source"] == table.origin.partition(" ")[0]
    assert table.origin in page.words
    assert "modelled on" not in repr(table) or "times modelled" not in repr(table)


@pytest.mark.parametrize("name", TABLES)
def test_every_colour_of_a_card_is_defined_in_it(name: str) -> None:
    text = TABLES[name]()._repr_html_()
    names = set(re.findall(r"var\(--gl-([\w-]+)", text))
    assert names
    assert names == set(re.findall(r"--gl-([\w-]+):", text))


def test_bar_widths_are_proportional_to_shares() -> None:
    table = Table("", ("share",), ((Cell(0.25, "25 %", ((0.25, "tail"), (2.0, "good"))),), (Cell(1, "all"),)))
    page = Page(table.html())
    assert [bar["style"] for bar in page.of("gl-fill")] == [
        "width:25%;background:var(--gl-tail)",
        "width:100%;background:var(--gl-good)",
    ]
    assert table.cells == (("25 %",), ("all",))
    times = Page(with_baseline(ns=12_000.0)._repr_html_())  # it takes 6,000 ns itself
    assert [bar["style"] for bar in times.of("gl-fill")] == [
        "width:100%;background:var(--gl-other)",
        "width:50%;background:var(--gl-good)",
    ]


def test_the_source_line_of_a_cause_is_highlighted() -> None:
    page = Page(diagnosis(cause("uncoalesced"), cause("grid"))._repr_html_())
    (line,) = page.marked
    assert line.split(maxsplit=1) == ["2", "x[i] = 1; // a < b "[:-1]]
    assert "if (i) return;" in page.words, "a neighbour"
    before = replace(with_baseline(cause("uncoalesced"), kinds_=("grid",)), baseline_code=CODE)
    (line,) = Page(before._repr_html_()).marked
    assert "uncoalesced" in line


@pytest.mark.parametrize("marks", [{}, {0: ""}, {99: ""}])
def test_a_listing_without_a_known_line_is_empty(marks: dict[int, str]) -> None:
    assert card.make_source_lines(CODE, marks) == ""
