"""Read the course's notebooks: cells, exercises, and the solutions folded into their text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat

from gpulab_course.content.cells import CHECK_CALL_PATTERN, SOLUTION_PATTERN

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9][0-9]*_*.ipynb"))

_HINT = re.compile(r"<summary>Hint for (?P<id>[\w-]+)</summary>")


def read(path: Path) -> Any:
    """A notebook as it stands; that all are valid is a test of its own and takes ten times as long."""
    return nbformat.v4.reads(path.read_text(encoding="utf-8"))


def number(path: Path) -> str:
    """A notebook's number: 05a of ``05a_sectors.ipynb``."""
    return path.name.split("_")[0]


def subjects() -> dict[str, list[Any]]:
    """Subject -> its notebooks, of which a long one has two: 05 -> those of 05a and 05b."""
    result: dict[str, list[Any]] = {}
    for path in NOTEBOOKS:
        result.setdefault(number(path)[:2], []).append(read(path))
    return result


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text(notebook: Any) -> str:
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def solutions(notebook: Any) -> dict[str, str]:
    """Exercise -> the code of its folded solution."""
    return {match["id"]: match["code"] for match in SOLUTION_PATTERN.finditer(text(notebook))}


def hints(notebook: Any) -> set[str]:
    return {match["id"] for match in _HINT.finditer(text(notebook))}


def exercises(notebook: Any) -> dict[str, Any]:
    """Exercise -> the cell that holds its stub and its check."""
    result = {}
    for cell in code_cells(notebook):
        match = CHECK_CALL_PATTERN.search(cell.source)
        if match:
            result[match["id"]] = cell
    return result


def with_solutions(notebook: Any) -> Any:
    """Replace each exercise's stub by the folded solution; its check line stays."""
    answers = solutions(notebook)
    for name, cell in exercises(notebook).items():
        match = CHECK_CALL_PATTERN.search(cell.source)
        assert match is not None
        cell.source = f"{answers[name]}\n\n{match[0]}"
    return notebook


def output_text(cell: Any) -> str:
    """Everything a cell shows as plain text."""
    parts = []
    for output in cell.get("outputs", ()):
        parts.append(output.get("text", ""))
        parts.append(output.get("data", {}).get("text/plain", ""))
    return "".join(parts)
