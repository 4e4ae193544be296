"""``cp.ElementwiseKernel`` and ``cp.ReductionKernel``: real kernels with CuPy's rules, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")

RNG = np.random.default_rng(11)
DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")


def sample(dtype: str, shape: tuple[int, ...] = (3, 5)) -> Any:
    if dtype == "?":
        return RNG.integers(0, 2, shape).astype(dtype)
    if dtype[0] == "c":
        return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)
    return RNG.integers(1, 10, shape).astype(dtype)


def squared_difference() -> Any:
    return cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")


# Element-wise


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_elementwise_kernels_accept_every_dtype(dtype: str) -> None:
    x = sample(dtype)
    y = sample(dtype)
    result = squared_difference()(cp.asarray(x), cp.asarray(y))
    assert result.dtype == x.dtype
    np.testing.assert_allclose(result.get(), (x - y) * (x - y), rtol=1e-5)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda a: a,
    "transposed": lambda a: a.transpose(2, 0, 1),
    "reversed": lambda a: a[:, ::-1],
    "every other": lambda a: a[::2, :, 1::2],
    "one row": lambda a: a[:1],
    "new axis": lambda a: a[:, None, 1],
    "scalar": lambda a: a[1, 2, 3],
    "broadcast": lambda a: np.broadcast_to(a[0, 0], a.shape),
}


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("reduce_dims", [True, False])
def test_views_and_broadcasting(left: str, reduce_dims: bool) -> None:
    host = np.arange(4 * 4 * 4, dtype="f4").reshape(4, 4, 4)
    device = cp.asarray(host)
    kernel = cp.ElementwiseKernel("T x, T y", "T z", "z = x * 100 + y", reduce_dims=reduce_dims)
    for right in ("as it is", "one row", "scalar", "broadcast"):
        a = LAYOUTS[left](host)
        b = LAYOUTS[right](host)
        try:
            expected = a * 100 + b
        except ValueError:
            with pytest.raises(ValueError, match="broadcast"):
                kernel(LAYOUTS[left](device), LAYOUTS[right](device))
            continue
        np.testing.assert_array_equal(kernel(LAYOUTS[left](device), LAYOUTS[right](device)).get(), expected)


def test_outputs_may_be_views() -> None:
    host = np.zeros((4, 6), dtype="f4")
    device = cp.asarray(host)
    x = np.arange(12, dtype="f4").reshape(4, 3)
    target = device[:, ::2]
    returned = squared_difference()(cp.asarray(x), 1, target)
    assert returned is target
    host[:, ::2] = (x - 1) ** 2
    np.testing.assert_array_equal(device.get(), host)


def test_scalars_have_the_dtype_of_the_array() -> None:
    x = cp.arange(5, dtype="i4")
    kernel = squared_difference()
    for scalar in (2, 2.7, np.float64(2.7), np.int8(2)):
        result = kernel(x, scalar)
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result.get(), (np.arange(5) - 2) ** 2)
    shift = cp.ElementwiseKernel("uint8 x, int64 by", "uint8 z", "z = x + by")
    np.testing.assert_array_equal(shift(cp.arange(3, dtype="u1"), -1).get(), [255, 0, 1])


def test_raw_arrays_and_the_element_index() -> None:
    host = np.arange(10, dtype="f4")
    reverse = cp.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[_ind.size() - i - 1]", "reverse")
    x = cp.asarray(host)
    np.testing.assert_array_equal(reverse(x, x).get(), np.full(10, 9))
    np.testing.assert_array_equal(reverse(x, x[::-1]).get(), 2 * host)
    shape = cp.ElementwiseKernel(
        "raw T x",
        "raw int64 out",
        "out[0] = x.size(); out[1] = x.ndim; out[2] = x.shape()[1]; out[3] = x.strides()[0]",
    )
    out = cp.zeros(4, "i8")
    shape(cp.zeros((3, 5), "f4").T, out, size=1)
    np.testing.assert_array_equal(out.get(), [15, 2, 3, 4])
    matrix = np.arange(6, dtype="f4").reshape(2, 3)
    element = cp.ElementwiseKernel("raw T x, int32 row", "T z", "ptrdiff_t where[] = {row, i}; z = x[where]")
    np.testing.assert_array_equal(element(cp.asarray(matrix.T), 1, cp.empty(2, "f4")).get(), matrix[:, 1])


def test_the_size_argument_requires_raw_arrays() -> None:
    double = cp.ElementwiseKernel("raw T x", "raw T y", "y[i] = 2 * x[i]")
    np.testing.assert_array_equal(double(cp.arange(4.0), size=4).get(), [0, 2, 4, 6])
    with pytest.raises(ValueError, match="Loop size is undecided"):
        double(cp.arange(4.0))
    with pytest.raises(ValueError, match="only if all of the ndarray are 'raw'"):
        squared_difference()(cp.arange(4.0), 1, size=4)
    mixed = cp.ElementwiseKernel("T x", "raw T y", "y[i] = x")
    with pytest.raises(ValueError, match="Output array size is Undecided"):
        mixed(cp.arange(4.0))


def test_raw_outputs_can_be_added_to_atomically() -> None:
    count = cp.ElementwiseKernel("int32 x", "raw int32 bins", "atomicAdd(&bins[x], 1)", "count")
    values = RNG.integers(0, 7, 1000).astype("i4")
    bins = cp.zeros(7, "i4")
    count(cp.asarray(values), bins)
    np.testing.assert_array_equal(bins.get(), np.bincount(values, minlength=7))


def test_several_outputs_and_return_rules() -> None:
    two = cp.ElementwiseKernel("T x", "T y, int32 number", "y = -x; number = i", "two")
    y, number = two(cp.arange(4.0))
    np.testing.assert_array_equal(y.get(), -np.arange(4.0))
    assert number.dtype == np.int32
    np.testing.assert_array_equal(number.get(), np.arange(4))
    alone = cp.ElementwiseKernel("T x", "T y", "y = x", return_tuple=True)(cp.arange(2.0))
    assert isinstance(alone, tuple)
    x = cp.arange(4.0)
    nothing = cp.ElementwiseKernel("T x", "raw T y", "y[i] = x", no_return=True)
    assert nothing(x, cp.zeros(4)) is None


def test_preamble_options_and_loop_statements() -> None:
    kernel = cp.ElementwiseKernel(
        "float32 x",
        "float32 y",
        "y = twice(x) + start + STEP",
        preamble="__device__ float twice(float v) { return 2 * v; }",
        options=("-DSTEP=100",),
        loop_prep="float start = 10",
    )
    np.testing.assert_array_equal(kernel(cp.arange(3, dtype="f4")).get(), [110, 112, 114])
    total = cp.ElementwiseKernel(
        "T x", "raw T y", "sum += x", loop_prep="T sum = 0", after_loop="atomicAdd(&y[0], sum)"
    )
    y = cp.zeros(1, "f4")
    total(cp.arange(1000, dtype="f4"), y)
    assert float(y[0]) == 499500


def test_empty_arrays_launch_no_kernel(machine: Machine) -> None:
    launches = machine.kernel_launches
    result = squared_difference()(cp.empty((0, 3)), cp.empty(3))
    assert result.shape == (0, 3)
    assert machine.kernel_launches == launches


def test_an_elementwise_kernel_is_one_launch_on_its_stream(machine: Machine) -> None:
    stream = cp.cuda.Stream()
    x = cp.arange(1000, dtype="f4")
    launches = machine.kernel_launches
    squared_difference()(x, 1, stream=stream)
    assert machine.kernel_launches == launches + 1
    last = machine.devices[0].work_queue.log[-1]
    assert (last.name, last.stream_id) == ("squared_difference", stream.ptr)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cp.ElementwiseKernel("T i", "T y", "y = i"), ValueError, "Can not use 'i'"),
        (lambda: cp.ElementwiseKernel("T x", "T y", "y = x", "no name"), ValueError, "Invalid kernel name"),
        (lambda: cp.ElementwiseKernel("x", "T y", "y = x"), Exception, "Syntax error: x"),
        (lambda: cp.ElementwiseKernel("float* x", "T y", "y = x"), TypeError, "not understood"),
        (
            lambda: cp.ElementwiseKernel("T *x", "T y", "y = x")(cp.arange(3.0)),
            cp.cuda.compiler.CompileException,
            "error",
        ),
        (lambda: cp.ElementwiseKernel("new T x", "T y", "y = x"), Exception, 'Unknown keyword "new"'),
        (lambda: squared_difference()(cp.arange(3.0)), TypeError, "Wrong number of arguments"),
        (lambda: squared_difference()(cp.arange(3.0), cp.arange(3)), TypeError, "Type is mismatched"),
        (lambda: squared_difference()(cp.arange(3.0), np.arange(3.0)), TypeError, "Unsupported type"),
        (lambda: squared_difference()(1, 2), ValueError, "Loop size is undecided"),
        (lambda: squared_difference()(cp.arange(3.0), 1, cp.zeros(1)), ValueError, "Out shape is mismatched"),
        (lambda: squared_difference()(cp.arange(3.0), 1, np.zeros(3)), TypeError, "numpy.ndarray"),
        (lambda: squared_difference()(cp.arange(3.0), 1, block_size=0), ValueError, "block_size"),
        (
            lambda: cp.ElementwiseKernel("X x, Y y", "Z z", "z = x")(cp.arange(3.0), cp.arange(3.0)),
            KeyError,
            "Z",
        ),
        (
            lambda: cp.ElementwiseKernel("T x", "T y", "y = xx")(cp.arange(3.0)),
            cp.cuda.compiler.CompileException,
            '"xx" is undefined',
        ),
    ],
)
def test_wrong_definitions_and_calls_are_refused(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "error", "remedy"),
    [
        (lambda: cp.ElementwiseKernel("x", "T y", "y = x"), Exception, "a type and a name"),
        (lambda: cp.ElementwiseKernel("float* x", "T y", "y = x"), TypeError, r"without \*"),
        (
            lambda: cp.ElementwiseKernel("T *x", "T y", "y = x")(cp.arange(3.0)),
            cp.cuda.compiler.CompileException,
            r"without \*",
        ),
        (lambda: squared_difference()(cp.arange(3.0), np.arange(3.0)), TypeError, r"cp\.asarray"),
        (
            lambda: cp.ElementwiseKernel("X x", "Z z", "z = x")(cp.arange(3.0)),
            KeyError,
            "pass the output array",
        ),
        (
            lambda: cp.ElementwiseKernel("raw T x", "T y", "y = x[i + 1000]")(cp.arange(3.0), cp.zeros(3)),
            cp.cuda.runtime.CUDARuntimeError,
            r"y = x\[i \+ 1000\].*past the end",
        ),
    ],
)
def test_errors_name_the_remedy(make: Any, error: Any, remedy: str) -> None:
    """This includes calls for which CuPy would read memory outside of the array."""
    with pytest.raises(error, match=remedy):
        make()


def test_generated_source_is_available_as_cached_code() -> None:
    kernel = squared_difference()
    with pytest.warns(UserWarning, match="No codes are cached"):
        assert not kernel.cached_codes
    kernel(cp.arange(3, dtype="f4"), 1)
    assert "typedef float T;" in kernel.cached_code
    assert "z = (x - y) * (x - y)" in kernel.cached_code
    kernel(cp.arange(3, dtype="f8"), 1)
    assert len(kernel.cached_codes) == 2


def test_complex_arithmetic() -> None:
    a = sample("c16")
    b = sample("c16")
    kernel = cp.ElementwiseKernel(
        "T a, T b", "T z", "T w = a / b; w += conj(a); w -= exp(b); z = w * sqrt(a)"
    )
    expected = (a / b + np.conj(a) - np.exp(b)) * np.sqrt(a)
    np.testing.assert_allclose(kernel(cp.asarray(a), cp.asarray(b)).get(), expected, rtol=1e-12)
    parts = cp.ElementwiseKernel("complex128 a", "float64 r, float64 s", "r = abs(a) + a.real(); s = arg(a)")
    r, s = parts(cp.asarray(a))
    np.testing.assert_allclose(r.get(), abs(a) + a.real)
    np.testing.assert_allclose(s.get(), np.angle(a))


# Reductions


def norm() -> Any:
    return cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, (0, 1), (0, 2), (1, 2), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes_of_a_reduction(axis: Any, keepdims: bool) -> None:
    host = RNG.random((5, 37, 66))
    expected = np.sqrt((host**2).sum(axis=axis, keepdims=keepdims))
    result = norm()(cp.asarray(host), axis=axis, keepdims=keepdims)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.get(), expected, rtol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 511, 512, 513, 5000])
@pytest.mark.parametrize("sign", [1, -1])
def test_lengths_of_a_reduction(length: int, sign: int) -> None:
    largest = cp.ReductionKernel("T x", "T y", "x", "a > b ? a : b", "y = a", "-1000", "largest")
    host = sign * RNG.integers(1, 900, (3, length)).astype("i4")
    device = cp.asarray(host)
    np.testing.assert_array_equal(largest(device, axis=1).get(), host.max(axis=1))
    np.testing.assert_array_equal(largest(device.T, axis=0).get(), host.max(axis=1))
    np.testing.assert_array_equal(largest(device, axis=0).get(), host.max(axis=0))
    assert int(largest(device)) == host.max()


@pytest.mark.parametrize("length", [1, 32, 513, 5000])
def test_without_identity_a_reduction_starts_at_zero(length: int) -> None:
    largest = cp.ReductionKernel("T x", "T y", "x", "a > b ? a : b", "y = a", None, "largest")
    host = RNG.integers(-900, -1, (3, length)).astype("i4")
    np.testing.assert_array_equal(largest(cp.asarray(host), axis=1).get(), np.zeros(3))
    np.testing.assert_array_equal(largest(cp.asarray(-host), axis=1).get(), (-host).max(axis=1))


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_reduction_of_every_element_type(dtype: str) -> None:
    host = sample(dtype, (4, 6))
    total = cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")
    result = total(cp.asarray(host), axis=1)
    assert result.dtype == host.dtype
    np.testing.assert_allclose(
        result.get(), host.sum(axis=1, dtype=dtype), rtol=2e-3 if dtype == "f2" else 1e-5
    )


def test_reductions_with_several_arguments_and_a_custom_type() -> None:
    dot = cp.ReductionKernel("T x, T y", "T z", "x * y", "a + b", "z = a", "0", "dot")
    x = RNG.random((4, 6))
    y = RNG.random(6)
    np.testing.assert_allclose(dot(cp.asarray(x), cp.asarray(y), axis=1).get(), x @ y)
    np.testing.assert_allclose(dot(cp.asarray(x), 2.0).get(), 2 * x.sum())
    bounds = cp.ReductionKernel(
        "T x",
        "T low, T high",
        "Bounds(x, x)",
        "Bounds(min(a.low, b.low), max(a.high, b.high))",
        "low = a.low, high = a.high",
        "Bounds()",
        "bounds",
        reduce_type="Bounds",
        preamble="struct Bounds { double low, high; __device__ Bounds(double l = 1e300, double h = -1e300)"
        " : low(l), high(h) {} };",
    )
    # Of several outputs CuPy hands the first back.
    np.testing.assert_array_equal(bounds(cp.asarray(x), axis=0).get(), x.min(axis=0))


def test_raw_reduction_inputs_require_leading_reduced_axes() -> None:
    weighted = cp.ReductionKernel("T x, raw T w", "T y", "x * w[_J]", "a + b", "y = a", "0", "weighted")
    x = RNG.random((5, 3))
    w = RNG.random(5)
    result = weighted(cp.asarray(x), cp.asarray(w), axis=0)
    np.testing.assert_allclose(result.get(), w @ x)
    with pytest.raises(NotImplementedError, match="Illegal conditions"):
        weighted(cp.asarray(x), cp.asarray(w), axis=1)


def test_empty_reductions() -> None:
    largest = cp.ReductionKernel("T x", "T y", "x", "max(a, b)", "y = a", None, "largest")
    np.testing.assert_array_equal(norm()(cp.zeros((0, 3)), axis=0).get(), np.zeros(3))
    assert norm()(cp.zeros((3, 0)), axis=0).shape == (0,)
    with pytest.raises(ValueError, match="zero-size array to reduction operation largest"):
        largest(cp.zeros((0, 3)), axis=0)


def test_the_out_argument_of_a_reduction() -> None:
    x = cp.arange(6.0).reshape(2, 3)
    out = cp.zeros(4)[::2]
    assert norm()(x, axis=1, out=out) is out
    np.testing.assert_allclose(out.get(), np.linalg.norm(x.get(), axis=1))
    positional_out = cp.zeros(2)
    assert norm()(x, positional_out, axis=1) is positional_out
    with pytest.raises(ValueError, match="both a positional and keyword"):
        norm()(x, positional_out, axis=1, out=out)
    with pytest.raises(ValueError, match="Out shape is mismatched"):
        norm()(x, axis=0, out=out)
    with pytest.raises(cp.AxisError):
        norm()(x, axis=2)
    with pytest.raises(ValueError, match="duplicate value in 'axis'"):
        norm()(x, axis=(0, 0))
    with pytest.raises(TypeError, match="Wrong number of arguments"):
        norm()()


@pytest.mark.parametrize(
    ("inputs", "output", "mapped", "closing"),
    [
        ("T a, T b", "T y", "a * b", "y = a"),
        ("T x, T in", "T out", "x * in", "out = a"),
        ("T left, T _x", "T res", "left * _x", "res = a  // the sum"),
    ],
)
def test_reduction_parameters_can_be_named_a_or_out(
    inputs: str, output: str, mapped: str, closing: str
) -> None:
    x = np.arange(1.0, 7.0).reshape(2, 3)
    y = np.arange(6.0).reshape(2, 3)
    kernel = cp.ReductionKernel(inputs, output, mapped, "a + b", closing, "0", "dot")
    np.testing.assert_allclose(cp.asnumpy(kernel(cp.asarray(x), cp.asarray(y), axis=1)), (x * y).sum(axis=1))
