"""Generated kernels on the virtual GPU give, bit for bit, what an H200 gave.

The H200's answers are digests, recorded by ``tests.fuzz.record``; the kernels are made again from
their seeds.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import generator, virtual_run
from tests.fuzz.record import source_digest
from tools import sample
from virtualgpu.compile import nvrtc
from virtualgpu.engine.machine import processor

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")

TARGET = 90
QUICK_PACKS = 6
# A slow run takes a sample of the other packs; GPULAB_FUZZ=all takes them all (some ten minutes).
SAMPLE = 1 if os.environ.get("GPULAB_FUZZ") == "all" else 20
# A sample has one pack in so many.
ONE_IN = 33

# Kernels whose threads recurse apart from each other and then meet at a barrier. On the H200 (code of
# NVRTC 13.0) the barrier lets some of them through too early: 989 gave two answers in two runs, and 363,
# the sum of a tree, what the first element held four steps before the end. Ours is what plain Python gives.
BARRIER_AFTER_RECURSION = {363, 391, 663, 989, 1476}


@lru_cache
def recording() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "h200.json"
    return json.loads(path.read_text(encoding="utf-8"))


def firsts() -> list[int]:
    return sorted(int(first) for first in recording()["digests"])


def packs() -> list[int]:
    """The first packs and a sample of the others, and for other processors a fifth as many, which nobody else
    takes; in a sample a few, others for each processor."""
    all_packs = firsts()
    chosen = os.environ.get(processor.CPU_VARIABLE, "native")
    if SAMPLE == 1:
        return all_packs
    levels = processor.list_feature_levels()
    if sample.is_on():
        one_in = ONE_IN if chosen == "native" else 2 * ONE_IN
        return sample.draw_sample(all_packs, one_in, lambda first: f"{chosen} {first}")
    native_packs = [*all_packs[:QUICK_PACKS], *all_packs[QUICK_PACKS::SAMPLE]]
    if chosen == "native":
        return native_packs
    others = sorted(set(all_packs) - set(native_packs))
    count = len(native_packs) // 5
    return others[levels.index(chosen) :: len(others) // count][:count]


def test_the_recording_is_large_and_repeatable() -> None:
    record = recording()
    assert record["pack"] == generator.PACK
    assert record["options"] == list(generator.OPTIONS)
    assert set(record["differed_between_runs"]) <= BARRIER_AFTER_RECURSION
    assert sum(len(text.split()) for text in record["digests"].values()) >= 1200


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.slow] if number >= QUICK_PACKS else [])
        for number, first in enumerate(packs())
    ],
)
def test_results_are_bit_identical_to_an_h200s(first: int) -> None:
    program, kernels = virtual_run.compiled(first, TARGET)
    assert source_digest(program.code) == recording()["sources"][str(first)], (
        "The generator has changed since the recording: run tests.fuzz.record on a GPU again."
    )
    digests = recording()["digests"][str(first)].split()
    differing = []
    for (seed, kernel), digest in zip(kernels.items(), digests, strict=True):
        result = generator.digest(virtual_run.run(program, kernel))
        if (result == digest) == (seed in BARRIER_AFTER_RECURSION):
            differing.append(seed)
    assert not differing


def test_excluded_kernels_have_a_barrier_after_recursion() -> None:
    """Kernels are left out of the comparison only if they have recursion and a barrier."""
    for seed in BARRIER_AFTER_RECURSION:
        source = generator.kernel(seed).source
        assert "_deep(" in source
        assert "__syncthreads" in source or "bar.sync" in source
    assert len(BARRIER_AFTER_RECURSION) <= 0.005 * generator.PACK * len(firsts())
