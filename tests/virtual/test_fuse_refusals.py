"""Errors of ``cp.fuse``: the same exception classes and message texts as CuPy.

`tests.gpu.test_fuse_gpu` runs these tests with CuPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp

pytestmark = pytest.mark.usefixtures("machine")


def with_itself(x: Any) -> Any:
    return x, x + 1


def scaled(x: Any, by: Any) -> Any:
    return x * by


def choose(a: Any) -> Any:
    return a if a > 0 else -a


def assign_one(a: Any) -> None:
    a[0] = 1


REFUSED: dict[str, tuple[Callable[[Any], Any], Any, str | None]] = {
    "if": (choose, TypeError, "Cannot convert to Python scalar in cupy.fuse"),
    "float": (lambda a: a * float(a), TypeError, "Cannot convert to Python scalar in cupy.fuse"),
    "sort": (lambda a: cp.sort(a), AttributeError, "no attribute 'sort'"),
    "mean": (lambda a: cp.mean(a), AttributeError, "no attribute 'mean'"),
    "method": (lambda a: a.clip(0, 1), AttributeError, "no attribute 'clip'"),
    "transposed": (lambda a: a.T, AttributeError, "no attribute 'T'"),
    "shape": (lambda a: a + a.shape[0], NotImplementedError, "`shape` is not supported"),
    "keepdims": (lambda a: cp.sum(a, keepdims=True), NotImplementedError, "does not support `keepdims`"),
    "slice": (lambda a: a[1:] + 1, NotImplementedError, "Only full range"),
    "mask": (lambda a: a[a > 0], IndexError, "Indices must be integers, slices, ellipsis"),
    "element": (assign_one, ValueError, r"The fusion supports `\[...\]` or `\[:\]`"),
    "matrix product": (lambda a: a @ a, TypeError, "unsupported operand type.* for @"),
    "reflected power": (lambda a: 2**a, TypeError, "unsupported operand type"),
    "plus": (lambda a: +a, TypeError, r"bad operand type for unary \+"),
    "abs": (lambda a: abs(a), TypeError, r"bad operand type for abs\(\)"),
    "np.sinh": (lambda a: np.sinh(a), TypeError, "has no callable sinh method"),
    "np.maximum": (lambda a: np.maximum(a, 0), TypeError, None),
    "np.frexp": (lambda a: np.frexp(a)[0], TypeError, None),
    "np.fmod": (lambda a: np.fmod(a, 2), AttributeError, "no attribute 'fmod'"),
    "list": (lambda a: a * [1, 2, 3], TypeError, "<class 'list'>"),
    "one bound": (lambda a: cp.clip(a, None, 1), TypeError, None),
    "number as condition": (lambda a: cp.where(a, 1, 2), TypeError, None),
    "where=": (lambda a: cp.add(a, 1, where=a > 0), TypeError, "Wrong arguments"),
    "order": (lambda a: a.astype("f4", order="C"), TypeError, "order is not supported yet"),
    "axis": (lambda a: cp.sum(a, axis=1), ValueError, "axis 1 is out of bounds"),
    "number": (lambda a: 3.0, ValueError, "The return value of fused functions"),
    "list of results": (lambda a: [a, a], ValueError, "The return value of fused functions"),
    "a number among results": (lambda a: (a, 1.0), ValueError, "elements of return value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_operations_raise_as_in_cupy(name: str) -> None:
    function, error, message = REFUSED[name]
    fused = cp.fuse(kernel_name="refused")(function)
    for _ in range(2):
        with pytest.raises(error, match=message):
            fused(cp.arange(3.0))


def test_arrays_captured_from_outside_are_refused() -> None:
    weights = cp.arange(3.0)

    def weighted(a: Any) -> Any:
        return a * weights

    def weighing(a: Any) -> Any:
        return weights * a

    for function in (weighted, weighing):
        with pytest.raises(TypeError, match="ndarray"):
            cp.fuse(function)(cp.ones((2, 3)))


def test_a_kernel_name_must_be_an_identifier() -> None:
    x = cp.arange(3.0)
    before = cp.fuse(lambda a: operator.iadd(a, 1))
    with pytest.raises(cp.cuda.compiler.CompileException, match="expected an identifier"):
        before(x)
    with pytest.raises(cp.cuda.compiler.CompileException):
        cp.fuse(kernel_name="no name")(with_itself)(x)
    np.testing.assert_array_equal(x.get(), [0, 1, 2])
    assert before(3) == 4
    named = cp.fuse(kernel_name="a_name")(lambda a: a + 1)
    np.testing.assert_array_equal(named(x).get(), [1, 2, 3])


def test_arguments_that_do_not_fit() -> None:
    fused = cp.fuse(scaled)
    with pytest.raises(TypeError, match="by"):
        fused(cp.arange(3.0), by=2)
    with pytest.raises(TypeError, match="Invalid argument type for 'scaled'"):
        fused(cp.arange(3.0), [1, 2])
    with pytest.raises(ValueError, match="broadcast"):
        fused(cp.arange(3.0), cp.arange(4.0))
