"""Interview cards, before and after their parameters are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from gpulab.views.tables import Table
from gpulab_course.teach.interview.numbers import read_answer
from gpulab_course.teach.predictions.verdicts import Scale
from gpulab_course.teach.question import Value
from virtualgpu.records import Provenance

CardKind = Literal["estimate", "diagnose", "whiteboard", "bug", "refute", "ladder"]
KINDS: tuple[CardKind, ...] = ("estimate", "diagnose", "whiteboard", "bug", "refute", "ladder")
WORTHLESS = 10.0
"""A number so many times off is worth nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """A result of the laboratory: the true value, its source and the reason for it.

    ``also`` holds other choices that are right as well, such as a second cause of nearly the same weight.
    """

    value: Value
    origin: Provenance | str
    because: str = ""
    table: Table | None = None
    code: str = ""
    also: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The source of the value, in a phrase."""
        return self.origin.label if isinstance(self.origin, Provenance) else self.origin


@dataclass(frozen=True, slots=True)
class Outcome:
    """The grade of an answer: its worth from 0 to 1, whether it counts as right, and a sentence about it.

    ``table`` and ``code`` are shown with it, now that the answer is locked.
    """

    merit: float
    right: bool
    said: str
    label: str = ""
    table: Table | None = None
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A question of a card, answered before anything is measured.

    Parameters
    ----------
    question
        One or two sentences.
    measure
        Finds the truth, once the answer is locked.
    unit, choices
        Of the number; or the answers to pick from.
    near
        So many times too high or too low still counts as right; 1 asks for the very number.
    table, code
        What is shown with the question: counters, a kernel.
    judge
        Judges a program instead of comparing with `measure`; ``code`` is where it begins.
    launchable
        Whether the candidate may choose grid and block: ``judge(code, grid=..., block=...)``.
    model
        A right program, for the interviewer.
    """

    question: str
    measure: Callable[[], Found] | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    near: float = 1.25
    table: Table | None = None
    code: str = ""
    judge: Callable[..., Outcome] | None = None
    launchable: bool = False
    model: str = ""

    @property
    def scale(self) -> Scale:
        """The scale on which its answer is shown."""
        return Scale(self.unit, "choice" if self.choices else "quantity", self.near - 1)

    def valid(self, value: Any) -> Any:
        """An answer as it is kept: one of the choices, a number, or a program as it is.

        Raises
        ------
        ValueError
            If it is none; the message says what the part takes.
        """
        if self.judge is not None:
            if not isinstance(value, str) or not value.strip():
                raise ValueError("This part takes the text of a kernel: answer(code).")
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
            raise ValueError(f"{value!r} is not a number; this part takes one.")
        number = read_answer(value, self.unit)
        if not math.isfinite(number):
            raise ValueError(f"{value!r} is not a number; this part takes one.")
        return number

    def outcome(self, value: Any, **launch: Any) -> Outcome:
        """Measure, and compare an answer with what was found; or judge a program, with its own launch."""
        if launch and not self.launchable:
            raise ValueError("This part does not take a launch: answer without grid and block.")
        if self.judge is not None:
            return self.judge(value, **launch)
        assert self.measure is not None
        found = self.measure()
        worth, right = (1.0, True) if value in found.also else merit(value, found.value, self.near)
        shown = self.scale.show(found.value)
        distance = self.scale.distance(value, found.value)
        yours = "" if value == found.value else f"; you said {self.scale.show(value)}"
        yours += ", which is right, too" if value in found.also else ""
        said = f"{shown}{yours}{f', {distance}' if distance else ''}. {found.because}".strip()
        return Outcome(worth, right, said, found.label, found.table, found.code)


def merit(said: Value, found: Value, near: float) -> tuple[float, bool]:
    """Return the worth of an answer, and whether it is right.

    A choice is right or not. A number is worth 1 up to `near` times off, and then less by the logarithm of
    the factor, down to 0 at `WORTHLESS` times; one of another sign is worth nothing.

    Examples
    --------
    >>> merit(20, 17, 1.25), merit(170, 17, 1.25)
    ((1.0, True), (0.0, False))
    """
    if isinstance(said, str) or isinstance(found, str):
        return float(said == found), said == found
    if said == found:
        return 1.0, True
    if said * found <= 0:
        return 0.0, False
    off = max(said / found, found / said)
    if off <= near * (1 + 1e-9):
        return 1.0, True
    return max(0.0, 1 - math.log(off / near) / math.log(WORTHLESS / near)), False


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A card with its parameters.

    Parameters
    ----------
    parts
        Answered one after another; the last of several is often the follow-up ("and on a T4?").
    points
        What a good answer says: a rubric to tick.
    sentence
        What a strong candidate says, in one sentence.
    parameters
        What was drawn, for the scorecard.
    """

    parts: tuple[Part, ...]
    points: tuple[str, ...]
    sentence: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Card:
    """A card before its parameters are drawn: its key, how hard it is (L3 to L6), and where the course
    teaches it."""

    key: str
    kind: CardKind
    level: str
    title: str
    draw: Callable[[Random], Drawn]
    taught: tuple[str, ...]

    def drawn(self, seed: int) -> Drawn:
        """The card as a seed draws it: always the same one."""
        return self.draw(Random(f"{seed} {self.key}"))
