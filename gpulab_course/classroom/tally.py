"""The command ``gpulab tally``: write a page with the predictions and passed exercises of a class.

The page counts the summaries that learners' kernels write to a shared folder (`gpulab_course.teach.tally`).
It does not show which answer is right, so it can be projected before the cell with the result is run.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulab.words import count
from gpulab_course import folders
from gpulab_course.teach.question import PredictionQuestion
from gpulab_course.teach.tally import FORMAT, VERSION
from virtualgpu.compile.cache import replace_file
from virtualgpu.errors import GpulabError

_MAX_FILE_BYTES = 1 << 20
_MAX_SHOWN_ANSWERS = 6
_PAGE_CSS = """
:root { color-scheme: light dark; }
body { font: 20px/1.4 system-ui, sans-serif; margin: 1rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 1.4rem 0 .3rem; } p { margin: .2rem 0; }
table { border-collapse: collapse; width: 100%; } td { padding: .1rem .5rem .1rem 0; }
td:first-child { width: 14rem; overflow-wrap: anywhere; } td:last-child { width: 9rem; text-align: right; }
.bar { height: 1.1rem; background: #0072b2; display: flex; min-width: 2px; }
.bar i { background: #e69f00; display: block; }
"""


class TallyError(GpulabError):
    """Error for a folder whose summaries cannot be counted. The message says what to change."""


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """The number of learners of a class who gave each answer to one prediction, and how many of them were
    sure.
    """

    learner_counts: Counter[str]
    sure_learner_counts: Counter[str]


@dataclass(frozen=True, slots=True)
class ClassTally:
    """The number of learners in a class, and the counts of their predictions and passed exercises."""

    learner_count: int
    answer_counts: dict[str, AnswerCounts]
    pass_counts: Counter[str]
    unreadable_files: tuple[str, ...] = ()


def main(arguments: Sequence[str]) -> int:
    """Write a page with the counts of a class's predictions and passed exercises."""
    parser = argparse.ArgumentParser(
        prog="gpulab tally",
        description="Write a page with the predictions and passed exercises of a class, and keep it up to "
        "date. Learners' kernels write into the folder that GPULAB_TALLY names.",
    )
    parser.add_argument("folder", type=Path, help="the folder that GPULAB_TALLY names")
    parser.add_argument("--page", type=Path, default=Path("tally.html"), help="the page to write")
    parser.add_argument("--notebook", default="", metavar="NN", help="only this notebook, such as 02")
    parser.add_argument(
        "--every", type=float, default=5, metavar="S", help="seconds between two updates of the page"
    )
    parser.add_argument("--once", action="store_true", help="write the page once and exit")
    options = parser.parse_args(arguments)
    if not 1 <= options.every <= 3600:
        raise TallyError(f"--every takes 1 to 3600 seconds, not {options.every:g}.")
    print(f"gpulab: open {options.page.absolute().as_uri()} in a browser. Press Ctrl+C to stop.", flush=True)
    while True:
        html = make_page(
            read_tally(options.folder), options.notebook, refresh_s=0 if options.once else options.every
        )
        replace_file(options.page, html.encode())
        if options.once:
            return 0
        time.sleep(options.every)


def read_tally(folder: Path) -> ClassTally:
    """Count the predictions and passed exercises in the summaries of a folder.

    Files that are damaged, too large or not regular files are skipped, and their names are returned.

    Raises
    ------
    TallyError
        If there is no such folder.
    """
    if not folder.is_dir():
        raise TallyError(
            f"{folder} is not a folder. Pass the folder in which GPULAB_TALLY stores the summaries."
        )
    tally = ClassTally(0, {}, Counter())
    learner_count = 0
    unreadable_files = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = _read_summary(path)
        except (OSError, ValueError, RecursionError):
            unreadable_files.append(path.name)
            continue
        learner_count += 1
        tally.pass_counts.update({name for name in record["exercises"] if name in folders.list_exercises()})
        for key, answer in record["predictions"].items():
            question = folders.find_prediction(key)
            if question is not None:
                answer_counts = tally.answer_counts.setdefault(key, AnswerCounts(Counter(), Counter()))
                value_text = _format_value(answer["value"], question)
                answer_counts.learner_counts[value_text] += 1
                answer_counts.sure_learner_counts[value_text] += answer.get("sure") is True
    return ClassTally(learner_count, tally.answer_counts, tally.pass_counts, tuple(unreadable_files))


def _read_summary(path: Path) -> dict[str, Any]:
    """Read a summary and check its structure, because learners can write anything to the folder."""
    # O_NONBLOCK: opening a named pipe must not wait; O_NOFOLLOW: a link may lead to a file of the teacher.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a file")
        file_bytes = file.read(_MAX_FILE_BYTES + 1)
    if len(file_bytes) > _MAX_FILE_BYTES:
        raise ValueError("too large")
    record = json.loads(file_bytes)
    if not isinstance(record, dict) or (record.get("format"), record.get("version")) != (FORMAT, VERSION):
        raise ValueError("no summary")
    predictions, exercises = record.get("predictions"), record.get("exercises")
    if not isinstance(predictions, dict) or not isinstance(exercises, list):
        raise ValueError("damaged")
    answers = predictions.values()
    if not all(
        isinstance(answer, dict) and isinstance(answer.get("value"), int | float | str) for answer in answers
    ):
        raise ValueError("damaged")
    if not all(isinstance(name, str) for name in exercises):
        raise ValueError("damaged")
    return record


def _format_value(value: float | str, question: PredictionQuestion) -> str:
    if isinstance(value, str):
        return value[:80]
    return f"{value:g} {question.unit}".strip()


def make_page(tally: ClassTally, notebook: str = "", *, refresh_s: float = 5) -> str:
    """Return an HTML page with the counts of a class.

    Parameters
    ----------
    tally : ClassTally
        The counts.
    notebook : str
        The notebook whose predictions and exercises are shown; all if empty.
    refresh_s : float
        The interval in seconds in which the browser reloads the page; 0 if it does not reload.
    """
    refresh_tag = f'<meta http-equiv="refresh" content="{refresh_s:g}">' if refresh_s else ""
    html_parts = [
        f"<h1>{count(tally.learner_count, 'learner')}</h1>",
        f"<p>Counted at {time.strftime('%H:%M:%S')}.</p>",
    ]
    if tally.unreadable_files:
        unreadable_names = ", ".join(tally.unreadable_files[:5])
        html_parts.append(
            f"<p>{count(len(tally.unreadable_files), 'file')} cannot be read: "
            f"{html.escape(unreadable_names)}.</p>"
        )
    for key in sorted(tally.answer_counts, reverse=True):
        if key.startswith(notebook):
            html_parts.append(_make_prediction_html(key, tally.answer_counts[key]))
    passed_names = [
        name for name in folders.list_exercises() if tally.pass_counts[name] and name.startswith(notebook)
    ]
    if passed_names:
        rows_html = "".join(
            _make_row_html(name, tally.pass_counts[name], 0, tally.learner_count) for name in passed_names
        )
        html_parts.append(f"<h2>Passed exercises</h2><table>{rows_html}</table>")
    if len(html_parts) == 2:
        html_parts.append("<p>There is no locked prediction and no passed exercise yet.</p>")
    head_html = (
        f'<meta charset="utf-8">{refresh_tag}<title>gpulab: the class</title><style>{_PAGE_CSS}</style>'
    )
    body_html = "".join(html_parts)
    return f'<!doctype html><html lang="en"><head>{head_html}</head><body>{body_html}</body></html>\n'


def _make_prediction_html(key: str, answers: AnswerCounts) -> str:
    question = folders.find_prediction(key)
    assert question is not None
    locked_count = sum(answers.learner_counts.values())
    common_answers = answers.learner_counts.most_common(_MAX_SHOWN_ANSWERS)
    rows_html = "".join(
        _make_row_html(value, learner_count, answers.sure_learner_counts[value], locked_count)
        for value, learner_count in common_answers
    )
    other_count = locked_count - sum(learner_count for _, learner_count in common_answers)
    if other_count:
        rows_html += _make_row_html("other answers", other_count, 0, locked_count)
    sure_count = sum(answers.sure_learner_counts.values())
    return (
        f"<h2>{html.escape(key)} · {html.escape(question.question)}</h2>"
        f"<p>{locked_count} locked, {sure_count} of them sure (orange).</p><table>{rows_html}</table>"
    )


def _make_row_html(name: str, learner_count: int, sure_count: int, total_count: int) -> str:
    bar_width_percent = 100 * learner_count / max(total_count, 1)
    sure_width_percent = 100 * sure_count / max(learner_count, 1)
    sure_html = f'<i style="width:{sure_width_percent:.1f}%"></i>'
    bar_html = f'<div class="bar" style="width:{bar_width_percent:.1f}%">{sure_html}</div>'
    return (
        f"<tr><td>{html.escape(name)}</td><td>{bar_html}</td><td>{learner_count} of {total_count}</td></tr>"
    )
