"""Conversion of numbers to C integers, as in CuPy's compiled functions."""

from __future__ import annotations

from typing import Any


def convert_size(size: Any) -> int:
    """Convert a size in bytes to C's ``size_t``. A float is truncated to an integer.

    Raises
    ------
    OverflowError
        For a size below 0, or of 2**64 and more.
    TypeError
        If it is not a number.
    """
    size_bytes = convert_integer(size, " for a size in bytes")
    if size_bytes < 0:
        raise OverflowError(f"can't convert negative value to size_t: a size of {size_bytes} bytes")
    if size_bytes >= 1 << 64:
        raise OverflowError(
            f"Python int too large to convert to C unsigned long: a size of {size_bytes:,} bytes"
        )
    return size_bytes


def convert_integer(value: Any, purpose: str = "") -> int:
    """Convert a number to an integer, and discard its fractional part. The error message contains the text
    `purpose`.

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
