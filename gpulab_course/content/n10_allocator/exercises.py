"""Exercises of notebook 10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from gpulab.words import count as counted
from gpulab_course.content.n10_allocator import pool, pool_rules
from gpulab_course.teach.judge import (
    Answer,
    Budget,
    DataGenerator,
    ExpectedFloats,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    call,
    is_number,
    list_parts,
    short_repr,
)

KIB = 1 << 10
MIB = 1 << 20
_NO_WAIT_ADVICE = "Nothing here needs the host: float(), .get() and synchronize() make it wait."
_MEMORY_ADVICE = (
    (
        "OutOfMemoryError",
        "The program must reserve less memory at once: find out which arrays are alive at the peak.",
    ),
)


# 10-predict

_EDGE_SIZES_BYTES = (
    1,
    511,
    512,
    513,
    4_000_000,
    MIB - 1,
    MIB,
    MIB + 1,
    9 * MIB,
    10 * MIB - 512,
    10 * MIB - 1,
    10 * MIB,
    10 * MIB + 1,
    11 * MIB,
    11 * MIB - 512,
    12 * MIB,
    12 * MIB + 1,
    33_333_333,
)


def round_up(size: int, unit: int) -> int:
    """Return `size`, rounded up to a multiple of `unit`."""
    return -(-size // unit) * unit


def after_one(size: int) -> tuple[int, int, int, int]:
    """Return the used and reserved bytes of CuPy's and PyTorch's memory pools after one allocation (reference
    solution).
    """
    block_bytes = round_up(size, 512)
    if not size:
        return 0, 0, 0, 0
    if block_bytes <= MIB:
        segment_bytes = 2 * MIB
    elif block_bytes < 10 * MIB:
        segment_bytes = 20 * MIB
    else:
        segment_bytes = round_up(block_bytes, 2 * MIB)
    # A large segment is not split if the remainder would be small.
    is_split = block_bytes <= MIB or segment_bytes - block_bytes > MIB
    return block_bytes, block_bytes, block_bytes if is_split else segment_bytes, segment_bytes


_RESULT_PART_NAMES = (
    "used in CuPy's pool",
    "reserved by CuPy's pool",
    "used in PyTorch's pool",
    "reserved by PyTorch's pool",
)


def judge_after_one(answer: Answer) -> str:
    """Judge the learner's function `after_one` with random sizes, and with sizes around each limit of the
    pools.
    """
    rng = answer.rng
    large_size = 2 * MIB * int(rng.integers(6, 40))
    offsets = (-1, 1, 512, 513, MIB - 512, MIB, MIB + 512)
    edge_sizes = [size - offset for size in (20 * MIB, large_size) for offset in offsets]
    request_sizes = [
        0,
        *_EDGE_SIZES_BYTES,
        *edge_sizes,
        *(int(n) for n in rng.integers(1, 64 * MIB, 40)),
        *map(int, rng.integers(1, MIB, 20)),
    ]
    for size in request_sizes:
        result = call(answer, size, name="after_one")
        expected_parts = after_one(size)
        result_parts = list_parts(result)
        if result_parts is None or len(result_parts) != 4 or not all(map(is_number, result_parts)):
            raise NotYet(f"after_one({size:,}) should return four numbers, as a tuple.")
        for part_name, result_part, expected in zip(
            _RESULT_PART_NAMES, result_parts, expected_parts, strict=True
        ):
            if result_part != expected:
                difference_text = (
                    f"after a request of {size:,} bytes, {expected:,} bytes are {part_name}, not "
                    f"{short_repr(result_part)}."
                )
                raise NotYet(f"{difference_text}{_explain_wrong_size(size, part_name)}")
    return (
        "right for every size: requests are rounded up to 512 bytes, and segments follow rules of their own."
    )


def _explain_wrong_size(size: int, part_name: str) -> str:
    """Return the feedback for a wrong number of used or reserved bytes."""
    if size == 0:
        return " A request of 0 bytes takes no pool block and no segment."
    if "used in PyTorch" in part_name and after_one(size)[2] != after_one(size)[0]:
        return (
            " A medium or large segment is cut only if more than 1 MiB would be left; here all of it is used."
        )
    if "reserved by PyTorch" not in part_name:
        return " Pool blocks are multiples of 512 bytes, and CuPy takes a segment of exactly this size."
    block_bytes = round_up(size, 512)
    if block_bytes <= MIB:
        return " Up to 1 MiB, this size included, PyTorch takes a segment of 2 MiB."
    if block_bytes < 10 * MIB:
        return " Between 1 and 10 MiB PyTorch takes a segment of 20 MiB, and other requests can use the rest."
    return " From 10 MiB on PyTorch rounds up to a multiple of 2 MiB."


PREDICT_EXERCISE = PythonExercise(
    "10-predict", "Used and reserved, in both pools", judge_after_one, level="warm-up"
)


# 10-scale


def draw_scale_sizes(rng: np.random.Generator) -> tuple[tuple[int, float], ...]:
    """Return array lengths and scales for the tests, as pairs. With a negative scale, all numbers have the
    same sign.
    """
    element_count = int(rng.integers(50_000, 99_000))
    small_sizes = (
        (1, 1.0),
        (2, 1e8),
        (33, 0.375),
        (40, 2e-4),  # a range of less than 1
        (int(rng.integers(100, 5000)), 1e-3 * int(rng.integers(1000, 9000))),
        (int(rng.integers(64, 1000)), -2.5),
        (int(rng.integers(1001, 2000)), -0.5),
    )
    return *small_sizes, (element_count, 1.0), (100_000, 1.0)


def make_scale_case(random_data: DataGenerator, size: tuple[int, float]) -> ProgramCase:
    """Return a test case with numbers that are far apart, equal, or all of one sign."""
    n, scale_factor = size
    x = random_data.integer_floats(n, -1000, 1000) * np.float32(scale_factor)
    if n == 33:
        x[:] = -7.25
    elif scale_factor < 0:
        x = (1 + np.abs(x)) * np.float32(-1 if n < 1000 else 1)
    elif n > 1:
        x[:2] = -1000 * scale_factor, min(0.1, 1000 * scale_factor)
    x64 = x.astype(np.float64)
    minimum = x64.min()
    maximum = x64.max()
    expected = (x64 - minimum) / max(maximum - minimum, 1.0) * 2 - 1
    label = f"scaled(x) with {counted(n, 'element')}"
    near_expected = ExpectedFloats(expected.astype(np.float32), 1.0, 8)
    return ProgramCase((x,), near_expected, True, label, required_place="device", keeps_arguments=True)


def scaled(x: Any) -> Any:
    """Scale an array to the range from -1 to 1 in one new array (reference solution)."""
    cp = session.cp()
    minimum = x.min()
    maximum = x.max()
    y = x - minimum
    y /= cp.maximum(maximum - minimum, 1)
    y *= 2
    y -= 1
    return y


def scaled_naive(x: Any) -> Any:
    """Scale an array to the range from -1 to 1 with a new array for each step (naive version)."""
    cp = session.cp()
    minimum = x.min()
    maximum = x.max()
    shifted_values = x - minimum
    unit_values = shifted_values / cp.maximum(maximum - minimum, 1)
    doubled_values = unit_values * 2
    return doubled_values - 1


SCALE_EXERCISE = ProgramExercise(
    "10-scale",
    "One new array, not four",
    "scaled",
    make_scale_case,
    scaled,
    scaled_naive,
    kind="repair",
    level="warm-up",
    sizes=draw_scale_sizes,
    checks_stream_order=True,
    budgets=(
        Budget(
            "peak_used_bytes",
            "Change your one new array in place: y *= 2, or out=y.",
            max_reference_factor=1.1,
            large_sizes_only=True,
        ),
        Budget("waits", _NO_WAIT_ADVICE, max_count=0),
        Budget("to_host_copies", "Keep all of the work on the device.", max_count=0),
        Budget("to_device_copies", "Keep all of the work on the device.", max_count=0),
    ),
    praise="the program needs only one array in addition to the input, however many steps there are.",
)


# 10-fit

NUMBERS_PER_RESULT = 1000


def draw_fit_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return window counts and window lengths for the tests, as pairs."""
    window_count = int(rng.integers(4, 7))
    n = int(rng.integers(60_000, 90_000))
    return (1, 1), (1, 1000), (2, 33), (window_count, n), (3, 100_000), (8, 1 << 19)


def make_fit_case(random_data: DataGenerator, size: tuple[int, int]) -> ProgramCase:
    """Return a test case whose program finds the maximum of several windows of one array. The largest
    magnitude of some windows is at an end of the window, or belongs to a negative number.
    """
    window_count, n = size
    x = random_data.floats(2 * n) * np.float32(100)
    starts = random_data.rng.integers(0, n + 1, window_count)
    first_start = starts.min()
    last_start = starts.max()
    # Only the window that begins first contains its first element, and only the last one its last.
    x[last_start + n - 1] = 2000
    if window_count > 1:
        starts[:] = np.where(
            (starts == first_start) & (np.arange(window_count) != starts.argmin()), last_start, starts
        )
        first_start = 0
        starts[starts.argmin()] = first_start
        x[first_start] = -3000
    if window_count > 3:  # two windows are the same
        _, first_index, second_index, *_ = starts.argsort()
        starts[first_index] = starts[second_index]
    maxima = np.array(
        [np.sqrt(np.abs(x[window_start : window_start + n])).max() for window_start in starts], np.float32
    )
    expected = np.repeat(maxima[:, None], NUMBERS_PER_RESULT, axis=1)
    label = f"tops(x, starts, {n:,}) with {counted(window_count, 'window')}"
    arguments = x, tuple(map(int, starts)), n
    return ProgramCase(arguments, expected, True, label, required_place="device", keeps_arguments=True)


def call_with_limited_memory(recorder: Any, program: Any, x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Call a program with a memory limit that leaves space for its results and 4/3 of one window."""
    cp_pool = recorder.cp.get_default_memory_pool()
    cp_pool.free_all_blocks()
    free_bytes = 1.34 * 4 * n + 2 * len(starts) * 8 * NUMBERS_PER_RESULT + 64 * KIB
    cp_pool.set_limit(size=int(cp_pool.total_bytes() + free_bytes))
    try:
        return program(x, starts, n)
    finally:
        cp_pool.set_limit(size=0)


def tops(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Compute the maximum of each window in one workspace, which is allocated after the results (reference
    solution).
    """
    cp = session.cp()
    top_values = cp.empty((len(starts), NUMBERS_PER_RESULT), np.float32)
    workspace = cp.empty(n, np.float32)
    for output_row, window_start in zip(top_values, starts, strict=True):
        cp.abs(x[window_start : window_start + n], out=workspace)
        cp.sqrt(workspace, out=workspace)
        output_row[...] = workspace.max()
    return top_values


def tops_in_freed_memory(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Compute the maximum of each window, and allocate each result in memory that was just freed (naive
    version).
    """
    cp = session.cp()
    results = []
    for window_start in starts:
        workspace = cp.abs(x[window_start : window_start + n])
        cp.sqrt(workspace, out=workspace)
        maximum = workspace.max()
        del workspace
        results.append(cp.full(NUMBERS_PER_RESULT, maximum, np.float32))
    return cp.stack(results)


FIT_EXERCISE = ProgramExercise(
    "10-fit",
    "Make it fit",
    "tops",
    make_fit_case,
    tops,
    None,
    kind="repair",
    sizes=draw_fit_sizes,
    call_program=call_with_limited_memory,
    checks_stream_order=True,
    budgets=(
        Budget(
            "peak_reserved_bytes",
            "A segment with one small array cannot be returned to the driver: do not cut results out of it.",
            max_reference_factor=1.1,
            large_sizes_only=True,
        ),
        Budget("driver_calls", "One workspace is enough for all windows.", max_count=14),
        Budget("waits", _NO_WAIT_ADVICE, max_count=0),
    ),
    advice=(
        (
            "OutOfMemoryError",
            "The rows stay in the middle of memory that was freed: allocate them before the windows.",
        ),
    ),
    praise="the windows share one workspace, and the results are in other memory.",
)


# 10-side


def draw_side_sizes(rng: np.random.Generator) -> tuple[int, ...]:
    """Return the input lengths for the tests. The learner's score is computed for the last length."""
    return 1, 33, 1000, int(rng.integers(5_000, 90_000)), 100_000


def make_side_case(random_data: DataGenerator, n: int) -> ProgramCase:
    """Return a test case with much work on a side stream and little work on the main stream."""
    x = random_data.floats(n) * np.float32(100)
    side_result = ExpectedFloats(x * np.float32(2) + np.float32(40), np.abs(x) * 2 + 40)
    label = f"both(x) with {counted(n, 'element')}"
    return ProgramCase(
        (x,), (side_result, x * np.float32(3)), True, label, required_place="device", keeps_arguments=True
    )


def both(x: Any) -> Any:
    """Run both paths, and free the side stream's memory only after the streams have joined (reference
    solution).
    """
    cp = session.cp()
    main_stream = cp.cuda.get_current_stream()
    side_stream = cp.cuda.Stream(non_blocking=True)
    doubled = x * 2
    side_stream.wait_event(main_stream.record())
    with side_stream:
        y = doubled + 20
        y += 20
        side_event = side_stream.record()
    z = x * 3
    main_stream.wait_event(side_event)
    return y, z


def both_freed_early(x: Any) -> Any:
    """Run both paths, but free the array `doubled` while the side stream still reads it (naive version)."""
    cp = session.cp()
    main_stream = cp.cuda.get_current_stream()
    side_stream = cp.cuda.Stream(non_blocking=True)
    doubled = x * 2
    side_stream.wait_event(main_stream.record())
    with side_stream:
        y = doubled + 20
        y += 20
        side_event = side_stream.record()
    del doubled
    z = x * 3
    main_stream.wait_event(side_event)
    return y, z


SIDE_STREAM_EXERCISE = ProgramExercise(
    "10-side",
    "Freed too early",
    "both",
    make_side_case,
    both,
    None,
    kind="repair",
    sizes=draw_side_sizes,
    checks_stream_order=True,
    budgets=(
        Budget("waits", _NO_WAIT_ADVICE, max_count=0),
        Budget("streams", "The two results should be computed on two streams.", min_count=2),
        Budget(
            "beside",
            "No kernels of the two streams run at the same time: wait for the side stream only at the end.",
            min_count=2,
        ),
        Budget(
            "held_up",
            "The current stream waits before its own result is ready: wait for the side stream at the end.",
            max_count=0,
        ),
    ),
    advice=(("In another order", "The memory is free for its stream as soon as Python deletes the array."),),
    praise="both streams can run at the same time, and no memory is reused while it is being read.",
)


# 10-pool


def make_pool_case(random_data: DataGenerator, count: int) -> ProgramCase:
    """Return a test case with requests to a memory pool. The test checks the driver calls that the pool
    made.
    """
    requests = pool.draw_requests(random_data, count)
    return ProgramCase(
        (requests,),
        lambda log: pool_rules.check_log(requests, log),
        False,
        f"a trace of {len(requests)} requests",
    )


def replay_with_recorder(
    recorder: Any, program: Callable[..., Any], requests: tuple[pool.PoolRequest, ...]
) -> Any:
    """Send a trace of requests to two memory pools, and record the number of their driver calls."""
    return recorder.run_recorded(lambda: pool.replay_requests(program, requests))


POOL_EXERCISE = ProgramExercise(
    "10-pool",
    "A pool of your own",
    "MyPool",
    make_pool_case,
    pool.MyPool,
    level="stretch",
    sizes=(1, 40, 300),
    call_program=replay_with_recorder,
    budgets=(
        Budget(
            "driver_calls",
            "Keep freed pool blocks for the next request, cut large ones, and join free neighbours.",
        ),
        Budget("peak_reserved_bytes", "Take the smallest pool block that fits, and join free neighbours."),
    ),
    praise="pool blocks are cut, joined and kept apart by stream, and whole segments are returned to the "
    "driver.",
)


# 10-rows


def draw_rows_sizes(rng: np.random.Generator) -> tuple[tuple[int, int, float], ...]:
    """Return token counts, token lengths and scales for the tests, as triples."""
    odd_count = int(rng.integers(66, 127))
    row_count = int(rng.integers(129, 192))
    small_sizes = (1, 4, 1.0), (33, 8, 0.9), (64, 16, 16.0), (65, 4, 1.0), (odd_count, 4, 32.0)
    return *small_sizes, (row_count, 16, 1.0), (512, 16, 1.0)


def make_rows_case(random_data: DataGenerator, size: tuple[int, int, float]) -> ProgramCase:
    """Return a test case for attention with ``n`` tokens of ``d`` numbers. For a large scale, the
    exponentials overflow.
    """
    n, d, score_factor = size
    h = (random_data.integer_floats((n, d), -3, 4) / 4 * score_factor).astype(np.float32)
    scores = h.astype(np.float64) @ h.T / np.sqrt(d)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = (powers / powers.sum(axis=1, keepdims=True)) @ h
    near_expected = ExpectedFloats(expected.astype(np.float32), score_factor, 64)
    label = f"attend(h) with {counted(n, 'token')}"
    return ProgramCase((h,), near_expected, True, label, required_place="device", keeps_arguments=True)


def attend(h: Any) -> Any:
    """Compute attention in place for 64 rows of scores at a time (reference solution)."""
    cp = session.cp()
    n, d = h.shape
    output = cp.empty_like(h)
    for first_row in range(0, n, 64):
        scores = h[first_row : first_row + 64] @ h.T
        scores *= np.float32(d**-0.5)
        scores -= scores.max(axis=1, keepdims=True)
        cp.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        cp.matmul(scores, h, out=output[first_row : first_row + 64])
        del scores
    return output


def attend_naive(h: Any) -> Any:
    """Compute attention with all rows of scores, and with a new array for each step (naive version)."""
    cp = session.cp()
    scores = h @ h.T * np.float32(h.shape[1] ** -0.5)
    powers = cp.exp(scores - scores.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)) @ h


ROWS_EXERCISE = ProgramExercise(
    "10-rows",
    "Attention, some rows at a time",
    "attend",
    make_rows_case,
    attend,
    attend_naive,
    sizes=draw_rows_sizes,
    checks_stream_order=True,
    budgets=(
        Budget(
            "peak_used_bytes",
            "Compute some rows at a time, change their scores in place, and delete "
            "them (del scores) before the next ones are made.",
            max_reference_factor=1.35,
            large_sizes_only=True,
        ),
        Budget(
            "launches",
            "Take more rows at a time: a row needs little memory, but each launch takes time.",
            max_reference_factor=2.0,
            large_sizes_only=True,
        ),
        Budget("waits", _NO_WAIT_ADVICE, max_count=0),
        Budget("to_host_bytes", "No data has to leave the device.", max_count=0),
    ),
    advice=_MEMORY_ADVICE,
    praise="there is no n × n array at any time.",
)

EXERCISES = (
    PREDICT_EXERCISE,
    SCALE_EXERCISE,
    FIT_EXERCISE,
    SIDE_STREAM_EXERCISE,
    POOL_EXERCISE,
    ROWS_EXERCISE,
)
