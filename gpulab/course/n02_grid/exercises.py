"""Exercises of notebook 02."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab.teach.exercise import Exercise, NotYet, call, spell
from gpulab.teach.kernel_cases import KernelUnderTest, Out, compare


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


EXERCISES = (
    Exercise("02-index", "A matrix kernel", judge_index),
    Exercise("02-waves", "Waves and tail", judge_waves),
)
