"""Exercises of notebook 00."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab.teach.exercise import Exercise, NotYet, call, spell
from gpulab.teach.kernel_cases import KernelUnderTest, Out, compare


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


def judge_saxpy(answer: Any) -> str:
    """``saxpy(a, x, y, n)``: y[i] = a * x[i] + y[i]."""
    kernel = KernelUnderTest(answer, "saxpy")
    threads = 128
    rng = np.random.default_rng(0)
    for n in (128, 1, 127, 129, 1000):
        a = np.float32(2.5)
        x = rng.standard_normal(n).astype(np.float32)
        y = rng.standard_normal(n).astype(np.float32)
        blocks = -(-n // threads)
        case = f"n = {n} with {blocks} block{'s' if blocks > 1 else ''} of {threads} threads"
        try:
            (found,) = kernel.run((blocks, 1, 1), (threads, 1, 1), [a, x, Out(), np.int32(n)], [y], case=case)
        except NotYet as reason:
            raise NotYet(_explain_saxpy(str(reason), n, threads)) from reason
        if np.array_equal(found, a * x) or np.allclose(found, a * x, rtol=1e-6):
            raise NotYet(f"{case}: y holds a * x; the old y is missing from the sum.")
        if np.array_equal(found, y):
            raise NotYet(f"{case}: y is unchanged; write the result back to y[i].")
        compare(found, a * x + y, case=case, what="y")
    return "right for 1, 127, 128, 129 and 1,000 elements, and no thread leaves its array."


def _explain_saxpy(reason: str, n: int, threads: int) -> str:
    if "cudaErrorIllegalAddress" in reason and n % threads:
        return f"{reason} The last block has more threads than elements left: guard with `if (i < n)`."
    return reason


EXERCISES = (
    Exercise("00-blocks", "Blocks for n elements", judge_blocks),
    Exercise("00-saxpy", "saxpy", judge_saxpy),
)
