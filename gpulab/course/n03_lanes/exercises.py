"""Exercises of notebook 03."""

from __future__ import annotations

import numpy as np

from gpulab.teach.judge import (
    Advice,
    Budget,
    Case,
    Draw,
    KernelExercise,
    Mistake,
    advice,
    blocks_for,
    draw,
)
from virtualgpu.records import WARP_SIZE, Dim3


def warp_sum_case(data: Draw, n: int, block: Dim3) -> Case:
    """``out[w]`` is the sum of the 32 elements of warp w."""
    blocks = blocks_for(n, block[0])
    x = data.integers(n)
    padded = np.zeros(blocks * block[0], np.int32)
    padded[:n] = x
    return Case(blocks, {"x": x, "n": n}, {"out": padded.reshape(-1, WARP_SIZE).sum(axis=1, dtype=np.int32)})


def _full_warps_right(m: Mistake) -> bool:
    return m.found is not None and m["n"] % WARP_SIZE > 0 and not m.wrong[: m["n"] // WARP_SIZE].any()


WARP_SUM = KernelExercise(
    "03-warp-sum",
    "Sum of a warp",
    "warp_sum",
    "const int* x, int* out, int n",
    warp_sum_case,
    "warp_sum.cu",
    naive="warp_sum_shared.cu",
    blocks=draw.whole_warps,
    budgets=(
        Budget("atomics", "Sum with shuffles, from one register to the next.", most=0),
        Budget("shared_bytes", "Sum with shuffles, from one register to the next.", most=0),
        Budget("warp_instructions", "Five shuffles are enough for 32 lanes.", allowance=1.5),
    ),
    advice=(
        Advice(
            advice.out_of_bounds, "Lanes beyond n must not load: take 0 for them, and let lane 0 alone write."
        ),
        Advice(
            advice.either(advice.fault("lanes missing"), advice.hazard("lanes missing")),
            "With a full mask all 32 lanes must reach the shuffle: replace the early return by a value of "
            "0 for lanes beyond n.",
        ),
        Advice(
            advice.partly_unwritten, "Lane 0 of every warp writes, to the warp's number over the whole grid."
        ),
        Advice(
            advice.both(_full_warps_right, lambda m: m["n"] > WARP_SIZE),
            "Full warps are right, the ragged one is not. Lanes without an element must take part with the "
            "value 0, not stay away.",
        ),
        Advice(
            lambda m: m.found is not None and bool(m.wrong.all()),
            "The offsets are 16, 8, 4, 2, 1: five steps for 32 lanes.",
        ),
    ),
    praise="every warp's sum is right, and warps with a tail or without any element give theirs, too.",
)


def count_case(data: Draw, n: int, block: Dim3) -> Case:
    """``out[0]`` counts the elements above 0."""
    x = data.floats(n)
    x[data.rng.random(n) < 0.1] = 0
    wanted = np.array([(x > 0).sum()], np.int32)
    return Case(blocks_for(n, block[0]), {"x": x, "n": n, "out": np.zeros(1, np.int32)}, {"out": wanted})


COUNT = KernelExercise(
    "03-count",
    "Count by vote",
    "count_positive",
    "const float* x, int* out, int n",
    count_case,
    "count_positive.cu",
    naive="count_positive_each.cu",
    blocks=draw.whole_warps,
    budgets=(Budget("atomic_lanes", "Each lane adds for itself: vote with __ballot_sync first."),),
    advice=(
        Advice(advice.out_of_bounds, "Lanes beyond n must not load: ask i < n && x[i] > 0.0f in that order."),
        Advice(
            lambda m: m.found is not None and m.found[0] > int(m.wanted[0]),  # type: ignore[index]
            "Too many are counted. Every lane gets the whole ballot; only one may add its __popc, and 0 is "
            "not positive.",
        ),
        Advice(lambda m: m.found is not None, "Which lanes were left out?"),
    ),
    praise="right, with one atomic per warp instead of one per positive element.",
)


EXERCISES = (WARP_SUM, COUNT)
