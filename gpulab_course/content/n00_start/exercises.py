"""Exercises of notebook 00."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpulab import session
from gpulab.words import count as counted
from gpulab_course.teach.judge import (
    Advice,
    Answer,
    Budget,
    Case,
    Draw,
    KernelExercise,
    Measured,
    Mistake,
    Near,
    NotYet,
    PythonExercise,
    Row,
    advice,
    blocks_for,
    call,
    draw,
    is_number,
    is_whole,
    parts_of,
    spelt,
)
from virtualgpu.records import DeviceInfo, Dim3


def judge_blocks(answer: Answer) -> str:
    """``shape_for(n, info)``: blocks and threads with which each of n elements gets a thread."""
    rng = answer.rng
    here = session.virtual_side().device_info()
    most = here.max_threads_per_block
    sizes = [1000, 1, most // 4, most // 4 + 1, most, most + 1, 33, 100_000, most * int(rng.integers(2, 99))]
    # More elements than a float counts, as many as whole blocks of any usual size hold, and one too many.
    sizes += [1024 * int(n) + more for n in rng.integers(1 << 15, 1 << 17, 2) for more in (0, 1)]
    sizes += [(1 << 31) + 1, (1 << 32) + 1]  # beyond 32 bits
    _try_shapes(answer, here, [*sizes, *map(int, rng.integers(2, 100_000_000, 4))], "")
    # GPUs of other kinds: fewer threads a block, and a grid of few blocks.
    for threads, blocks in (
        (512, 64),
        (1024, int(rng.integers(40, 60))),
        (int(2 ** rng.integers(5, 8)), int(rng.integers(1000, 65_535))),
        (int(rng.choice([96, 192, 384, 768])), int(rng.choice([60, 1 << 20]))),
        (672, 48),
    ):
        info = replace(
            here,
            max_threads_per_block=threads,
            max_block_dim=(threads, threads, 64),
            max_grid_dim=(blocks, min(blocks, 65_535), min(blocks, 65_535)),
        )
        room = threads * min(blocks, 65_535)
        sizes = [1000, threads + 1, threads, 15 * room // 16, room - 1, room, int(rng.integers(1, room))]
        where = f" on a GPU with at most {threads:,} threads in a block and {blocks:,} blocks in a grid"
        _try_shapes(answer, info, sizes, where)
    return "each element has a thread, with less than a block to spare, on any device."


def _try_shapes(answer: Answer, info: DeviceInfo, sizes: list[int], where: str) -> None:
    for n in sizes:
        _census(answer, n, info, where)


def _census(answer: Answer, n: int, info: DeviceInfo, where: str) -> None:
    found = call(answer, n, info, name="shape_for", shown=f"shape_for({n}, info)")
    case = f"shape_for({n}, info) returns {spelt(found)}{where}"
    parts = parts_of(found)
    if parts is None or len(parts) != 2:
        raise NotYet(f"{case}; return two numbers, the blocks and the threads of each: (blocks, threads).")
    if not all(map(is_whole, parts)):
        divide = ": divide with // instead of /" if all(map(is_number, parts)) else ""
        raise NotYet(f"{case}, and a grid takes whole numbers{divide}.")
    blocks, threads = map(int, parts)
    if blocks < 1 or threads < 1:
        raise NotYet(f"{case}, and a launch has at least 1 block of 1 thread; round up.")
    if threads > info.max_threads_per_block:
        raise NotYet(
            f"{case}, but a block has at most {info.max_threads_per_block:,} threads there: "
            "info.max_threads_per_block says so."
        )
    if blocks > info.max_grid_dim[0]:
        raise NotYet(
            f"{case}, but a grid has at most {info.max_grid_dim[0]:,} blocks there (info.max_grid_dim[0]): "
            "take larger ones."
        )
    missed = n - blocks * threads
    idle = blocks * threads - n
    if missed > 0:
        raise NotYet(
            f"{case}: {blocks:,} × {threads:,} = {blocks * threads:,} threads leave "
            f"{counted(missed, 'element')} uncounted; round up."
        )
    if threads <= idle < blocks <= info.max_threads_per_block:
        raise NotYet(f"{case}, which is {blocks} blocks of {threads} threads: the blocks come first.")
    if idle >= threads:
        raise NotYet(
            f"{case}: {idle:,} threads have nothing to do, a whole block or more;"
            f" round up only where there is a "
            "remainder."
        )


BLOCKS = PythonExercise("00-blocks", "A grid for n elements", judge_blocks, level="warm-up")


def saxpy_case(data: Draw, n: int, block: Dim3) -> Case:
    """``y[i] = a * x[i] + y[i]``."""
    a = np.float32(data.rng.uniform(1.5, 3) * data.rng.choice((-1, 1)))
    x = data.floats(n)
    y = data.floats(n)
    if data.kind:
        a = data.rng.choice(np.array((1, -1, 0.125, a), np.float32))
    return _saxpy_of(a, x, y, block)


def _saxpy_of(a: Any, x: Any, y: Any, block: Dim3) -> Case:
    n = x.size
    a = np.float32(a)
    with np.errstate(invalid="ignore"):
        # In double precision: whether the GPU rounds once or twice is its affair.
        product = a.astype(np.float64) * x
        old = y.astype(np.float64)
        wanted = Near((product + old).astype(np.float32), np.abs(product) + np.abs(old))
    return Case(blocks_for(n, block[0]), {"a": a, "x": x, "y": y, "n": n}, {"y": wanted})


def _with_factor(a: float) -> Any:
    """A row's case: that factor, and elements of all kinds."""

    def case(data: Draw, n: int, block: Dim3) -> Case:
        values = np.array((0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1e30), np.float32)
        return _saxpy_of(a, data.rng.choice(values, n), data.rng.choice(values, n), block)

    return case


_FACTORS = tuple(Row(f"a = {a}", _with_factor(a), (40,)) for a in (0.0, -1.0, 1e-30, np.inf, np.nan))


def _ragged(m: Mistake) -> bool:
    return m.fault == "out of bounds" and m["n"] % m.case.block[0] != 0


SAXPY = KernelExercise(
    "00-saxpy",
    "saxpy",
    "saxpy",
    "float a, const float* x, float* y, int n",
    saxpy_case,
    "saxpy.cu",
    table=_FACTORS,
    budgets=(Budget("sectors", "Neighbouring threads belong on neighbouring elements.", 1.5),),
    advice=(
        Advice(_ragged, "The last block has more threads than elements left: guard with `if (i < n)`."),
        Advice(advice.holds(lambda m: m["a"] * m["x"]), "y holds a * x; the old y is missing from the sum."),
        Advice(advice.holds(lambda m: m["a"] * m["x"] * m["y"]), "The old y is to be added, not multiplied."),
        Advice(advice.holds(lambda m: m["x"] + m["y"]), "The factor a is missing."),
        Advice(
            lambda m: m["a"] == 0 and advice.unchanged(m),
            "y is unchanged, and 0 times infinity or NaN is NaN: a is a factor like any other.",
        ),
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
        means = exact.copy()
        terms = np.abs(exact)
        means[1:-1] = (exact[:-2] + exact[1:-1] + exact[2:]) / 3
        terms[1:-1] = (terms[:-2] + terms[1:-1] + terms[2:]) / 3
    wanted = Near(means.astype(np.float32), terms, ulps=3)
    return Case(blocks_for(n, block[0]), {"x": x, "n": n}, {"y": wanted})


def _at_the_ends(m: Mistake) -> bool:
    return m.found is not None and m["n"] > 2 and not m.wrong[1:-1].any()


REPAIR = KernelExercise(
    "00-repair",
    "Three bugs",
    "smooth",
    "const float* x, float* y, int n",
    smooth_case,
    "smooth.cu",
    table=(Row("hardly any elements", smooth_case, (2, 3, 4)),),
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
            advice.either(advice.out_of_bounds, _at_the_ends),
            "Which neighbours has the first element, and which the last?",
        ),
        Advice(
            advice.partly_unwritten,
            "Some elements are never written: how many threads come before block b's first?",
        ),
    ),
    praise="the index, the ends and the division are all mended.",
)


def spotlight_case(data: Draw, size: tuple[int, int], block: Dim3) -> Case:
    """Pixels within r of (cx, cy) twice as bright, 255 at most; the others half as bright."""
    height, width = size
    picture = data.rng.integers(0, 256, (height, width)).astype(np.uint8)
    # In the picture or beside it, and no larger than floats are exact for the squares of distances near r,
    # and for their roots.
    far = int(data.rng.choice((2, 400)))
    cx, cy = (int(data.rng.integers(-far, side + far)) for side in (width, height))
    near = int(data.rng.integers(0, min(max(size), 2000)))
    r = int(data.rng.choice([0, 1, near, far + near]))
    return _spotlight_of(picture, cx, cy, r, block)


def _spotlight_of(picture: Any, cx: int, cy: int, r: int, block: Dim3) -> Case:
    height, width = picture.shape
    y, x = np.ogrid[:height, :width]
    lit = (x - cx) ** 2 + (y - cy) ** 2 <= r * r
    wanted = np.where(lit, np.minimum(2 * picture.astype(int), 255), picture // 2).astype(np.uint8)
    grid = blocks_for(width, block[0]), blocks_for(height, block[1])
    values = {"picture": picture, "width": width, "height": height, "cx": cx, "cy": cy, "r": r}
    return Case(grid, values, {"out": wanted})


def _lit(cx: int, cy: int, r: int) -> Any:
    """A row's case: a spot, and a picture of all bytes."""

    def case(data: Draw, size: tuple[int, int], block: Dim3) -> Case:
        picture = data.rng.permutation(np.resize(np.arange(256), size[0] * size[1])).astype(np.uint8)
        return _spotlight_of(picture.reshape(size), cx, cy, r, block)

    return case


# Far away means as far as the square of a distance fits into an int, and no pixel is near the rim.
_SPOTS = (
    Row("everything lit", _lit(10, 10, 400), ((20, 30),)),
    Row("nothing lit", _lit(-3, 5, 2), ((20, 30), (1, 1))),
    Row("one pixel lit", _lit(3, 5, 0), ((20, 30),)),
    Row("a corner on the rim", _lit(-3, -4, 5), ((20, 30),)),
    Row("a dark spot far to the left", _lit(-40_000, 3, 30_000), ((20, 300),)),
    Row("a dark spot far below", _lit(3, 40_000, 30_000), ((300, 20),)),
    Row("a large spot", _lit(-20_000, -20_000, 46_340), ((20, 30),)),
)


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


def _pictures(rng: np.random.Generator, at_once: int) -> list[Any]:
    """Sizes of `draw.matrices` with long sides halved, so that the square of a distance fits into an int."""
    sizes = draw.matrices(rng, at_once)
    return [
        size if callable(size) or max(size) <= 1 << 15 else tuple(max(2, side // 2) for side in size)
        for size in sizes
    ]


PICTURE = KernelExercise(
    "00-picture",
    "A spotlight",
    "spotlight",
    "const unsigned char* picture, unsigned char* out, int width, int height, int cx, int cy, int r",
    spotlight_case,
    "spotlight.cu",
    level="stretch",
    naive="spotlight_down_the_rows.cu",
    table=_SPOTS,
    sizes=_pictures,
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
        Advice(
            advice.both(advice.holds(_mirrored), _rim),
            "Pixels exactly r away are lit, too; or x and y are exchanged in the circle.",
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
