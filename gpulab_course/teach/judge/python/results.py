"""Comparison of a device program's result with the expected result: place, shape, dtype and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab.processes.errors import short_repr
from gpulab.processes.values import DeviceContents, find_type_name
from gpulab.words import count
from gpulab_course.teach.judge.compare import (
    ExpectedFloats,
    describe_first_wrong,
    find_wrong_elements,
    get_expected_values,
)
from gpulab_course.teach.judge.exercise import NotYet, ProgramCase


class _WrongValuesError(NotYet):
    """Error for a result with the right type, shape and place, but with wrong values."""


def check_result(label: str, result: Any, case: ProgramCase) -> None:
    """Check that a result equals the expected one. The device arrays of the result are represented by
    `DeviceContents` objects.

    Raises
    ------
    NotYet
        If the result is wrong. The message explains known mistakes.
    """
    try:
        _compare_result(label, result, case.expected_result, case.required_place)
    except _WrongValuesError as reason:
        advice_sentence = next(
            (
                sentence
                for mistaken_result, sentence in case.known_mistakes
                if _equals_expected(result, mistaken_result)
            ),
            "",
        )
        raise NotYet(f"{reason} {advice_sentence}".rstrip()) from None


def _compare_result(label: str, result: Any, expected_result: Any, place: str) -> None:
    if callable(expected_result):
        expected_result(result)
        return
    is_tuple = isinstance(expected_result, tuple)
    result_parts = result if is_tuple else (result,)
    if is_tuple and not isinstance(result, tuple | list):
        raise NotYet(f"{label} should return {count(len(expected_result), 'result')}, as a tuple or a list.")
    if is_tuple and len(result) != len(expected_result):
        raise NotYet(f"{label} should return {count(len(expected_result), 'result')}, not {len(result)}.")
    for result_index, (result_part, expected) in enumerate(
        zip(result_parts, expected_result if is_tuple else (expected_result,), strict=True)
    ):
        _compare_value(
            label, f"result {result_index + 1}" if is_tuple else "the result", result_part, expected, place
        )


def _compare_value(label: str, name: str, result: Any, expected: Any, place: str) -> None:
    if not isinstance(result, DeviceContents | np.ndarray | np.generic | int | float):
        raise NotYet(f"{label} returns {find_type_name(result)}, but {name} should be an array or a number.")
    if place == "device" and not isinstance(result, DeviceContents):
        raise NotYet(f"{label}: {name} should stay on the device, but it is {_describe_host_type(result)}.")
    if place == "host" and not isinstance(result, np.ndarray):
        place_text = "is still on the device" if isinstance(result, DeviceContents) else "is a number"
        raise NotYet(f"{label}: {name} should be a NumPy array, but it {place_text}.")
    expected = expected if isinstance(expected, ExpectedFloats) else np.asarray(expected)
    array = result.values if isinstance(result, DeviceContents) else np.asarray(result)
    expected_values = get_expected_values(expected)
    if array.dtype.kind not in "biuf":
        raise NotYet(f"{label}: {name} is {short_repr(result)}, but it should contain numbers.")
    if array.shape != expected_values.shape:
        raise NotYet(
            f"{label}: {name} has the shape {array.shape}, but it should be {expected_values.shape}."
        )
    if array.dtype != expected_values.dtype and not isinstance(result, int | float):
        raise NotYet(f"{label}: {name} is {array.dtype}, but it should be {expected_values.dtype}.")
    # A number of Python may be rounded to the float that is wanted, and never cut to a whole number.
    with np.errstate(over="ignore"):
        is_wrong = find_wrong_elements(
            array.astype(expected_values.dtype) if expected_values.dtype.kind == "f" else array, expected
        )
    if is_wrong.any():
        raise _WrongValuesError(f"{label}: {describe_first_wrong(name, array, expected_values, is_wrong)}.")


def _equals_expected(result: Any, expected: Any) -> bool:
    try:
        _compare_result("", result, expected, "")
    except NotYet:
        return False
    return True


def _describe_host_type(result: Any) -> str:
    return "a NumPy array" if isinstance(result, np.ndarray) else "a number of the host"
