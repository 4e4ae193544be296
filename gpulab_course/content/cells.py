"""Sections and exercises of a notebook, and estimates of the minutes that its cells take.

Reading takes a minute per 100 words and 4 s per line of code. A table or picture takes 30 s, a prediction 45
s, a task for the reader ("Your turn.") 2 minutes, and the quiz of a notebook 10 minutes. An exercise takes 5
minutes and 45 s per line of its folded solution that is not in its stub, but at most 35 minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

WORDS_PER_MINUTE = 100
CODE_LINE_MINUTES = 4 / 60
OUTPUT_MINUTES = 30 / 60
PREDICTION_MINUTES = 45 / 60
TASK_MINUTES = 2
EXERCISE_MINUTES = (5, 35)
SOLUTION_LINE_MINUTES = 45 / 60
QUESTIONS_MINUTES = 10
QUESTION_TITLES = ("Questions", "Check yourself")

HEADING_PATTERN = re.compile(r"^## (?P<title>.*?)(?: \((?P<minutes>\d+) min\))?$", re.MULTILINE)
SOLUTION_PATTERN = re.compile(
    r"<summary>Solution of (?P<id>[\w-]+)</summary>\s*```python\n(?P<code>.*?)\n```", re.DOTALL
)
CHECK_CALL_PATTERN = re.compile(r'^gl\.check\("(?P<id>[\w-]+)", (?P<answer>.+)\)$', re.MULTILINE)
_HELP_PATTERN = re.compile(r"<details><summary>(?:Hint|Solution|Answers).*?</details>", re.DOTALL)


@dataclass
class Section:
    """A section of a notebook, with its heading and its cells."""

    title: str
    cells: list[Any] = field(default_factory=list)

    @property
    def number(self) -> str:
        """The number in the heading, such as ``"3"``. If the heading has no number, the value is the whole
        heading.
        """
        return self.title.partition(" · ")[0]


def split_sections(cells: Sequence[Any]) -> Iterator[Section]:
    """Yield the sections of a notebook. Cells before the first heading belong to a section named ``""``."""
    section = Section("")
    for cell in cells:
        if cell["cell_type"] == "markdown" and (heading_match := HEADING_PATTERN.match(cell["source"])):
            yield section
            section = Section(heading_match["title"])
        section.cells.append(cell)
    yield section


def find_solutions(cells: Sequence[Any]) -> dict[str, str]:
    """Return the source code of each folded solution in a notebook, by the name of its exercise."""
    markdown = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    return {match["id"]: match["code"] for match in SOLUTION_PATTERN.finditer(markdown)}


def estimate_section_minutes(section: Section, solutions: dict[str, str]) -> float:
    """Return the estimated number of minutes that a learner needs for a section."""
    if section.title.startswith(QUESTION_TITLES):
        return QUESTIONS_MINUTES
    return sum(estimate_cell_minutes(cell, solutions) for cell in section.cells)


def estimate_cell_minutes(cell: Any, solutions: dict[str, str]) -> float:
    """Return the estimated number of minutes for one cell. Hints and solutions count as parts of their
    exercise.
    """
    source = cell["source"]
    if cell["cell_type"] == "markdown":
        visible_markdown = _HELP_PATTERN.sub("", source)
        word_count = len(re.findall(r"\w[\w'’.,-]*", visible_markdown))
        return word_count / WORDS_PER_MINUTE + TASK_MINUTES * visible_markdown.count("**Your turn.**")
    if check_match := CHECK_CALL_PATTERN.search(source):
        stub_lines = {line.strip() for line in source.splitlines()}
        added_lines = [
            line
            for line in solutions[check_match["id"]].splitlines()
            if line.strip() not in stub_lines | {""}
        ]
        min_minutes, max_minutes = EXERCISE_MINUTES
        return min(min_minutes + SOLUTION_LINE_MINUTES * len(added_lines), max_minutes)
    if "gl.predict(" in source:
        return PREDICTION_MINUTES
    code_minutes = CODE_LINE_MINUTES * len([line for line in source.splitlines() if line.strip()])
    return code_minutes + OUTPUT_MINUTES * any(
        output["output_type"] != "stream" for output in cell["outputs"]
    )
