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
    Draw,
    Near,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    call,
    is_number,
    parts_of,
    spelt,
)

KIB = 1 << 10
MIB = 1 << 20
_NO_WAIT = "Nothing here needs the host: float(), .get() and synchronize() make it stand still."
_MEMORY = (
    (
        "OutOfMemoryError",
        "What is taken of the device at once has to become less: see what lives at the peak.",
    ),
)


# 10-predict

_ODD = (
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
    """Return the next multiple."""
    return -(-size // unit) * unit


def after_one(size: int) -> tuple[int, int, int, int]:
    """The reference: used and reserved bytes in CuPy's pool and in PyTorch's, after one allocation."""
    block = round_up(size, 512)
    if not size:
        return 0, 0, 0, 0
    segment = 2 * MIB if block <= MIB else 20 * MIB if block < 10 * MIB else round_up(block, 2 * MIB)
    cut = block <= MIB or segment - block > MIB  # no piece of a large segment is left that is small
    return block, block, block if cut else segment, segment


_PARTS = (
    "used in CuPy's pool",
    "reserved by CuPy's pool",
    "used in PyTorch's pool",
    "reserved by PyTorch's pool",
)


def judge_after_one(answer: Answer) -> str:
    """Sizes around every limit, and some at random."""
    rng = answer.rng
    page = 2 * MIB * int(rng.integers(6, 40))
    parts = (-1, 1, 512, 513, MIB - 512, MIB, MIB + 512)
    ends = [whole - part for whole in (20 * MIB, page) for part in parts]
    sizes = [
        0,
        *_ODD,
        *ends,
        *(int(n) for n in rng.integers(1, 64 * MIB, 40)),
        *map(int, rng.integers(1, MIB, 20)),
    ]
    for size in sizes:
        found = call(answer, size, name="after_one")
        right = after_one(size)
        four = parts_of(found)
        if four is None or len(four) != 4 or not all(map(is_number, four)):
            raise NotYet(f"after_one({size:,}) should return four numbers, as a tuple.")
        for part, got, wanted in zip(_PARTS, four, right, strict=True):
            if got != wanted:
                said = f"after {size:,} bytes, {wanted:,} are {part}; you say {spelt(got)}."
                raise NotYet(f"{said}{_why(size, part)}")
    return "right for every size: blocks are rounded to 512 bytes, and segments are another matter."


def _why(size: int, part: str) -> str:
    if size == 0:
        return " No bytes take no block, and no segment."
    if "used in PyTorch" in part and after_one(size)[2] != after_one(size)[0]:
        return " A large block is cut only where more than 1 MiB would be left; here it is used whole."
    if "reserved by PyTorch" not in part:
        return " Blocks are multiples of 512 bytes, and CuPy takes a segment of just that size."
    block = round_up(size, 512)
    if block <= MIB:
        return " Up to 1 MiB, the block itself included, PyTorch takes a segment of 2 MiB."
    if block < 10 * MIB:
        return " Between 1 and 10 MiB PyTorch takes 20 MiB, so that there is something to split."
    return " From 10 MiB on PyTorch rounds up to 2 MiB."


PREDICT = PythonExercise("10-predict", "Used and reserved, in both pools", judge_after_one, level="warm-up")


# 10-scale


def scale_sizes(rng: np.random.Generator) -> tuple[tuple[int, float], ...]:
    """Elements, and how large they are; with a negative factor they are on one side of 0."""
    some = int(rng.integers(50_000, 99_000))
    small = (
        (1, 1.0),
        (2, 1e8),
        (33, 0.375),
        (40, 2e-4),  # less than 1 from end to end
        (int(rng.integers(100, 5000)), 1e-3 * int(rng.integers(1000, 9000))),
        (int(rng.integers(64, 1000)), -2.5),
        (int(rng.integers(1001, 2000)), -0.5),
    )
    return *small, (some, 1.0), (100_000, 1.0)


def scale_case(drawn: Draw, size: tuple[int, float]) -> ProgramCase:
    """Numbers that lie far from each other, or all alike, or on one side of 0; fractions among them."""
    n, factor = size
    x = drawn.whole(n, -1000, 1000) * np.float32(factor)
    if n == 33:
        x[:] = -7.25
    elif factor < 0:
        x = (1 + np.abs(x)) * np.float32(-1 if n < 1000 else 1)
    elif n > 1:
        x[:2] = -1000 * factor, min(0.1, 1000 * factor)
    wide = x.astype(np.float64)
    low = wide.min()
    high = wide.max()
    right = (wide - low) / max(high - low, 1.0) * 2 - 1
    label = f"scaled(x) with {counted(n, 'element')}"
    near = Near(right.astype(np.float32), 1.0, 8)
    return ProgramCase((x,), near, True, label, place="device", unchanged=True)


def scaled(x: Any) -> Any:
    """The reference: one new array, changed in place."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    y = x - low
    y /= cp.maximum(high - low, 1)
    y *= 2
    y -= 1
    return y


def scaled_at_length(x: Any) -> Any:
    """The naive version: each step keeps its array."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    shifted = x - low
    unit = shifted / cp.maximum(high - low, 1)
    doubled = unit * 2
    return doubled - 1


SCALE = ProgramExercise(
    "10-scale",
    "One array more, not four",
    "scaled",
    scale_case,
    scaled,
    scaled_at_length,
    kind="repair",
    level="warm-up",
    sizes=scale_sizes,
    checked=True,
    budgets=(
        Budget(
            "peak_used_bytes",
            "Change your one new array in place: y *= 2, or out=y.",
            allowance=1.1,
            large=True,
        ),
        Budget("waits", _NO_WAIT, most=0),
        Budget("to_host_copies", "Stay on the device.", most=0),
        Budget("to_device_copies", "Stay on the device.", most=0),
    ),
    praise="one array beyond the input, whatever the number of steps.",
)


# 10-fit

KEPT = 1000


def fit_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Numbers of windows, each with the length of the windows."""
    some = int(rng.integers(4, 7))
    n = int(rng.integers(60_000, 90_000))
    return (1, 1), (1, 1000), (2, 33), (some, n), (3, 100_000), (8, 1 << 19)


def fit_case(drawn: Draw, size: tuple[int, int]) -> ProgramCase:
    """One array, and windows of it to look at; the largest number lies at an end, and may be negative."""
    count, n = size
    x = drawn.floats(2 * n) * np.float32(100)
    starts = drawn.rng.integers(0, n + 1, count)
    first = starts.min()
    last = starts.max()
    # Only the window that begins first contains its first element, and only the last one its last.
    x[last + n - 1] = 2000
    if count > 1:
        starts[:] = np.where((starts == first) & (np.arange(count) != starts.argmin()), last, starts)
        starts[starts.argmin()] = first = 0
        x[first] = -3000
    if count > 3:  # two windows are the same
        _, one, other, *_ = starts.argsort()
        starts[one] = starts[other]
    found = np.array([np.sqrt(np.abs(x[s : s + n])).max() for s in starts], np.float32)
    right = np.repeat(found[:, None], KEPT, axis=1)
    label = f"tops(x, starts, {n:,}) with {counted(count, 'window')}"
    given = x, tuple(map(int, starts)), n
    return ProgramCase(given, right, True, label, place="device", unchanged=True)


def with_little_room(bench: Any, program: Any, x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Call a program with memory for the input, one window, a third of a window, and the result."""
    cp_pool = bench.cp.get_default_memory_pool()
    cp_pool.free_all_blocks()
    room = 1.34 * 4 * n + 2 * len(starts) * 8 * KEPT + 64 * KIB
    cp_pool.set_limit(size=int(cp_pool.total_bytes() + room))
    try:
        return program(x, starts, n)
    finally:
        cp_pool.set_limit(size=0)


def tops(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """The reference: allocate the kept arrays first, and use one workspace again and again."""
    cp = session.cp()
    kept = cp.empty((len(starts), KEPT), np.float32)
    work = cp.empty(n, np.float32)
    for row, start in zip(kept, starts, strict=True):
        cp.abs(x[start : start + n], out=work)
        cp.sqrt(work, out=work)
        row[...] = work.max()
    return kept


def tops_as_given(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """The program as given: kept arrays are allocated in memory that was just freed."""
    cp = session.cp()
    kept = []
    for start in starts:
        work = cp.abs(x[start : start + n])
        cp.sqrt(work, out=work)
        top = work.max()
        del work
        kept.append(cp.full(KEPT, top, np.float32))
    return cp.stack(kept)


FIT = ProgramExercise(
    "10-fit",
    "Make it fit",
    "tops",
    fit_case,
    tops,
    None,
    kind="repair",
    sizes=fit_sizes,
    calls=with_little_room,
    checked=True,
    budgets=(
        Budget(
            "peak_reserved_bytes",
            "A segment with one small block in use cannot go back: let what stays not be cut out of it.",
            allowance=1.1,
            large=True,
        ),
        Budget("driver_calls", "One workspace serves all windows.", most=14),
        Budget("waits", _NO_WAIT, most=0),
    ),
    advice=(("OutOfMemoryError", "What stays sits in the middle of what was freed: allocate it before."),),
    praise="the workspace goes round, and what stays lies elsewhere.",
)


# 10-side


def side_sizes(rng: np.random.Generator) -> tuple[int, ...]:
    """Sizes of inputs: small ones, a random one, and that of the score."""
    return 1, 33, 1000, int(rng.integers(5_000, 90_000)), 100_000


def side_case(drawn: Draw, n: int) -> ProgramCase:
    """A long way on a side stream, a short one on the main one."""
    x = drawn.floats(n) * np.float32(100)
    long = Near(x * np.float32(2) + np.float32(40), np.abs(x) * 2 + 40)
    label = f"both(x) with {counted(n, 'element')}"
    return ProgramCase((x,), (long, x * np.float32(3)), True, label, place="device", unchanged=True)


def both(x: Any) -> Any:
    """The reference: memory that the side stream reads is kept until the join."""
    cp = session.cp()
    main = cp.cuda.get_current_stream()
    side = cp.cuda.Stream(non_blocking=True)
    doubled = x * 2
    side.wait_event(main.record())
    with side:
        y = doubled + 20
        y += 20
        done = side.record()
    z = x * 3
    main.wait_event(done)
    return y, z


def both_as_given(x: Any) -> Any:
    """As given: `doubled` is freed on the main stream while the side stream reads it."""
    cp = session.cp()
    main = cp.cuda.get_current_stream()
    side = cp.cuda.Stream(non_blocking=True)
    doubled = x * 2
    side.wait_event(main.record())
    with side:
        y = doubled + 20
        y += 20
        done = side.record()
    del doubled
    z = x * 3
    main.wait_event(done)
    return y, z


SIDE = ProgramExercise(
    "10-side",
    "Freed too early",
    "both",
    side_case,
    both,
    None,
    kind="repair",
    sizes=side_sizes,
    checked=True,
    budgets=(
        Budget("waits", _NO_WAIT, most=0),
        Budget("streams", "The two ways should run on two streams.", least=2),
        Budget(
            "beside",
            "Nothing of the two ways runs side by side: wait for the side stream at the end only.",
            least=2,
        ),
        Budget("held_up", "The current stream waits before its own way is done: join at the end.", most=0),
    ),
    advice=(("In another order", "A block is free for its stream as soon as Python drops the array."),),
    praise="both streams run beside each other, and no block is given away under a reader.",
)


# 10-pool


def pool_case(drawn: Draw, count: int) -> ProgramCase:
    """A trace of requests; what the pool did is looked at afterwards."""
    asks = pool.trace(drawn, count)
    return ProgramCase(
        (asks,), lambda log: pool_rules.look_at(asks, log), False, f"a trace of {len(asks)} requests"
    )


def driven(bench: Any, program: Callable[..., Any], asks: tuple[pool.Ask, ...]) -> Any:
    """Run a trace on two pools, and count their calls of the driver."""
    return bench.watched(lambda: pool.drive(program, asks))


POOL = ProgramExercise(
    "10-pool",
    "A pool of your own",
    "MyPool",
    pool_case,
    pool.MyPool,
    level="stretch",
    sizes=(1, 40, 300),
    calls=driven,
    budgets=(
        Budget(
            "driver_calls",
            "Keep what is freed for the next request, cut large blocks, and join free neighbours.",
        ),
        Budget("peak_reserved_bytes", "Take the smallest block that fits, and join free neighbours."),
    ),
    praise="split, joined, apart by stream, and given back whole.",
)


# 10-rows


def rows_sizes(rng: np.random.Generator) -> tuple[tuple[int, int, float], ...]:
    """Tokens, their length, and how large they are."""
    ragged = int(rng.integers(66, 127))
    some = int(rng.integers(129, 192))
    small = (1, 4, 1.0), (33, 8, 0.9), (64, 16, 16.0), (65, 4, 1.0), (ragged, 4, 32.0)
    return *small, (some, 16, 1.0), (512, 16, 1.0)


def rows_case(drawn: Draw, size: tuple[int, int, float]) -> ProgramCase:
    """Tokens (n, d), and what attention makes of them; large ones have scores whose powers are infinite."""
    n, d, factor = size
    h = (drawn.whole((n, d), -3, 4) / 4 * factor).astype(np.float32)
    scores = h.astype(np.float64) @ h.T / np.sqrt(d)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    right = (powers / powers.sum(axis=1, keepdims=True)) @ h
    near = Near(right.astype(np.float32), factor, 64)
    label = f"attend(h) with {counted(n, 'token')}"
    return ProgramCase((h,), near, True, label, place="device", unchanged=True)


def attend(h: Any) -> Any:
    """The reference: 64 rows of scores at a time, changed in place."""
    cp = session.cp()
    n, d = h.shape
    out = cp.empty_like(h)
    for first in range(0, n, 64):
        scores = h[first : first + 64] @ h.T
        scores *= np.float32(d**-0.5)
        scores -= scores.max(axis=1, keepdims=True)
        cp.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        cp.matmul(scores, h, out=out[first : first + 64])
        del scores
    return out


def attend_at_once(h: Any) -> Any:
    """The naive version: all scores at once, and a new array for each step."""
    cp = session.cp()
    scores = h @ h.T * np.float32(h.shape[1] ** -0.5)
    powers = cp.exp(scores - scores.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)) @ h


ROWS_AT_A_TIME = ProgramExercise(
    "10-rows",
    "Attention in blocks of rows",
    "attend",
    rows_case,
    attend,
    attend_at_once,
    sizes=rows_sizes,
    checked=True,
    budgets=(
        Budget(
            "peak_used_bytes",
            "Work on a block of rows at a time, change its scores in place, and let go "
            "of them (del scores) before the next ones are made.",
            allowance=1.35,
            large=True,
        ),
        Budget(
            "launches",
            "Take more rows at a time: a row needs little, but its launches cost.",
            allowance=2.0,
            large=True,
        ),
        Budget("waits", _NO_WAIT, most=0),
        Budget("to_host_bytes", "Nothing has to leave the device.", most=0),
    ),
    advice=_MEMORY,
    praise="no n × n array at any time.",
)

EXERCISES = (PREDICT, SCALE, FIT, SIDE, POOL, ROWS_AT_A_TIME)
