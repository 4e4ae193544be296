"""Format numbers, plurals and lists of words for messages."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal


def number(value: float, digits: int = 3) -> str:
    """Return a number as text, with commas at thousands and `digits` significant digits, such as ``1,234`` or
    ``19.5``.
    """
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1) or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):f}"


def noun(value: float, singular: str, plural: str = "") -> str:
    """Return the singular of a noun if the value is 1, else the plural. By default, the plural ends in s."""
    return singular if value == 1 else plural or f"{singular}s"


def count(value: float, singular: str, plural: str = "") -> str:
    """Return a number followed by its noun, such as ``1 block`` or ``2,000 blocks``."""
    return f"{number(value)} {noun(value, singular, plural)}"


def listing(words: Sequence[str]) -> str:
    """Return words as an enumeration for a sentence, such as ``a, b and c``."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
