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
    Draw,
    KernelExercise,
    Measured,
    Mistake,
    NotYet,
    PythonExercise,
    Row,
    advice,
    as_float,
    call,
    draw,
    is_number,
    spelt,
)
from virtualgpu.records import Dim3

_SECTORS = Budget(
    "sectors",
    "Neighbouring lanes should touch neighbouring elements, so let x, which runs fastest within a warp, "
    "run along the columns; and guard both edges, or threads beyond the last column do the next row's "
    "work once more.",
)


def _covering(rows: int, cols: int, block: Dim3) -> tuple[int, int]:
    return draw.blocks_for(cols, block[0]), draw.blocks_for(rows, block[1])


def scale2d(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Twice a row-major matrix, x along the columns."""
    rows, cols = size
    x = drawn.floats((rows, cols))
    values = {"x": x, "rows": rows, "cols": cols}
    return Case(_covering(rows, cols, block), values, {"y": 2 * x})


def add_row(drawn: Draw, size: Any, block: Dim3) -> Case:
    """The same row added to each row of a matrix."""
    rows, cols = size
    m = drawn.floats((rows, cols))
    row = drawn.floats(cols)
    with np.errstate(invalid="ignore"):
        out = m + row
    values = {"m": m, "row": row, "rows": rows, "cols": cols}
    return Case(_covering(rows, cols, block), values, {"out": out})


def squares(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Squares, with too few, enough or too many threads."""
    x = drawn.floats(size)
    enough = draw.blocks_for(size, block[0])
    few = max(1, enough // 5)  # so many rounds for each thread
    several = int(drawn.rng.integers(1, 4))
    if size > 100_000:
        grid = several  # hundreds of rounds
    elif size == 100_000:
        grid = enough  # more threads than 16 bits count
    else:
        grid = few if size > 10_000 else (several, few, enough, enough + 2)[size % 4]
    with np.errstate(over="ignore", under="ignore"):
        return Case(grid, {"x": x, "n": size}, {"y": x * x})


def address(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Warp within the block, lane and row of every thread of a grid of up to three dimensions."""
    in_block = np.arange(prod(block), dtype=np.int32)
    blocks = np.arange(prod(size), dtype=np.int32)
    wanted: dict[str, Any] = {
        "warp": np.tile(in_block // 32, blocks.size),
        "lane": np.tile(in_block % 32, blocks.size),
    }
    # Without it, blocks and threads that are numbered otherwise would leave the same: of all coordinates, y
    # alone tells every other order from x, y, z.
    of_block = blocks // size[0] % size[1]
    thread_state = in_block // block[0] % block[1]
    wanted["row"] = (of_block[:, None] * block[1] + thread_state).astype(np.int32).ravel()
    return Case(size, {}, wanted)


def _grids(rng: np.random.Generator, at_once: int) -> list[Any]:
    a, b, c = (int(n) for n in rng.integers(2, 6, 3))
    return [
        (1, 1, 1),
        (a, 1, 1),
        (1, b, 1),
        (1, 1, c),
        (a, b, 1),
        (a, b + 1, c),
        (7, 5, 3),
        (at_once // 256, 7, 1),
    ]


def _boxes(rng: np.random.Generator) -> list[Dim3]:
    a, b, c = (int(n) for n in rng.integers(2, 7, 3))
    fixed: list[Dim3] = [(1, 1, 1), (1024, 1, 1), (2, 8, 64), (1, 1, 33)]
    # Rows that are longer than a warp and do not end with one, too, above each other.
    wide = (int(rng.integers(33, 64)), int(rng.integers(2, 5)), int(rng.integers(1, 4)))
    drawn = [
        (a, b, c),
        (int(rng.integers(33, 150)), 1, 1),
        (a + 7, b, 1),
        (1, int(rng.integers(130, 170)), c),  # with two blocks above each other more rows than a byte counts
        wide,
    ]
    return [*drawn, *fixed]


def _address_costs(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Other grids and boxes, in which a row of threads is shorter than a warp as well."""
    a, b, c, d = (int(n) for n in rng.integers(3, 8, 4))
    return [((a, b, 2), (d, 9, 5)), ((3, a, b), (c, 7 + d, 3))]


def _swapped(m: Mistake) -> bool:
    """Return whether just those elements are unwritten that a grid with swapped x and y leaves out."""
    if m.start is None or not advice.partly_unwritten(m):
        return False
    (wide, high, _), (along, down, _) = m.case.launch_grid, m.case.block
    row, col = np.indices(m.case.size)
    beyond = (row >= wide * along) | (col >= high * down)
    return bool((m.wrong.reshape(m.case.size) == beyond).all())


def _another_order(m: Mistake) -> bool:
    """Return whether all rows are there, but in another order."""
    if m.name != "row" or m.found is None or m.wanted is None:
        return False
    return bool((np.sort(m.found) == np.sort(m.wanted)).all())


def _in_16_bits(m: Mistake) -> bool:
    """Return whether only elements after the first 65,536 are wrong, as with an index of 16 bits."""
    return m.found is not None and m.wrong.size > 1 << 16 and not m.wrong.ravel()[: 1 << 16].any()


def judge_achieved(answer: Answer) -> str:
    """``occupancy(start_ns, end_ns, warps_per_block, sm_count, places)``: achieved, from 0 to 1."""
    rng = answer.rng
    for blocks, warps, sms, places, first_ns, unit_ns in (
        (1, 32, 1, 64, 1000, 1),
        (1, 8, 108, 64, 0, 1),
        (40, 4, 40, 32, 3000, 1),
        (500, 3, 132, 48, 7000, 1),
        (
            2000,
            2,
            16,
            64,
            int(rng.integers(1 << 33, 1 << 40)),
            1_000_000,
        ),  # of seconds, minutes after the start
        (60, int(rng.integers(1, 17)), int(rng.integers(30, 200)), 48, 10**18, 10_000),  # since 1970
        (int(rng.integers(300, 3000)), 2, 132, 64, 10**18, 10_000),
        (int(rng.integers(2, 300)), int(rng.integers(1, 33)), int(rng.integers(2, 200)), 64, 0, 7),
    ):
        start = first_ns + unit_ns * rng.integers(0, 4000, blocks)
        _judge_trace(answer, start, start + unit_ns * rng.integers(100, 3000, blocks), warps, sms, places)
    _judge_trace(answer, np.array([5000]), np.array([9000]), 64, 1, 64)
    together = np.full(24, 10_000)
    _judge_trace(answer, together, together + 2000, 8, 6, 32)  # every place is taken all the time
    empty = np.array([], dtype=np.int64)
    found = call(
        answer, empty, empty, 8, 108, 64, name="occupancy", shown="occupancy of a launch without blocks"
    )
    if not is_number(found) or found != 0:
        raise NotYet(f"a launch without blocks has occupancy 0, not {spelt(found)}.")
    return "achieved occupancy, idle SMs and late starts included."


def _judge_trace(answer: Answer, start: Any, end: Any, warps: int, sms: int, places: int) -> None:
    durations = end - start
    span = int(end.max() - start.min())
    right = warps * int(durations.sum()) / (span * sms * places)
    shown = f"occupancy of {counted(len(start), 'block')} of {warps} warps on {sms} SMs"
    shown = shown.replace(" 1 SMs", " 1 SM")
    found = call(answer, start, end, warps, sms, places, name="occupancy", shown=shown)
    if not is_number(found):
        raise NotYet(f"{shown} gives {spelt(found)}: return one number.")
    found = as_float(found)
    # A float has 128 ns to spare at 10^18 ns.
    if np.isclose(found, right, rtol=1e-6 if end.max() < 1 << 50 else 1e-3, atol=0):
        return
    said = f"{shown} is {right:.4g}, yours says {found:.4g}"
    with np.errstate(over="ignore"):
        held = warps * int(durations.astype(np.int32).sum(dtype=np.int32))
        narrow = [held / (span * sms * places), held / (np.int32(span & 0x7FFFFFFF) * float(sms * places))]
    guesses = {
        100 * right: "give a share from 0 to 1, not percent.",
        right / warps: "a block holds a place for each of its warps, not one.",
        right * sms: "idle SMs count: divide by the places of all of them.",
        right * places: "divide by the places that each SM has.",
        right * span / max(int(end.max()), 1): "the launch begins with the first block's start, not at 0.",
        right * span / (int(end[-1] - start[0]) or 1): "the last block of the list need not end last.",
        warps
        * float(durations.mean())
        / (span * sms * places): "add up the blocks' times instead of averaging them.",
        warps * len(start) / (sms * places): "blocks count only while they run: weight each by its time.",
        right
        * span
        / int(durations.sum()): "the time runs from the first start to the last end; blocks overlap.",
        right
        * span
        / int(durations.max()): "the time runs from the first start to the last end of all blocks.",
        **dict.fromkeys(narrow, "these times do not fit into 32 bits."),
    }
    why = next((text for guess, text in guesses.items() if np.isclose(found, guess, rtol=1e-6, atol=0)), "")
    if not why and span >= 1 << 31:
        why = f"times reach {int(end.max()):,} ns, and add up to {int(durations.sum()):,}: mind their type."
    raise NotYet(f"{said}{f': {why}' if why else '.'}")


_GUARD = "Guard both edges: a thread belongs to the matrix only if its row and its column do."
_SMALL = Advice(
    advice.out_of_shared,
    "A __shared__ array has to be large enough for every block shape, up to 1,024 threads; none is needed.",
)
_UNWRITTEN = Advice(
    advice.both(advice.partly_unwritten, advice.not_(advice.unchanged)),
    "Some elements were never written: each of them has a thread that stores its result, whatever it is.",
)

EXERCISES = (
    KernelExercise(
        "02-stride",
        "Any launch will do",
        kernel="squares",
        parameters="const float* x, float* y, int n",
        once=True,
        case=squares,
        reference="squares.cu",
        naive="squares_naive.cu",
        level="warm-up",
        budgets=(
            Budget(
                "sectors",
                "Let each thread take element i, then the one a whole grid further on, so that "
                "neighbouring "
                "lanes stay neighbours.",
            ),
        ),
        advice=(
            Advice(
                advice.out_of_bounds,
                "The loop ends where i reaches n; a launch may have more threads than there are elements.",
            ),
            Advice(
                advice.partly_unwritten,
                "Some elements had no thread: there may be fewer threads than elements, so each goes on, a "
                "whole grid (gridDim.x * blockDim.x) at a time.",
            ),
            Advice(advice.endless, "Does i grow in every round?"),
            Advice(
                advice.written_twice,
                "Threads do each other's work again: a whole grid is gridDim.x * blockDim.x.",
            ),
        ),
        measured=Measured(1 << 16, slack=20),
        praise="right for launches with too few, enough and too many threads.",
    ),
    KernelExercise(
        "02-index",
        "A matrix kernel",
        kernel="scale2d",
        parameters="const float* x, float* y, int rows, int cols",
        once=True,
        case=scale2d,
        reference="scale2d.cu",
        naive="scale2d_naive.cu",
        sizes=draw.matrices,
        blocks=draw.planes,
        budgets=(_SECTORS,),
        measured=Measured((130, 70), (32, 8, 1)),
        advice=(
            _SMALL,
            Advice(advice.out_of_bounds, f"{_GUARD} The index is row * cols + col, with col from x."),
            Advice(advice.written_twice, f"Threads beyond the last column write into the next row. {_GUARD}"),
            Advice(_in_16_bits, "Rows and columns are ints: 16 bits count no further than 65,535."),
            Advice(
                _swapped,
                "Some elements were never written: x counts columns and y counts rows; the index is "
                "row * cols + col.",
            ),
            _UNWRITTEN,
        ),
        praise="right for square, wide and tall matrices, for ragged edges on both sides and any block.",
    ),
    KernelExercise(
        "02-repair",
        "Repair: add a row",
        kernel="add_row",
        parameters="const float* m, const float* row, float* out, int rows, int cols",
        once=True,
        case=add_row,
        reference="add_row.cu",
        naive="add_row_naive.cu",
        kind="repair",
        sizes=draw.matrices,
        blocks=draw.planes,
        budgets=(_SECTORS,),
        measured=Measured((130, 70), (32, 8, 1)),
        advice=(
            _SMALL,
            Advice(advice.fault("out of bounds", "row"), f"`row` has one element for each column. {_GUARD}"),
            Advice(advice.out_of_bounds, f"{_GUARD} From one row to the next it is `cols` elements."),
            Advice(advice.written_twice, f"Threads beyond the last column write into the next row. {_GUARD}"),
            Advice(
                _swapped,
                "Some elements were never written: the grid covers the columns in x and the rows in y.",
            ),
            _UNWRITTEN,
        ),
        praise="all three flaws are mended.",
    ),
    PythonExercise("02-achieved", "Achieved occupancy", judge_achieved),
    KernelExercise(
        "02-address",
        "Any shape at all",
        kernel="address",
        parameters="int* warp, int* lane, int* row",
        once=True,
        case=address,
        table=(Row("more blocks than 16 bits count", address, ((66_000, 1, 1), (3, 22_000, 1)), (2, 1, 1)),),
        reference="address.cu",
        level="stretch",
        sizes=_grids,
        blocks=_boxes,
        measured=Measured((4, 3, 2), (8, 8, 4), drawn=_address_costs),
        budgets=(
            Budget(
                "sectors",
                "Lanes that follow each other should write to neighbouring places: x is counted first, "
                "then y, then z.",
            ),
        ),
        advice=(
            Advice(advice.out_of_bounds, "g runs from 0 to the number of all threads, without gaps."),
            Advice(
                advice.written_twice,
                "Two threads have the same g: blocks and threads are numbered x fastest, then y, then z.",
            ),
            Advice(
                _another_order,
                "Blocks or threads stand in another order: both are numbered x fastest, then y, then z.",
            ),
            Advice(
                advice.partly_unwritten,
                "Some places were never written: do all three dimensions of grid and block count?",
            ),
        ),
        praise="every thread of every shape knows its place.",
    ),
)
