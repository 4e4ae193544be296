"""The courses fit their hours, and each of their notebooks runs alone."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpulab_course.content import copies, courses
from gpulab_course.content.cells import CHECK_CALL_PATTERN, SOLUTION_PATTERN
from gpulab_course.content.courses import SessionPart
from tests.notebooks.test_elsewhere import run
from tools import courses as pages
from tools import sample

COURSES = courses.read_courses()
NOTEBOOKS = [(name, number) for name, course in COURSES.items() for number in course.notebooks]
HOURS = {"two-hours": [2], "half-day": [4], "two-half-days": [4, 4], "semester": [3] * 14}


def reduced(course: str, number: str, *, solutions: bool = True) -> Any:
    return copies.make_copy(pages.find_notebook(number), COURSES[course], solutions=solutions)


def test_session_lengths_equal_the_documented_hours() -> None:
    lengths = {
        name: [session.length_min / 60 for session in course.sessions] for name, course in COURSES.items()
    }
    assert lengths == HOURS


@pytest.mark.parametrize("name", COURSES)
def test_parts_fit_their_session_and_breaks_are_frequent(name: str) -> None:
    seen: set[str] = set()
    for session in COURSES[name].sessions:
        since_break_min = 0.0
        for start_min, length_min, part in pages.schedule_parts(session, seen):
            since_break_min = 0.0 if part.title == "Break" else since_break_min + length_min
            assert since_break_min <= 100, (session.title, part)
            assert start_min + length_min <= session.length_min, (session.title, part)


def test_generated_course_pages_are_up_to_date() -> None:
    for path, text in pages.make_pages().items():
        assert path.read_text(encoding="utf-8") == text, "python -m tools.courses --write"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"), sample.draw_sample(NOTEBOOKS, 50, str, lambda case: case[0] == "two-hours")
)
def test_reduced_course_notebook_runs(name: str, number: str, tmp_path: Path) -> None:
    path = tmp_path / "course.ipynb"
    path.write_text(json.dumps(reduced(name, number)))
    run(path, tmp_path)


def test_selected_cells_include_the_cells_they_depend_on() -> None:
    def code(cell_id: str, source: str) -> dict[str, Any]:
        return {"id": cell_id, "cell_type": "code", "source": source}

    cells = [
        code("imports", "import numpy as np"),
        code("first", "x = np.zeros(3)"),
        code("other", "z = 1\nprint(z)"),
        code("second", "def twice():\n    z = 2\n    return 2 * x * z"),
        code("again", "x = 5"),
        code("wanted", "x = 3\nprint(twice(), x)"),
    ]
    # The function reads x when it is called, so it brings the cells that assigned x before the function.
    assert courses.find_preparation_ids(cells, {"wanted"}) == {"second", "first", "imports"}
    assert courses.find_preparation_ids(cells, {"other"}) == set()


def test_cell_that_needs_an_omitted_answer_is_an_error() -> None:
    cells = [
        {"id": "exercise", "cell_type": "code", "source": 'def f(x): ...\n\n\ngl.check("00-f", f)'},
        {"id": "use", "cell_type": "code", "source": "print(f(1))"},
    ]
    assert courses.find_preparation_ids(cells, {"exercise", "use"}) == set()
    with pytest.raises(ValueError, match="answers to the exercises in exercise"):
        courses.find_preparation_ids(cells, {"use"})


@pytest.mark.parametrize(("name", "number"), NOTEBOOKS)
def test_reduced_notebooks_need_no_omitted_answer(name: str, number: str) -> None:
    assert len(reduced(name, number)["cells"]) > 5


def test_part_with_an_unknown_section_or_exercise_is_an_error() -> None:
    cells = pages.read_notebook_cells("02")
    for part in (
        SessionPart("02", sections=("19",)),
        SessionPart("02", exercises=("00-saxpy",)),
        SessionPart("02", home=("02-nothing",)),
        SessionPart("02", sections=("1",), without=("nowhere",)),
    ):
        with pytest.raises(ValueError, match="notebook 02 has no"):
            courses.find_chosen_ids(cells, part)


def test_reduced_notebook_has_class_exercises_then_homework() -> None:
    sources = [cell["source"] for cell in reduced("half-day", "02")["cells"]]
    names = [check["id"] for source in sources if (check := CHECK_CALL_PATTERN.search(source))]
    assert names == ["02-index", "02-stride", "02-repair", "02-achieved"]
    home = sources.index("## Homework")
    assert [bool(CHECK_CALL_PATTERN.search(source)) for source in sources[:home]].count(True) == 2
    text = "\n".join(sources)
    assert not re.search(r"\*\*\d+ minutes|^## .* min\)$", text, re.MULTILINE)
    assert "](03_lanes.ipynb)" not in text


def test_solutions_can_be_left_out() -> None:
    with_them, without = (
        "\n".join(cell["source"] for cell in reduced("half-day", "02", solutions=some)["cells"])
        for some in (True, False)
    )
    assert len(SOLUTION_PATTERN.findall(with_them)) == 4
    assert not SOLUTION_PATTERN.findall(without)
    assert with_them.count("<summary>Hint for") == without.count("<summary>Hint for") == 4


def test_copies_of_a_course_keep_a_learners_changes(tmp_path: Path) -> None:
    folder = tmp_path / "two-hours"
    course = COURSES["two-hours"]
    assert len(copies.update_copies(folder, course)) == 1
    assert {path.name[:2] for path in folder.iterdir()} == {"00", "02", "05"}
    assert copies.update_copies(folder, course) == []
    path = folder / "02_grid_warps_waves.ipynb"
    path.write_text(path.read_text().replace("import numpy as np", "import numpy as np  # mine"))
    assert copies.update_copies(folder, course) == []
    assert "# mine" in path.read_text()


def test_an_unknown_course_is_an_error_that_names_the_courses() -> None:
    with pytest.raises(courses.CourseError, match="half-day"):
        courses.find_course("week")
    assert len({*itertools.chain.from_iterable(course.notebooks for course in COURSES.values())}) >= 20
