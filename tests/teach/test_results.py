"""Comparison of results with the expected ones, and how messages show calls and values."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gpulab.processes import errors
from gpulab.processes.values import DeviceContents, OtherObject
from gpulab_course.teach.judge import ExpectedFloats, NotYet, ProgramCase
from gpulab_course.teach.judge.python import functions
from gpulab_course.teach.judge.python.results import check_result

F32 = np.float32
WANTED = np.arange(6, dtype=F32).reshape(2, 3)


def message_of(result: Any, expected: Any = WANTED, **options: Any) -> str:
    """Return the message about a result without its label; it is empty if the result is right."""
    try:
        check_result("f(x)", result, ProgramCase((), expected, **options))
    except NotYet as reason:
        return str(reason).removeprefix("f(x)").removeprefix(": ")
    return ""


WRONG = WANTED + F32(0)
WRONG[1, 2] = 9


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (WANTED, ""),
        (DeviceContents(WANTED), ""),
        (WRONG, "the result[1, 2] is 9, but it should be 5"),
        (DeviceContents(WRONG), "the result[1, 2] is 9, but it should be 5"),
        (WANTED.T, "the result has the shape (3, 2), but it should be (2, 3)."),
        (WANTED.astype(float), "the result is float64, but it should be float32."),
        (WANTED.astype(complex), "but it should contain numbers."),
        (WANTED.astype(str), "but it should contain numbers."),
        (None, " returns NoneType, but the result should be an array or a number."),
        (OtherObject("Stream"), " returns Stream, but the result should be an array or a number."),
        (3, "the result has the shape (), but it should be (2, 3)."),
    ],
)
def test_a_result_is_checked_for_kind_shape_type_and_values(result: Any, message: str) -> None:
    assert message in message_of(result)
    assert bool(message_of(result)) == bool(message)


@pytest.mark.parametrize(
    ("result", "right"),
    [(3.0, True), (3, True), (F32(3), True), (np.array(3, F32), True), (np.int64(3), False), (4, False)],
)
def test_a_python_number_can_replace_a_number_of_any_type(result: Any, right: bool) -> None:
    assert (message_of(result, F32(3)) == "") == right


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (2.5, np.int32(2)),
        (2 + (1 << 32), np.int32(2)),
        (-1, np.uint8(255)),
        (2, np.bool_(True)),
        (1e300, F32(1)),
    ],
)
def test_a_number_is_not_truncated_to_the_expected_type(result: Any, expected: Any) -> None:
    assert "the result is " in message_of(result, expected)
    assert message_of(1.0 * int(expected), expected) == ""


def test_a_result_must_be_on_the_expected_side() -> None:
    on_host = "the result should stay on the device, but it is a NumPy array."
    assert message_of(WANTED, required_place="device") == on_host
    number = message_of(3, required_place="device")
    assert number == "the result should stay on the device, but it is a number of the host."
    assert message_of(DeviceContents(WANTED), required_place="device") == ""
    host_message = "the result should be a NumPy array, but it is still on the device."
    assert message_of(DeviceContents(WANTED), required_place="host") == host_message
    assert (
        message_of(3.0, 3.0, required_place="host")
        == "the result should be a NumPy array, but it is a number."
    )
    assert message_of(WANTED, required_place="host") == ""


def test_several_results_are_compared_one_by_one() -> None:
    expected = (WANTED, F32(3))
    assert message_of((WANTED, 3), expected) == ""
    assert message_of([WANTED, 3], expected) == ""
    assert message_of((WANTED, 4), expected).startswith("result 2 is 4, but it should be 3")
    assert message_of((WRONG, 4), expected).startswith("result 1[1, 2] is 9, but it should be 5")
    for result in (WANTED, 3):
        assert message_of(result, expected) == " should return 2 results, as a tuple or a list."
    assert message_of([WANTED], expected) == " should return 2 results, not 1."
    assert message_of((WANTED, 3, 3), expected) == " should return 2 results, not 3."
    assert message_of(3, (3,)) == " should return 1 result, as a tuple or a list."
    assert message_of((3, "x"), (3, 4)) == " returns str, but result 2 should be an array or a number."
    assert message_of((DeviceContents(WANTED), 3), expected, required_place="device").startswith(
        "result 2 should stay on the device"
    )


def test_near_defines_the_allowed_rounding_error() -> None:
    high = WANTED + F32(1e-3)
    assert message_of(high).startswith("the result[0, 0] is 0.001, but it should be 0")
    assert message_of(high, ExpectedFloats(WANTED, 1e4)) == ""


def test_a_function_may_check_the_result() -> None:
    def positive(result: Any) -> None:
        if result < 0:
            raise NotYet("f(x) should be positive.")

    assert message_of(3, positive) == ""
    assert message_of(-3, positive) == " should be positive."


def test_known_mistakes_are_explained_only_if_values_are_wrong() -> None:
    mistakes = ((WRONG, "The last one is new."), (WRONG, "Later."), (-WANTED, "It is turned."))
    assert message_of(WRONG, known_mistakes=mistakes).endswith("elements differ). The last one is new.")
    assert message_of(DeviceContents(-WANTED), known_mistakes=mistakes).endswith(" It is turned.")
    assert message_of(WANTED + F32(7), known_mistakes=mistakes).endswith("elements differ).")
    assert message_of(WRONG.astype(float), known_mistakes=mistakes).endswith("should be float32.")
    assert message_of(WANTED, known_mistakes=((WANTED, "Never."),)) == ""


# Formatting of calls and values


class Silent:
    def __repr__(self) -> str:
        raise SystemExit(1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "3"),
        ("a\n b", "'a\\n b'"),
        ("x" * 200, "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'"),
        (10**80, "1000000000000000000000000000...00000000000000000000000000000"),
        (np.zeros((2, 2)), "array([[0., 0.], [0., 0.]])"),
        (Silent(), "a value of type Silent"),
    ],
)
def test_a_value_is_formatted_briefly_on_one_line(value: Any, message: str) -> None:
    assert errors.short_repr(value) == message


class Wordless(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no\nmore"), "it raised ValueError: no"),
        (ValueError(), "it raised ValueError."),
        (KeyError("a"), "it raised KeyError: 'a'"),
        (Wordless("a"), "it raised Wordless."),
        (ValueError("x" * 201), "it raised ValueError: " + 200 * "x"),
    ],
)
def test_an_exception_is_reported_in_one_line(error: Exception, message: str) -> None:
    assert errors.describe_error(error) == message


@pytest.mark.parametrize(("code", "text"), [(None, ""), (0, "0"), ("bye", "'bye'")])
def test_an_exit_is_reported_with_its_argument(code: Any, text: str) -> None:
    assert errors.describe_exit(SystemExit(code)) == f"it calls exit({text}), which would end Python."


def call_here(function: Any, *args: Any, **options: Any) -> Any:
    return functions.call_here(function, *args, name="f", shown="f(x)", **options)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, "f should be a function, not int. Pass it without calling it."),
        (lambda x: None, "f(x) returns nothing; replace the TODO and end with a return."),
        (lambda x: 1 / x, "f(x) raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_call_without_a_result_is_refused(function: Any, message: str) -> None:
    with pytest.raises(NotYet, match=f"^{re.escape(message)}$"):
        call_here(function, 0)


def test_a_call_returns_the_value_of_the_function() -> None:
    assert call_here(lambda x: x + 1, 1) == 2
    assert call_here(lambda x: 0, 1) == 0
    assert call_here(lambda x: None, 1, returns=False) is None


def test_answers_are_classified_by_type() -> None:
    assert functions.list_parts((1, 2)) == functions.list_parts([1, 2]) == [1, 2]
    assert functions.list_parts(np.array([1, 2])) == [1, 2]
    assert functions.list_parts(np.zeros((2, 2))) is None
    assert functions.list_parts("ab") is None
    assert [functions.equals(result, 2) for result in (2, 2.0, 3, np.int64(2), np.array([2, 2]))] == [
        True,
        True,
        False,
        True,
        False,
    ]
    values_ = [2, np.uint8(2), True, 2.0, "2", np.array(2)]
    assert [functions.is_integer(value) for value in values_] == [True, True, False, False, False, False]
    numbers = [2, 2.5, F32(2), np.array(2), np.array(2.5), np.array(2 + 1j), np.array([2]), True, "2", None]
    assert [functions.is_number(value) for value in numbers] == [True] * 5 + [False] * 5
    assert not functions.is_number(np.array(True))
    assert [functions.as_float(n) for n in (3, 10**400, -(10**400))] == [3.0, np.inf, -np.inf]
