"""Sizes in bytes as CuPy's compiled functions take them."""

from __future__ import annotations

import operator
from typing import Any


def size_t(size: Any) -> int:
    """`size` as C's ``size_t``: floats lose their fraction.

    Raises
    ------
    OverflowError
        Below 0.
    TypeError
        For anything but a number.
    """
    if isinstance(size, float):
        size = int(size)
    try:
        number = operator.index(size)
    except TypeError:
        raise TypeError(f"an integer is required for a size in bytes, not {type(size).__name__}") from None
    if number < 0:
        raise OverflowError(f"can't convert negative value to size_t: a size of {number} bytes")
    return number
