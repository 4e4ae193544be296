"""Folders of the course, one per notebook, found by their names and read when they are needed."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulab_course.teach.judge.exercise import Exercise
from gpulab_course.teach.question import PredictionQuestion, Question, WhyQuestion
from gpulab_course.teach.shown import ShownAnswer

if TYPE_CHECKING:
    from gpulab_course.teach.interview.cards import Card

# Packages whose subpackages are the folders.
PACKAGES = ("gpulab_course.content",)
_NAME = re.compile(r"n(\d\d)_(\w+)")


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one notebook: exercises, predictions, quiz, cards.

    Attributes
    ----------
    number, topic : str
        The notebook's number, such as ``"02"``, and the name of its quiz.
    path : Path
        The folder.
    package : str
        Its dotted name.
    """

    number: str
    topic: str
    path: Path
    package: str

    @property
    def exercises(self) -> dict[str, Exercise]:
        """The notebook's exercises by name, such as ``"02-index"``."""
        module = self._module("exercises")
        return {exercise.exercise_id: exercise for exercise in module.EXERCISES} if module else {}

    @property
    def predictions(self) -> dict[str, PredictionQuestion]:
        """The notebook's predictions by key, such as ``"02-tail"``."""
        module = self._module("predictions")
        return {question.key: question for question in module.PREDICTIONS} if module else {}

    @property
    def quiz(self) -> tuple[str, tuple[Question | WhyQuestion, ...]] | None:
        """Title and questions of the notebook's quiz; None if it has none."""
        module = self._module("quiz")
        return (module.TITLE, module.QUESTIONS) if module else None

    @property
    def cards(self) -> tuple[Card, ...]:
        """The notebook's cards for interviews."""
        module = self._module("cards")
        return module.CARDS if module else ()

    @property
    def shown_answers(self) -> tuple[ShownAnswer, ...]:
        """Wrong answers to the notebook's exercises that instructors can expect."""
        module = self._module("shown_answers")
        return module.SHOWN if module else ()

    def _module(self, part: str) -> Any:
        if not (self.path / f"{part}.py").is_file() and not (self.path / part / "__init__.py").is_file():
            return None
        return importlib.import_module(f"{self.package}.{part}")


def folders() -> list[Folder]:
    """Return all folders of the course, in the notebooks' order."""
    result = [
        Folder(name[1], name[2], entry, f"{package}.{entry.name}")
        for package, parent_path in _package_paths()
        for entry in parent_path.iterdir()
        if (name := _NAME.fullmatch(entry.name))
    ]
    return sorted(result, key=lambda folder: folder.path.name)


def _package_paths() -> list[tuple[str, Path]]:
    """Return the folders in which the packages are, each with its package's name."""
    return [(name, Path(path)) for name in PACKAGES for path in importlib.import_module(name).__path__]


def exercise(exercise_id: str) -> Exercise | None:
    """Return the exercise of that name, or None; only the folder of its notebook is read."""
    matching = [folder for folder in folders() if folder.number == exercise_id[:2]]
    return next((f.exercises[exercise_id] for f in matching if exercise_id in f.exercises), None)


def exercises() -> dict[str, Exercise]:
    """Return all exercises of the course by name."""
    return {name: exercise for folder in folders() for name, exercise in folder.exercises.items()}


def prediction(key: str) -> PredictionQuestion | None:
    """Return the prediction of that key, or None; only the folder of its notebook is read."""
    matching = [folder for folder in folders() if folder.number == key[:2]]
    return next((f.predictions[key] for f in matching if key in f.predictions), None)


def predictions() -> dict[str, PredictionQuestion]:
    """Return all predictions of the course by key."""
    return {key: question for folder in folders() for key, question in folder.predictions.items()}


def quizzes() -> dict[str, tuple[str, tuple[Question | WhyQuestion, ...]]]:
    """Return the title and questions of all quizzes by topic."""
    return {folder.topic: quiz for folder in folders() if (quiz := folder.quiz)}


def kernels() -> dict[str, str]:
    """Return all CUDA C++ sources in the course's folders by path, such as ``"story/kernels/block.cu"``."""
    patterns = ("*/kernels/*.cu", "kernels/*.cu")  # a notebook's own, and the ladders that all share
    parents = [path for _, path in _package_paths()]
    files = sorted(file for parent in parents for pattern in patterns for file in parent.glob(pattern))
    return {"/".join(file.parts[-3:]): file.read_text(encoding="utf-8") for file in files}


def story(number: str) -> Any:
    """Return the table of the running example up to a notebook; see `gpulab_course.content.story.table`."""
    from gpulab_course.content.story import table

    return table(number)
