"""Notebook 14: block orders, random number generators compared with published values, and pictures."""

from __future__ import annotations

import numpy as np

import gpulab as gl
from gpulab import session
from gpulab_course.content.n14_random import exercises, figures, generators
from virtualgpu.records import Provenance

ORDERED = r"""
extern "C" __global__ void first(const float* x, float* total, int n) {
    if (threadIdx.x == 0) atomicExch(total, (float)blockIdx.x);
}
extern "C" __global__ void all(const float* x, float* total, int n) {
    if (threadIdx.x == 0) atomicAdd(total, (float)blockIdx.x);
}
"""


def test_roulette_runs_have_different_block_orders() -> None:
    gl.use_device("virtual:A100")
    cp = session.cp()
    x = cp.zeros(8, "float32")
    last, every = (figures.totals(cp.RawKernel(ORDERED, name), x, 8, runs=40) for name in ("first", "all"))
    assert set(last) <= set(range(8))
    assert len(set(last)) > 4
    assert set(every) == {28.0}
    view = figures.Roulette({"last": last, "all": every}, Provenance("modelled", "virtual A100"))
    assert view.record["all"].total() == 40
    assert f"last: {len(set(last))} different results in 40 runs; all: 1 different result" in view.sentence()
    assert view.describe().count(": ") >= len(set(last)) + 1


def test_philox_words_equal_random123() -> None:
    """Compare with the published test vector for a zero counter and key. Each mistake changes the words."""
    right = generators.philox_words(0, 0, 1)
    assert [f"{word:08x}" for word in right[0]] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    key = 0x0123456789ABCDEF
    first = 2**32 - 1
    words = generators.philox_words(key, first, 2)
    for mistake in (
        {"rounds": 9},
        {"key_increments": (0, 0)},
        {"is_key_incremented_first": True},
        {"counter_bits": 32},
    ):
        assert (generators.philox_words(key, first, 2, **mistake) != words).any(), mistake


def test_tiles_are_summed_as_binary_trees() -> None:
    x = np.random.default_rng(1).standard_normal(600).astype(np.float32)
    sums = generators.sum_tiles_as_trees(x)
    np.testing.assert_allclose(sums, [x[:256].sum(), x[256:512].sum(), x[512:].sum()], rtol=1e-4, atol=1e-4)
    wide = np.array([1e8, *[0.0] * 127, 1.0, *[0.0] * 127], np.float32)
    wide[1], wide[129] = -1e8, 1.0
    assert generators.sum_tiles_as_trees(wide).tolist() == [0.0]  # 1e8 absorbs 1 in the first step


def test_determinism_switches_show_their_recorded_cost() -> None:
    text = figures.switches()
    assert "recorded on an NVIDIA H200" in text
    assert all(word in text for word in ("index_add_", "refused", "1 of 30", "30 of 30"))


def test_a_program_differs_until_all_causes_are_fixed() -> None:
    program = exercises.RandomizedProgram({"seed": 1.0}, seed=1)
    assert len({program(()) for _ in range(5)}) == 5
    assert len({program(["seed"]) for _ in range(5)}) == 1
