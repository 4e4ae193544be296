"""Boxes: what stands where on a view, for the page and for the picture alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Box = dict[str, Any]
Item = dict[str, Any]


def part(what: str, kind: str, arguments: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A part's arguments are its box or item; `more` holds columns for `say` and what one painter needs."""
    more = arguments.pop("more", {})
    return {what: kind, **arguments, **more, **changed}


def column(*boxes: Box | None, gap: int = 6, **more: Any) -> Box:
    """Boxes one below the other; None is left out."""
    return part("box", "column", locals(), boxes=[box for box in boxes if box is not None])


def row(
    *boxes: Box, weights: Sequence[float] = (), least: Sequence[int] = (), gap: int = 20, above: bool = False,
    **more: Any,
) -> Box:  # fmt: skip
    """Boxes side by side, widths by `weights`.

    Where one would be under its `least` pixels they wrap, to below or `above` the first.
    """
    widths = {"weights": weights or [1] * len(boxes), "least": least or [200] * len(boxes)}
    return {"box": "row", "boxes": list(boxes), "gap": gap, "above": above, **widths, **more}


def words(text: str, style: str = "plain", **more: Any) -> Box:
    """A paragraph; `style` is plain, heading, note, strong or mono."""
    return part("box", "words", locals())


def legend(entries: Iterable[tuple[str, str]], **more: Any) -> Box:
    """Colours and what they mean."""
    return {"box": "legend", "entries": [list(entry) for entry in entries], **more}


def numbers(rows: Iterable[Sequence[str]], least: int = 150, **more: Any) -> Box:
    """Terms with their values and a detail each, in as many columns of `least` pixels as there is room."""
    return {"box": "numbers", "rows": [list(each) for each in rows], "least": least, **more}


def bars(rows: Iterable[Mapping[str, Any]], label: float = 0.36, **more: Any) -> Box:
    """Horizontal bars: ``label``, ``share`` (0 to 1, None for no bar), ``value`` as text; optional ``mark``
    (words after the value), ``strong``, ``colour``, ``title``. Labels take the share `label` of the width."""
    return {"box": "bars", "rows": [dict(each) for each in rows], "label": label, **more}


def table(rows: Iterable[Sequence[str]], headings: Sequence[str] = (), title: str = "", **more: Any) -> Box:
    """Rows of text; the first cell names its row, the last one stands right."""
    return part("box", "table", locals(), headings=list(headings), rows=[list(each) for each in rows])


def matrix(rows: Iterable[Mapping[str, Any]], headings: Sequence[str], **more: Any) -> Box:
    """Rows (``label``, ``cells``, ``strong``, ``title``) under headings.

    A cell is a text, and the share of its bar or None.
    """
    return {"box": "matrix", "rows": [dict(each) for each in rows], "headings": list(headings), **more}


def switch(trait: str, chosen: Any, cases: Mapping[Any, Box], **more: Any) -> Box:
    """The box that belongs to a trait's value."""
    return part("box", "switch", locals(), chosen=str(chosen), cases={str(k): v for k, v in cases.items()})


def fold(summary: str, inner: Box, *, opened: bool = True, **more: Any) -> Box:
    """A box that the learner opens and closes; in a picture it is open."""
    return part("box", "fold", locals())


def slider(label: str, trait: str, values: Sequence[int], texts: Sequence[str]) -> Box:
    """Sets `trait` to one of `values` (evenly spaced), shown as `texts`; Python answers with a new picture.

    The view counts its answers in ``pictures``: while one is awaited, only the last place is kept.
    """
    return part("box", "slider", locals(), only="page", values=list(values), texts=list(texts))
