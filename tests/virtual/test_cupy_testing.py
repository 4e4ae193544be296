"""``cp.testing``: its arrays are as described, and its comparisons can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.cp import testing

pytestmark = pytest.mark.usefixtures("machine")


@testing.for_all_dtypes()
@pytest.mark.parametrize("xp", [np, cp])
def test_arrays_of_every_dtype(xp: Any, dtype: Any) -> None:
    ascending = testing.shaped_arange((2, 3), xp, dtype)
    descending = testing.shaped_reverse_arange((2, 3), xp, dtype)
    assert ascending.dtype == descending.dtype == testing.shaped_random((2, 3), xp, dtype).dtype == dtype
    assert isinstance(ascending, xp.ndarray)
    if np.dtype(dtype).kind == "b":
        expected = np.array([[False, True, False], [True, False, True]])
    elif np.dtype(dtype).kind == "c":
        expected = (1 + 1j) * np.arange(1, 7).reshape(2, 3)
    else:
        expected = np.arange(1, 7).reshape(2, 3)
    assert (cp.asnumpy(ascending) == expected).all()
    assert (cp.asnumpy(descending).ravel() == expected.ravel()[::-1]).all()


def test_shaped_random_is_equal_on_host_and_device() -> None:
    host, device = (testing.shaped_random((1000,), xp, np.float64, scale=4, seed=3) for xp in (np, cp))
    assert (device.get() == host).all()
    assert 0 <= host.min() < 0.1
    assert 3.9 < host.max() < 4
    assert (testing.shaped_random((1000,), np, np.float64, scale=4, seed=4) != host).any()
    assert testing.shaped_linspace(-2, 2, (5,), np, np.uint8).tolist() == [0, 0, 1, 1, 2]


def test_generate_matrix_has_the_given_singular_values() -> None:
    a = testing.generate_matrix((4, 3), dtype=np.complex128, singular_values=[3.0, 2.0, 0.5])
    np.testing.assert_allclose(np.linalg.svd(a.get(), compute_uv=False), [3, 2, 0.5])
    with pytest.raises(ValueError, match="must not be negative"):
        testing.generate_matrix((2, 2), singular_values=[1, -1])


def equal(xp: Any) -> Any:
    return xp.arange(4, dtype=np.float32) * 2


COMPARING: dict[str, Callable[..., Any]] = {
    "allclose": testing.numpy_cupy_allclose(),
    "allclose_by_dtype": testing.numpy_cupy_allclose(rtol={np.float32: 1e-6, "default": 0}),
    "equal": testing.numpy_cupy_array_equal(strides_check=True),
    "almost_equal": testing.numpy_cupy_array_almost_equal(),
    "nulp": testing.numpy_cupy_array_almost_equal_nulp(),
    "ulp": testing.numpy_cupy_array_max_ulp(),
    "list": testing.numpy_cupy_array_list_equal(),
}


@pytest.mark.parametrize("name", COMPARING)
def test_comparison_decorators_pass_and_fail(name: str) -> None:
    def off(xp: Any) -> Any:
        return [equal(xp) + np.float32(xp is cp)]

    COMPARING[name](equal)()
    with pytest.raises(AssertionError):
        COMPARING[name](off)()


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (lambda xp: xp.zeros(2, np.float32 if xp is cp else np.float64), "dtypes differ"),
        (lambda xp: xp.zeros(2 if xp is cp else (2, 1)), "shapes differ"),
        (lambda xp: xp.zeros((2, 3)).T if xp is cp else np.zeros((3, 2)), "c_contiguous"),
        (lambda xp: xp.zeros(2) if xp is cp else np.zeros((2,))[5], "Only NumPy raised"),
        (lambda xp: np.zeros(2) if xp is np else xp.zeros((2,))[5], "Only cp raised"),
        (lambda xp: xp.zeros(2)[5], "cp raised IndexError"),
    ],
)
def test_a_failed_comparison_names_the_difference(test: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        testing.numpy_cupy_allclose()(test)()


def test_errors_of_numpy_and_cupy_are_compared() -> None:
    def index(xp: Any) -> Any:
        return xp.zeros(2)[5]

    def either(xp: Any) -> Any:
        raise IndexError if xp is cp else KeyError

    testing.numpy_cupy_raises()(index)()
    testing.numpy_cupy_allclose(accept_error=IndexError)(index)()
    with pytest.raises(AssertionError, match="cp raised IndexError"):
        testing.numpy_cupy_raises()(either)()
    with pytest.raises(AssertionError, match="Neither"):
        testing.numpy_cupy_raises()(equal)()
    with pytest.raises(AssertionError, match="results differ"):
        testing.numpy_cupy_equal()(lambda xp: xp is cp)()


def test_dtype_combinations_cover_each_parameter() -> None:
    pairs: list[tuple[Any, Any]] = []
    testing.for_all_dtypes_combination(("one", "other"))(lambda one, other: pairs.append((one, other)))()
    kinds = {np.dtype(code).type for code in "?bhilqBHILQefdFD"}
    assert {one for one, _ in pairs} == {other for _, other in pairs} == kinds
    assert any(one != other for one, other in pairs)
    assert len(pairs) < len(kinds) ** 2
    full: list[Any] = []
    testing.for_signed_dtypes_combination(("a", "b", "c"), full=True)(lambda a, b, c: full.append(a))()
    assert len(full) == 5**3


def test_a_failure_names_its_parameters() -> None:
    def fails(dtype: Any, order: Any) -> None:
        assert (dtype, order) != (np.float16, "F")

    with pytest.raises(AssertionError) as caught:
        testing.for_float_dtypes()(testing.for_orders("CF")(fails))()
    assert caught.value.__notes__ == ["order is 'F'", "dtype is float16"]


def test_fix_random_is_reproducible_and_restores_the_state() -> None:
    def numbers() -> list[float]:
        return [float(np.random.rand()), float(cp.random.rand()), testing.generate_seed()]

    np.random.seed(5)
    fixed = testing.fix_random()(numbers)
    expected = np.random.RandomState(5).rand()
    assert fixed() == fixed() != numbers()
    np.random.seed(5)
    fixed()
    assert np.random.rand() == expected


TESTS = """
import numpy, pytest, unittest, cupy
from cupy import testing

seeds = set()

@testing.parameterize({"by": lambda x: 2 * x, "n": 3}, {"by": abs, "n": 4})
@testing.fix_random()
class TestCase(unittest.TestCase):
    @testing.numpy_cupy_array_equal()
    def test_by(self, xp):
        return self.by(testing.shaped_arange((self.n,), xp))

@testing.parameterize(*testing.product({"n": [1, 3], "axis": [0, 1]}))
@testing.fix_random()
class TestSums:
    @testing.for_float_dtypes()
    @testing.numpy_cupy_allclose(rtol={numpy.float16: 1e-2, "default": 1e-5})
    def test_sum(self, xp, dtype):
        return testing.shaped_random((self.n, 4), xp, dtype).sum(self.axis)

    def test_seed(self):
        seeds.add(testing.generate_seed())
        assert len(seeds) == 1

    @testing.multi_gpu(2)
    def test_elsewhere(self):
        assert False

    @testing.slow
    @testing.with_requires("numpy>=999")
    def test_later(self):
        assert False

    @testing.numpy_cupy_array_equal()
    def test_wrong(self, xp):
        return xp.full(self.n, xp is cupy)
"""


def test_a_file_of_tests_runs_by_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_sums.py").write_text(TESTS)
    command = (
        "-p virtualgpu.pytest_plugin --virtual-gpu -q -p no:cacheprovider -W error::pytest.PytestWarning"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *command.split(), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=300,
        check=False,
    )
    assert "4 failed, 10 passed, 8 skipped" in run.stdout, run.stdout + run.stderr
    assert "test_wrong[axis=0, n=3]" in run.stdout
