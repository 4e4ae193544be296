"""Distances of predictions from true values, in words that fit the kind of number."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gpulab_course.teach.question import Kind, Value

_TIMES_FROM = 1.5  # a count this far off is compared by its ratio
_PERCENT_BELOW = 1.15  # a quantity nearer than this by its percentage
_SMALL = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# Units of what is measured; any other unit is a noun that is counted.
_MEASURES = re.compile(
    r"(times|x|×|[num\u00b5\u03bc]?s|ms|[kMGTP]?i?B|bytes?|.*/.*|[kMG]?Hz|m?W|°C|[kMGTP]?FLOPS?|.*\bpercent)"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The quantity that is predicted: its kind, its unit, and the tolerance."""

    unit: str = ""
    kind: Kind | None = None
    tolerance: float = 0.1

    def kind_of(self, found: Value) -> Kind:
        """Return the declared kind, or the one that follows from `found` and the unit."""
        if self.kind is not None:
            return self.kind
        if isinstance(found, str):
            return "choice"
        if self.unit in ("%", "percent"):
            return "share"
        if isinstance(found, float) or _MEASURES.fullmatch(self.unit):
            return "quantity"
        return "count" if self.unit else "index"

    def show(self, value: Value) -> str:
        """`value` with its unit, as it stands in sentences."""
        if isinstance(value, str):
            return value
        text = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
        if not self.unit:
            return text
        return f"{text} {self.unit.removesuffix('s') if value == 1 and len(self.unit) > 2 else self.unit}"

    def right(self, said: Value, found: Value) -> bool:
        """Return whether a prediction is right: exactly, or within the tolerance of a quantity or share."""
        if self.kind == "choice" or isinstance(said, str) or isinstance(found, str):
            return str(said) == str(found)
        if self.kind_of(found) in ("quantity", "share"):
            return math.isclose(said, found, rel_tol=self.tolerance, abs_tol=1e-12)
        return said == found

    def distance(self, said: Value, found: Value) -> str:
        """Return the distance, such as ``1.4 times too high``; empty where it has no meaning."""
        kind = self.kind_of(found)
        if said == found or kind == "choice" or isinstance(said, str) or isinstance(found, str):
            return ""
        too = "too high" if said > found else "too low"
        off = abs(said - found)
        if kind == "share":
            return f"{_figure(off)} points {too}"
        if kind != "index" and said > 0 and found > 0:
            ratio = max(said / found, found / said)
            if kind == "quantity" and (ratio < _PERCENT_BELOW or self.right(said, found)):
                return f"{_figure(100 * off / found)} % {too}"
            if kind == "quantity" or (ratio >= _TIMES_FROM and off > 2):
                return f"{_figure(ratio)} times {too}"
        if kind == "count" and isinstance(off, int):
            too = "too many" if said > found else "too few"
        return f"{_SMALL[off] if isinstance(off, int) and off < len(_SMALL) else _figure(off)} {too}"


def _figure(value: float) -> str:
    """A ratio or a distance with the digits that matter."""
    if value >= 10 or math.isclose(value, round(value), rel_tol=2e-3):
        return f"{round(value):,}"
    return f"{value:.2g}"
