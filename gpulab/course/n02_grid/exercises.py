"""Exercises of notebook 02."""

from __future__ import annotations

from typing import Any

from gpulab.teach.judge import (
    Advice,
    Budget,
    Case,
    Draw,
    KernelExercise,
    Measured,
    Mistake,
    NotYet,
    PythonExercise,
    advice,
    blocks_for,
    call,
    draw,
    spell,
)
from virtualgpu.records import Dim3


def scale2d_case(data: Draw, size: tuple[int, int], block: Dim3) -> Case:
    """``y = 2 * x`` over a row-major matrix."""
    rows, cols = size
    x = data.floats((rows, cols))
    grid = blocks_for(cols, block[0]), blocks_for(rows, block[1])
    return Case(grid, {"x": x, "rows": rows, "cols": cols}, {"y": 2 * x})


def _no_thread_outside(m: Mistake) -> bool:
    return bool(m["cols"] % m.case.block[0] == 0 and m["rows"] % m.case.block[1] == 0)


INDEX = KernelExercise(
    "02-index",
    "A matrix kernel",
    "scale2d",
    "const float* x, float* y, int rows, int cols",
    scale2d_case,
    "scale2d.cu",
    naive="scale2d_down_the_rows.cu",
    sizes=draw.matrices,
    blocks=draw.planes,
    measured=Measured((190, 250), (32, 8, 1)),
    once=True,
    budgets=(Budget("sectors", "Neighbouring lanes, that is x, belong on neighbouring columns."),),
    advice=(
        Advice(
            advice.both(advice.out_of_bounds, _no_thread_outside),
            "No thread is outside this matrix, so the index is: row * cols + col, with col from x.",
        ),
        Advice(advice.out_of_bounds, "Guard both edges: if (row < rows && col < cols)."),
        Advice(
            advice.written_twice,
            "Threads beyond the right edge write into the next row: guard the row and the column, each.",
        ),
        Advice(advice.transposed, "x counts columns and y counts rows; the index is row * cols + col."),
        Advice(
            advice.partly_unwritten,
            "Some elements were never written. x counts columns and y counts rows; the index is "
            "row * cols + col.",
        ),
    ),
    praise="right for square, wide and tall matrices and for ragged edges on both sides.",
)


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
    INDEX,
    PythonExercise("02-waves", "Waves and tail", judge_waves, level="warm-up"),
)
