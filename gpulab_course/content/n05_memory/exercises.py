"""Exercises of notebook 05."""

from __future__ import annotations

from typing import Any

import numpy as np

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
from virtualgpu.records import Dim3

_TILE_SIDE = 32
_BANK_COUNT = 32


def make_copy4_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that copies floats with one thread for every four elements."""
    x = data.floats(size, is_only_copied=True)
    return Case(
        draw.count_blocks(-(-size // 4), block[0]), {"x": x, "n": size}, {"y": ExpectedFloats(x, 0.0, ulps=0)}
    )


def _make_tiny_values_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case with values that arithmetic could change, such as -0, subnormal numbers and NaN."""
    x = np.array([0x80000000, 1, 0x80000001, 0x7FC00001, 0x7F800000], np.uint32).view(np.float32)
    inputs = {"x": np.resize(x, size), "n": size}
    expected: dict[str, Any] = {"y": ExpectedFloats(inputs["x"].copy(), 0.0, ulps=0)}
    return Case(draw.count_blocks(-(-size // 4), block[0]), inputs, expected)


def make_split_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that splits an array of points (x, y, z) into three arrays."""
    xyz = data.floats((size, 3), is_only_copied=True)
    expected: dict[str, Any] = {
        name: ExpectedFloats(xyz[:, axis].copy(), 0.0, ulps=0) for axis, name in enumerate("xyz")
    }
    return Case(draw.count_blocks(size, block[0]), {"xyz": xyz, "n": size}, expected)


def make_transpose_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that transposes a matrix with one block for every tile of 32 x 32."""
    rows, cols = size
    x = data.floats((rows, cols), is_only_copied=True)
    grid = draw.count_blocks(cols, _TILE_SIDE), draw.count_blocks(rows, _TILE_SIDE)
    return Case(grid, {"x": x, "rows": rows, "cols": cols}, {"y": ExpectedFloats(x.T.copy(), 0.0, ulps=0)})


def draw_padded_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that doubles the valid part of each row, and sets the padding to 0.

    The padding of the input contains arbitrary values, including NaN.
    """
    rows, cols = size
    x = data.floats((rows, cols))
    row_lengths = data.integers(rows, 0, cols + 1)
    return _make_padded_case(data, x, row_lengths, block)


def _make_padded_case(data: DataGenerator, x: Any, lengths: Any, block: Dim3) -> Case:
    rows, cols = x.shape
    is_valid = np.arange(cols) < lengths[:, None]
    is_special_padding = ~is_valid & (data.rng.random((rows, cols)) < 0.5)
    x[is_special_padding] = data.rng.choice((np.nan, np.inf, -np.inf), int(is_special_padding.sum()))
    grid = draw.count_blocks(cols, block[0]), draw.count_blocks(rows, block[1])
    inputs = {"x": x, "length": lengths, "rows": rows, "cols": cols}
    return Case(grid, inputs, {"y": np.where(is_valid, 2 * x, np.float32(0))})


def _make_valid_lengths_case_maker(make_lengths: Any) -> Any:
    """Return a function that creates a test case. The numbers of valid elements of its rows repeat the list
    ``make_lengths(cols)``.
    """

    def make_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
        rows, cols = size
        special_values = np.array((1, -2, np.nan, np.inf, 0), np.float32)  # in valid parts, too
        row_lengths = np.resize(np.array(make_lengths(cols), np.int32), rows)
        return _make_padded_case(data, data.rng.choice(special_values, size), row_lengths, block)

    return make_case


_PADDED_ROWS = (
    SpecialInput("no padding", _make_valid_lengths_case_maker(lambda cols: [cols])),
    SpecialInput("nothing but padding", _make_valid_lengths_case_maker(lambda cols: [0])),
    SpecialInput(
        "one element of padding, one valid", _make_valid_lengths_case_maker(lambda cols: [cols - 1, 1])
    ),
    SpecialInput("empty and full rows", _make_valid_lengths_case_maker(lambda cols: [0, cols])),
)


def make_median5_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that computes the median of each element and its four neighbours."""
    x = data.any_integers(size)
    padded_x = np.pad(x, 2, mode="edge") if size else np.zeros(4, np.int32)
    windows = np.stack([padded_x[offset : offset + size] for offset in range(5)])
    expected = np.sort(windows, axis=0)[2]
    return Case(draw.count_blocks(size, block[0]), {"x": x, "n": size}, {"y": expected})


def _draw_lengths_around_five(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw the lengths of `draw.draw_lengths` and lengths below five."""
    return [*draw.draw_lengths(rng, threads_at_once), 2, 3]


def make_matmul_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that multiplies matrices. The sums are exact in any order of the terms.

    One matrix contains quarters up to 1,024, which neither a byte nor half precision represents; the other
    one contains halves up to 10.
    """
    rows, cols, inner_size = size
    has_wide_a = bool(data.rng.integers(2))
    magnitude_limits = (4096, 20) if has_wide_a else (20, 4096)
    divisors = (4, 2) if has_wide_a else (2, 4)
    a = data.integer_floats((rows, inner_size), 1 - magnitude_limits[0], magnitude_limits[0]) / np.float32(
        divisors[0]
    )
    b = data.integer_floats((inner_size, cols), 1 - magnitude_limits[1], magnitude_limits[1]) / np.float32(
        divisors[1]
    )
    grid = draw.count_blocks(cols, block[0]), draw.count_blocks(rows, block[1])
    inputs = {"a": a, "b": b, "rows": rows, "cols": cols, "inner": inner_size}
    return Case(grid, inputs, {"c": a @ b})


def _make_infinite_end_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Make a matrix multiplication whose last factors are infinite.

    Missing elements of a tile must be 0 in both matrices, because infinity times 0 is NaN.
    """
    case = make_matmul_case(data, size, block)
    a = case.values["a"]
    b = case.values["b"]
    a[:, -1] = 1
    b[-1, 0] = np.inf
    return Case(case.grid, case.values, {"c": a @ b})


def _draw_flat_blocks(rng: np.random.Generator) -> list[Dim3]:
    """Draw blocks of width 32 with heights up to 32."""
    block_heights = (8, int(rng.integers(9, 32)), int(rng.integers(3, 8)), 2, _TILE_SIDE)
    return [(_TILE_SIDE, block_height, 1) for block_height in block_heights]


def _draw_square_blocks(rng: np.random.Generator) -> list[Dim3]:
    """Draw square blocks with sides up to 32."""
    sides = (int(rng.integers(8, 16)), _TILE_SIDE, int(rng.integers(17, 32)), 16, int(rng.integers(3, 8)), 2)
    return [(side, side, 1) for side in sides]


def _draw_matmul_launches(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Draw two launches to count: one with the largest blocks, and one with blocks of an odd side."""
    small_size = tuple(int(n) | 1 for n in rng.integers(50, 90, 3))
    large_size = tuple(int(n) | 1 for n in rng.integers(70, 110, 3))
    block_side = int(rng.choice((13, 19, 21, 23, 25, 27, 29, 31)))
    return [(large_size, (_TILE_SIDE, _TILE_SIDE, 1)), (small_size, (block_side, block_side, 1))]


def _draw_matmul_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw sizes (rows, columns, inner): deep, thin, ragged, with an empty inner side, and of two waves."""
    a, b, c = (int(n) for n in rng.integers(3, 17, 3))
    small_sizes = [(4, 4, 100), (16, 16, 16), (1, 33, 70), (33, 1, 64), (a, b, c), (5, 31, 32), (3, 5, 0)]
    matrix_side = int((2 * threads_at_once) ** 0.5)
    return [*small_sizes, (1, 1, 1), (37, 70, 65), (matrix_side - 5, matrix_side + 3, 4)]


def _is_only_padding_wrong(mistake: Mistake) -> bool:
    """Return whether only elements of the padding are wrong, and only those with NaN or infinity as input."""
    if mistake.actual_values is None or mistake.expected_values is None:
        return False
    is_padding = np.arange(mistake["cols"]) >= mistake["length"][:, None]
    return not np.isfinite(mistake["x"][mistake.wrong_elements]).any() and bool(
        is_padding[mistake.wrong_elements].all()
    )


def _is_only_end_unwritten(mistake: Mistake) -> bool:
    """Return whether only elements after the last complete float4 were not written."""
    return advice.is_partly_unwritten(mistake) and not mistake.wrong_elements[: mistake["n"] // 4 * 4].any()


def _multiply_whole_tiles(mistake: Mistake) -> Any:
    """Return the matrix product that results if the last, incomplete tiles are left out."""
    covered_size = mistake["inner"] // mistake.case.block[0] * mistake.case.block[0]
    return mistake["a"][:, :covered_size] @ mistake["b"][:covered_size]


def _is_fully_written(mistake: Mistake) -> bool:
    return mistake.actual_values is not None and not advice.is_partly_unwritten(mistake)


def _is_outside_tile(mistake: Mistake) -> bool:
    return advice.is_out_of_bounds(mistake) and "outside shared memory" in mistake.message


def _shows_uninitialized_nan(mistake: Mistake) -> bool:
    """Return whether the result contains NaN although all inputs are finite, as from uninitialized memory."""
    if mistake.actual_values is None or not _is_fully_written(mistake):
        return False
    is_finite = all(np.isfinite(input_value).all() for input_value in mistake.case.values.values())
    return is_finite and bool(np.isnan(mistake.actual_values[mistake.wrong_elements]).any())


def _shows_infinity_times_zero(mistake: Mistake) -> bool:
    """Return whether all wrong elements are NaN, the result of infinity times a missing element's 0."""
    if mistake.actual_values is None or mistake.name != "c" or np.isfinite(mistake["b"]).all():
        return False
    return bool(np.isnan(mistake.actual_values[mistake.wrong_elements]).all())


def judge_ways(answer: Answer) -> str:
    """Judge the learner's ``ways(words)``, which counts the words that a warp accesses in its busiest memory
    bank.
    """
    rng = answer.rng
    lanes = np.arange(32)
    lane_count = int(rng.integers(3, 31))
    word_stride = int(rng.integers(34, 200))
    word_offset = int(rng.integers(1, 999))
    for pattern_text, word_indices in (
        ("five lanes, words 8 apart", 8 * lanes[:5]),
        ("neighbouring words", lanes + word_offset),
        ("every second word", 2 * lanes),
        ("every third word", 3 * lanes + word_offset),
        ("one word for all lanes", np.full(32, word_offset)),
        ("words 0 to 7, each for four lanes", lanes // 4),
        ("a column of 32 x 32", 32 * lanes),
        ("a column of 32 x 33", 33 * lanes),
        ("words 0 and 32, alternating", 32 * (lanes % 2)),
        ("words 31 to 0", 31 - lanes),
        ("one lane", lanes[:1] + word_offset),
        (f"words {word_stride} apart", word_stride * lanes),
        ("random words", rng.integers(0, 4000, 32)),
        ("few random words", rng.choice(rng.integers(0, 400, 6), 32)),
        ("addresses beyond 2 GiB", lanes.astype(np.int64) * 64 + (1 << 31)),
        ("addresses beyond 32 bits", lanes.astype(np.int64) * 33 + (1 << 34) + word_offset),
        ("two lanes, words 2**32 apart", np.array([word_offset, word_offset + (1 << 32)])),
        ("two lanes, words 32 apart", 32 * lanes[:2] + word_offset),
        ("two lanes, one word", np.full(2, word_offset)),
        ("words 0, 0, 32, 32, 64 and so on", 32 * (lanes // 2)),
        (f"{lane_count} random lanes", rng.integers(0, 300, lane_count)),
        (
            f"{lane_count} lanes, words 16 apart, in reverse order",
            (16 * lanes[:lane_count])[::-1] + word_offset,
        ),
        ("16 words of one bank, and 16 of another", 32 * (lanes // 2) + lanes % 2),
        (
            "half of the lanes in one bank, the others in different banks",
            np.where(lanes < 16, 32 * lanes, lanes),
        ),
        # The bank of most lanes is not the bank of most words; then, first and last word as of neighbours.
        (
            "one word for 27 lanes, five words of another bank",
            np.where(lanes < 27, 7, 32 * lanes) + word_offset,
        ),
        (
            "three words of one bank for most lanes, two other words",
            word_offset + np.where(lanes % 31, 7 + 32 * (lanes % 3), lanes),
        ),
        ("32-bit words, shuffled", rng.permutation(2 * lanes).astype(np.int32)),
    ):
        _judge_conflict_ways(answer, pattern_text, word_indices)
    return "the number of ways is right for any pattern, and a word that several lanes read counts once."


def _judge_conflict_ways(answer: Answer, pattern_text: str, word_indices: Any) -> None:
    words_of_bank: dict[int, set[int]] = {}
    for word in word_indices.tolist():
        words_of_bank.setdefault(word % _BANK_COUNT, set()).add(word)
    expected = max(map(len, words_of_bank.values()))
    result = call(answer, word_indices, name="ways", shown=f"ways(words) of {pattern_text}")
    if not is_number(result):
        raise NotYet(f"ways(words) of {pattern_text} returned {short_repr(result)}. Return one number.")
    if result == expected:
        return
    lanes_per_bank = np.bincount(word_indices % _BANK_COUNT, minlength=_BANK_COUNT)
    mistaken_results = (
        (expected - 1, "an access without a conflict is 1-way, because it takes one pass."),
        (
            int(lanes_per_bank.max()),
            "lanes that read the same word receive it in one pass: count different words.",
        ),
        (
            len(words_of_bank),
            "that is the number of banks in use; the bank with the most different words decides.",
        ),
        (
            len(np.unique(word_indices // _BANK_COUNT)),
            "word w is in bank w % 32: neighbouring words are in different banks.",
        ),
        (len(np.unique(word_indices)), "only words of the same bank conflict."),
    )
    explanation = next(
        (
            mistake_explanation
            for mistaken_result, mistake_explanation in mistaken_results
            if result == mistaken_result
        ),
        "",
    )
    raise NotYet(
        f"{pattern_text}: the conflict is {expected}-way, but ways(words) returned "
        f"{short_repr(result)}{f': {explanation}' if explanation else '.'}"
    )


_SECTOR_BYTES = 32


def judge_asked(answer: Answer) -> str:
    """Judge the learner's ``asked(addresses, width_bytes)``, which counts the sectors and bytes that a memory
    request reads.
    """
    rng = answer.rng
    lanes = np.arange(32)
    for _ in range(2):
        lane_count = int(rng.integers(3, 31))
        base_address = 256 * int(rng.integers(1, 1 << 26)) + (1 << 34)
        byte_stride = int(rng.integers(5, 60))
        first_element = int(rng.integers(1, 8))
        for pattern_text, element_positions, width_bytes in (
            ("every second double", 2 * lanes, 8),  # several cache lines; float32 merges some addresses
            ("neighbouring floats", lanes, 4),
            (f"neighbouring floats, from number {first_element} on", lanes + first_element, 4),
            ("floats, last lane first", lanes[::-1], 4),
            (f"bytes {byte_stride} apart", byte_stride * lanes, 1),
            (f"{lane_count} lanes with a float4 each", lanes[:lane_count], 16),
            (f"float4s from number {first_element} on, in pairs of lanes", lanes // 2 + first_element, 16),
            ("one float for all lanes", np.full(32, first_element), 4),
            ("one lane", lanes[:1] + first_element, 2),
            ("16-bit numbers, each for four lanes", lanes // 4, 2),
            (f"{lane_count} random doubles", rng.integers(0, 40, lane_count), 8),
            ("random floats, some more than once", rng.choice(rng.integers(0, 300, 20), 32), 4),
            ("two lanes, one before the end of a sector, one after it", np.array([7, 8]), 4),
            ("two floats far apart", np.array([0, 1 << 22]), 4),
            ("a pair further apart than 32 bits can express", np.array([0, 1 << 30]), 4),
            ("a float4 for each lane", lanes, 16),
            (f"{lane_count} bytes, {first_element} from the start", lanes[:lane_count] + first_element, 1),
        ):
            _judge_request(
                answer,
                pattern_text,
                base_address + width_bytes * np.asarray(element_positions, np.int64),
                width_bytes,
            )
    return "the numbers of sectors and useful bytes are right for any request, wherever it starts."


def _judge_request(answer: Answer, pattern_text: str, addresses: Any, width_bytes: int) -> None:
    read_addresses = {address + byte for address in addresses.tolist() for byte in range(width_bytes)}
    sector_indices = {byte // _SECTOR_BYTES for byte in read_addresses}
    expected = len(sector_indices), len(read_addresses)
    call_text = f"asked({pattern_text}, {width_bytes})"
    result = call(answer, addresses, width_bytes, name="asked", shown=call_text)
    result_values = list_parts(result)
    if result_values is None or len(result_values) != 2 or not all(map(is_number, result_values)):
        raise NotYet(f"{call_text} returned {short_repr(result)}. Return two numbers, sectors and bytes.")
    result = tuple(result_values)
    if result == expected:
        return
    rounded_sectors = np.unique(addresses.astype(np.float32).astype(np.int64) // _SECTOR_BYTES)
    span_bytes = int(addresses.max() - addresses.min()) + width_bytes
    sector_guesses = (
        (
            len({sector // 4 for sector in sector_indices}),
            "those are cache lines; count the sectors that are read in them.",
        ),
        (
            -(-len(read_addresses) // _SECTOR_BYTES),
            "a sector starts at a multiple of 32, and the bytes may fill only parts of sectors.",
        ),
        (
            -(-span_bytes // _SECTOR_BYTES),
            "count only sectors in which a lane reads; a sector starts at a multiple of 32.",
        ),
        (len(addresses), "lanes whose bytes are in one sector share it."),
    )
    explanation = ""
    if span_bytes > 1 << 32:
        explanation = "addresses have 64 bits, and the lower 32 bits of these two are equal."
    elif result[0] == len(rounded_sectors) and result[0] != expected[0]:
        explanation = (
            "do you keep every bit of an address? A float32 rounds different addresses to the same number."
        )
    elif result[0] != expected[0] and result[1] == expected[1]:
        explanation = next(
            (
                mistake_explanation
                for mistaken_result, mistake_explanation in sector_guesses
                if result[0] == mistaken_result
            ),
            "",
        )
    elif result[1] == width_bytes * len(addresses):
        explanation = "a byte that several lanes read counts once."
    elif result[1] == _SECTOR_BYTES * expected[0]:
        explanation = "these are all bytes that are moved; count only those that are read."
    message = (
        f"the request has {expected[0]} sectors and {expected[1]} bytes, but asked returned "
        f"{short_repr(result)}"
    )
    raise NotYet(f"{pattern_text}: {message}{f': {explanation}' if explanation else '.'}")


_BARRIER_ADVICE = Advice(
    advice.is_hazard("RAW", "WAR", "WAW"),
    "Threads use each other's elements of shared memory. All of them must have stored before one reads, and "
    "all must have read before one stores again. Both need a __syncthreads().",
)
_UNINITIALIZED_ADVICE = Advice(
    advice.match_any(advice.is_hazard(), _shows_uninitialized_nan),
    "Shared memory is read where nothing has been stored. Let all threads of the block store their elements, "
    "also those at the edges, and put a __syncthreads() between storing and reading.",
)

EXERCISES = (
    KernelExercise(
        "05-copy4",
        "Four at a time",
        kernel="copy4",
        parameters="const float* x, float* y, int n",
        forbids_double_writes=True,
        case=make_copy4_case,
        table=(SpecialInput("next to nothing", _make_tiny_values_case, (1, 2, 3, 7, 43)),),
        reference="copy4.cu",
        naive="copy4_naive.cu",
        level="warm-up",
        budgets=(
            Budget(
                "requests",
                "One request of 16 bytes per lane replaces four of 4 bytes: let each thread copy a float4.",
            ),
        ),
        measured_launch=MeasuredLaunch((1 << 14) + 3),
        advice=(
            Advice(
                advice.is_fault("misaligned"),
                "A float4 must start at a multiple of 16 bytes: let thread i copy elements 4 i to 4 i + 3.",
            ),
            Advice(
                advice.is_out_of_bounds,
                "n need not be a multiple of 4: there are n / 4 complete float4s. Copy the n % 4 floats "
                "after them one by one.",
            ),
            Advice(
                advice.is_written_twice,
                "Each of the last n % 4 floats must be written by only one thread, as all other floats.",
            ),
            Advice(_is_only_end_unwritten, "The end was never copied: n need not be a multiple of 4."),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never copied: there is a thread for every four elements, and the float4s "
                "have indices from 0 to n / 4 - 1.",
            ),
        ),
        praise="the copy is right for every length, with a quarter of the requests.",
    ),
    PythonExercise("05-asked", "The sectors of a request", judge_asked),
    PythonExercise("05-ways", "Conflict ways", judge_ways),
    KernelExercise(
        "05-split",
        "From structs to arrays",
        kernel="split",
        parameters="const float* xyz, float* x, float* y, float* z, int n",
        forbids_double_writes=True,
        case=make_split_case,
        reference="split.cu",
        naive="split_naive.cu",
        budgets=(
            Budget(
                "sectors",
                "Lanes that read 12 bytes apart instead of 4 touch three times the sectors. Let the block "
                "load its floats side by side into shared memory, and split them from there.",
                max_reference_factor=1.1,
            ),
            Budget(
                "conflict_ways",
                "Words 3 apart are in different banks: store the floats in their order, and read every "
                "third one.",
                max_count=1,
            ),
        ),
        measured_launch=MeasuredLaunch(5000, (256, 1, 1)),
        advice=(
            Advice(
                advice.is_fault("out of bounds", "xyz"),
                "The last block has fewer points, because n points are 3 n floats.",
            ),
            Advice(
                advice.is_out_of_bounds,
                "A block of up to 1,024 threads has 3 * blockDim.x floats, and the last block has fewer "
                "points.",
            ),
            Advice(advice.is_written_twice, "Every point must be written by only one thread."),
            _BARRIER_ADVICE,
            Advice(
                advice.is_partly_unwritten,
                "Some points were never written: a block is responsible for blockDim.x points, which are "
                "three times as many floats.",
            ),
            _UNINITIALIZED_ADVICE,
        ),
        praise="every sector that is touched is used in full, and there are no bank conflicts.",
    ),
    KernelExercise(
        "05-transpose",
        "Transpose through a tile",
        kernel="transpose",
        parameters="const float* x, float* y, int rows, int cols",
        forbids_double_writes=True,
        case=make_transpose_case,
        reference="transpose.cu",
        naive="transpose_naive.cu",
        sizes=draw.draw_matrix_sizes,
        blocks=_draw_flat_blocks,
        budgets=(
            Budget(
                "sectors",
                "threadIdx.x must run along a row where you load and where you store: use the tile between "
                "them to exchange rows and columns.",
            ),
            Budget(
                "conflict_ways",
                "The 32 elements of a column are in one bank if a row has 32 floats: a row of 33 moves each "
                "of them to a different bank.",
                max_count=1,
            ),
        ),
        measured_launch=MeasuredLaunch((160, 96), (32, 8, 1)),
        advice=(
            Advice(
                _is_outside_tile,
                "A block can have any height up to 32, so let each thread step through the rows of the tile "
                "by blockDim.y, while the row is below 32.",
            ),
            Advice(
                advice.is_out_of_bounds,
                "Guard loads with rows and cols, and stores with cols and rows: y has cols rows of `rows` "
                "elements.",
            ),
            Advice(advice.is_written_twice, "Every element of y must be written by only one thread."),
            _BARRIER_ADVICE,
            Advice(
                advice.match_all(
                    advice.is_partly_unwritten, lambda mistake: mistake["rows"] != mistake["cols"]
                ),
                "Some elements were never written: y has cols rows of `rows` elements, and block (x, y) "
                "writes the tile at position (y, x).",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written: a block of 32 × h threads has to move a tile of 32 × 32.",
            ),
            Advice(
                lambda mistake: (
                    mistake.actual_values is not None
                    and mistake["rows"] == mistake["cols"]
                    and bool((mistake.actual_values == mistake["x"]).all())
                ),
                "The result is a copy: exchange row and column within the tile as well.",
            ),
            _UNINITIALIZED_ADVICE,
        ),
        praise="loads and stores are coalesced, without bank conflicts, for matrices of any shape.",
    ),
    KernelExercise(
        "05-spill",
        "Repair: an array in local memory",
        kernel="median5",
        parameters="const int* x, int* y, int n",
        forbids_double_writes=True,
        case=make_median5_case,
        reference="median5.cu",
        naive="median5_naive.cu",
        sizes=_draw_lengths_around_five,
        kind="repair",
        budgets=(
            Budget(
                "local_bytes",
                "A register has a number, not an address: every index must be known when the kernel is "
                "compiled. Give the loops fixed bounds, and swap with min and max.",
                max_count=0,
            ),
        ),
        measured_launch=MeasuredLaunch(4096, (256, 1, 1)),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "At the ends, the first or the last element must be used instead of the missing ones.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some medians were never written: of equal elements, the earlier ones must count as "
                "smaller, so that exactly one of the five has two smaller ones.",
            ),
        ),
        praise="five numbers are kept in five registers, without local memory.",
    ),
    KernelExercise(
        "05-padded",
        "Leave the padding alone",
        kernel="padded",
        parameters="const float* x, const int* length, float* y, int rows, int cols",
        forbids_double_writes=True,
        case=draw_padded_case,
        table=_PADDED_ROWS,
        reference="padded.cu",
        naive="padded_naive.cu",
        sizes=draw.draw_matrix_sizes,
        blocks=draw.draw_plane_blocks,
        budgets=(
            Budget(
                "dram_bytes",
                "Padding that is loaded comes from memory as well: check whether an element is valid before "
                "you load it.",
            ),
            Budget("sectors", "threadIdx.x varies fastest within a warp, so use it for the columns."),
        ),
        measured_launch=MeasuredLaunch((60, 500), (32, 8, 1)),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "Guard both edges: a row has cols elements, and length has one element per row.",
            ),
            Advice(advice.is_written_twice, "Threads beyond the last column write into the next row."),
            Advice(
                _is_only_padding_wrong,
                "The padding can contain NaN and infinity, and 0 times these is NaN: select values, do not "
                "multiply them.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written: in y, padding is 0, and a thread has to write it.",
            ),
        ),
        praise="no byte of the padding is loaded.",
    ),
    KernelExercise(
        "05-matmul",
        "Tiled matrix multiplication",
        kernel="matmul",
        parameters="const float* a, const float* b, float* c, int rows, int cols, int inner",
        forbids_double_writes=True,
        case=make_matmul_case,
        table=(SpecialInput("an infinity at the end", _make_infinite_end_case, ((5, 7, 35), (17, 3, 2))),),
        reference="matmul.cu",
        naive="matmul_naive.cu",
        level="stretch",
        sizes=_draw_matmul_sizes,
        blocks=_draw_square_blocks,
        budgets=(
            Budget(
                "load_sectors",
                "Each element should be loaded once for its block, not once for its thread: load it side "
                "by side into a tile of shared memory, and read it from there as often as needed.",
            ),
            Budget(
                "conflict_ways",
                "A warp should read one row of b's tile and one element of a's tile: let k run along a's row "
                "and down b's column.",
                max_count=1,
            ),
        ),
        measured_launch=MeasuredLaunch((64, 96, 64), (32, 32, 1), draw_launches=_draw_matmul_launches),
        advice=(
            Advice(
                _is_outside_tile,
                "Blocks have up to 32 × 32 threads, and each tile must have space for as many elements.",
            ),
            Advice(
                advice.is_out_of_bounds,
                "Guard each load with the bounds of its own matrix: a has rows × inner elements, and b has "
                "inner × cols.",
            ),
            _BARRIER_ADVICE,
            Advice(
                advice.is_result_of(_multiply_whole_tiles),
                "The last tile can be incomplete: round the number of tiles up, and let elements outside the "
                "matrix count as 0.",
            ),
            Advice(
                _shows_infinity_times_zero,
                "Elements outside must count as 0 in both tiles, because infinity times 0 is NaN.",
            ),
            _UNINITIALIZED_ADVICE,
            Advice(
                advice.match_all(_is_fully_written, lambda mistake: mistake["inner"] > mistake.case.block[0]),
                "Are elements outside a matrix stored as 0 in every iteration? And does a __syncthreads() "
                "prevent the next iteration from overwriting elements that other threads still read?",
            ),
        ),
        praise="each element is loaded once per block, for any shape.",
    ),
)
