"""Generators of this GPU and of the virtual one: the same numbers, from states that lie alike in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as virtual

pytestmark = pytest.mark.gpu
SIZES = 1, 5, 1000, 4095, 4096, 4097, 100_000


@pytest.mark.parametrize("kind", ["Philox4x3210", "XORWOW", "MRG32k3a"])
@pytest.mark.parametrize("seed", [0, 7, 2**40 + 1, [3, 4]])
def test_random_numbers_and_states_equal_the_virtual_gpus(cp: Any, kind: str, seed: Any) -> None:
    here, there = (xp.random.Generator(getattr(xp.random, kind)(seed, size=4096)) for xp in (cp, virtual))
    for n in SIZES:
        for draw in (
            lambda g, n=n: g.random(n),
            lambda g, n=n: g.random(n, dtype=np.float32),
            lambda g, n=n: g.integers(-7, 1000, n),
            lambda g, n=n: g.integers(0, 2**45, n),
            lambda g, n=n: g.integers(0, 200, n, dtype=np.uint8),
            lambda g, n=n: g.uniform(2, 3, n),
        ):
            np.testing.assert_array_equal(draw(here).get(), draw(there).get())
        np.testing.assert_allclose(
            here.standard_normal(n).get(), there.standard_normal(n).get(), rtol=1e-14, atol=1e-15
        )
        one, other = (g.standard_normal(n, dtype=np.float32).get() for g in (here, there))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert here.bit_generator._state.size == there.bit_generator._state.size


@pytest.mark.parametrize("kind", ["Philox4x3210", "XORWOW", "MRG32k3a"])
def test_generator_states_are_interchangeable(cp: Any, kind: str) -> None:
    """The virtual GPU can continue a sequence that this GPU started, and vice versa."""
    here, there = (
        xp.random.Generator(getattr(xp.random, kind)(s, size=4096)) for xp, s in ((cp, 1), (virtual, 2))
    )
    here.random(10_000)
    there.bit_generator._state.set(here.bit_generator._state.get())
    np.testing.assert_array_equal(here.random(9000).get(), there.random(9000).get())
    here.bit_generator._state.set(there.bit_generator._state.get())
    np.testing.assert_array_equal(here.integers(99, size=9000).get(), there.integers(99, size=9000).get())
