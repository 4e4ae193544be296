"""Values, dtypes and shapes of array functions against NumPy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp

pytestmark = [pytest.mark.usefixtures("machine"), pytest.mark.filterwarnings("ignore::RuntimeWarning")]

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


def sample(dtype: str, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 9, shape) - (0 if dtype[0] in "u?" else 4)
    host = values.astype(dtype)
    if dtype[0] in "fc":
        host = (host + rng.random(shape)).astype(dtype)
    return host


def same(result: Any, expected: Any) -> None:
    """Check that a device result equals NumPy's in type, shape and values."""
    assert isinstance(result, cp.ndarray), type(result)
    expected = np.asarray(expected)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result.get(), expected)


BINARY = """
add subtract multiply true_divide floor_divide remainder maximum minimum less less_equal equal not_equal
greater logical_and logical_or arctan2 hypot copysign fmax bitwise_and bitwise_xor left_shift
"""


def agree(compute: Any, *hosts: np.ndarray[Any, Any]) -> None:
    """Check that `compute` agrees for device and NumPy arrays, and refuses the same dtypes."""
    devices = [cp.array(host) for host in hosts]
    try:
        expected = compute(np, *hosts)
    except TypeError:
        with pytest.raises(TypeError):
            compute(cp, *devices)
        return
    same(compute(cp, *devices), expected)


@pytest.mark.parametrize("name", BINARY.split())
@pytest.mark.parametrize("right", ["?", "i4", "u8", "f4", "c16"])
def test_binary_functions(name: str, right: str) -> None:
    for left in DTYPES:
        agree(lambda xp, a, b: getattr(xp, name)(a, b), sample(left), sample(right, seed=1))


UNARY = """
negative absolute sign square sqrt exp log log1p sin cos tanh arctan floor ceil rint trunc isnan isfinite
reciprocal cbrt logical_not invert signbit conj exp2 deg2rad positive
"""


@pytest.mark.parametrize("name", UNARY.split())
def test_unary_functions(name: str) -> None:
    for dtype in DTYPES:
        agree(lambda xp, a: getattr(xp, name)(a), sample(dtype))


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
OPERATORS += [operator.pow, operator.lt, operator.ge, operator.eq, operator.ne]


REDUCTIONS = ["sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "argmax", "argmin", "ptp"]
REDUCTIONS += ["cumsum", "cumprod", "count_nonzero", "median", "nansum"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_reductions(name: str, axis: int | None) -> None:
    for dtype in ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c16"]:
        agree(lambda xp, a: getattr(xp, name)(a, axis=axis), sample(dtype, (3, 5)))


def test_scatter_with_ufunc_at() -> None:
    a = cp.zeros(4)
    host = np.zeros(4)
    cp.add.at(a, cp.array([0, 1, 1, 3]), cp.ones(4))
    np.add.at(host, [0, 1, 1, 3], np.ones(4))
    same(a, host)
    with pytest.raises(NotImplementedError, match=r"cupy_multiply\.at"):
        cp.multiply.at(a, cp.array([0]), 1)
    same(cp.add.reduce(cp.arange(6).reshape(2, 3)), [3, 5, 7])
    same(cp.multiply.outer(cp.arange(3), cp.arange(2)), np.multiply.outer(np.arange(3), np.arange(2)))


def test_matmul_shapes() -> None:
    for left, right in (
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((4,), (4, 2)),
        ((5, 3, 4), (4, 2)),
        ((5, 3, 4), (5, 4, 2)),
    ):
        a = sample("f8", left)
        b = sample("f8", right, seed=1)
        same(cp.array(a) @ cp.array(b), a @ b)
    with pytest.raises(ValueError, match="mismatch"):
        cp.ones((2, 3)) @ cp.ones((2, 3))
