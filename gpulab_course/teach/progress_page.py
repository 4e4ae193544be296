"""HTML page of a learner's progress: a map of the course, and a plot of the calibration of predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import sqrt

from gpulab.views.parts.card import bars, card, fold, items, legend, paragraph
from gpulab.words import percent

_Z = 1.96  # of 95 %
_STATES = {True: "right", False: "wrong", None: "open"}
_LEGEND = [
    ("good", "filled: passed or right"),
    ("tail", "crossed: wrong at first"),
    ("bg", "empty: not yet"),
]
_TOTALS = {
    "exercises": "exercises passed",
    "predictions": "predictions right",
    "quiz questions": "quiz answers right first time",
}
_PLOT_WIDTH = 360
_LEFT = 60


def interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, by Wilson's formula.

    Examples
    --------
    >>> [round(end, 2) for end in interval(8, 10)]
    [0.49, 0.94]
    """
    share = right / total
    centre = share + _Z**2 / (2 * total)
    half_width = _Z * sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    scale = 1 + _Z**2 / total
    return (centre - half_width) / scale, (centre + half_width) / scale


@dataclass(frozen=True, slots=True)
class Tile:
    """The results in one notebook, by kind: True or False for each item, None if it is not done yet."""

    name: str
    file: str
    results: Mapping[str, Sequence[bool | None]]


def page(
    tiles: Sequence[Tile],
    calibration: Mapping[str, tuple[int, int]],
    next_exercise: tuple[str, str],
    sentences: Sequence[str],
    scores: Sequence[str],
) -> str:
    """Return HTML of a learner's progress.

    Parameters
    ----------
    tiles
        The notebooks in the course's order.
    calibration
        The number of right predictions and of all predictions, for sure predictions and for guesses.
    next_exercise
        The name of the next exercise and the file of its notebook; each can be empty.
    sentences
        Further sentences to show.
    scores
        The best scores of exercises.
    """
    name, file = next_exercise
    link = _linked(name, file)
    next_text = f'<p class="gl-words-plain">Your next exercise: {link}.</p>' if name else ""
    return card(
        "Progress",
        _totals(tiles),
        next_text,
        *map(paragraph, sentences),
        f'<ol class="gl-map">{"".join(map(_tile, tiles))}</ol>',
        legend(_LEGEND),
        _calibration(calibration),
        fold("Best scores", items(scores), opened=False) if scores else "",
    )


def _linked(name: str, file: str) -> str:
    return f'<a href="{escape(file)}">{escape(name)}</a>' if file else escape(name)


def _totals(tiles: Sequence[Tile]) -> str:
    rows = []
    for kind, label in _TOTALS.items():
        results = [result for tile in tiles for result in tile.results[kind]]
        right = sum(result is True for result in results)
        rows.append((label, right / max(1, len(results)), f"{right} of {len(results)}", "good"))
    return bars(rows)


def _tile(tile: Tile) -> str:
    marks = "".join(_marks(kind, results) for kind, results in tile.results.items() if results)
    return f"<li><b>{_linked(tile.name, tile.file)}</b>{marks}</li>"


def _marks(kind: str, results: Sequence[bool | None]) -> str:
    """Return a coloured mark per result as HTML, followed by the number of successful results."""
    marks = "".join(f'<i class="gl-{_STATES[result]}"></i>' for result in results)
    right = sum(result is True for result in results)
    return (
        f'<span class="gl-marks gl-{kind.partition(" ")[0]}" aria-hidden="true">{marks}</span>'
        f" <small>{right} of {len(results)} {kind}</small>"
    )


def _calibration(calibration: Mapping[str, tuple[int, int]]) -> str:
    """Return a plot of the shares of right answers among sure predictions and guesses, or ""."""
    groups = [(label, *counts) for label, counts in calibration.items()]
    texts = [
        f"{label}: {right} of {total} right ({percent(right / total)})"
        for label, right, total in groups
        if total
    ]
    if not texts:
        return ""
    rows = "".join(
        _plot_row(26 * index + 14, label, right, total) for index, (label, right, total) in enumerate(groups)
    )
    note = "Dot: share that was right; line: its 95 % interval, which becomes shorter with more predictions."
    return (
        paragraph("Calibration of your predictions", "heading")
        + f'<div class="gl-calibration"><svg width="{_PLOT_WIDTH}" height="84" aria-hidden="true">'
        + f"{_axis()}{rows}</svg>{items(texts)}</div>"
        + paragraph(note, "note")
    )


def _axis() -> str:
    ticks: Iterable[int] = range(0, 101, 25)
    return "".join(
        f'<path d="M{_x(tick / 100)} 2V58" style="stroke:var(--gl-grid)"/>'
        f'<text x="{_x(tick / 100)}" y="74" text-anchor="middle" style="fill:var(--gl-muted)">{tick} %</text>'
        for tick in ticks
    )


def _plot_row(y: int, label: str, right: int, total: int) -> str:
    text = f'<text x="0" y="{y + 4}" style="fill:var(--gl-fg)">{label}</text>'
    if not total:
        return text
    low, high = interval(right, total)
    return (
        f'{text}<path d="M{_x(low)} {y}H{_x(high)}" style="stroke:var(--gl-accent-2);stroke-width:4"/>'
        f'<circle cx="{_x(right / total)}" cy="{y}" r="6" style="fill:var(--gl-accent)"/>'
    )


def _x(share: float) -> str:
    return f"{_LEFT + share * (_PLOT_WIDTH - _LEFT - 24):.1f}"
