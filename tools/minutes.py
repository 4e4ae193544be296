"""Time that a notebook takes, computed from its contents, and the texts that state it.

Reading takes a minute per 100 words and 4 s per line of code, a table or picture 30 s, a prediction 45 s, a
task for the reader ("Your turn.") 2 minutes, questions and quiz 10 minutes, and an exercise 5 to 35
minutes: 5, and 45 s per line of its folded solution that its stub lacks. A notebook that takes more than
`SITTING_MIN` names a section to pause after. ``python -m tools.minutes`` prints the table, ``--write`` puts
the minutes into the notebooks' openings and headings and into the README.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from tools.cells import CHECK, SOLUTION, notebooks

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
SITTING_MIN = 100

WORDS_PER_MINUTE = 100
LINE_MIN = 4 / 60
OUTPUT_MIN = 30 / 60
PREDICTION_MIN = 45 / 60
TASK_MIN = 2
EXERCISE_MIN = (5, 35)
SOLUTION_LINE_MIN = 45 / 60
QUESTIONS_MIN = 10
QUESTIONS = ("Questions", "Check yourself")

# Courses for less time, each with all that the one before it has.
SHORT = (("00", "02", "05a §3"), ("04", "07", "05b §2"), ("10a", "10b", "11a", "11b", "12", "17 §7"))

_HELP = re.compile(r"<details><summary>(?:Hint|Solution|Answers).*?</details>", re.DOTALL)
_HEADING = re.compile(r"^## (?P<title>.*?)(?: \((?P<minutes>\d+) min\))?$", re.MULTILINE)
_OPENING = re.compile(
    r"\*\*(?P<minutes>\d+) minutes(?: in two sittings \(pause after section (?P<pause>\d+)\))?"
)
_SHORT_IN_README = re.compile(r"\*\*(?P<minutes>\d+) minutes\*\* (?=for|in all)")
_SHORT_IN_17 = re.compile(r"^\| (?P<minutes>\d+) (?=\|)", re.MULTILINE)
_ROW = r"^(\| {number} [^|]*\| )(\d*)( \|)"


@dataclass
class Section:
    """A section of a notebook, by its heading, and its minutes."""

    title: str
    minutes: float = 0.0


def sections(notebook: Any) -> Iterator[Section]:
    """A notebook's sections; what precedes the first heading belongs to the one named ''."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    solutions = {match["id"]: match["code"] for match in SOLUTION.finditer(text)}
    section = Section("")
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (heading := _HEADING.match(cell.source)):
            yield section
            section = Section(heading["title"])
            if heading["title"].startswith(QUESTIONS):
                section.minutes = QUESTIONS_MIN
        if not section.title.startswith(QUESTIONS):
            section.minutes += cell_minutes(cell, solutions)
    yield section


def cell_minutes(cell: Any, solutions: dict[str, str]) -> float:
    """Return the minutes of one cell; hints and solutions belong to their exercise."""
    if cell.cell_type == "markdown":
        text = _HELP.sub("", cell.source)
        words = len(re.findall(r"\w[\w'’.,-]*", text))
        return words / WORDS_PER_MINUTE + TASK_MIN * text.count("**Your turn.**")
    if check := CHECK.search(cell.source):
        stub = {line.strip() for line in cell.source.splitlines()}
        lines = [line for line in solutions[check["id"]].splitlines() if line.strip() not in stub | {""}]
        shortest, longest = EXERCISE_MIN
        return min(shortest + SOLUTION_LINE_MIN * len(lines), longest)
    if "gl.predict(" in cell.source:
        return PREDICTION_MIN
    code_min = LINE_MIN * len([line for line in cell.source.splitlines() if line.strip()])
    return code_min + OUTPUT_MIN * any(output.output_type != "stream" for output in cell.outputs)


def total(notebook: Any) -> int:
    """A notebook's minutes, to the next five."""
    return 5 * round(sum(section.minutes for section in sections(notebook)) / 5)


def pause(notebook: Any) -> int | None:
    """Return the number of the section to pause after, or None if the notebook takes one sitting."""
    if total(notebook) <= SITTING_MIN:
        return None
    minutes = 0.0
    ends = {}
    for section in sections(notebook):
        minutes += section.minutes
        if section.title[:1].isdigit():
            ends[int(section.title.split(" ")[0])] = minutes
    return min(ends, key=lambda section_number: abs(ends[section_number] - minutes / 2))


def said(notebook: Any) -> int | None:
    """Return the minutes that the notebook's opening states."""
    match = _OPENING.search(notebook.cells[0].source)
    return int(match["minutes"]) if match else None


def said_pause(notebook: Any) -> int | None:
    """Return the section after which the notebook's opening suggests a pause."""
    match = _OPENING.search(notebook.cells[0].source)
    return int(match["pause"]) if match and match["pause"] else None


def said_by_section(notebook: Any) -> dict[str, int]:
    """The minutes in its headings."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return {m["title"]: int(m["minutes"]) for m in _HEADING.finditer(text) if m["minutes"]}


def said_in_readme(number: str) -> int | None:
    """The minutes in the README's table of the course."""
    match = re.search(_ROW.format(number=number), README.read_text(encoding="utf-8"), re.MULTILINE)
    return int(match[2]) if match and match[2] else None


def short_courses() -> list[int]:
    """Return the minutes of each course in `SHORT`, including exercises and questions."""
    read = {number(path): nbformat.read(path, as_version=4) for path in notebooks()}
    minutes = []
    course_minutes = 0
    for course in SHORT:
        for name in course:
            notebook, _, section = name.partition(" §")
            section_minutes = [
                part.minutes for part in sections(read[notebook]) if part.title.startswith(f"{section} ·")
            ]
            course_minutes += round(section_minutes[0]) if section else total(read[notebook])
        minutes.append(course_minutes)
    return minutes


def said_of_short_courses() -> tuple[list[int], list[int]]:
    """Return the minutes of `SHORT` in the README, and those in notebook 17."""
    readme = _SHORT_IN_README.findall(README.read_text(encoding="utf-8"))
    return [int(number_text) for number_text in readme], [
        int(number_text) for number_text in _SHORT_IN_17.findall(_syllabi()[2].source)
    ]


def _syllabi() -> tuple[Path, Any, Any]:
    """Notebook 17: its path, the notebook, and the cell with the short courses."""
    (path,) = (path for path in notebooks() if number(path) == "17")
    notebook = nbformat.read(path, as_version=4)
    return path, notebook, next(cell for cell in notebook.cells if cell.id == "syllabi")


def _write_short_courses() -> None:
    def renewed(pattern: re.Pattern[str], text: str) -> str:
        minutes = iter(short_courses())

        def put(match: re.Match[str]) -> str:
            return match[0].replace(match["minutes"], str(next(minutes)))

        return pattern.sub(put, text)

    readme = README.read_text(encoding="utf-8")
    README.write_text(renewed(_SHORT_IN_README, readme), encoding="utf-8")
    path, notebook, cell = _syllabi()
    if (source := renewed(_SHORT_IN_17, cell.source)) != cell.source:
        cell.source = source
        nbformat.write(notebook, path)


def number(path: Path) -> str:
    """A notebook's number: 05a of ``05a_sectors.ipynb``."""
    return path.name.split("_")[0]


def write(path: Path) -> None:
    """Put the minutes into a notebook's opening and headings, and into the README."""
    notebook = nbformat.read(path, as_version=4)
    minutes = {section.title: max(round(section.minutes), 1) for section in sections(notebook)}
    whole = total(notebook)
    section_number = pause(notebook)
    sittings = f" in two sittings (pause after section {section_number})" if section_number else ""
    notebook.cells[0].source = _OPENING.sub(f"**{whole} minutes{sittings}", notebook.cells[0].source, count=1)
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (heading := _HEADING.match(cell.source)) and heading["minutes"]:
            cell.source = _HEADING.sub(
                f"## {heading['title']} ({minutes[heading['title']]} min)", cell.source, 1
            )
    nbformat.write(notebook, path)
    readme = README.read_text(encoding="utf-8")
    row = re.compile(_ROW.format(number=number(path)), re.MULTILINE)
    README.write_text(row.sub(rf"\g<1>{whole}\g<3>", readme), encoding="utf-8")


def main() -> None:
    """Print the minutes of every notebook, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put them into the notebooks and the README")
    parser.add_argument("prefixes", nargs="*", help="first letters of notebook names")
    options = parser.parse_args()
    for path in notebooks():
        if not path.name[0].isdigit():  # the glossary
            continue
        if options.prefixes and not path.name.startswith(tuple(options.prefixes)):
            continue
        if options.write:
            write(path)
        notebook = nbformat.read(path, as_version=4)
        print(f"{number(path):4} {total(notebook):4} min, said: {said(notebook)}")
        for section in sections(notebook):
            print(f"     {section.minutes:5.1f}  {section.title or '(opening)'}")
    if options.write:
        _write_short_courses()


if __name__ == "__main__":
    main()
