"""Exercises of notebook 00."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab.teach.judge import (
    Advice,
    Budget,
    Case,
    Draw,
    KernelExercise,
    Mistake,
    Near,
    NotYet,
    PythonExercise,
    advice,
    blocks_for,
    call,
    spell,
)
from virtualgpu.records import Dim3


def judge_blocks(answer: Any) -> str:
    """``blocks_for(n, threads)``: the blocks that cover n elements."""
    for n, threads in ((1, 256), (256, 256), (257, 256), (1000, 256), (32, 32), (33, 32), (10**9, 1024)):
        found = call(answer, n, threads, name="blocks_for")
        shown = spell("blocks_for", (n, threads))
        if not isinstance(found, int | np.integer):
            raise NotYet(f"{shown} returns {found!r}, and a grid takes whole numbers; use // instead of /.")
        wanted = -(-n // threads)
        if found < wanted:
            left = n - int(found) * threads
            raise NotYet(
                f"{shown} returns {found}: {found} × {threads} = {int(found) * threads:,} threads leave "
                f"{left:,} elements without one; round up."
            )
        if found > wanted:
            enough = "1 block is enough" if wanted == 1 else f"{wanted} blocks are enough"
            raise NotYet(
                f"{shown} returns {found}, but {enough}; a block with nothing to do still "
                "has to be launched. Round up only where there is a remainder."
            )
    return "every element has a thread, and no block is launched for nothing."


def saxpy_case(draw: Draw, n: int, block: Dim3) -> Case:
    """``y[i] = a * x[i] + y[i]``."""
    a, x, y = np.float32(2.5), draw.floats(n), draw.floats(n)
    with np.errstate(invalid="ignore"):
        # In double precision: whether the GPU rounds once or twice is its affair.
        product, old = a.astype(np.float64) * x, y.astype(np.float64)
        wanted = Near((product + old).astype(np.float32), np.abs(product) + np.abs(old))
    return Case(blocks_for(n, block[0]), {"a": a, "x": x, "y": y, "n": n}, {"y": wanted})


def _ragged(m: Mistake) -> bool:
    return m.fault == "out of bounds" and m["n"] % m.case.block[0] != 0


SAXPY = KernelExercise(
    "00-saxpy",
    "saxpy",
    "saxpy",
    "float a, const float* x, float* y, int n",
    saxpy_case,
    "saxpy.cu",
    budgets=(Budget("sectors"),),
    advice=(
        Advice(_ragged, "The last block has more threads than elements left: guard with `if (i < n)`."),
        Advice(advice.holds(lambda m: m["a"] * m["x"]), "y holds a * x; the old y is missing from the sum."),
        Advice(advice.holds(lambda m: m["a"] * m["x"] * m["y"]), "The old y is to be added, not multiplied."),
        Advice(advice.holds(lambda m: m["x"] + m["y"]), "The factor a is missing."),
        Advice(advice.unchanged, "y is unchanged; write the result back to y[i]."),
        Advice(advice.only_first, "Only y[0] is written: i counts threads over all blocks."),
    ),
    praise="right for every size, with any block shape and in any order of blocks.",
)

EXERCISES = (PythonExercise("00-blocks", "Blocks for n elements", judge_blocks, level="warm-up"), SAXPY)
