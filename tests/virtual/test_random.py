"""Random arrays: reproducible, of the right type, shape and distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")


def test_same_seed_same_numbers() -> None:
    def draw() -> list[Any]:
        cp.random.seed(7)
        return [cp.random.rand(5).get(), cp.random.randn(3).get(), cp.random.randint(0, 99, 4).get()]

    for first, second in zip(draw(), draw(), strict=True):
        np.testing.assert_array_equal(first, second)
    cp.random.seed(8)
    assert not np.array_equal(cp.random.rand(5).get(), draw()[0])


def test_generators_are_independent_of_the_global_state() -> None:
    cp.random.seed(1)
    expected = cp.random.rand(3).get()
    cp.random.seed(1)
    one = cp.random.default_rng(4)
    two = cp.random.default_rng(4)
    np.testing.assert_array_equal(one.random(6).get(), two.random(6).get())
    np.testing.assert_array_equal(cp.random.rand(3).get(), expected)


def test_each_device_has_its_own_state(two_gpus: Machine) -> None:
    cp.random.seed(3)
    first = cp.random.rand(4).get()
    with cp.cuda.Device(1):
        cp.random.seed(3)
        assert cp.random.rand(4).device.id == 1
    cp.random.seed(3)
    np.testing.assert_array_equal(cp.random.rand(4).get(), first)


@pytest.mark.parametrize(
    ("call", "shape", "dtype"),
    [
        (lambda: cp.random.rand(2, dtype=cp.float32), (2,), "f4"),
        (lambda: cp.random.random((2, 2), dtype="f4"), (2, 2), "f4"),
        (lambda: cp.random.random(), (), "f8"),
        (lambda: cp.random.uniform(2, 3, 10), (10,), "f8"),
        (lambda: cp.random.normal(1, 2, (3, 1), dtype=cp.float32), (3, 1), "f4"),
        (lambda: cp.random.standard_normal(5), (5,), "f8"),
        (lambda: cp.random.randint(0, 2, (2, 2), dtype=cp.int32), (2, 2), "i4"),
        (lambda: cp.random.default_rng(0).uniform(0, 1, 3), (3,), "f8"),
        (lambda: cp.random.Generator(cp.random.Philox4x3210(3)).random(2), (2,), "f8"),
        (lambda: cp.random.RandomState(3).randint(4, 9, 2), (2,), "i8"),
        (lambda: cp.random.exponential(2.0, 4), (4,), "f8"),
        (lambda: cp.random.poisson(2.0, 4), (4,), "i8"),
    ],
)
def test_shapes_and_dtypes(call: Any, shape: tuple[int, ...], dtype: str) -> None:
    result = call()
    assert isinstance(result, cp.ndarray)
    assert (result.shape, result.dtype) == (shape, np.dtype(dtype))


@pytest.mark.parametrize(
    ("draw", "mean", "std"),
    [
        (lambda n: cp.random.rand(n), 0.5, 12**-0.5),
        (lambda n: cp.random.uniform(-2, 4, n), 1.0, 6 * 12**-0.5),
        (lambda n: cp.random.normal(3, 2, n), 3.0, 2.0),
        (lambda n: cp.random.randint(0, 10, n), 4.5, (99 / 12) ** 0.5),
        (lambda n: cp.random.exponential(2, n), 2.0, 2.0),
        (lambda n: cp.random.binomial(10, 0.3, n), 3.0, 2.1**0.5),
        (lambda n: cp.random.normal(cp.zeros(n), cp.ones(n)), 0.0, 1.0),
        (lambda n: cp.log(cp.random.lognormal(1, 0.5, n)), 1.0, 0.5),
        (lambda n: cp.random.laplace(1, 2, n), 1.0, 8**0.5),
        (lambda n: cp.random.gamma(4, 0.5, n), 2.0, 1.0),
        (lambda n: cp.random.beta(2, 2, n), 0.5, 0.05**0.5),
        (lambda n: cp.random.geometric(0.25, n), 4.0, 12**0.5),
    ],
)
def test_moments(draw: Any, mean: float, std: float) -> None:
    cp.random.seed(11)
    count = 200_000
    sample = draw(count).get()
    assert sample.mean() == pytest.approx(mean, abs=5 * std / count**0.5)
    assert sample.std() == pytest.approx(std, rel=0.02)


def test_shuffle_and_permutation_keep_the_elements() -> None:
    a = cp.arange(50)
    cp.random.shuffle(a)
    assert not np.array_equal(a.get(), np.arange(50))
    np.testing.assert_array_equal(np.sort(a.get()), np.arange(50))
    np.testing.assert_array_equal(cp.sort(cp.random.permutation(a)).get(), np.arange(50))
    assert cp.unique(cp.random.choice(50, 50, replace=False)).size == 50


def test_half_precision_random_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="float32 and float64"):
        cp.random.rand(3, dtype=cp.float16)
