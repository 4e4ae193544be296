"""HTML page of a learner's progress: a map of the course, and a plot of the calibration of predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import sqrt

from gpulab.views.parts.card import make_bars, make_card, make_fold, make_legend, make_list, make_paragraph
from gpulab.words import percent

_Z_SCORE = 1.96  # of 95 %
_MARK_CLASSES = {True: "right", False: "wrong", None: "open"}
_MARK_LEGEND = [
    ("good", "filled: passed or right"),
    ("tail", "crossed: wrong at first"),
    ("bg", "empty: not yet"),
]
_TOTAL_LABELS = {
    "exercises": "exercises passed",
    "predictions": "predictions right",
    "quiz questions": "quiz answers right first time",
}
_PLOT_WIDTH_PX = 360
_PLOT_LEFT_PX = 60


def compute_interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, computed by Wilson's formula.

    Examples
    --------
    >>> [round(end, 2) for end in compute_interval(8, 10)]
    [0.49, 0.94]
    """
    right_share = right / total
    centre = right_share + _Z_SCORE**2 / (2 * total)
    half_width = _Z_SCORE * sqrt(right_share * (1 - right_share) / total + _Z_SCORE**2 / (4 * total**2))
    denominator = 1 + _Z_SCORE**2 / total
    return (centre - half_width) / denominator, (centre + half_width) / denominator


@dataclass(frozen=True, slots=True)
class Tile:
    """A learner's results in one notebook, grouped by kind (such as exercises). Each result is True, False,
    or None if the item is not done yet.
    """

    name: str
    file: str
    results: Mapping[str, Sequence[bool | None]]


def render_page(
    tiles: Sequence[Tile],
    calibration: Mapping[str, tuple[int, int]],
    next_exercise: tuple[str, str],
    sentences: Sequence[str],
    scores: Sequence[str],
) -> str:
    """Return an HTML page with a learner's progress.

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
    exercise_name, exercise_file = next_exercise
    link_html = _render_link(exercise_name, exercise_file)
    next_text = f'<p class="gl-words-plain">Your next exercise: {link_html}.</p>' if exercise_name else ""
    return make_card(
        "Progress",
        _render_total_bars(tiles),
        next_text,
        *map(make_paragraph, sentences),
        f'<ol class="gl-map">{"".join(map(_render_tile, tiles))}</ol>',
        make_legend(_MARK_LEGEND),
        _render_calibration(calibration),
        make_fold("Best scores", make_list(scores), is_open=False) if scores else "",
    )


def _render_link(name: str, file: str) -> str:
    return f'<a href="{escape(file)}">{escape(name)}</a>' if file else escape(name)


def _render_total_bars(tiles: Sequence[Tile]) -> str:
    rows = []
    for result_kind, label in _TOTAL_LABELS.items():
        results = [result for tile in tiles for result in tile.results[result_kind]]
        right_count = sum(result is True for result in results)
        rows.append((label, right_count / max(1, len(results)), f"{right_count} of {len(results)}", "good"))
    return make_bars(rows)


def _render_tile(tile: Tile) -> str:
    marks_html = "".join(
        _render_marks(result_kind, results) for result_kind, results in tile.results.items() if results
    )
    return f"<li><b>{_render_link(tile.name, tile.file)}</b>{marks_html}</li>"


def _render_marks(result_kind: str, results: Sequence[bool | None]) -> str:
    """Return a coloured mark per result as HTML, followed by the number of successful results."""
    marks_html = "".join(f'<i class="gl-{_MARK_CLASSES[result]}"></i>' for result in results)
    right_count = sum(result is True for result in results)
    return (
        f'<span class="gl-marks gl-{result_kind.partition(" ")[0]}" aria-hidden="true">{marks_html}</span>'
        f" <small>{right_count} of {len(results)} {result_kind}</small>"
    )


def _render_calibration(calibration: Mapping[str, tuple[int, int]]) -> str:
    """Return a plot of the shares of right answers among sure predictions and guesses, or ""."""
    certainty_counts = [(label, *answer_counts) for label, answer_counts in calibration.items()]
    share_texts = [
        f"{label}: {right_count} of {answer_count} right ({percent(right_count / answer_count)})"
        for label, right_count, answer_count in certainty_counts
        if answer_count
    ]
    if not share_texts:
        return ""
    rows = "".join(
        _render_plot_row(26 * index + 14, label, right_count, answer_count)
        for index, (label, right_count, answer_count) in enumerate(certainty_counts)
    )
    plot_note = (
        "Dot: share that was right; line: its 95 % interval, which becomes shorter with more predictions."
    )
    return (
        make_paragraph("Calibration of your predictions", "heading")
        + f'<div class="gl-calibration"><svg width="{_PLOT_WIDTH_PX}" height="84" aria-hidden="true">'
        + f"{_render_axis()}{rows}</svg>{make_list(share_texts)}</div>"
        + make_paragraph(plot_note, "note")
    )


def _render_axis() -> str:
    ticks: Iterable[int] = range(0, 101, 25)
    return "".join(
        f'<path d="M{_share_to_x(tick / 100)} 2V58" style="stroke:var(--gl-grid)"/>'
        f'<text x="{_share_to_x(tick / 100)}" y="74" text-anchor="middle" '
        f'style="fill:var(--gl-muted)">{tick} %</text>'
        for tick in ticks
    )


def _render_plot_row(y: int, label: str, right_count: int, answer_count: int) -> str:
    label_svg = f'<text x="0" y="{y + 4}" style="fill:var(--gl-fg)">{label}</text>'
    if not answer_count:
        return label_svg
    low_share, high_share = compute_interval(right_count, answer_count)
    return (
        f'{label_svg}<path d="M{_share_to_x(low_share)} {y}H{_share_to_x(high_share)}" '
        'style="stroke:var(--gl-accent-2);stroke-width:4"/>'
        f'<circle cx="{_share_to_x(right_count / answer_count)}" cy="{y}" r="6" '
        'style="fill:var(--gl-accent)"/>'
    )


def _share_to_x(share: float) -> str:
    return f"{_PLOT_LEFT_PX + share * (_PLOT_WIDTH_PX - _PLOT_LEFT_PX - 24):.1f}"
