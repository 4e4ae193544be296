"""Random kernels that the exercises of notebook 17 use to check answers."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from gpulab_course.content.n17_interview import exercises
from gpulab_course.content.n17_interview.cards.laboratory import use_device
from virtualgpu.compile import nvrtc


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("device", ["RTX 4090", "A100", "H100"])
def test_every_cause_occurs_among_the_drawn_kernels(device: str) -> None:
    with use_device(device) as cp:
        results = [
            exercises.count_launch(launch)
            for launch in exercises.draw_flawed_launches(cp, random.Random(device))
        ]
    causes = Counter(cause for _, cause in results)
    assert causes == Counter({**dict.fromkeys(exercises.CAUSES, 1), "grid": 2, "nothing": 2})
    # The flaws are small: thresholds of eight ways, 16 sectors or a third of the lanes do not detect them.
    slight = {cause: counters for counters, cause in results}
    assert slight["bank conflicts"]["wavefronts_per_shared"] < 4
    assert slight["uncoalesced"]["sectors_per_load"] == 12
    assert slight["divergence"]["active_lanes"] > 0.4


def test_drawn_kernels_are_on_both_sides_of_the_roofline_ridge() -> None:
    knee = 13.0
    card = {"gb_per_s": 1000.0, "tflops": knee}
    works = exercises._draw_kernel_works(np.random.default_rng(0), knee)
    results = [exercises.estimate_kernel_work(work, card) for work in works]
    ratios = [result["memory_us"] / result["compute_us"] for result in results if result["operations"]]
    assert sum(0.9 < ratio < 1 for ratio in ratios) == 1
    assert sum(1 < ratio < 1.2 for ratio in ratios) == 1
