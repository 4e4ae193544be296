"""Conversion of numbers as in CuPy's compiled functions."""

from __future__ import annotations

from typing import Any


def size_t(size: Any) -> int:
    """Return a size in bytes as C's ``size_t``; floats lose their fraction.

    Raises
    ------
    OverflowError
        For a size below 0, or of 2**64 and more.
    TypeError
        If it is not a number.
    """
    number = as_integer(size, " for a size in bytes")
    if number < 0:
        raise OverflowError(f"can't convert negative value to size_t: a size of {number} bytes")
    if number >= 1 << 64:
        raise OverflowError(f"Python int too large to convert to C unsigned long: a size of {number:,} bytes")
    return number


def as_integer(value: Any, purpose: str = "") -> int:
    """Return a number without its fraction.

    Raises
    ------
    TypeError
        If it is not a number.
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str | bytes | bytearray) or not hasattr(value, "__int__"):
        raise TypeError(f"an integer is required{purpose}, not {type(value).__name__}")
    return int(value)
