"""Numbers as CuPy's compiled functions take them."""

from __future__ import annotations

from typing import Any


def size_t(size: Any) -> int:
    """A size in bytes as C's ``size_t``: floats lose their fraction.

    Raises
    ------
    OverflowError
        Below 0, and from 2**64 on.
    TypeError
        For anything but a number.
    """
    number = whole(size, " for a size in bytes")
    if number < 0:
        raise OverflowError(f"can't convert negative value to size_t: a size of {number} bytes")
    if number >= 1 << 64:
        raise OverflowError(f"Python int too large to convert to C unsigned long: a size of {number:,} bytes")
    return number


def whole(value: Any, what: str = "") -> int:
    """A number without its fraction.

    Raises
    ------
    TypeError
        For anything but a number.
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str | bytes | bytearray) or not hasattr(value, "__int__"):
        raise TypeError(f"an integer is required{what}, not {type(value).__name__}")
    return int(value)
