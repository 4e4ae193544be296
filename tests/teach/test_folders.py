"""Course folders are found by name, so a new notebook needs changes only in its own folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpulab_course import folders
from gpulab_course.api import check, progress, quiz
from gpulab_course.teach.judge.check import UnknownExerciseError
from tools.shipped_ptx import read_course_kernels

EXERCISES = """
from gpulab_course.teach.judge import NotYet, PythonExercise

def doubled(answer):
    return 2 * answer

def judge(answer):
    if answer.ask(doubled) != 84:
        raise NotYet("think again.")
    return "that is it."

EXERCISES = (PythonExercise("97-answer", "The answer", judge),)
"""
QUIZ = """
from gpulab_course.teach.question import Choice, Question

TITLE = "Made up: one question"
QUESTIONS = (Question("Why?", (Choice("a", "Because.", right=True), Choice("b", "No."))),)
"""
KERNEL = 'extern "C" __global__ void nothing() {}\n'


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder for notebook 97 in a separate package."""
    folder = tmp_path / "more_content" / "n97_made_up"
    (folder / "kernels").mkdir(parents=True)
    (folder / "exercises.py").write_text(EXERCISES)
    (folder / "quiz.py").write_text(QUIZ)
    (folder / "kernels" / "nothing.cu").write_text(KERNEL)
    (tmp_path / "more_content" / "notes").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(folders, "CONTENT_PACKAGES", (*folders.CONTENT_PACKAGES, "more_content"))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "more_content"]:
        del sys.modules[name]


@pytest.mark.usefixtures("made_up")
def test_an_exercise_in_a_new_folder_is_found() -> None:
    assert "97-answer" in folders.list_exercises()
    assert repr(check("97-answer", 42)) == "97-answer: passed: that is it."
    assert repr(check("97-answer", 41)) == "97-answer: not yet: think again."
    assert progress().exercises["97-answer"]


@pytest.mark.usefixtures("made_up")
def test_a_quiz_in_a_new_folder_is_found() -> None:
    question = quiz("made_up")
    assert question.title == "Made up: one question"
    right = "abc"[[option.right for option in question.options(1)].index(True)]
    assert question.answer(1, right) == "Right. Because."
    assert progress().quizzes["made_up"] == (1, 1)


@pytest.mark.usefixtures("made_up")
def test_kernels_in_a_new_folder_are_compiled_in_advance() -> None:
    assert folders.read_kernels()["n97_made_up/kernels/nothing.cu"] == KERNEL
    assert KERNEL in read_course_kernels()


def test_a_folder_can_omit_exercises_and_quiz(made_up: Path) -> None:
    (made_up / "exercises.py").unlink()
    (made_up / "quiz.py").unlink()
    (folder,) = [folder for folder in folders.list_folders() if folder.number == "97"]
    assert folder.exercises == {}
    assert folder.quiz is None
    with pytest.raises(UnknownExerciseError, match="no exercise '97-answer'"):
        check("97-answer", 42)


def test_finding_an_exercise_loads_only_its_folder(made_up: Path) -> None:
    (made_up / "exercises.py").write_text("raise RuntimeError('someone is editing this')")
    assert check("00-blocks", lambda n, i: (-(-n // i.max_threads_per_block), i.max_threads_per_block))
    with pytest.raises(RuntimeError, match="someone is editing this"):
        folders.list_exercises()


def test_exercises_are_named_after_their_notebook() -> None:
    for folder in folders.list_folders():
        assert all(name.startswith(f"{folder.number}-") for name in folder.exercises), folder.path.name


def test_exercises_and_predictions_are_found_by_name() -> None:
    for name, entry in list(folders.list_exercises().items())[:3]:
        assert folders.find_exercise(name) is entry
    for key, question in list(folders.list_predictions().items())[:3]:
        assert folders.find_prediction(key) is question
    for nothing in ("", "00", "00-nothing", "99-saxpy"):
        assert folders.find_exercise(nothing) is None
        assert folders.find_prediction(nothing) is None


def test_every_content_folder_is_a_package() -> None:
    assert all((folder.path / "__init__.py").is_file() for folder in folders.list_folders())


def test_folders_are_sorted_and_topics_are_unique() -> None:
    entry = folders.list_folders()
    assert [folder.number for folder in entry] == sorted({folder.number for folder in entry})
    assert len({folder.topic for folder in entry}) == len(entry)
