"""Slides of the short courses, with reveal.js beside them, so that they need no network.

``python -m tools.slides build/slides`` writes a page for each course of `SHORT_COURSES`. A slide shows a
heading, the first paragraph of a text, a short program, a prediction or a result. The other paragraphs are
speaker notes (key S). Pictures and tables are those that the notebooks store.
"""

from __future__ import annotations

import argparse
import copy
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import nbformat
from nbconvert import SlidesExporter

from gpulab_course.content.cells import CHECK_CALL_PATTERN
from gpulab_course.content.courses import Course, SessionPart, find_chosen_ids, find_course, find_opening_ids
from tools.courses import SHORT_COURSES, read_notebook_cells, schedule_parts

CODE_LINES = 16
"""Longer programs are left to the notebook, unless they are kernels."""
WORDS = 60
"""Longer first paragraphs go to the notes."""

_HELP_PATTERN = re.compile(r"<details>.*?</details>", re.DOTALL)


def make_deck(of: Course) -> Any:
    """Return a course as one notebook whose cells have the metadata of slides."""
    cells = [_make_slide(f"# {of.title}\n\n{of.aim}", "slide")]
    opened_notebooks: set[str] = set()
    for session in of.sessions:
        if len(of.sessions) > 1:
            cells.append(_make_slide(f"# {session.title}", "slide"))
        for _, length_min, part in schedule_parts(session, set()):
            if part.notebook:
                cells += _make_part_slides(part, opens=part.notebook not in opened_notebooks)
                opened_notebooks.add(part.notebook)
            else:
                cells.append(_make_slide(f"## {part.title}\n\n{round(length_min)} minutes", "slide"))
    return nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


def _make_part_slides(part: SessionPart, *, opens: bool) -> Iterator[Any]:
    cells = read_notebook_cells(part.notebook)
    section_ids = find_chosen_ids(cells, part)
    if opens:
        yield _make_slide(cells[0]["source"].split("\n\n")[0], "slide")
        objectives_text = next(cell["source"] for cell in cells if cell["source"].startswith("## Objectives"))
        yield _make_slide(objectives_text, "subslide")
    for cell in cells:
        if cell["id"] not in section_ids - find_opening_ids(cells):
            continue
        if cell["cell_type"] == "markdown":
            yield from _make_text_slides(_HELP_PATTERN.sub("", cell["source"]).strip())
        elif not (CHECK_CALL_PATTERN.search(cell["source"]) or "gl.quiz(" in cell["source"]):
            yield from _make_code_slides(cell)


def _make_text_slides(text: str) -> Iterator[Any]:
    """Yield a slide with the heading and what can be read on it, and the rest as speaker notes."""
    if not text:
        return
    first_paragraph, *other_paragraphs = text.split("\n\n")
    if (
        first_paragraph.startswith("### ") and "**Given.**" in text
    ):  # an exercise: the class works from its text
        yield _make_slide(text, "subslide")
        return
    if not first_paragraph.startswith("#"):
        yield _make_slide(text, "notes")
        return
    heading = re.sub(r" \(\d+ min\)$", "", first_paragraph)
    shown_paragraphs = [heading]
    if other_paragraphs and len(other_paragraphs[0].split()) <= WORDS:
        shown_paragraphs.append(other_paragraphs.pop(0))
    shown_paragraphs += [paragraph for paragraph in other_paragraphs if paragraph.startswith(("|", "```"))]
    yield _make_slide("\n\n".join(shown_paragraphs), "slide" if heading.startswith("## ") else "subslide")
    if other_paragraphs:
        yield _make_slide("\n\n".join(other_paragraphs), "notes")


def _make_code_slides(cell: Any) -> Iterator[Any]:
    """Yield a slide with a program, its results, or both."""
    shown_cell = copy.deepcopy(cell)
    shown_cell.id = uuid4().hex[:8]  # ids of several notebooks may be equal
    line_count = len(cell["source"].splitlines())
    is_kernel = "__global__" in cell["source"]
    is_call = re.match(r"gl\.(predict|reveal)\(|.*\ngl\.reveal\(", cell["source"], re.DOTALL)
    if is_call or (cell["outputs"] and line_count > CODE_LINES and not is_kernel):
        shown_cell.metadata["transient"] = {"remove_source": True}
    elif not cell["outputs"] and line_count > CODE_LINES and not is_kernel:
        return
    shown_cell.metadata["slideshow"] = {"slide_type": "subslide"}
    for output in shown_cell.outputs:
        if "text/html" in output.get("data", ()):
            output.data["text/html"] = output.data["text/html"].replace("No prediction. ", "")
    yield shown_cell


def _make_slide(text: str, slide_type: str) -> Any:
    cell = {"cell_type": "markdown", "id": uuid4().hex[:8], "source": text}
    return nbformat.from_dict(cell | {"metadata": {"slideshow": {"slide_type": slide_type}}})


def reveal_folder() -> Path:
    """Return the folder of reveal.js, which the package sphinx-revealjs contains."""
    spec = find_spec("sphinx_revealjs")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("The slides need reveal.js: pip install sphinx-revealjs")
    return Path(spec.origin).parent / "_static" / "revealjs"


def write(folder: Path) -> list[Path]:
    """Write the slides of each course, and reveal.js, into a folder; return the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore_files = shutil.ignore_patterns("*.map", "*.esm.js", "fonts")
    shutil.copytree(reveal_folder(), folder / "reveal.js", dirs_exist_ok=True, ignore=ignore_files)
    exporter = SlidesExporter(
        template_name="template",
        extra_template_basedirs=[str(Path(__file__).parent)],
        reveal_url_prefix="reveal.js",
        reveal_theme="white",
    )
    pages = []
    for name in SHORT_COURSES:
        slides_html, _ = exporter.from_notebook_node(
            make_deck(find_course(name)), {"metadata": {"name": find_course(name).title}}
        )
        pages.append(folder / f"{name}.html")
        pages[-1].write_text(slides_html, encoding="utf-8")
    return pages


def main() -> None:
    """Write the slides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for page in write(parser.parse_args().folder):
        print(page)


if __name__ == "__main__":
    main()
