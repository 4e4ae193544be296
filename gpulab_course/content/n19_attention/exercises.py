"""Exercises of notebook 19."""

from __future__ import annotations

from collections.abc import Callable
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

_FEATURE_COUNT = 64  # numbers in a row of q, k and v
_SCORE_SCALE = 1 / 8  # 1 / sqrt(_FEATURES)
_TOKENS_PER_PAGE = 16  # tokens in a page of the cache
_MAX_THREADS = 256
# Rounding errors: of the exponentials and of about a thousand additions, relative to the largest score, and
# relative to the largest value. A log-sum-exp that is updated for each key reaches 135 after 2,500 keys;
# values in half precision exceed 330 at each length.
_TOLERANCE_ULPS = 250
_SCORE_ERROR_SHARE = 1 / 4
_VALUE_ERROR_SHARE = 1 / 20


def _compute_softmax(scores: Any) -> Any:
    """Return the softmax of each row; a row without a finite score becomes 0."""
    row_maxima = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isfinite(row_maxima), row_maxima, 0))
    row_sums = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(row_sums > 0, row_sums, 1)


def _attend(scores: Any, v: Any) -> ExpectedFloats:
    """Return the product of softmax(scores) and v with its tolerance; masked scores are -infinity."""
    weights = _compute_softmax(scores)
    v_float64 = v.astype(np.float64)
    finite_scores = np.abs(np.where(np.isfinite(scores), scores, 0))
    score_error_factor = 1 + _SCORE_ERROR_SHARE * finite_scores.max(axis=-1, keepdims=True, initial=0)
    error_scale = (weights @ np.abs(v_float64)) * score_error_factor + _VALUE_ERROR_SHARE * np.abs(
        v_float64
    ).max(axis=0, initial=0)
    return ExpectedFloats((weights @ v_float64).astype(np.float32), error_scale, ulps=_TOLERANCE_ULPS)


def _compute_scores(q: Any, k: Any) -> Any:
    return q.astype(np.float64) @ k.astype(np.float64).T * _SCORE_SCALE


def _draw_queries(random_data: DataGenerator, row_count: int) -> Any:
    return _add_fractions(
        random_data, random_data.integer_floats((row_count, _FEATURE_COUNT), -4, 5) / np.float32(2)
    )


def _draw_keys(random_data: DataGenerator, row_count: int) -> Any:
    k = random_data.integer_floats((row_count, _FEATURE_COUNT), -2, 3)
    is_large_key = (
        random_data.rng.random(row_count) < 0.1
    )  # some keys have scores far from those of the others
    k[is_large_key] *= 4
    return _add_fractions(random_data, k)


def _draw_values(random_data: DataGenerator, row_count: int) -> Any:
    return _add_fractions(
        random_data, random_data.integer_floats((row_count, _FEATURE_COUNT), -20, 21) / np.float32(4)
    )


def _add_fractions(random_data: DataGenerator, values: Any) -> Any:
    """Add small random numbers, so that the values are not exact in half precision; equal ones stay equal."""
    if random_data.kind:
        return values
    return values + random_data.rng.uniform(-0.1, 0.1, values.shape).astype(np.float32)


def _shift_scores(q: Any, k: Any, score_shift: float) -> None:
    """Add `score_shift` to all scores of `q` and `k`, in place."""
    q[:, 0] = 16
    k[:, 0] = score_shift / 2


def _sort_scores(q: Any, k: Any, direction: int = 1) -> None:
    """Make scores rise (1) or fall (-1) from key to key, in place."""
    q[:, 0] = 4
    k[:, 0] = 4 * np.arange(len(k))[::direction]


def draw_attention_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that computes attention with one thread for every query."""
    query_count, key_count = size
    return _make_attention_case(
        _draw_queries(random_data, query_count),
        _draw_keys(random_data, key_count),
        _draw_values(random_data, key_count),
        block,
    )


def _make_attention_case(q: Any, k: Any, v: Any, block: Dim3) -> Case:
    inputs = {"q": q, "k": k, "v": v, "rows": len(q), "keys": len(k)}
    return Case(draw.count_blocks(len(q), block[0]), inputs, {"out": _attend(_compute_scores(q, k), v)})


def _make_shifted_maker(score_shift: float) -> Any:
    """Return a function that creates a test case whose scores are all around `score_shift`."""

    def draw_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
        query_count, key_count = size
        q, k, v = (
            _draw_queries(random_data, query_count),
            _draw_keys(random_data, key_count),
            _draw_values(random_data, key_count),
        )
        _shift_scores(q, k, score_shift)
        return _make_attention_case(q, k, v, block)

    return draw_case


def _make_sorted_maker(direction: int) -> Any:
    """Return a function that creates a test case whose scores rise or fall from key to key."""

    def draw_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
        query_count, key_count = size
        q, k, v = (
            _draw_queries(random_data, query_count),
            _draw_keys(random_data, key_count),
            _draw_values(random_data, key_count),
        )
        _sort_scores(q, k, direction)
        return _make_attention_case(q, k, v, block)

    return draw_case


_ATTENTION_SIZES = ((70, 45), (33, 130))
_ATTENTION_TEST_ROWS = (
    SpecialInput("all scores around 200", _make_shifted_maker(200), _ATTENTION_SIZES),
    SpecialInput("all scores around -200", _make_shifted_maker(-200), _ATTENTION_SIZES),
    SpecialInput("scores that rise", _make_sorted_maker(1), _ATTENTION_SIZES),
    SpecialInput("scores that fall", _make_sorted_maker(-1), _ATTENTION_SIZES),
    SpecialInput("many keys", draw_attention_case, ((1, 2500),), (32, 1, 1)),
)


def _draw_attention_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw sizes (queries, keys): few and many of both, around a warp and around a power of two."""
    a, b, c, d = (int(n) for n in rng.integers(2, 40, 4))
    power_of_two = 1 << int(rng.integers(5, 8))
    return [
        (64, 64),
        (1, 1),
        (1, 33),
        (33, 1),
        (31, 32),
        (a, b),
        (100 + c, power_of_two - 1),
        (65 + d, power_of_two + 1),
        (300 + a, 40 + b),
        (2, int(rng.integers(260, 420))),
        (int(rng.integers(5001, 6000)), 5 + c // 4),
    ]


def _draw_row_blocks(rng: np.random.Generator) -> list[Dim3]:
    """Draw blocks of at most 256 threads."""
    thread_counts = (int(rng.integers(65, 127)), 128, int(rng.integers(5, 31)), 33, _MAX_THREADS, 32)
    return [(threads, 1, 1) for threads in thread_counts]


def _draw_attention_launches(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Draw two launches whose costs are counted."""
    first_size = int(rng.integers(100, 180)), int(rng.integers(70, 120))
    second_size = int(rng.integers(200, 300)), int(rng.integers(100, 200))
    return [(first_size, (64, 1, 1)), (second_size, (int(rng.integers(97, 127)), 1, 1))]


def draw_masked_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for an attention kernel with a sliding window. The window can be shorter than a
    tile, longer than a tile, or longer than the sequence.
    """
    n = int(size)
    window_sizes = (1, int(random_data.rng.integers(2, 16)), int(random_data.rng.integers(17, 90)), n + 5)
    return _make_masked_case(random_data, n, int(random_data.rng.choice(window_sizes)), block)


def _make_masked_case(
    random_data: DataGenerator,
    n: int,
    window: int,
    block: Dim3,
    score_shift: float | None = None,
    *,
    is_rising: bool = False,
) -> Case:
    q, k, v = _draw_queries(random_data, n), _draw_keys(random_data, n), _draw_values(random_data, n)
    if score_shift is not None:
        _shift_scores(q, k, score_shift)
    if is_rising:
        _sort_scores(q, k)
    inputs = {"q": q, "k": k, "v": v, "n": n, "window": window}
    expected = _attend(np.where(_make_causal_mask(n, window), _compute_scores(q, k), -np.inf), v)
    return Case(draw.count_blocks(n, block[0]), inputs, {"out": expected})


def _make_causal_mask(n: int, window: int) -> Any:
    """Return a bool array whose element (i, j) is true if query i attends to key j."""
    key_distance = np.arange(n)[:, None] - np.arange(n)
    return (key_distance >= 0) & (key_distance < window)


def _make_window_maker(window: int, score_shift: float | None = None) -> Any:
    """Return a function that creates a test case with a given window, and optionally shifted scores."""
    return lambda random_data, n, block: _make_masked_case(random_data, n, window, block, score_shift)


def _draw_rising_case(random_data: DataGenerator, n: int, block: Dim3) -> Case:
    return _make_masked_case(random_data, n, 9, block, is_rising=True)


_MASKED_TEST_ROWS = (
    SpecialInput("a window without an end", _make_window_maker(1 << 30), (45, 150)),
    SpecialInput("each row sees only itself", _make_window_maker(1), (45, 150)),
    SpecialInput("a narrow window", _make_window_maker(5), (45, 150)),
    SpecialInput("all scores around -200, a narrow window", _make_window_maker(7, -200), (45, 150)),
    SpecialInput("all scores around 200", _make_window_maker(60, 200), (45, 150)),
    SpecialInput("later keys with larger scores", _draw_rising_case, (45, 150)),
    SpecialInput("a long sequence, a narrow window", _make_window_maker(20), (1300,)),
)


def _draw_masked_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    power_of_two = 1 << int(rng.integers(6, 8))
    random_lengths = (int(rng.integers(40, 100)), int(rng.integers(120, 250)))
    return [
        lambda block: 2 * block[0],
        1,
        31,
        32,
        33,
        power_of_two - 1,
        power_of_two + 1,
        *random_lengths,
        300 + random_lengths[0],
    ]


def _draw_masked_launches(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    return [(int(rng.integers(150, 250)), (64, 1, 1)), (int(rng.integers(250, 350)), (96, 1, 1))]


def draw_decode_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for an attention kernel with one query. The grid consists of a few blocks of whole
    warps.
    """
    key_count = int(size)
    blocks = int(random_data.rng.integers(2, 9))
    return _make_decode_case(random_data, key_count, blocks, block)


def _make_decode_case(
    random_data: DataGenerator,
    key_count: int,
    block_count: int,
    block: Dim3,
    score_shift: float | None = None,
) -> Case:
    q, k, v = (
        _draw_queries(random_data, 1),
        _draw_keys(random_data, key_count),
        _draw_values(random_data, key_count),
    )
    if score_shift is not None:
        _shift_scores(q, k, score_shift)
    split_count = block_count * block[0] // 32
    scratch_arrays = {
        "mosts": random_data.rng.uniform(1000, 2000, split_count).astype(
            np.float32
        ),  # values of an earlier use
        "sums": random_data.rng.uniform(1000, 2000, split_count).astype(np.float32),
        "parts": random_data.rng.uniform(1000, 2000, (split_count, _FEATURE_COUNT)).astype(np.float32),
        "done": np.zeros(1, np.uint32),
    }
    expected = _attend(_compute_scores(q, k), v)
    expected_result = ExpectedFloats(expected.values[0], np.asarray(expected.scale)[0], expected.ulps)
    return Case(
        block_count,
        {"q": q[0], "k": k, "v": v, "keys": key_count, **scratch_arrays},
        {"out": expected_result},
    )


def _make_decode_maker(block_count: int, score_shift: float | None = None) -> Any:
    """Return a function that creates a test case with a given number of blocks."""
    return lambda random_data, keys, block: _make_decode_case(
        random_data, keys, block_count, block, score_shift
    )


_DECODE_TEST_ROWS = (
    SpecialInput("one block", _make_decode_maker(1), (1, 100)),
    SpecialInput("many blocks, few keys", _make_decode_maker(13), (3, 20)),
    SpecialInput("all scores around -200", _make_decode_maker(4, -200), (5, 300)),
    SpecialInput("all scores around 200", _make_decode_maker(4, 200), (5, 300)),
)


def _draw_key_counts(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    power_of_two = 1 << int(rng.integers(6, 9))
    random_counts = (int(rng.integers(40, 120)), int(rng.integers(500, 1200)))
    return [
        128,
        1,
        31,
        32,
        33,
        power_of_two - 1,
        power_of_two + 1,
        *random_counts,
        int(rng.integers(5001, 7000)),
    ]


def _draw_warp_blocks(rng: np.random.Generator) -> list[Dim3]:
    """Draw blocks of 1 to 8 warps."""
    return [(32 * warps, 1, 1) for warps in (4, 1, int(rng.integers(5, 8)), 2, 3, 8)]


def draw_paged_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for an attention kernel with a paged cache and one query per sequence."""
    sequence_count, max_length = size
    lengths = random_data.rng.integers(0, max_length + 1, sequence_count)
    lengths[random_data.rng.integers(sequence_count)] = max_length
    return _make_paged_case(random_data, lengths, block)


def _make_paged_case(
    random_data: DataGenerator, lengths: Any, block: Dim3, score_shift: float | None = None
) -> Case:
    sequence_count = len(lengths)
    table_width = max(1, -(-int(lengths.max()) // _TOKENS_PER_PAGE)) + int(random_data.rng.integers(0, 3))
    page_counts = -(-lengths // _TOKENS_PER_PAGE)
    cache_pages = int(page_counts.sum()) + 3
    k, v = (
        _draw_keys(random_data, cache_pages * _TOKENS_PER_PAGE),
        _draw_values(random_data, cache_pages * _TOKENS_PER_PAGE),
    )
    q = _draw_queries(random_data, sequence_count)
    if score_shift is not None:
        _shift_scores(q, k, score_shift)
    free_pages = list(random_data.rng.permutation(cache_pages))
    page_table = np.full((sequence_count, table_width), -1, np.int32)
    is_row_used = np.zeros(cache_pages * _TOKENS_PER_PAGE, bool)
    expected = np.zeros((sequence_count, _FEATURE_COUNT), np.float32)
    error_scale = np.zeros((sequence_count, _FEATURE_COUNT))
    for sequence_index, length in enumerate(lengths.tolist()):
        page_count = int(page_counts[sequence_index])
        page_table[sequence_index, :page_count] = [free_pages.pop() for _ in range(page_count)]
        cache_rows = (
            page_table[sequence_index, :page_count, None] * _TOKENS_PER_PAGE + np.arange(_TOKENS_PER_PAGE)
        ).ravel()[:length]
        is_row_used[cache_rows] = True
        attention_result = _attend(
            _compute_scores(q[sequence_index : sequence_index + 1], k[cache_rows]), v[cache_rows]
        )
        expected[sequence_index], error_scale[sequence_index] = (
            attention_result.values[0],
            np.asarray(attention_result.scale)[0],
        )
    k[~is_row_used] = np.nan
    v[~is_row_used] = np.nan
    inputs = {"q": q, "k": k, "v": v, "table": page_table, "length": lengths.astype(np.int32)}
    scalar_inputs = {"sequences": sequence_count, "width": table_width}
    grid = draw.count_blocks(sequence_count, block[0] // 32)
    return Case(grid, inputs | scalar_inputs, {"out": ExpectedFloats(expected, error_scale, _TOLERANCE_ULPS)})


def _make_lengths_maker(*lengths: int, score_shift: float | None = None) -> Any:
    """Return a function that creates a test case whose sequences have the given lengths."""
    return lambda random_data, size, block: _make_paged_case(
        random_data, np.array(lengths), block, score_shift
    )


_PAGED_TEST_ROWS = (
    SpecialInput("a sequence without tokens", _make_lengths_maker(0, 5, 0), ((3, 5),)),
    SpecialInput("exactly full pages", _make_lengths_maker(16, 32, 48), ((3, 48),)),
    SpecialInput("one token more than full pages", _make_lengths_maker(17, 33, 1), ((3, 33),)),
    SpecialInput("all scores around -200", _make_lengths_maker(30, 7, 50, score_shift=-200), ((3, 50),)),
    SpecialInput("all scores around 200", _make_lengths_maker(30, 7, 50, score_shift=200), ((3, 50),)),
)


def _draw_paged_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw sizes (sequences, tokens of the longest one)."""
    a, b = (int(n) for n in rng.integers(3, 30, 2))
    return [
        (4, 16),
        (1, 1),
        (1, 33),
        (33, 1),
        (9, 31),
        (a, b),
        (2, 200 + a),
        (40 + b, 70),
        (130 + a, 60),
        (1, 1500 + a),
    ]


def _draw_paged_launches(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    first_size = int(rng.integers(10, 20)), int(rng.integers(60, 100))
    second_size = int(rng.integers(30, 50)), int(rng.integers(100, 150))
    return [(first_size, (64, 1, 1)), (second_size, (128, 1, 1))]


def draw_rotary_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that computes the scores of one query with rotated keys."""
    key_count = int(size)
    return _make_rotary_case(random_data, random_data.rng.integers(0, 2 * key_count + 40, key_count), block)


def _make_rotary_case(random_data: DataGenerator, positions: Any, block: Dim3) -> Case:
    key_count = len(positions)
    q, k = _draw_queries(random_data, 1)[0], _draw_keys(random_data, key_count)
    half_features = _FEATURE_COUNT // 2
    angles = np.arange(int(positions.max()) + 1)[:, None] * 100.0 ** (
        -np.arange(half_features) / half_features
    )
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    inputs = {"q": q, "k": k, "cosine": cosine, "sine": sine}
    integer_inputs = {"position": positions.astype(np.int32), "keys": key_count}
    grid = draw.count_blocks(key_count, block[0] // 32)
    rotary_case = Case(grid, inputs | integer_inputs, {})
    score_magnitudes = np.abs(k.astype(np.float64)).sum(axis=1) * np.abs(q).max()
    scores = _rotate_pairs(k, cosine[positions], sine[positions]) @ q.astype(np.float64) * _SCORE_SCALE
    rotary_case.expected_outputs["score"] = ExpectedFloats(
        scores.astype(np.float32), score_magnitudes * _SCORE_SCALE, ulps=4
    )
    return rotary_case


def _rotate_pairs(k: Any, cosine: Any, sine: Any, sign: int = 1) -> Any:
    half_features = _FEATURE_COUNT // 2
    a, b = k[:, :half_features].astype(np.float64), k[:, half_features:].astype(np.float64)
    return np.concatenate((a * cosine - sign * b * sine, sign * a * sine + b * cosine), axis=1)


_ROTARY_TEST_ROWS = (
    SpecialInput(
        "positions 0, 1, 2 and so on",
        lambda random_data, n, block: _make_rotary_case(random_data, np.arange(n), block),
    ),
    SpecialInput(
        "all at position 7",
        lambda random_data, n, block: _make_rotary_case(random_data, np.full(n, 7), block),
        (1, 40),
    ),
    SpecialInput(
        "positions that fall",
        lambda random_data, n, block: _make_rotary_case(random_data, np.arange(n)[::-1], block),
        (33, 200),
    ),
)


# ---------------------------------------------------------------------------------------------------------
# What a mistake is recognised by
# ---------------------------------------------------------------------------------------------------------


def _reshape_to_rows(mistake: Mistake) -> tuple[Any, Any]:
    """Return the results and the expected results as rows of 64 numbers."""
    assert mistake.actual_values is not None
    assert mistake.expected_values is not None
    return mistake.actual_values.reshape(-1, _FEATURE_COUNT), mistake.expected_values.reshape(
        -1, _FEATURE_COUNT
    )


def _is_wrong_by_factor(mistake: Mistake) -> bool:
    """Return whether each row of the result is a multiple of the expected row."""
    if (
        mistake.actual_values is None
        or not np.isfinite(mistake.actual_values).all()
        or advice.is_partly_unwritten(mistake)
    ):
        return False
    actual, expected = _reshape_to_rows(mistake)
    row_factors = (actual * expected).sum(axis=1) / np.maximum(
        (expected.astype(np.float64) ** 2).sum(axis=1), 1e-30
    )
    is_close = np.abs(actual - row_factors[:, None] * expected) <= 1e-3 * np.abs(expected).max(
        axis=1, keepdims=True
    )
    return bool(is_close.all() and (row_factors > 0).all() and (np.abs(row_factors - 1) > 1e-4).any())


def _compute_unscaled(mistake: Mistake) -> Any:
    """Return the result that follows if the scores are not divided by 8."""
    return _compute_softmax(8 * _compute_masked_scores(mistake)) @ mistake["v"].astype(np.float64)


def _make_row_matcher(compute_mistaken_rows: Callable[[Mistake], Any]) -> Callable[[Mistake], bool]:
    """Return a matcher for results whose rows equal those of a known mistake.

    The tolerance is relative to the largest number of each row.
    """

    def is_match(mistake: Mistake) -> bool:
        if mistake.actual_values is None or not np.isfinite(mistake.actual_values).all():
            return False
        with np.errstate(all="ignore"):
            expected_rows = compute_mistaken_rows(mistake).reshape(-1, _FEATURE_COUNT)
        actual_rows = mistake.actual_values.reshape(-1, _FEATURE_COUNT)
        return bool(
            (
                np.abs(actual_rows - expected_rows) <= 1e-3 * np.abs(expected_rows).max(axis=1, keepdims=True)
            ).all()
        )

    return is_match


def _compute_undivided(mistake: Mistake) -> Any:
    """Return the result that follows if the rows are not divided by their sums."""
    scores = _compute_masked_scores(mistake)
    return np.exp(scores - scores.max(axis=1, keepdims=True)) @ mistake["v"].astype(np.float64)


def _compute_masked_scores(mistake: Mistake) -> Any:
    """Return the scores of the launch, with -infinity for masked ones."""
    scores = _compute_scores(mistake["q"].reshape(-1, _FEATURE_COUNT), mistake["k"])
    if "window" in mistake.case.values:
        return np.where(_make_causal_mask(mistake["n"], mistake["window"]), scores, -np.inf)
    return scores


def _compute_unrescaled(mistake: Mistake) -> Any:
    """Return the result that follows if only the sum is rescaled when the largest score changes."""
    scores = _compute_masked_scores(mistake)
    running_maxima = np.maximum.accumulate(scores, axis=1)
    with np.errstate(invalid="ignore"):
        weights = np.where(np.isfinite(scores), np.exp(scores - running_maxima), 0)
    row_sums = np.exp(scores - running_maxima[:, -1:]).sum(axis=1, keepdims=True)
    return weights @ mistake["v"].astype(np.float64) / row_sums


def _compute_unwindowed(mistake: Mistake) -> Any:
    """Return the result of a causal mask without the window."""
    scores = _compute_scores(mistake["q"], mistake["k"])
    return (
        _compute_softmax(np.where(_make_causal_mask(mistake["n"], mistake["n"]), scores, -np.inf))
        @ mistake["v"]
    )


def _compute_unmasked(mistake: Mistake) -> Any:
    return _compute_softmax(_compute_scores(mistake["q"], mistake["k"])) @ mistake["v"]


def _make_window_mistake(window_change: int) -> Any:
    """Return a function that computes the result with a window that is larger or smaller."""

    def compute_mistaken_rows(mistake: Mistake) -> Any:
        scores = _compute_scores(mistake["q"], mistake["k"])
        is_visible = _make_causal_mask(mistake["n"], mistake["window"] + window_change)
        return _compute_softmax(np.where(is_visible, scores, -np.inf)) @ mistake["v"]

    return compute_mistaken_rows


def _is_fully_written(mistake: Mistake) -> bool:
    return mistake.actual_values is not None and not advice.is_partly_unwritten(mistake)


def _is_not_finite_or_zero(mistake: Mistake) -> bool:
    """Return whether all wrong numbers are NaN, infinite or 0, in a launch with large scores."""
    if mistake.actual_values is None:
        return False
    wrong_values = mistake.actual_values[mistake.wrong_elements]
    scores = np.abs(_compute_scores(mistake["q"].reshape(-1, _FEATURE_COUNT), mistake["k"]))
    return bool(
        (~np.isfinite(wrong_values) | (wrong_values == 0)).all() and np.nanmax(scores, initial=0) > 60
    )


def _has_large_page_scores(mistake: Mistake) -> bool:
    """Return whether all wrong sequences have scores whose exponentials overflow or are 0."""
    if mistake.actual_values is None:
        return False
    lengths, page_table = mistake["length"], mistake["table"]
    max_scores = []
    for sequence_index in np.flatnonzero(mistake.wrong_elements.any(axis=1) & (lengths > 0)):
        token_positions = np.arange(lengths[sequence_index])
        cache_rows = (
            page_table[sequence_index, token_positions // _TOKENS_PER_PAGE] * _TOKENS_PER_PAGE
            + token_positions % _TOKENS_PER_PAGE
        )
        max_scores.append(
            float(
                _compute_scores(
                    mistake["q"][sequence_index : sequence_index + 1], mistake["k"][cache_rows]
                ).max()
            )
        )
    return bool(max_scores) and all(max_score > 88 or max_score < -85 for max_score in max_scores)


def _is_nan_for_small_scores(mistake: Mistake) -> bool:
    return mistake.actual_values is not None and bool(
        np.isnan(mistake.actual_values[mistake.wrong_elements]).any()
    )


def _are_empty_sequences_wrong(mistake: Mistake) -> bool:
    """Return whether some sequences are wrong, and all wrong sequences have no tokens."""
    if mistake.actual_values is None:
        return False
    is_wrong = mistake.wrong_elements.any(axis=1)
    return bool(is_wrong.any() and (mistake["length"][is_wrong] == 0).all())


def _compute_without_table(mistake: Mistake) -> Any:
    """Return the result that follows if the table is not used, and sequences follow each other."""
    table_width, k, v = mistake["width"], mistake["k"], mistake["v"]
    attention_rows = []
    for sequence_index, length in enumerate(mistake["length"].tolist()):
        cache_rows = (sequence_index * table_width * _TOKENS_PER_PAGE + np.arange(length)) % max(1, len(k))
        scores = _compute_scores(mistake["q"][sequence_index : sequence_index + 1], k[cache_rows])
        attention_rows.append((_compute_softmax(scores) @ v[cache_rows])[0])
    return np.array(attention_rows)


def _make_rotation_mistake(mistake_name: str) -> Any:
    """Return a function that computes the scores after a common mistake in the rotation."""

    def compute_mistaken_scores(mistake: Mistake) -> Any:
        k, q = mistake["k"], mistake["q"].astype(np.float64)
        positions = np.arange(len(k)) if mistake_name == "index" else mistake["position"]
        positions = np.minimum(positions, len(mistake["cosine"]) - 1)
        cosine, sine = mistake["cosine"][positions], mistake["sine"][positions]
        if mistake_name == "pairs":
            even_then_odd = np.arange(_FEATURE_COUNT).reshape(-1, 2).T.ravel()  # 0, 2, 4 ... 1, 3, 5 ...
            rotated_keys = np.empty(k.shape)
            rotated_keys[:, even_then_odd] = _rotate_pairs(k[:, even_then_odd], cosine, sine)
            return rotated_keys @ q * _SCORE_SCALE
        if mistake_name == "none":
            return k.astype(np.float64) @ q * _SCORE_SCALE
        return (
            _rotate_pairs(k, cosine, sine, -1 if mistake_name == "backwards" else 1)
            @ q
            * (1 if mistake_name == "unscaled" else _SCORE_SCALE)
        )

    return compute_mistaken_scores


_LARGE_SCORES_ADVICE = Advice(
    _is_not_finite_or_zero,
    "expf overflows above 88 and is 0 below −104: subtract the largest score so far from each score.",
)
_NOT_DIVIDED_ADVICE = Advice(
    _make_row_matcher(_compute_undivided), "At the end, each row must be divided by its sum."
)
_SUM_ADVICE = Advice(
    _is_wrong_by_factor,
    "Each row is right except for a factor, so its sum is wrong. The sum must be multiplied by the same "
    "factors as the row, and it must contain the weights of existing keys only.",
)
_UNSCALED_ADVICE = Advice(
    _make_row_matcher(_compute_unscaled), "These are the results without the factor 1 / 8 in the scores."
)
_NOT_RESCALED_ADVICE = Advice(
    _make_row_matcher(_compute_unrescaled),
    "The row of the result was added up with an older largest score: when it changes, multiply the row by "
    "the same factor as the sum.",
)
_TILE_BARRIERS_ADVICE = Advice(
    advice.is_hazard("RAW", "WAR", "WAW"),
    "Threads use each other's elements of a tile: put a __syncthreads() between filling a tile and reading "
    "it, and another one before the tile is filled again.",
)
_OUT_OF_TILE_ADVICE = Advice(
    advice.is_out_of_shared_memory,
    "The access is outside the tile: which indices does a tile of this size have?",
)
_BARRIER_FOR_ALL_ADVICE = Advice(
    lambda mistake: mistake.fault_kind in ("barrier", "deadlock", "endless") or "barrier" in mistake.message,
    "All threads of a block must reach every __syncthreads(), also those without a row.",
)

EXERCISES = (
    KernelExercise(
        "19-attention",
        "Tiled attention",
        kernel="attention",
        parameters="const float* q, const float* k, const float* v, float* out, int rows, int keys",
        forbids_double_writes=True,
        case=draw_attention_case,
        table=_ATTENTION_TEST_ROWS,
        reference="attention.cu",
        naive="attention_naive.cu",
        sizes=_draw_attention_sizes,
        blocks=_draw_row_blocks,
        budgets=(
            Budget(
                "load_sectors",
                "A block should load each row of k and v once, into a tile that all of its threads read. One "
                "pass over the keys is enough.",
            ),
            Budget(
                "conflict_ways",
                "Let all lanes read the same element of a tile at the same time, and store neighbouring "
                "ones.",
                max_count=1,
            ),
            Budget(
                "local_bytes",
                "Arrays of a thread are in registers only if all of their indices are known when the kernel "
                "is compiled: give the loops over 64 elements fixed bounds.",
                max_count=0,
            ),
        ),
        measured_launch=MeasuredLaunch((192, 160), (64, 1, 1), draw_launches=_draw_attention_launches),
        advice=(
            _OUT_OF_TILE_ADVICE,
            Advice(
                advice.is_out_of_bounds,
                "The last block can have fewer rows, and the last tile fewer keys: guard rows of q and out "
                "with `rows`, and rows of k and v with `keys`.",
            ),
            _TILE_BARRIERS_ADVICE,
            _BARRIER_FOR_ALL_ADVICE,
            Advice(
                advice.is_hazard(),
                "The last tile can have fewer keys: read only rows of the tile that were filled.",
            ),
            _LARGE_SCORES_ADVICE,
            Advice(
                _is_nan_for_small_scores,
                "NaN has two common causes here: the sum of a row is 0, because it has used no key; or a "
                "tile is read before all of its elements are stored. All threads must fill it and reach "
                "both barriers.",
            ),
            _UNSCALED_ADVICE,
            _NOT_DIVIDED_ADVICE,
            _SUM_ADVICE,
            _NOT_RESCALED_ADVICE,
            Advice(
                advice.match_all(_is_fully_written, lambda mistake: mistake["keys"] > 1),
                "Follow one row: score, largest score so far, factor, weight, sum and row of the result, for "
                "every key once. Does any thread still read a tile while another one fills it?",
            ),
        ),
        praise="no score is stored, and a block loads each key and each value once.",
    ),
    KernelExercise(
        "19-mask",
        "A mask that skips tiles",
        kernel="masked",
        parameters="const float* q, const float* k, const float* v, float* out, int n, int window",
        forbids_double_writes=True,
        case=draw_masked_case,
        table=_MASKED_TEST_ROWS,
        reference="masked.cu",
        naive="masked_naive.cu",
        sizes=_draw_masked_sizes,
        blocks=_draw_row_blocks,
        budgets=(
            Budget(
                "load_sectors",
                "A block of rows needs keys from the first key of its first row to the last key of its last "
                "row: begin and end the loop over tiles there.",
            ),
            Budget("local_bytes", "Give the loops over 64 elements fixed bounds.", max_count=0),
        ),
        measured_launch=MeasuredLaunch(200, (32, 1, 1), draw_launches=_draw_masked_launches),
        advice=(
            _OUT_OF_TILE_ADVICE,
            Advice(
                advice.is_out_of_bounds,
                "The first tile must not begin before key 0, and no tile may go beyond key n − 1.",
            ),
            _TILE_BARRIERS_ADVICE,
            _BARRIER_FOR_ALL_ADVICE,
            Advice(
                advice.is_hazard(),
                "A row of the tile is read that no thread has filled: the last tile can have fewer keys.",
            ),
            _LARGE_SCORES_ADVICE,
            Advice(
                _is_nan_for_small_scores,
                "NaN has three common causes here: −∞ − (−∞), if masked scores are −∞ and a row has not "
                "seen a key yet; a row that sees no key at all, although it must see itself; and a tile "
                "that is read before it is filled.",
            ),
            Advice(_make_row_matcher(_compute_unmasked), "No key is masked."),
            Advice(_make_row_matcher(_compute_unwindowed), "Keys before the window count as well."),
            Advice(
                _make_row_matcher(_make_window_mistake(1)),
                "A row sees `window` keys, and its own key is one of them; here it sees one key more.",
            ),
            Advice(
                _make_row_matcher(_make_window_mistake(-1)),
                "A row sees `window` keys, and its own key is one of them; here it sees one key less.",
            ),
            _UNSCALED_ADVICE,
            _NOT_DIVIDED_ADVICE,
            _SUM_ADVICE,
            _NOT_RESCALED_ADVICE,
            Advice(
                advice.match_all(_is_fully_written, lambda mistake: mistake["n"] > 1),
                "Row i needs the keys j with i − window < j ≤ i, each of them once: compare with the "
                "number of the key, not with its index in the tile, and check where a block begins and "
                "ends.",
            ),
        ),
        praise="a block loads no key that none of its rows needs.",
    ),
    KernelExercise(
        "19-split",
        "Split decoding",
        kernel="decode",
        parameters=(
            "const float* q, const float* k, const float* v, float* mosts, float* sums, float* parts, "
            "unsigned* done, float* out, int keys"
        ),
        forbids_double_writes=True,
        case=draw_decode_case,
        table=_DECODE_TEST_ROWS,
        reference="decode.cu",
        naive="decode_naive.cu",
        level="stretch",
        sizes=_draw_key_counts,
        blocks=_draw_warp_blocks,
        budgets=(
            Budget(
                "longest_warp",
                "Divide the keys among all warps of the grid, each with at most ⌈keys / splits⌉ of them.",
                max_reference_factor=1.6,
                extra_count=300,
            ),
            Budget("load_sectors", "Each row of k and v must be loaded once, by neighbouring lanes."),
        ),
        measured_launch=MeasuredLaunch(2048, (128, 1, 1)),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "The parts of the last warps can end before ⌈keys / splits⌉ keys, or be empty: limit their "
                "end to `keys`.",
            ),
            Advice(
                advice.is_hazard(),
                "The last block reads results of other blocks: each block needs a __threadfence() and a "
                "__syncthreads() between its results and its ticket, and the last block another fence.",
            ),
            Advice(
                advice.is_in_stage("orders"),
                "Only the block with the last ticket knows that all parts are stored, whatever its number "
                "is.",
            ),
            Advice(
                lambda mistake: _is_nan_for_small_scores(mistake) and not _is_not_finite_or_zero(mistake),
                "A part without keys has the largest score −∞ and the sum 0: its factor must be 0, not NaN.",
            ),
            _LARGE_SCORES_ADVICE,
            _UNSCALED_ADVICE,
            _NOT_DIVIDED_ADVICE,
            _SUM_ADVICE,
            _NOT_RESCALED_ADVICE,
            Advice(
                _is_fully_written,
                "Each part has its own largest score: multiply its sum and its row by exp(its largest "
                "score − that of all), add both, and divide once. Is each key in exactly one part?",
            ),
        ),
        praise="all warps share the keys, and the parts give the same result as one pass.",
    ),
    KernelExercise(
        "19-paged",
        "A paged cache",
        kernel="paged",
        parameters=(
            "const float* q, const float* k, const float* v, const int* table, const int* length, float* "
            "out, int sequences, int width"
        ),
        forbids_double_writes=True,
        case=draw_paged_case,
        table=_PAGED_TEST_ROWS,
        reference="paged.cu",
        naive="paged_naive.cu",
        sizes=_draw_paged_sizes,
        blocks=_draw_warp_blocks,
        budgets=(
            Budget(
                "load_sectors",
                "Let the 32 lanes of a warp load one row together, two numbers each, and keep their part "
                "of q in registers.",
                max_reference_factor=1.5,
            ),
        ),
        measured_launch=MeasuredLaunch((24, 80), (128, 1, 1), draw_launches=_draw_paged_launches),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "Entries of the table after the last page of a sequence are −1, and the last block can have "
                "warps without a sequence: read neither.",
            ),
            Advice(
                _are_empty_sequences_wrong,
                "A sequence without tokens has the sum 0: its result must be 0, not 0 / 0.",
            ),
            Advice(
                _has_large_page_scores,
                _LARGE_SCORES_ADVICE.sentence,
            ),
            Advice(
                _make_row_matcher(_compute_without_table),
                "The table is not used: page j / 16 of a sequence can be anywhere in the cache.",
            ),
            Advice(
                _is_nan_for_small_scores,
                "Slots that no token uses contain NaN: the last page of a sequence can be partly used, and "
                "other pages belong to no sequence.",
            ),
            _SUM_ADVICE,
            Advice(
                _is_fully_written,
                "Token j of sequence s is in row table[s * width + j / 16] * 16 + j % 16 of k and v.",
            ),
        ),
        praise="pages can be in any order, and no unused slot is loaded.",
    ),
    KernelExercise(
        "19-rotary",
        "Rotate while loading",
        kernel="rotary",
        parameters=(
            "const float* q, const float* k, const float* cosine, const float* sine, const int* position, "
            "float* score, int keys"
        ),
        forbids_double_writes=True,
        case=draw_rotary_case,
        table=_ROTARY_TEST_ROWS,
        reference="rotary.cu",
        naive="rotary_naive.cu",
        sizes=_draw_key_counts,
        blocks=_draw_warp_blocks,
        budgets=(
            Budget(
                "load_sectors",
                "Let lane i load the numbers i and i + 32 of one key, so that each load of a warp is 32 "
                "neighbouring floats.",
            ),
        ),
        measured_launch=MeasuredLaunch(600, (128, 1, 1)),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "The last block can have warps without a key, and cosine and sine have 32 numbers per "
                "position.",
            ),
            Advice(
                advice.is_result_of(_make_rotation_mistake("none")),
                "These are the scores of keys that are not rotated.",
            ),
            Advice(
                advice.is_result_of(_make_rotation_mistake("backwards")),
                "The keys are rotated backwards: the first half is a cos − b sin, the second a sin + b cos.",
            ),
            Advice(
                advice.is_result_of(_make_rotation_mistake("pairs")),
                "Here number 2 i is rotated with number 2 i + 1; it must be number i with number i + 32.",
            ),
            Advice(
                advice.is_result_of(_make_rotation_mistake("index")),
                "The position of key j is position[j], which need not be j.",
            ),
            Advice(
                advice.is_result_of(_make_rotation_mistake("unscaled")),
                "These are the results without the factor 1 / 8 in the scores.",
            ),
            Advice(
                _is_fully_written,
                "For each i below 32: the numbers i and i + 32 of a key are rotated together, then "
                "multiplied by the same numbers of q. A warp has to add the products of all its lanes.",
            ),
        ),
        praise="the rotated keys are never stored.",
    ),
)
