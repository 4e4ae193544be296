"""Exercises of notebook 03."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab.teach.exercise import Exercise, NotYet
from gpulab.teach.kernel_cases import KernelUnderTest, Out, compare

_WARP = 32


def judge_warp_sum(answer: Any) -> str:
    """``warp_sum(x, out, n)``: out[w] is the sum of the 32 elements of warp w."""
    kernel = KernelUnderTest(answer, "warp_sum")
    if "atomicAdd" in kernel.code:
        raise NotYet(
            "it uses atomicAdd; the exercise is to sum with __shfl_down_sync, one register to the next."
        )
    for n, threads in ((32, 32), (64, 64), (256, 128), (1, 32), (33, 64), (100, 128)):
        x = np.arange(1, n + 1, dtype=np.int32)
        blocks = -(-n // threads)
        warps = blocks * threads // _WARP
        padded = np.zeros(blocks * threads, np.int32)
        padded[:n] = x
        wanted = padded.reshape(warps, _WARP).sum(axis=1, dtype=np.int32)
        case = f"n = {n}, {blocks} block{'s' if blocks > 1 else ''} of {threads}"
        arguments = [x, Out(), np.int32(n)]
        start = np.full(warps, -1, np.int32)
        try:
            (found,) = kernel.run((blocks, 1, 1), (threads, 1, 1), arguments, [start], case=case)
        except NotYet as reason:
            raise NotYet(_explain_warp_sum(str(reason), n)) from reason
        _judge_sums(found, wanted, padded, n, case)
        if n % _WARP:
            # What a lane gets from one that has left is undefined, and may happen to be right.
            kernel.require_no_luck((blocks, 1, 1), (threads, 1, 1), arguments, [start], case=case)
    return "every warp's sum is right, and warps with a tail or without any element give theirs, too."


def _judge_sums(found: Any, wanted: Any, padded: Any, n: int, case: str) -> None:
    if np.array_equal(found, wanted):
        return
    if (found[1:] == -1).any():
        raise NotYet(
            f"{case}: only out[0] is written in a block; lane 0 of every warp writes, "
            "to the warp's number over the whole grid."
        )
    if n == 32 and found[0] < wanted[0]:
        raise NotYet(
            f"{case}: out[0] is {found[0]}, it should be {wanted[0]}: some lanes are missing from the sum. "
            "The offsets are 16, 8, 4, 2, 1: five steps for 32 lanes."
        )
    if n % _WARP and np.array_equal(found[: n // _WARP], wanted[: n // _WARP]):
        raise NotYet(
            f"{case}: full warps are right, the ragged one is not. Lanes without an element must take part "
            "with the value 0, not stay away."
        )
    compare(found, wanted, case=case, what="out")


def _explain_warp_sum(reason: str, n: int) -> str:
    if "cudaErrorIllegalAddress" in reason:
        return f"{reason} Lanes beyond n must not load: take 0 for them, and let lane 0 alone write."
    if n % _WARP:
        return (
            f"{reason} With a full mask all 32 lanes must reach the shuffle: replace the early return by "
            "a value of 0 for lanes beyond n."
        )
    return reason


def judge_count(answer: Any) -> str:
    """``count_positive(x, out, n)``: one atomic a warp, by a vote."""
    kernel = KernelUnderTest(answer, "count_positive")
    for n, threads in ((32, 32), (64, 64), (1000, 128), (1, 32), (33, 64)):
        x = np.where(np.arange(n) % 3 == 0, 1.5, -1.5).astype(np.float32)
        blocks = -(-n // threads)
        case = f"n = {n}, {blocks} block{'s' if blocks > 1 else ''} of {threads}"
        arguments = [x, Out(), np.int32(n)]
        try:
            (found,) = kernel.run(
                (blocks, 1, 1), (threads, 1, 1), arguments, [np.zeros(1, np.int32)], case=case
            )
        except NotYet as reason:
            raise NotYet(_explain_warp_sum(str(reason), n)) from reason
        wanted = int((x > 0).sum())
        if int(found[0]) == wanted * _WARP or int(found[0]) > wanted:
            raise NotYet(
                f"{case}: counted {int(found[0])}, it should be {wanted}: too many lanes add the same vote. "
                "Every lane gets the whole ballot; only one may add its __popc."
            )
        if int(found[0]) < wanted:
            raise NotYet(
                f"{case}: counted {int(found[0])}, it should be {wanted}; which lanes were left out?"
            )
    if "__ballot_sync" not in kernel.code and "__reduce_add_sync" not in kernel.code:
        raise NotYet("the counts are right, but each lane adds for itself: vote with __ballot_sync first.")
    return "right, with one atomic per warp instead of one per positive element."


EXERCISES = (
    Exercise("03-warp-sum", "Sum of a warp", judge_warp_sum),
    Exercise("03-count", "Count by vote", judge_count),
)
