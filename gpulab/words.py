"""Numbers, sizes, times and plurals in words, with one format for all of gpulab.

``gpulab/views/parts/words.js`` writes the same in a browser; a test compares the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from virtualgpu.words import count, listing, noun, number

__all__ = [
    "count",
    "duration",
    "filled",
    "listing",
    "noun",
    "number",
    "percent",
    "shape",
    "size",
    "time_unit",
]

_CHOICE = re.compile(r"<(\w+) ([^|>]*)\|([^>]*)>")
_NAME = re.compile(r"\{(\w+)\}")


def percent(fraction: float) -> str:
    """Return ``0.5`` as ``50 %``; values above 0 are not shown as 0, values below 1 not as 100."""
    share = 100 * fraction
    if 99.5 <= share < 100 and not math.isclose(share, 100, rel_tol=1e-12):
        return f"{min(share, 99.9):.1f} %"
    return f"{number(share, 1)} %"


def size(size_bytes: float) -> str:
    """Return a byte count in binary units: ``227 KiB``, ``79.2 GiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= scale:
            return f"{number(size_bytes / scale)} {unit}"
    return f"{number(size_bytes)} B"


def time_unit(time_ns: float) -> tuple[str, float]:
    """Return the unit that suits a time, and its nanoseconds."""
    return next((unit for unit in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if time_ns >= unit[1]), ("ns", 1.0))


def duration(time_ns: float) -> str:
    """Return a time in a suitable unit: ``640 ns``, ``12.3 µs``, ``4.1 ms``."""
    unit, scale = time_unit(time_ns)
    return f"{number(time_ns / scale)} {unit}"


def shape(dim: Sequence[int]) -> str:
    """Return ``(256, 1, 1)`` as ``256``, ``(16, 16, 1)`` as ``16 × 16``, without trailing ones."""
    parts = list(dim)
    while len(parts) > 1 and parts[-1] == 1:
        parts.pop()
    return " × ".join(map(number, parts))


def filled(text: str, words: Mapping[str, int | str]) -> str:
    """Fill words and numbers into a text: ``{name}``, and ``<name one|several>`` by whether a number is 1.

    Examples
    --------
    >>> filled("{sectors} <sectors sector|sectors> a request", {"sectors": 4})
    '4 sectors a request'
    """
    text_with_plurals = _CHOICE.sub(lambda match: match[2 if words[match[1]] == 1 else 3], text)

    def put(match: re.Match[str]) -> str:
        word = words[match[1]]
        return word if isinstance(word, str) else f"{word:,}"

    return _NAME.sub(put, text_with_plurals)
