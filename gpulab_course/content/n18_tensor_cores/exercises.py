"""Exercises of notebook 18."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab_course.content.n18_tensor_cores import layouts
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
    draw,
    is_number,
    list_parts,
    short_repr,
)
from gpulab_course.teach.judge.exercise import Matcher
from virtualgpu.records import Dim3

_WARP_LANES = 32


# The results of known mistakes: the matrices to which they apply, a function of row and column, the sentence.
_KNOWN_MISTAKES: tuple[tuple[str, Callable[[str, int, int], tuple[int, int]], str], ...] = (
    (
        "a",
        lambda name, row, column: (row * 4 + column % 8 // 2, row // 8 + column // 8 * 2),
        "a lane has elements of two rows, 8 apart: row 8 starts again with lane 0.",
    ),
    (
        "d",
        lambda name, row, column: (row * 4 + column // 2, row // 8 * 2 + column % 2),
        "a lane has elements of two rows, 8 apart: row 8 starts again with lane 0.",
    ),
    (
        "a",
        lambda name, row, column: (row % 4 * 8 + column % 8, row // 8 + column // 8 * 2),
        "four neighbouring lanes share a row, not eight.",
    ),
    (
        "a",
        lambda name, row, column: (row % 8 * 4 + column % 8 // 2, row // 8 * 2 + column // 8),
        "register 1 of a has the rows 8 below, register 2 the columns 8 to the right.",
    ),
    (
        "b",
        lambda name, row, column: (row % 8 * 4 + column // 2, row // 8),
        "in b, the lane's group is the column, and its two neighbours are below each other.",
    ),
    (
        "d",
        lambda name, row, column: (row % 8 * 4 + column // 2, row // 8),
        "an element of d is a float, which fills a register.",
    ),
    (
        "ab",
        lambda name, row, column: (
            layouts.find_lane_and_register(name, row, column)[0],
            layouts.find_lane_element(name, row, column),
        ),
        "a register has two halves, so two neighbours are in one register.",
    ),
)


def judge_fragment(answer: Answer) -> str:
    """Judge the learner's ``held(matrix, row, column)``, which returns the lane and the register of a matrix
    element.
    """
    all_elements = [
        (name, row, column)
        for name, (rows, columns) in layouts.SHAPES.items()
        for row in range(rows)
        for column in range(columns)
    ]
    answered_places = {}
    # The order is random, so that an answer cannot count its calls.
    for element_index in answer.rng.permutation(len(all_elements)):
        matrix_element = all_elements[element_index]
        answered_places[matrix_element] = _ask_lane_and_register(answer, *matrix_element)
    wrong_elements = [
        matrix_element
        for matrix_element in all_elements
        if answered_places[matrix_element] != layouts.find_lane_and_register(*matrix_element)
    ]
    if not wrong_elements:
        return f"the lane and the register are right for all {len(all_elements)} elements of a, b and d."
    name, row, column = wrong_elements[0]
    lane, register = layouts.find_lane_and_register(name, row, column)
    places_of_matrix = {
        matrix_element: answered_place
        for matrix_element, answered_place in answered_places.items()
        if matrix_element[0] == name
    }
    mistake_texts = [
        feedback_sentence
        for matrix_names, compute_mistaken, feedback_sentence in _KNOWN_MISTAKES
        if name in matrix_names
        and all(
            compute_mistaken(*matrix_element) == answered_place
            for matrix_element, answered_place in places_of_matrix.items()
        )
    ]
    if not mistake_texts and all(
        found_place[0] == layouts.find_lane_and_register(*matrix_element)[0]
        for matrix_element, found_place in places_of_matrix.items()
    ):
        mistake_texts = [f"the lanes of all elements of {name} are right."]
    raise NotYet(
        f"{name}[{row}][{column}] is in lane {lane}, register {register}, but your function returned lane "
        f"{answered_places[wrong_elements[0]][0]}, register "
        f"{answered_places[wrong_elements[0]][1]}{f': {mistake_texts[0]}' if mistake_texts else '.'}"
    )


def _ask_lane_and_register(answer: Answer, name: str, row: int, column: int) -> tuple[int, int]:
    call_text = f"held({name!r}, {row}, {column})"
    result = call(answer, name, row, column, name="held", shown=call_text)
    result_parts = list_parts(result)
    if (
        result_parts is None
        or len(result_parts) != 2
        or not all(is_number(result_part) for result_part in result_parts)
    ):
        raise NotYet(
            f"{call_text} returned {short_repr(result)}. Return two numbers, the lane and the register."
        )
    return result_parts[0], result_parts[1]


def make_tile_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel in which each warp multiplies one of `size` pairs of small matrices.

    The elements are fractions whose sums are exact in FP32, but not in FP16.
    """
    a = (random_data.integer_floats((size, 16, 16), -255, 256) / 8).astype(np.float16)
    b = (random_data.integer_floats((size, 16, 8), -255, 256) / 4).astype(np.float16)
    grid = draw.count_blocks(size, block[0] // _WARP_LANES)
    return Case(grid, {"a": a, "b": b, "n": size}, {"d": _multiply_pairs(a, b)})


def _multiply_pairs(a: Any, b: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.matmul(a.astype(np.float32), b.astype(np.float32))


def _make_infinite_tile_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case with an infinity in each matrix `a`, and without zeros."""
    finite_case = make_tile_case(random_data, size, block)
    a, b = (
        np.where(finite_case.values[matrix_name] == 0, np.float16(1), finite_case.values[matrix_name])
        for matrix_name in "ab"
    )
    a[:, 3, 9] = np.inf
    return Case(finite_case.grid, {"a": a, "b": b, "n": size}, {"d": _multiply_pairs(a, b)})


def _make_row_selection_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case whose results are rows of `b`, which `a` selects in a different order per matrix."""
    tile_case = make_tile_case(random_data, size, block)
    a = np.zeros((size, 16, 16), np.float16)
    for matrix in a:
        matrix[np.arange(16), random_data.rng.permutation(16)] = 1
    b = tile_case.values["b"]
    return Case(tile_case.grid, {"a": a, "b": b, "n": size}, {"d": _multiply_pairs(a, b)})


def _draw_warps(rng: np.random.Generator) -> list[Dim3]:
    """Draw blocks of whole warps."""
    return draw.draw_warp_blocks(rng)


def _draw_counts(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw the numbers of matrices in the tests."""
    random_counts = (int(rng.integers(40, 70)), int(rng.integers(100, 200)), int(rng.integers(5001, 6000)))
    return [1, 0, 2, 3, 7, 31, 33, *random_counts]


def _draw_tile_launches(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Draw two launches whose costs are counted."""
    return [(int(rng.integers(20, 60)), (128, 1, 1)), (int(rng.integers(150, 300)), (256, 1, 1))]


def _multiply_replaced(mistake: Mistake, a: Any = None, b: Any = None) -> Any:
    """Return the matrices `d` that result if `a` or `b` is replaced by another matrix."""
    return _multiply_pairs(mistake["a"] if a is None else a, mistake["b"] if b is None else b)


def _select_elements(matrix: Any, rows: Any, columns: Any) -> Any:
    """Return matrices whose rows and columns are in another order."""
    return matrix[:, rows][:, :, columns]


_SWAPPED_HALVES_ORDER = np.r_[8:16, 0:8]


def _multiply_swapped_quarters(mistake: Mistake) -> Any:
    """Return the result if the registers 1 and 2 of `a` are exchanged."""
    a = mistake["a"].copy()
    a[:, 8:, :8], a[:, :8, 8:] = mistake["a"][:, :8, 8:], mistake["a"][:, 8:, :8]
    return _multiply_replaced(mistake, a=a)


def _multiply_swapped_halves(mistake: Mistake) -> Any:
    """Return the result if the two halves of each register of `b` are exchanged."""
    return _multiply_replaced(mistake, b=_select_elements(mistake["b"], np.arange(16) ^ 1, np.arange(8)))


def _multiply_transposed_b(mistake: Mistake) -> Any:
    """Return the result if each half of `b` is loaded along its rows instead of its columns."""
    b = mistake["b"].reshape(-1, 2, 8, 8).swapaxes(2, 3).reshape(-1, 16, 8)
    return _multiply_replaced(mistake, b=b)


def _multiply_first_columns(mistake: Mistake) -> Any:
    """Return the product of the first eight columns of `a` and the first eight rows of `b`."""
    return _multiply_pairs(mistake["a"][:, :, :8], mistake["b"][:, :8])


def _is_right_as_half(mistake: Mistake) -> bool:
    """Return whether all wrong elements are right to the precision of a half."""
    if mistake.actual_values is None or mistake.expected_values is None:
        return False
    actual, expected = (
        mistake.actual_values[mistake.wrong_elements],
        mistake.expected_values[mistake.wrong_elements],
    )
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isclose(actual, expected, rtol=2e-2, atol=4).all())


def make_fragments_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that loads the fragments of `size` half-precision tiles of 64 × 64
    elements.
    """
    x = random_data.rng.integers(0, 1 << 16, (size, 64, 64)).astype(np.uint16)
    words = x.view(np.uint32).reshape(size, 64, 32)
    lane = np.arange(_WARP_LANES)
    load_number, register = np.arange(16)[:, None, None], np.arange(4)[None, :, None]
    row_of_register = load_number // 4 * 16 + register % 2 * 8 + lane // 4
    column_of_register = load_number % 4 * 8 + register // 2 * 4 + lane % 4
    expected = words[:, row_of_register, column_of_register]
    return Case(size, {"x": x}, {"y": expected.reshape(size, 2048)})


def _draw_tile_counts(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw the numbers of tiles in the tests."""
    return [1, 2, 3, int(rng.integers(4, 8))]


def _draw_few_warps(rng: np.random.Generator) -> list[Dim3]:
    """Draw blocks of 1 to 16 warps."""
    warp_counts = (4, int(rng.integers(5, 8)), 1, 2, int(rng.integers(9, 16)), 16)
    return [(_WARP_LANES * warp_count, 1, 1) for warp_count in warp_counts]


def _are_words_misplaced(mistake: Mistake) -> bool:
    """Return whether the output contains the right words, but in wrong positions of their tile."""
    if mistake.actual_values is None or mistake.expected_values is None:
        return False
    return bool((np.sort(mistake.actual_values, axis=1) == np.sort(mistake.expected_values, axis=1)).all())


_TILE_SIDE = 32


def make_stages_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that multiplies matrices, with `size` in units of 32 elements."""
    row_count, column_count, inner_length = (_TILE_SIDE * tile_count for tile_count in size)
    a = (random_data.integer_floats((row_count, inner_length), -60, 61) / 4).astype(np.float16)
    b = (random_data.integer_floats((inner_length, column_count), -60, 61) / 4).astype(np.float16)
    grid = size[1], size[0]
    return Case(grid, {"a": a, "b": b, "n": column_count, "k": inner_length}, {"c": _multiply_pairs(a, b)})


def _draw_tiled_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw sizes with fewer inner tiles than buffers, as many, and more."""
    few_tile_count, many_tile_count = (int(n) for n in (rng.integers(4, 9), rng.integers(9, 14)))
    return [(1, 1, 1), (1, 2, 2), (2, 1, 3), (1, 1, 0), (2, 3, few_tile_count), (1, 1, many_tile_count)]


def _draw_tiled_launches(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Draw two launches whose costs are counted."""
    return [((1, 2, int(rng.integers(4, 7))), (128, 1, 1)), ((2, 2, int(rng.integers(9, 14))), (128, 1, 1))]


def _make_partial_product(tile_count: int) -> Callable[[Mistake], Any]:
    """Return a function that computes the product without the last `tile_count` tiles."""

    def compute_product(mistake: Mistake) -> Any:
        inner_end = max(mistake["k"] - tile_count * _TILE_SIDE, 0)
        return _multiply_pairs(mistake["a"][:, :inner_end], mistake["b"][:inner_end])

    return compute_product


def _has_inner_tiles(mistake: Mistake) -> bool:
    return mistake.actual_values is not None and mistake["k"] > 0


def _has_several_tiles(mistake: Mistake) -> bool:
    return mistake.actual_values is not None and mistake["k"] > _TILE_SIDE


def make_dense_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a matrix product with an epilogue. The size contains the number of rows divided
    by 16 and the inner width divided by 8.
    """
    row_groups, inner_groups = size
    row_count, inner_length = 16 * row_groups, 8 * inner_groups
    # The sums are exact in FP32, but not in FP16, and the bias is not exact in FP16.
    x = (random_data.integer_floats((row_count, inner_length), -63, 64) / 32).astype(np.float16)
    w = (random_data.integer_floats((inner_length, 8), -63, 64) / 32).astype(np.float16)
    bias = random_data.integer_floats(8, -4000, 4001) / np.float32(1000)
    products = _multiply_pairs(x, w)
    grid = draw.count_blocks(row_groups, block[0] // _WARP_LANES)
    inputs = {"x": x, "w": w, "bias": bias, "n": row_groups, "k": inner_length}
    return Case(
        grid,
        inputs,
        {"y": _make_expected_half(_compute_gelu(products + bias), np.abs(products) + np.abs(bias))},
    )


def _make_large_values_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case with large positive and negative values, for which GELU is v or 0."""
    dense_case = make_dense_case(random_data, size, block)
    bias = np.array((40, -40, 12, -12, 5, -5, 0, 1000), np.float32)
    v = _multiply_pairs(dense_case.values["x"], dense_case.values["w"]) + bias
    return Case(
        dense_case.grid,
        {**dense_case.values, "bias": bias},
        {"y": _make_expected_half(_compute_gelu(v), np.abs(v) + np.abs(bias))},
    )


def _compute_gelu(v: Any) -> Any:
    """Return GELU in double precision."""
    return v * 0.5 * (1 + _erf(np.asarray(v, np.float64) / math.sqrt(2)))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _make_expected_half(exact_values: Any, magnitude: Any) -> ExpectedFloats:
    """Return the expected halves, with a tolerance for rounding and for cancellation.

    `magnitude` is that of the terms: the sums and the bias can cancel, and so can 1 + erf.
    """
    return ExpectedFloats(exact_values.astype(np.float16), np.abs(exact_values) + 1e-3 * magnitude, ulps=1.0)


def _draw_dense_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw numbers of groups of 16 rows, and of inner columns divided by 8."""
    return [(1, 1), (2, 0), (3, 2), (7, 4), (33, 1), (int(rng.integers(40, 80)), int(rng.integers(2, 7)))]


def _draw_dense_launches(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Draw two launches whose costs are counted."""
    return [((int(rng.integers(20, 60)), 1), (128, 1, 1)), ((int(rng.integers(100, 200)), 3), (256, 1, 1))]


def _compute_sums_before_bias(mistake: Mistake) -> Any:
    """Return the sums of the matrix multiplication without the bias."""
    return _multiply_pairs(mistake["x"], mistake["w"])


def _make_matcher(compute_output: Callable[[Any, Any], Any]) -> Matcher:
    """Return a matcher for outputs that equal ``compute(sums, bias)`` to the precision of a half."""

    def is_match(mistake: Mistake) -> bool:
        if mistake.actual_values is None:
            return False
        with np.errstate(all="ignore"):
            computed = np.asarray(
                compute_output(_compute_sums_before_bias(mistake), mistake["bias"]), np.float64
            )
        actual = mistake.actual_values.astype(np.float64)
        return bool(np.allclose(actual, computed, rtol=2e-3, atol=2e-5, equal_nan=True))

    return is_match


def _compute_tanh_gelu(v: Any) -> Any:
    return v * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


def _has_foreign_words(mistake: Mistake) -> bool:
    """Return whether the output contains words that are not in the input, as from uninitialized memory."""
    if mistake.actual_values is None:
        return False
    return not np.isin(mistake.actual_values[mistake.wrong_elements], mistake["x"].view(np.uint32)).all()


EXERCISES = (
    PythonExercise("18-fragment", "The lane and the register of an element", judge_fragment),
    KernelExercise(
        "18-tile",
        "Multiply a tile of 16 × 8 × 16",
        kernel="tile",
        parameters="const half* a, const half* b, float* d, int n",
        forbids_double_writes=True,
        case=make_tile_case,
        table=(
            SpecialInput("an infinity in a", _make_infinite_tile_case, (3,)),
            SpecialInput("a that selects rows", _make_row_selection_case, (5,)),
        ),
        reference="tile.cu",
        naive="tile_naive.cu",
        sizes=_draw_counts,
        blocks=_draw_warps,
        budgets=(
            Budget(
                "tensor_operations",
                "Let the tensor cores multiply: load the fragments of a and b, and call multiply.",
                min_reference_share=1.0,
            ),
            Budget(
                "warp_instructions",
                "Each lane needs only four registers of a and two of b.",
                max_reference_factor=2.0,
            ),
        ),
        measured_launch=MeasuredLaunch(
            100, (128, 1, 1), max_instruction_factor=40.0, draw_launches=_draw_tile_launches
        ),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "Warp w of the grid multiplies matrices w, if w is below n: a has 256 elements per matrix, "
                "b and d have 128.",
            ),
            Advice(advice.is_fault("misaligned"), "A load of 4 bytes must start at an even column."),
            Advice(
                advice.is_written_twice, "Every element of d must be written by only one lane of one warp."
            ),
            Advice(
                advice.is_result_of(_multiply_swapped_quarters),
                "Register 1 of a has the rows 8 below register 0, and register 2 has the columns 8 to the "
                "right: exchange the two.",
            ),
            Advice(
                advice.is_result_of(_multiply_transposed_b),
                "In b, a lane's two neighbours are below each other: rows 2s and 2s + 1 of column g.",
            ),
            Advice(
                advice.is_result_of(_multiply_swapped_halves),
                "The element with the smaller row of b must be in the lower 16 bits of a register.",
            ),
            Advice(
                advice.is_result_of(_multiply_first_columns),
                "Only the first 8 columns of a, and rows of b, were used: registers 2 and 3 of a and "
                "register 1 of b have the others.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written: each lane has four elements of d, in rows g and g + 8 and "
                "columns 2s and 2s + 1.",
            ),
            Advice(
                _is_right_as_half,
                "The sums are rounded to half precision: keep them in float.",
            ),
        ),
        praise="each warp multiplies its matrices with the tensor cores.",
    ),
    KernelExercise(
        "18-swizzle",
        "Repair: bank conflicts of ldmatrix",
        kernel="fragments",
        parameters="const uint4* x, unsigned* y",
        forbids_double_writes=True,
        case=make_fragments_case,
        reference="fragments.cu",
        naive="fragments_naive.cu",
        kind="repair",
        sizes=_draw_tile_counts,
        blocks=_draw_few_warps,
        budgets=(
            Budget(
                "load_sectors",
                "Load each vector of x once, side by side, into the tile, and read the fragments from there.",
            ),
            Budget(
                "conflict_ways",
                "Eight vectors that are stored or read at once must be in different banks, and ldmatrix "
                "reads eight rows at once: store vector v of a row at v ^ row % 8, and read it from there.",
                max_count=1,
            ),
            Budget(
                "shared_bytes",
                "A swizzle needs no unused words: the tile has 64 × 8 vectors.",
                max_count=64 * 8 * 16,
            ),
        ),
        measured_launch=MeasuredLaunch(
            6, (128, 1, 1), draw_launches=lambda rng: [(3, (64, 1, 1)), (9, (256, 1, 1))]
        ),
        advice=(
            Advice(
                advice.is_out_of_shared_memory,
                "A swizzle exchanges the vectors of a row and never leaves the row: v is from 0 to 7, and so "
                "is v ^ row % 8.",
            ),
            Advice(advice.is_out_of_bounds, "x has 512 vectors per tile, and y has 2,048 words."),
            Advice(advice.is_written_twice, "Every word of y must be written by only one lane of one warp."),
            Advice(
                advice.is_hazard("RAW", "WAR"),
                "A warp reads vectors that other warps have stored, so a __syncthreads() must come between.",
            ),
            Advice(
                advice.is_hazard(),
                "Part of the tile is read where nothing was stored: store and load must use the same "
                "positions.",
            ),
            Advice(
                _are_words_misplaced,
                "The words are right, but not in their positions: compute the position of a vector in the "
                "same way where it is stored and where it is read.",
            ),
            Advice(advice.is_partly_unwritten, "Some words were never written: a tile has 16 parts."),
            Advice(
                _has_foreign_words,
                "y contains words that are not in x: a __syncthreads() must come between storing and "
                "reading.",
            ),
        ),
        praise="there is no bank conflict, and no unused word.",
    ),
    KernelExercise(
        "18-stages",
        "A pipeline of three stages",
        kernel="product",
        parameters="const half* a, const half* b, float* c, int n, int k",
        forbids_double_writes=True,
        case=make_stages_case,
        reference="stages.cu",
        naive="stages_naive.cu",
        level="stretch",
        sizes=_draw_tiled_sizes,
        blocks=lambda rng: [(128, 1, 1)],
        capability=(8, 0),  # asynchronous copies
        budgets=(
            Budget(
                "async_copies",
                "Copy the tiles with __pipeline_memcpy_async.",
                min_reference_share=0.75,
            ),
            Budget(
                "barriers",
                "With three buffers, one barrier per tile is enough: after it, all threads have waited for "
                "tile t, and have finished tile t − 1, whose buffer can be filled with tile t + 2.",
                max_reference_factor=1.1,
                extra_count=4,
            ),
            Budget(
                "full_waits",
                "Only the wait before the last tile may leave no copies pending: before the other tiles, "
                "wait with __pipeline_wait_prior(1).",
                max_reference_factor=1.0,
            ),
            Budget(
                "pending_groups",
                "A wait must leave all copies of the next tile pending, those of a and those of b.",
                min_reference_share=0.75,
            ),
            Budget("shared_bytes", "Three buffers of 4,096 bytes are enough.", max_count=3 * 4096),
            Budget("tensor_operations", "Let the tensor cores multiply.", min_reference_share=1.0),
        ),
        measured_launch=MeasuredLaunch((2, 2, 8), (128, 1, 1), draw_launches=_draw_tiled_launches),
        advice=(
            Advice(
                advice.is_out_of_shared_memory,
                "The buffers have the numbers 0, 1 and 2: tile t belongs in buffer t % 3.",
            ),
            Advice(
                advice.is_out_of_bounds,
                "A tile from k on does not exist: start no copies for it, but close the group anyway.",
            ),
            Advice(
                advice.is_written_twice, "Every element of c must be written by only one lane of one warp."
            ),
            Advice(
                advice.is_hazard(),
                "A thread waits only for its own copies. A __syncthreads() must come between the wait and "
                "the use of a tile, and between the use of a tile and the copies that overwrite it.",
            ),
            Advice(
                advice.match_all(_has_inner_tiles, advice.is_result_of(_make_partial_product(1))),
                "The last tile is missing.",
            ),
            Advice(
                advice.match_all(_has_several_tiles, advice.is_result_of(_make_partial_product(2))),
                "The last two tiles are missing.",
            ),
            Advice(
                _has_inner_tiles,
                "Is tile t complete when it is used? At most the group of tile t + 1 may be pending then, "
                "and a barrier must follow the wait. Close a group for each tile, also for one that does not "
                "exist. And is each buffer filled again only after its tile was used?",
            ),
        ),
        praise="two tiles are copied while one is multiplied, with one barrier per tile.",
    ),
    KernelExercise(
        "18-epilogue",
        "Bias and GELU in the epilogue",
        kernel="dense",
        parameters="const half* x, const half* w, const float* bias, half* y, int n, int k",
        forbids_double_writes=True,
        case=make_dense_case,
        table=(SpecialInput("a wide bias", _make_large_values_case, ((3, 1), (5, 2))),),
        reference="dense.cu",
        naive="dense_naive.cu",
        sizes=_draw_dense_sizes,
        blocks=_draw_warps,
        budgets=(
            Budget("tensor_operations", "Let the tensor cores multiply.", min_reference_share=1.0),
            Budget(
                "requests",
                "Two neighbouring elements of y are one half2, and two of the bias are one float2: load and "
                "store them together.",
                max_reference_factor=1.1,
            ),
        ),
        measured_launch=MeasuredLaunch((100, 2), (128, 1, 1), draw_launches=_draw_dense_launches),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "x has 16 n rows of k elements, w has k rows of 8, bias has 8, and y has 16 n rows of 8.",
            ),
            Advice(advice.is_fault("misaligned"), "A half2 or float2 must start at an even column."),
            Advice(
                advice.is_written_twice, "Every element of y must be written by only one lane of one warp."
            ),
            Advice(_make_matcher(lambda sums, bias: _compute_gelu(sums)), "The bias is missing."),
            Advice(_make_matcher(lambda sums, bias: sums + bias), "GELU is missing."),
            Advice(
                _make_matcher(lambda sums, bias: _compute_gelu(sums) + bias),
                "The bias comes first: GELU of the sum and the bias.",
            ),
            Advice(
                _make_matcher(lambda sums, bias: np.maximum(sums + bias, 0)),
                "That is ReLU, but the task is GELU.",
            ),
            Advice(
                _make_matcher(lambda sums, bias: _compute_tanh_gelu(sums + bias)),
                "That is the approximation with tanh, whose error is larger than the rounding of a half: "
                "use erff.",
            ),
            Advice(
                _make_matcher(
                    lambda sums, bias: _compute_gelu(sums + np.tile(bias, 2 * len(sums) // 16)[:, None])
                ),
                "The bias belongs to the column of an element, not to its row.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written: each lane has four, in rows g and g + 8 and columns 2s "
                "and 2s + 1.",
            ),
        ),
        praise="the result is rounded once, and written once.",
    ),
)
