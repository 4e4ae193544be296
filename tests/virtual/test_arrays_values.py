"""Values, dtypes and shapes of array functions against NumPy."""

from __future__ import annotations

import operator
import warnings
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scalar", [True, 2, 2.5, 1 + 2j, np.float32(0.5), np.int8(3), np.float64(2)])
def test_scalars_follow_nep_50(dtype: str, scalar: Any) -> None:
    a = sample(dtype)
    same(cp.array(a) * scalar, a * scalar)
    same(scalar + cp.array(a), scalar + a)


def test_scalars_out_of_range_raise_as_in_numpy() -> None:
    with pytest.raises(OverflowError, match="out of bounds"):
        cp.zeros(2, dtype=cp.uint8) + 300


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
OPERATORS += [operator.pow, operator.lt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", ["i4", "u1", "f4", "f8"])
def test_operators_with_broadcasting(op: Any, dtype: str) -> None:
    a = sample(dtype, (4, 1))
    b = sample(dtype, (3, 1, 5), seed=2)
    a = abs(a)
    b = abs(b)
    same(op(cp.array(a), cp.array(b)), op(a, b))


@pytest.mark.parametrize("op", ["iadd", "isub", "imul", "itruediv", "ipow", "ifloordiv", "imod"])
def test_in_place_operators_keep_address_and_dtype(op: str) -> None:
    a = abs(sample("f4")) + 1
    b = abs(sample("f8", seed=3)) + 1
    device = cp.array(a)
    address = device.data.ptr
    result = getattr(operator, op)(device, cp.array(b))
    expected = getattr(operator, op)(a, b)
    assert result.data.ptr == address
    same(result, expected)


def test_in_place_never_narrows_the_kind() -> None:
    a = cp.zeros(3, dtype=cp.int32)
    with pytest.raises(TypeError, match="same_kind"):
        a += 1.5
    a.shape = (3, 1)
    with pytest.raises(ValueError, match="broadcast"):
        a += cp.zeros((2, 2, 2), dtype=cp.int32)


def test_integer_division_by_zero_and_negative_powers_do_not_raise() -> None:
    a = cp.array([5, -5, 0])
    np.testing.assert_array_equal((a // 0).get(), [0, 0, 0])
    base = cp.array([1, -1, -1, 2, -3])
    np.testing.assert_array_equal((base ** cp.array([-3, -3, -2, -1, -2])).get(), [1, -1, 1, 0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf((cp.ones(1) / 0).get()).all()


REDUCTIONS = ["sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "argmax", "argmin", "ptp"]
REDUCTIONS += ["cumsum", "cumprod", "count_nonzero", "median", "nansum"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_reductions(name: str, axis: int | None) -> None:
    for dtype in ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c16"]:
        agree(lambda xp, a: getattr(xp, name)(a, axis=axis), sample(dtype, (3, 5)))


def test_reduction_keywords() -> None:
    a = sample("f4", (2, 3, 4))
    device = cp.array(a)
    same(device.sum(axis=(0, 2), keepdims=True), a.sum(axis=(0, 2), keepdims=True))
    same(device.sum(dtype=cp.float64), a.sum(dtype=np.float64))
    same(device.std(ddof=1), a.std(ddof=1))
    out = cp.empty(3, dtype=cp.float32)
    assert device.max(axis=(0, 2), out=out) is out
    same(out, a.max(axis=(0, 2)))
    for keyword in ("where", "initial"):
        with pytest.raises(TypeError, match=keyword):
            cp.sum(device, **{keyword: True})
    with pytest.raises(ValueError, match="axis 5 is out of bounds"):
        device.sum(axis=5)


def test_comparisons_of_arrays_stay_on_the_device() -> None:
    a = cp.arange(3)
    for result in (cp.allclose(a, a), cp.array_equal(a, a), a.all(), a.sum(), cp.max(a), a[1]):
        assert isinstance(result, cp.ndarray)
        assert result.shape == ()
    assert bool(cp.array_equal(a, a))
    assert not cp.allclose(a, a + 1)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1), (2, 3, 4, 5)])
def test_unusual_shapes(shape: tuple[int, ...]) -> None:
    a = sample("f4", shape)
    device = cp.array(a)
    same(device + 1, a + 1)
    same(device.sum(), a.sum())
    same(device.copy(), a)
    same(cp.zeros_like(device), np.zeros_like(a))
    same(device.reshape(-1), a.reshape(-1))
    assert (device.size, device.nbytes, device.ndim) == (a.size, a.nbytes, a.ndim)


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


def test_numpy_functions_hand_device_arrays_back() -> None:
    a = sample("f4")
    device = cp.array(a)
    same(np.sqrt(abs(device)), np.sqrt(abs(a)))
    same(np.sum(device, axis=0), a.sum(axis=0))
    same(np.concatenate([device, device]), np.concatenate([a, a]))
    same(np.linalg.norm(device), np.linalg.norm(a))
    same(np.float32(2) * device, np.float32(2) * a)
    with pytest.raises(TypeError, match="no implementation found"):
        np.insert(device, 0, 1)


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
