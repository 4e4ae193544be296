"""Ranges to choose from in predictions whose exact number cannot be guessed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise

from gpulab_course.content.own import module_of


def ranges(*bounds: float, unit: str = "times") -> tuple[str, ...]:
    """Return the choices between `bounds`: ``ranges(2, 10)`` returns three.

    >>> ranges(2, 10)
    ('less than 2 times', '2 to 10 times', 'more than 10 times')
    """
    between = [f"{low:,g} to {high:,g} {unit}" for low, high in pairwise(bounds)]
    return (f"less than {bounds[0]:,g} {unit}", *between, f"more than {bounds[-1]:,g} {unit}")


def within(value: float, *bounds: float, unit: str = "times") -> str:
    """Return the choice of `ranges` that contains a value."""
    return ranges(*bounds, unit=unit)[sum(value >= bound for bound in bounds)]


def among(key: str, value: float, limits: Sequence[float]) -> str:
    """Return the choice of a prediction that contains a number; the first choice is below the first limit."""
    asked = next(asked for asked in module_of(key, "predictions").PREDICTIONS if asked.key == key)
    return str(asked.choices[bisect(limits, value)])
