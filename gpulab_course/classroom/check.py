"""The command ``gpulab check``: judge answers in files, for graders, editors and scripts.

Nothing is stored. The exit status is 0 if all answers passed, 1 if one did not, and 2 if a file could not be
judged.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpulab.words import count
from gpulab_course import folders
from gpulab_course.classroom.answers import ANSWER_SUFFIXES, AnswerError, judge_file, make_printable
from gpulab_course.teach.judge.verdict import Verdict
from virtualgpu.errors import GpulabError, did_you_mean


def main(arguments: Sequence[str]) -> int:
    """Judge answers in files from the command line, without Jupyter."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    if options.all is None and not (options.exercise and options.file):
        parser.error("name an exercise and a file, or --all FOLDER")
    if options.all is not None and options.exercise:
        parser.error("--all reads the names of the exercises from the file names, so pass only a folder")
    try:
        answer_files = (
            [(options.exercise, options.file)] if options.all is None else _find_answers(options.all)
        )
    except AnswerError as error:
        print(f"gpulab: {error}", file=sys.stderr)
        return 2
    result_records = []
    for exercise_id, path in answer_files:
        result_record, verdict = _judge_file(exercise_id, path)
        if options.all is not None:
            result_record["file"] = relative_path = str(path.relative_to(options.all))
            if result_record["error"] and path.name != relative_path:
                result_record["error"] = f"{relative_path}: {result_record['error']}"
        result_records.append(result_record)
        if not options.json:
            _print_result(result_record, None if options.all else verdict)
    if options.json:
        print(json.dumps(result_records if options.all else result_records[0], indent=2, ensure_ascii=False))
    elif options.all is not None:
        passed_count = sum(result_record["passed"] for result_record in result_records)
        print(f"{passed_count} of {count(len(result_records), 'answer')} passed.")
    if any(result_record["error"] for result_record in result_records):
        return 2
    return 0 if all(result_record["passed"] for result_record in result_records) else 1


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpulab check",
        description="Judge an answer as gl.check does, without storing the result. Exit status: 0 "
        "passed, 1 not passed, 2 the file could not be judged.",
    )
    parser.add_argument("exercise", nargs="?", metavar="NN-NAME", help="such as 05-transpose")
    parser.add_argument(
        "file", nargs="?", type=Path, help="a kernel (.cu), or Python that defines the answer"
    )
    parser.add_argument(
        "--all",
        type=Path,
        metavar="FOLDER",
        help="judge every file in FOLDER and its subfolders whose name is an exercise, such as "
        "05-transpose.cu",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _find_answers(folder: Path) -> list[tuple[str, Path]]:
    """Return the exercise name and the path of each answer in a folder. An answer is a file whose name is the
    name of an exercise.

    Raises
    ------
    AnswerError
        If there is no such folder, or none of its files has the name of an exercise.
    """
    if not folder.is_dir():
        raise AnswerError(f"{folder} is not a folder.")
    exercises = folders.list_exercises()
    answer_files = []
    for path in sorted(folder.rglob("*")):
        if path.suffix not in ANSWER_SUFFIXES or not path.is_file():
            continue
        if path.stem in exercises:
            answer_files.append((path.stem, path))
        elif path.stem[:2].isdigit():
            suggestion = did_you_mean(path.stem, exercises)
            path_text = make_printable(str(path))
            print(
                f"gpulab: {path_text} is left out, because no exercise has this name.{suggestion}",
                file=sys.stderr,
            )
    if not answer_files:
        raise AnswerError(
            f"{folder} contains no answers. The name of each answer's file must be the name of its exercise, "
            "for example 05-transpose.cu."
        )
    return answer_files


def _judge_file(exercise_id: str, path: Path) -> tuple[dict[str, Any], Verdict | None]:
    """Return the verdict on a file as a dict for JSON, or the reason for which it cannot be judged."""
    result: dict[str, Any] = {"exercise": exercise_id, "file": str(path), "passed": False, "message": ""}
    result |= {"stages": [], "scores": [], "error": ""}
    try:
        # The output of answers is not part of the findings.
        with contextlib.redirect_stdout(sys.stderr):
            verdict = judge_file(exercise_id, path)
    except GpulabError as error:
        return result | {"error": str(error)}, None
    stages, scores = ([asdict(record) for record in records] for records in (verdict.stages, verdict.scores))
    verdict_data = {"passed": verdict.passed, "message": verdict.message, "stages": stages, "scores": scores}
    return result | verdict_data, verdict


def _print_result(result: dict[str, Any], verdict: Verdict | None) -> None:
    """Print a verdict with all its stages, or in one line if there are many; print errors to stderr."""
    if result["error"]:
        print(f"gpulab: {result['error']}", file=sys.stderr, flush=True)
    elif verdict is not None:
        print(verdict, flush=True)
    else:
        state_text = "passed" if result["passed"] else "not yet"
        print(f"{state_text:<7}  {make_printable(result['file'])}: {result['message']}", flush=True)
