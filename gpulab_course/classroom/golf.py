"""``gpulab golf``: a file of best scores, each entered with an answer that passes; a digest of it stays."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

import gpulab
from gpulab.views.tables import Table
from gpulab.words import count
from gpulab_course.classroom.answers import SUFFIXES, exercise_called, judged, printable
from virtualgpu.errors import GpulabError

FORMAT = "gpulab-golf"
VERSION = 1
_MOST_BYTES = 16 << 20
_LONGEST_NAME = 60


class GolfError(GpulabError):
    """A score that cannot be entered, or a file that cannot be read; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The best score of a counter in an exercise, with the name of its owner and the circumstances.

    ``rules`` are the exercise's at that time: a figure under other rules is not compared with.
    ``sha256`` is the digest of the answer's bytes.
    """

    exercise: str
    counter: str
    score: int
    reference: int
    name: str
    sha256: str
    rules: int
    date: str
    gpulab: str


def main(arguments: Sequence[str]) -> int:
    """Keep a file of best scores, entered with answers that pass.

    Enters an answer, judges the answers in a folder again, or prints the table; returns 1 if one failed.
    """
    parser = argparse.ArgumentParser(
        prog="gpulab golf",
        description="A file of best scores: the fewest sectors, requests, launches. An entry takes an answer "
        "that passes; the file keeps its digest, not the answer.",
    )
    parser.add_argument("file", type=Path, help="the file of scores; made with the first entry")
    parser.add_argument("exercise", nargs="?", metavar="NN-NAME", help="such as 05-transpose")
    parser.add_argument("answer", nargs="?", type=Path, help="a .cu or .py file, as `gpulab check` takes it")
    parser.add_argument("--name", default="", help="whose answer it is")
    parser.add_argument(
        "--verify", type=Path, metavar="FOLDER", help="judge the entries whose answers are in FOLDER again"
    )
    options = parser.parse_args(arguments)
    if options.exercise is None:
        entries = read(options.file)
        return _verify(entries, options.verify) if options.verify else _say(entries)
    name = "".join(filter(str.isprintable, options.name)).strip()[:_LONGEST_NAME]
    if options.answer is None or not name or options.verify:
        parser.error("an entry takes an exercise, a file and --name, and nothing else")
    better = enter(options.file, options.exercise, options.answer, name)
    print("\n".join(better) or f"{options.exercise}: passed, and no better than what is there.")
    return 0 if better else 1


def read(path: Path) -> tuple[Entry, ...]:
    """The entries of a file; none where there is no file.

    Raises
    ------
    GolfError
        If it holds anything else. It is left as it is.
    """
    if not path.exists():
        return ()
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError
        data = json.loads(path.read_text(encoding="utf-8"))
        if (data["format"], data["version"]) != (FORMAT, VERSION):
            raise ValueError
        entries = tuple(
            Entry(**{field.name: _shown(row[field.name]) for field in fields(Entry)})
            for row in data["entries"]
        )
        if not all(
            type(value) is (int if key in ("score", "reference", "rules") else str)
            for entry in entries
            for key, value in asdict(entry).items()
        ):
            raise ValueError
        return entries
    except OSError as error:
        raise GolfError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise GolfError(f"{path} is no file of scores, and stays as it is: name another.") from None


def _shown(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def enter(path: Path, exercise_id: str, answer: Path, name: str) -> list[str]:
    """Judge an answer, and put what it does better into the file.

    Returns
    -------
    list
        A sentence for each figure that is a new best; none where all are as good already.

    Raises
    ------
    GolfError
        If the answer does not pass, the exercise keeps no score, or the file is none of scores.
    AnswerError, UnknownExerciseError
        As `gpulab_course.classroom.answers.judged`.
    """
    read(path)  # before the answer is judged
    figures = _figures(exercise_id, answer)
    digest = _digest(answer)
    rules = int(getattr(exercise_called(exercise_id), "rules", 0))
    sentences = list[str]()
    today = datetime.now(UTC).date().isoformat()
    with FileLock(f"{path}.lock", timeout=60):
        best = {(e.exercise, e.counter): e for e in read(path)}
        for counter, (score, reference, words) in figures.items():
            previous = best.get((exercise_id, counter))
            if previous is not None and previous.rules == rules and previous.score <= score:
                continue
            best[exercise_id, counter] = Entry(
                exercise=exercise_id,
                counter=counter,
                score=score,
                reference=reference,
                name=name,
                sha256=digest,
                rules=rules,
                date=today,
                gpulab=gpulab.__version__,
            )
            suffix = f", before {previous.score:,} by {previous.name}" if previous is not None else ""
            sentences.append(f"{exercise_id}: {words}; reference {reference:,}{suffix}.")
        if sentences:
            _write(path, sorted(best.values(), key=lambda e: (e.exercise, e.counter)))
    return sentences


def _write(path: Path, entries: Iterable[Entry]) -> None:
    data = {"format": FORMAT, "version": VERSION, "entries": [asdict(entry) for entry in entries]}
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def _figures(exercise_id: str, answer: Path) -> dict[str, tuple[int, int, str]]:
    """Return value, reference and words of each counter that an answer is scored in; it must pass."""
    with contextlib.redirect_stdout(sys.stderr):
        verdict = judged(exercise_id, answer)
    if not verdict:
        raise GolfError(f"It does not pass, and is not entered: {verdict!r}")
    figures = {
        score.counter: (score.yours, score.reference, score.figure) for score in verdict.scores if score.golf
    }
    if not figures:
        raise GolfError(f"{exercise_id} has no figure to be better in; 05-transpose has, for one.")
    return figures


def _verify(entries: Sequence[Entry], folder: Path) -> int:
    """Judge the answers in a folder again, and print which entries they confirm."""
    if not folder.is_dir():
        raise GolfError(f"{folder} is no folder.")
    files = {
        _digest(path): path
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES and path.is_file()
    }
    borne_out = 0
    judged_figures = dict[tuple[str, str], dict[str, tuple[int, int, str]] | str]()
    for entry in entries:
        key = (entry.exercise, entry.sha256)
        result = "no answer with its digest is there"
        if entry.sha256 in files:
            if key not in judged_figures:
                try:
                    judged_figures[key] = _figures(entry.exercise, files[entry.sha256])
                except GpulabError as error:
                    judged_figures[key] = str(error)
            figures = judged_figures[key]
            if isinstance(figures, str):
                result = figures
            elif entry.counter not in figures:
                result = "judged again: no such figure"
            elif (score := figures[entry.counter][0]) > entry.score:
                result = f"judged again: {score:,}"
            else:
                borne_out = borne_out + 1
                result = "borne out"
        print(f"{entry.exercise}, {entry.counter}: {entry.score:,} by {entry.name}: {result}")
    print(f"{borne_out} of {count(len(entries), 'entry', 'entries')} borne out.")
    return 0 if borne_out == len(entries) else 1


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise GolfError(f"{path} cannot be read: {error.strerror or error}.") from None


def _say(entries: Sequence[Entry]) -> int:
    rows = tuple(
        (e.exercise, e.counter, f"{e.score:,}", f"{e.reference:,}", e.name, e.date, e.sha256[:12])
        for e in entries
    )
    headings = ("exercise", "counter", "best", "reference", "name", "date", "digest")
    print(Table("Best scores, counted on the virtual GPU", headings, rows).text())
    return 0
