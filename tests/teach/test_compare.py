"""Comparison of arrays: which elements are wrong, and how the first one is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpulab_course.teach.judge.compare import (
    ExpectedFloats,
    describe_first_wrong,
    find_mismatch,
    find_wrong_elements,
    format_value,
    get_expected_values,
)

F32 = np.float32


def test_floats_are_accepted_within_two_ulps() -> None:
    eps = float(np.finfo(F32).eps)
    expected = np.array([1.0, 1.0, 1.0, -1.0, 0.0, 0.0], F32)
    result = np.array([1 + 2 * eps, 1 + 3 * eps, 1 - 2 * eps, -1 - 3 * eps, 2e-45, 5e-45], F32)
    assert find_wrong_elements(result, expected).tolist() == [False, True, False, True, False, True]
    near = ExpectedFloats(expected, 4.0, ulps=1)
    assert find_wrong_elements(np.array([1 + 4 * eps, 1 + 5 * eps, 1, -1, 0, 1e-6], F32), near).tolist() == [
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert get_expected_values(near) is expected
    assert get_expected_values(expected) is expected


def test_half_precision_has_its_own_tolerance_and_integers_none() -> None:
    half = np.array([1.0], np.float16)
    assert not find_wrong_elements(half + np.float16(2**-9), half).any()
    assert find_wrong_elements(half + np.float16(2**-8), half).all()
    assert find_wrong_elements(np.array([1, 2]), np.array([1, 3])).tolist() == [False, True]
    assert not find_wrong_elements(np.array([True]), np.array([1.0], F32)).any()
    signalling = np.array([0x7FA00000], np.uint32).view(F32)
    assert not find_wrong_elements(signalling, np.array([np.nan], F32)).any()
    result = np.array([np.inf, -np.inf, 3e38, np.inf], F32)
    expected = np.array([np.inf, np.inf, np.inf, 3e38], F32)
    assert find_wrong_elements(result, expected).tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    ("result", "expected", "message"),
    [
        ([1, 2, 9], [1, 2, 3], "y[2] is 9, but it should be 3 (1 of 3 elements differ)"),
        ([[1, 2], [8, 9]], [[1, 2], [3, 4]], "y[1, 0] is 8, but it should be 3 (2 of 4 elements differ)"),
        ([9], [3], "y[0] is 9, but it should be 3"),
        (9, 3, "y is 9, but it should be 3"),
        ([1 / 3], [1e9], "y[0] is 0.333333, but it should be 1e+09"),
        ([0.1], [np.nextafter(0.1, 1)], "y[0] is 0.1, but it should be 0.10000000000000002"),
        ([True], [False], "y[0] is 1, but it should be 0"),
        ([0] * 2000, [1] * 2000, "y[0] is 0, but it should be 1 (2,000 of 2,000 elements differ)"),
    ],
)
def test_the_first_wrong_element_is_named(result: Any, expected: Any, message: str) -> None:
    left = np.asarray(result)
    value = np.asarray(expected)
    assert describe_first_wrong("y", left, value, np.asarray(left != value)) == message
    assert format_value(np.uint8(200)) == "200"


def test_a_nan_with_different_bits_is_reported_with_its_bits() -> None:
    nan = np.array([0x7FC00001], np.uint32).view(F32)
    expected = ExpectedFloats(np.array([np.nan], F32), 1.0, zero_bit_mask=1)
    wrong = find_wrong_elements(nan, expected)
    assert wrong.tolist() == [True]
    assert describe_first_wrong("y", nan, expected.values, wrong) == "y[0] is NaN with the bits 0x7fc00001"
    assert (
        describe_first_wrong("y", np.ones(1, F32), expected.values, wrong)
        == "y[0] is 1, but it should be nan"
    )


def test_exact_results_are_compared_by_their_bits() -> None:
    expected = np.array([0.0, 1.0, np.nan], np.float32)
    result = np.array([-0.0, 1.0, np.nan], np.float32)
    assert find_wrong_elements(result, ExpectedFloats(expected, 1.0, ulps=0)).tolist() == [True, False, False]
    assert not find_wrong_elements(result, ExpectedFloats(expected, 1.0)).any()
    low = np.array([0.0, np.float32(1) + np.finfo(np.float32).eps, np.nan], np.float32)
    assert find_wrong_elements(low, ExpectedFloats(expected, 1.0, ulps=2, zero_bit_mask=1)).tolist() == [
        False,
        True,
        False,
    ]
    assert not find_wrong_elements(low, ExpectedFloats(expected, 1.0, ulps=2)).any()
    zeros = ExpectedFloats(np.array([0.0, -0.0, 1.0, -1.0], np.float32), 1.0, ulps=0)
    opposite = np.array([-0.0, 0.0, -1.0, -1.0], np.float32)
    assert find_wrong_elements(opposite, zeros).tolist() == [True, True, True, False]


def test_rounding_is_accepted_but_a_missing_summand_is_not() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(100_000).astype(np.float32)
    exact = np.array([x.astype(np.float64).sum()])
    expected = ExpectedFloats(exact.astype(np.float32), np.abs(x).sum(dtype=np.float64), ulps=20)
    assert not find_wrong_elements(np.array([x.sum()], np.float32), expected).any()
    lost = x[x.argmax()]
    assert find_wrong_elements(np.array([x.sum() - lost], np.float32), expected).any()


def test_nan_and_infinity_must_match_exactly() -> None:
    expected = np.array([np.nan, np.inf, -np.inf, 0, 1], np.float32)
    assert not find_wrong_elements(expected, expected).any()
    for index, value in ((0, 0.0), (1, 3e38), (2, np.inf), (3, np.nan), (4, np.inf)):
        result = expected.copy()
        result[index] = value
        assert find_wrong_elements(result, expected).tolist() == [k == index for k in range(5)]


def test_shape_and_dtype_mismatches_are_reported() -> None:
    floats = np.array([1, 2.5], np.float32)
    assert find_mismatch("y", floats, floats) == ""
    assert find_mismatch("y", floats[:1], floats) == "y has the shape (1,), but it should be (2,)"
    assert find_mismatch("y", np.array([1, 2]), floats) == "y has the dtype int64, but it should be float32"
    assert find_wrong_elements(np.array([1, 2]), floats).tolist() == [False, True]
    assert find_wrong_elements(np.array(["1", "2"]), floats).all()
