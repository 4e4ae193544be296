"""``cp.fuse``: the same results as without it, and CuPy's rules for what can be fused.

`tests.gpu.test_fuse_gpu` runs these tests with CuPy. Tests that need the virtual GPU are in
``test_fuse_machine``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.cp._elementwise.expressions import _EXPRESSIONS_BY_KIND

pytestmark = pytest.mark.usefixtures("machine")

KINDS = {"f": ("f2", "f4", "f8"), "i": ("i1", "i4", "i8"), "u": ("u1", "u8"), "b": ("?",), "c": ("c8", "c16")}
# As many functions share a kernel as this, since compiling takes longest.
TOGETHER = 16
GROUPS = [
    (dtype, tuple(names)[start : start + TOGETHER])
    for kind, names in _EXPRESSIONS_BY_KIND.items()
    for dtype in KINDS[kind]
    for start in range(0, len(names), TOGETHER)
]
TOLERANCE = {"f2": 2e-3, "f4": 2e-6, "c8": 5e-6}


def operands(dtype: str) -> tuple[Any, Any]:
    """Return all pairs of interesting values of a type."""
    if dtype == "?":
        values: list[Any] = [False, True]
    elif dtype[0] == "u":
        values = [0, 1, 2, 3, 7, 100, np.iinfo(dtype).max]
    elif dtype[0] == "i":
        values = [0, 1, -1, 2, -2, 3, 7, -7, 100, np.iinfo(dtype).max, np.iinfo(dtype).min + 1]
    elif dtype[0] == "f":
        values = [0.0, -0.0, 0.25, -0.5, 1, -1, 2.5, -3, 7.75, np.inf, -np.inf, np.nan]
    else:
        values = [0.5 + 2j, -1.5 - 0.25j, 3 - 4j, 1 + 1j]
    x = np.array(values, dtype=dtype)
    a, b = np.meshgrid(x, x)
    return a, b


def defined(name: str, dtype: str) -> bool:
    """Return whether NumPy has a loop for the type for which `fuse` has an expression."""
    function = getattr(np, name)
    try:
        loop = function.resolve_dtypes((*(np.dtype(dtype),) * function.nin, None))
    except TypeError:
        return False
    return name in _EXPRESSIONS_BY_KIND[loop[0].kind]


@pytest.mark.parametrize(("dtype", "names"), GROUPS)
def test_fused_functions_equal_unfused_functions(dtype: str, names: tuple[str, ...]) -> None:
    names = tuple(name for name in names if defined(name, dtype))
    a, b = operands(dtype)
    exponent = abs(b) % 5 if dtype[0] in "iu" else b

    def all_of_them(x: Any, y: Any, power: Any) -> Any:
        calls = [(getattr(cp, name), power if name == "power" else y) for name in names]
        return tuple(f(x, second) if f.nin == 2 else f(x) for f, second in calls)

    device = [cp.asarray(value) for value in (a, b, exponent)]
    references = all_of_them(*device)
    results = cp.fuse(all_of_them)(*device)
    for name, result, reference in zip(names, results, references, strict=True):
        assert result.dtype == reference.dtype, name
        if reference.dtype.kind in "fc":
            rtol = max(TOLERANCE.get(dtype, 1e-12), TOLERANCE.get(reference.dtype.str[1:], 0))
            np.testing.assert_allclose(result.get(), reference.get(), rtol=rtol, atol=rtol, err_msg=name)
        else:
            np.testing.assert_array_equal(result.get(), reference.get(), err_msg=name)


def test_every_fusible_function_is_tested() -> None:
    tried = {name for dtype, names in GROUPS for name in names if defined(name, dtype)}
    assert tried == {name for names in _EXPRESSIONS_BY_KIND.values() for name in names}


def same(results: Any, references: Any, rtol: float = 1e-6) -> None:
    """Compare results that may be tuples: types, shapes and values."""
    pairs = [r if isinstance(r, tuple) else (r,) for r in (results, references)]
    for result, reference in zip(*pairs, strict=True):
        assert result.dtype == reference.dtype
        assert result.shape == reference.shape
        np.testing.assert_allclose(result.get(), reference.get(), rtol=rtol)


def polynomial(x: Any, y: Any) -> Any:
    return 3 * x**2 + 2 * x - y / 4


def selected(x: Any, y: Any) -> Any:
    return cp.where((x > y) & (y != 0), x, -y)


def selected_number(x: Any, y: Any) -> Any:
    return cp.where(x > y, x, 0.5) + y


def several_outputs(x: Any, y: Any) -> Any:
    return x + y, x - y, x < y


def converted(x: Any, y: Any) -> Any:
    return (x * 1.7).astype("i4") + y.astype("i8").copy()


def clipped(x: Any, y: Any) -> Any:
    return cp.clip(x, -1, 2) + cp.minimum(y, 1)


def numpy_arithmetic(x: Any, y: Any) -> Any:
    return np.add(x, np.multiply(y, 2)) - np.negative(np.square(y))


def numpy_number(x: Any, y: Any) -> Any:
    return x * np.float64(2) + y


def python_arithmetic(x: Any, y: Any) -> Any:
    return x * (2 * 3) + y * (1 / 4)


def mixed_types(x: Any, y: Any) -> Any:
    return x + (y > 0)


def reflected(x: Any, y: Any) -> Any:
    return 2 - x + 1 / (y + 10)


def named_type(x: Any, y: Any) -> Any:
    return cp.add(x, y, dtype="f8")


def changed_value(x: Any, y: Any) -> Any:
    z = x + y
    z += 2
    z[...] = z * 3
    return z


ROUTINES = (
    *(polynomial, selected, selected_number, several_outputs, converted, clipped, numpy_arithmetic),
    *(numpy_number, python_arithmetic, mixed_types, reflected, named_type, changed_value),
)


@pytest.mark.parametrize(
    ("function", "dtypes"),
    [*product(ROUTINES, [("f4", "f4"), ("i4", "f8"), ("f2", "f4"), ("i4", "i8")])],
)
def test_fused_routines_have_the_same_results_and_dtypes(
    function: Callable[..., Any], dtypes: tuple[str, str]
) -> None:
    rng = np.random.default_rng(5)
    x = cp.asarray(rng.integers(-5, 5, (4, 6)).astype(dtypes[0]))
    y = cp.arange(6).astype(dtypes[1])
    same(cp.fuse(function)(x, y), function(x, y), rtol=2e-3 if "f2" in dtypes else 1e-6)


def dot(x: Any, y: Any) -> Any:
    return cp.sum(x * y)


def dots(x: Any, y: Any) -> Any:
    return cp.sum(x * y, axis=1)


def distance(x: Any, y: Any) -> Any:
    return cp.sqrt(cp.sum((x - y) ** 2, axis=0)) / 2


def least(x: Any, y: Any) -> Any:
    return cp.amin(x * y, axis=(0, 1))


def product(x: Any, y: Any) -> Any:
    return cp.prod(x, axis=0) * 2 + 1


def any_greater(x: Any, y: Any) -> Any:
    return cp.any(x > y + 3, axis=0)


def all_small(x: Any, y: Any) -> Any:
    return cp.all(x + y < 100)


def two_results(x: Any, y: Any) -> Any:
    total = cp.sum(x * y, axis=0)
    return total, -total


REDUCTIONS = (dot, dots, distance, least, product, any_greater, all_small)


@pytest.mark.parametrize("function", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_fused_functions_may_end_in_a_reduction(function: Callable[..., Any], dtype: str) -> None:
    rng = np.random.default_rng(6)
    x = cp.asarray(rng.integers(-5, 5, (7, 33)).astype(dtype))
    y = cp.arange(33).astype(dtype)
    same(cp.fuse(function)(x, y), function(x, y), rtol=1e-5)


def test_only_the_first_of_two_reduction_results_is_returned() -> None:
    x = cp.arange(6.0).reshape(2, 3)
    y = cp.arange(3.0)
    result = cp.fuse(two_results)(x, y)
    assert isinstance(result, cp.ndarray)
    same(result, two_results(x, y)[0])


def centred(x: Any, y: Any) -> Any:
    return x - x.sum() / 231 + y


def softmax(x: Any, y: Any) -> Any:
    e = cp.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def elements_and_total(x: Any, y: Any) -> Any:
    return x + 1, x.sum(), cp.prod(y > 0), x.min(axis=1), (x > 3).any(), (x < 9).all(axis=0)


def total_of_totals(x: Any, y: Any) -> Any:
    return cp.sum(cp.sum(x, axis=0) * y)


def turned(x: Any, y: Any) -> Any:
    return x[::-1] * y[None, :] + x[:, 0][..., None] + y[3]


def scaled_total(x: Any, y: Any) -> Any:
    return cp.sum(x * y) * y


def other_functions(x: Any, y: Any) -> Any:
    total = cp.sinc(x) + cp.real(y) + cp.round(x * 1.26, 1)
    cp.copyto(total, y, where=x > 3)
    return total


STEPS = (other_functions, centred, softmax, elements_and_total, total_of_totals, turned, scaled_total)


@pytest.mark.parametrize("function", STEPS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_fused_functions_with_several_loops(function: Callable[..., Any], dtype: str) -> None:
    rng = np.random.default_rng(6)
    x = cp.asarray(rng.integers(-5, 5, (7, 33)).astype(dtype))
    y = cp.arange(33).astype(dtype)
    fused = cp.fuse(function)
    for _ in range(2):
        same(fused(x, y), function(x, y), rtol=1e-5)


def greatest(x: Any) -> Any:
    return cp.max(x, axis=1)


def smallest(x: Any) -> Any:
    return cp.min(x, axis=1)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i4", "i8", "u1", "u8", "?"])
def test_fused_max_and_min_of_every_dtype(dtype: str) -> None:
    rows = np.array([[3, 1, 2], [0, 0, 1], [1, 1, 1]]).astype(dtype)
    if rows.dtype.kind == "f":
        rows = np.vstack([rows, [[1, np.nan, 3], [-np.inf] * 3, [np.inf] * 3]]).astype(dtype)
    elif rows.dtype.kind in "iu":
        ends = np.iinfo(dtype)
        rows = np.vstack([rows, np.array([[ends.min] * 3, [ends.max] * 3], dtype)])
    x = cp.asarray(rows)
    np.testing.assert_array_equal(cp.fuse(greatest)(x).get(), rows.max(axis=1))
    np.testing.assert_array_equal(cp.fuse(smallest)(x).get(), rows.min(axis=1))
    assert cp.fuse(greatest)(x).dtype == x.dtype
    with pytest.raises(ValueError, match="zero-size array"):
        cp.fuse(greatest)(x[:, :0])


def total_in_double(x: Any) -> Any:
    return cp.sum(x, dtype="f8")


def test_the_dtype_argument_of_a_fused_sum_is_ignored() -> None:
    x = cp.arange(5, dtype="f4")
    assert cp.fuse(total_in_double)(x).dtype == np.float32


def with_numbers(x: Any, dt: Any) -> Any:
    return x + 2.0 * dt


def with_counts(x: Any, n: Any) -> Any:
    return x + 2 * n


def halved(x: Any) -> Any:
    return x * 0.5


def test_python_numbers_have_the_narrowest_dtype() -> None:
    x = cp.zeros(3)
    np.testing.assert_array_equal(cp.fuse(with_numbers)(x, 0.1).get(), np.full(3, 2 * np.float16(0.1)))
    np.testing.assert_array_equal(cp.fuse(with_counts)(x, 100).get(), np.full(3, 200 - 256))
    for dtype, result in (("u1", "f2"), ("i2", "f4"), ("i4", "f8"), ("f4", "f4")):
        assert cp.fuse(halved)(cp.ones(3, dtype)).dtype == np.dtype(result)


def step(x: Any, v: Any, dt: Any) -> None:
    x += v * dt
    v *= 0.5
    x -= 1


def shifted(x: Any) -> None:
    x -= x.sum()


def test_in_place_operators_write_to_the_argument() -> None:
    host = [np.arange(5.0), np.ones(5)]
    device = [cp.asarray(a) for a in host]
    assert cp.fuse(step)(*device, 0.1) is None
    step(*host, 0.1)
    for a, b in zip(device, host, strict=True):
        np.testing.assert_allclose(a.get(), b)
    with pytest.raises(TypeError, match="same_kind"):
        cp.fuse(step)(cp.zeros(3, "i4"), cp.zeros(3), 0.1)
    x = cp.arange(4.0)
    assert cp.fuse(shifted)(x) is None
    np.testing.assert_array_equal(x.get(), np.arange(4.0) - 6)


def with_itself(x: Any) -> Any:
    return x, x + 1


def second_only(x: Any, y: Any) -> Any:
    return y * 2


def test_results_are_new_arrays_broadcast_over_all_arguments() -> None:
    x = cp.arange(3.0)
    copy, more = cp.fuse(with_itself)(x)
    assert copy is not x
    np.testing.assert_array_equal(copy.get(), [0, 1, 2])
    np.testing.assert_array_equal(more.get(), [1, 2, 3])
    np.testing.assert_array_equal(cp.fuse(second_only)(cp.zeros((2, 3)), x).get(), [[0, 2, 4]] * 2)


def scaled(x: Any, by: Any) -> Any:
    return x if by is None else x * by


def test_numbers_and_none_as_arguments() -> None:
    fused = cp.fuse(scaled)
    x = cp.arange(3.0)
    for by in (2.0, 3.0, 4.5, 2, True, np.float32(1.5)):
        np.testing.assert_array_equal(fused(x, by).get(), np.arange(3) * by)
    assert fused(x.astype("f4"), 2).dtype == np.float32
    np.testing.assert_array_equal(fused(x, None).get(), np.arange(3))


def test_a_fused_function_runs_unfused_for_host_data() -> None:
    @cp.fuse
    def twice(a: Any) -> Any:
        """Twice."""
        return a + a

    @cp.fuse(kernel_name="four_times")
    def quadruple(a: Any) -> Any:
        return twice(twice(a))

    assert isinstance(twice(np.arange(3)), np.ndarray)
    assert twice(3) == 6
    assert inspect.getdoc(twice) == "Twice."
    assert twice.__name__ == "twice"
    np.testing.assert_array_equal(quadruple(cp.arange(3)).get(), [0, 4, 8])


def test_the_function_is_traced_once_for_each_type() -> None:
    calls = []

    @cp.fuse()
    def traced(a: Any) -> Any:
        calls.append(a.dtype)
        return a + 1

    for dtype in ("f4", "f4", "f8", "f4"):
        traced(cp.ones((2, 3), dtype))
        traced(cp.ones((4, 1), dtype))
    assert calls == [np.float32, np.float64]
