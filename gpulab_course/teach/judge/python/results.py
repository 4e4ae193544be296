"""Compare a device program's result with the expected one: kind, place, shape, type and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab.processes.errors import spelt
from gpulab.processes.values import OnDevice, kind_of
from gpulab.words import count
from gpulab_course.teach.judge.compare import Near, first_wrong, values_of, wrong_elements
from gpulab_course.teach.judge.exercise import NotYet, ProgramCase


class _WrongValues(NotYet):
    """The result has the right kind and wrong values."""


def compare(label: str, result: Any, case: ProgramCase) -> None:
    """Compare a result, whose device arrays are `OnDevice`, with what is wanted.

    Raises
    ------
    NotYet
        If it is something else; what a known mistake would return earns its own sentence.
    """
    try:
        _compare(label, result, case.wanted, case.place)
    except _WrongValues as reason:
        known = next((says for value, says in case.mistakes if _equal(result, value)), "")
        raise NotYet(f"{reason} {known}".rstrip()) from None


def _compare(label: str, result: Any, wanted: Any, place: str) -> None:
    if callable(wanted):
        wanted(result)
        return
    several = isinstance(wanted, tuple)
    parts = result if several else (result,)
    if several and not isinstance(result, tuple | list):
        raise NotYet(f"{label} should return {count(len(wanted), 'result')}, as a tuple or a list.")
    if several and len(result) != len(wanted):
        raise NotYet(f"{label} should return {count(len(wanted), 'result')}, not {len(result)}.")
    for number, (found, right) in enumerate(zip(parts, wanted if several else (wanted,), strict=True)):
        _compare_one(label, f"result {number + 1}" if several else "the result", found, right, place)


def _compare_one(label: str, name: str, found: Any, right: Any, place: str) -> None:
    if not isinstance(found, OnDevice | np.ndarray | np.generic | int | float):
        raise NotYet(f"{label} returns {kind_of(found)}, and {name} should be an array or a number.")
    if place == "device" and not isinstance(found, OnDevice):
        raise NotYet(f"{label}: {name} should stay on the device; it is {_kind(found)}.")
    if place == "host" and not isinstance(found, np.ndarray):
        is_left = "is still on the device" if isinstance(found, OnDevice) else "is a number"
        raise NotYet(f"{label}: {name} should be a NumPy array; it {is_left}.")
    right = right if isinstance(right, Near) else np.asarray(right)
    got = found.values if isinstance(found, OnDevice) else np.asarray(found)
    values = values_of(right)
    if got.dtype.kind not in "biuf":
        raise NotYet(f"{label}: {name} is {spelt(found)}, it should hold numbers.")
    if got.shape != values.shape:
        raise NotYet(f"{label}: {name} has the shape {got.shape}, it should be {values.shape}.")
    if got.dtype != values.dtype and not isinstance(found, int | float):
        raise NotYet(f"{label}: {name} is {got.dtype}, it should be {values.dtype}.")
    # A number of Python may be rounded to the float that is wanted, and never cut to a whole number.
    with np.errstate(over="ignore"):
        wrong = wrong_elements(got.astype(values.dtype) if values.dtype.kind == "f" else got, right)
    if wrong.any():
        raise _WrongValues(f"{label}: {first_wrong(name, got, values, wrong)}.")


def _equal(result: Any, wanted: Any) -> bool:
    try:
        _compare("", result, wanted, "")
    except NotYet:
        return False
    return True


def _kind(found: Any) -> str:
    return "a NumPy array" if isinstance(found, np.ndarray) else "a number of the host"
