"""The functions that the course adds to `gpulab`, such as ``gl.check``.

They are entry points of the group ``gpulab.course``. They find the content by its name in the notebooks'
folders and call `gpulab_course.teach`.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from gpulab_course import folders
from gpulab_course.teach import predictions, quizzes
from gpulab_course.teach import progress as _progress
from gpulab_course.teach.interview import opening
from gpulab_course.teach.interview.cards import Card
from gpulab_course.teach.interview.talk import Interview, Role
from gpulab_course.teach.judge import check as checking
from gpulab_course.teach.judge.verdict import Verdict
from gpulab_course.teach.names import names
from gpulab_course.teach.predictions import Prediction, Reveal
from gpulab_course.teach.progress import Progress
from gpulab_course.teach.question import AnswerValue, PredictionQuestion
from gpulab_course.teach.quizzes import Quiz
from virtualgpu.errors import did_you_mean
from virtualgpu.records import Provenance

__all__ = ["check", "interview", "names", "predict", "progress", "quiz", "reveal"]


def check(exercise_id: str, answer: Any) -> Verdict:
    """Judge an answer to an exercise with ordinary data and with edge cases.

    A kernel is judged in five stages: its results, its results with other orders of blocks, the findings of
    the sanitizer, its counters compared with a budget, and the distribution of the work among its threads. A
    Python answer is judged in a separate process, with a time limit.

    Parameters
    ----------
    exercise_id
        The exercise's name in the notebook, such as ``"00-saxpy"``.
    answer
        The solution of the exercise: a kernel (``cp.RawKernel`` or its CUDA C++ text), a function or a value.

    Returns
    -------
    Verdict
        The result, with the attribute ``passed`` and a sentence; ``print`` also shows the stages and the
        score. An answer that is wrong, crashes or does not end does not raise an error.

    Raises
    ------
    UnknownExerciseError
        If there is no such exercise.
    """
    exercise = folders.find_exercise(exercise_id)
    if exercise is None:
        names = folders.list_exercises()
        raise checking.UnknownExerciseError(
            f"There is no exercise {exercise_id!r}.{did_you_mean(exercise_id, names)} "
            f"Exercises: {', '.join(names)}."
        )
    return checking.check(exercise, answer)


def predict(
    key: str, *, answer: AnswerValue | None = None, sure: bool | None = None, **fields: AnswerValue
) -> Prediction:
    """Ask the learner for a prediction before a cell shows the true value, as in ``gl.predict("02-tail")``.

    In JupyterLab, the prediction is a small form that stores an answer as sure or as a guess. In plain
    Python, pass `answer`, or call ``.lock(value, sure=True)``. `gl.reveal` compares the answer with the true
    value.

    Parameters
    ----------
    key
        The name of one of the course's predictions, such as ``"02-tail"``.
    answer, sure
        An answer that is locked at once, and whether you are sure of it.
    **fields
        Values for the fields ``{name}`` in the question, such as ``blocks=4``.

    Raises
    ------
    UnknownPredictionError
        If there is no such prediction; the message suggests the most similar key.
    ValueError
        If `answer` is not one of the choices or, for a question without choices, not a number.

    Examples
    --------
    >>> guess = predict("00-threads", n=1000, threads=256, answer="1,000", sure=False)
    >>> reveal("00-threads", 1024, "counted by the kernel", blocks=4, idle=24)
    ✗ 1,024 threads; you guessed 1,000 threads, 24 too few. Counted by the kernel. A launch starts ...
    """
    return predictions.predict(_find_question(key), answer, sure, fields)


def reveal(key: str, found: AnswerValue, source: Provenance | str, **fields: AnswerValue) -> Reveal:
    """Compare the learner's prediction with the true value, as in ``gl.reveal("02-tail", 1.45,
    trace.provenance)``.

    Parameters
    ----------
    key
        The name of the prediction.
    found
        The true number or choice.
    source
        The source of the true value: a record's provenance, or a phrase such as ``"counted by the kernel"``.
    **fields
        Values for the fields ``{name}`` in the explanation.

    Returns
    -------
    Reveal
        The comparison, with the attribute ``right``. In JupyterLab, it is displayed after the prediction is
        locked.

    Raises
    ------
    UnknownPredictionError
        If there is no such prediction; the message suggests the most similar key.
    """
    return predictions.reveal(_find_question(key), found, source, fields)


def _find_question(key: str) -> PredictionQuestion:
    question = folders.find_prediction(key)
    if question is None:
        known_keys = folders.list_predictions()
        raise predictions.UnknownPredictionError(
            f"There is no prediction {key!r} in the course.{did_you_mean(key, known_keys)}"
        )
    return question


def quiz(topic: str) -> Quiz:
    """Return the quiz of a topic, which is a form in JupyterLab and numbered text elsewhere.

    Without the form, answer with ``q = gl.quiz("start")`` and ``q.answer(1, "b")``. Answers are stored
    (in ``GPULAB_HOME``); the order of the choices differs between learners.

    Raises
    ------
    UnknownQuizError
        If there is no such topic; the message suggests the most similar one.
    """
    topics = folders.list_quizzes()
    if topic not in topics:
        raise quizzes.UnknownQuizError(
            f"There is no quiz {topic!r}.{did_you_mean(topic, topics)} Topics: {', '.join(topics)}."
        )
    title, questions = topics[topic]
    return Quiz(topic, title, questions)


def progress() -> Progress:
    """Return the learner's progress, which is stored in a file on this computer (in ``GPULAB_HOME``).

    Returns
    -------
    Progress
        The passed exercises, the right predictions (separately for sure answers and guesses), and the right
        quiz answers. JupyterLab displays them as a table with links, and ``print`` as text.
        ``.save("progress.json")`` writes a file for the instructor. Below the table are the versions of the
        course's running example from the notebooks begun so far, run again on the current device.
    """
    return _progress.read_progress(folders.list_folders(), folders.tabulate_story)


def interview(
    kind: str | None = None,
    *,
    seed: int | None = None,
    cards: int = 6,
    chair: Role = "candidate",
) -> Interview:
    """Start a mock interview. You answer each question before gpulab measures the true value.

    A seed determines the cards and their parameters (device, sizes, kernel). A card that you missed or
    guessed is repeated after 1, 3 and 7 days. The score is coverage times calibration.

    Parameters
    ----------
    kind
        The kind of cards: ``"estimate"``, ``"diagnose"``, ``"whiteboard"``, ``"bug"``, ``"refute"`` or
        ``"ladder"``; or the key of one card. By default, cards of all kinds.
    seed
        The seed of the cards and their parameters: the same seed returns the same interview. By default, the
        seed is new, and cards that are due come first.
    cards
        The number of cards.
    chair
        ``"candidate"``, or ``"interviewer"``, who sees all questions with their true values and the rubric.
        Two people can hold an interview together if they use the same seed.

    Returns
    -------
    Interview
        A form in JupyterLab; the methods ``answer``, ``tick`` and ``next`` do the same. ``.scorecard`` is the
        result, and ``save("interview.json")`` writes it to a file.

    Raises
    ------
    UnknownCardError
        If there is no such kind or card.
    ValueError
        If there is no such chair, or `cards` is less than 1.

    Examples
    --------
    >>> talk = gl.interview("estimate", seed=7)
    >>> talk.answer(16, sure=True)
    >>> gl.interview("estimate", seed=7, chair="interviewer")
    """
    return opening.open_interview(list_all_cards(), kind, seed, cards, chair, date.today)


def list_all_cards() -> list[Card]:
    """Return all interview cards of the course."""
    return [card for folder in folders.list_folders() for card in folder.cards]
