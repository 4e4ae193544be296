"""Put the minutes that each notebook takes into the notebooks and the README.

`gpulab_course.content.cells` computes them. A notebook that takes more than `SITTING_MIN` names a section to
pause after. ``python -m tools.minutes`` prints the table, ``--write`` puts the minutes into the notebooks'
openings and headings and into the README.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from gpulab_course.content import cells
from gpulab_course.content.cells import HEADING_PATTERN
from tools.cells import list_notebooks

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
SITTING_MIN = 100

_OPENING_PATTERN = re.compile(
    r"\*\*(?P<minutes>\d+) minutes(?: in two sittings \(pause after section (?P<pause>\d+)\))?"
)
_README_ROW = r"^(\| {number} [^|]*\| )(\d*)( \|)"


@dataclass
class SectionMinutes:
    """The minutes of a section of a notebook."""

    title: str
    minutes: float


def measure_sections(notebook: Any) -> Iterator[SectionMinutes]:
    """Yield the minutes of a notebook's sections; the cells before the first heading belong to ``""``."""
    answers = cells.find_solutions(notebook.cells)
    for section in cells.split_sections(notebook.cells):
        yield SectionMinutes(section.title, cells.estimate_section_minutes(section, answers))


def sum_minutes(notebook: Any) -> int:
    """Return the minutes of a notebook, rounded to a multiple of 5."""
    return 5 * round(sum(section.minutes for section in measure_sections(notebook)) / 5)


def find_pause(notebook: Any) -> int | None:
    """Return the number of the section to pause after, or None if the notebook takes one sitting."""
    if sum_minutes(notebook) <= SITTING_MIN:
        return None
    minutes = 0.0
    end_minutes = {}
    for section in measure_sections(notebook):
        minutes += section.minutes
        if section.title[:1].isdigit():
            end_minutes[int(section.title.split(" ")[0])] = minutes
    return min(end_minutes, key=lambda section_number: abs(end_minutes[section_number] - minutes / 2))


def read_said_minutes(notebook: Any) -> int | None:
    """Return the minutes that the notebook's opening states."""
    match = _OPENING_PATTERN.search(notebook.cells[0].source)
    return int(match["minutes"]) if match else None


def read_said_pause(notebook: Any) -> int | None:
    """Return the section after which the notebook's opening suggests a pause."""
    match = _OPENING_PATTERN.search(notebook.cells[0].source)
    return int(match["pause"]) if match and match["pause"] else None


def read_section_minutes(notebook: Any) -> dict[str, int]:
    """Return the minutes in the headings of a notebook, by the title of the section."""
    markdown_text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return {
        heading["title"]: int(heading["minutes"])
        for heading in HEADING_PATTERN.finditer(markdown_text)
        if heading["minutes"]
    }


def read_readme_minutes(number: str) -> int | None:
    """Return the minutes of a notebook in the README's table of the course."""
    match = re.search(_README_ROW.format(number=number), README.read_text(encoding="utf-8"), re.MULTILINE)
    return int(match[2]) if match and match[2] else None


def number(path: Path) -> str:
    """Return a notebook's number, such as ``05a`` for ``05a_sectors.ipynb``."""
    return path.name.split("_")[0]


def write(path: Path) -> None:
    """Put the minutes into a notebook's opening and headings, and into the README."""
    notebook = nbformat.read(path, as_version=4)
    minutes_by_title = {
        section.title: max(round(section.minutes), 1) for section in measure_sections(notebook)
    }
    total_minutes = sum_minutes(notebook)
    section_number = find_pause(notebook)
    sittings_text = f" in two sittings (pause after section {section_number})" if section_number else ""
    notebook.cells[0].source = _OPENING_PATTERN.sub(
        f"**{total_minutes} minutes{sittings_text}", notebook.cells[0].source, count=1
    )
    for cell in notebook.cells:
        if (
            cell.cell_type == "markdown"
            and (heading := HEADING_PATTERN.match(cell.source))
            and heading["minutes"]
        ):
            cell.source = HEADING_PATTERN.sub(
                f"## {heading['title']} ({minutes_by_title[heading['title']]} min)", cell.source, 1
            )
    nbformat.write(notebook, path)
    readme = README.read_text(encoding="utf-8")
    row_pattern = re.compile(_README_ROW.format(number=number(path)), re.MULTILINE)
    README.write_text(row_pattern.sub(rf"\g<1>{total_minutes}\g<3>", readme), encoding="utf-8")


def main() -> None:
    """Print the minutes of every notebook, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put them into the notebooks and the README")
    parser.add_argument("prefixes", nargs="*", help="first letters of notebook names")
    options = parser.parse_args()
    for path in list_notebooks():
        if not path.name[0].isdigit():  # the glossary
            continue
        if options.prefixes and not path.name.startswith(tuple(options.prefixes)):
            continue
        if options.write:
            write(path)
        notebook = nbformat.read(path, as_version=4)
        print(f"{number(path):4} {sum_minutes(notebook):4} min, said: {read_said_minutes(notebook)}")
        for section in measure_sections(notebook):
            print(f"     {section.minutes:5.1f}  {section.title or '(opening)'}")


if __name__ == "__main__":
    main()
