"""Formatting of numbers, sizes, times and plurals as text, in the same way in all of gpulab.

``gpulab/views/parts/words.js`` formats the same values in a browser; a test compares both modules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from virtualgpu.words import count, listing, noun, number

__all__ = [
    "count",
    "duration",
    "fill_template",
    "listing",
    "noun",
    "number",
    "percent",
    "shape",
    "size",
    "time_unit",
]

_PLURAL_PATTERN = re.compile(r"<(\w+) ([^|>]*)\|([^>]*)>")
_NAME_PATTERN = re.compile(r"\{(\w+)\}")


def percent(fraction: float) -> str:
    """Return a fraction as a percentage, such as ``50 %`` for ``0.5``. Fractions between 0 and 1 never become
    0 or 100 %.
    """
    percentage = 100 * fraction
    if 99.5 <= percentage < 100 and not math.isclose(percentage, 100, rel_tol=1e-12):
        return f"{min(percentage, 99.9):.1f} %"
    return f"{number(percentage, 1)} %"


def size(size_bytes: float) -> str:
    """Return a number of bytes in binary units, such as ``227 KiB`` or ``79.2 GiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= scale:
            return f"{number(size_bytes / scale)} {unit}"
    return f"{number(size_bytes)} B"


def time_unit(time_ns: float) -> tuple[str, float]:
    """Return a suitable unit for a time, and the length of this unit in nanoseconds."""
    return next((unit for unit in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if time_ns >= unit[1]), ("ns", 1.0))


def duration(time_ns: float) -> str:
    """Return a time in a suitable unit, such as ``640 ns``, ``12.3 µs`` or ``4.1 ms``."""
    unit, scale = time_unit(time_ns)
    return f"{number(time_ns / scale)} {unit}"


def shape(dim: Sequence[int]) -> str:
    """Return a grid or block shape as text without trailing ones, such as ``16 × 16`` for ``(16, 16, 1)``."""
    extents = list(dim)
    while len(extents) > 1 and extents[-1] == 1:
        extents.pop()
    return " × ".join(map(number, extents))


def fill_template(text: str, values: Mapping[str, int | str]) -> str:
    """Replace each ``{name}`` in a text by its value, and each ``<name one|several>`` by the singular or
    plural form.

    Examples
    --------
    >>> fill_template("{sectors} <sectors sector|sectors> a request", {"sectors": 4})
    '4 sectors a request'
    """
    text_with_plurals = _PLURAL_PATTERN.sub(lambda match: match[2 if values[match[1]] == 1 else 3], text)

    def make_replacement(match: re.Match[str]) -> str:
        replacement = values[match[1]]
        return replacement if isinstance(replacement, str) else f"{replacement:,}"

    return _NAME_PATTERN.sub(make_replacement, text_with_plurals)
