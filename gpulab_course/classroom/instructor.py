"""The command ``gpulab instructor 05a``: print a page for instructors about one notebook.

The page is generated from the minutes and stored outputs of the notebook, the misconceptions in predictions
and questions, and the common mistakes in ``shown_answers.py``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpulab_course import folders
from gpulab_course.content import copies
from gpulab_course.teach.question import PredictionQuestion, Question
from virtualgpu.errors import GpulabError, did_you_mean

_TEACHING_TABLE = Path(copies.__file__).with_name("teaching.toml")
_HEADING_PATTERN = re.compile(r"^(?P<marks>##?) (?P<title>.*?)(?: \((?P<minutes>\d+) min\))?$", re.M)
_TOTAL_MINUTES_PATTERN = re.compile(r"\*\*(\d+) minutes")
_COURSE_CALL_PATTERN = re.compile(r'gl\.(predict|reveal|check|quiz)\(\s*"([\w-]+)"')
_SOLUTION_PATTERN = re.compile(r"<summary>Solution of ([\w-]+)</summary>\s*(.*?)\s*</details>", re.S)
_ANSWER_FOLD_PATTERN = re.compile(r"<details><summary>(Answers?[^<]*)</summary>\s*(.*?)\s*</details>", re.S)
_STATUS_CALL_PATTERN = re.compile(r"gl\.(which_device|use_device|progress)\(")
# The output of the stored notebook where no prediction was made.
_REVEAL_TEXT_PATTERN = re.compile(
    r"^No prediction\. (.*?)(?: The usual wrong answer: (.*?)\.)?((?: [A-Z].*)?)$", re.S
)


class InstructorError(GpulabError):
    """Error for a notebook that does not exist. The message lists all notebooks."""


def main(arguments: Sequence[str]) -> int:
    """Print the instructor's page about a notebook, or write the pages of all notebooks to a folder."""
    parser = argparse.ArgumentParser(
        prog="gpulab instructor",
        description="Print a page for instructors: minutes, cells to project, misconceptions, answers.",
    )
    parser.add_argument(
        "notebook", nargs="?", metavar="NN", help="the start of the notebook's name, such as 05a"
    )
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write a page per notebook to FOLDER")
    parser.add_argument("--html", action="store_true", help="HTML instead of Markdown")
    options = parser.parse_args(arguments)
    if (options.notebook is None) == (options.all is None):
        parser.error("name a notebook, or --all FOLDER")
    if options.all is None:
        print(_format_page(make_page(options.notebook), options.html))
        return 0
    options.all.mkdir(parents=True, exist_ok=True)
    for notebook_number in find_notebooks():
        path = options.all / f"{notebook_number}.{'html' if options.html else 'md'}"
        path.write_text(_format_page(make_page(notebook_number), options.html) + "\n", encoding="utf-8")
        print(path, file=sys.stderr)
    return 0


def find_notebooks() -> dict[str, Path]:
    """Return the paths of the course's notebooks in a dict whose keys are numbers such as ``05a``."""
    return {name.split("_")[0]: path for name, path in copies.find_originals().items() if name[0].isdigit()}


def make_page(number: str) -> str:
    """Return the instructor's page about a notebook in Markdown.

    Raises
    ------
    InstructorError
        If there is no such notebook.
    """
    paths = find_notebooks()
    if number not in paths:
        suggestion = did_you_mean(number, paths)
        raise InstructorError(f"There is no notebook {number!r}.{suggestion} Notebooks: {', '.join(paths)}.")
    cells = json.loads(paths[number].read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(_make_page_parts([(cell, "".join(cell["source"])) for cell in cells], number))


CellsWithSource = list[tuple[dict[str, Any], str]]


def _make_page_parts(cells: CellsWithSource, notebook_number: str) -> Iterator[str]:
    markdown_text = "\n\n".join(cell_source for cell, cell_source in cells if cell["cell_type"] == "markdown")
    minutes_match = _TOTAL_MINUTES_PATTERN.search(markdown_text)
    title = next(heading["title"] for heading in _HEADING_PATTERN.finditer(markdown_text))
    yield f"# {title}: for the instructor"
    yield (
        (f"{minutes_match[1]} minutes in total. " if minutes_match else "")
        + "This page is made from the notebook, with its stored results, and from the course's code."
    )
    yield from _make_advice_parts(
        notebook_number, [heading["title"] for heading in _HEADING_PATTERN.finditer(markdown_text)]
    )
    yield "## Sections and minutes"
    yield "\n".join(
        f"- {heading['title']}" + (f": {heading['minutes']} min" if heading["minutes"] else "")
        for heading in _HEADING_PATTERN.finditer(markdown_text)
        if heading["marks"] == "##"
    )
    yield "## What to project"
    yield "\n".join(_list_cells_to_project(cells))
    course_calls = [
        (call_kind, key, cell)
        for cell, cell_source in cells
        for call_kind, key in _COURSE_CALL_PATTERN.findall(cell_source)
    ]
    results_by_call: dict[str, dict[str, str]] = {call_kind: {} for call_kind, *_ in course_calls}
    for call_kind, key, cell in course_calls:
        results_by_call[call_kind][key] = _read_stored_result(cell)
    yield "## Predictions"
    for key in dict.fromkeys(key for call_kind, key, _ in course_calls if call_kind == "predict"):
        if (question := folders.find_prediction(key)) is not None:
            reveal_text = results_by_call.get("reveal", {}).get(key, "")
            yield _make_prediction_text(question, results_by_call["predict"].get(key, ""), reveal_text)
    yield "## Exercises"
    solutions = dict(_SOLUTION_PATTERN.findall(markdown_text))
    mistakes = _list_mistake_lines(notebook_number[:2])
    for name in dict.fromkeys(key for call_kind, key, _ in course_calls if call_kind == "check"):
        yield from _make_exercise_parts(name, solutions.get(name, ""), mistakes.get(name, []))
    yield "## Questions"
    topics = [key for call_kind, key, _ in course_calls if call_kind == "quiz"]
    for topic in topics:
        yield from _make_quiz_parts(topic)
    for summary_text, answers_text in _ANSWER_FOLD_PATTERN.findall(markdown_text):
        yield f"**{summary_text}.**\n\n{answers_text}"
    if not topics:
        yield "The quiz of this topic is in the last notebook of the topic."


def _make_advice_parts(notebook_number: str, section_titles: list[str]) -> Iterator[str]:
    """Yield the sections on the most important thing and on what to leave out."""
    teaching_advice = tomllib.loads(_TEACHING_TABLE.read_text(encoding="utf-8"))[notebook_number]
    yield "## If you teach one thing"
    question = folders.find_prediction(teaching_advice["prediction"])
    question_text = f" Ask first ({question.key}): {question.question}" if question else ""
    yield teaching_advice["one_thing"] + question_text
    yield "## What to skip if time is short"
    skipped_titles = [
        title
        for name in teaching_advice["skip"]
        for title in section_titles
        if title.startswith(f"{name} · ")
    ]
    yield "\n".join(f"- {title}" for title in skipped_titles)


def _list_cells_to_project(cells: CellsWithSource) -> Iterator[str]:
    """Yield the cells worth showing on a projector: those whose stored output is a picture or a table."""
    section_title = ""
    for cell, cell_source in cells:
        if cell["cell_type"] == "markdown":
            section_title = next(
                (heading["title"] for heading in _HEADING_PATTERN.finditer(cell_source)), section_title
            )
        if _COURSE_CALL_PATTERN.search(cell_source) or _STATUS_CALL_PATTERN.search(cell_source):
            continue
        for output in cell.get("outputs", ()):
            kind_of_mime_type = {"image/png": "picture", "text/html": "table"}
            if output_kind := next(
                (
                    kind_of_mime_type[output_kind]
                    for output_kind in kind_of_mime_type
                    if output_kind in output.get("data", {})
                ),
                "",
            ):
                description = _read_output_text(output).split("\n")[0]
                yield f"- *{section_title}*, cell `{cell['id']}`, {output_kind}: {description}"


def _make_prediction_text(question: PredictionQuestion, question_text: str, reveal_text: str) -> str:
    question_text = question_text.split("\n")[0].removeprefix("Predict: ") or question.question
    match = _REVEAL_TEXT_PATTERN.match(reveal_text)
    wrong_answer = (match and match[2]) or f"{question.comparison} {question.unit}".rstrip()
    lines = [f"**{question.key}.** {question_text}"]
    if question.choices:
        lines.append(f"  - Choices: {' / '.join(map(str, question.choices))}")
    if question.comparison is not None:
        lines.append(f"  - The usual wrong answer: {wrong_answer}")
    lines.append(f"  - The misconception behind it: {question.misconception}")
    lines.append(f"  - Result: {f'{match[1]}{match[3]}' if match else reveal_text or question.because}")
    return "\n".join(lines)


def _make_exercise_parts(name: str, solution: str, mistakes: list[str]) -> Iterator[str]:
    exercise = folders.find_exercise(name)
    if exercise is None:
        return
    yield f"### {name} · {exercise.title} ({exercise.level}, {exercise.kind})"
    yield f"An answer that passes:\n\n{solution}"
    if mistakes:
        yield "\n".join(("Common wrong answers, and a part of the judge's message:\n", *mistakes))


def _list_mistake_lines(notebook_number: str) -> dict[str, list[str]]:
    """Return lines of Markdown about the common wrong answers to each exercise."""
    lines_of_exercise: dict[str, list[str]] = {}
    for folder in folders.list_folders():
        for answer in folder.shown_answers if folder.number == notebook_number else ():
            stage_text = f" (fails in *{answer.stage}*)" if answer.stage else ""
            message = f": “{answer.message}”" if answer.message else ""
            lines_of_exercise.setdefault(answer.exercise_id, []).append(
                f"- {answer.mistake}{stage_text}{message}"
            )
    return lines_of_exercise


def _make_quiz_parts(topic: str) -> Iterator[str]:
    title, questions = folders.list_quizzes()[topic]
    yield f"### {title}"
    for question_number, question in enumerate(questions, 1):
        if isinstance(question, Question):
            lines = [
                f"   - {'**right**' if choice.right else 'wrong'}: {choice.text} — {choice.why}"
                for choice in sorted(question.options, key=lambda choice: not choice.right)
            ]
        else:
            lines = [f"   - a good answer says: {point}" for point in question.points]
        yield "\n".join((f"{question_number}. {question.text}", *lines))


def _read_stored_result(cell: dict[str, Any]) -> str:
    """Return the stored output of a cell as text."""
    return next((_read_output_text(output) for output in cell["outputs"] if "data" in output), "")


def _read_output_text(output: dict[str, Any]) -> str:
    return "".join(output["data"].get("text/plain", ""))


def _format_page(markdown: str, as_html: bool) -> str:
    if not as_html:
        return markdown
    from nbconvert.filters.markdown import markdown2html

    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<title>gpulab: for the instructor</title>\n<style>body { font: 16px/1.45 system-ui, sans-serif; "
        "max-width: 50rem; margin: 2rem auto; padding: 0 1rem; } "
        "pre { overflow: auto; background: #8882; padding: .6rem; }</style></head>\n"
        f"<body>\n{markdown2html(markdown)}\n</body></html>"
    )
