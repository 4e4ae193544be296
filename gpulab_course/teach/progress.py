"""A learner's progress in exercises, predictions, quizzes and interviews."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from gpulab.views._saving import Savable, Writers, make_text_writer
from gpulab.views.tables import Table
from gpulab.words import count
from gpulab_course.teach.interview import again
from gpulab_course.teach.judge import scores
from gpulab_course.teach.judge.exercise import Exercise
from gpulab_course.teach.predictions.prediction import SECTION as PREDICTIONS
from gpulab_course.teach.progress_page import Tile, render_page
from gpulab_course.teach.question import PredictionQuestion, Question, WhyQuestion
from gpulab_course.teach.quizzes import Quiz
from gpulab_course.teach.store import store

_HEADINGS = ("notebook", "exercises passed", "predictions right", "quiz right first time", "best scores")


class Notebook(Protocol):
    """The content of a notebook that is needed to show a learner's progress, such as its exercises."""

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
class ExerciseResult:
    """A learner's result in one exercise, with the best score if the exercise has a budget."""

    name: str
    passed: bool
    best: str = ""


@dataclass(frozen=True, slots=True)
class PredictionResult:
    """A learner's answer to one prediction, with its certainty and its result. Attributes without a known
    value are None.
    """

    key: str
    value: int | float | str | None = None
    sure: bool | None = None
    right: bool | None = None


@dataclass(frozen=True, slots=True)
class QuizAnswer:
    """A learner's first answer to one quiz question. If the question is not answered yet, `first` and `right`
    are None.
    """

    question: str
    first: str | None
    right: bool | None


@dataclass(frozen=True, slots=True)
class NotebookProgress:
    """A learner's results in one notebook."""

    number: str
    topic: str
    file: str
    exercises: tuple[ExerciseResult, ...]
    predictions: tuple[PredictionResult, ...]
    quiz: tuple[QuizAnswer, ...]
    points: tuple[int, int]


@dataclass(frozen=True, slots=True, repr=False)
class Progress(Savable):
    """A learner's results in all notebooks, which are displayed as a table.

    Examples
    --------
    >>> read_progress().save("progress.json")  # doctest: +SKIP
    """

    notebooks: tuple[NotebookProgress, ...]
    interview: tuple[int, int] = (0, 0)
    """Cards of `gpulab.interview` that were answered, and how many of them are due."""
    story: Callable[[str], Any] | None = field(default=None, compare=False)
    """Function that returns the table of the running example up to a notebook."""

    @property
    def exercises(self) -> dict[str, bool]:
        """A dict from the name of each course exercise to whether the learner has passed it."""
        return {
            exercise.name: exercise.passed for notebook in self.notebooks for exercise in notebook.exercises
        }

    @property
    def quizzes(self) -> dict[str, tuple[int, int]]:
        """The number of questions answered correctly at the first attempt and the number of all questions,
        for each quiz topic.
        """
        return {n.topic: (_count_right(n.quiz)[0], len(n.quiz)) for n in self.notebooks if n.quiz}

    @property
    def passed(self) -> int:
        """The number of exercises that the learner has passed."""
        return sum(self.exercises.values())

    @property
    def next_exercise(self) -> ExerciseResult | None:
        """The first exercise of the course that is not passed yet, or None if all are passed."""
        return next(
            (
                exercise
                for notebook in self.notebooks
                for exercise in notebook.exercises
                if not exercise.passed
            ),
            None,
        )

    @property
    def predictions(self) -> tuple[PredictionResult, ...]:
        """The learner's results in all predictions of the course."""
        return tuple(prediction for notebook in self.notebooks for prediction in notebook.predictions)

    def calibration(self, sure: bool) -> tuple[int, int]:
        """Return the number of right predictions and the total number, for sure predictions or for
        guesses.
        """
        return _count_right(p for p in self.predictions if p.sure is sure)

    def __repr__(self) -> str:
        right_count, answer_count = _count_right(self.predictions)
        answers = [answer for notebook in self.notebooks for answer in notebook.quiz]
        summary = (
            f"Progress: {self.passed} of {count(len(self.exercises), 'exercise')} passed; "
            f"{right_count} of {count(answer_count, 'prediction')} right, "
            f"of {len(self.predictions)} that the course asks for; "
            f"{_count_right(answers)[0]} of {count(len(answers), 'question')} right first time."
        )
        if next_exercise := self.next_exercise:
            summary += f" Your next exercise: {next_exercise.name}."
        sure_counts = self.calibration(True)
        guess_counts = self.calibration(False)
        if sure_counts[1] or guess_counts[1]:
            summary += (
                f" When sure, right {_make_share_text(*sure_counts)}; "
                f"when guessing, {_make_share_text(*guess_counts)}."
            )
        if self.interview[0]:
            summary += f" Interview: {count(self.interview[0], 'card')} answered, {self.interview[1]} due."
        return summary

    def __str__(self) -> str:
        table = Table(repr(self), _HEADINGS, tuple(self._make_rows())).text()
        story_table = self._make_story_table()
        return f"{table}\n\n{story_table!r}" if story_table else table

    def _make_story_table(self) -> Any:
        """Return the table of the running example up to the latest notebook with results, or None."""
        notebook_numbers = [
            notebook.number
            for notebook in self.notebooks
            if any(exercise.passed for exercise in notebook.exercises)
            or any(prediction.value is not None for prediction in notebook.predictions)
        ]
        return self.story(max(notebook_numbers)) if notebook_numbers and self.story else None

    def _repr_html_(self) -> str:
        exercise = self.next_exercise
        answered_count, due_count = self.interview
        scores = [
            f"{exercise.name}: {exercise.best}"
            for notebook in self.notebooks
            for exercise in notebook.exercises
            if exercise.best
        ]
        page_html = render_page(
            tuple(map(_make_notebook_tile, self.notebooks)),
            {"sure": self.calibration(True), "guess": self.calibration(False)},
            (exercise.name, _find_notebook_file(exercise.name)) if exercise else ("", ""),
            [f"Interview: {count(answered_count, 'card')} answered, {due_count} due."]
            if answered_count
            else [],
            scores,
        )
        story_table = self._make_story_table()
        return f"{page_html}{story_table._repr_html_()}" if story_table else page_html

    def _make_rows(self) -> Iterable[tuple[str, ...]]:
        for notebook in self.notebooks:
            passed_count = sum(exercise.passed for exercise in notebook.exercises)
            right_count, answer_count = _count_right(notebook.predictions)
            scores = [f"{exercise.name}: {exercise.best}" for exercise in notebook.exercises if exercise.best]
            yield (
                f"{notebook.number} {notebook.topic.replace('_', ' ')}",
                f"{passed_count} of {len(notebook.exercises)}",
                (f"{right_count} of {answer_count}" if answer_count else "none yet")
                + f" ({len(notebook.predictions)} asked)",
                f"{_count_right(notebook.quiz)[0]} of {len(notebook.quiz)}",
                "; ".join(scores),
            )

    def json(self) -> str:
        """Return the learner's progress as JSON, for example for an instructor who collects the files."""
        record = {"format": "gpulab-progress", "version": 1, "notebooks": [asdict(n) for n in self.notebooks]}
        return json.dumps(record, indent=1, ensure_ascii=False)

    def _make_writers(self) -> Writers:
        return {".json": make_text_writer(lambda: f"{self.json()}\n")}


def read_progress(notebooks: Iterable[Notebook], story: Callable[[str], Any]) -> Progress:
    """Read the learner's results in all notebooks from the learner's file.

    The function `story` must return the table of the running example up to a given notebook.
    """
    card_histories = again.load_histories()
    return Progress(
        tuple(_read_notebook(notebook) for notebook in notebooks),
        (len(card_histories), len(again.list_due_keys(list(card_histories), date.today()))),
        story,
    )


def _read_notebook(notebook: Notebook) -> NotebookProgress:
    files = sorted(path.name for path in Path.cwd().glob(f"{notebook.number}*_*.ipynb"))
    answers, ticked_points = _read_quiz_results(notebook)
    return NotebookProgress(
        notebook.number,
        notebook.topic,
        files[0] if files else "",
        tuple(_read_exercise_result(exercise) for exercise in notebook.exercises.values()),
        tuple(_read_prediction(key) for key in notebook.predictions),
        answers,
        ticked_points,
    )


def _find_notebook_file(exercise_name: str) -> str:
    """Return the file name of the learner's notebook that checks an exercise; empty if there is none."""
    for path in sorted(Path.cwd().glob(f"{exercise_name[:2]}*_*.ipynb")):
        if f'gl.check(\\"{exercise_name}\\"' in path.read_text(encoding="utf-8", errors="replace"):
            return path.name
    return ""


def _read_exercise_result(exercise: Exercise) -> ExerciseResult:
    name = exercise.exercise_id
    best_texts = [f"{value:,} {counter}" for counter, value in scores.read_best_scores(exercise).items()]
    return ExerciseResult(name, bool(store().get("exercises", name)), ", ".join(best_texts))


def _read_prediction(key: str) -> PredictionResult:
    record = store().get(PREDICTIONS, key)
    record = record if isinstance(record, dict) else {"value": record}
    return PredictionResult(key, record.get("value"), record.get("sure"), record.get("right"))


def _read_quiz_results(notebook: Notebook) -> tuple[tuple[QuizAnswer, ...], tuple[int, int]]:
    if notebook.quiz is None:
        return (), (0, 0)
    title, questions = notebook.quiz
    quiz = Quiz(notebook.topic, title, questions)
    answers = []
    for question in questions:
        if isinstance(question, Question):
            first_choice = quiz.get_choice(question, "first")
            choice_text = first_choice.text if first_choice else None
            is_right = first_choice.right if first_choice else None
            answers.append(QuizAnswer(question.text, choice_text, is_right))
    return tuple(answers), quiz.points


def _make_notebook_tile(notebook: NotebookProgress) -> Tile:
    def list_outcomes(results: Iterable[PredictionResult | QuizAnswer]) -> list[bool | None]:
        # A file may hold anything.
        return [result.right if isinstance(result.right, bool) else None for result in results]

    return Tile(
        f"{notebook.number} {notebook.topic.replace('_', ' ')}",
        notebook.file,
        {
            "exercises": [exercise.passed or None for exercise in notebook.exercises],
            "predictions": list_outcomes(notebook.predictions),
            "quiz questions": list_outcomes(notebook.quiz),
        },
    )


def _count_right(results: Iterable[Any]) -> tuple[int, int]:
    """Return the number of right results, and the number of results that are either right or wrong."""
    outcomes = [
        result.right for result in results if isinstance(result.right, bool)
    ]  # a file may hold anything
    return sum(outcomes), len(outcomes)


def _make_share_text(right_count: int, total_count: int) -> str:
    return f"{right_count} of {total_count} ({right_count / total_count:.0%})" if total_count else "0 of 0"
