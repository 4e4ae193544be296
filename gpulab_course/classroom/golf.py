"""The command ``gpulab golf``: maintain a file with the best scores of a class."""

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
from gpulab_course.classroom.answers import ANSWER_SUFFIXES, find_exercise, judge_file, make_printable
from virtualgpu.errors import GpulabError

FORMAT = "gpulab-golf"
VERSION = 1
_MAX_FILE_BYTES = 16 << 20
_MAX_NAME_LENGTH = 60


class GolfError(GpulabError):
    """Error for a score that cannot be stored, or for a file of scores that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GolfEntry:
    """The best score of a class for one counter of an exercise, with the name of its author and the date.

    The attribute ``rules`` is the version of the exercise's rules at that time. Scores under other rules are
    not compared. ``sha256`` is the digest of the answer's bytes.
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
    """Maintain a file with the best scores of a class from the command line.

    The command enters an answer, judges the answers in a folder again, or prints the table. Returns 1 if an
    answer failed.
    """
    parser = argparse.ArgumentParser(
        prog="gpulab golf",
        description="Maintain a file of best scores: the fewest sectors, requests or launches. An "
        "entry needs an answer that passes. The file stores a digest of the answer, not "
        "the answer.",
    )
    parser.add_argument("file", type=Path, help="the file of scores; the first entry creates it")
    parser.add_argument("exercise", nargs="?", metavar="NN-NAME", help="such as 05-transpose")
    parser.add_argument("answer", nargs="?", type=Path, help="a .cu or .py file, as for `gpulab check`")
    parser.add_argument("--name", default="", help="the name of the author")
    parser.add_argument(
        "--verify", type=Path, metavar="FOLDER", help="judge those entries again whose answers are in FOLDER"
    )
    options = parser.parse_args(arguments)
    if options.exercise is None:
        entries = read_entries(options.file)
        return _verify_entries(entries, options.verify) if options.verify else _print_table(entries)
    name = "".join(filter(str.isprintable, options.name)).strip()[:_MAX_NAME_LENGTH]
    if options.answer is None or not name or options.verify:
        parser.error("to enter a score, pass an exercise, a file and --name, and nothing else")
    sentences = enter_scores(options.file, options.exercise, options.answer, name)
    print(
        "\n".join(sentences)
        or (f"{options.exercise}: passed, but the score is not better than the stored one.")
    )
    return 0 if sentences else 1


def read_entries(path: Path) -> tuple[GolfEntry, ...]:
    """Return the entries of a file of scores, or an empty list if the file does not exist.

    Raises
    ------
    GolfError
        If the file is not a file of scores. The file is not changed.
    """
    if not path.exists():
        return ()
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ValueError
        file_data = json.loads(path.read_text(encoding="utf-8"))
        if (file_data["format"], file_data["version"]) != (FORMAT, VERSION):
            raise ValueError
        entries = tuple(
            GolfEntry(**{field.name: _make_value_printable(row[field.name]) for field in fields(GolfEntry)})
            for row in file_data["entries"]
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
        raise GolfError(
            f"{path} is not a file of scores, so it was not changed. Choose another file."
        ) from None


def _make_value_printable(value: Any) -> Any:
    return make_printable(value) if isinstance(value, str) else value


def enter_scores(path: Path, exercise_id: str, answer: Path, name: str) -> list[str]:
    """Judge an answer, and store its scores that are better than those in the file.

    Returns
    -------
    list
        A sentence for each new best score; empty if no score is better.

    Raises
    ------
    GolfError
        If the answer does not pass, the exercise has no score, or the file is not a file of scores.
    AnswerError, UnknownExerciseError
        As for `gpulab_course.classroom.answers.judge_file`.
    """
    read_entries(path)  # before the answer is judged
    scores = _judge_scores(exercise_id, answer)
    digest = _hash_file(answer)
    rules_version = int(getattr(find_exercise(exercise_id), "rules", 0))
    sentences = list[str]()
    today = datetime.now(UTC).date().isoformat()
    with FileLock(f"{path}.lock", timeout=60):
        entries = {(entry.exercise, entry.counter): entry for entry in read_entries(path)}
        for counter, (score, reference, score_text) in scores.items():
            previous_entry = entries.get((exercise_id, counter))
            if (
                previous_entry is not None
                and previous_entry.rules == rules_version
                and previous_entry.score <= score
            ):
                continue
            entries[exercise_id, counter] = GolfEntry(
                exercise=exercise_id,
                counter=counter,
                score=score,
                reference=reference,
                name=name,
                sha256=digest,
                rules=rules_version,
                date=today,
                gpulab=gpulab.__version__,
            )
            previous_text = (
                f", previously {previous_entry.score:,} by {previous_entry.name}"
                if previous_entry is not None
                else ""
            )
            sentences.append(f"{exercise_id}: {score_text}; reference {reference:,}{previous_text}.")
        if sentences:
            _write_entries(path, sorted(entries.values(), key=lambda entry: (entry.exercise, entry.counter)))
    return sentences


def _write_entries(path: Path, entries: Iterable[GolfEntry]) -> None:
    file_data = {"format": FORMAT, "version": VERSION, "entries": [asdict(entry) for entry in entries]}
    temporary_path = path.with_name(f"{path.name}.{os.getpid()}")
    temporary_path.write_text(json.dumps(file_data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary_path.replace(path)


def _judge_scores(exercise_id: str, answer: Path) -> dict[str, tuple[int, int, str]]:
    """Judge an answer, and return its scores by counter. Each score has its value, the reference's value and
    a text.
    """
    with contextlib.redirect_stdout(sys.stderr):
        verdict = judge_file(exercise_id, answer)
    if not verdict:
        raise GolfError(f"The answer does not pass, so its score was not stored: {verdict!r}")
    scores = {
        score.counter: (score.yours, score.reference, score.count_text)
        for score in verdict.scores
        if score.golf
    }
    if not scores:
        raise GolfError(f"{exercise_id} has no score to compare. Exercises such as 05-transpose have one.")
    return scores


def _verify_entries(entries: Sequence[GolfEntry], folder: Path) -> int:
    """Judge the answers in a folder again, and print which entries are confirmed."""
    if not folder.is_dir():
        raise GolfError(f"{folder} is not a folder.")
    path_of_digest = {
        _hash_file(path): path
        for path in sorted(folder.rglob("*"))
        if path.suffix in ANSWER_SUFFIXES and path.is_file()
    }
    confirmed_count = 0
    judged_scores = dict[tuple[str, str], dict[str, tuple[int, int, str]] | str]()
    for entry in entries:
        key = (entry.exercise, entry.sha256)
        result_text = "the folder has no answer with the stored digest"
        if entry.sha256 in path_of_digest:
            if key not in judged_scores:
                try:
                    judged_scores[key] = _judge_scores(entry.exercise, path_of_digest[entry.sha256])
                except GpulabError as error:
                    judged_scores[key] = str(error)
            scores = judged_scores[key]
            if isinstance(scores, str):
                result_text = scores
            elif entry.counter not in scores:
                result_text = "judged again: the exercise has no such score"
            elif (score := scores[entry.counter][0]) > entry.score:
                result_text = f"judged again: {score:,}"
            else:
                confirmed_count = confirmed_count + 1
                result_text = "borne out"
        print(f"{entry.exercise}, {entry.counter}: {entry.score:,} by {entry.name}: {result_text}")
    print(f"{confirmed_count} of {count(len(entries), 'entry', 'entries')} confirmed.")
    return 0 if confirmed_count == len(entries) else 1


def _hash_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise GolfError(f"{path} cannot be read: {error.strerror or error}.") from None


def _print_table(entries: Sequence[GolfEntry]) -> int:
    entry_rows = tuple(
        (
            entry.exercise,
            entry.counter,
            f"{entry.score:,}",
            f"{entry.reference:,}",
            entry.name,
            entry.date,
            entry.sha256[:12],
        )
        for entry in entries
    )
    headings = ("exercise", "counter", "best", "reference", "name", "date", "digest")
    print(Table("Best scores, counted on the virtual GPU", headings, entry_rows).text())
    return 0
