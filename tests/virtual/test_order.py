"""``order=`` decides where elements are in memory, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp

pytestmark = pytest.mark.usefixtures("machine")

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "asarray of a transposed view": lambda m, a: m.asarray(a.T, order="C"),
    "asarray in columns": lambda m, a: m.asarray(a, order="F"),
    "asarray as it is": lambda m, a: m.asarray(a.T, order="A"),
    "asarray of None": lambda m, a: m.asarray(a.T, order=None),
    "astype without a copy": lambda m, a: a.astype("f8", order="F", copy=False),
    "astype of None": lambda m, a: a.T.astype("f4", order=None),
    "array without a copy": lambda m, a: m.array(a, copy=None, order="F"),
    "array of arrays": lambda m, a: m.array([a, a], order="F"),
    "method reshape": lambda m, a: a.reshape((3, 2), order="F"),
    "function reshape": lambda m, a: m.reshape(a, (3, 2), order="F"),
    "reshape in the order it has": lambda m, a: a.T.reshape((6,), order="A"),
    "copy": lambda m, a: a.T.copy(order="C"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_strides_equal_those_of_numpy(case: Callable[[Any, Any], Any]) -> None:
    host = np.arange(6.0).reshape(2, 3)
    expected = case(np, host)
    result = case(cp, cp.asarray(host))
    assert result.strides == expected.strides
    np.testing.assert_array_equal(cp.asnumpy(result), expected)


def test_an_array_in_the_requested_order_is_returned_unchanged() -> None:
    x = cp.zeros((2, 3), order="F")
    assert cp.asarray(x, order="F") is x
    assert x.astype(x.dtype, order="A", copy=False) is x
    assert cp.asarray(x, order="C") is not x
