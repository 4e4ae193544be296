"""The static picture's layout: what a pen is told, beside places computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image, ImageChops

from gpulab.views.parts import boxes, palette, picture
from gpulab.views.parts.boxes import Box, column, fold, legend, matrix, numbers, row, switch, table, words
from gpulab.views.parts.pen import SHARPNESS, Pen, shorten, text_width, wrap


class Noted(Pen):
    """A pen that notes its rectangles and texts."""

    def __init__(self) -> None:
        super().__init__(10, 10)
        self.rects: list[tuple[Any, ...]] = []
        self.texts: dict[str, tuple[float, float]] = {}
        self.looks: dict[str, dict[str, Any]] = {}

    def rect(self, x0: float, y0: float, x1: float, y1: float, colour: str) -> None:
        self.rects.append((x0, y0, x1, y1, colour))

    def text(self, x: float, y: float, text: str, **look: Any) -> None:
        self.texts[text], self.looks[text] = (x, y), look


def painted(box: Box, width: float, left: float = 0, top: float = 0) -> tuple[float, Noted]:
    high, paint = picture.lay(box, width)
    pen = Noted()
    paint(pen, left, top)
    return high, pen


def test_bars_are_as_long_as_their_shares_and_no_longer_than_their_track() -> None:
    rows = [
        {"label": "a", "share": 0.5, "value": "1"},
        {"label": "b", "share": None, "value": "2", "mark": "x"},
        {"label": "c", "share": 1.5, "value": "3", "strong": True},
        {"label": "d", "share": -1, "value": "4", "colour": "error"},
    ]
    high, pen = painted(boxes.bars(rows, label=0.25), 400, 10, 100)
    assert high == 4 * 16
    track = 400 - 100 - text_width("2 x", 11, "bold") - 12
    assert pen.rects == [
        (110, 103.5, 110 + track, 112.5, "grid"),
        (110, 103.5, 110 + track / 2, 112.5, "other"),
        (110, 135.5, 110 + track, 144.5, "grid"),
        (110, 135.5, 110 + track, 144.5, "accent"),
        (110, 151.5, 110 + track, 160.5, "grid"),
        (110, 151.5, 110, 160.5, "error"),
    ]
    assert (pen.texts["c"], pen.looks["c"]["weight"]) == ((10, 140), "bold")
    assert (pen.texts[" x"], pen.texts["3"]) == ((410, 124), (410, 140))
    assert pen.texts["2"] == (410 - text_width(" x", 11), 124)


def test_terms_share_the_width_in_as_many_columns_as_fit() -> None:
    terms = [(f"term {at}", f"value {at}", f"detail {at}") for at in range(5)]
    high, pen = painted(numbers(terms, least=100), 360)
    assert high == 2 * 36
    wide = (360 + 16) / 3 - 16
    for at in range(5):
        left = at % 3 * (wide + 16)
        top = at // 3 * 36
        assert pen.texts[f"term {at}"] == pytest.approx((left, top + 7))
        assert pen.texts[f"value {at}"] == pytest.approx((left, top + 22))
        beside = left + text_width(f"value {at}", 14, "bold") + 7
        assert pen.texts[f"detail {at}"] == pytest.approx((beside, top + 23))
    assert painted(numbers(terms, least=500), 360)[0] == 5 * 36


@pytest.mark.parametrize(
    ("width", "above", "places"),
    [
        (320, False, {"a": (0, 0), "b": (183 + 1 / 3, 0)}),
        (205, False, {"a": (0, 0), "b": (0, 1)}),
        (205, True, {"a": (0, 1), "b": (0, 0)}),
    ],
)
def test_boxes_side_by_side_wrap_where_they_have_no_room(
    width: int, above: bool, places: dict[str, tuple[float, int]]
) -> None:
    box = row(words("a"), words("b"), weights=[2, 1], least=[100, 100], gap=10, above=above)
    line = picture.lay(words("a"), 100)[0]
    high, pen = painted(box, width)
    lines = 1 + max(down for _, down in places.values())
    assert high == pytest.approx(lines * line + (lines - 1) * 8)
    for text, (left, down) in places.items():
        assert pen.texts[text] == pytest.approx((left, down * (line + 8) + line / 2))


def test_a_column_leaves_gaps_between_what_has_a_height() -> None:
    line = picture.lay(words("a"), 100)[0]
    shown = column(words("a"), words("b", only="page"), legend([]), words("c"), gap=7)
    high, pen = painted(shown, 100, 5, 50)
    assert high == 2 * line + 7
    assert pen.texts == {"a": (5, 50 + line / 2), "c": (5, 50 + line + 7 + line / 2)}
    assert painted(fold("more", words("x"), opened=False), 100)[1].texts.keys() == {"more", "x"}
    assert painted(switch("n", 2, {1: words("one"), 2: words("two")}), 100)[1].texts.keys() == {"two"}


def test_a_legend_goes_on_below() -> None:
    first = 16 + text_width("first", 11)
    high, pen = painted(legend([("accent", "first"), ("good", "other"), ("warn", "a third one")]), first + 80)
    assert high == 2 * 17
    assert pen.rects == [
        (0, 3, 11, 14, "accent"),
        (first + 16, 3, first + 27, 14, "good"),
        (0, 20, 11, 31, "warn"),
    ]
    assert pen.texts["other"] == (first + 32, 8.5)
    assert painted(legend([("accent", "first")]), 10)[0] == 17


def test_a_table_has_a_line_a_row_and_its_last_column_at_the_right() -> None:
    high, pen = painted(table([["a", "1"], ["b", "2"]], ["name", "n"], title="Title"), 300)
    assert high == 18 + 3 * 16 + 2
    assert pen.texts["Title"] == (0, 9)
    assert (pen.texts["name"], pen.texts["n"]) == ((0, 26), (300, 26))
    assert (pen.texts["a"], pen.texts["2"]) == ((0, 42), (300, 58))
    assert [pen.looks[text]["colour"] for text in ("name", "n", "a", "1")] == [
        "muted",
        "muted",
        "muted",
        "fg",
    ]
    assert pen.rects == [(0, 34 + 16 * at, 300, 34.5 + 16 * at, "grid") for at in range(3)]
    long, _ = painted(table([["word " * 30, "1"]]), 200)
    assert long > 4 + 14
    assert (long - 4) % 14 == 0


def test_a_matrix_has_a_bar_below_each_share() -> None:
    rows = [
        {"label": "one", "cells": [("8", 0.5), ("x", None)], "strong": False, "title": "one"},
        {"label": "two", "cells": [("9", 1.0), ("y", None)], "strong": True, "title": "two"},
    ]
    high, pen = painted(matrix(rows, ["size", "kind"]), 300)
    assert high == 13 + 6 + 2 * 21
    label = text_width("two", 11, "bold") + 10
    wide = (
        text_width("9", 11, "bold")
        + (300 - label - text_width("9", 11, "bold") - text_width("y", 11, "bold")) / 2
    )
    assert [rect[0] for rect in pen.rects] == [label, label]
    assert [rect[2] for rect in pen.rects] == pytest.approx([label + (wide - 8) / 2, label + wide - 8], abs=1)
    assert [rect[1::2] for rect in pen.rects] == [(34, 37), (55, 58)]
    assert pen.texts["two"] == (0, 19 + 21 + 8)
    assert (pen.looks["two"]["weight"], pen.looks["one"]["weight"]) == ("bold", "normal")
    assert pen.texts["size"] == (label, 6.5)


def test_texts_break_at_words_and_are_cut_with_a_sign() -> None:
    two = text_width("one two", 11)
    assert wrap("one two three", two, 11) == ["one two", "three"]
    assert wrap("one two", two - 1, 11) == ["one", "two"]
    assert wrap("one\ntwo", 999, 11) == ["one", "two"]
    assert wrap("endless", 1, 11) == ["endless"]
    assert shorten("one two", two, 11) == "one two"
    cut = shorten("one two", two - 1, 11)
    assert cut.endswith("…")
    assert "one two".startswith(cut[:-1])
    assert text_width(cut, 11) <= two - 1 < text_width("one two"[: len(cut)] + "…", 11)


def inked(pen: Pen) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what was drawn, in nominal pixels."""
    ground = Image.new("RGB", pen.image.size, pen.image.getpixel((0, 0)))
    box = ImageChops.difference(pen.image, ground).getbbox()
    assert box is not None
    left, top, right, bottom = (at // SHARPNESS for at in box)
    return left, top, right, bottom


def test_an_outline_has_its_colour_and_leaves_what_is_within() -> None:
    pen = Pen(40, 30)
    pen.outline(5, 6, 35, 24, "error")
    colour = tuple(bytes.fromhex(palette.light("error")[1:]))
    assert {pen.image.getpixel(at) for at in ((10, 30), (70, 30), (40, 12), (40, 48))} == {colour}
    assert pen.image.getpixel((40, 30)) == pen.image.getpixel((0, 0))
    assert inked(pen) == (5, 6, 35, 24)


@pytest.mark.parametrize("turn", [False, True])
def test_turned_text_reads_upwards_around_its_place(turn: bool) -> None:
    pen = Pen(120, 120)
    pen.text(60, 50, "HHHHHH", size=12, anchor="middle", vertical=turn)
    left, top, right, bottom = inked(pen)
    assert (bottom - top > right - left) == turn
    assert ((left + right) / 2, (top + bottom) / 2) == pytest.approx((60, 50), abs=1.5)
    assert max(bottom - top, right - left) == pytest.approx(text_width("HHHHHH", 12), abs=3)
