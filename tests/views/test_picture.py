"""Layout of the static picture: positions passed to a pen, compared with values computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gpulab.views.parts import picture
from gpulab.views.parts.boxes import Box, column, fold, legend, row, switch, words
from gpulab.views.parts.pen import Pen, shorten, text_width, wrap


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
    high, paint = picture.lay_out(box, width)
    pen = Noted()
    paint(pen, left, top)
    return high, pen


@pytest.mark.parametrize(
    ("width", "above", "places"),
    [
        (320, False, {"a": (0, 0), "b": (183 + 1 / 3, 0)}),
        (205, False, {"a": (0, 0), "b": (0, 1)}),
        (205, True, {"a": (0, 1), "b": (0, 0)}),
    ],
)
def test_boxes_in_a_row_wrap_when_the_width_is_too_small(
    width: int, above: bool, places: dict[str, tuple[float, int]]
) -> None:
    box = row(words("a"), words("b"), weights=[2, 1], least=[100, 100], gap=10, above=above)
    line = picture.lay_out(words("a"), 100)[0]
    high, pen = painted(box, width)
    lines = 1 + max(down for _, down in places.values())
    assert high == pytest.approx(lines * line + (lines - 1) * 8)
    for text, (left, down) in places.items():
        assert pen.texts[text] == pytest.approx((left, down * (line + 8) + line / 2))


def test_a_column_has_gaps_only_between_visible_boxes() -> None:
    line = picture.lay_out(words("a"), 100)[0]
    box_ = column(words("a"), words("b", only="page"), legend([]), words("c"), gap=7)
    high, pen = painted(box_, 100, 5, 50)
    assert high == 2 * line + 7
    assert pen.texts == {"a": (5, 50 + line / 2), "c": (5, 50 + line + 7 + line / 2)}
    assert painted(fold("more", words("x"), opened=False), 100)[1].texts.keys() == {"more", "x"}
    assert painted(switch("n", 2, {1: words("one"), 2: words("two")}), 100)[1].texts.keys() == {"two"}


def test_text_wraps_at_words_and_is_shortened_with_an_ellipsis() -> None:
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
