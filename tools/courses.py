"""The clock of each course: when each part begins, what it takes, and what is left for home.

``python -m tools.courses`` prints the pages of the courses, and ``--write`` puts them into ``docs/``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from gpulab_course.content.cells import (
    CHECK_CALL_PATTERN,
    estimate_cell_minutes,
    estimate_section_minutes,
    find_solutions,
    split_sections,
)
from gpulab_course.content.courses import (
    Course,
    CourseSession,
    SessionPart,
    find_chosen_ids,
    find_opening_ids,
    read_courses,
)
from tools.cells import list_notebooks

# Courses with slides and a handout.
SHORT_COURSES = ("two-hours", "half-day", "two-half-days")
DOCS = Path(__file__).resolve().parent.parent / "docs"


@cache
def find_notebook(number: str) -> Path:
    """Return the path of a notebook by its number, such as ``"05a"``."""
    return next(path for path in list_notebooks() if path.name.startswith(f"{number}_"))


@cache
def read_notebook_cells(number: str) -> list[Any]:
    """Return the cells of a notebook; their sources and outputs are strings."""
    cells: list[Any] = nbformat.read(find_notebook(number), as_version=4).cells
    return cells


def sum_part_minutes(part: SessionPart, *, opens: bool) -> float:
    """Return the minutes of a part. The first part of a notebook also contains its objectives."""
    if not part.notebook:
        return part.minutes
    cells = read_notebook_cells(part.notebook)
    answers = find_solutions(cells)
    chosen_ids = find_chosen_ids(cells, part) | (find_opening_ids(cells) if opens else set())
    total_min = 0.0
    for section in split_sections(cells):
        chosen_cells = [cell for cell in section.cells if cell["id"] in chosen_ids]
        is_whole = chosen_cells == section.cells
        total_min += (
            estimate_section_minutes(section, answers)
            if is_whole
            else sum(estimate_cell_minutes(cell, answers) for cell in chosen_cells)
        )
    return total_min


def schedule_parts(session: CourseSession, seen: set[str]) -> Iterator[tuple[float, float, SessionPart]]:
    """Yield the start and the length of each part in minutes; `seen` collects the notebooks that are open."""
    start_min = 0.0
    for part in session.parts:
        length_min = sum_part_minutes(part, opens=part.notebook not in seen)
        seen.add(part.notebook)
        yield start_min, length_min, part
        start_min += length_min


def make_page(course: Course) -> str:
    """Return the page of a course as Markdown."""
    lines = [
        f"# Course: {course.title.lower()}",
        "",
        course.aim,
        "",
        f"`gpulab lab --course {course.name}` opens notebooks that contain only the cells of this course.",
        "The homework is at the end of each notebook. You can run each notebook without the others. With the",
        "option `--without-solutions`, the notebooks do not contain the solutions. The page on classrooms",
        "explains [how the minutes are computed](classroom.md#minutes).",
        "",
    ]
    if course.name in SHORT_COURSES:
        slides_path = f"build/site/slides/{course.name}.html"
        lines += [
            f"`make docs` creates slides in `{slides_path}`, and a handout of one page in",
            f"`build/site/slides/handout-{course.name}.pdf`. You can use both without a network. To see the",
            "speaker's notes, press S while the slides are open.",
            "",
        ]
    opened_notebooks: set[str] = set()
    for session in course.sessions:
        lines += [
            f"## {session.title}",
            "",
            "| Time | Minutes | Part | In class | Homework |",
            "|---|---|---|---|---|",
        ]
        end_min = 0.0
        for start_min, length_min, part in schedule_parts(session, opened_notebooks):
            end_min = start_min + length_min
            start_text = f"{int(start_min) // 60}:{int(start_min) % 60:02}"
            class_text, home_text = (
                ", ".join(f"`{name}`" for name in names) for names in (part.exercises, part.home)
            )
            part_title = _make_part_title(part)
            lines.append(
                f"| {start_text} | {round(length_min)} | {part_title} | {class_text} | {home_text} |"
            )
        session_min = session.length_min
        spare_min = round(session_min - end_min)
        lines += [
            "",
            f"The parts in the table add up to {round(end_min)} minutes. The session lasts {session_min}",
            f"minutes, so {spare_min} minutes remain for questions or for the homework.",
            "",
        ]
        if home_min := _sum_home_minutes(session):
            lines += [f"Learners need about {home_min} minutes for the homework.", ""]
    return "\n".join(lines + _describe_unused(course)) + "\n"


def _sum_home_minutes(session: CourseSession) -> int:
    """Return the minutes of the exercises for home, to the next five."""
    total_min = 0.0
    for part in session.parts:
        cells = read_notebook_cells(part.notebook) if part.home else []
        for cell in cells:
            check = CHECK_CALL_PATTERN.search(cell["source"])
            if check and check["id"] in part.home:
                total_min += estimate_cell_minutes(cell, find_solutions(cells))
    return 5 * round(total_min / 5)


def _make_part_title(part: SessionPart) -> str:
    if not part.notebook:
        return part.title
    notebook_link = f"[{part.notebook}](../notebooks/{find_notebook(part.notebook).name})"
    section_numbers = [name for name in part.sections if name.isdigit()]
    titles = [
        section.title
        for section in split_sections(read_notebook_cells(part.notebook))
        if section.number in section_numbers
    ]
    topics = "; ".join([*titles, *(name for name in part.sections if not name.isdigit())])
    return f"{notebook_link}: {topics}"


def _describe_unused(course: Course) -> list[str]:
    """Return the section of a page that names what the course leaves out of its notebooks."""
    lines = ["## Left out", "", "The course does not use these sections of its notebooks:", ""]
    for notebook_number in course.notebooks:
        parts = course.find_parts(notebook_number)
        used_sections = {name for part in parts for name in part.sections}
        unused_titles = [
            section.title
            for section in split_sections(read_notebook_cells(notebook_number))
            if section.number.isdigit() and section.number not in used_sections
        ]
        if unused_titles:
            lines.append(f"- {notebook_number}: {'; '.join(unused_titles)}")
    return lines if len(lines) > 4 else []


def make_pages() -> dict[Path, str]:
    """Return the text of each course's page by its path."""
    return {DOCS / f"course-{course.name}.md": make_page(course) for course in read_courses().values()}


def main() -> None:
    """Print the pages, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages into docs/")
    for path, text in (texts_by_path := make_pages()).items():
        if parser.parse_args().write:
            path.write_text(text, encoding="utf-8")
        else:
            print(text)
    print(f"{len(texts_by_path)} courses")


if __name__ == "__main__":
    main()
