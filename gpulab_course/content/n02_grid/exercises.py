"""Exercises of notebook 02."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gpulab.words import count as counted
from gpulab_course.teach.judge import (
    Advice,
    Answer,
    Budget,
    Case,
    DataGenerator,
    KernelExercise,
    MeasuredLaunch,
    Mistake,
    NotYet,
    PythonExercise,
    SpecialInput,
    advice,
    as_float,
    call,
    draw,
    is_number,
    short_repr,
)
from virtualgpu.records import Dim3

_SECTOR_BUDGET = Budget(
    "sectors",
    "Neighbouring lanes should access neighbouring elements, so use x, which varies fastest within a warp, "
    "for the column. Guard both edges, because otherwise threads beyond the last column do the work of the "
    "next row again.",
)


def _make_covering_grid(rows: int, cols: int, block: Dim3) -> tuple[int, int]:
    return draw.count_blocks(cols, block[0]), draw.count_blocks(rows, block[1])


def make_scale2d_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that doubles a row-major matrix, with its columns along x."""
    rows, cols = size
    x = data.floats((rows, cols))
    inputs = {"x": x, "rows": rows, "cols": cols}
    return Case(_make_covering_grid(rows, cols, block), inputs, {"y": 2 * x})


def make_add_row_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that adds the same row to each row of a matrix."""
    rows, cols = size
    m = data.floats((rows, cols))
    added_row = data.floats(cols)
    with np.errstate(invalid="ignore"):
        out = m + added_row
    inputs = {"m": m, "row": added_row, "rows": rows, "cols": cols}
    return Case(_make_covering_grid(rows, cols, block), inputs, {"out": out})


def make_squares_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that squares numbers. The launch has too few, enough or too many
    threads.
    """
    x = data.floats(size)
    full_block_count = draw.count_blocks(size, block[0])
    small_block_count = max(1, full_block_count // 5)  # about five iterations per thread
    tiny_block_count = int(data.rng.integers(1, 4))
    if size > 100_000:
        grid = tiny_block_count  # hundreds of iterations
    elif size == 100_000:
        grid = full_block_count  # more threads than 16 bits count
    elif size > 10_000:
        grid = small_block_count
    else:
        grid = (tiny_block_count, small_block_count, full_block_count, full_block_count + 2)[size % 4]
    with np.errstate(over="ignore", under="ignore"):
        return Case(grid, {"x": x, "n": size}, {"y": x * x})


def make_address_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel in which each thread stores its warp number, lane and y coordinate."""
    thread_numbers = np.arange(prod(block), dtype=np.int32)
    block_numbers = np.arange(prod(size), dtype=np.int32)
    expected: dict[str, Any] = {
        "warp": np.tile(thread_numbers // 32, block_numbers.size),
        "lane": np.tile(thread_numbers % 32, block_numbers.size),
    }
    # Warp and lane repeat in each block, so that only the row reveals a wrong order of blocks or threads. Its
    # coordinate, y, distinguishes every other order from x, y, z.
    block_y = block_numbers // size[0] % size[1]
    thread_y = thread_numbers // block[0] % block[1]
    expected["row"] = (block_y[:, None] * block[1] + thread_y).astype(np.int32).ravel()
    return Case(size, {}, expected)


def _draw_grids(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    a, b, c = (int(n) for n in rng.integers(2, 6, 3))
    return [
        (1, 1, 1),
        (a, 1, 1),
        (1, b, 1),
        (1, 1, c),
        (a, b, 1),
        (a, b + 1, c),
        (7, 5, 3),
        (threads_at_once // 256, 7, 1),
    ]


def _draw_block_shapes(rng: np.random.Generator) -> list[Dim3]:
    a, b, c = (int(n) for n in rng.integers(2, 7, 3))
    fixed_shapes: list[Dim3] = [(1, 1, 1), (1024, 1, 1), (2, 8, 64), (1, 1, 33)]
    # Several rows that are longer than a warp and do not end at a warp's end.
    wide_shape = (int(rng.integers(33, 64)), int(rng.integers(2, 5)), int(rng.integers(1, 4)))
    random_shapes = [
        (a, b, c),
        (int(rng.integers(33, 150)), 1, 1),
        (a + 7, b, 1),
        (1, int(rng.integers(130, 170)), c),  # two blocks in y have more rows than 8 bits count
        wide_shape,
    ]
    return [*random_shapes, *fixed_shapes]


def _draw_address_launches(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Draw two launches to count, with rows of threads that are shorter than a warp."""
    a, b, c, d = (int(n) for n in rng.integers(3, 8, 4))
    return [((a, b, 2), (d, 9, 5)), ((3, a, b), (c, 7 + d, 3))]


def _has_swapped_axes(mistake: Mistake) -> bool:
    """Return whether the unwritten elements are those that a grid with swapped x and y does not cover."""
    if mistake.initial_contents is None or not advice.is_partly_unwritten(mistake):
        return False
    grid_x, grid_y, _ = mistake.case.launch_grid
    block_x, block_y, _ = mistake.case.block
    row, col = np.indices(mistake.case.size)
    is_uncovered = (row >= grid_x * block_x) | (col >= grid_y * block_y)
    return bool((mistake.wrong_elements.reshape(mistake.case.size) == is_uncovered).all())


def _has_other_row_order(mistake: Mistake) -> bool:
    """Return whether the output `row` contains the right values in another order."""
    if mistake.name != "row" or mistake.actual_values is None or mistake.expected_values is None:
        return False
    return bool((np.sort(mistake.actual_values) == np.sort(mistake.expected_values)).all())


def _is_wrong_after_16_bits(mistake: Mistake) -> bool:
    """Return whether only elements after the first 65,536 are wrong, as with a 16-bit index."""
    return (
        mistake.actual_values is not None
        and mistake.wrong_elements.size > 1 << 16
        and not mistake.wrong_elements.ravel()[: 1 << 16].any()
    )


def judge_achieved(answer: Answer) -> str:
    """Judge a function that computes the achieved occupancy from the start and end times of the blocks."""
    rng = answer.rng
    for blocks, warps, sm_count, warp_slots, first_ns, unit_ns in (
        (1, 32, 1, 64, 1000, 1),
        (1, 8, 108, 64, 0, 1),
        (40, 4, 40, 32, 3000, 1),
        (500, 3, 132, 48, 7000, 1),
        # Blocks that take seconds and start minutes after the device.
        (2000, 2, 16, 64, int(rng.integers(1 << 33, 1 << 40)), 1_000_000),
        # Times in ns since 1970.
        (60, int(rng.integers(1, 17)), int(rng.integers(30, 200)), 48, 10**18, 10_000),
        (int(rng.integers(300, 3000)), 2, 132, 64, 10**18, 10_000),
        (int(rng.integers(2, 300)), int(rng.integers(1, 33)), int(rng.integers(2, 200)), 64, 0, 7),
    ):
        starts_ns = first_ns + unit_ns * rng.integers(0, 4000, blocks)
        _judge_trace(
            answer,
            starts_ns,
            starts_ns + unit_ns * rng.integers(100, 3000, blocks),
            warps,
            sm_count,
            warp_slots,
        )
    _judge_trace(answer, np.array([5000]), np.array([9000]), 64, 1, 64)
    equal_starts_ns = np.full(24, 10_000)
    # All slots are in use all the time.
    _judge_trace(answer, equal_starts_ns, equal_starts_ns + 2000, 8, 6, 32)
    no_blocks = np.array([], dtype=np.int64)
    result = call(
        answer,
        no_blocks,
        no_blocks,
        8,
        108,
        64,
        name="occupancy",
        shown="occupancy of a launch without blocks",
    )
    if not is_number(result) or result != 0:
        raise NotYet(f"the occupancy of a launch without blocks must be 0, not {short_repr(result)}.")
    return "your function computes achieved occupancy, including idle SMs and late starts."


def _judge_trace(
    answer: Answer, starts_ns: Any, ends_ns: Any, warps: int, sm_count: int, warp_slots: int
) -> None:
    durations_ns = ends_ns - starts_ns
    span_ns = int(ends_ns.max() - starts_ns.min())
    expected = warps * int(durations_ns.sum()) / (span_ns * sm_count * warp_slots)
    call_text = f"occupancy of {counted(len(starts_ns), 'block')} of {warps} warps on {sm_count} SMs"
    call_text = call_text.replace(" 1 SMs", " 1 SM")
    result = call(answer, starts_ns, ends_ns, warps, sm_count, warp_slots, name="occupancy", shown=call_text)
    if not is_number(result):
        raise NotYet(f"{call_text} returns {short_repr(result)}. Return one number.")
    result = as_float(result)
    # A float has 128 ns to spare at 10^18 ns.
    if np.isclose(result, expected, rtol=1e-6 if ends_ns.max() < 1 << 50 else 1e-3, atol=0):
        return
    message = f"{call_text} returns {result:.4g}, but it should be {expected:.4g}"
    with np.errstate(over="ignore"):
        narrow_sum = warps * int(durations_ns.astype(np.int32).sum(dtype=np.int32))
        narrow_results = [
            narrow_sum / (span_ns * sm_count * warp_slots),
            narrow_sum / (np.int32(span_ns & 0x7FFFFFFF) * float(sm_count * warp_slots)),
        ]
    mistaken_results = {
        100 * expected: "return a number from 0 to 1, not percent.",
        expected / warps: "a block uses one slot for each of its warps, not one in all.",
        expected * sm_count: "idle SMs also count: divide by the slots of all SMs.",
        expected * warp_slots: "divide by the number of slots of each SM as well.",
        expected
        * span_ns
        / max(int(ends_ns.max()), 1): "the launch starts when its first block starts, not at 0.",
        expected
        * span_ns
        / (int(ends_ns[-1] - starts_ns[0]) or 1): "the last block of the list need not end last.",
        warps
        * float(durations_ns.mean())
        / (span_ns * sm_count * warp_slots): "add up the times of the blocks instead of averaging them.",
        warps
        * len(starts_ns)
        / (sm_count * warp_slots): "blocks count only while they run: weight each block by its time.",
        expected
        * span_ns
        / int(durations_ns.sum()): "the time runs from the first start to the last end; blocks overlap.",
        expected
        * span_ns
        / int(durations_ns.max()): "the time runs from the first start to the last end of all blocks.",
        **dict.fromkeys(narrow_results, "these times do not fit into 32 bits."),
    }
    explanation = next(
        (
            mistake_explanation
            for mistaken_result, mistake_explanation in mistaken_results.items()
            if np.isclose(result, mistaken_result, rtol=1e-6, atol=0)
        ),
        "",
    )
    if not explanation and span_ns >= 1 << 31:
        explanation = (
            f"times reach {int(ends_ns.max()):,} ns, and their sum is {int(durations_ns.sum()):,}: check "
            "their data type."
        )
    raise NotYet(f"{message}{f': {explanation}' if explanation else '.'}")


_GUARD_TEXT = "Guard both edges: a thread has an element only if its row and its column are in the matrix."
_SHARED_ADVICE = Advice(
    advice.is_out_of_shared_memory,
    "A __shared__ array must be large enough for every block shape, up to 1,024 threads. You do not need "
    "one.",
)
_UNWRITTEN_ADVICE = Advice(
    advice.match_all(advice.is_partly_unwritten, advice.match_not(advice.is_unchanged)),
    "Some elements were never written. Each element needs a thread that stores its result, whatever the "
    "result is.",
)

EXERCISES = (
    KernelExercise(
        "02-stride",
        "Any launch will do",
        kernel="squares",
        parameters="const float* x, float* y, int n",
        forbids_double_writes=True,
        case=make_squares_case,
        reference="squares.cu",
        naive="squares_naive.cu",
        level="warm-up",
        budgets=(
            Budget(
                "sectors",
                "Let each thread process element i, and then the element that is a whole grid further on, so "
                "that neighbouring lanes access neighbouring elements.",
            ),
        ),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "The loop must end when i reaches n. A launch can have more threads than there are elements.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements had no thread. There can be fewer threads than elements, so each thread must "
                "continue, in steps of a whole grid (gridDim.x * blockDim.x).",
            ),
            Advice(advice.is_endless, "Does i grow in every iteration?"),
            Advice(
                advice.is_written_twice,
                "Several threads process the same elements. A whole grid has gridDim.x * blockDim.x threads.",
            ),
        ),
        measured_launch=MeasuredLaunch(1 << 16, max_instruction_factor=20),
        praise="the results are right for launches with too few, enough and too many threads.",
    ),
    KernelExercise(
        "02-index",
        "A matrix kernel",
        kernel="scale2d",
        parameters="const float* x, float* y, int rows, int cols",
        forbids_double_writes=True,
        case=make_scale2d_case,
        reference="scale2d.cu",
        naive="scale2d_naive.cu",
        sizes=draw.draw_matrix_sizes,
        blocks=draw.draw_plane_blocks,
        budgets=(_SECTOR_BUDGET,),
        measured_launch=MeasuredLaunch((130, 70), (32, 8, 1)),
        advice=(
            _SHARED_ADVICE,
            Advice(advice.is_out_of_bounds, f"{_GUARD_TEXT} The index is row * cols + col, with col from x."),
            Advice(
                advice.is_written_twice,
                f"Threads beyond the last column write into the next row. {_GUARD_TEXT}",
            ),
            Advice(
                _is_wrong_after_16_bits,
                "Rows and columns are ints, and 16 bits cannot represent more than 65,535.",
            ),
            Advice(
                _has_swapped_axes,
                "Some elements were never written. x counts columns and y counts rows, and the index is "
                "row * cols + col.",
            ),
            _UNWRITTEN_ADVICE,
        ),
        praise="the results are right for square, wide and tall matrices, for ragged edges on both sides "
        "and any block.",
    ),
    KernelExercise(
        "02-repair",
        "Repair: add a row",
        kernel="add_row",
        parameters="const float* m, const float* row, float* out, int rows, int cols",
        forbids_double_writes=True,
        case=make_add_row_case,
        reference="add_row.cu",
        naive="add_row_naive.cu",
        kind="repair",
        sizes=draw.draw_matrix_sizes,
        blocks=draw.draw_plane_blocks,
        budgets=(_SECTOR_BUDGET,),
        measured_launch=MeasuredLaunch((130, 70), (32, 8, 1)),
        advice=(
            _SHARED_ADVICE,
            Advice(
                advice.is_fault("out of bounds", "row"),
                f"`row` has one element for each column. {_GUARD_TEXT}",
            ),
            Advice(
                advice.is_out_of_bounds,
                f"{_GUARD_TEXT} From one row to the next, the position grows by `cols`.",
            ),
            Advice(
                advice.is_written_twice,
                f"Threads beyond the last column write into the next row. {_GUARD_TEXT}",
            ),
            Advice(
                _has_swapped_axes,
                "Some elements were never written: the grid covers the columns in x and the rows in y.",
            ),
            _UNWRITTEN_ADVICE,
        ),
        praise="all three flaws are fixed.",
    ),
    PythonExercise("02-achieved", "Achieved occupancy", judge_achieved),
    KernelExercise(
        "02-address",
        "Any shape at all",
        kernel="address",
        parameters="int* warp, int* lane, int* row",
        forbids_double_writes=True,
        case=make_address_case,
        table=(
            SpecialInput(
                "more blocks than 16 bits can count",
                make_address_case,
                ((66_000, 1, 1), (3, 22_000, 1)),
                (2, 1, 1),
            ),
        ),
        reference="address.cu",
        level="stretch",
        sizes=_draw_grids,
        blocks=_draw_block_shapes,
        measured_launch=MeasuredLaunch((4, 3, 2), (8, 8, 4), draw_launches=_draw_address_launches),
        budgets=(
            Budget(
                "sectors",
                "Neighbouring lanes should write to neighbouring positions: count along x first, then y, "
                "then z.",
            ),
        ),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "g must run from 0 to the number of all threads minus 1, without gaps.",
            ),
            Advice(
                advice.is_written_twice,
                "Two threads have the same g. Number blocks and threads along x first, then y, then z.",
            ),
            Advice(
                _has_other_row_order,
                "Blocks or threads are in another order. Number both along x first, then y, then z.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written. Do you use all three dimensions of grid and block?",
            ),
        ),
        praise="every thread writes the right numbers, for every shape.",
    ),
)
