"""Boxes: dataclasses that describe the layout of a view, for the web page and for the static picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from gpulab.views.parts.items import Item


@dataclass(frozen=True, kw_only=True)
class Box:
    """The base class of the boxes that a picture consists of.

    Parameters
    ----------
    only
        ``"page"`` or ``"picture"`` for a box that is only in one of them.
    name
        The name by which a view's own JavaScript finds the box.
    """

    kind: ClassVar[str]
    only: str | None = None
    name: str | None = None

    def wire(self) -> dict[str, Any]:
        """Return the box as a dictionary for the JavaScript code in the browser. Values that are None are
        left out.
        """
        values = {box_field.name: getattr(self, box_field.name) for box_field in fields(self)}
        return {"box": self.kind, **{name: value for name, value in values.items() if value is not None}}


@dataclass(frozen=True)
class Column(Box):
    """A box that shows boxes below each other."""

    kind = "column"
    boxes: list[Box]
    gap: int


@dataclass(frozen=True)
class Row(Box):
    """A box that shows boxes next to each other. In a narrow window, the boxes are below each other. Their
    relative widths are `weights`, and their minimum widths are `least` pixels.
    """

    kind = "row"
    boxes: list[Box]
    gap: int
    above: bool
    weights: Sequence[float]
    least: Sequence[int]


@dataclass(frozen=True)
class WordsBox(Box):
    """A box with a paragraph of text."""

    kind = "words"
    text: str
    style: str


@dataclass(frozen=True)
class Legend(Box):
    """A legend with colours and their meanings. The colour ``"outline"`` represents a mark that is not
    filled.
    """

    kind = "legend"
    entries: list[list[str]]


@dataclass(frozen=True)
class TermsBox(Box):
    """A list of terms, each with a value and a detail. Columns are at least `least` pixels wide."""

    kind = "numbers"
    rows: list[list[str]]
    least: int


@dataclass(frozen=True)
class Bars(Box):
    """A group of horizontal bars. The labels occupy the fraction `label` of the width."""

    kind = "bars"
    rows: list[dict[str, Any]]
    label: float


@dataclass(frozen=True)
class TableBox(Box):
    """A table of text with column headings."""

    kind = "table"
    rows: list[list[str]]
    headings: list[str]
    title: str


@dataclass(frozen=True)
class MatrixBox(Box):
    """A table in which each cell has a text and a bar."""

    kind = "matrix"
    rows: list[dict[str, Any]]
    headings: list[str]


@dataclass(frozen=True)
class SwitchBox(Box):
    """A box that shows one of the boxes in `cases`, depending on the value of a trait. The static picture
    shows the case `chosen`.
    """

    kind = "switch"
    trait: str
    chosen: str
    cases: dict[str, Box]


@dataclass(frozen=True)
class FoldBox(Box):
    """A box that the learner can open and close."""

    kind = "fold"
    summary: str
    inner: Box
    opened: bool


@dataclass(frozen=True)
class Slider(Box):
    """A slider that sets a trait to one of `values`. The values are displayed as `texts`."""

    kind = "slider"
    label: str
    trait: str
    values: list[int]
    texts: list[str]


@dataclass(frozen=True)
class RemarksBox(Box):
    """A list of numbered sentences. A trait is set to the index of the sentence that is pointed at or has the
    focus.
    """

    kind = "remarks"
    title: str
    trait: str
    texts: list[str]


@dataclass(frozen=True)
class Player(Box):
    """A group of buttons that play or pause an animation, or move it by single steps. The buttons change a
    trait between 0 and `last`.

    Parameters
    ----------
    rates, rate
        Texts with the trait's change per second, and the first rate; 0 shows all in a few seconds.
    smooth
        Whether the trait moves once per frame, as a time in nanoseconds does, instead of by single steps.
    stops
        Values to which single steps go; if there are none, a single step is 1.
    counts
        Names, each with the values of the trait at which one more operation is done; they are shown as text.
    origin
        Origin of the times, after this text.
    """

    kind = "player"
    trait: str
    last: float
    rates: list[tuple[str, float]]
    rate: float
    smooth: bool = False
    stops: Sequence[float] = ()
    counts: Sequence[tuple[str, Sequence[float]]] = ()
    origin: str = ""


@dataclass(frozen=True)
class Plot(Box):
    """A box that shows a plot with the given items. The width of the plot represents the interval `domain`
    (see `gpulab.views.parts`).

    Parameters
    ----------
    most_zoom
        Largest magnification.
    hint
        Text below the plot until an element is pointed at.
    trait, values, chosen
        The trait that receives the value of the selected element; the element `chosen` is outlined.
    marks, mark_y
        Texts above the selected element, and their y in pixels.
    """

    kind = "plot"
    height: float
    domain: list[float]
    left: int
    right: int
    label: str
    zoom: bool
    items: list[Item]
    most_zoom: float | None = None
    hint: str | None = None
    trait: str | None = None
    values: Sequence[Any] | None = None
    chosen: int | None = None
    marks: Sequence[str] | None = None
    mark_y: float | None = None


def column(*boxes: Box | None, gap: int = 6, **options: Any) -> Box:
    """Return a box that shows boxes below each other. Boxes that are None are left out."""
    return Column([box for box in boxes if box is not None], gap, **options)


def row(
    *boxes: Box,
    weights: Sequence[float] = (),
    least: Sequence[int] = (),
    gap: int = 20,
    above: bool = False,
    **options: Any,
) -> Box:
    """Return a box that shows boxes next to each other. The parameter `weights` determines their widths.

    If a box would be narrower than its `least` pixels, the boxes wrap: below the first one, or above it if
    `above` is set.
    """
    box_count = len(boxes)
    return Row(list(boxes), gap, above, weights or [1] * box_count, least or [200] * box_count, **options)


def words(text: str, style: str = "plain", **options: Any) -> Box:
    """Return a box with a paragraph. The parameter `style` is plain, heading, note, strong or mono."""
    return WordsBox(text, style, **options)


def legend(entries: Iterable[Sequence[str]], **options: Any) -> Box:
    """Return a legend with colours and their meanings. The colour ``"outline"`` represents a mark that is not
    filled.
    """
    return Legend([list(entry) for entry in entries], **options)


def numbers(rows: Iterable[Sequence[str]], least: int = 150, **options: Any) -> Box:
    """Return a list of terms in columns that are at least `least` pixels wide. Each term has a value and a
    detail.
    """
    return TermsBox([list(cells) for cells in rows], least, **options)


def bars(rows: Iterable[Mapping[str, Any]], label: float = 0.36, **options: Any) -> Box:
    """Return a group of horizontal bars, one per row. The labels occupy the fraction `label` of the width.

    A row has ``label``, ``share`` (0 to 1, None for no bar), ``value`` as text, and optionally ``mark``
    (words after the value), ``strong``, ``colour`` and ``title``.
    """
    return Bars([dict(bar) for bar in rows], label, **options)


def table(
    rows: Iterable[Sequence[str]], headings: Sequence[str] = (), title: str = "", **options: Any
) -> Box:
    """Return a table of text. The first cell of a row is its name, and the last column is right-aligned."""
    return TableBox([list(cells) for cells in rows], list(headings), title, **options)


def matrix(rows: Iterable[Mapping[str, Any]], headings: Sequence[str], **options: Any) -> Box:
    """Return a table with headings in which each cell has a text and a bar.

    Each row contains ``label``, ``cells``, ``strong`` and ``title``. A cell is a text and the length of its
    bar (a share), or None.
    """
    return MatrixBox([dict(cells) for cells in rows], list(headings), **options)


def switch(trait: str, chosen: Any, cases: Mapping[Any, Box], **options: Any) -> Box:
    """Return a box that shows one of several boxes, depending on the value of a trait."""
    return SwitchBox(trait, str(chosen), {str(value): box for value, box in cases.items()}, **options)


def fold(summary: str, inner: Box, *, opened: bool = True, **options: Any) -> Box:
    """Return a box that the learner can open and close. In the static picture, it is open."""
    return FoldBox(summary, inner, opened, **options)


def remarks(title: str, trait: str, texts: Iterable[str], **options: Any) -> Box:
    """Return a list of numbered sentences. The trait `trait` is set to the index of the sentence that is
    pointed at or has the focus.
    """
    return RemarksBox(title, trait, list(texts), **options)


def player(
    trait: str,
    last: float,
    rates: Sequence[tuple[str, float]] = (("1/s", 1), ("3/s", 3), ("10/s", 10)),
    rate: float = 1,
    **options: Any,
) -> Box:
    """Return play, pause and step buttons that change a trait between 0 and `last`. The buttons appear only
    on the page, not in the static picture (see `Player`).
    """
    return Player(trait, last, list(rates), rate, only="page", **options)


def slider(label: str, trait: str, values: Sequence[int], texts: Sequence[str]) -> Slider:
    """Return a slider that sets `trait` to one of `values`. The values are displayed as `texts`.

    With two values it is a switch. Python replies with a new picture; the view must be a `Steered` view.
    """
    return Slider(label, trait, list(values), list(texts), only="page")
