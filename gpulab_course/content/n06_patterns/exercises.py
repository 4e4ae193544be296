"""Exercises of notebooks 06a and 06b."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab_course.teach.judge import (
    Advice,
    Budget,
    Case,
    DataGenerator,
    ExpectedFloats,
    KernelExercise,
    MeasuredLaunch,
    Mistake,
    SpecialInput,
    advice,
    draw,
)
from virtualgpu.records import Dim3

_INT_MIN = np.iinfo(np.int32).min
_WARP_SIZE = 32
# Numbers up to this one can be too large for a float's precision, but 32 of them do not overflow an int.
_LARGE_INT = 1 << 25


def make_block_stats_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that computes the sum and the maximum of each block's elements.

    Some blocks have only negative numbers.
    """
    blocks = draw.count_blocks(size, block[0])
    threads = block[0]
    max_magnitude = (1 << 31) // max(threads, 4)  # sums of a block fit into an int, but a float rounds them
    x = data.integers(size, -max_magnitude, max_magnitude)
    is_negative = np.repeat(data.rng.random(blocks) < 0.4, threads)[:size]
    return _make_stats_case(np.where(is_negative & (x > 0), ~x, x), block)


def _make_stats_case(x: Any, block: Dim3) -> Case:
    size = x.size
    threads = block[0]
    blocks = draw.count_blocks(size, threads)
    block_sums = np.zeros(blocks, np.int32)
    block_maxima = np.full(blocks, _INT_MIN, np.int32)
    for index in range(-(-size // threads)):
        elements = x[index * threads : (index + 1) * threads]
        block_sums[index] = elements.sum(dtype=np.int32)  # wraps around, as int does on the device
        block_maxima[index] = elements.max()
    return Case(blocks, {"x": x, "n": size}, {"sums": block_sums, "largest": block_maxima})


def _make_last_differs_case(
    data: DataGenerator, size: Any, block: Dim3, value: int, other_value: int
) -> Case:
    """Return a test case with equal elements, except the last element of each full block."""
    x = np.full(size, other_value, np.int32)
    x[block[0] - 1 :: block[0]] = value
    return _make_stats_case(x, block)


def _make_any_ints_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    return _make_stats_case(data.rng.integers(_INT_MIN, -_INT_MIN, size).astype(np.int32), block)


_STATS_ROWS = (
    SpecialInput("any ints", _make_any_ints_case, (1, 33, 1000)),
    SpecialInput(
        "the largest int last, others just below",
        lambda data, n, block: _make_last_differs_case(data, n, block, -_INT_MIN - 1, -_INT_MIN - 2),
    ),
    SpecialInput(
        "all elements the smallest int",
        lambda data, n, block: _make_last_differs_case(data, n, block, _INT_MIN, _INT_MIN),
        (1, 40),
    ),
    SpecialInput(
        "zeros and one -1 per block", lambda data, n, block: _make_last_differs_case(data, n, block, -1, 0)
    ),
    SpecialInput("all -1", lambda data, n, block: _make_last_differs_case(data, n, block, -1, -1)),
)


def draw_warp_scan_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that computes inclusive prefix sums within each warp."""
    return _make_warp_scan_case(data.integers(size, -_LARGE_INT, _LARGE_INT), block)


def _make_warp_scan_case(x: Any, block: Dim3) -> Case:
    warp_sums = _split_by_warp(x).cumsum(axis=1, dtype=np.int32)
    return Case(
        draw.count_blocks(x.size, block[0]), {"x": x, "n": x.size}, {"y": warp_sums.ravel()[: x.size]}
    )


def _split_by_warp(x: Any) -> Any:
    """Return the elements with one row per warp; missing elements are 0."""
    padded_x = np.zeros(-(-x.size // _WARP_SIZE) * _WARP_SIZE, x.dtype)
    padded_x[: x.size] = x
    return padded_x.reshape(-1, _WARP_SIZE)


def _make_repeated_case(*values: int) -> Any:
    """Return a function that creates a warp scan test case whose input repeats the given numbers."""
    return lambda data, size, block: _make_warp_scan_case(np.resize(np.array(values, np.int32), size), block)


_WARP_SCAN_ROWS = (
    SpecialInput("all 1", _make_repeated_case(1)),
    SpecialInput("all 0 but the last lane", _make_repeated_case(*[0] * 31, 5)),
    SpecialInput("all 0 but the first lane", _make_repeated_case(7, *[0] * 31)),
    SpecialInput("large numbers that cancel", _make_repeated_case((1 << 31) - 1, -(1 << 31) + 1)),
)


def draw_scan_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that computes the exclusive prefix sums of an array.

    The prefix sums are drawn at random, and each element is the difference between neighbouring sums. Thus
    sums of both signs are large, but fit into an int. Some sums at the ends of blocks are 0, 1 or -1, which
    an answer may also use as a flag.
    """
    threads = block[0]
    max_magnitude = 1 << (30 if data.kind == draw.EXTREME_VALUES else int(data.rng.choice((12, 30))))
    prefix_sums = data.integers(size + 1, -max_magnitude, max_magnitude, np.int64)
    prefix_sums[0] = 0
    block_ends = np.arange(0, size + 1, threads)
    end_sums = np.where(
        data.rng.random(block_ends.size) < 0.2,
        data.rng.choice((0, 1, -1), block_ends.size),
        prefix_sums[block_ends],
    )
    for k in np.flatnonzero(data.rng.random(block_ends.size - 1) < 0.2):
        end_sums[k + 1] = end_sums[k] + data.rng.choice((0, -1))  # the sum of one block is 0 or -1
    prefix_sums[block_ends[1:]] = end_sums[1:]
    return _make_scan_case(prefix_sums, block)


def _make_scan_case(prefix_sums: Any, block: Dim3) -> Case:
    """Return a scan test case whose results are `prefix_sums`. The last element of `prefix_sums` is the
    total.
    """
    blocks = draw.count_blocks(prefix_sums.size - 1, block[0])
    scan_state = np.zeros(2 * blocks + 2, np.int32)
    x = np.diff(prefix_sums).astype(np.int32)
    return Case(blocks, {"x": x, "state": scan_state, "n": x.size}, {"y": prefix_sums[:-1].astype(np.int32)})


def _make_extreme_sums_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a scan test case whose sums at block ends are the largest int, the smallest int, or near 0."""
    extreme_sums = (0, -_INT_MIN - 1, 0, _INT_MIN, -1)
    sum_positions = np.arange(size + 1)
    end_sums = np.array(
        [extreme_sums[i % len(extreme_sums)] for i in range(size // block[0] + 2)], np.float64
    )
    return _make_scan_case(
        np.rint(np.interp(sum_positions, block[0] * np.arange(end_sums.size), end_sums)).astype(np.int64),
        block,
    )


_SCAN_ROWS = (
    SpecialInput("sums at both ends of the range of an int", _make_extreme_sums_case, (300, 1000)),
    SpecialInput("all 0", lambda data, n, block: _make_scan_case(np.zeros(n + 1, np.int64), block)),
    SpecialInput("all -1", lambda data, n, block: _make_scan_case(-np.arange(n + 1), block)),
    SpecialInput(
        "large numbers that cancel within each block",
        lambda data, n, block: _make_scan_case(
            np.where(np.arange(n + 1) % block[0] == 0, 0, -_INT_MIN - 1), block
        ),
    ),
)


def draw_compact_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that moves all positive elements to the front and keeps their order."""
    x = data.any_integers(size)
    blocks = draw.count_blocks(size, block[0])
    threads = block[0]
    block_signs = np.repeat(data.rng.choice((0, 0, 1, -1), blocks), threads)[:size]
    x = np.where((block_signs > 0) & (x <= 0), np.maximum(~x, 1), x)
    x = np.where((block_signs < 0) & (x > 0), ~x, x)
    return _make_compact_case(data, x, block)


def _make_compact_case(data: DataGenerator, x: Any, block: Dim3) -> Case:
    size = x.size
    threads = block[0]
    blocks = draw.count_blocks(size, threads)
    positive_values = x[x > 0]
    out = data.integers(size + 8, 1, 10**9)  # values of an earlier use
    expected = out.copy()
    expected[: positive_values.size] = positive_values
    previous_counts = np.concatenate(([0], np.cumsum(x > 0)))[np.arange(blocks) * threads].astype(np.int32)
    inputs = {"x": x, "before": previous_counts, "out": out, "n": size}
    return Case(blocks, inputs, {"out": expected, "count": np.array([positive_values.size], np.int32)})


def _make_repeated_values_case_maker(*values: int, interval: int = 1) -> Any:
    """Return a function that creates a compaction test case: repeated numbers, with zeros between them."""

    def make_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
        x = np.zeros(size, np.int32)
        x[::interval] = np.resize(np.array(values, np.int32), -(-size // interval))
        return _make_compact_case(data, x[::-1].copy(), block)

    return make_case


_COMPACT_ROWS = (
    SpecialInput("all kept", _make_repeated_values_case_maker(7, 1, -_INT_MIN - 1)),
    SpecialInput("none kept", _make_repeated_values_case_maker(0, -1, _INT_MIN)),
    SpecialInput("every second kept", _make_repeated_values_case_maker(5, interval=2)),
    SpecialInput("one of every 40 kept", _make_repeated_values_case_maker(3, interval=40)),
    SpecialInput("all but one of every 5 kept", _make_repeated_values_case_maker(1, 2, 3, 4, _INT_MIN)),
)


def make_blur_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that averages 5 × 5 pixels, with fewer blocks than tiles in y.

    Outside the picture, the nearest pixel is used.
    """
    rows, cols = size
    x = data.integer_floats(size, -1000, 1000) / np.float32(16)  # fractions whose sums are exact
    if data.kind in (draw.INFINITE_VALUES, draw.NAN_VALUES):
        is_special = data.rng.random(size) < 0.02
        x[is_special] = np.inf if data.kind == draw.INFINITE_VALUES else np.nan
    data.has_special_values = True
    padded_x = np.pad(x.astype(np.float64), 2, mode="edge")
    window_sums: Any = sum(padded_x[dy : dy + rows, dx : dx + cols] for dy in range(5) for dx in range(5))
    tile_rows = draw.count_blocks(rows, block[1])
    grid = draw.count_blocks(cols, block[0]), int(data.rng.integers(1, tile_rows + 1))
    shared_bytes = 4 * (block[0] + 4) * (block[1] + 4)
    expected = (window_sums / 25).astype(np.float32)
    return Case(grid, {"x": x, "rows": rows, "cols": cols}, {"y": expected}, shared_bytes)


# The first two rows have values around 0: the first one with much -infinity, the second without it. They help
# to distinguish mistakes.
_PLAIN_ROW_COUNT = 2


def draw_softmax_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that computes the softmax of rows. Some rows contain only -infinity."""
    rows, cols = size
    row_offsets = data.rng.choice((0, 0, 100, -100, 3000, -30_000, -1e31), (rows, 1))
    row_offsets[:_PLAIN_ROW_COUNT] = 0
    x = data.rng.uniform(-2, 2, size) + row_offsets
    is_rising = data.rng.random(rows) < 0.3  # every element is the largest so far
    x[is_rising] = np.sort(x[is_rising], axis=1)
    is_steep = data.rng.random(rows) < 0.2
    is_steep[:_PLAIN_ROW_COUNT] = False
    x[is_steep] += np.linspace(0, 60, cols)[:: data.rng.choice((1, -1))]
    if data.kind == draw.DUPLICATE_VALUES:
        x = np.rint(x)
    is_masked = data.rng.random(size) < data.rng.choice((0, 0, 0.3, 0.9), (rows, 1))
    is_masked |= np.arange(cols) < data.rng.choice((0, 0, 0, 33, 200, cols), (rows, 1))
    if rows > _PLAIN_ROW_COUNT:
        is_masked[0] = (np.arange(cols) < 33) | (data.rng.random(cols) < 0.5)
        is_masked[0, -1] = False
        is_masked[1] = False
    return _make_softmax_case(np.where(is_masked, -np.inf, x).astype(np.float32))


def _make_softmax_case(x: Any) -> Case:
    rows, cols = x.shape
    wide_x = x.astype(np.float64)
    row_maxima = wide_x.max(axis=1, keepdims=True)
    exponentials = np.exp(wide_x - np.where(np.isfinite(row_maxima), row_maxima, 0))
    row_sums = exponentials.sum(axis=1, keepdims=True)
    expected = exponentials / np.where(row_sums > 0, row_sums, 1)
    # The argument of a fast exponential is up to 64, and its rounding error becomes a relative error.
    comparison = ExpectedFloats(expected.astype(np.float32), np.where(np.isinf(x), 0, expected), ulps=160)
    return Case(rows, {"x": x, "rows": rows, "cols": cols}, {"y": comparison})


def _make_extreme_scores_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a softmax test case. Each of its rows has only one finite score, equal scores, or scores at both
    ends of a float's range.
    """
    x = np.full(size, -np.inf, np.float32)
    rows, cols = size
    for row in range(rows):
        match row % 7:
            case 0 | 1 | 2:
                x[row, (0, cols - 1, cols // 2)[row % 7]] = (5, -3.4e38, 3.4e38)[row % 7]
            case 3:
                x[row] = 1e5
            case 4:
                x[row] = np.where(np.arange(cols) % 2, 3e38, -3e38)
            case 5:
                x[row] = np.where(np.arange(cols) % 3, -np.inf, -100.5)
    return _make_softmax_case(x)


def _draw_picture_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw sizes as `draw.draw_matrix_sizes` does, and add a picture with a few long rows."""
    return [
        *draw.draw_matrix_sizes(rng, threads_at_once),
        (int(rng.integers(3, 5)), int(rng.integers(1025, 1200))),
    ]


def _draw_row_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw sizes (rows, columns) with few and many columns, around a warp and a block, and long rows."""
    a, b = (int(n) for n in rng.integers(2, 40, 2))
    long_row = int(rng.integers(1025, 2200))
    small_sizes = [(6, 64), (1, 1), (3, 1), (a, 31), (5, 32), (b, 33), (7, int(rng.integers(34, 300)))]
    return [
        *small_sizes,
        (4, int(rng.integers(513, 1000))),
        (2, long_row),
        (3, 4 * 1024 + a),
        (900, int(rng.integers(73, 95))),  # more than 16 bits count
    ]


def _compute_sums_by_halving(mistake: Mistake) -> Any:
    """Return the sums that result if each halving drops the last of an odd number of elements."""
    threads = mistake.case.block[0]
    padded_x = np.zeros(mistake.case.launch_grid[0] * threads, np.int32)
    padded_x[: mistake["n"]] = mistake["x"]
    partial_sums: Any = padded_x.reshape(-1, threads)
    while partial_sums.shape[1] > 1:
        half_width = partial_sums.shape[1] // 2
        partial_sums = partial_sums[:, :half_width] + partial_sums[:, half_width : 2 * half_width]
    return partial_sums[:, 0]


def _is_maximum_with_zero(mistake: Mistake) -> bool:
    if mistake.name != "largest" or mistake.actual_values is None or mistake.expected_values is None:
        return False
    return bool((mistake.actual_values == np.maximum(mistake.expected_values, 0)).all())


def _is_rounded_to_float(mistake: Mistake) -> bool:
    """Return whether all results are approximately right and have only the precision of a float."""
    if mistake.actual_values is None or not advice.is_nearly_right(mistake):
        return False
    is_float_exact = bool(
        (mistake.actual_values.astype(np.float32).astype(np.int64) == mistake.actual_values).all()
    )
    return is_float_exact and int((np.abs(mistake.actual_values.astype(np.int64)) > 1 << 26).sum()) > 2


def _compute_scan_of_own_values(mistake: Mistake) -> Any:
    """Return the scan that results if lanes without a left neighbour add their own value."""
    warp_rows = _split_by_warp(mistake["x"])
    for lane_distance in (1, 2, 4, 8, 16):
        warp_rows = warp_rows + np.concatenate(
            (warp_rows[:, :lane_distance], warp_rows[:, :-lane_distance]), axis=1
        )
    return warp_rows.ravel()[: mistake["x"].size]


def _compute_exclusive_scan(mistake: Mistake) -> Any:
    warp_rows = _split_by_warp(mistake["x"])
    return (warp_rows.cumsum(axis=1, dtype=np.int32) - warp_rows).ravel()[: mistake["x"].size]


def _compute_scan_from_right(mistake: Mistake) -> Any:
    warp_sums = _split_by_warp(mistake["x"])[:, ::-1].cumsum(axis=1, dtype=np.int32)[:, ::-1]
    return warp_sums.ravel()[: mistake["x"].size]


def _compute_block_scan(mistake: Mistake) -> Any:
    """Return inclusive prefix sums that start again at each block instead of at each warp."""
    prefix_sums = np.cumsum(mistake["x"], dtype=np.int32)
    block_starts = np.arange(prefix_sums.size) // mistake.case.block[0] * mistake.case.block[0]
    return prefix_sums - np.where(block_starts > 0, prefix_sums[block_starts - 1], 0)


def _is_only_later_lanes_wrong(mistake: Mistake) -> bool:
    """Return whether the first two lanes of each warp are right, and later lanes are wrong."""
    if mistake.actual_values is None or mistake["n"] < _WARP_SIZE:
        return False
    wrong_lanes_by_warp = _split_by_warp(mistake.wrong_elements)
    return bool(not wrong_lanes_by_warp[:, :2].any() and wrong_lanes_by_warp[:, 2:].any())


def _compute_inclusive_scan(mistake: Mistake) -> Any:
    return np.cumsum(mistake["x"], dtype=np.int32)


def _is_right_in_first_block(mistake: Mistake) -> bool:
    """Return whether the results of the first block are right."""
    return mistake.actual_values is not None and not mistake.wrong_elements[: mistake.case.block[0]].any()


def _has_same_elements(mistake: Mistake) -> bool:
    if mistake.name != "out" or mistake.actual_values is None or mistake.expected_values is None:
        return False
    return sorted(mistake.actual_values.tolist()) == sorted(mistake.expected_values.tolist())


def _is_only_tail_wrong(mistake: Mistake) -> bool:
    """Return whether all kept elements are right, and only elements after them are wrong."""
    if mistake.name != "out" or mistake.actual_values is None:
        return False
    return not mistake.wrong_elements[: int((mistake["x"] > 0).sum())].any()


def _shows_uninitialized_nan(mistake: Mistake) -> bool:
    """Return whether the result contains NaN although all inputs are finite, as from uninitialized memory."""
    if mistake.actual_values is None or not _is_picture_larger_than(mistake, 0):
        return False
    return bool(
        np.isfinite(mistake["x"]).all() and np.isnan(mistake.actual_values[mistake.wrong_elements]).any()
    )


def _is_only_edges_wrong(mistake: Mistake) -> bool:
    """Return whether only pixels within 2 of the picture's edges are wrong."""
    return _is_picture_larger_than(mistake) and not mistake.wrong_elements[2:-2, 2:-2].any()


def _is_picture_larger_than(mistake: Mistake, min_side: int = 4) -> bool:
    """Return whether the mistake has a result, for a picture larger than `min_side` in both directions."""
    return mistake.actual_values is not None and mistake["rows"] > min_side and mistake["cols"] > min_side


_EXP_LIMIT = 80  # beyond it, the exponential overflows or is about 0


def _is_only_masked_rows_wrong(mistake: Mistake) -> bool:
    """Return whether all wrong rows contain -infinity and only 0 or NaN as results.

    Return False if the largest scores of all wrong rows are beyond `_EXP_LIMIT`: overflow explains these.
    """
    if mistake.actual_values is None or mistake.wrong_elements[np.isfinite(mistake["x"]).all(axis=1)].any():
        return False
    row_maxima = mistake["x"].max(axis=1)[mistake.wrong_elements.any(axis=1)]
    if (np.isfinite(row_maxima) & (np.abs(row_maxima) > _EXP_LIMIT)).all():
        return False
    results_of_wrong_rows = mistake.actual_values[mistake.wrong_elements.any(axis=1)]
    return bool((np.isnan(results_of_wrong_rows) | (results_of_wrong_rows == 0)).all())


def _is_only_low_rows_wrong(mistake: Mistake) -> bool:
    """Return whether all wrong rows have low scores and the result 0, and rows with higher ones are right."""
    if (
        mistake.actual_values is None
        or mistake["rows"] < 3
        or mistake.actual_values[mistake.wrong_elements].any()
    ):
        return False
    is_wrong_row = mistake.wrong_elements.any(axis=1)
    row_maxima = mistake["x"].max(axis=1)
    return bool((row_maxima[is_wrong_row] < -20).all() and (row_maxima[~is_wrong_row] > -20).any())


def _do_wrong_rows_have_infinity(mistake: Mistake) -> bool:
    """Return whether all wrong rows contain -infinity."""
    return bool(np.isinf(mistake["x"][mistake.wrong_elements.any(axis=1)]).any(axis=1).all())


def _are_wrong_rows_very_low(mistake: Mistake) -> bool:
    """Return whether all scores of the wrong rows are below -1e20, lower than any usual initial value."""
    return bool((mistake["x"].max(axis=1)[mistake.wrong_elements.any(axis=1)] < -1e20).all())


def _is_nearly_right(mistake: Mistake) -> bool:
    """Return whether the results are right to about two digits."""
    if mistake.actual_values is None or mistake.expected_values is None:
        return False
    return bool(np.allclose(mistake.actual_values, mistake.expected_values, rtol=0.01, atol=0))


_ATOMIC_ORDER_ADVICE = (
    "The order of the atomics of blocks and lanes is not fixed: compute positions from votes and sums."
)

EXERCISES = (
    KernelExercise(
        "06-block",
        "Repair: a block's sum and maximum",
        kernel="block_stats",
        parameters="const int* x, int* sums, int* largest, int n",
        forbids_double_writes=True,
        case=make_block_stats_case,
        table=_STATS_ROWS,
        reference="block_stats.cu",
        naive="block_stats_naive.cu",
        level="warm-up",
        kind="repair",
        budgets=(
            Budget(
                "atomics",
                "A tree needs no atomics: in each step, a thread adds to a word of its own.",
                max_count=0,
            ),
            Budget(
                "shared_wavefronts",
                "Let neighbouring threads add, so that whole warps are done early: in each step, thread t "
                "adds word t of the upper half. Separate arrays for sums and maxima do not conflict.",
                max_reference_factor=1.5,
            ),
            Budget("load_sectors", "Each element must be loaded only once, by its own thread."),
        ),
        measured_launch=MeasuredLaunch(1 << 13, (256, 1, 1)),
        advice=(
            Advice(
                advice.is_fault("out of bounds", "x"),
                "Threads beyond n must not load; they store a value that does not change the results.",
            ),
            Advice(advice.is_out_of_bounds, "A block can have any number of threads from 1 to 1,024."),
            Advice(advice.is_written_twice, "One thread of each block must write its results."),
            Advice(
                advice.is_hazard("RAW", "WAR", "WAW"),
                "There must be a __syncthreads() between the store of one thread and the load of another "
                "one: after storing, and after each step of the tree, also the last ones. A warp is not a "
                "barrier.",
            ),
            Advice(
                _is_maximum_with_zero,
                "All elements of a block can be negative, so 0 can be larger than all of them. Which int "
                "is never larger than another one?",
            ),
            Advice(
                lambda mistake: (
                    mistake.actual_values is not None
                    and mistake.name == "sums"
                    and bool((mistake.actual_values == _compute_sums_by_halving(mistake)).all())
                ),
                "A block can have any number of threads: if an odd number is left, halving leaves one out.",
            ),
            Advice(_is_rounded_to_float, "A float keeps only 24 bits of an int: compute with ints."),
            Advice(
                lambda mistake: mistake.name == "largest" and mistake["n"] == 0,
                "The largest element of a block without elements must be −2147483648.",
            ),
            Advice(
                lambda mistake: mistake.actual_values is not None,
                "Follow the elements: does each of them reach thread 0, and does every thread of the block "
                "pass a __syncthreads() after storing and after each step?",
            ),
        ),
        praise="the sum and the maximum are right for any n, any block and any numbers.",
    ),
    KernelExercise(
        "06-warp-scan",
        "A scan inside a warp",
        kernel="warp_scan",
        parameters="const int* x, int* y, int n",
        forbids_double_writes=True,
        case=draw_warp_scan_case,
        table=_WARP_SCAN_ROWS,
        reference="warp_scan.cu",
        level="warm-up",
        blocks=draw.draw_warp_blocks,
        budgets=(
            Budget("atomics", "Lanes exchange registers: no atomic is needed.", max_count=0),
            Budget(
                "shared_bytes",
                "Use __shfl_up_sync, which moves a value from lane to lane without shared memory.",
                max_count=0,
            ),
            Budget(
                "warp_exchanges",
                "Five steps of __shfl_up_sync are enough, because the distance doubles: 1, 2, 4, 8, 16.",
                min_reference_share=0.2,
                max_reference_factor=2.0,
            ),
            Budget("load_sectors", "Each element must be loaded only once, by its own lane."),
        ),
        measured_launch=MeasuredLaunch(1 << 12, (256, 1, 1)),
        advice=(
            Advice(
                advice.is_fault("lanes missing"),
                "All 32 lanes named in the mask must reach __syncwarp or the shuffle: lanes beyond n "
                "take part with the value 0, and the test of the lane comes after the shuffle.",
            ),
            Advice(advice.is_out_of_bounds, "Lanes beyond n must neither load nor store; they add 0."),
            Advice(
                advice.is_hazard("RAW", "WAR", "WAW"),
                "Lanes that exchange values through memory need a barrier. Exchange registers instead.",
            ),
            Advice(
                advice.is_hazard(),
                "All 32 lanes must take part in the shuffle: test the lane after it, not around it.",
            ),
            Advice(
                advice.is_result_of(lambda mistake: mistake["x"]),
                "Each lane has only its own element: add the values of the lanes to its left.",
            ),
            Advice(
                advice.is_result_of(_compute_scan_of_own_values),
                "A lane whose number is below the distance has no lane that far to its left, so "
                "__shfl_up_sync returns its own value. Such a lane must not add it.",
            ),
            Advice(
                advice.is_result_of(_compute_exclusive_scan),
                "This is an exclusive scan. The sum must include the element itself.",
            ),
            Advice(
                advice.is_result_of(_compute_scan_from_right),
                "These are the sums from each element to the right end of the warp. Take values from the "
                "left.",
            ),
            Advice(
                advice.match_any(
                    advice.is_result_of(_compute_inclusive_scan), advice.is_result_of(_compute_block_scan)
                ),
                "The sums must start again at the first lane of each warp.",
            ),
            Advice(_is_rounded_to_float, "A float keeps only 24 bits of an int: compute with ints."),
            Advice(
                _is_only_later_lanes_wrong,
                "The first lanes of each warp are right. Do the distances double up to 16, and does each "
                "shuffle pass the sum so far?",
            ),
        ),
        praise="each lane has its sum after five steps, and only registers are used.",
    ),
    KernelExercise(
        "06-scan",
        "A scan in one launch",
        kernel="scan",
        parameters="const int* x, int* y, int* state, int n",
        forbids_double_writes=True,
        rules=4,
        waits_between_blocks=True,
        case=draw_scan_case,
        table=_SCAN_ROWS,
        reference="scan.cu",
        budgets=(
            Budget(
                "load_sectors",
                "Each element must be loaded only once: the sum before a block comes from the block before "
                "it.",
                max_reference_factor=2.0,
            ),
        ),
        measured_launch=MeasuredLaunch(1 << 13, (256, 1, 1)),
        advice=(
            Advice(
                advice.match_all(advice.is_endless, advice.is_in_stage("orders")),
                "A block waits for a block that cannot start, because waiting blocks occupy all slots: "
                "take a ticket with an atomic, so that tiles are numbered in the order in which blocks "
                "start.",
            ),
            Advice(
                advice.is_endless,
                "A block waits for a value that no block writes. Each block must set its flag, and the "
                "first block must not wait. A sum alone is not a flag, because it can be any number.",
            ),
            Advice(
                advice.is_fault("out of bounds", "state"),
                "`state` has two ints, and two more per block.",
            ),
            Advice(advice.is_out_of_bounds, "Threads beyond n must neither load nor store; they add 0."),
            Advice(
                advice.match_all(advice.is_written_twice, lambda mistake: " writes y[" in mistake.message),
                "Each element must be written by only one thread.",
            ),
            Advice(
                advice.match_all(
                    advice.is_written_twice, lambda mistake: " writes state[" in mistake.message
                ),
                "If one block writes a word and another one polls it, both must use atomics: atomicExch "
                "sets a flag, and atomicAdd(p, 0) reads it. Only one thread of a block must announce its "
                "sum.",
            ),
            Advice(
                advice.is_hazard("RAW", "WAR", "WAW"),
                "In shared memory there must be a __syncthreads() between a store and a load, and again "
                "before the next store. Between blocks, there must be a __threadfence() between the sum and "
                "its flag, on both sides.",
            ),
            Advice(
                advice.is_result_of(_compute_inclusive_scan),
                "This is an inclusive scan. The sum of the elements *before* an element does not include "
                "the element itself.",
            ),
            Advice(
                _is_right_in_first_block,
                "The first block is right. In all other blocks, the sum of the blocks before is missing, "
                "or a part of it.",
            ),
        ),
        praise="the scan needs one launch and one pass, and is right in whatever order blocks start.",
    ),
    KernelExercise(
        "06-compact",
        "Keep the positive elements, in order",
        kernel="compact",
        parameters="const int* x, const int* before, int* out, int* count, int n",
        forbids_double_writes=True,
        case=draw_compact_case,
        table=_COMPACT_ROWS,
        reference="compact.cu",
        naive="compact_naive.cu",
        blocks=draw.draw_warp_blocks,
        budgets=(
            Budget("atomics", _ATOMIC_ORDER_ADVICE, max_count=0),
            Budget(
                "load_sectors",
                "Each element must be loaded only once, by its own thread. Votes show how many are kept "
                "before it.",
            ),
        ),
        measured_launch=MeasuredLaunch(1 << 13, (256, 1, 1)),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "Threads beyond n must not load: they keep nothing, so they vote no.",
            ),
            Advice(_is_only_tail_wrong, "The elements of `out` after the last kept element must not change."),
            Advice(
                lambda mistake: (
                    mistake.name == "out"
                    and mistake.actual_values is not None
                    and bool((mistake.actual_values <= 0).any())
                ),
                "Store only elements above 0. Do not store 0, neither as an element nor to clear `out`.",
            ),
            Advice(
                _has_same_elements,
                f"The elements are right, but in another order. {_ATOMIC_ORDER_ADVICE}",
            ),
            Advice(
                lambda mistake: mistake.name == "count",
                "`count` is the number of all kept elements; only the last block can compute it.",
            ),
            Advice(
                advice.is_written_twice,
                "Each position belongs to one element, and only one thread must write `count`.",
            ),
            Advice(
                advice.is_hazard("RAW", "WAR", "WAW"),
                "Warps exchange their numbers through shared memory, with a __syncthreads() in between.",
            ),
            Advice(
                lambda mistake: mistake.actual_values is not None,
                "The position of an element is the number of elements kept in blocks before, in warps "
                "before, and in lanes before.",
            ),
        ),
        praise="each kept element gets its position, in whatever order blocks start.",
    ),
    KernelExercise(
        "06-blur",
        "Blur through a tile",
        kernel="blur",
        parameters="const float* x, float* y, int rows, int cols",
        forbids_double_writes=True,
        case=make_blur_case,
        reference="blur.cu",
        naive="blur_naive.cu",
        sizes=_draw_picture_sizes,
        blocks=draw.draw_plane_blocks,
        budgets=(
            Budget(
                "load_sectors",
                "Neighbouring threads repeat most of the 25 loads per pixel: load the tile and its halo "
                "once.",
                max_reference_factor=1.5,
            ),
        ),
        measured_launch=MeasuredLaunch((96, 128), (32, 8, 1)),
        advice=(
            Advice(
                advice.is_fault("out of bounds", "x"),
                "Outside the picture, on all four sides, the nearest pixel counts: clamp row and column.",
            ),
            Advice(
                advice.is_fault("out of bounds", "y"),
                "Threads beyond rows or cols help to fill the tile, but must not write to `y`.",
            ),
            Advice(
                advice.is_out_of_bounds,
                "The tile has (blockDim.x + 4) × (blockDim.y + 4) elements; a row of it has blockDim.x + 4.",
            ),
            Advice(advice.is_written_twice, "Every pixel must be written by only one thread."),
            Advice(
                advice.is_fault("barrier"),
                "All threads of a block must reach every barrier: put it outside of the guard, and do not "
                "let threads outside the picture return.",
            ),
            Advice(
                advice.is_hazard("RAW", "WAR", "WAW"),
                "Each tile needs two barriers: one before it is read, and one before it is filled again.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some pixels were never written. There can be fewer blocks than tiles, so each block goes "
                "on to the tile that is gridDim.y tiles below.",
            ),
            Advice(
                _shows_uninitialized_nan,
                "The tile contains NaN where no thread has stored a pixel yet: fill all of it, and put a "
                "__syncthreads() between filling and reading.",
            ),
            Advice(
                _is_only_edges_wrong,
                "The inside is right. At the edges the nearest pixel counts, in rows and in columns.",
            ),
            Advice(
                lambda mistake: (
                    mistake.actual_values is not None and bool(mistake.wrong_elements.mean() > 0.9)
                ),
                "Hardly any pixel is right. The result is the sum of 25 pixels, in float, divided by 25.",
            ),
            Advice(
                _is_picture_larger_than,
                "Is the halo loaded on all four sides and in the corners, two pixels wide, for any block?",
            ),
        ),
        praise="each pixel is loaded about once, in pictures and blocks of any shape.",
    ),
    KernelExercise(
        "06-softmax",
        "Softmax of rows, online",
        kernel="softmax",
        parameters="const float* x, float* y, int rows, int cols",
        forbids_double_writes=True,
        case=draw_softmax_case,
        table=(
            SpecialInput(
                "one score, equal ones, both ends",
                _make_extreme_scores_case,
                ((14, 70), (7, 33), (7, 1300), (7, 2)),
            ),
        ),
        reference="softmax.cu",
        naive="softmax_naive.cu",
        level="stretch",
        sizes=_draw_row_sizes,
        blocks=draw.draw_warp_blocks,
        budgets=(
            Budget(
                "load_sectors",
                "Compute the largest element and the sum in one pass: when a larger element comes, scale "
                "the sum so far.",
                max_reference_factor=1.2,
            ),
        ),
        measured_launch=MeasuredLaunch((24, 700), (128, 1, 1)),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "A row has cols elements, which can be more or fewer than the threads of the block.",
            ),
            Advice(advice.is_written_twice, "Each element must be written by only one thread."),
            Advice(
                advice.is_hazard("RAW", "WAR", "WAW"),
                "A word that one warp writes for others needs a __syncthreads() before it is read, and "
                "another one before it is overwritten.",
            ),
            Advice(
                advice.match_all(_is_only_low_rows_wrong, advice.match_not(_do_wrong_rows_have_infinity)),
                "The largest score of a row can be very low: begin with −∞, not with a number.",
            ),
            Advice(
                advice.match_all(_is_only_low_rows_wrong, _are_wrong_rows_very_low),
                "Each maximum must begin with −∞, not with a number. A lane, a warp or a row with only −∞ "
                "then has the sum 0.",
            ),
            Advice(
                _is_only_masked_rows_wrong,
                "−∞ minus −∞ is NaN. A lane, a warp or a row with only −∞ must have the sum 0.",
            ),
            Advice(
                advice.is_not_finite,
                "expf(x) overflows for x from 89 on: subtract the row's largest element first.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written: a row can have more elements than the block has threads.",
            ),
            Advice(
                _is_nearly_right,
                "Only a few digits are right. Keep sums in float, and subtract the largest score before "
                "anything else: if you add it to a logarithm, digits are lost.",
            ),
            Advice(
                lambda mistake: mistake.actual_values is not None,
                "The elements of a row must add up to 1. Are sums with different largest elements scaled to "
                "a common one before they are added?",
            ),
        ),
        praise="each row takes two reads and one write, whatever its scores are.",
    ),
)
