"""``gpulab report``: a class's progress files (``gl.progress().save("progress.json")``) as one table."""

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
from gpulab_course.classroom.answers import printable
from virtualgpu.errors import GpulabError

FORMAT = "gpulab-progress"
VERSION = 1
_MOST_BYTES = 16 << 20
_HEADINGS = ("learner", "last", "exercises", "predictions", "sure", "guesses", "quiz")


class ReportError(GpulabError):
    """Files that make no table; the message says what to change."""


Share = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """The results of one learner's file: how many are right or passed, and how many there are.

    ``last`` is the last notebook that was begun; of predictions only compared ones count.
    """

    learner: str
    file: str
    last: str
    exercises: Share
    predictions: Share
    sure: Share
    guesses: Share
    quiz: Share
    notebooks: dict[str, Share]


def main(arguments: Sequence[str]) -> int:
    """Print the progress files of a class as one table; return 1 if a file was left out."""
    parser = argparse.ArgumentParser(
        prog="gpulab report",
        description="A class's progress files in one table. Files are read and never written.",
    )
    parser.add_argument("folder", type=Path, help="files of gl.progress().save(...), in folders or not")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--csv", action="store_true", help="print CSV, with a column for each notebook")
    kind.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    learners, left_out = read(options.folder)
    for sentence in left_out:
        print(f"gpulab: {sentence}", file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(learner) for learner in learners], indent=2, ensure_ascii=False))
    elif options.csv:
        print(as_csv(learners), end="")
    else:
        print(as_table(learners).text())
    return 1 if left_out else 0


def read(folder: Path) -> tuple[list[Learner], list[str]]:
    """Read the ``.json`` files in a folder and below; return learners, and a sentence for each file left out.

    Raises
    ------
    ReportError
        If there is no such folder, or no such file in it.
    """
    if not folder.is_dir():
        raise ReportError(f"{folder} is no folder.")
    files = [path for path in sorted(folder.rglob("*.json")) if path.is_file()]
    learners = []
    left_out = []
    for path in files:
        name = path.relative_to(folder)
        try:
            learners.append(_learner(path, name))
        except OSError as error:
            left_out.append(f"{name} is left out: {error.strerror or error}.")
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            left_out.append(f"{name} is left out: it is no progress file, or damaged ({why}).")
    if not files:
        raise ReportError(f'{folder} holds no .json file; learners make one: gl.progress().save("ada.json").')
    return learners, left_out


def as_table(learners: Iterable[Learner]) -> Table:
    """Return a table with a row for each learner."""
    rows = []
    for learner in learners:
        shares = (learner.exercises, learner.predictions, learner.sure, learner.guesses, learner.quiz)
        rows.append((learner.learner, learner.last, *(f"{right} of {total}" for right, total in shares)))
    return Table(f"Progress of {count(len(rows), 'learner')}", _HEADINGS, tuple(rows))


def as_csv(learners: Sequence[Learner]) -> str:
    """Return CSV with a row for each learner; the exercises passed in each notebook come last."""
    numbers = sorted({number for learner in learners for number in learner.notebooks})
    names = [f"{name}{end}" for name in _HEADINGS[2:] for end in ("", " of")]
    headings = [f"{number}{end}" for number in numbers for end in ("", " of")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["learner", "file", "last", *names, *headings])
    for learner in learners:
        shares = [learner.exercises, learner.predictions, learner.sure, learner.guesses, learner.quiz]
        values: list[Any] = [figure for share in shares for figure in share]
        values += [figure for number in numbers for figure in learner.notebooks.get(number, ("", ""))]
        writer.writerow([_inert(learner.learner), _inert(learner.file), learner.last, *values])
    return text.getvalue()


def _inert(text: str) -> str:
    """Return text that no spreadsheet interprets as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _learner(path: Path, name: Path) -> Learner:
    """Read a file that anybody may have written.

    Raises
    ------
    ValueError
        If it is no progress file.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
    record = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    if record.get("version") != VERSION:
        raise ValueError(f"version {record.get('version')!r}, not {VERSION}: install the newest gpulab")
    notebooks = {_field(notebook, "number", str): notebook for notebook in _list(record, "notebooks")}
    if not all(len(number) == 2 and number.isdecimal() for number in notebooks):
        raise ValueError("a notebook without its number")
    predictions = [p for notebook in notebooks.values() for p in _list(notebook, "predictions")]
    answered = [a for notebook in notebooks.values() for a in _list(notebook, "quiz")]
    passed = {number: _passed(notebook) for number, notebook in notebooks.items()}
    sure, guesses = ([p for p in predictions if p.get("sure") is kind] for kind in (True, False))
    started = [number for number, notebook in notebooks.items() if _begun(notebook)]
    return Learner(
        learner=printable(name.parent.name if name.stem == "progress" and name.parent.name else name.stem),
        file=printable(str(name)),
        last=max(started, default="none yet"),
        notebooks=passed,
        exercises=(sum(right for right, _ in passed.values()), sum(total for _, total in passed.values())),
        predictions=_right(predictions),
        sure=_right(sure),
        guesses=_right(guesses),
        quiz=(_right(answered)[0], len(answered)),
    )


def _list(record: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = _field(record, key, list)
    if not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{key!r} holds something else")
    return list(items)


def _field(record: dict[str, Any], key: str, kind: type) -> Any:
    if not isinstance(value := record.get(key), kind):
        raise ValueError(f"{key!r} is missing")
    return value


def _passed(notebook: dict[str, Any]) -> Share:
    exercises = _list(notebook, "exercises")
    return sum(exercise.get("passed") is True for exercise in exercises), len(exercises)


def _right(things: Sequence[dict[str, Any]]) -> Share:
    """Return how many were right, and how many were compared or answered."""
    outcomes = [thing["right"] for thing in things if isinstance(thing.get("right"), bool)]
    return sum(outcomes), len(outcomes)


def _begun(notebook: dict[str, Any]) -> bool:
    predicted = any(p.get("value") is not None for p in _list(notebook, "predictions"))
    return predicted or _passed(notebook)[0] > 0 or _right(_list(notebook, "quiz"))[1] > 0
