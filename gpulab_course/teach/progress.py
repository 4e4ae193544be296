"""Progress of a learner: exercises, predictions and their calibration, quizzes."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from gpulab.views._saving import Savable, Writers, text_writer
from gpulab.views.tables import Table
from gpulab.words import count
from gpulab_course.teach.interview import again
from gpulab_course.teach.judge import scores
from gpulab_course.teach.judge.exercise import Exercise
from gpulab_course.teach.predictions.prediction import SECTION as PREDICTIONS
from gpulab_course.teach.question import PredictionQuestion, Question, WhyQuestion
from gpulab_course.teach.quizzes import Quiz
from gpulab_course.teach.store import store

_HEADINGS = ("notebook", "exercises passed", "predictions right", "quiz right first time", "best scores")


class Notebook(Protocol):
    """The exercises, predictions and quiz of a notebook, such as a `gpulab_course.folders.Folder`."""

    @property
    def number(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def exercises(self) -> Mapping[str, Exercise]: ...
    @property
    def predictions(self) -> Mapping[str, PredictionQuestion]: ...
    @property
    def quiz(self) -> tuple[str, tuple[Question | WhyQuestion, ...]] | None: ...


@dataclass(frozen=True, slots=True)
class Exercised:
    """The progress in one exercise: whether it has passed, and the best score if it has a budget."""

    name: str
    passed: bool
    best: str = ""


@dataclass(frozen=True, slots=True)
class Predicted:
    """The outcome of one prediction: the answer, its certainty, whether it was right; None: not yet."""

    key: str
    value: int | float | str | None = None
    sure: bool | None = None
    right: bool | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The first answer to one question of a quiz; None: not yet."""

    question: str
    first: str | None
    right: bool | None


@dataclass(frozen=True, slots=True)
class NotebookProgress:
    """The progress in one notebook."""

    number: str
    topic: str
    file: str
    exercises: tuple[Exercised, ...]
    predictions: tuple[Predicted, ...]
    quiz: tuple[Answered, ...]
    points: tuple[int, int]


@dataclass(frozen=True, slots=True, repr=False)
class Progress(Savable):
    """The progress of a learner, by notebook.

    Examples
    --------
    >>> progress().save("progress.json")  # doctest: +SKIP
    """

    notebooks: tuple[NotebookProgress, ...]
    interview: tuple[int, int] = (0, 0)
    """Cards of `gpulab.interview` that were answered, and how many of them are due."""
    story: Callable[[str], Any] | None = field(default=None, compare=False)
    """Makes the table of the running example up to a notebook."""

    @property
    def exercises(self) -> dict[str, bool]:
        """Exercises of the course by name, and whether each has passed."""
        return {done.name: done.passed for notebook in self.notebooks for done in notebook.exercises}

    @property
    def quizzes(self) -> dict[str, tuple[int, int]]:
        """Questions right first time, and how many there are, by the quiz's topic."""
        return {n.topic: (_right(n.quiz)[0], len(n.quiz)) for n in self.notebooks if n.quiz}

    @property
    def passed(self) -> int:
        """Exercises passed."""
        return sum(self.exercises.values())

    @property
    def next_exercise(self) -> Exercised | None:
        """The first exercise that has not passed yet, in the course's order; None once all have."""
        return next((done for n in self.notebooks for done in n.exercises if not done.passed), None)

    @property
    def predictions(self) -> tuple[Predicted, ...]:
        """All predictions of the course."""
        return tuple(predicted for notebook in self.notebooks for predicted in notebook.predictions)

    def calibration(self, sure: bool) -> tuple[int, int]:
        """Return how many predictions locked as sure (or as a guess) were right, and how many there were."""
        return _right(p for p in self.predictions if p.sure is sure)

    def __repr__(self) -> str:
        right, compared = _right(self.predictions)
        answered = [a for notebook in self.notebooks for a in notebook.quiz]
        text = (
            f"Progress: {self.passed} of {count(len(self.exercises), 'exercise')} passed; "
            f"{right} of {count(compared, 'prediction')} right, "
            f"of {len(self.predictions)} that the course asks for; "
            f"{_right(answered)[0]} of {count(len(answered), 'question')} right first time."
        )
        if following := self.next_exercise:
            text += f" Your next exercise: {following.name}."
        sure = self.calibration(True)
        guess = self.calibration(False)
        if sure[1] or guess[1]:
            text += f" When sure, right {_share(*sure)}; when guessing, {_share(*guess)}."
        if self.interview[0]:
            text += f" Interview: {count(self.interview[0], 'card')} answered, {self.interview[1]} due."
        return text

    def __str__(self) -> str:
        story = self._story()
        told = [Table(repr(self), _HEADINGS, tuple(self._rows())).text(), *([repr(story)] if story else [])]
        return "\n\n".join(told)

    def _story(self) -> Any:
        """The course's table up to the last notebook that was begun, computed anew; None before the first."""
        begun = [
            notebook.number
            for notebook in self.notebooks
            if any(exercise.passed for exercise in notebook.exercises)
            or any(predicted.value is not None for predicted in notebook.predictions)
        ]
        return self.story(max(begun)) if begun and self.story else None

    def _repr_html_(self) -> str:
        rows = []
        for notebook, cells in zip(self.notebooks, self._rows(), strict=True):
            name = html.escape(cells[0])
            link = f'<a href="{html.escape(notebook.file)}">{name}</a>' if notebook.file else name
            rest = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells[1:])
            rows.append(f'<tr><th scope="row" style="text-align:left">{link}</th>{rest}</tr>')
        head = "".join(f'<th scope="col">{heading}</th>' for heading in _HEADINGS)
        said = html.escape(repr(self))
        if (following := self.next_exercise) and (file := _file_of(following.name)):
            link = f'<a href="{html.escape(file)}">{html.escape(following.name)}</a>'
            said = said.replace(f": {following.name}.", f": {link}.")
        caption = f'<caption style="text-align:left;caption-side:top">{said}</caption>'
        story = self._story()
        table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        return f"{table}<br>{story._repr_html_()}" if story else table

    def _rows(self) -> Iterable[tuple[str, ...]]:
        for notebook in self.notebooks:
            passed = sum(exercise.passed for exercise in notebook.exercises)
            right, compared = _right(notebook.predictions)
            scores = [f"{exercise.name}: {exercise.best}" for exercise in notebook.exercises if exercise.best]
            yield (
                f"{notebook.number} {notebook.topic.replace('_', ' ')}",
                f"{passed} of {len(notebook.exercises)}",
                (f"{right} of {compared}" if compared else "none yet")
                + f" ({len(notebook.predictions)} asked)",
                f"{_right(notebook.quiz)[0]} of {len(notebook.quiz)}",
                "; ".join(scores),
            )

    def json(self) -> str:
        """All progress as JSON, for example for an instructor who collects it from a class."""
        record = {"format": "gpulab-progress", "version": 1, "notebooks": [asdict(n) for n in self.notebooks]}
        return json.dumps(record, indent=1, ensure_ascii=False)

    def _writers(self) -> Writers:
        return {".json": text_writer(lambda: f"{self.json()}\n")}


def progress(notebooks: Iterable[Notebook], story: Callable[[str], Any]) -> Progress:
    """Read what this learner has done of each notebook; `story` makes the table up to a notebook."""
    cards = again.everything()
    return Progress(
        tuple(_of(notebook) for notebook in notebooks),
        (len(cards), len(again.due(list(cards), date.today()))),
        story,
    )


def _of(notebook: Notebook) -> NotebookProgress:
    files = sorted(path.name for path in Path.cwd().glob(f"{notebook.number}*_*.ipynb"))
    answered, points = _quiz(notebook)
    return NotebookProgress(
        notebook.number,
        notebook.topic,
        files[0] if files else "",
        tuple(_exercise(exercise) for exercise in notebook.exercises.values()),
        tuple(_prediction(key) for key in notebook.predictions),
        answered,
        points,
    )


def _file_of(exercise: str) -> str:
    """The learner's notebook that checks an exercise; empty where there is none."""
    for path in sorted(Path.cwd().glob(f"{exercise[:2]}*_*.ipynb")):
        if f'gl.check(\\"{exercise}\\"' in path.read_text(encoding="utf-8", errors="replace"):
            return path.name
    return ""


def _exercise(exercise: Exercise) -> Exercised:
    name = exercise.exercise_id
    best = [f"{figure:,} {counter}" for counter, figure in scores.best(exercise).items()]
    return Exercised(name, bool(store().get("exercises", name)), ", ".join(best))


def _prediction(key: str) -> Predicted:
    kept = store().get(PREDICTIONS, key)
    kept = kept if isinstance(kept, dict) else {"value": kept}
    return Predicted(key, kept.get("value"), kept.get("sure"), kept.get("right"))


def _quiz(notebook: Notebook) -> tuple[tuple[Answered, ...], tuple[int, int]]:
    if notebook.quiz is None:
        return (), (0, 0)
    title, questions = notebook.quiz
    quiz = Quiz(notebook.topic, title, questions)
    answered = []
    for question in questions:
        if isinstance(question, Question):
            first = quiz.given(question, "first")
            told = (first.text, first.right) if first else (None, None)
            answered.append(Answered(question.text, *told))
    return tuple(answered), quiz.points


def _right(things: Iterable[Any]) -> tuple[int, int]:
    """Return how many were right, and how many were compared or answered."""
    outcomes = [thing.right for thing in things if isinstance(thing.right, bool)]  # a file may hold anything
    return sum(outcomes), len(outcomes)


def _share(right: int, count: int) -> str:
    return f"{right} of {count} ({right / count:.0%})" if count else "0 of 0"
