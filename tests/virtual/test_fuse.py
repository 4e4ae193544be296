"""``cp.fuse``: the same results as without it, from one kernel."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from gpulab.errors import NotSupportedError
from gpulab.virtual import cp
from gpulab.virtual.generated.expressions import _BY_KIND
from gpulab.virtual.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")

KINDS = {"f": ("f2", "f4", "f8"), "i": ("i1", "i4", "i8"), "u": ("u1", "u8"), "b": ("?",), "c": ("c8", "c16")}
# As many functions share a kernel as this, since compiling takes longest.
TOGETHER = 16
GROUPS = [
    (dtype, tuple(names)[start : start + TOGETHER])
    for kind, names in _BY_KIND.items()
    for dtype in KINDS[kind]
    for start in range(0, len(names), TOGETHER)
]
TOLERANCE = {"f2": 2e-3, "f4": 2e-6, "c8": 5e-6}


def operands(dtype: str) -> tuple[Any, Any]:
    """Pairs of all interesting values of a type with each other."""
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
    """Whether NumPy has the function for the type, with a loop that `fuse` has an expression for."""
    function = getattr(np, name)
    try:
        loop = function.resolve_dtypes((*(np.dtype(dtype),) * function.nin, None))
    except TypeError:
        return False
    return name in _BY_KIND[loop[0].kind]


@pytest.mark.parametrize(("dtype", "names"), GROUPS)
def test_functions_agree_with_numpy(dtype: str, names: tuple[str, ...]) -> None:
    names = tuple(name for name in names if defined(name, dtype))
    a, b = operands(dtype)
    exponent = abs(b) % 5 if dtype[0] in "iu" else b  # NumPy refuses negative integer powers

    def all_of_them(x: Any, y: Any, power: Any) -> Any:
        every = [(getattr(np, name), power if name == "power" else y) for name in names]
        return tuple(f(x, second) if f.nin == 2 else f(x) for f, second in every)

    with np.errstate(all="ignore"):
        expected = all_of_them(a, b, exponent)
    found = cp.fuse(all_of_them)(*(cp.asarray(value) for value in (a, b, exponent)))
    for name, mine, theirs in zip(names, found, expected, strict=True):
        assert mine.dtype == theirs.dtype, name
        if theirs.dtype.kind in "fc":
            rtol = max(TOLERANCE.get(dtype, 1e-12), TOLERANCE.get(theirs.dtype.str[1:], 0))
            np.testing.assert_allclose(mine.get(), theirs, rtol=rtol, atol=rtol, err_msg=name)
        else:
            np.testing.assert_array_equal(mine.get(), theirs, err_msg=name)


def test_every_listed_function_is_tried() -> None:
    tried = {name for dtype, names in GROUPS for name in names if defined(name, dtype)}
    assert tried == {name for names in _BY_KIND.values() for name in names}


ROUTINES = {
    "polynomial": lambda x, y: 3 * x**2 + 2 * x - y / 4,
    "where": lambda x, y: cp.where(x > y, x, -y),
    "where with numbers": lambda x, y: cp.where((x > y) & (y != 0), 1, 0.5) + x,
    "several outputs": lambda x, y: (x + y, x - y, x < y),
    "casts": lambda x, y: (x * 1.7).astype("i4") + y.astype("i8"),
    "clip": lambda x, y: cp.clip(x, -1, 2) + y.clip(max=1),
    "numpy's functions": lambda x, y: np.maximum(np.sqrt(abs(x)), y),
    "dtype": lambda x, y: cp.add(x, y, dtype="f8"),
    "numpy scalar": lambda x, y: x * np.float64(2) + y,
    "python arithmetic": lambda x, y: x * (2 * 3) + y * (1 / 4),
    "unused argument": lambda x, y: x + 1,
    "mixed types": lambda x, y: x + (y > 0),
    "reflected": lambda x, y: 2 - x + 1 / (y + 10),
}


@pytest.mark.parametrize("name", ROUTINES)
@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("i4", "f8"), ("f2", "f4"), ("i2", "i8")])
def test_same_result_and_type_as_without(name: str, dtypes: tuple[str, str]) -> None:
    function = ROUTINES[name]
    rng = np.random.default_rng(5)
    x, y = cp.asarray(rng.integers(-5, 5, (4, 6)).astype(dtypes[0])), cp.arange(6).astype(dtypes[1])
    plain, fused = function(x, y), cp.fuse(function)(x, y)
    if not isinstance(plain, tuple):
        plain, fused = (plain,), (fused,)
    for a, b in zip(plain, fused, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(b.get(), a.get(), rtol=2e-3 if "f2" in dtypes else 1e-6)


REDUCTIONS = {
    "dot": lambda x, y: cp.sum(x * y),
    "along an axis": lambda x, y: cp.sum(x * y, axis=1),
    "norm": lambda x, y: cp.sqrt(cp.sum((x - y) ** 2, axis=0)) / 2,
    "keepdims": lambda x, y: (x + y).max(axis=1, keepdims=True),
    "min": lambda x, y: cp.amin(x * y),
    "prod": lambda x, y: cp.prod(x, axis=0) * 2 + 1,
    "any": lambda x, y: cp.any(x > y + 3, axis=0),
    "all": lambda x, y: (x < 100).all(),
    "two results": lambda x, y: (lambda s: (s, -s))(cp.sum(x * y, axis=0)),
    "dtype": lambda x, y: cp.sum(x, dtype="f8"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_reductions_at_the_end(name: str, dtype: str, machine: Machine) -> None:
    function = REDUCTIONS[name]
    rng = np.random.default_rng(6)
    x, y = cp.asarray(rng.integers(-5, 5, (7, 33)).astype(dtype)), cp.arange(33).astype(dtype)
    plain = function(x, y)
    launches = machine.kernel_launches
    fused = cp.fuse(function)(x, y)
    assert machine.kernel_launches == launches + 1
    for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (plain, fused)), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(b.get(), a.get(), rtol=1e-5)


def test_nan_wins_in_extremes() -> None:
    x = cp.asarray(np.array([[1, np.nan, 3], [4, 5, 6]]))
    np.testing.assert_array_equal(cp.fuse(lambda a: a.max(axis=1))(x).get(), [np.nan, 6])
    np.testing.assert_array_equal(cp.fuse(lambda a: a.min(axis=0))(x).get(), [1, np.nan, 3])


def test_one_launch_instead_of_many(machine: Machine) -> None:
    x = cp.arange(100_000, dtype="f4")

    def work(a: Any) -> Any:
        return cp.sqrt(a * a + 2 * a + 1) - 1

    launches = machine.kernel_launches
    work(x)
    assert machine.kernel_launches == launches + 6
    cp.fuse(kernel_name="all_at_once")(work)(x)
    assert machine.kernel_launches == launches + 7
    assert machine.devices[0].timeline.activities[-1].name == "all_at_once"


def test_in_place_operators_write_to_the_argument() -> None:
    def step(x: Any, v: Any, dt: Any) -> None:
        v -= 9.81 * dt
        x += v * dt

    host = [np.zeros(5), np.ones(5)]
    device = [cp.asarray(a) for a in host]
    assert cp.fuse(step)(*device, 0.1) is None
    step(*host, 0.1)
    for a, b in zip(device, host, strict=True):
        np.testing.assert_allclose(a.get(), b)
    with pytest.raises(TypeError, match="casting rule 'same_kind'"):
        cp.fuse(step)(cp.zeros(3, "i4"), cp.zeros(3), 0.1)


def test_a_returned_argument_is_the_array() -> None:
    x = cp.arange(3.0)
    same, more = cp.fuse(lambda a: (a, a + 1))(x)
    assert same is x
    np.testing.assert_array_equal(more.get(), [1, 2, 3])


def test_numbers_do_not_compile_anew() -> None:
    @cp.fuse
    def scaled(a: Any, by: Any) -> Any:
        return a * by

    x = cp.arange(3.0)
    for by in (2.0, 3.0, 4.5):
        np.testing.assert_array_equal(scaled(x, by).get(), np.arange(3) * by)
    assert len(scaled._kernels) == 1
    assert scaled(x.astype("f4"), 2).dtype == np.float32
    assert len(scaled._kernels) == 2


def test_it_is_the_function_itself_for_host_data() -> None:
    @cp.fuse
    def twice(a: Any) -> Any:
        """Twice."""
        return a + a

    assert isinstance(twice(np.arange(3)), np.ndarray)
    assert twice(3) == 6
    assert inspect.getdoc(twice) == "Twice."
    assert twice.__name__ == "twice"
    quadruple = cp.fuse(lambda a: twice(twice(a)))
    np.testing.assert_array_equal(quadruple(cp.arange(3)).get(), [0, 4, 8])


def test_arrays_from_outside_the_function() -> None:
    weights = cp.arange(3.0)
    np.testing.assert_array_equal(cp.fuse(lambda a: a * weights)(cp.ones((2, 3))).get(), [[0, 1, 2]] * 2)


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda a: a if a > 0 else -a, TypeError, r"cp\.where"),
        (lambda a: a - a.sum(), NotSupportedError, "end with the reduction"),
        (lambda a: a.sum().sum(), NotSupportedError, "second reduction"),
        (lambda a: cp.sort(a), NotSupportedError, r"cp\.sort"),
        (lambda a: cp.mean(a), NotSupportedError, r"cp\.mean"),
        (lambda a: a[0], NotSupportedError, "indexing"),
        (lambda a: a @ a, NotSupportedError, "matrix product"),
        (lambda a: np.frexp(a)[0], NotSupportedError, "several results"),
        (lambda a: (a + 1, a.sum()), NotSupportedError, "return it alone"),
        (lambda a: np.add.reduce(a), NotSupportedError, r"np\.add\.reduce"),
        (lambda a: a * [1, 2, 3], NotSupportedError, "a list"),
    ],
)
def test_what_one_kernel_cannot_do(function: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        cp.fuse(function)(cp.arange(3.0))
