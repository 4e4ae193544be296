"""Ranges of numbers as choices of predictions, for numbers that are hard to guess exactly."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise

from gpulab_course.content.own import import_own_module


def list_ranges(*bounds: float, unit: str = "times") -> tuple[str, ...]:
    """Return the answer choices of a question: the ranges of numbers that the bounds separate.

    >>> list_ranges(2, 10)
    ('less than 2 times', '2 to 10 times', 'more than 10 times')
    """
    inner_choices = [
        f"{lower_bound:,g} to {upper_bound:,g} {unit}" for lower_bound, upper_bound in pairwise(bounds)
    ]
    return (f"less than {bounds[0]:,g} {unit}", *inner_choices, f"more than {bounds[-1]:,g} {unit}")


def within(value: float, *bounds: float, unit: str = "times") -> str:
    """Return the choice of `list_ranges` to which this value belongs."""
    return list_ranges(*bounds, unit=unit)[sum(value >= bound for bound in bounds)]


def among(key: str, value: float, limits: Sequence[float]) -> str:
    """Return the answer choice of a prediction to which a value belongs. The string `key` names the
    prediction, and the numbers in `limits` separate consecutive choices.
    """
    question = next(
        question for question in import_own_module(key, "predictions").PREDICTIONS if question.key == key
    )
    return str(question.choices[bisect(limits, value)])
