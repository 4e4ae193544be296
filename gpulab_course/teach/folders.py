"""The course's folders, one a notebook: found by name, each read when it is asked for."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulab_course import content
from gpulab_course.teach.judge.exercise import Exercise
from gpulab_course.teach.question import PredictionQuestion, Question, WhyQuestion

if TYPE_CHECKING:
    from gpulab_course.teach.interview.cards import Card

_NAME = re.compile(r"n(\d\d)_(\w+)")


@dataclass(frozen=True, slots=True)
class Folder:
    """What belongs to one notebook. `number` is the notebook's (``"02"``), `topic` its quiz's name."""

    number: str
    topic: str
    path: Path

    @property
    def exercises(self) -> dict[str, Exercise]:
        """The notebook's exercises by name, such as ``"02-index"``."""
        module = self._module("exercises")
        return {exercise.exercise_id: exercise for exercise in module.EXERCISES} if module else {}

    @property
    def predictions(self) -> dict[str, PredictionQuestion]:
        """The notebook's predictions by key, such as ``"02-tail"``."""
        module = self._module("predictions")
        return {asked.key: asked for asked in module.PREDICTIONS} if module else {}

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

    def _module(self, part: str) -> Any:
        if not (self.path / f"{part}.py").is_file() and not (self.path / part / "__init__.py").is_file():
            return None
        return importlib.import_module(f"{content.__name__}.{self.path.name}.{part}")


def folders() -> list[Folder]:
    """All folders of the course, in the notebooks' order."""
    entries = sorted(
        (entry for place in content.__path__ for entry in Path(place).iterdir()),
        key=lambda entry: entry.name,
    )
    return [Folder(name[1], name[2], entry) for entry in entries if (name := _NAME.fullmatch(entry.name))]


def exercise(exercise_id: str) -> Exercise | None:
    """The exercise of that name, of whose notebook alone the folder is read; None if there is none."""
    own = [folder for folder in folders() if folder.number == exercise_id[:2]]
    return next((f.exercises[exercise_id] for f in own if exercise_id in f.exercises), None)


def exercises() -> dict[str, Exercise]:
    """All exercises of the course by name."""
    return {name: exercise for folder in folders() for name, exercise in folder.exercises.items()}


def prediction(key: str) -> PredictionQuestion | None:
    """The prediction of that key, of whose notebook alone the folder is read; None if there is none."""
    own = [folder for folder in folders() if folder.number == key[:2]]
    return next((f.predictions[key] for f in own if key in f.predictions), None)


def predictions() -> dict[str, PredictionQuestion]:
    """All predictions of the course by key."""
    return {key: asked for folder in folders() for key, asked in folder.predictions.items()}


def quizzes() -> dict[str, tuple[str, tuple[Question | WhyQuestion, ...]]]:
    """Title and questions of all quizzes by topic."""
    return {folder.topic: quiz for folder in folders() if (quiz := folder.quiz)}


def kernels() -> dict[str, str]:
    """All CUDA C++ sources in the course's folders by path, such as ``"story/kernels/block.cu"``."""
    kinds = ("*/kernels/*.cu", "kernels/*.cu")  # a notebook's own, and the ladders that all share
    files = sorted(f for place in content.__path__ for kind in kinds for f in Path(place).glob(kind))
    return {"/".join(file.parts[-3:]): file.read_text(encoding="utf-8") for file in files}


def story(number: str) -> Any:
    """The table of the course's program up to a notebook; see `gpulab_course.content.story.table`."""
    return importlib.import_module(f"{content.__name__}.story").table(number)
