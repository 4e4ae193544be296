"""Exercises of notebook 06."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab_course.teach.judge import (
    Advice,
    Budget,
    Case,
    Draw,
    KernelExercise,
    Measured,
    Mistake,
    Near,
    Row,
    advice,
    draw,
)
from virtualgpu.records import Dim3

_LEAST = np.iinfo(np.int32).min


def block_stats(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Sum and largest element of each block's elements. Some blocks hold negative numbers alone."""
    blocks = draw.blocks_for(size, block[0])
    threads = block[0]
    most = (1 << 31) // max(threads, 4)  # whose sums fit into an int, and into no float
    x = drawn.integers(size, -most, most)
    negative = np.repeat(drawn.rng.random(blocks) < 0.4, threads)[:size]
    return _stats_of(np.where(negative & (x > 0), ~x, x), block)


def _stats_of(x: Any, block: Dim3) -> Case:
    size = x.size
    threads = block[0]
    blocks = draw.blocks_for(size, threads)
    sums = np.zeros(blocks, np.int32)
    largest = np.full(blocks, _LEAST, np.int32)
    for at in range(-(-size // threads)):
        own = x[at * threads : (at + 1) * threads]
        sums[at], largest[at] = own.sum(dtype=np.int32), own.max()  # wraps around, as int does on the device
    return Case(blocks, {"x": x, "n": size}, {"sums": sums, "largest": largest})


def _alone(drawn: Draw, size: Any, block: Dim3, value: int, others: int) -> Case:
    """Blocks in which one number, the last of a full block, differs from all others."""
    x = np.full(size, others, np.int32)
    x[block[0] - 1 :: block[0]] = value
    return _stats_of(x, block)


def _any_ints(drawn: Draw, size: Any, block: Dim3) -> Case:
    return _stats_of(drawn.rng.integers(_LEAST, -_LEAST, size).astype(np.int32), block)


_STATS = (
    Row("any ints", _any_ints, (1, 33, 1000)),
    Row(
        "the largest int last, others just below",
        lambda data, n, block: _alone(data, n, block, -_LEAST - 1, -_LEAST - 2),
    ),
    Row("all the least int", lambda data, n, block: _alone(data, n, block, _LEAST, _LEAST), (1, 40)),
    Row("zeros and one -1 a block", lambda data, n, block: _alone(data, n, block, -1, 0)),
    Row("all -1", lambda data, n, block: _alone(data, n, block, -1, -1)),
)


def scan(drawn: Draw, size: Any, block: Dim3) -> Case:
    """The exclusive prefix sum over all blocks: the sum of the elements before each element.

    Sums are drawn and numbers are their differences, so that sums of either sign reach far and none leaves
    an int, and what blocks pass on is among it what a flag in its place might be.
    """
    threads = block[0]
    most = 1 << (30 if drawn.kind == draw.EXTREME else int(drawn.rng.choice((12, 30))))
    sums = drawn.integers(size + 1, -most, most, np.int64)
    sums[0] = 0
    ends = np.arange(0, size + 1, threads)
    told = np.where(drawn.rng.random(ends.size) < 0.2, drawn.rng.choice((0, 1, -1), ends.size), sums[ends])
    for k in np.flatnonzero(drawn.rng.random(ends.size - 1) < 0.2):
        told[k + 1] = told[k] + drawn.rng.choice((0, -1))  # of a block alone
    sums[ends[1:]] = told[1:]
    return _scan_of(sums, block)


def _scan_of(sums: Any, block: Dim3) -> Case:
    """Return a case whose results are `sums`; the last of `sums` is the total."""
    blocks = draw.blocks_for(sums.size - 1, block[0])
    state = np.zeros(2 * blocks + 2, np.int32)
    x = np.diff(sums).astype(np.int32)
    return Case(blocks, {"x": x, "state": state, "n": x.size}, {"y": sums[:-1].astype(np.int32)})


def _to_both_ends(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Prefix sums of blocks that are the largest int, the least int, or close to 0."""
    ends = (0, -_LEAST - 1, 0, _LEAST, -1)
    at = np.arange(size + 1)
    told = np.array([ends[k % len(ends)] for k in range(size // block[0] + 2)], np.float64)
    return _scan_of(np.rint(np.interp(at, block[0] * np.arange(told.size), told)).astype(np.int64), block)


_SCANNED = (
    Row("sums at both ends of an int", _to_both_ends, (300, 1000)),
    Row("all 0", lambda data, n, block: _scan_of(np.zeros(n + 1, np.int64), block)),
    Row("all -1", lambda data, n, block: _scan_of(-np.arange(n + 1), block)),
    Row(
        "large numbers that cancel within each block",
        lambda data, n, block: _scan_of(np.where(np.arange(n + 1) % block[0] == 0, 0, -_LEAST - 1), block),
    ),
)


def compact(drawn: Draw, size: Any, block: Dim3) -> Case:
    """All positive elements in order at the front; the elements after them are unchanged."""
    x = drawn.any_integers(size)
    blocks = draw.blocks_for(size, block[0])
    threads = block[0]
    whole = np.repeat(drawn.rng.choice((0, 0, 1, -1), blocks), threads)[:size]
    x = np.where((whole > 0) & (x <= 0), np.maximum(~x, 1), np.where((whole < 0) & (x > 0), ~x, x))
    return _compact_of(drawn, x, block)


def _compact_of(drawn: Draw, x: Any, block: Dim3) -> Case:
    size = x.size
    threads = block[0]
    blocks = draw.blocks_for(size, threads)
    kept = x[x > 0]
    out = drawn.integers(size + 8, 1, 10**9)  # as if it had been used before
    wanted = out.copy()
    wanted[: kept.size] = kept
    before = np.concatenate(([0], np.cumsum(x > 0)))[np.arange(blocks) * threads].astype(np.int32)
    values = {"x": x, "before": before, "out": out, "n": size}
    return Case(blocks, values, {"out": wanted, "count": np.array([kept.size], np.int32)})


def _of(*values: int, every: int = 1) -> Any:
    """Return a row's case with these numbers, repeated, at every `every`-th index, and 0 between them."""

    def case(drawn: Draw, size: Any, block: Dim3) -> Case:
        x = np.zeros(size, np.int32)
        x[::every] = np.resize(np.array(values, np.int32), -(-size // every))
        return _compact_of(drawn, x[::-1].copy(), block)

    return case


_KEPT = (
    Row("all kept", _of(7, 1, -_LEAST - 1)),
    Row("none kept", _of(0, -1, _LEAST)),
    Row("every second kept", _of(5, every=2)),
    Row("one of each 40 kept", _of(3, every=40)),
    Row("all but one of each 5 kept", _of(1, 2, 3, 4, _LEAST)),
)


def blur(drawn: Draw, size: Any, block: Dim3) -> Case:
    """The mean of 5 × 5 pixels; beyond the edges the nearest pixel counts. Fewer blocks than tiles, in y."""
    rows, cols = size
    x = drawn.whole(size, -1000, 1000) / np.float32(16)  # whose sums are exact, and that an int would cut
    if drawn.kind in (draw.INFINITE, draw.NAN):
        chosen = drawn.rng.random(size) < 0.02
        x[chosen] = np.inf if drawn.kind == draw.INFINITE else np.nan
    drawn.special = True
    padded = np.pad(x.astype(np.float64), 2, mode="edge")
    total: Any = sum(padded[dy : dy + rows, dx : dx + cols] for dy in range(5) for dx in range(5))
    tiles = draw.blocks_for(rows, block[1])
    grid = draw.blocks_for(cols, block[0]), int(drawn.rng.integers(1, tiles + 1))
    shared = 4 * (block[0] + 4) * (block[1] + 4)
    wanted = (total / 25).astype(np.float32)
    return Case(grid, {"x": x, "rows": rows, "cols": cols}, {"y": wanted}, shared)


# A row with much -infinity, and one without it, both around 0: they tell mistakes from each other.
_PLAIN = 2


def softmax(drawn: Draw, size: Any, block: Dim3) -> Case:
    """The softmax of each row. Some scores are -infinity, and all of some rows, which become 0."""
    rows, cols = size
    offset = drawn.rng.choice((0, 0, 100, -100, 3000, -30_000, -1e31), (rows, 1))
    offset[:_PLAIN] = 0
    x = drawn.rng.uniform(-2, 2, size) + offset
    rising = drawn.rng.random(rows) < 0.3  # every element is the largest so far
    x[rising] = np.sort(x[rising], axis=1)
    steep = drawn.rng.random(rows) < 0.2
    steep[:_PLAIN] = False
    x[steep] += np.linspace(0, 60, cols)[:: drawn.rng.choice((1, -1))]
    if drawn.kind == draw.DUPLICATES:
        x = np.rint(x)
    masked = drawn.rng.random(size) < drawn.rng.choice((0, 0, 0.3, 0.9), (rows, 1))
    masked |= np.arange(cols) < drawn.rng.choice((0, 0, 0, 33, 200, cols), (rows, 1))
    if rows > _PLAIN:
        masked[0] = (np.arange(cols) < 33) | (drawn.rng.random(cols) < 0.5)
        masked[0, -1] = masked[1] = False
    return _softmax_of(np.where(masked, -np.inf, x).astype(np.float32))


def _softmax_of(x: Any) -> Case:
    rows, cols = x.shape
    wide = x.astype(np.float64)
    most = wide.max(axis=1, keepdims=True)
    powers = np.exp(wide - np.where(np.isfinite(most), most, 0))
    total = powers.sum(axis=1, keepdims=True)
    wanted = powers / np.where(total > 0, total, 1)
    # Fast exponentials are off by what their argument, of up to 64, is rounded by.
    near = Near(wanted.astype(np.float32), np.where(np.isinf(x), 0, wanted), ulps=160)
    return Case(rows, {"x": x, "rows": rows, "cols": cols}, {"y": near})


def _scores(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Rows with one finite score, with equal scores, and with both ends of a float's range."""
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
    return _softmax_of(x)


def _pictures(rng: np.random.Generator, at_once: int) -> list[Any]:
    """`draw.matrices`, and a few long rows."""
    return [*draw.matrices(rng, at_once), (int(rng.integers(3, 5)), int(rng.integers(1025, 1200)))]


def _rows(rng: np.random.Generator, at_once: int) -> list[Any]:
    """(rows, columns): few and many columns, around a warp and a block, and one long row."""
    a, b = (int(n) for n in rng.integers(2, 40, 2))
    wide = int(rng.integers(1025, 2200))
    small = [(6, 64), (1, 1), (3, 1), (a, 31), (5, 32), (b, 33), (7, int(rng.integers(34, 300)))]
    return [
        *small,
        (4, int(rng.integers(513, 1000))),
        (2, wide),
        (3, 4 * 1024 + a),
        (900, int(rng.integers(73, 95))),  # more than 16 bits count
    ]


def _halved(m: Mistake) -> Any:
    """Return sums by repeated halving that rounds down and so drops the last element of an odd number."""
    threads = m.case.block[0]
    padded = np.zeros(m.case.launch_grid[0] * threads, np.int32)
    padded[: m["n"]] = m["x"]
    left: Any = padded.reshape(-1, threads)
    while left.shape[1] > 1:
        half = left.shape[1] // 2
        left = left[:, :half] + left[:, half : 2 * half]
    return left[:, 0]


def _not_below_0(m: Mistake) -> bool:
    if m.name != "largest" or m.found is None or m.wanted is None:
        return False
    return bool((m.found == np.maximum(m.wanted, 0)).all())


def _in_floats(m: Mistake) -> bool:
    """Return whether the results are right but for rounding to float, with many large values."""
    if m.found is None or not advice.nearly(m):
        return False
    held = bool((m.found.astype(np.float32).astype(np.int64) == m.found).all())
    return held and int((np.abs(m.found.astype(np.int64)) > 1 << 26).sum()) > 2


def _inclusive(m: Mistake) -> Any:
    return np.cumsum(m["x"], dtype=np.int32)


def _by_block(m: Mistake) -> bool:
    """Return whether the first block is right; the later ones lack the sum of the elements before them."""
    return m.found is not None and not m.wrong[: m.case.block[0]].any()


def _same_elements(m: Mistake) -> bool:
    if m.name != "out" or m.found is None or m.wanted is None:
        return False
    return sorted(m.found.tolist()) == sorted(m.wanted.tolist())


def _behind(m: Mistake) -> bool:
    """Return whether only elements after the kept ones are wrong."""
    if m.name != "out" or m.found is None:
        return False
    return not m.wrong[: int((m["x"] > 0).sum())].any()


def _never_filled(m: Mistake) -> bool:
    """Return whether NaN appears though all inputs are finite, as in uninitialized shared memory."""
    return _tile_edges(m, 0) and bool(np.isfinite(m["x"]).all() and np.isnan(m.found[m.wrong]).any())  # type: ignore[index]


def _inside_right(m: Mistake) -> bool:
    """Return whether all pixels are right whose 25 neighbours are inside the picture."""
    return _tile_edges(m) and not m.wrong[2:-2, 2:-2].any()


def _tile_edges(m: Mistake, least: int = 4) -> bool:
    return m.found is not None and m["rows"] > least and m["cols"] > least


_OVERFLOWS = 80  # the exponential, or it becomes 0, or nearly so


def _masked_rows_wrong(m: Mistake) -> bool:
    """Return whether only rows with -infinity are wrong, not all large or low, and are 0 or NaN."""
    if m.found is None or m.wrong[np.isfinite(m["x"]).all(axis=1)].any():
        return False
    most = m["x"].max(axis=1)[m.wrong.any(axis=1)]
    if (np.isfinite(most) & (np.abs(most) > _OVERFLOWS)).all():
        return False
    rows = m.found[m.wrong.any(axis=1)]
    return bool((np.isnan(rows) | (rows == 0)).all())


def _low_rows_wrong(m: Mistake) -> bool:
    """Return whether only rows with a largest score far below 0 are wrong, and are 0, unlike other rows."""
    if m.found is None or m["rows"] < 3 or m.found[m.wrong].any():
        return False
    rows = m.wrong.any(axis=1)
    most = m["x"].max(axis=1)
    return bool((most[rows] < -20).all() and (most[~rows] > -20).any())


def _all_hold_infinity(m: Mistake) -> bool:
    """Return whether all wrong rows contain -infinity."""
    return bool(np.isinf(m["x"][m.wrong.any(axis=1)]).any(axis=1).all())


def _extremely_low(m: Mistake) -> bool:
    """Return whether all scores of the wrong rows are lower than a number that a person would type."""
    return bool((m["x"].max(axis=1)[m.wrong.any(axis=1)] < -1e20).all())


def _nearly(m: Mistake) -> bool:
    """Return whether the results are right to two digits, as after rounding."""
    if m.found is None or m.wanted is None:
        return False
    return bool(np.allclose(m.found, m.wanted, rtol=0.01, atol=0))


_ATOMIC_ORDER = (
    "Nothing says which block's or lane's atomic comes first: let votes and sums tell each its place."
)

EXERCISES = (
    KernelExercise(
        "06-block",
        "Repair: a block's sum and maximum",
        kernel="block_stats",
        parameters="const int* x, int* sums, int* largest, int n",
        once=True,
        case=block_stats,
        table=_STATS,
        reference="block_stats.cu",
        naive="block_stats_naive.cu",
        level="warm-up",
        kind="repair",
        budgets=(
            Budget(
                "atomics",
                "A tree needs no atomics: in each step a thread adds to a place of its own.",
                most=0,
            ),
            Budget(
                "shared_wavefronts",
                "Let neighbouring threads add, so that whole warps are done early: in every step thread "
                "t adds what lies behind the middle of what is left. Sums and maxima in arrays of their own "
                "do not conflict.",
                allowance=1.5,
            ),
            Budget("load_sectors", "Each element is read once, by the thread it belongs to."),
        ),
        measured=Measured(1 << 13, (256, 1, 1)),
        advice=(
            Advice(
                advice.fault("out of bounds", "x"),
                "Threads beyond n must not load; they store what changes nothing.",
            ),
            Advice(advice.out_of_bounds, "A block has up to 1,024 threads, and may have one."),
            Advice(advice.written_twice, "One thread of each block writes its results."),
            Advice(
                advice.hazard("RAW", "WAR", "WAW"),
                "What one thread stores and another reads needs a __syncthreads() in between: after storing, "
                "and after every step of the tree, the last ones included. A warp is no barrier.",
            ),
            Advice(
                _not_below_0,
                "All elements of a block may be negative: 0 is not the number that never wins a maximum.",
            ),
            Advice(
                lambda m: m.found is not None and m.name == "sums" and bool((m.found == _halved(m)).all()),
                "A block need not have 64 or 256 threads: where an odd number is left, halving forgets one.",
            ),
            Advice(_in_floats, "Of an int's 31 bits a float keeps 24: compute with ints."),
            Advice(
                lambda m: m.name == "largest" and m["n"] == 0,
                "A block without elements has the largest −2147483648.",
            ),
            Advice(
                lambda m: m.found is not None,
                "Follow the elements: does each of them reach thread 0, and does every thread of the block "
                "pass a __syncthreads() after storing and after each step?",
            ),
        ),
        praise="sum and maximum are right for any n, any block and any numbers.",
    ),
    KernelExercise(
        "06-scan",
        "A scan in one launch",
        kernel="scan",
        parameters="const int* x, int* y, int* state, int n",
        once=True,
        rules=4,
        crowded=True,
        case=scan,
        table=_SCANNED,
        reference="scan.cu",
        budgets=(
            Budget(
                "load_sectors",
                "Each element is loaded once: what lies before a block comes from the block before it.",
                allowance=2.0,
            ),
        ),
        measured=Measured(1 << 13, (256, 1, 1)),
        advice=(
            Advice(
                advice.both(advice.endless, advice.in_stage("orders")),
                "A block waits for one that has not begun, and never will while others hold its place: take "
                "a ticket with an atomic, so that a tile's number says who came first.",
            ),
            Advice(
                advice.endless,
                "It waits for what nobody writes: each block sets its flag, and the first waits for none. A "
                "sum alone is no flag: it may be any number.",
            ),
            Advice(
                advice.fault("out of bounds", "state"),
                "`state` has two ints, and two more for each block.",
            ),
            Advice(advice.out_of_bounds, "Threads beyond n neither load nor store; they add 0."),
            Advice(
                advice.both(advice.written_twice, lambda m: " writes y[" in m.said),
                "Every element belongs to one thread.",
            ),
            Advice(
                advice.both(advice.written_twice, lambda m: " writes state[" in m.said),
                "What one block writes and another polls goes through atomics on both sides: atomicExch sets "
                "a flag, atomicAdd(p, 0) reads it. And only one thread of a block passes its sum on.",
            ),
            Advice(
                advice.hazard("RAW", "WAR", "WAW"),
                "In shared memory a __syncthreads() must stand between storing and reading, and again "
                "before the next storing; between blocks a __threadfence() between the sum and its flag, "
                "on both sides.",
            ),
            Advice(advice.holds(_inclusive), "It is inclusive: what lies *before* an element leaves it out."),
            Advice(
                _by_block, "The first block is right: all others lack what lies before them, or a part of it."
            ),
        ),
        praise="one launch, one pass, and right in whatever order blocks begin.",
    ),
    KernelExercise(
        "06-compact",
        "Keep what is positive, in order",
        kernel="compact",
        parameters="const int* x, const int* before, int* out, int* count, int n",
        once=True,
        case=compact,
        table=_KEPT,
        reference="compact.cu",
        naive="compact_naive.cu",
        blocks=draw.whole_warps,
        budgets=(
            Budget("atomics", _ATOMIC_ORDER, most=0),
            Budget(
                "load_sectors",
                "Each element is loaded once, by its own thread: votes tell how many are kept before it.",
            ),
        ),
        measured=Measured(1 << 13, (256, 1, 1)),
        advice=(
            Advice(advice.out_of_bounds, "Threads beyond n keep nothing, but their votes count as no."),
            Advice(_behind, "What lies behind the last kept element is not yours: leave it as it is."),
            Advice(
                lambda m: m.name == "out" and m.found is not None and bool((m.found <= 0).any()),
                "Store only what is above 0: no 0, neither as an element nor to clear `out`.",
            ),
            Advice(
                _same_elements,
                f"The right elements, in another order. {_ATOMIC_ORDER}",
            ),
            Advice(
                lambda m: m.name == "count", "`count` is how many there are in all; the last block knows."
            ),
            Advice(advice.written_twice, "Every place belongs to one element, and `count` to one thread."),
            Advice(
                advice.hazard("RAW", "WAR", "WAW"),
                "Warps tell each other their numbers in shared memory, with a __syncthreads() in between.",
            ),
            Advice(
                lambda m: m.found is not None,
                "An element's place: those kept in blocks before, in warps before, and in lanes before.",
            ),
        ),
        praise="every kept element knows its place, whichever block comes first.",
    ),
    KernelExercise(
        "06-blur",
        "Blur through a tile",
        kernel="blur",
        parameters="const float* x, float* y, int rows, int cols",
        once=True,
        case=blur,
        reference="blur.cu",
        naive="blur_naive.cu",
        sizes=_pictures,
        blocks=draw.planes,
        budgets=(
            Budget(
                "load_sectors",
                "25 loads a pixel, of which the neighbours repeat most: load the tile and its halo once.",
                allowance=1.5,
            ),
        ),
        measured=Measured((96, 128), (32, 8, 1)),
        advice=(
            Advice(
                advice.fault("out of bounds", "x"),
                "Beyond the edges, on all four sides, the nearest pixel counts: clamp row and column.",
            ),
            Advice(
                advice.fault("out of bounds", "y"),
                "Threads beyond rows or cols help to load, and store nothing.",
            ),
            Advice(
                advice.out_of_bounds,
                "The tile has (blockDim.x + 4) × (blockDim.y + 4) places, and a row of it blockDim.x + 4.",
            ),
            Advice(advice.written_twice, "Every pixel belongs to one thread."),
            Advice(
                advice.fault("barrier"),
                "All threads of a block come to every barrier: keep it out of the guard, and let threads "
                "beyond the edge stay.",
            ),
            Advice(
                advice.hazard("RAW", "WAR", "WAW"),
                "Two barriers a tile: one before it is read, one before it is filled again.",
            ),
            Advice(
                advice.partly_unwritten,
                "Some pixels were never written: there may be fewer blocks than tiles, so each walks on by "
                "gridDim.y tiles.",
            ),
            Advice(
                _never_filled,
                "NaN is what the tile holds where nothing has been stored yet: fill all of it, and let a "
                "__syncthreads() stand between filling and reading.",
            ),
            Advice(
                _inside_right,
                "Inside it is right: at the edges the nearest pixel counts, in rows and in columns alike.",
            ),
            Advice(
                lambda m: m.found is not None and bool(m.wrong.mean() > 0.9),
                "Hardly a pixel is right: it is the sum of 25, in float, divided by 25.",
            ),
            Advice(
                _tile_edges,
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
        once=True,
        case=softmax,
        table=(Row("one score, equal ones, both ends", _scores, ((14, 70), (7, 33), (7, 1300), (7, 2))),),
        reference="softmax.cu",
        naive="softmax_naive.cu",
        level="stretch",
        sizes=_rows,
        blocks=draw.whole_warps,
        budgets=(
            Budget(
                "load_sectors",
                "Largest and sum can be had in one pass: when a larger element comes, scale the sum so far.",
                allowance=1.2,
            ),
        ),
        measured=Measured((24, 700), (128, 1, 1)),
        advice=(
            Advice(
                advice.out_of_bounds, "A row has cols elements, more or fewer than the block has threads."
            ),
            Advice(advice.written_twice, "Every element belongs to one thread."),
            Advice(
                advice.hazard("RAW", "WAR", "WAW"),
                "What one warp leaves for others needs a __syncthreads() before it is read, and one "
                "before it is overwritten.",
            ),
            Advice(
                advice.both(_low_rows_wrong, advice.not_(_all_hold_infinity)),
                "The largest score of a row may be as low as you like: begin with −∞, not with a number.",
            ),
            Advice(
                advice.both(_low_rows_wrong, _extremely_low),
                "Do you begin with −∞, not with a number? Then a lane, a warp or a row that has seen nothing "
                "but −∞ has the sum 0.",
            ),
            Advice(
                _masked_rows_wrong,
                "−∞ minus −∞ is NaN: a lane, a warp or a row that has seen nothing but −∞ has the sum 0.",
            ),
            Advice(advice.not_finite, "expf overflows from 89 on: subtract the row's largest element first."),
            Advice(
                advice.partly_unwritten,
                "Some elements were never written: a row may be longer than the block.",
            ),
            Advice(
                _nearly,
                "It is right to a few digits: keep sums in float, and subtract the largest score before "
                "anything else; added to a logarithm, it takes the digits away.",
            ),
            Advice(
                lambda m: m.found is not None,
                "Each row's elements must add up to 1: are sums of different largest elements scaled "
                "to a common one before they are added?",
            ),
        ),
        praise="two reads and one write, whatever the scores.",
    ),
)
