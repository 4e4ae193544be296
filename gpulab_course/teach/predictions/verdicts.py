"""Comparison of predictions with true values: tolerance, and the difference in words."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gpulab_course.teach.predictions.numbers import make_singular
from gpulab_course.teach.question import AnswerKind, AnswerValue

_MIN_RATIO = 1.5  # a count that differs by this factor is compared by its ratio
_MAX_PERCENT_RATIO = 1.15  # a quantity that differs by less is compared by its percentage
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# Units of measured quantities; any other unit is a noun that is counted.
_MEASURED_UNITS = re.compile(
    r"(times|x|×|[num\u00b5\u03bc]?s|ms|[kMGTP]?i?B|bytes?|.*/.*|[kMG]?Hz|m?W|°C|[kMGTP]?FLOPS?|.*\bpercent)"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit, kind and tolerance of a quantity, which determine how values are displayed and how
    predictions are judged.
    """

    unit: str = ""
    kind: AnswerKind | None = None
    tolerance: float = 0.1

    def find_kind(self, value: AnswerValue) -> AnswerKind:
        """Return the kind of the quantity, as it was declared. If none was declared, the kind depends on the
        type of `value` and on the unit.
        """
        if self.kind is not None:
            return self.kind
        if isinstance(value, str):
            return "choice"
        if self.unit in ("%", "percent"):
            return "share"
        if isinstance(value, float) or _MEASURED_UNITS.fullmatch(self.unit):
            return "quantity"
        return "count" if self.unit else "index"

    def show(self, value: AnswerValue) -> str:
        """Return the value as text with its unit."""
        if isinstance(value, str):
            return value
        value_text = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
        if not self.unit:
            return value_text
        return f"{value_text} {make_singular(self.unit) if value == 1 and len(self.unit) > 2 else self.unit}"

    def right(self, answer: AnswerValue, true_value: AnswerValue) -> bool:
        """Return whether a prediction is right. Quantities and shares may differ by the tolerance."""
        if self.kind == "choice" or isinstance(answer, str) or isinstance(true_value, str):
            return str(answer) == str(true_value)
        if self.find_kind(true_value) in ("quantity", "share"):
            return math.isclose(answer, true_value, rel_tol=self.tolerance, abs_tol=1e-12)
        return answer == true_value

    def distance(self, answer: AnswerValue, true_value: AnswerValue) -> str:
        """Return the difference between a prediction and the true value in words, such as ``1.4 times too
        high``.
        """
        scale_kind = self.find_kind(true_value)
        if (
            answer == true_value
            or scale_kind == "choice"
            or isinstance(answer, str)
            or isinstance(true_value, str)
        ):
            return ""
        direction = "too high" if answer > true_value else "too low"
        difference = abs(answer - true_value)
        if scale_kind == "share":
            return f"{_format_number(difference)} points {direction}"
        if scale_kind != "index" and answer > 0 and true_value > 0:
            ratio = max(answer / true_value, true_value / answer)
            if scale_kind == "quantity" and (ratio < _MAX_PERCENT_RATIO or self.right(answer, true_value)):
                return f"{_format_number(100 * difference / true_value)} % {direction}"
            if scale_kind == "quantity" or (ratio >= _MIN_RATIO and difference > 2):
                return f"{_format_number(ratio)} times {direction}"
        if scale_kind == "count" and isinstance(difference, int):
            direction = "too many" if answer > true_value else "too few"
        is_small = isinstance(difference, int) and difference < len(_NUMBER_WORDS)
        return f"{_NUMBER_WORDS[int(difference)] if is_small else _format_number(difference)} {direction}"


def _format_number(value: float) -> str:
    """Return a number as text with two significant digits, or as an integer from 10 on."""
    if value >= 10 or math.isclose(value, round(value), rel_tol=2e-3):
        return f"{round(value):,}"
    return f"{value:.2g}"
