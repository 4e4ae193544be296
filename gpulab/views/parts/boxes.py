"""Boxes: the layout of a view, for the page and for the picture alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from gpulab.views.parts.items import Item


@dataclass(frozen=True, kw_only=True)
class Box:
    """The base class of boxes.

    Parameters
    ----------
    only
        ``"page"`` or ``"picture"``: where it is, if not in both.
    name
        By which a view's own JavaScript finds it.
    """

    kind: ClassVar[str]
    only: str | None = None
    name: str | None = None

    def wire(self) -> dict[str, Any]:
        """Return the box in the browser's format, without values that are None."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"box": self.kind, **{name: value for name, value in values.items() if value is not None}}


@dataclass(frozen=True)
class Column(Box):
    """Boxes in a column."""

    kind = "column"
    boxes: list[Box]
    gap: int


@dataclass(frozen=True)
class Row(Box):
    """Boxes side by side, widths by `weights`; those under their `least` pixels wrap."""

    kind = "row"
    boxes: list[Box]
    gap: int
    above: bool
    weights: Sequence[float]
    least: Sequence[int]


@dataclass(frozen=True)
class Words(Box):
    """A paragraph."""

    kind = "words"
    text: str
    style: str


@dataclass(frozen=True)
class Legend(Box):
    """Colours and what they mean."""

    kind = "legend"
    entries: list[list[str]]


@dataclass(frozen=True)
class Terms(Box):
    """Terms with a value and a detail each."""

    kind = "numbers"
    rows: list[list[str]]
    least: int


@dataclass(frozen=True)
class Bars(Box):
    """Horizontal bars; labels take the share `label` of the width."""

    kind = "bars"
    rows: list[dict[str, Any]]
    label: float


@dataclass(frozen=True)
class Cells(Box):
    """Rows of text under headings."""

    kind = "table"
    rows: list[list[str]]
    headings: list[str]
    title: str


@dataclass(frozen=True)
class Matrix(Box):
    """Rows of cells with bars under headings."""

    kind = "matrix"
    rows: list[dict[str, Any]]
    headings: list[str]


@dataclass(frozen=True)
class Switch(Box):
    """Switch between several boxes, by the value of a trait."""

    kind = "switch"
    trait: str
    chosen: str
    cases: dict[str, Box]


@dataclass(frozen=True)
class Fold(Box):
    """A box that the learner opens and closes."""

    kind = "fold"
    summary: str
    inner: Box
    opened: bool


@dataclass(frozen=True)
class Slider(Box):
    """Sets a trait to one of `values`, shown as `texts`."""

    kind = "slider"
    label: str
    trait: str
    values: list[int]
    texts: list[str]


@dataclass(frozen=True)
class Plot(Box):
    """Items over a width that represents `domain`; see `gpulab.views.parts`.

    Parameters
    ----------
    most_zoom
        How many times as wide it can be shown.
    hint
        What is said below it until something is pointed at.
    trait, values, chosen
        What is clicked or walked to sends its value; `chosen` is outlined.
    marks, mark_y
        Texts above what is chosen, and how high they stand in pixels.
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


def column(*boxes: Box | None, gap: int = 6, **more: Any) -> Box:
    """Put boxes below each other; None is left out."""
    return Column([box for box in boxes if box is not None], gap, **more)


def row(
    *boxes: Box,
    weights: Sequence[float] = (),
    least: Sequence[int] = (),
    gap: int = 20,
    above: bool = False,
    **more: Any,
) -> Box:
    """Put boxes side by side, widths by `weights`.

    Where one would be under its `least` pixels they wrap, to below or `above` the first.
    """
    many = len(boxes)
    return Row(list(boxes), gap, above, weights or [1] * many, least or [200] * many, **more)


def words(text: str, style: str = "plain", **more: Any) -> Box:
    """A paragraph; `style` is plain, heading, note, strong or mono."""
    return Words(text, style, **more)


def legend(entries: Iterable[tuple[str, str]], **more: Any) -> Box:
    """Colours and what they mean."""
    return Legend([list(entry) for entry in entries], **more)


def numbers(rows: Iterable[Sequence[str]], least: int = 150, **more: Any) -> Box:
    """Terms with their values and a detail each, in as many columns of `least` pixels as there is room."""
    return Terms([list(each) for each in rows], least, **more)


def bars(rows: Iterable[Mapping[str, Any]], label: float = 0.36, **more: Any) -> Box:
    """Horizontal bars: ``label``, ``share`` (0 to 1, None for no bar), ``value`` as text; optional ``mark``
    (words after the value), ``strong``, ``colour``, ``title``. Labels take the share `label` of the width."""
    return Bars([dict(each) for each in rows], label, **more)


def table(rows: Iterable[Sequence[str]], headings: Sequence[str] = (), title: str = "", **more: Any) -> Box:
    """Return rows of text; the first cell names its row, the last one is on the right."""
    return Cells([list(each) for each in rows], list(headings), title, **more)


def matrix(rows: Iterable[Mapping[str, Any]], headings: Sequence[str], **more: Any) -> Box:
    """Rows (``label``, ``cells``, ``strong``, ``title``) under headings.

    A cell is a text, and the share of its bar or None.
    """
    return Matrix([dict(each) for each in rows], list(headings), **more)


def switch(trait: str, chosen: Any, cases: Mapping[Any, Box], **more: Any) -> Box:
    """Return a box that shows one of several boxes, by the value of a trait."""
    return Switch(trait, str(chosen), {str(value): box for value, box in cases.items()}, **more)


def fold(summary: str, inner: Box, *, opened: bool = True, **more: Any) -> Box:
    """A box that the learner opens and closes; in a picture it is open."""
    return Fold(summary, inner, opened, **more)


def slider(label: str, trait: str, values: Sequence[int], texts: Sequence[str]) -> Slider:
    """Sets `trait` to one of `values` (evenly spaced), shown as `texts`; of two it is a switch.

    Python answers with a new picture; the view is a `Steered` one.
    """
    return Slider(label, trait, list(values), list(texts), only="page")
