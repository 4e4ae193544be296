"""Questions of the course: with choices, for a reason, and predictions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

Value = int | float | str
Kind = Literal["quantity", "share", "count", "index", "choice"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a question: its text, whether it is right, and why."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A question with exactly one right choice. Each learner sees the choices in another order."""

    text: str
    options: tuple[Choice, ...]

    def shuffled(self, seed: str) -> tuple[Choice, ...]:
        """Return the choices in the order of a learner's `seed`, which never changes."""
        options = list(self.options)
        Random(f"{seed} {self.text}").shuffle(options)
        return tuple(options)


@dataclass(frozen=True, slots=True)
class WhyQuestion:
    """A question to answer in one's own words, and the points of a good answer."""

    text: str
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PredictionQuestion:
    """A value that a learner predicts before a cell shows it; a notebook names it by its key.

    Attributes
    ----------
    key : str
        Such as ``"02-tail"``: the notebook's number, then a word.
    question : str
        One sentence. ``{blocks}`` takes what the notebook's cell gives: ``gl.predict(key, blocks=4)``.
    choices : tuple
        The answers to pick from; empty for a number.
    unit : str
        Of the number; a noun that is counted stands in the plural (``"blocks"``).
    kind : str
        What the number is, and so how it is compared: a ``"quantity"`` by how many times too high, a
        ``"share"`` in points, a ``"count"`` by how many too few, an ``"index"`` by how far off; a
        ``"choice"`` is right or not. By default it follows from `choices` and `unit`.
    comparison : int, float or str
        A tempting answer. It stands beside what was found where nobody answered. ``"{sms}"`` takes the
        value that the notebook's cell gives.
    misconception : str
        What those believe who give `comparison`; for instructors.
    because : str
        A sentence or two that explain what was found; takes fields as `question` does, from
        ``gl.reveal(key, found, source, idle=104)``.
    tolerance : float
        Relative distance up to which a quantity or a share counts as right.
    """

    key: str
    question: str
    because: str
    choices: tuple[Value, ...] = ()
    unit: str = ""
    kind: Kind | None = None
    comparison: Value | None = None
    misconception: str = ""
    tolerance: float = 0.1
