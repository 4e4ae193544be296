"""Exercises of notebook 02."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab.teach.exercise import Exercise, NotYet, call, spell
from gpulab.teach.kernel_cases import KernelUnderTest, Out, compare

_WARP = 32


def judge_index(answer: Any) -> str:
    """``scale2d(x, y, rows, cols)``: y = 2 * x over a row-major matrix, blocks of 16 x 16."""
    kernel = KernelUnderTest(answer, "scale2d")
    block = (16, 16, 1)
    for rows, cols in ((16, 16), (16, 32), (1, 1), (17, 16), (16, 17), (5, 50), (50, 5)):
        x = np.arange(rows * cols, dtype=np.float32).reshape(rows, cols) + 1
        y = np.zeros_like(x)
        grid = (-(-cols // 16), -(-rows // 16), 1)
        case = f"{rows} rows × {cols} columns"
        arguments = [x, Out(), np.int32(rows), np.int32(cols)]
        try:
            (found,) = kernel.run(grid, block, arguments, [y], case=case)
        except NotYet as reason:
            raise NotYet(_explain_index(str(reason), rows, cols)) from reason
        if rows != cols and not np.array_equal(found, 2 * x) and (found == 0).any():
            raise NotYet(
                f"{case}: {int((found == 0).sum()):,} of {x.size:,} elements were never written. "
                "x counts columns and y counts rows; the index is row * cols + col."
            )
        compare(found, 2 * x, case=case, what="y")
    return "right for square, wide and tall matrices and for ragged edges on both sides."


def _explain_index(reason: str, rows: int, cols: int) -> str:
    if "cudaErrorIllegalAddress" not in reason:
        return reason
    if rows % 16 == 0 and cols % 16 == 0:
        return (
            f"{reason} No thread is outside this matrix, so the index is: row * cols + col, with col from x."
        )
    if rows * cols == 1:
        return f"{reason} The block has 256 threads for one element: guard the row and the column."
    return f"{reason} Guard both edges: if (row < rows && col < cols)."


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


def judge_waves(answer: Any) -> str:
    """``waves(blocks, blocks_per_sm, sms)``: (full waves, blocks in the tail)."""
    for blocks, per_sm, sms in ((216, 2, 108), (217, 2, 108), (1, 2, 108), (1000, 8, 40), (4096, 16, 132)):
        found = call(answer, blocks, per_sm, sms, name="waves")
        wanted = divmod(blocks, per_sm * sms)
        if isinstance(found, list | tuple) and tuple(found) == wanted:
            continue
        shown = f"{spell('waves', (blocks, per_sm, sms))} returns {found!r}, it should be {wanted!r}"
        if isinstance(found, list | tuple) and tuple(found) == divmod(blocks, sms):
            raise NotYet(
                f"{shown}: an SM holds {per_sm} blocks at once, so a wave is {per_sm} × {sms} blocks."
            )
        if isinstance(found, float | int):
            raise NotYet(f"{shown}: return two numbers, full waves and the blocks left for the tail.")
        raise NotYet(f"{shown}.")
    return "full waves and tails are right."


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
    Exercise("02-index", "A matrix kernel", judge_index),
    Exercise("02-waves", "Waves and tail", judge_waves),
    Exercise("02-warp-sum", "Sum of a warp", judge_warp_sum),
    Exercise("02-count", "Count by vote", judge_count),
)
