"""Wrong answers to exercises that the pages for instructors describe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """A common wrong answer to an exercise, which is shown on the pages for instructors.

    Attributes
    ----------
    exercise_id : str
        The exercise's name.
    mistake : str
        What is wrong, in a few words.
    stage : str
        The stage of the judge in which the answer fails; empty for Python answers.
    message : str
        Part of the message that the learner sees.
    """

    exercise_id: str
    mistake: str
    stage: str
    message: str
