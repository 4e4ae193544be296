"""Interview cards and their questions: `Card` has open parameters, `DrawnCard` has chosen ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from gpulab.views.tables import Table
from gpulab_course.teach.interview.numbers import read_answer
from gpulab_course.teach.predictions.verdicts import Scale
from gpulab_course.teach.question import AnswerValue
from virtualgpu.records import Provenance

CardKind = Literal["estimate", "diagnose", "whiteboard", "bug", "refute", "ladder"]
KINDS: tuple[CardKind, ...] = ("estimate", "diagnose", "whiteboard", "bug", "refute", "ladder")
LEVELS = {"L3": "junior engineer", "L4": "engineer", "L5": "senior engineer", "L6": "staff engineer"}
"""The levels of many companies in words; "L4" is also the name of a GPU."""
WORTHLESS_FACTOR = 10.0
"""A number that is wrong by this factor is worth nothing."""


@dataclass(frozen=True, slots=True)
class TrueValue:
    """The true value that answers an interview question, with its source and an explanation.

    The attribute ``other_right_choices`` contains other choices that are right, such as a cause with nearly
    the same gain.
    """

    value: AnswerValue
    origin: Provenance | str
    because: str = ""
    table: Table | None = None
    code: str = ""
    other_right_choices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """A phrase that names the source of the true value, such as a provenance label."""
        return self.origin.label if isinstance(self.origin, Provenance) else self.origin


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one answer, with a merit from 0 to 1 and a sentence for the candidate.

    ``table`` and ``code`` are displayed with the result.
    """

    merit: float
    is_right: bool
    message: str
    label: str = ""
    table: Table | None = None
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class CardQuestion:
    """One question of an interview card. The candidate answers it before the true value is measured.

    Parameters
    ----------
    question
        One or two sentences.
    measure
        Function that measures the true value, after the answer is locked.
    unit, choices
        The unit of the number, or the choices.
    max_error_factor
        The largest factor between answer and truth that counts as right; 1 requires the exact number.
    table, code
        Counters or a kernel to show with the question.
    judge
        Function that judges a program, used instead of `measure`; ``code`` is the initial program.
    accepts_launch
        Whether the candidate may choose grid and block: ``judge(code, grid=..., block=...)``.
    model_answer
        A right program, for the interviewer.
    """

    question: str
    measure: Callable[[], TrueValue] | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    max_error_factor: float = 1.25
    table: Table | None = None
    code: str = ""
    judge: Callable[..., Outcome] | None = None
    accepts_launch: bool = False
    model_answer: str = ""

    @property
    def scale(self) -> Scale:
        """The scale that formats the answer and compares it with the true value."""
        return Scale(self.unit, "choice" if self.choices else "quantity", self.max_error_factor - 1)

    def check_answer(self, value: Any) -> Any:
        """Check an answer, and return it in its stored form, such as a number or source code.

        Raises
        ------
        ValueError
            If the value is not an answer; the message says which answers the part takes.
        """
        if self.judge is not None:
            if not isinstance(value, str) or not value.strip():
                raise ValueError("This part needs the source of a kernel: answer(code).")
            if value.split() == self.code.split():
                raise ValueError("This is still the program that the card shows. Change it first.")
            return value
        if self.choices:
            if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= len(self.choices):
                return self.choices[value - 1]
            if value in self.choices:
                return value
            raise ValueError(f"{value!r} is not one of the choices: {', '.join(self.choices)}.")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{value!r} is not a number, but this part needs one.")
        answer = read_answer(value, self.unit)
        if not math.isfinite(answer):
            raise ValueError(f"{value!r} is not a number, but this part needs one.")
        return answer

    def judge_answer(self, value: Any, **launch: Any) -> Outcome:
        """Compare an answer with the measured value, or judge a kernel with the candidate's launch
        configuration.
        """
        if launch and not self.accepts_launch:
            raise ValueError("The launch of this question is fixed. Answer without grid and block.")
        if self.judge is not None:
            return self.judge(value, **launch)
        assert self.measure is not None
        truth = self.measure()
        answer_merit, is_right = (
            (1.0, True)
            if value in truth.other_right_choices
            else rate_answer(value, truth.value, self.max_error_factor)
        )
        truth_text = self.scale.show(truth.value)
        distance_text = self.scale.distance(value, truth.value)
        comparison_text = "" if value == truth.value else f"; you said {self.scale.show(value)}"
        comparison_text += ", which is right, too" if value in truth.other_right_choices else ""
        outcome_text = (
            f"{truth_text}{comparison_text}{f', {distance_text}' if distance_text else ''}. {truth.because}"
        ).strip()
        return Outcome(answer_merit, is_right, outcome_text, truth.label, truth.table, truth.code)


def rate_answer(answer: AnswerValue, truth: AnswerValue, max_factor: float) -> tuple[float, bool]:
    """Return the merit of an answer (from 0 to 1), and whether the answer is right.

    The merit of a choice is 1 if the choice is right, and 0 otherwise. A number is worth 1 if it is wrong by
    at most the factor `max_factor`. Its worth then falls with the logarithm of the factor, to 0 at
    `WORTHLESS_FACTOR`; a wrong sign is worth nothing.

    Examples
    --------
    >>> rate_answer(20, 17, 1.25), rate_answer(170, 17, 1.25)
    ((1.0, True), (0.0, False))
    """
    if isinstance(answer, str) or isinstance(truth, str):
        return float(answer == truth), answer == truth
    if answer == truth:
        return 1.0, True
    if answer * truth <= 0:
        return 0.0, False
    error_factor = max(answer / truth, truth / answer)
    if error_factor <= max_factor * (1 + 1e-9):
        return 1.0, True
    return max(0.0, 1 - math.log(error_factor / max_factor) / math.log(WORTHLESS_FACTOR / max_factor)), False


@dataclass(frozen=True, kw_only=True)
class DrawnCard:
    """An interview card with randomly chosen parameters, with its questions and the points of a good answer.

    Parameters
    ----------
    questions
        Answered one after another; the last of several is often the follow-up ("and on a T4?").
    rubric_points
        The points of a good answer: a rubric to tick.
    strong_answer
        What a strong candidate says, in one sentence.
    parameters
        The drawn values, for the scorecard.
    """

    questions: tuple[CardQuestion, ...]
    rubric_points: tuple[str, ...]
    strong_answer: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Card:
    """An interview card, with its key, its level (L3 to L6), its title and the notebooks that teach its
    subject.

    The function ``draw`` chooses the parameters of the card and returns a `DrawnCard`.
    """

    key: str
    kind: CardKind
    level: str
    title: str
    draw: Callable[[Random], DrawnCard]
    taught_in: tuple[str, ...]

    def draw_card(self, seed: int) -> DrawnCard:
        """Return the card with parameters that are drawn from a seed. The same seed always gives the same
        card.
        """
        return self.draw(Random(f"{seed} {self.key}"))
