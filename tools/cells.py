"""Code of the notebooks as plain Python: cells with their folded solutions, in order."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat

from gpulab_course.content.cells import CHECK_CALL_PATTERN, SOLUTION_PATTERN

ROOT = Path(__file__).resolve().parent.parent

_MAGIC_PATTERN = re.compile(r"^\s*[%!].*$", re.MULTILINE)


def list_notebooks() -> list[Path]:
    """The course's notebooks, in order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def read_cells(path: Path) -> Iterator[str]:
    """Return the code cells of a notebook. Exercises are replaced by their folded solutions."""
    sources = [
        (cell.cell_type, cell.source) for cell in nbformat.v4.reads(path.read_text(encoding="utf-8")).cells
    ]
    markdown_text = "\n".join(cell_source for cell_type, cell_source in sources if cell_type == "markdown")
    answers = {match["id"]: match["code"] for match in SOLUTION_PATTERN.finditer(markdown_text)}
    for cell_type, cell_source in sources:
        if cell_type != "code":
            continue
        check = CHECK_CALL_PATTERN.search(cell_source)
        yield f"{answers[check['id']]}\n\n{check[0]}" if check and check["id"] in answers else cell_source


def run(sources: Sequence[str], name: str) -> None:
    """Run pieces of code one after the other, as a notebook's kernel would, without printing their output."""
    # A kernel shows what display is given; here its picture is made, and nobody looks.
    namespace: dict[str, Any] = {"__name__": "__main__", "display": repr}
    for cell_number, cell_source in enumerate(sources, 1):
        compiled_cell = compile(_MAGIC_PATTERN.sub("", cell_source), f"{name}, cell {cell_number}", "exec")
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compiled_cell, namespace)
