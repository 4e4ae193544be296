"""Content folders of the course, one per notebook; their modules are imported when they are needed."""

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
CONTENT_PACKAGES = ("gpulab_course.content",)
_FOLDER_NAME_PATTERN = re.compile(r"n(\d\d)_(\w+)")


@dataclass(frozen=True, slots=True)
class Folder:
    """The content folder of one notebook, with its exercises, predictions, quiz and interview cards.

    Attributes
    ----------
    number, topic : str
        The notebook's number, such as ``"02"``, and the name of its quiz.
    path : Path
        The path of the folder.
    package : str
        The dotted name of the Python package.
    """

    number: str
    topic: str
    path: Path
    package: str

    @property
    def exercises(self) -> dict[str, Exercise]:
        """The exercises of the notebook by name, such as ``"02-index"``."""
        module = self._import_module("exercises")
        return {exercise.exercise_id: exercise for exercise in module.EXERCISES} if module else {}

    @property
    def predictions(self) -> dict[str, PredictionQuestion]:
        """The predictions of the notebook by key, such as ``"02-tail"``."""
        module = self._import_module("predictions")
        return {question.key: question for question in module.PREDICTIONS} if module else {}

    @property
    def quiz(self) -> tuple[str, tuple[Question | WhyQuestion, ...]] | None:
        """The title and the questions of the notebook's quiz, or None if there is no quiz."""
        module = self._import_module("quiz")
        return (module.TITLE, module.QUESTIONS) if module else None

    @property
    def cards(self) -> tuple[Card, ...]:
        """The interview cards that belong to the notebook."""
        module = self._import_module("cards")
        return module.CARDS if module else ()

    @property
    def shown_answers(self) -> tuple[ShownAnswer, ...]:
        """Common wrong answers to the notebook's exercises, which are shown to instructors."""
        module = self._import_module("shown_answers")
        return module.SHOWN if module else ()

    def _import_module(self, module_name: str) -> Any:
        if (
            not (self.path / f"{module_name}.py").is_file()
            and not (self.path / module_name / "__init__.py").is_file()
        ):
            return None
        return importlib.import_module(f"{self.package}.{module_name}")


def list_folders() -> list[Folder]:
    """Return the content folders of all notebooks, in the order of the notebooks."""
    content_folders = [
        Folder(name_match[1], name_match[2], folder_path, f"{package}.{folder_path.name}")
        for package, parent_path in _package_paths()
        for folder_path in parent_path.iterdir()
        if (name_match := _FOLDER_NAME_PATTERN.fullmatch(folder_path.name))
    ]
    return sorted(content_folders, key=lambda folder: folder.path.name)


def _package_paths() -> list[tuple[str, Path]]:
    """Return the paths of the content packages with their package names."""
    return [
        (name, Path(path)) for name in CONTENT_PACKAGES for path in importlib.import_module(name).__path__
    ]


def find_exercise(exercise_id: str) -> Exercise | None:
    """Return the exercise with this name, or None. Only the module of the exercise's notebook is imported."""
    matching_folders = [folder for folder in list_folders() if folder.number == exercise_id[:2]]
    return next((f.exercises[exercise_id] for f in matching_folders if exercise_id in f.exercises), None)


def list_exercises() -> dict[str, Exercise]:
    """Return all exercises of the course by name."""
    return {name: exercise for folder in list_folders() for name, exercise in folder.exercises.items()}


def find_prediction(key: str) -> PredictionQuestion | None:
    """Return the prediction with this key, or None. Only the module of its notebook is imported."""
    matching_folders = [folder for folder in list_folders() if folder.number == key[:2]]
    return next((f.predictions[key] for f in matching_folders if key in f.predictions), None)


def list_predictions() -> dict[str, PredictionQuestion]:
    """Return all predictions of the course by key."""
    return {key: question for folder in list_folders() for key, question in folder.predictions.items()}


def list_quizzes() -> dict[str, tuple[str, tuple[Question | WhyQuestion, ...]]]:
    """Return the title and the questions of each quiz by topic."""
    return {folder.topic: quiz for folder in list_folders() if (quiz := folder.quiz)}


def read_kernels() -> dict[str, str]:
    """Return the text of all CUDA C++ files of the course by path, such as ``"story/kernels/block.cu"``."""
    glob_patterns = ("*/kernels/*.cu", "kernels/*.cu")  # a notebook's own, and the ladders that all share
    package_paths = [path for _, path in _package_paths()]
    kernel_files = sorted(
        file
        for package_path in package_paths
        for glob_pattern in glob_patterns
        for file in package_path.glob(glob_pattern)
    )
    return {"/".join(file.parts[-3:]): file.read_text(encoding="utf-8") for file in kernel_files}


def tabulate_story(number: str) -> Any:
    """Return a table of the versions of the running example, up to the version of a notebook."""
    from gpulab_course.content.story import table

    return table(number)
