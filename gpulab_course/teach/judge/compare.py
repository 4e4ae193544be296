"""Comparison of outputs: exact for integers, with a tolerance for rounding for floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
DEFAULT_ULPS = 2.0


@dataclass(frozen=True, slots=True)
class Near:
    """Floats that are right within ``ulps`` units in the last place of ``scale``.

    ``scale`` is what was added up, in absolute values: roundings are as large as the terms, not as what is
    left of them. A sum of n terms lies within about log2(n) units if added as a tree, n if in a row; keep
    ``ulps`` so small that ``ulps * eps`` of the scale is far below one term, or a lost element passes. Sums
    of `Draw.whole` numbers are exact and need no `Near` at all. With 0 ``ulps`` the bits have to be the same,
    a zero's sign as well; ``zero_bits`` are 0 in every element, NaN included.
    """

    values: Array
    scale: Array | float
    ulps: float = DEFAULT_ULPS
    zero_bits: int = 0


def values_of(expected: Array | Near) -> Array:
    """Return the values alone, which have the output's shape and type."""
    return expected.values if isinstance(expected, Near) else expected


def wrong_elements(actual: Array, expected: Array | Near) -> Array:
    """Return the elements of `actual` that differ from the expected ones, as an array of bool."""
    values = values_of(expected)
    if values.dtype.kind != "f":
        return np.asarray(actual != values)
    tolerances = expected if isinstance(expected, Near) else Near(values, np.abs(values))
    if actual.dtype.kind not in "fiub":
        return np.full(values.shape, True)
    with np.errstate(invalid="ignore"):  # of a signalling NaN, as uninitialized memory may hold
        expected_floats = values.astype(np.float64)
        actual_floats = actual.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        info = np.finfo(actual.dtype if actual.dtype.kind == "f" else values.dtype)
        tolerance = tolerances.ulps * (
            float(info.eps) * np.abs(tolerances.scale) + float(info.smallest_subnormal)
        )
        close = np.abs(actual_floats - expected_floats) <= tolerance
    # Infinities and NaN have no neighbours: the same, or wrong.
    identical = (actual_floats == expected_floats) | (np.isnan(actual_floats) & np.isnan(expected_floats))
    is_wrong = ~np.where(np.isfinite(expected_floats) & np.isfinite(actual_floats), close, identical)
    if not tolerances.ulps:
        is_wrong |= (expected_floats == 0) & (np.signbit(actual_floats) != np.signbit(expected_floats))
    if tolerances.zero_bits:
        is_wrong |= actual.view(f"u{actual.itemsize}") & tolerances.zero_bits != 0
    return np.asarray(is_wrong)


def mismatch(name: str, actual: Array, expected: Array | Near) -> str:
    """Return a message about a different shape or type; empty if the arrays can be compared.

    ``y has the shape (3,), it should be (4,)``, ``y holds int64, and float32 is asked for``.
    """
    values = values_of(expected)
    if actual.shape != values.shape:
        return f"{name} has the shape {actual.shape}, it should be {values.shape}"
    if actual.dtype != values.dtype:
        return f"{name} holds {actual.dtype}, and {values.dtype} is asked for"
    return ""


def first_wrong(name: str, actual: Array, expected: Array, is_wrong: Array) -> str:
    """Describe the first wrong element: ``y[3] is 0.5, it should be 1 (2 of 7 elements differ)``."""
    position = tuple(int(axis[0]) for axis in np.nonzero(is_wrong)) if is_wrong.ndim else ()
    index = f"[{', '.join(map(str, position))}]" if position else ""
    count = f"{int(is_wrong.sum()):,} of {is_wrong.size:,} elements differ" if is_wrong.size > 1 else ""
    actual_text = shown(actual[position])
    expected_text = shown(expected[position])
    if actual_text == expected_text:  # show all digits, in which they differ
        actual_text = str(actual[position])
        expected_text = str(expected[position])
    message = f"{name}{index} is {actual_text}, it should be {expected_text}"
    if expected.dtype.kind == "f" and np.isnan(actual[position]) and np.isnan(expected[position]):
        bits = actual[position].view(f"u{actual.itemsize}")
        message = f"{name}{index} is NaN with the bits {int(bits):#x}"
    return f"{message} ({count})" if count else message


def shown(value: Any) -> str:
    """Return a number as text for a learner."""
    return f"{int(value)}" if np.asarray(value).dtype.kind in "iub" else f"{float(value):.6g}"
