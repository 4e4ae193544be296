"""Classes for the questions of quizzes and predictions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

AnswerValue = int | float | str
AnswerKind = Literal["quantity", "share", "count", "index", "choice"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a quiz question, with its text, its explanation, and whether it is right."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A quiz question with exactly one right choice. The order of the choices differs between learners."""

    text: str
    options: tuple[Choice, ...]

    def shuffle_options(self, seed: str) -> tuple[Choice, ...]:
        """Return the choices in an order that depends only on the question and on the learner's `seed`."""
        options = list(self.options)
        Random(f"{seed} {self.text}").shuffle(options)
        return tuple(options)


@dataclass(frozen=True, slots=True)
class WhyQuestion:
    """A quiz question that the learner answers with a sentence. The question lists the points of a good
    answer.
    """

    text: str
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PredictionQuestion:
    """A question whose answer a learner predicts before a notebook cell shows the true value.

    Attributes
    ----------
    key : str
        The name, such as ``"02-tail"``: the notebook's number and a word.
    question : str
        The question in one sentence. A field such as ``{blocks}`` is replaced by the value that the notebook
        passes: ``gl.predict(key, blocks=4)``.
    choices : tuple
        The possible answers; empty if the answer is a number.
    unit : str
        The unit of the number; nouns are in the plural (``"blocks"``).
    kind : str
        The kind of answer, which determines how its error is reported: a ``"quantity"`` as a factor, a
        ``"share"`` in percentage points, a ``"count"`` and an ``"index"`` as a difference; a ``"choice"`` is
        right or wrong. By default, the kind is derived from `choices` and `unit`.
    comparison : int, float or str
        A common wrong answer, which is displayed with the true value if there is no prediction. A field
        such as ``"{sms}"`` is replaced by the value that the notebook passes.
    misconception : str
        The misconception that leads to `comparison`; for instructors.
    because : str
        One or two sentences that explain the true value. Fields are replaced as in `question`, by the
        arguments of ``gl.reveal(key, found, source, idle=104)``.
    tolerance : float
        The largest relative error of a quantity or share that counts as right.
    """

    key: str
    question: str
    because: str
    choices: tuple[AnswerValue, ...] = ()
    unit: str = ""
    kind: AnswerKind | None = None
    comparison: AnswerValue | None = None
    misconception: str = ""
    tolerance: float = 0.1
