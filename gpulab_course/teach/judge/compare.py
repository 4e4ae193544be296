"""Comparison of an output with the expected values: exact for integers, with rounding errors for floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
DEFAULT_ULPS = 2.0


@dataclass(frozen=True, slots=True)
class ExpectedFloats:
    """Expected floats, with a tolerance of ``ulps`` units in the last place of ``scale``.

    The attribute ``scale`` is the sum of the terms' absolute values, because rounding errors are relative to
    the terms and not to their sum. A sum of n terms has an error of about log2(n) units if it is added as a
    tree, and n units if it is added from left to right. Keep ``ulps`` so small that ``ulps * eps`` of the
    scale is far below one term; otherwise a missing element is not detected. Sums of numbers from
    `DataGenerator.integer_floats` are exact and need no `ExpectedFloats`. With ``ulps=0``, all bits must be
    equal, including the sign of a zero. The bits of ``zero_bit_mask`` must be 0 in every element, also in
    NaN.
    """

    values: Array
    scale: Array | float
    ulps: float = DEFAULT_ULPS
    zero_bit_mask: int = 0


def get_expected_values(expected: Array | ExpectedFloats) -> Array:
    """Return the expected values as an array without their tolerance."""
    return expected.values if isinstance(expected, ExpectedFloats) else expected


def find_wrong_elements(actual: Array, expected: Array | ExpectedFloats) -> Array:
    """Return a bool array that marks where the array `actual` differs from the expected values."""
    expected_values = get_expected_values(expected)
    if expected_values.dtype.kind != "f":
        return np.asarray(actual != expected_values)
    tolerances = (
        expected
        if isinstance(expected, ExpectedFloats)
        else ExpectedFloats(expected_values, np.abs(expected_values))
    )
    if actual.dtype.kind not in "fiub":
        return np.full(expected_values.shape, True)
    with np.errstate(invalid="ignore"):  # of a signalling NaN, as uninitialized memory may hold
        expected_floats = expected_values.astype(np.float64)
        actual_floats = actual.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        float_info = np.finfo(actual.dtype if actual.dtype.kind == "f" else expected_values.dtype)
        tolerance = tolerances.ulps * (
            float(float_info.eps) * np.abs(tolerances.scale) + float(float_info.smallest_subnormal)
        )
        is_close = np.abs(actual_floats - expected_floats) <= tolerance
    # Infinities and NaN have no neighbours: the same, or wrong.
    is_identical = (actual_floats == expected_floats) | (np.isnan(actual_floats) & np.isnan(expected_floats))
    is_wrong = ~np.where(np.isfinite(expected_floats) & np.isfinite(actual_floats), is_close, is_identical)
    if not tolerances.ulps:
        is_wrong |= (expected_floats == 0) & (np.signbit(actual_floats) != np.signbit(expected_floats))
    if tolerances.zero_bit_mask:
        is_wrong |= actual.view(f"u{actual.itemsize}") & tolerances.zero_bit_mask != 0
    return np.asarray(is_wrong)


def find_mismatch(name: str, actual: Array, expected: Array | ExpectedFloats) -> str:
    """Return a message if an array has the wrong shape or dtype, and otherwise an empty string.

    ``y has the shape (3,), but it should be (4,)``, ``y has the dtype int64, but it should be float32``.
    """
    expected_values = get_expected_values(expected)
    if actual.shape != expected_values.shape:
        return f"{name} has the shape {actual.shape}, but it should be {expected_values.shape}"
    if actual.dtype != expected_values.dtype:
        return f"{name} has the dtype {actual.dtype}, but it should be {expected_values.dtype}"
    return ""


def describe_first_wrong(name: str, actual: Array, expected: Array, is_wrong: Array) -> str:
    """Return a message about the first wrong element, such as ``y[3] is 0.5, but it should be 1 (2 of 7
    elements differ)``.
    """
    position = tuple(int(axis[0]) for axis in np.nonzero(is_wrong)) if is_wrong.ndim else ()
    index = f"[{', '.join(map(str, position))}]" if position else ""
    count_text = f"{int(is_wrong.sum()):,} of {is_wrong.size:,} elements differ" if is_wrong.size > 1 else ""
    actual_text = format_value(actual[position])
    expected_text = format_value(expected[position])
    if actual_text == expected_text:  # show all digits, in which they differ
        actual_text = str(actual[position])
        expected_text = str(expected[position])
    message = f"{name}{index} is {actual_text}, but it should be {expected_text}"
    if expected.dtype.kind == "f" and np.isnan(actual[position]) and np.isnan(expected[position]):
        bits = actual[position].view(f"u{actual.itemsize}")
        message = f"{name}{index} is NaN with the bits {int(bits):#x}"
    return f"{message} ({count_text})" if count_text else message


def format_value(value: Any) -> str:
    """Return a number as text for a message. Integers appear in full, and floats with six digits."""
    return f"{int(value)}" if np.asarray(value).dtype.kind in "iub" else f"{float(value):.6g}"
