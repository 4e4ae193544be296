"""Random generators: published bits, states, seeds and distributions."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu.cp._random import states
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")

KINDS = ("Philox4x3210", "XORWOW", "MRG32k3a")


def bits_of(kind: str, seed: Any = 42, size: int = 1024) -> Any:
    return getattr(cp.random, kind)(seed, size=size)


def generator(kind: str = "Philox4x3210", seed: Any = 42, size: int = 1024) -> Any:
    return cp.random.Generator(bits_of(kind, seed, size))


def test_philox_produces_the_published_words() -> None:
    """Random123's known answers for counters and keys of zeros."""
    assert states.make_philox_states(0, 1)["output"][0].tolist() == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_thread_states_are_distinct_and_independent_of_their_count(kind: str) -> None:
    first = {
        "XORWOW": states.make_xorwow_states,
        "MRG32k3a": states.make_mrg_states,
        "Philox4x3210": states.make_philox_states,
    }[kind]
    seeds = 5, 99, 2**32 - 1
    short_rows = [first(seed, 3) for seed in seeds]
    long_rows = [first(seed, 1025) for seed in seeds]
    for short, long in zip(short_rows, long_rows, strict=True):
        assert (short == long[:3]).all()
        assert len({row.tobytes() for row in long}) == 1025


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_moments_of_their_distribution(kind: str) -> None:
    rng = generator(kind, size=8192)
    n = 200_000
    for numbers, mean, std in (
        (rng.poisson(3.0, n), 3, 3**0.5),
        (rng.gamma(4, 0.5, n), 2, 1),
        (rng.beta(2, 2, n), 0.5, 0.05**0.5),
        (rng.binomial(10, 0.3, n), 3, 2.1**0.5),
    ):
        host = numbers.get().astype(float)
        assert host.mean() == pytest.approx(mean, abs=5 * std / n**0.5)
        assert host.std() == pytest.approx(std, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_state_repeats_the_same_draws(kind: str) -> None:
    def draw(rng: Any) -> list[Any]:
        arrays = rng.random(3000), rng.standard_normal(5, dtype="f4"), rng.poisson(3.0, 50), rng.integers(9)
        return [x.get().tolist() for x in arrays]

    rng = generator(kind)
    other = generator(kind, seed=1)
    rng.standard_normal(3)
    rng.random()
    state = rng.bit_generator._state.get()
    expected = draw(rng)
    assert draw(rng) != expected
    other.bit_generator._state.set(state)
    assert draw(other) == expected
    rng.bit_generator._state[...] = cp.asarray(state)
    assert draw(rng) == expected


def test_a_generator_is_refused_on_another_device(two_gpus: Machine) -> None:
    rng = generator()
    with cp.cuda.Device(1), pytest.raises(RuntimeError, match="different device: it is on device 0"):
        rng.random(3)
    assert rng.random(3).device.id == 0


def test_bit_generators_accept_the_seeds_of_numpy() -> None:
    for seed in (5, [1, 2, 3], 2**200, np.random.SeedSequence(5), cp.array([1, 2])):
        assert bits_of("Philox4x3210", seed).random_raw(9).get().tolist()
    assert (
        bits_of("XORWOW", 5).random_raw(9) == bits_of("XORWOW", np.random.SeedSequence(5)).random_raw(9)
    ).all()
    with pytest.raises(ValueError, match="non-negative"):
        bits_of("Philox4x3210", -1)
    with pytest.raises(TypeError, match="SeedSequence expects"):
        bits_of("Philox4x3210", 1.5)
    for size in (0, 100, 1000):
        with pytest.raises(ValueError, match="multiple of 256"):
            bits_of("Philox4x3210", 1, size)


@pytest.mark.parametrize("seed", ["a", 1.5, float("nan"), [1, 2]])
def test_random_seed_refuses_values_that_are_not_integers(seed: Any) -> None:
    with pytest.raises(TypeError, match="Seed must be an integer"):
        cp.random.seed(seed)


def test_random_seed_accepts_64_bit_seeds() -> None:
    for seed in (0, 2**64 - 1, True, np.int64(3), np.arange(4)):
        cp.random.seed(seed)
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match=r"between 0 and 2\*\*64 - 1"):
            cp.random.seed(seed)


def test_states_that_cannot_be_pickled_name_an_alternative() -> None:
    state = cp.random.get_random_state()
    assert "draws other numbers" in repr(state)
    for broken in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="use a Generator"):
            broken(state)
        with pytest.raises(TypeError, match="_state"):
            broken(generator())
    with pytest.raises(AttributeError, match="no get_state"):
        state.get_state()


def test_states_of_devices_can_be_set_and_forgotten() -> None:
    state = cp.random.RandomState(3)
    expected = cp.random.RandomState(3).rand(4).get()
    cp.random.set_random_state(state)
    np.testing.assert_array_equal(cp.random.rand(4).get(), expected)
    cp.random.reset_states()
    assert cp.random.get_random_state() is not state
    with pytest.raises(TypeError, match="instance of RandomState"):
        cp.random.set_random_state(3)  # type: ignore[arg-type]


def test_integer_bounds_outside_the_dtype_are_refused() -> None:
    rng = generator()
    assert rng.integers(2**63, 2**64 - 1, 4, np.uint64).get().min() >= 2**63
    assert rng.integers(5, 5, 3, endpoint=True).get().tolist() == [5, 5, 5]
    for arguments, words in (
        ((5, 5), "low >= high"),
        ((0, 300, 1, np.uint8), "high is out of bounds for uint8"),
        ((-1, 5, 1, np.uint8), "low is out of bounds for uint8"),
    ):
        with pytest.raises(ValueError, match=words):
            rng.integers(*arguments)


def test_an_output_array_has_to_fit() -> None:
    rng = generator()
    other = generator()
    out = cp.empty(700)
    assert rng.random(out=out) is out
    np.testing.assert_array_equal(out.get(), other.random(700).get())
    assert rng.standard_normal(out=out) is out
    np.testing.assert_array_equal(out.get(), other.standard_normal(700).get())
    with pytest.raises(TypeError, match="Expected float64, got float32"):
        rng.random(out=cp.empty(5, "f4"))
    with pytest.raises(ValueError, match=r"must match out\.shape"):
        rng.random(5, out=cp.empty(6))
    with pytest.raises(ValueError, match="not contiguous"):
        rng.standard_normal(5, out=cp.empty(10)[::2])
    with pytest.raises(TypeError, match="Unsupported dtype float16"):
        rng.standard_normal(5, dtype="f2")


def test_methods_missing_in_cupys_generator_have_a_remedy() -> None:
    with pytest.raises(AttributeError, match=r"loc \+ scale \* rng\.standard_normal"):
        generator().normal(3, 2)
    with pytest.raises(TypeError, match="Philox4x3210"):
        cp.random.Generator(np.random.Philox(1))
    assert repr(generator()) == "Generator(Philox4x3210(device 0, 1,024 threads' states))"
