"""Ranges to choose from where nobody can guess a number."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise

from gpulab_course.content.own import module_of


def ranges(*bounds: float, unit: str = "times") -> tuple[str, ...]:
    """The choices that `bounds` part: ``ranges(2, 10)`` gives three.

    >>> ranges(2, 10)
    ('less than 2 times', '2 to 10 times', 'more than 10 times')
    """
    between = [f"{low:,g} to {high:,g} {unit}" for low, high in pairwise(bounds)]
    return (f"less than {bounds[0]:,g} {unit}", *between, f"more than {bounds[-1]:,g} {unit}")


def within(value: float, *bounds: float, unit: str = "times") -> str:
    """Which of `ranges` holds a value."""
    return ranges(*bounds, unit=unit)[sum(value >= bound for bound in bounds)]


def among(key: str, value: float, limits: Sequence[float]) -> str:
    """The answer of a prediction that a number falls into: the first below the first limit, and so on."""
    asked = next(asked for asked in module_of(key, "predictions").PREDICTIONS if asked.key == key)
    return str(asked.choices[bisect(limits, value)])
