"""Numbers, plurals and lists in messages."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal


def number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits and commas at thousands: ``1,234``, ``19.5``, ``0.125``."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1) or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):f}"


def noun(value: float, one: str, many: str = "") -> str:
    """``block`` of 1, ``blocks`` of all else; a plural that is not the noun with an s is given."""
    return one if value == 1 else many or f"{one}s"


def count(value: float, one: str, many: str = "") -> str:
    """``1 block``, ``2,000 blocks``; a plural that is not the noun with an s is given."""
    return f"{number(value)} {noun(value, one, many)}"


def listing(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
