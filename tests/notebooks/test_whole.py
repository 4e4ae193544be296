"""The course as a whole: each notebook names its minutes and links to earlier and later notebooks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulab_course.content.story import rungs
from tests.notebooks.course import FOLDER, NOTEBOOKS, code_cells, number, read

NUMBERS = [number(path) for path in NOTEBOOKS]

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def links(text: str) -> list[str]:
    """Numbers of the notebooks that a text links to."""
    return re.findall(r"\]\((\d\d[ab]?)_\w+\.ipynb\)", text)


@each_notebook
def test_opening_states_minutes_and_an_earlier_notebook(path: Path) -> None:
    opening = read(path).cells[0].source
    assert re.search(r"\*\*\d+ minutes", opening), "minutes"
    if number(path) != "00":
        earlier = NUMBERS[: NUMBERS.index(number(path))]
        assert set(links(opening)) & set(earlier), "it leads back to an earlier notebook"


@each_notebook
def test_ending_links_to_earlier_and_later_notebooks(path: Path) -> None:
    ending = read(path).cells[-1].source
    assert "**Next:**" in ending
    index = NUMBERS.index(number(path))
    if index:
        assert "**Back:**" in ending
        assert set(links(ending)) & set(NUMBERS[:index])
    if index + 1 < len(NUMBERS):
        after = ending.partition("**Next:**")[2]
        assert set(links(after)) <= set(NUMBERS[index + 1 :]), "what comes next comes later"


def test_each_optimization_version_appears_in_a_notebook() -> None:
    numbers_ = {
        name
        for path in NOTEBOOKS
        for cell in code_cells(read(path))
        for name in re.findall(r'story\.table\("(\d\d)"\)', cell.source)
    }
    # Notebook 00 introduces the running example, and 04 examines it without changing it.
    assert {rung.notebook_number for rung in rungs.VERSIONS} <= numbers_ | {"00", "04"}
    assert (FOLDER / "glossary.ipynb").is_file()
