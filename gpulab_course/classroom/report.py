"""The command ``gpulab report``: print one table from the progress files of a class.

Learners write these files with ``gl.progress().save("progress.json")``.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpulab.views.tables import Table
from gpulab.words import count
from gpulab_course.classroom.answers import make_printable
from virtualgpu.errors import GpulabError

FORMAT = "gpulab-progress"
VERSION = 1
_MAX_FILE_BYTES = 16 << 20
_HEADINGS = ("learner", "last", "exercises", "predictions", "sure", "guesses", "quiz")


class ReportError(GpulabError):
    """Error for a folder without usable progress files. The message says what to change."""


RightAndTotal = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """The numbers of passed exercises, right predictions and right quiz answers in one learner's progress
    file.

    The attribute ``last`` is the last notebook with results. Only predictions that were compared are counted.
    """

    learner: str
    file: str
    last: str
    exercises: RightAndTotal
    predictions: RightAndTotal
    sure: RightAndTotal
    guesses: RightAndTotal
    quiz: RightAndTotal
    notebooks: dict[str, RightAndTotal]


def main(arguments: Sequence[str]) -> int:
    """Print a table of the learners' results from the progress files of a class."""
    parser = argparse.ArgumentParser(
        prog="gpulab report",
        description="Print a class's progress files in one table. The files are only read.",
    )
    parser.add_argument(
        "folder", type=Path, help="folder with files of gl.progress().save(...); subfolders are searched, too"
    )
    format_group = parser.add_mutually_exclusive_group()
    format_group.add_argument("--csv", action="store_true", help="print CSV, with a column for each notebook")
    format_group.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    learners, warnings = read_learners(options.folder)
    for sentence in warnings:
        print(f"gpulab: {sentence}", file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(learner) for learner in learners], indent=2, ensure_ascii=False))
    elif options.csv:
        print(make_csv(learners), end="")
    else:
        print(make_table(learners).text())
    return 1 if warnings else 0


def read_learners(folder: Path) -> tuple[list[Learner], list[str]]:
    """Read all ``.json`` files below a folder. Return the learners, and one sentence for each skipped file.

    Raises
    ------
    ReportError
        If there is no such folder, or no such file in it.
    """
    if not folder.is_dir():
        raise ReportError(f"{folder} is not a folder.")
    files = [path for path in sorted(folder.rglob("*.json")) if path.is_file()]
    learners = []
    warnings = []
    for path in files:
        name = path.relative_to(folder)
        try:
            learners.append(_read_learner(path, name))
        except OSError as error:
            warnings.append(f"{name} is left out: {error.strerror or error}.")
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            warnings.append(f"{name} is left out: it is not a progress file, or it is damaged ({reason}).")
    if not files:
        raise ReportError(
            f'{folder} has no .json file. Learners create theirs with gl.progress().save("ada.json").'
        )
    return learners, warnings


def make_table(learners: Iterable[Learner]) -> Table:
    """Return a text table of the results, with one row per learner."""
    learner_rows = []
    for learner in learners:
        count_pairs = (learner.exercises, learner.predictions, learner.sure, learner.guesses, learner.quiz)
        learner_rows.append(
            (
                learner.learner,
                learner.last,
                *(f"{right_count} of {answer_count}" for right_count, answer_count in count_pairs),
            )
        )
    return Table(f"Progress of {count(len(learner_rows), 'learner')}", _HEADINGS, tuple(learner_rows))


def make_csv(learners: Sequence[Learner]) -> str:
    """Return the learners' results as CSV, with one row per learner."""
    notebook_numbers = sorted(
        {notebook_number for learner in learners for notebook_number in learner.notebooks}
    )
    column_names = [f"{name}{suffix}" for name in _HEADINGS[2:] for suffix in ("", " of")]
    notebook_headings = [
        f"{notebook_number}{suffix}" for notebook_number in notebook_numbers for suffix in ("", " of")
    ]
    csv_buffer = io.StringIO()
    writer = csv.writer(csv_buffer, lineterminator="\n")
    writer.writerow(["learner", "file", "last", *column_names, *notebook_headings])
    for learner in learners:
        count_pairs = [learner.exercises, learner.predictions, learner.sure, learner.guesses, learner.quiz]
        cells: list[Any] = [cell for count_pair in count_pairs for cell in count_pair]
        cells += [
            cell
            for notebook_number in notebook_numbers
            for cell in learner.notebooks.get(notebook_number, ("", ""))
        ]
        writer.writerow(
            [_escape_formula(learner.learner), _escape_formula(learner.file), learner.last, *cells]
        )
    return csv_buffer.getvalue()


def _escape_formula(text: str) -> str:
    """Return text in a form that a spreadsheet does not interpret as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _read_learner(path: Path, name: Path) -> Learner:
    """Read a learner's progress file, and check its structure, because anybody can have written the file.

    Raises
    ------
    ValueError
        If it is not a progress file.
    """
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise ValueError(f"the file has more than {_MAX_FILE_BYTES >> 20} MiB")
    record = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    if record.get("version") != VERSION:
        raise ValueError(
            f"its version is {record.get('version')!r}, not {VERSION}: install the newest gpulab"
        )
    notebooks = {
        _read_field(notebook, "number", str): notebook for notebook in _read_record_list(record, "notebooks")
    }
    if not all(len(notebook_number) == 2 and notebook_number.isdecimal() for notebook_number in notebooks):
        raise ValueError("a notebook has no number")
    predictions = [
        prediction
        for notebook in notebooks.values()
        for prediction in _read_record_list(notebook, "predictions")
    ]
    quiz_answers = [
        answer for notebook in notebooks.values() for answer in _read_record_list(notebook, "quiz")
    ]
    passed_by_notebook = {
        notebook_number: _count_passed(notebook) for notebook_number, notebook in notebooks.items()
    }
    sure_predictions = [prediction for prediction in predictions if prediction.get("sure") is True]
    guessed_predictions = [prediction for prediction in predictions if prediction.get("sure") is False]
    started_notebooks = [
        notebook_number for notebook_number, notebook in notebooks.items() if _is_begun(notebook)
    ]
    return Learner(
        learner=make_printable(
            name.parent.name if name.stem == "progress" and name.parent.name else name.stem
        ),
        file=make_printable(str(name)),
        last=max(started_notebooks, default="none yet"),
        notebooks=passed_by_notebook,
        exercises=(
            sum(passed_count for passed_count, _ in passed_by_notebook.values()),
            sum(exercise_count for _, exercise_count in passed_by_notebook.values()),
        ),
        predictions=_count_right(predictions),
        sure=_count_right(sure_predictions),
        guesses=_count_right(guessed_predictions),
        quiz=(_count_right(quiz_answers)[0], len(quiz_answers)),
    )


def _read_record_list(record: dict[str, Any], key: str) -> list[dict[str, Any]]:
    records = _read_field(record, key, list)
    if not all(isinstance(field_record, dict) for field_record in records):
        raise ValueError(f"the value of {key!r} has the wrong type")
    return list(records)


def _read_field(record: dict[str, Any], key: str, value_type: type) -> Any:
    if not isinstance(value := record.get(key), value_type):
        raise ValueError(f"{key!r} is missing")
    return value


def _count_passed(notebook: dict[str, Any]) -> RightAndTotal:
    exercises = _read_record_list(notebook, "exercises")
    return sum(exercise.get("passed") is True for exercise in exercises), len(exercises)


def _count_right(results: Sequence[dict[str, Any]]) -> RightAndTotal:
    """Return the number of right results, and the number of results that are either right or wrong."""
    right_flags = [result["right"] for result in results if isinstance(result.get("right"), bool)]
    return sum(right_flags), len(right_flags)


def _is_begun(notebook: dict[str, Any]) -> bool:
    has_prediction = any(
        prediction.get("value") is not None for prediction in _read_record_list(notebook, "predictions")
    )
    return (
        has_prediction
        or _count_passed(notebook)[0] > 0
        or _count_right(_read_record_list(notebook, "quiz"))[1] > 0
    )
