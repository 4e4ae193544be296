"""Functions of the course in `gpulab`, such as ``gl.check``.

They are entry points of the group ``gpulab.course``. They look up names in the notebooks' folders
and call `gpulab_course.teach`.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from gpulab_course import folders
from gpulab_course.teach import predictions, quizzes
from gpulab_course.teach import progress as _progress
from gpulab_course.teach.interview import opening
from gpulab_course.teach.interview.cards import Card
from gpulab_course.teach.interview.talk import Chair, Interview
from gpulab_course.teach.judge import check as checking
from gpulab_course.teach.judge.verdict import Verdict
from gpulab_course.teach.names import names
from gpulab_course.teach.predictions import Prediction, Reveal
from gpulab_course.teach.progress import Progress
from gpulab_course.teach.question import PredictionQuestion, Value
from gpulab_course.teach.quizzes import Quiz
from virtualgpu.errors import did_you_mean
from virtualgpu.records import Provenance

__all__ = ["check", "interview", "names", "predict", "progress", "quiz", "reveal"]


def check(exercise_id: str, answer: Any) -> Verdict:
    """Judge an answer to an exercise, also on its edge cases.

    A kernel is judged in five stages: its results, with other orders of blocks, under the sanitizer, by its
    counters against a budget, and by how evenly the work is divided among its threads. A Python answer is
    judged in a separate process, with a time limit.

    Parameters
    ----------
    exercise_id
        The exercise's name in the notebook, such as ``"00-saxpy"``.
    answer
        What the exercise asks for: a kernel (``cp.RawKernel`` or its CUDA C++ text), a function
        or a value.

    Returns
    -------
    Verdict
        ``passed`` and a sentence; ``print`` shows the stages and the score. A wrong, crashing or endless
        answer is a verdict, not an error.

    Raises
    ------
    UnknownExerciseError
        If there is no such exercise.
    """
    exercise = folders.exercise(exercise_id)
    if exercise is None:
        names = folders.exercises()
        raise checking.UnknownExerciseError(
            f"There is no exercise {exercise_id!r}.{did_you_mean(exercise_id, names)} "
            f"Exercises: {', '.join(names)}."
        )
    return checking.check(exercise, answer)


def predict(
    key: str, *, answer: Value | None = None, sure: bool | None = None, **fields: Value
) -> Prediction:
    """Ask for a prediction before a cell shows the number: ``gl.predict("02-tail")``.

    In JupyterLab it is a small form that stores an answer as sure or as a guess. In plain Python pass
    `answer`, or call ``.lock(value, sure=True)``. `gl.reveal` compares it with the result.

    Parameters
    ----------
    key
        Of one of the course's predictions. Their texts are in ``predictions.py`` of the notebook's
        folder in `gpulab_course.content`.
    answer, sure
        Locks this answer at once.
    **fields
        What the question's ``{name}`` stand for, such as ``blocks=4``.

    Raises
    ------
    UnknownPredictionError
        If the course asks for no such prediction; the message names the nearest.
    ValueError
        If `answer` is not among the choices, or is not a number where there are none.

    Examples
    --------
    >>> guess = predict("00-threads", n=1000, threads=256, answer="1,000", sure=False)
    >>> reveal("00-threads", 1024, "counted by the kernel", blocks=4, idle=24)
    ✗ 1,024 threads; you guessed 1,000 threads, 24 too few. Counted by the kernel. A launch starts ...
    """
    return predictions.predict(_question(key), answer, sure, fields)


def reveal(key: str, found: Value, source: Provenance | str, **fields: Value) -> Reveal:
    """Compare the prediction `key` with the result: ``gl.reveal("02-tail", 1.45, trace.provenance)``.

    Parameters
    ----------
    key
        The prediction's.
    found
        The number or choice that was found.
    source
        Where it comes from: a record's provenance, or a phrase such as ``"counted by the kernel"``.
    **fields
        What ``{name}`` in the explanation stand for.

    Returns
    -------
    Reveal
        ``.right`` and, as text or in JupyterLab, the comparison. There it waits for a prediction
        that is not locked yet.

    Raises
    ------
    UnknownPredictionError
        If the course asks for no such prediction; the message names the nearest.
    """
    return predictions.reveal(_question(key), found, source, fields)


def _question(key: str) -> PredictionQuestion:
    question = folders.prediction(key)
    if question is None:
        keys = folders.predictions()
        raise predictions.UnknownPredictionError(
            f"There is no prediction {key!r} in the course.{did_you_mean(key, keys)}"
        )
    return question


def quiz(topic: str) -> Quiz:
    """Return the questions of one topic: a form in JupyterLab, numbered text elsewhere.

    Without the form, answer with ``q = gl.quiz("start")`` and ``q.answer(1, "b")``. Answers are stored
    (in ``GPULAB_HOME``); the order of the choices differs between learners.

    Raises
    ------
    UnknownQuizError
        If there is no such topic; the message names the most similar one.
    """
    topics = folders.quizzes()
    if topic not in topics:
        raise quizzes.UnknownQuizError(
            f"There is no quiz {topic!r}.{did_you_mean(topic, topics)} Topics: {', '.join(topics)}."
        )
    title, questions = topics[topic]
    return Quiz(topic, title, questions)


def progress() -> Progress:
    """Return this learner's progress, from the files on this computer (``GPULAB_HOME``).

    Returns
    -------
    Progress
        Exercises passed, predictions right and how well calibrated (of the sure ones, of the guesses),
        questions right. It is a table with links in JupyterLab and text with ``print``, and
        ``.save("progress.json")`` writes a file for the instructor. Below the table are the versions of the
        course's running example from the notebooks begun so far, computed again on the current device.
    """
    return _progress.progress(folders.folders(), folders.story)


def interview(
    kind: str | None = None,
    *,
    seed: int | None = None,
    cards: int = 6,
    chair: Chair = "candidate",
) -> Interview:
    """Start a mock interview: you answer first, then gpulab measures the true value.

    Cards are drawn with their parameters (device, sizes, kernel) by a seed. A card that you missed or
    guessed comes back after 1, 3 and 7 days. The score is coverage times calibration.

    Parameters
    ----------
    kind
        ``"estimate"``, ``"diagnose"``, ``"whiteboard"``, ``"bug"``, ``"refute"`` or ``"ladder"``, or the key
        of one card; of all kinds by default.
    seed
        Draws the cards and their parameters: the same seed, the same interview. By default a new one, and
        cards that are due come first.
    cards
        How many.
    chair
        ``"interviewer"`` shows all questions with their truths, and the rubric: sit opposite somebody with
        the same seed.

    Returns
    -------
    Interview
        A form in JupyterLab; ``answer``, ``tick`` and ``next`` do the same. ``.scorecard`` is what it came
        to, and ``save("interview.json")`` keeps that.

    Raises
    ------
    UnknownCardError
        If there is no such kind or card.
    ValueError
        For another chair, or no cards.

    Examples
    --------
    >>> talk = gl.interview("estimate", seed=7)
    >>> talk.answer(16, sure=True)
    >>> gl.interview("estimate", seed=7, chair="interviewer")
    """
    return opening.interview(all_cards(), kind, seed, cards, chair, date.today)


def all_cards() -> list[Card]:
    """Return all interview cards of the course."""
    return [card for folder in folders.folders() for card in folder.cards]
