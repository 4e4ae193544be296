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
    DataGenerator,
    ExpectedFloats,
    KernelExercise,
    MeasuredLaunch,
    Mistake,
    NotYet,
    PythonExercise,
    SpecialInput,
    advice,
    call,
    count_blocks,
    draw,
    is_integer,
    is_number,
    list_parts,
    short_repr,
)
from virtualgpu.records import DeviceInfo, Dim3


def judge_blocks(answer: Answer) -> str:
    """Judge the learner's ``shape_for(n, info)``, which returns a grid and a block with at least one thread
    per element.
    """
    rng = answer.rng
    virtual_device = session.virtual_side().device_info()
    max_threads = virtual_device.max_threads_per_block
    element_counts = [
        1000,
        1,
        max_threads // 4,
        max_threads // 4 + 1,
        max_threads,
        max_threads + 1,
        33,
        100_000,
        max_threads * int(rng.integers(2, 99)),
    ]
    # Sizes that a float cannot represent exactly: a multiple of any usual block size, and one more.
    element_counts += [
        1024 * int(n) + extra_elements for n in rng.integers(1 << 15, 1 << 17, 2) for extra_elements in (0, 1)
    ]
    element_counts += [(1 << 31) + 1, (1 << 32) + 1]  # beyond 32 bits
    _judge_shapes(answer, virtual_device, [*element_counts, *map(int, rng.integers(2, 100_000_000, 4))], "")
    # Imaginary GPUs with fewer threads per block, and grids of few blocks.
    for threads, blocks in (
        (512, 64),
        (1024, int(rng.integers(40, 60))),
        (int(2 ** rng.integers(5, 8)), int(rng.integers(1000, 65_535))),
        (int(rng.choice([96, 192, 384, 768])), int(rng.choice([60, 1 << 20]))),
        (672, 48),
    ):
        info = replace(
            virtual_device,
            max_threads_per_block=threads,
            max_block_dim=(threads, threads, 64),
            max_grid_dim=(blocks, min(blocks, 65_535), min(blocks, 65_535)),
        )
        thread_capacity = threads * min(blocks, 65_535)
        element_counts = [
            1000,
            threads + 1,
            threads,
            15 * thread_capacity // 16,
            thread_capacity - 1,
            thread_capacity,
            int(rng.integers(1, thread_capacity)),
        ]
        gpu_condition = (
            f" on a GPU with at most {threads:,} threads in a block and {blocks:,} blocks in a grid"
        )
        _judge_shapes(answer, info, element_counts, gpu_condition)
    return "every element has a thread, and fewer threads than one block are spare, on any device."


def _judge_shapes(answer: Answer, info: DeviceInfo, sizes: list[int], condition: str) -> None:
    for n in sizes:
        _judge_shape(answer, n, info, condition)


def _judge_shape(answer: Answer, n: int, info: DeviceInfo, condition: str) -> None:
    result = call(answer, n, info, name="shape_for", shown=f"shape_for({n}, info)")
    message = f"shape_for({n}, info) returns {short_repr(result)}{condition}"
    result_values = list_parts(result)
    if result_values is None or len(result_values) != 2:
        raise NotYet(
            f"{message}. Return a tuple (blocks, threads) with the number of blocks and the number of "
            "threads per block."
        )
    if not all(map(is_integer, result_values)):
        hint = ": divide with // instead of /" if all(map(is_number, result_values)) else ""
        raise NotYet(f"{message}, but both numbers must be integers{hint}.")
    blocks, threads = map(int, result_values)
    if blocks < 1 or threads < 1:
        raise NotYet(f"{message}, but a launch needs at least 1 block of 1 thread. Round up.")
    if threads > info.max_threads_per_block:
        raise NotYet(
            f"{message}, but a block can have at most {info.max_threads_per_block:,} "
            "threads on this device (info.max_threads_per_block). Use fewer threads."
        )
    if blocks > info.max_grid_dim[0]:
        raise NotYet(
            f"{message}, but a grid can have at most {info.max_grid_dim[0]:,} blocks on "
            "this device (info.max_grid_dim[0]). Use larger blocks."
        )
    missing_threads = n - blocks * threads
    idle_threads = blocks * threads - n
    if missing_threads > 0:
        raise NotYet(
            f"{message}: {blocks:,} × {threads:,} = {blocks * threads:,} threads, so "
            f"{counted(missing_threads, 'element')} would have no thread. Round up."
        )
    if threads <= idle_threads < blocks <= info.max_threads_per_block:
        raise NotYet(
            f"{message}, which means {blocks} blocks of {threads} threads. Return the number of blocks first."
        )
    if idle_threads >= threads:
        raise NotYet(
            f"{message}: {idle_threads:,} threads have no element, so at least one whole block is "
            "unnecessary. Round up only if there is a remainder."
        )


BLOCKS = PythonExercise("00-blocks", "A grid for n elements", judge_blocks, level="warm-up")


def draw_saxpy_case(data: DataGenerator, n: int, block: Dim3) -> Case:
    """Return a test case for a kernel that computes ``y[i] = a * x[i] + y[i]``."""
    a = np.float32(data.rng.uniform(1.5, 3) * data.rng.choice((-1, 1)))
    x = data.floats(n)
    y = data.floats(n)
    if data.kind:
        a = data.rng.choice(np.array((1, -1, 0.125, a), np.float32))
    return _make_saxpy_case(a, x, y, block)


def _make_saxpy_case(a: Any, x: Any, y: Any, block: Dim3) -> Case:
    n = x.size
    a = np.float32(a)
    with np.errstate(invalid="ignore"):
        # In double precision, because the GPU may round once (FMA) or twice.
        product = a.astype(np.float64) * x
        old_y = y.astype(np.float64)
        expected = ExpectedFloats((product + old_y).astype(np.float32), np.abs(product) + np.abs(old_y))
    return Case(count_blocks(n, block[0]), {"a": a, "x": x, "y": y, "n": n}, {"y": expected})


def _make_saxpy_case_maker(a: float) -> Any:
    """Return a function that creates a test case with factor `a` and elements of all kinds."""

    def make_case(data: DataGenerator, n: int, block: Dim3) -> Case:
        special_values = np.array((0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1e30), np.float32)
        return _make_saxpy_case(
            a, data.rng.choice(special_values, n), data.rng.choice(special_values, n), block
        )

    return make_case


_FACTOR_TEST_ROWS = tuple(
    SpecialInput(f"a = {a}", _make_saxpy_case_maker(a), (40,)) for a in (0.0, -1.0, 1e-30, np.inf, np.nan)
)


def _is_overrun_of_last_block(mistake: Mistake) -> bool:
    return mistake.fault_kind == "out of bounds" and mistake["n"] % mistake.case.block[0] != 0


SAXPY = KernelExercise(
    "00-saxpy",
    "saxpy",
    "saxpy",
    "float a, const float* x, float* y, int n",
    draw_saxpy_case,
    "saxpy.cu",
    table=_FACTOR_TEST_ROWS,
    budgets=(Budget("sectors", "Neighbouring threads should process neighbouring elements.", 1.5),),
    advice=(
        Advice(
            _is_overrun_of_last_block,
            "The last block has more threads than there are elements left. Add the guard `if (i < n)`.",
        ),
        Advice(
            advice.is_result_of(lambda mistake: mistake["a"] * mistake["x"]),
            "y is a * x. Add the old value of y, too.",
        ),
        Advice(
            advice.is_result_of(lambda mistake: mistake["a"] * mistake["x"] * mistake["y"]),
            "Add the old y instead of multiplying by it.",
        ),
        Advice(advice.is_result_of(lambda mistake: mistake["x"] + mistake["y"]), "The factor a is missing."),
        Advice(
            lambda mistake: mistake["a"] == 0 and advice.is_unchanged(mistake),
            "Where a is 0, y is unchanged, but 0 times infinity or NaN is NaN. Treat 0 like any other "
            "factor.",
        ),
        Advice(advice.is_unchanged, "y is unchanged. Write the result to y[i]."),
        Advice(
            advice.is_only_first_right,
            "Only y[0] is written. Compute i from the block and the thread, so that it counts the threads "
            "of all blocks.",
        ),
    ),
    praise="the results are right for every size, with any block shape and in any order of blocks.",
)


def make_smooth_case(data: DataGenerator, n: int, block: Dim3) -> Case:
    """Return a test case for a kernel that averages each element and its neighbours, except at the ends."""
    x = data.floats(n)
    exact_x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected_means = exact_x.copy()
        term_magnitudes = np.abs(exact_x)
        expected_means[1:-1] = (exact_x[:-2] + exact_x[1:-1] + exact_x[2:]) / 3
        term_magnitudes[1:-1] = (term_magnitudes[:-2] + term_magnitudes[1:-1] + term_magnitudes[2:]) / 3
    expected = ExpectedFloats(expected_means.astype(np.float32), term_magnitudes, ulps=3)
    return Case(count_blocks(n, block[0]), {"x": x, "n": n}, {"y": expected})


def _is_only_ends_wrong(mistake: Mistake) -> bool:
    return mistake.actual_values is not None and mistake["n"] > 2 and not mistake.wrong_elements[1:-1].any()


REPAIR = KernelExercise(
    "00-repair",
    "Three bugs",
    "smooth",
    "const float* x, float* y, int n",
    make_smooth_case,
    "smooth.cu",
    table=(SpecialInput("hardly any elements", make_smooth_case, (2, 3, 4)),),
    kind="repair",
    forbids_double_writes=True,
    advice=(
        Advice(
            advice.match_all(advice.is_out_of_bounds, lambda mistake: "y" in mistake.fault_array),
            "Threads without an element must not write. Add the guard if (i < n).",
        ),
        Advice(
            lambda mistake: (
                mistake.actual_values is not None
                and mistake["n"] > 2
                and not mistake.actual_values[1:-1].any()
            ),
            "Every mean is 0. What is 1 / 3, the division of two integers?",
        ),
        Advice(
            advice.match_any(advice.is_out_of_bounds, _is_only_ends_wrong),
            "Which neighbours does the first element have, and which does the last one have?",
        ),
        Advice(
            advice.is_partly_unwritten,
            "Some elements are never written. How many threads come before the first thread of block b?",
        ),
    ),
    praise="the index, the ends and the division are right.",
)


def draw_spotlight_case(data: DataGenerator, size: tuple[int, int], block: Dim3) -> Case:
    """Return a test case for a kernel that doubles the pixels in a circle (at most 255) and halves the
    others.
    """
    height, width = size
    picture = data.rng.integers(0, 256, (height, width)).astype(np.uint8)
    # The centre is in the picture or next to it. Radii are so small that floats represent squares of
    # distances near r, and their roots, exactly.
    margin_px = int(data.rng.choice((2, 400)))
    cx, cy = (int(data.rng.integers(-margin_px, side_px + margin_px)) for side_px in (width, height))
    short_radius = int(data.rng.integers(0, min(max(size), 2000)))
    radius_px = int(data.rng.choice([0, 1, short_radius, margin_px + short_radius]))
    return _make_spotlight_case(picture, cx, cy, radius_px, block)


def _make_spotlight_case(picture: Any, cx: int, cy: int, radius: int, block: Dim3) -> Case:
    height, width = picture.shape
    y, x = np.ogrid[:height, :width]
    is_in_circle = (x - cx) ** 2 + (y - cy) ** 2 <= radius * radius
    expected = np.where(is_in_circle, np.minimum(2 * picture.astype(int), 255), picture // 2).astype(np.uint8)
    grid = count_blocks(width, block[0]), count_blocks(height, block[1])
    inputs = {"picture": picture, "width": width, "height": height, "cx": cx, "cy": cy, "r": radius}
    return Case(grid, inputs, {"out": expected})


def _make_circle_case_maker(cx: int, cy: int, radius: int) -> Any:
    """Return a function that creates a test case with this circle and a picture with all byte values."""

    def make_case(data: DataGenerator, size: tuple[int, int], block: Dim3) -> Case:
        picture = data.rng.permutation(np.resize(np.arange(256), size[0] * size[1])).astype(np.uint8)
        return _make_spotlight_case(picture.reshape(size), cx, cy, radius, block)

    return make_case


# The far spots are so far away that the square of a distance just fits into an int; no pixel is near the rim.
_SPOTLIGHT_TEST_ROWS = (
    SpecialInput("everything lit", _make_circle_case_maker(10, 10, 400), ((20, 30),)),
    SpecialInput("nothing lit", _make_circle_case_maker(-3, 5, 2), ((20, 30), (1, 1))),
    SpecialInput("one pixel lit", _make_circle_case_maker(3, 5, 0), ((20, 30),)),
    SpecialInput("a corner on the edge of the circle", _make_circle_case_maker(-3, -4, 5), ((20, 30),)),
    SpecialInput("a dark spot far to the left", _make_circle_case_maker(-40_000, 3, 30_000), ((20, 300),)),
    SpecialInput("a dark spot far below", _make_circle_case_maker(3, 40_000, 30_000), ((300, 20),)),
    SpecialInput("a large spot", _make_circle_case_maker(-20_000, -20_000, 46_340), ((20, 30),)),
)


def _compute_squared_rim_distance(mistake: Mistake, has_swapped_axes: bool) -> Any:
    y, x = np.ogrid[: mistake["height"], : mistake["width"]]
    x, y = (y, x) if has_swapped_axes else (x, y)
    return (x - mistake["cx"]) ** 2 + (y - mistake["cy"]) ** 2 - mistake["r"] ** 2


def _make_wrapped_picture(mistake: Mistake) -> Any:
    return np.where(
        _compute_squared_rim_distance(mistake, False) <= 0,
        2 * mistake["picture"].astype(int) % 256,
        mistake["picture"] // 2,
    )


def _make_swapped_picture(mistake: Mistake) -> Any:
    bright_picture = np.minimum(2 * mistake["picture"].astype(int), 255)
    return np.where(
        _compute_squared_rim_distance(mistake, True) <= 0, bright_picture, mistake["picture"] // 2
    )


def _is_only_rim_wrong(mistake: Mistake) -> bool:
    return mistake.actual_values is not None and bool(
        (_compute_squared_rim_distance(mistake, False)[mistake.wrong_elements] == 0).all()
    )


def _draw_picture_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw sizes of pictures, with long sides halved so that squared distances fit into an int."""
    picture_sizes: list[Any] = []
    for size in draw.draw_matrix_sizes(rng, threads_at_once):
        is_small = callable(size) or max(size) <= 1 << 15
        picture_sizes.append(size if is_small else tuple(max(2, side // 2) for side in size))
    return picture_sizes


PICTURE = KernelExercise(
    "00-picture",
    "A spotlight",
    "spotlight",
    "const unsigned char* picture, unsigned char* out, int width, int height, int cx, int cy, int r",
    draw_spotlight_case,
    "spotlight.cu",
    level="stretch",
    naive="spotlight_down_the_rows.cu",
    table=_SPOTLIGHT_TEST_ROWS,
    sizes=_draw_picture_sizes,
    blocks=draw.draw_plane_blocks,
    measured_launch=MeasuredLaunch((190, 250), (32, 8, 1)),
    forbids_double_writes=True,
    budgets=(
        Budget(
            "sectors",
            "Neighbouring lanes (neighbours in x) should process neighbouring pixels of a row.",
            1.6,
        ),
    ),
    advice=(
        Advice(
            advice.is_out_of_bounds,
            "Guard both edges, x < width and y < height. The pixel is at y * width + x.",
        ),
        Advice(
            advice.is_written_twice,
            "Threads beyond the right edge write into the next row. Guard both x < width and y < height.",
        ),
        Advice(
            advice.is_result_of(_make_wrapped_picture),
            "A byte can store at most 255, and larger numbers start again at 0. Take the minimum with 255.",
        ),
        Advice(
            advice.match_all(advice.is_result_of(_make_swapped_picture), _is_only_rim_wrong),
            "Pixels at a distance of exactly r must be bright as well; or x and y are swapped in the circle.",
        ),
        Advice(advice.is_result_of(_make_swapped_picture), "x and y are swapped in the circle."),
        Advice(_is_only_rim_wrong, "Pixels at a distance of exactly r must be bright as well."),
        Advice(
            advice.is_partly_unwritten,
            "Some pixels were never written. x counts columns, y counts rows; the pixel is y * width + x.",
        ),
    ),
    praise="the spot is where it should be, in pictures of every shape.",
)


EXERCISES = (BLOCKS, SAXPY, REPAIR, PICTURE)
