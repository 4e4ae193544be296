"""Exercises of notebook 00."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpulab import session
from gpulab.teach.judge import (
    Advice,
    Budget,
    Case,
    Draw,
    KernelExercise,
    Measured,
    Mistake,
    Near,
    NotYet,
    PythonExercise,
    advice,
    blocks_for,
    call,
    draw,
    spelt,
)
from virtualgpu.records import DeviceInfo, Dim3


def judge_blocks(answer: Any) -> str:
    """``shape_for(n, info)``: blocks and threads with which a census counts n elements once."""
    here = session.virtual_side().device_info()
    # A GPU of another kind, with half the threads a block and a grid of few blocks.
    small = replace(here, max_threads_per_block=512, max_block_dim=(512, 512, 64), max_grid_dim=(64, 64, 64))
    for info, sizes in (
        (here, (1000, 1, 256, 257, 1024, 1025, 33, 100_000)),
        (small, (1000, 513, 30_000, 1 << 15)),
    ):
        for n in sizes:
            _census(answer, n, info, "" if info is here else _SMALL)
    return "every element is counted once, with less than a block to spare, on any device."


_SMALL = " on a GPU with at most 512 threads in a block and 64 blocks in a grid"


def _census(answer: Any, n: int, info: DeviceInfo, where: str) -> None:
    found = call(answer, n, info, name="shape_for", shown=f"shape_for({n}, info)")
    case = f"shape_for({n}, info) returns {spelt(found)}{where}"
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise NotYet(f"{case}; return two numbers, the blocks and the threads of each: (blocks, threads).")
    if any(isinstance(part, bool) or not isinstance(part, int | np.integer) for part in found):
        raise NotYet(f"{case}, and a grid takes whole numbers: divide with // instead of /.")
    blocks, threads = (int(part) for part in found)
    if blocks < 1 or threads < 1:
        raise NotYet(f"{case}, and a launch has at least 1 block of 1 thread; round up.")
    if threads > info.max_threads_per_block:
        raise NotYet(
            f"{case}, but a block has at most {info.max_threads_per_block:,} threads there: "
            f"info.max_threads_per_block says so."
        )
    if blocks > info.max_grid_dim[0]:
        raise NotYet(
            f"{case},"
            f" but a grid has at most {info.max_grid_dim[0]:,} blocks there (info.max_grid_dim[0]): take "
            "larger ones."
        )
    with session.bench(info) as side:
        seen, spare = side.cp.zeros(n, np.int32), side.cp.zeros(1, np.int32)
        census = side.cp.RawKernel(CENSUS, "census")
        census((blocks,), (threads,), (seen, spare, np.int32(n)))
        missed, idle = int((seen.get() != 1).sum()), int(spare.get()[0])
    if missed:
        raise NotYet(
            f"{case}: {blocks:,} × {threads:,} = {blocks * threads:,} threads leave {missed:,} "
            f"element{'s' if missed > 1 else ''} uncounted; round up."
        )
    if idle >= threads == -(-n // blocks):
        raise NotYet(f"{case}, which is {blocks} blocks of {threads} threads: the blocks come first.")
    if idle >= threads:
        raise NotYet(
            f"{case}: {idle:,} threads have nothing to do, a whole block or more;"
            f" round up only where there is a "
            "remainder."
        )


CENSUS = (Path(__file__).parent / "kernels" / "census.cu").read_text(encoding="utf-8")

BLOCKS = PythonExercise("00-blocks", "A grid for n elements", judge_blocks, level="warm-up")


def saxpy_case(data: Draw, n: int, block: Dim3) -> Case:
    """``y[i] = a * x[i] + y[i]``."""
    a, x, y = np.float32(data.rng.uniform(1.5, 3)), data.floats(n), data.floats(n)
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
    budgets=(Budget("sectors", "Neighbouring threads belong on neighbouring elements.", 1.5),),
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


def smooth_case(data: Draw, n: int, block: Dim3) -> Case:
    """``y[i]`` is the mean of ``x[i - 1]``, ``x[i]`` and ``x[i + 1]``; the two ends stay."""
    x = data.floats(n)
    exact = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        means, terms = exact.copy(), np.abs(exact)
        means[1:-1] = (exact[:-2] + exact[1:-1] + exact[2:]) / 3
        terms[1:-1] = (terms[:-2] + terms[1:-1] + terms[2:]) / 3
    wanted = Near(means.astype(np.float32), terms, ulps=3)
    return Case(blocks_for(n, block[0]), {"x": x, "n": n}, {"y": wanted})


def _at_the_ends(m: Mistake) -> bool:
    return m.fault == "out of bounds" or (m.found is not None and not m.wrong[1:-1].any())


REPAIR = KernelExercise(
    "00-repair",
    "Three bugs",
    "smooth",
    "const float* x, float* y, int n",
    smooth_case,
    "smooth.cu",
    kind="repair",
    once=True,
    advice=(
        Advice(
            advice.both(advice.out_of_bounds, lambda m: "y" in m.array),
            "Threads without an element must not write: guard with if (i < n).",
        ),
        Advice(
            lambda m: m.found is not None and m["n"] > 2 and not m.found[1:-1].any(),
            "Every mean is 0: what is 1 / 3, of two whole numbers?",
        ),
        Advice(
            advice.partly_unwritten,
            "Some elements are never written: how many threads come before block b's first?",
        ),
        Advice(_at_the_ends, "Which neighbours has the first element, and which the last?"),
    ),
    praise="the index, the ends and the division are all mended.",
)


def spotlight_case(data: Draw, size: tuple[int, int], block: Dim3) -> Case:
    """Pixels within r of (cx, cy) twice as bright, 255 at most; the others half as bright."""
    height, width = size
    picture = data.rng.integers(0, 256, (height, width)).astype(np.uint8)
    cx, cy = (int(data.rng.integers(-2, side + 2)) for side in (width, height))
    r = int(data.rng.integers(0, max(size)))
    y, x = np.ogrid[:height, :width]
    lit = (x - cx) ** 2 + (y - cy) ** 2 <= r * r
    wanted = np.where(lit, np.minimum(2 * picture.astype(int), 255), picture // 2).astype(np.uint8)
    grid = blocks_for(width, block[0]), blocks_for(height, block[1])
    values = {"picture": picture, "width": width, "height": height, "cx": cx, "cy": cy, "r": r}
    return Case(grid, values, {"out": wanted})


def _spot(m: Mistake, transposed: bool) -> Any:
    y, x = np.ogrid[: m["height"], : m["width"]]
    x, y = (y, x) if transposed else (x, y)
    return (x - m["cx"]) ** 2 + (y - m["cy"]) ** 2 - m["r"] ** 2


def _wrapped(m: Mistake) -> Any:
    return np.where(_spot(m, False) <= 0, 2 * m["picture"].astype(int) % 256, m["picture"] // 2)


def _mirrored(m: Mistake) -> Any:
    bright = np.minimum(2 * m["picture"].astype(int), 255)
    return np.where(_spot(m, True) <= 0, bright, m["picture"] // 2)


def _rim(m: Mistake) -> bool:
    return m.found is not None and bool((_spot(m, False)[m.wrong] == 0).all())


PICTURE = KernelExercise(
    "00-picture",
    "A spotlight",
    "spotlight",
    "const unsigned char* picture, unsigned char* out, int width, int height, int cx, int cy, int r",
    spotlight_case,
    "spotlight.cu",
    level="stretch",
    naive="spotlight_down_the_rows.cu",
    sizes=draw.matrices,
    blocks=draw.planes,
    measured=Measured((190, 250), (32, 8, 1)),
    once=True,
    budgets=(
        Budget("sectors", "Neighbouring lanes, that is x, belong on neighbouring pixels of a row.", 1.6),
    ),
    advice=(
        Advice(
            advice.out_of_bounds, "Guard both edges, x < width and y < height; the pixel is y * width + x."
        ),
        Advice(
            advice.written_twice,
            "Threads beyond the right edge write into the next row: guard x < width and y < height, each.",
        ),
        Advice(
            advice.holds(_wrapped),
            "A byte holds 255 at most, and what is more starts again at 0: take the min.",
        ),
        Advice(advice.holds(_mirrored), "x and y are exchanged in the circle."),
        Advice(_rim, "Pixels exactly r away are lit, too."),
        Advice(
            advice.partly_unwritten,
            "Some pixels were never written. x counts columns, y counts rows; the pixel is y * width + x.",
        ),
    ),
    praise="the spot falls where it should, on pictures of every shape.",
)


EXERCISES = (BLOCKS, SAXPY, REPAIR, PICTURE)
