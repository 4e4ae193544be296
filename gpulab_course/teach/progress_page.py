"""Page of a learner's progress: a map of the course, and a plot of the calibration of predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import sqrt
from typing import TYPE_CHECKING, Any

from gpulab.views.parts.card import bars, card, fold, items, legend, paragraph
from gpulab.words import count, percent

if TYPE_CHECKING:
    from gpulab_course.teach.progress import NotebookProgress, Progress

_Z = 1.96  # of 95 %
_STATES = {True: "right", False: "wrong", None: "open"}
_LEGEND = [
    ("good", "filled: passed or right"),
    ("tail", "crossed: wrong at first"),
    ("bg", "empty: not yet"),
]
_PLOT_WIDTH = 360
_LEFT = 60


def interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share that was right so often: Wilson's, between 0 and 1.

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


def page(progress: Progress, next_file: str) -> str:
    """Return the progress as a card of HTML; `next_file` is the notebook with the next exercise."""
    next_exercise = progress.next_exercise
    name = escape(next_exercise.name) if next_exercise else ""
    link = f'<a href="{escape(next_file)}">{name}</a>' if next_file else name
    next_text = f'<p class="gl-words-plain">Your next exercise: {link}.</p>' if next_exercise else ""
    answered, due = progress.interview
    interview = f"Interview: {count(answered, 'card')} answered, {due} due." if answered else ""
    scores = [
        f"{exercise.name}: {exercise.best}"
        for notebook in progress.notebooks
        for exercise in notebook.exercises
        if exercise.best
    ]
    tiles = "".join(map(_tile, progress.notebooks))
    return card(
        "Progress",
        _totals(progress),
        next_text,
        paragraph(interview),
        f'<ol class="gl-map">{tiles}</ol>',
        legend(_LEGEND),
        _calibration(progress),
        fold("Best scores", items(scores), opened=False) if scores else "",
    )


def _totals(progress: Progress) -> str:
    rows = []
    for label, results in (
        ("exercises passed", list(progress.exercises.values())),
        ("predictions right", [prediction.right for prediction in progress.predictions]),
        ("quiz answers right first time", [a.right for n in progress.notebooks for a in n.quiz]),
    ):
        right = sum(result is True for result in results)
        rows.append((label, right / max(1, len(results)), f"{right} of {len(results)}", "good"))
    return bars(rows)


def _tile(notebook: NotebookProgress) -> str:
    name = escape(f"{notebook.number} {notebook.topic.replace('_', ' ')}")
    title = f'<a href="{escape(notebook.file)}">{name}</a>' if notebook.file else name
    rows = (
        ("exercises", [True if exercise.passed else None for exercise in notebook.exercises]),
        ("predictions", [prediction.right for prediction in notebook.predictions]),
        ("quiz questions", [answer.right for answer in notebook.quiz]),
    )
    return f"<li><b>{title}</b>{''.join(_marks(*row) for row in rows if row[1])}</li>"


def _marks(kind: str, results: Sequence[Any]) -> str:
    """Return a mark for each result, followed by their number as text."""
    marks = "".join(f'<i class="gl-{_STATES.get(result, "open")}"></i>' for result in results)
    right = sum(result is True for result in results)
    return (
        f'<span class="gl-marks gl-{kind.partition(" ")[0]}" aria-hidden="true">{marks}</span>'
        f"<small>{right} of {len(results)} {kind}</small>"
    )


def _calibration(progress: Progress) -> str:
    """Return a plot of how often predictions locked as sure and as a guess were right; empty without any."""
    groups = [("sure", *progress.calibration(True)), ("guess", *progress.calibration(False))]
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
