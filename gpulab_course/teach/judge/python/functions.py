"""Functions for judges of Python functions: call an answer, format a call, and check types of results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpulab.processes.errors import describe_error, short_repr
from gpulab_course.teach.judge.exercise import NotYet


def call_here(function: Any, *args: Any, name: str, shown: str, returns: bool = True) -> Any:
    """Call a learner's function in the current process. Exceptions of the function become `NotYet`."""
    must_be_a_function(name, callable(function), type(function).__name__)
    try:
        result = function(*args)
    except Exception as error:
        raise NotYet(f"{shown} {describe_error(error).removeprefix('it ')}") from error
    if returns:
        must_return(shown, result)
    return result


def must_be_a_function(name: str, is_callable: bool, kind: str) -> None:
    """Raise `NotYet` if an answer is not a function."""
    if not is_callable:
        raise NotYet(f"{name} should be a function, not {kind}. Pass it without calling it.")


def must_return(call_text: str, result: Any) -> None:
    """Raise `NotYet` if a call returned None or ``...``, as an unfinished stub does."""
    if result is None or result is ...:
        raise NotYet(f"{call_text} returns nothing; replace the TODO and end with a return.")


def list_parts(value: Any) -> list[Any] | None:
    """Return the elements of a tuple, a list or a one-dimensional array, and None for any other value."""
    if isinstance(value, np.ndarray):
        return list(value) if value.ndim == 1 else None
    return list(value) if isinstance(value, tuple | list) else None


def equals(value: Any, expected: Any) -> bool:
    """Return whether a value equals an expected string, number, None or tuple. An array is never equal."""
    try:
        return bool(value == expected)
    except ValueError:  # an array of several elements has no single truth value
        return False


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is one real number of Python or NumPy."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return is_integer(value) or isinstance(value, float | np.floating)


def as_float(number: Any) -> float:
    """Convert a number to a float. Integers beyond the range of a float become infinities."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def format_call(name: str, args: tuple[Any, ...]) -> str:
    """Return a call as source text, such as ``waves(5, 2, 3)``."""
    return f"{name}({', '.join(map(short_repr, args))})"
