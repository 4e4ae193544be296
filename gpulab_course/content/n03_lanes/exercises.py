"""Exercises of notebook 03."""

from __future__ import annotations

from dataclasses import replace
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
    Row,
    advice,
    draw,
)
from virtualgpu.records import Dim3

_WARP = 32
_KEYS = 8
# Numbers that a float would round; 32 of them do not overflow an int.
_LARGE = 1 << 25


def _warps(size: int, block: Dim3) -> tuple[int, int]:
    """Blocks that cover `size` elements, and the warps in them."""
    blocks = draw.blocks_for(size, block[0])
    return blocks, blocks * block[0] // _WARP


def _by_warp(x: Any, warps: int, fill: int = 0) -> Any:
    padded = np.full(warps * _WARP, fill, x.dtype)
    padded[: x.size] = x
    return padded.reshape(warps, _WARP)


def two_rules(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Elements changed 32 times by one rule at even indices and by another at odd indices."""
    x = drawn.any_integers(size)
    even = x[0::2].copy()
    odd = x[1::2].copy()
    for k in range(32):  # wraps around, as int does on the device
        even ^= even << 13
        even ^= even >> 17
        even ^= even << 5
        even = even * np.int32(3) + np.int32(k)
        even ^= even >> 9
        even += even << 7
        odd = odd * np.int32(5) - np.int32(k)
        odd ^= odd >> 7
        odd = odd * np.int32(9) ^ np.int32(k)
        odd ^= odd << 11
        odd += odd >> 6
        odd ^= odd << 3
    y = np.empty_like(x)
    y[0::2], y[1::2] = even, odd
    return Case(draw.blocks_for(size, block[0]), {"x": x, "n": size}, {"y": y})


def warp_sum(drawn: Draw, size: Any, block: Dim3) -> Case:
    """The sum of each warp of the grid; lanes without an element count as 0."""
    x = drawn.integers(size, -_LARGE, _LARGE)
    blocks, warps = _warps(size, block)
    return Case(blocks, {"x": x, "n": size}, {"out": _by_warp(x, warps).sum(axis=1, dtype=np.int32)})


def _in_many_warps(drawn: Draw, size: Any, block: Dim3) -> Case:
    """A launch with far more warps than elements, and more than 16 bits can count."""
    x = drawn.integers(size, -_LARGE, _LARGE)
    blocks = (1 << 16) // (block[0] // _WARP) + 1
    out = np.zeros(blocks * block[0] // _WARP, np.int32)
    own = _by_warp(x, -(-size // _WARP)).sum(axis=1, dtype=np.int32)
    out[: own.size] = own
    return Case(blocks, {"x": x, "n": size}, {"out": out})


def warp_max(drawn: Draw, size: Any, block: Dim3) -> Case:
    """The largest element of each warp that has one. Some warps hold negative numbers alone."""
    least = np.iinfo(np.int32).min
    most = np.iinfo(np.int32).max
    x = drawn.integers(size, least, most)
    if size % 2:
        x = np.where(x > 0, ~x, x)
        x[-1] = least  # often alone in its warp: the largest there is what nothing is below
    return _most_of(x, block)


def _most_of(x: Any, block: Dim3) -> Case:
    blocks, _ = _warps(x.size, block)
    out = _by_warp(x, -(-x.size // _WARP), np.iinfo(np.int32).min).max(axis=1)
    return Case(blocks, {"x": x, "n": x.size}, {"out": out})


def _all_are(value: int) -> Any:
    """Return a row's case with elements of one value, the last one of each warp larger by 1."""

    def case(drawn: Draw, size: Any, block: Dim3) -> Case:
        x = np.full(size, value, np.int32)
        x[_WARP - 1 :: _WARP] += 1
        return _most_of(x, block)

    return case


_ENDS = tuple(
    Row(f"elements of {value:,}", _all_are(value), (1, 33, 500)) for value in (-(1 << 31), -1, (1 << 31) - 2)
)


def count_keys(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Adds to each bin how often its key occurs."""
    keys = drawn.integers(size, 0, _KEYS)
    bins = drawn.integers(_KEYS, -(10**9), 10**9)
    if drawn.rng.random() < 0.5:  # one key for nearly all
        keys[drawn.rng.random(size) < 0.9] = drawn.rng.integers(0, _KEYS)
    return _counted(keys, bins, block)


def _counted(keys: Any, bins: Any, block: Dim3) -> Case:
    size = keys.size
    wanted = bins + np.bincount(keys, minlength=_KEYS).astype(np.int32)
    return Case(draw.blocks_for(size, block[0]), {"keys": keys, "bins": bins, "n": size}, {"bins": wanted})


def _keys(*few: int, bins: int = 0) -> Any:
    """Return a row's case with these keys, repeated, and with the initial value of all bins."""

    def case(drawn: Draw, size: Any, block: Dim3) -> Case:
        return _counted(np.resize(np.array(few, np.int32), size), np.full(_KEYS, bins, np.int32), block)

    return case


_COUNTS = (
    Row("one key, the last", _keys(7)),
    Row("one key, the first", _keys(0, bins=5)),
    Row("two keys", _keys(3, 5, bins=-(1 << 31))),
    Row("each key in turn", _keys(*range(_KEYS), bins=(1 << 31) - 2000)),
)


def compact(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Each warp's positive elements, in order, at the front of its 32 places; what is behind them stays."""
    x = drawn.floats(size)
    if drawn.kind == draw.EXTREME:  # what is next to nothing is positive, too
        x = np.where(drawn.rng.random(size) < 0.2, np.float32(2e-38), x)
    whole = drawn.rng.choice((0, 1, -1), -(-size // _WARP)).repeat(_WARP)[:size]
    x = np.where(whole == 0, x, np.copysign(x, whole)).astype(np.float32)  # warps that keep all, or nothing
    return _compact_of(drawn, x, block)


def _compact_of(drawn: Draw, x: Any, block: Dim3) -> Case:
    size = x.size
    blocks, warps = _warps(size, block)
    kept = _by_warp(x, warps) > 0
    out = drawn.integers((warps, _WARP), 1, 100).astype(np.float32)
    values = {"x": x, "out": out.ravel(), "n": size}
    wanted = out.copy()
    for row, (keep, elements) in enumerate(zip(kept, _by_warp(x, warps), strict=True)):
        wanted[row, : keep.sum()] = elements[keep]
    return Case(blocks, values, {"out": wanted.ravel(), "counts": kept.sum(axis=1, dtype=np.int32)})


def _of(*values: float) -> Any:
    """Return a row's case with these numbers, repeated."""
    return lambda drawn, size, block: _compact_of(drawn, np.resize(np.array(values, np.float32), size), block)


_KEPT = (
    Row("all kept", _of(1, 2, 3, 4, 5)),
    Row("none kept", _of(-1, -np.inf, np.nan, 0, -0.0)),
    Row("0, -0, NaN and infinities", _of(0, np.inf, -0.0, np.nan, -np.inf)),
    Row("one kept, the last of its warp", _of(*[-1] * 31, 7)),
    Row("one kept, the first of its warp", _of(7, *[-1] * 31)),
    Row("next to nothing is kept, too", _of(2e-38, -2e-38)),
)


def _ragged_warp_wrong(m: Mistake) -> bool:
    """Return whether all warps are right whose 32 lanes all have an element."""
    full = m.case.values["n"] // _WARP
    return m.found is not None and full > 0 and not m.wrong[:full].any()


def _sorted(values: Any) -> Any:
    return None if values is None else sorted(values)


def _only_first_warps(m: Mistake) -> bool:
    return advice.partly_unwritten(m) and m.case.block[0] > _WARP


def _pairs_of_warps(rng: np.random.Generator) -> list[Dim3]:
    return draw.whole_warps(rng, warps=2)


_MEASURED = Measured(1 << 12, (256, 1, 1))
_STAYS_AWAY = Advice(
    advice.fault("lanes missing"),
    "With a full mask all 32 lanes must reach the call: replace the early return by a value that does not "
    "count for lanes beyond n.",
)
_LUCK = Advice(
    advice.hazard(),
    "Lanes beyond n must take part, with a value that does not count; and where lanes of different warps "
    "meet in memory, they need a barrier.",
)
_ONE_WRITES = Advice(advice.written_twice, "One lane of each warp writes its result.")
_EVERY_WARP = Advice(
    _only_first_warps,
    "Some warps wrote nothing: lane 0 of every warp writes, to the warp's number over the whole grid.",
)

EXERCISES = (
    KernelExercise(
        "03-branch",
        "Sort the lanes, not the data",
        kernel="two_rules",
        parameters="const int* x, int* y, int n",
        once=True,
        case=two_rules,
        reference="two_rules.cu",
        naive="two_rules_naive.cu",
        level="warm-up",
        kind="repair",
        blocks=_pairs_of_warps,
        budgets=(
            Budget(
                "divergent_branches",
                "Warps still walk both sides: choose the elements so that all 32 lanes of a warp are at even "
                "places, or all at odd ones.",
                spare=4,
            ),
            Budget(
                "warp_instructions",
                "A lane that computes both rules and chooses pays for both: each warp is to need only one.",
                allowance=1.65,
            ),
        ),
        measured=Measured(1 << 12, (256, 1, 1), lanes=0.4),
        advice=(
            Advice(
                advice.out_of_bounds, "The guard must ask for the element that the thread really handles."
            ),
            Advice(
                advice.partly_unwritten,
                "Some elements had no thread: 64 neighbouring threads must still serve 64 neighbouring "
                "elements.",
            ),
            Advice(advice.written_twice, "Two threads handle the same element."),
        ),
        praise="no warp walks both sides any more.",
    ),
    KernelExercise(
        "03-warp-sum",
        "Sum of a warp",
        kernel="warp_sum",
        parameters="const int* x, int* out, int n",
        once=True,
        case=warp_sum,
        table=(Row("more warps than 16 bits count", _in_many_warps, (100,)),),
        reference="warp_sum.cu",
        blocks=draw.whole_warps,
        budgets=(
            Budget(
                "warp_exchanges",
                "Let registers talk, not memory: in five steps of __shfl_down_sync, or by __reduce_add_sync.",
                least_share=0.2,
                allowance=2.0,  # a sum in 64 bits takes two for each
            ),
            Budget(
                "shared_bytes",
                "Let registers talk, not memory: a shuffle hands a value from lane to lane without any.",
                most=0,
            ),
            Budget("atomics", "Let registers talk: one lane of each warp writes the sum.", most=0),
            Budget("sectors", "Each element is read once, by the lane it belongs to.", allowance=1.2),
        ),
        measured=_MEASURED,
        advice=(
            _STAYS_AWAY,
            Advice(
                advice.out_of_bounds,
                "Lanes beyond n must not load: take 0 for them, and let lane 0 alone write.",
            ),
            _EVERY_WARP,
            _ONE_WRITES,
            Advice(
                _ragged_warp_wrong,
                "Full warps are right, the ragged one is not: lanes without an element must take part with "
                "the value 0, not stay away.",
            ),
            _LUCK,
        ),
        praise="every warp's sum is right, with a ragged tail and without any element, too.",
    ),
    KernelExercise(
        "03-repair",
        "Repair: the largest of a warp",
        kernel="warp_max",
        parameters="const int* x, int* out, int n",
        once=True,
        case=warp_max,
        table=_ENDS,
        reference="warp_max.cu",
        kind="repair",
        sizes=draw.some_lengths,
        blocks=draw.whole_warps,
        measured=_MEASURED,
        advice=(
            _STAYS_AWAY,
            Advice(
                advice.fault("out of bounds", "out"),
                "`out` has a place for each warp that has an element, and none for the others.",
            ),
            Advice(advice.out_of_bounds, "Lanes beyond n must not load."),
            _EVERY_WARP,
            _ONE_WRITES,
            Advice(
                lambda m: m.found is not None and bool((m.found[m.wrong] == 0).all()),
                "All elements may be negative: 0 is not the value that never wins a maximum.",
            ),
            Advice(_ragged_warp_wrong, "Full warps are right, the ragged one is not."),
            _LUCK,
        ),
        praise="all three flaws are mended.",
    ),
    KernelExercise(
        "03-bins",
        "Bins",
        kernel="count_keys",
        parameters="const int* keys, int* bins, int n",
        case=count_keys,
        table=_COUNTS,
        reference="count_keys.cu",
        naive="count_keys_naive.cu",
        budgets=(
            Budget(
                "global_atomic_lanes",
                "Let the lanes that hold the same key agree first, and one of them add for all.",
                allowance=1.1,
            ),
        ),
        measured=replace(_MEASURED, busiest=12, slack=6.0),
        advice=(
            _STAYS_AWAY,
            Advice(advice.out_of_bounds, "Lanes beyond n have no key: they must neither load nor add."),
            Advice(
                lambda m: m.found is not None and bool((m.found >= m.wanted).all()),
                "It counts too much: every lane of a group sees the same peers, and only one may add "
                "for them; "
                "lanes beyond n count nothing.",
            ),
            Advice(
                advice.hazard("WAW", "WAR", "RAW"),
                "Threads of different warps share bins: only an atomic add is safe.",
            ),
            _LUCK,
        ),
        praise="right, and lanes with the same key add together.",
    ),
    KernelExercise(
        "03-compact",
        "Keep the order",
        kernel="compact",
        parameters="const float* x, float* out, int* counts, int n",
        case=compact,
        table=_KEPT,
        reference="compact.cu",
        level="stretch",
        blocks=draw.whole_warps,
        budgets=(
            Budget(
                "atomics",
                "Nothing says which lane's atomic comes first: let a ballot tell each lane its place.",
                most=0,
            ),
        ),
        measured=_MEASURED,
        advice=(
            _STAYS_AWAY,
            Advice(advice.out_of_bounds, "Lanes beyond n hold nothing to keep, but their votes count as no."),
            Advice(
                lambda m: m.name == "out" and _sorted(m.found) == _sorted(m.wanted),
                "The right elements, in another order: count the keepers in lower lanes.",
            ),
            _LUCK,
        ),
        praise="every warp keeps its elements in order.",
    ),
)
