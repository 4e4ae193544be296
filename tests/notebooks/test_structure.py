"""Each notebook keeps the course's rhythm, stays readable, and carries nothing of a machine.

What a notebook has (exercises, a quiz) its folder in `gpulab_course.content` says; not every one has both.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from gpulab_course import folders
from tests.notebooks.course import (
    FOLDER,
    NOTEBOOKS,
    code_cells,
    exercises,
    hints,
    number,
    read,
    solutions,
    subjects,
    text,
)

MAX_CELL_LINES = 25
MAX_BYTES = 750_000

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each_notebook
def test_notebook_format_is_valid(path: Path) -> None:
    nbformat.validate(read(path))


@each_notebook
def test_notebook_opens_with_title_objectives_and_device(path: Path) -> None:
    notebook = read(path)
    title, objectives = notebook.cells[:2]
    assert title.source.startswith(f"# {number(path)} · ")
    assert objectives.source.startswith("## Objectives")
    goals = re.findall(r"^- .*$", objectives.source, re.MULTILINE)
    assert goals
    assert all(re.match(r"- \*\*\w+", goal) for goal in goals), "objectives begin with verbs"
    first = code_cells(notebook)[0]
    assert "gl.which_device()" in first.source, "the first code cell says which device it uses"


def predicted_keys(source: str) -> list[str]:
    """Keys of the course's predictions that a cell requests."""
    return re.findall(r'gl\.predict\("(\d\d-[\w-]+)"', source)


def compared(source: str) -> list[str]:
    """Keys of the course's predictions that a cell compares."""
    return re.findall(r'gl\.reveal\(\s*"(\d\d-[\w-]+)"', source)


@each_notebook
def test_prediction_cell_precedes_its_comparison_cell(path: Path) -> None:
    sources = [cell.source for cell in code_cells(read(path))]
    first = {name: number for number, source in enumerate(sources) for name in predicted_keys(source)}
    second = {name: number for number, source in enumerate(sources) for name in compared(source)}
    assert first.keys() == second.keys()
    assert all(second[name] > number for name, number in first.items())


@pytest.mark.parametrize("subject", subjects())
def test_notebook_uses_exactly_the_predictions_of_its_folder(subject: str) -> None:
    cells = [cell for notebook in subjects()[subject] for cell in code_cells(notebook)]
    names = [name for cell in cells for name in predicted_keys(cell.source)]
    assert len(set(names)) == len(names)
    own = {key for f in folders.list_folders() if f.number == subject for key in f.predictions}
    assert set(names) == own


@each_notebook
def test_exercises_have_check_hint_and_solution(path: Path) -> None:
    notebook = read(path)
    assert set(exercises(notebook)) == hints(notebook) == set(solutions(notebook))


@pytest.mark.parametrize("subject", subjects())
def test_notebook_uses_exactly_the_exercises_of_its_folder(subject: str) -> None:
    names = [name for notebook in subjects()[subject] for name in exercises(notebook)]
    assert sorted(names) == sorted(
        name for name in folders.list_exercises() if name.startswith(f"{subject}-")
    )


@pytest.mark.parametrize("subject", subjects())
def test_notebook_uses_exactly_the_quizzes_of_its_folder(subject: str) -> None:
    code = "\n".join(cell.source for notebook in subjects()[subject] for cell in code_cells(notebook))
    own = [f.topic for f in folders.list_folders() if f.number == subject and f.quiz]
    assert sorted(re.findall(r'gl\.quiz\("(\w+)"\)', code)) == sorted(own)


@each_notebook
def test_questions_in_the_text_have_folded_answers(path: Path) -> None:
    prose = text(read(path))
    assert ("## Questions" in prose) == ("<summary>Answers</summary>" in prose)


def test_every_folder_of_the_course_has_its_notebook() -> None:
    assert {folder.number for folder in folders.list_folders()} <= {path.name[:2] for path in NOTEBOOKS}


@each_notebook
def test_details_tags_are_balanced(path: Path) -> None:
    for cell in read(path).cells:
        opened = cell.source.count("<details>")
        closed = cell.source.count("</details>")
        assert opened == closed, cell.id
        # Markdown inside <details> renders only after an empty line.
        assert opened == len(re.findall(r"<details><summary>.*</summary>\n\n", cell.source)), cell.id


@each_notebook
def test_cells_are_short(path: Path) -> None:
    long = {cell.id: cell.source.count("\n") + 1 for cell in code_cells(read(path))}
    assert not {name: lines for name, lines in long.items() if lines > MAX_CELL_LINES}


@each_notebook
def test_cell_ids_are_unique_words(path: Path) -> None:
    ids = [cell.id for cell in read(path).cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]+", name) for name in ids)
    assert not [name for name in ids if re.fullmatch(r"cell-\d+|[0-9a-f]{8}", name)]


@each_notebook
def test_notebook_has_no_widget_state_and_is_small(path: Path) -> None:
    notebook = read(path)
    assert "widgets" not in notebook.metadata
    assert path.stat().st_size < MAX_BYTES
    assert notebook.metadata.kernelspec.name == "python3"


@each_notebook
def test_links_point_to_existing_notebooks(path: Path) -> None:
    links = re.findall(r"\]\(([\w./-]+\.ipynb)\)", text(read(path)))
    assert not [link for link in links if not (FOLDER / link).exists()]
