"""Progress: exercises, predictions and quizzes as text, with links and as a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gpulab as gl
from gpulab_course import folders
from gpulab_course.teach.judge import scores
from gpulab_course.teach.progress import (
    ExerciseResult,
    NotebookProgress,
    PredictionResult,
    Progress,
    QuizAnswer,
)
from gpulab_course.teach.progress_page import compute_interval
from gpulab_course.teach.question import PredictionQuestion
from gpulab_course.teach.store import store

ASKED = {f"00-{n}": PredictionQuestion(f"00-{n}", "?", "So.", unit="blocks") for n in range(6)}


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "find_prediction", ASKED.get)
    monkeypatch.setattr(folders.Folder, "predictions", property(lambda f: ASKED if f.number == "00" else {}))


def lock(key: str, answer: int, found: int, sure: bool | None = None) -> None:
    gl.predict(key, answer=answer, sure=sure)
    gl.reveal(key, found, "counted")


def test_calibration_is_computed_from_compared_predictions() -> None:
    for number, (answer, sure) in enumerate([(4, True), (4, True), (3, True), (3, False), (4, False)]):
        lock(f"00-{number}", answer, 4, sure)
    gl.predict("00-5", answer=4, sure=True)  # not compared yet
    found = gl.progress()
    assert (found.calibration(True), found.calibration(False)) == ((2, 3), (1, 2))
    assert "3 of 5 predictions right, of 6" in repr(found)
    assert "sure, right 2 of 3 (67%); when guessing, 1 of 2 (50%)" in repr(found)


@pytest.mark.parametrize(("sure", "shares"), [(True, ((0, 1), (0, 0))), (False, ((0, 0), (0, 1)))])
def test_one_wrong_prediction_causes_no_division_by_zero(sure: bool, shares: Any) -> None:
    lock("00-0", 3, 4, sure=sure)
    result = gl.progress()
    assert (result.calibration(True), result.calibration(False)) == shares
    assert "0 of 1 (0%)" in repr(result)


def test_exercises_show_their_best_score() -> None:
    name = next(iter(folders.list_exercises()))
    store().put("exercises", name, True)
    scores.store_best_scores(folders.list_exercises()[name], {"sectors": 1563})
    found = gl.progress()
    assert found.passed == 1
    assert f"{name}: 1,563 sectors" in str(found)


def test_rows_link_to_notebooks_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "<a " not in gl.progress()._repr_html_()
    (tmp_path / "00_start_here.ipynb").write_text("{}")
    assert '<a href="00_start_here.ipynb">00 start</a>' in gl.progress()._repr_html_()


def test_a_file_for_the_instructor_contains_answers_and_outcomes(tmp_path: Path) -> None:
    lock("00-0", 3, 4, sure=True)
    file = tmp_path / "me.json"
    gl.progress().save(file)
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["format"] == "gpulab-progress"
    (notebook,) = [n for n in record["notebooks"] if n["number"] == "00"]
    assert notebook["predictions"][0] == {"key": "00-0", "value": 3, "sure": True, "right": False}
    assert {"question", "first", "right"} == set(notebook["quiz"][0])


def test_a_notebook_without_a_quiz_adds_no_quiz_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders.Folder, "quiz", property(lambda f: None))
    found = gl.progress()
    assert {(notebook.quiz, notebook.points) for notebook in found.notebooks} == {((), (0, 0))}
    assert found.quizzes == {}


def test_the_next_exercise_is_the_first_that_has_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_, last = folders.list_exercises()
    assert f"Your next exercise: {first}." in repr(gl.progress())
    store().put("exercises", first, True)
    store().put("exercises", last, True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{second[:2]}a_elsewhere.ipynb").write_text("{}")
    notebook = json.dumps({"source": [f'gl.check("{second}", answer)']})
    (tmp_path / f"{second[:2]}b_here.ipynb").write_text(notebook)
    found = gl.progress()
    assert f"Your next exercise: {second}." in repr(found)
    assert f'Your next exercise: <a href="{second[:2]}b_here.ipynb">{second}</a>.' in found._repr_html_()


def made_up(story: Callable[[str], Any] | None = None) -> Progress:
    """Return the progress of two notebooks; the second is not started."""
    best = ExerciseResult("00-a", True, "1,563 sectors, 2 waits")
    exercises = (best, ExerciseResult("00-b", False), ExerciseResult("00-c", True))
    predicted = (
        PredictionResult("00-x", 3, True, True),
        PredictionResult("00-y", 3, True, False),
        PredictionResult("00-z", "a", False, True),
        PredictionResult("00-v", 1, None, True),
        PredictionResult("00-w", 1, True, None),
        PredictionResult("00-u"),
    )
    quiz = (QuizAnswer("?", "a", True), QuizAnswer("!", "b", False), QuizAnswer("…", None, None))
    return Progress(
        (
            NotebookProgress("00", "made_up", "00_a&b.ipynb", exercises, predicted, quiz, (1, 2)),
            NotebookProgress("01", "later", "", (ExerciseResult("01-a", False),), (), (), (0, 0)),
        ),
        story=story,
    )


def texts_of(page: str, tag: str) -> list[str]:
    """Return the texts of all elements without inner elements."""
    return re.findall(rf"<{tag}>([^<]*)</{tag}>", page)


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [
        (8, 10, 0.490, 0.943),
        (1, 29, 0.0061, 0.1718),
        (0, 20, 0.0, 0.1611),
    ],  # the last two: Newcombe 1998, table I
)
def test_the_confidence_interval_is_the_wilson_interval(
    right: int, total: int, low: float, high: float
) -> None:
    assert compute_interval(right, total) == pytest.approx((low, high), abs=6e-4)


def test_progress_is_shown_as_a_table_of_numbers() -> None:
    numbers: list[str] = []
    found = made_up(numbers.append)
    assert (found.passed, found.quizzes) == (2, {"made_up": (1, 3)})
    assert (found.calibration(True), found.calibration(False)) == ((1, 2), (1, 1))
    _, head, *rows = [line for line in str(found).splitlines() if line.strip(" -─")]
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in (head, *rows)]
    assert cells == [
        ["notebook", "exercises passed", "predictions right", "quiz right first time", "best scores"],
        ["00 made up", "2 of 3", "3 of 4 (6 asked)", "1 of 3", "00-a: 1,563 sectors, 2 waits"],
        ["01 later", "0 of 1", "none yet (0 asked)", "0 of 0"],
    ]
    page = found._repr_html_()
    assert '<a href="00_a&amp;b.ipynb">00 made up</a>' in page
    assert "<b>01 later</b>" in page, "without a file there is no link"
    assert texts_of(page, "small") == [
        "2 of 3 exercises",
        "3 of 6 predictions",
        "1 of 3 quiz questions",
        "0 of 1 exercises",
    ]
    marks = [page.count(f'<i class="gl-{state}"></i>') for state in ("right", "wrong", "open")]
    assert marks == [2 + 3 + 1, 1 + 1, 1 + 2 + 1 + 1], "exercises, predictions and quiz questions by state"
    assert texts_of(page, "li")[-3:] == [
        "sure: 1 of 2 right (50 %)",
        "guess: 1 of 1 right (100 %)",
        "00-a: 1,563 sectors, 2 waits",
    ]
    assert numbers == ["00", "00"]
    done = replace(
        found, notebooks=(replace(found.notebooks[0], exercises=found.notebooks[0].exercises[:1]),)
    )
    assert done.next_exercise is None
    nothing = replace(found, notebooks=found.notebooks[1:])
    assert "Calibration" not in nothing._repr_html_(), "without predictions there is nothing to plot"
    assert numbers == ["00", "00"]
    assert json.loads(found.json())["notebooks"][0]["points"] == [1, 2]
    assert (json.loads(found.json())["version"], found.next_exercise) == (1, found.notebooks[0].exercises[1])


def test_the_running_example_grows_with_each_started_notebook() -> None:
    assert "The running example so far" not in str(gl.progress())
    lock("00-0", 3, 4)
    assert "five simple kernels" in str(gl.progress())
    assert "as one graph" not in gl.progress()._repr_html_()
    store().put("exercises", "11-replay", True)
    assert "as one graph" in gl.progress()._repr_html_()
