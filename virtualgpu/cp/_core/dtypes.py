"""Element types of device arrays, their shapes and memory layouts."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

SUPPORTED_DTYPES = frozenset("?bhilqBHILQefdFD")


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """Convert `dtype` to a NumPy dtype, and check that device arrays support it.

    Raises
    ------
    ValueError
        CuPy's ``Unsupported dtype``, for strings, objects, dates, long doubles and records.
    """
    result: np.dtype[Any] = np.dtype(dtype)
    if result.char not in SUPPORTED_DTYPES or not result.isnative:
        raise ValueError(f"Unsupported dtype {result}")
    return result


def parse_shape(shape: Any) -> tuple[int, ...]:
    """Convert a shape, which can be an integer or a sequence of integers, to a tuple of axis lengths.

    Raises
    ------
    TypeError, ValueError
        For fractions, text, None and negative lengths.
    """
    if shape is None:
        raise TypeError("Use () not None as shape arguments")
    try:
        extents: tuple[int, ...] = (operator.index(shape),)
    except TypeError:
        if not hasattr(shape, "__iter__"):
            raise
        extents = tuple(operator.index(n) for n in shape)
    if any(n < 0 for n in extents):
        raise ValueError("Negative dimensions are not allowed")
    return extents


class LayoutFlags:
    """Flags that describe the memory layout of an array, such as ``c_contiguous``."""

    def __init__(self, host_array: np.ndarray[Any, Any], owndata: bool) -> None:
        self.c_contiguous = bool(host_array.flags.c_contiguous)
        self.f_contiguous = bool(host_array.flags.f_contiguous)
        self.owndata = owndata
        self.forc = self.c_contiguous or self.f_contiguous
        self.fnc = self.f_contiguous and not self.c_contiguous

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))

    def __repr__(self) -> str:
        return "\n".join(
            f"  {name.upper()} : {self[name]}" for name in ("c_contiguous", "f_contiguous", "owndata")
        )
