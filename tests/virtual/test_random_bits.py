"""cuRAND's generators: bits as published, arrays drawn by a thread for each state, states that return."""

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


def test_philox_gives_the_published_words() -> None:
    """Random123's known answers for counters and keys of zeros."""
    assert states.philox(0, 1)["output"][0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def philox_4x32(counter: int, key: int) -> list[int]:
    """Philox in Python's whole numbers, as the paper has it."""
    c = [counter >> 32 * i & 0xFFFFFFFF for i in range(4)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        one = c[0] * 0xD2511F53
        two = c[2] * 0xCD9E8D57
        c = [two >> 32 ^ c[1] ^ k[0], two & 0xFFFFFFFF, one >> 32 ^ c[3] ^ k[1], one & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_element_e_comes_from_state_e_modulo_size() -> None:
    threads = 256
    rounds = 11
    bits = bits_of("Philox4x3210", 7, threads)
    words = bits.random_raw(threads * rounds).get().view(np.uint32).reshape(rounds, threads)
    for thread in (0, 1, 200, 255):
        wanted = [word for n in range(3) for word in philox_4x32((thread << 64) + n, bits._seed)]
        assert words[:, thread].tolist() == wanted[:rounds]


@pytest.mark.parametrize("kind", KINDS)
def test_every_thread_has_a_state_of_its_own_however_many_there_are(kind: str) -> None:
    first = {"XORWOW": states.xorwow, "MRG32k3a": states.mrg32k3a, "Philox4x3210": states.philox}[kind]
    seeds = 5, 99, 2**32 - 1
    few = [first(seed, 3) for seed in seeds]
    many = [first(seed, 1025) for seed in seeds]
    for short, long in zip(few, many, strict=True):
        assert (short == long[:3]).all()
        assert len({row.tobytes() for row in long}) == 1025


def test_xorwow_begins_as_marsaglia_wrote_it() -> None:
    bits = bits_of("XORWOW", 3, 256)
    row = states.xorwow(bits._seed, 1)[0]
    v = [int(x) for x in row["v"]]
    d = int(row["d"])
    wanted = []
    for _ in range(6):
        t = v[0] ^ v[0] >> 2
        v = [*v[1:], (v[4] ^ v[4] << 4 ^ t ^ t << 1) & 0xFFFFFFFF]
        d = (d + 362437) & 0xFFFFFFFF
        wanted.append((v[4] + d) & 0xFFFFFFFF)
    assert bits.random_raw(256 * 6).get().view(np.uint32)[::256].tolist() == wanted


def test_mrg32k3a_gives_lecuyers_numbers() -> None:
    """The published generator from seeds of 12345, by Python's whole numbers."""
    row = states.mrg32k3a(0, 1)[0]
    assert {*row["s1"].tolist(), *row["s2"].tolist()} == {12345}
    bits = bits_of("MRG32k3a", 3, 256)
    row = states.mrg32k3a(bits._seed, 1)[0]
    s1 = [int(x) for x in row["s1"]]
    s2 = [int(x) for x in row["s2"]]
    m1 = 4294967087
    m2 = 4294944443
    wanted = []
    for _ in range(6):
        s1 = [*s1[1:], (1403580 * s1[1] - 810728 * s1[0]) % m1]
        s2 = [*s2[1:], (527612 * s2[2] - 1370589 * s2[0]) % m2]
        wanted.append(((s1[2] - s2[2]) % m1 or m1) * 2.3283065498378288e-10)
    assert cp.random.Generator(bits).random(256 * 6).get()[::256].tolist() == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_what_their_distribution_says(kind: str) -> None:
    rng = generator(kind, size=8192)
    n = 200_000
    for drawn, mean, std in (
        (rng.random(n), 0.5, 12**-0.5),
        (rng.random(n, dtype="f4"), 0.5, 12**-0.5),
        (rng.standard_normal(n), 0, 1),
        (rng.standard_normal(n, dtype="f4"), 0, 1),
        (rng.integers(-5, 5, n), -0.5, (99 / 12) ** 0.5),
        (rng.integers(0, 2**40, n), 2**39, 2**40 * 12**-0.5),
        (rng.exponential(2.0, n), 2, 2),
        (rng.uniform(-2, 4, n), 1, 6 * 12**-0.5),
        (rng.poisson(3.0, n), 3, 3**0.5),
        (rng.gamma(4, 0.5, n), 2, 1),
        (rng.beta(2, 2, n), 0.5, 0.05**0.5),
        (rng.binomial(10, 0.3, n), 3, 2.1**0.5),
    ):
        host = drawn.get().astype(float)
        assert host.mean() == pytest.approx(mean, abs=5 * std / n**0.5)
        assert host.std() == pytest.approx(std, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_state_goes_on_from_there(kind: str) -> None:
    def draw(rng: Any) -> list[Any]:
        drawn = rng.random(3000), rng.standard_normal(5, dtype="f4"), rng.poisson(3.0, 50), rng.integers(9)
        return [x.get().tolist() for x in drawn]

    rng = generator(kind)
    other = generator(kind, seed=1)
    rng.standard_normal(3)
    rng.random()
    kept = rng.bit_generator._state.get()
    wanted = draw(rng)
    assert draw(rng) != wanted
    other.bit_generator._state.set(kept)
    assert draw(other) == wanted
    rng.bit_generator._state[...] = cp.asarray(kept)
    assert draw(rng) == wanted


def test_a_state_stays_on_its_device(two_gpus: Machine) -> None:
    rng = generator()
    with cp.cuda.Device(1), pytest.raises(RuntimeError, match="different device: it lies on device 0"):
        rng.random(3)
    assert rng.random(3).device.id == 0


def test_seeds_are_numpys_entropy() -> None:
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
        with pytest.raises(ValueError, match="a multiple of 256"):
            bits_of("Philox4x3210", 1, size)


@pytest.mark.parametrize("seed", ["a", 1.5, float("nan"), [1, 2]])
def test_the_classic_state_takes_whole_numbers_alone(seed: Any) -> None:
    with pytest.raises(TypeError, match="Seed must be an integer"):
        cp.random.seed(seed)


def test_the_classic_state_takes_seeds_of_64_bits() -> None:
    for seed in (0, 2**64 - 1, True, np.int64(3), np.arange(4)):
        cp.random.seed(seed)
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match=r"between 0 and 2\*\*64 - 1"):
            cp.random.seed(seed)


def test_what_cannot_be_saved_says_what_can() -> None:
    state = cp.random.get_random_state()
    assert "others on a real GPU" in repr(state)
    for broken in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="seed it at the point to return to"):
            broken(state)
        with pytest.raises(TypeError, match="_state"):
            broken(generator())
    with pytest.raises(AttributeError, match="no get_state"):
        state.get_state()


def test_states_of_devices_can_be_set_and_forgotten() -> None:
    mine = cp.random.RandomState(3)
    wanted = cp.random.RandomState(3).rand(4).get()
    cp.random.set_random_state(mine)
    np.testing.assert_array_equal(cp.random.rand(4).get(), wanted)
    cp.random.reset_states()
    assert cp.random.get_random_state() is not mine
    with pytest.raises(TypeError, match="instance of RandomState"):
        cp.random.set_random_state(3)  # type: ignore[arg-type]


def test_integers_are_refused_where_a_dtype_cannot_hold_them() -> None:
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


def test_a_generator_names_what_cupys_lacks() -> None:
    with pytest.raises(AttributeError, match=r"loc \+ scale \* rng\.standard_normal"):
        generator().normal(3, 2)
    with pytest.raises(TypeError, match="Philox4x3210"):
        cp.random.Generator(np.random.Philox(1))
    assert repr(generator()) == "Generator(Philox4x3210(device 0, 1,024 threads' states))"
