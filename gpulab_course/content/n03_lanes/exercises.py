"""Exercises of notebook 03."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpulab_course.teach.judge import (
    Advice,
    Budget,
    Case,
    DataGenerator,
    KernelExercise,
    MeasuredLaunch,
    Mistake,
    SpecialInput,
    advice,
    draw,
)
from virtualgpu.records import Dim3

_WARP_SIZE = 32
_KEY_COUNT = 8
# Numbers up to this one can be too large for a float's precision, but 32 of them do not overflow an int.
_LARGE_INT = 1 << 25


def _count_blocks_and_warps(size: int, block: Dim3) -> tuple[int, int]:
    """Return the number of blocks that cover `size` elements, and the number of their warps."""
    blocks = draw.count_blocks(size, block[0])
    return blocks, blocks * block[0] // _WARP_SIZE


def _split_by_warp(x: Any, warps: int, fill_value: int = 0) -> Any:
    padded_x = np.full(warps * _WARP_SIZE, fill_value, x.dtype)
    padded_x[: x.size] = x
    return padded_x.reshape(warps, _WARP_SIZE)


def make_two_rules_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that treats elements with even and odd indices differently."""
    x = data.any_integers(size)
    even_values = x[0::2].copy()
    odd_values = x[1::2].copy()
    for k in range(32):  # wraps around, as int does on the device
        even_values ^= even_values << 13
        even_values ^= even_values >> 17
        even_values ^= even_values << 5
        even_values = even_values * np.int32(3) + np.int32(k)
        even_values ^= even_values >> 9
        even_values += even_values << 7
        odd_values = odd_values * np.int32(5) - np.int32(k)
        odd_values ^= odd_values >> 7
        odd_values = odd_values * np.int32(9) ^ np.int32(k)
        odd_values ^= odd_values << 11
        odd_values += odd_values >> 6
        odd_values ^= odd_values << 3
    y = np.empty_like(x)
    y[0::2] = even_values
    y[1::2] = odd_values
    return Case(draw.count_blocks(size, block[0]), {"x": x, "n": size}, {"y": y})


def make_warp_sum_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that sums the elements of each warp. The last warp may be partly
    filled.
    """
    x = data.integers(size, -_LARGE_INT, _LARGE_INT)
    blocks, warps = _count_blocks_and_warps(size, block)
    return Case(blocks, {"x": x, "n": size}, {"out": _split_by_warp(x, warps).sum(axis=1, dtype=np.int32)})


def _make_many_warps_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case with far more warps than elements, so that a 16-bit warp number overflows."""
    x = data.integers(size, -_LARGE_INT, _LARGE_INT)
    blocks = (1 << 16) // (block[0] // _WARP_SIZE) + 1
    out = np.zeros(blocks * block[0] // _WARP_SIZE, np.int32)
    warp_sums = _split_by_warp(x, -(-size // _WARP_SIZE)).sum(axis=1, dtype=np.int32)
    out[: warp_sums.size] = warp_sums
    return Case(blocks, {"x": x, "n": size}, {"out": out})


def draw_warp_max_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that finds the largest element of each warp. All elements may be
    negative.
    """
    int_min = np.iinfo(np.int32).min
    int_max = np.iinfo(np.int32).max
    x = data.integers(size, int_min, int_max)
    if size % 2:
        x = np.where(x > 0, ~x, x)
        x[-1] = int_min  # often alone in its warp: then the least int is the largest element
    return _make_warp_max_case(x, block)


def _make_warp_max_case(x: Any, block: Dim3) -> Case:
    blocks, _ = _count_blocks_and_warps(x.size, block)
    out = _split_by_warp(x, -(-x.size // _WARP_SIZE), np.iinfo(np.int32).min).max(axis=1)
    return Case(blocks, {"x": x, "n": x.size}, {"out": out})


def _make_constant_case_maker(value: int) -> Any:
    """Return a function that creates a test case of equal elements, except a larger one in each warp."""

    def make_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
        x = np.full(size, value, np.int32)
        x[_WARP_SIZE - 1 :: _WARP_SIZE] += 1
        return _make_warp_max_case(x, block)

    return make_case


_EXTREME_VALUE_ROWS = tuple(
    SpecialInput(f"elements of {value:,}", _make_constant_case_maker(value), (1, 33, 500))
    for value in (-(1 << 31), -1, (1 << 31) - 2)
)


def make_count_keys_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that counts how often each key occurs, and adds the counts to bins."""
    keys = data.integers(size, 0, _KEY_COUNT)
    bins = data.integers(_KEY_COUNT, -(10**9), 10**9)
    if data.rng.random() < 0.5:  # one key for nearly all
        keys[data.rng.random(size) < 0.9] = data.rng.integers(0, _KEY_COUNT)
    return _make_count_case(keys, bins, block)


def _make_count_case(keys: Any, bins: Any, block: Dim3) -> Case:
    size = keys.size
    expected = bins + np.bincount(keys, minlength=_KEY_COUNT).astype(np.int32)
    return Case(
        draw.count_blocks(size, block[0]), {"keys": keys, "bins": bins, "n": size}, {"bins": expected}
    )


def _make_repeated_keys_case_maker(*keys: int, bins: int = 0) -> Any:
    """Return a function that creates a test case with the given keys, repeated, and given initial bins."""

    def make_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
        return _make_count_case(
            np.resize(np.array(keys, np.int32), size), np.full(_KEY_COUNT, bins, np.int32), block
        )

    return make_case


_KEY_ROWS = (
    SpecialInput("one key, the last", _make_repeated_keys_case_maker(7)),
    SpecialInput("one key, the first", _make_repeated_keys_case_maker(0, bins=5)),
    SpecialInput("two keys", _make_repeated_keys_case_maker(3, 5, bins=-(1 << 31))),
    SpecialInput(
        "each key in turn", _make_repeated_keys_case_maker(*range(_KEY_COUNT), bins=(1 << 31) - 2000)
    ),
)


def draw_compact_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that moves the positive elements of each warp to the front of its
    outputs.

    The outputs after these elements stay unchanged.
    """
    x = data.floats(size)
    if data.kind == draw.EXTREME_VALUES:  # the smallest normal numbers are positive, too
        x = np.where(data.rng.random(size) < 0.2, np.float32(2e-38), x)
    warp_signs = data.rng.choice((0, 1, -1), -(-size // _WARP_SIZE)).repeat(_WARP_SIZE)[:size]
    # Some warps keep all elements, and others none.
    x = np.where(warp_signs == 0, x, np.copysign(x, warp_signs)).astype(np.float32)
    return _make_compact_case(data, x, block)


def _make_compact_case(data: DataGenerator, x: Any, block: Dim3) -> Case:
    size = x.size
    blocks, warps = _count_blocks_and_warps(size, block)
    is_kept = _split_by_warp(x, warps) > 0
    out = data.integers((warps, _WARP_SIZE), 1, 100).astype(np.float32)
    inputs = {"x": x, "out": out.ravel(), "n": size}
    expected = out.copy()
    for warp_index, (kept_mask, warp_elements) in enumerate(
        zip(is_kept, _split_by_warp(x, warps), strict=True)
    ):
        expected[warp_index, : kept_mask.sum()] = warp_elements[kept_mask]
    return Case(blocks, inputs, {"out": expected.ravel(), "counts": is_kept.sum(axis=1, dtype=np.int32)})


def _make_repeated_values_case_maker(*values: float) -> Any:
    """Return a function that creates a test case whose input repeats the given numbers."""

    def make_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
        return _make_compact_case(data, np.resize(np.array(values, np.float32), size), block)

    return make_case


_COMPACT_ROWS = (
    SpecialInput("all kept", _make_repeated_values_case_maker(1, 2, 3, 4, 5)),
    SpecialInput("none kept", _make_repeated_values_case_maker(-1, -np.inf, np.nan, 0, -0.0)),
    SpecialInput(
        "0, -0, NaN and infinities", _make_repeated_values_case_maker(0, np.inf, -0.0, np.nan, -np.inf)
    ),
    SpecialInput("one kept, the last of its warp", _make_repeated_values_case_maker(*[-1] * 31, 7)),
    SpecialInput("one kept, the first of its warp", _make_repeated_values_case_maker(7, *[-1] * 31)),
    SpecialInput(
        "almost no element kept, also very small positive ones",
        _make_repeated_values_case_maker(2e-38, -2e-38),
    ),
)


def _is_only_ragged_warp_wrong(mistake: Mistake) -> bool:
    """Return whether the results of all full warps are right, and only the last, partial warp is wrong."""
    full_warps = mistake["n"] // _WARP_SIZE
    return (
        mistake.actual_values is not None and full_warps > 0 and not mistake.wrong_elements[:full_warps].any()
    )


def _sort_values(values: Any) -> Any:
    return None if values is None else sorted(values)


def _is_only_first_warps_written(mistake: Mistake) -> bool:
    return advice.is_partly_unwritten(mistake) and mistake.case.block[0] > _WARP_SIZE


def _draw_blocks_of_even_warps(rng: np.random.Generator) -> list[Dim3]:
    return draw.draw_warp_blocks(rng, warp_multiple=2)


_MEASURED_LAUNCH = MeasuredLaunch(1 << 12, (256, 1, 1))
_MISSING_LANES_ADVICE = Advice(
    advice.is_fault("lanes missing"),
    "A full mask names all 32 lanes, so all of them must make the call. Remove the early return, and give "
    "lanes beyond n a value that does not change the result.",
)
_HAZARD_ADVICE = Advice(
    advice.is_hazard(),
    "Lanes beyond n must take part, with a value that does not change the result. If threads of different "
    "warps use the same memory, they need a barrier.",
)
_WRITTEN_TWICE_ADVICE = Advice(
    advice.is_written_twice, "Only one lane of each warp must write the result of the warp."
)
_MISSING_WARPS_ADVICE = Advice(
    _is_only_first_warps_written,
    "Some warps wrote nothing: lane 0 of every warp must write, at the number of its warp in the whole grid.",
)

EXERCISES = (
    KernelExercise(
        "03-branch",
        "Sort the lanes, not the data",
        kernel="two_rules",
        parameters="const int* x, int* y, int n",
        forbids_double_writes=True,
        case=make_two_rules_case,
        reference="two_rules.cu",
        naive="two_rules_naive.cu",
        level="warm-up",
        kind="repair",
        blocks=_draw_blocks_of_even_warps,
        budgets=(
            Budget(
                "divergent_branches",
                "Warps still run both sides: choose the elements so that all 32 lanes of a warp have even "
                "indices, or all have odd ones.",
                extra_count=4,
            ),
            Budget(
                "warp_instructions",
                "A lane that computes both rules and then chooses takes the time of both. Each warp must "
                "run only one rule.",
                max_reference_factor=1.65,
            ),
        ),
        measured_launch=MeasuredLaunch(1 << 12, (256, 1, 1), min_lane_efficiency_factor=0.4),
        advice=(
            Advice(
                advice.is_out_of_bounds, "The guard must check the element that the thread really handles."
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements had no thread: 64 neighbouring threads must still process 64 neighbouring "
                "elements, in another order.",
            ),
            Advice(advice.is_written_twice, "Two threads process the same element."),
        ),
        praise="no warp runs both sides any more.",
    ),
    KernelExercise(
        "03-warp-sum",
        "Sum of a warp",
        kernel="warp_sum",
        parameters="const int* x, int* out, int n",
        forbids_double_writes=True,
        case=make_warp_sum_case,
        table=(SpecialInput("more warps than 16 bits can count", _make_many_warps_case, (100,)),),
        reference="warp_sum.cu",
        blocks=draw.draw_warp_blocks,
        budgets=(
            Budget(
                "warp_exchanges",
                "Exchange the values by shuffles: in five steps with __shfl_down_sync, or by "
                "__reduce_add_sync.",
                min_reference_share=0.2,
                max_reference_factor=2.0,  # a sum in 64 bits takes two for each
            ),
            Budget(
                "shared_bytes",
                "Exchange the values by shuffles, which need no shared memory.",
                max_count=0,
            ),
            Budget(
                "atomics",
                "Exchange the values by shuffles. Then one lane of each warp writes the sum, without an "
                "atomic.",
                max_count=0,
            ),
            Budget(
                "sectors", "Each element must be loaded only once, by its own lane.", max_reference_factor=1.2
            ),
        ),
        measured_launch=_MEASURED_LAUNCH,
        advice=(
            _MISSING_LANES_ADVICE,
            Advice(
                advice.is_out_of_bounds,
                "Lanes beyond n must not load: use 0 as their value, and let only lane 0 write.",
            ),
            _MISSING_WARPS_ADVICE,
            _WRITTEN_TWICE_ADVICE,
            Advice(
                _is_only_ragged_warp_wrong,
                "Full warps are right, but the incomplete one is not: lanes without an element must take "
                "part, with the value 0.",
            ),
            _HAZARD_ADVICE,
        ),
        praise="the sum of every warp is right, also if the warp has few elements or none.",
    ),
    KernelExercise(
        "03-repair",
        "Repair: the largest of a warp",
        kernel="warp_max",
        parameters="const int* x, int* out, int n",
        forbids_double_writes=True,
        case=draw_warp_max_case,
        table=_EXTREME_VALUE_ROWS,
        reference="warp_max.cu",
        kind="repair",
        sizes=draw.draw_nonzero_lengths,
        blocks=draw.draw_warp_blocks,
        measured_launch=_MEASURED_LAUNCH,
        advice=(
            _MISSING_LANES_ADVICE,
            Advice(
                advice.is_fault("out of bounds", "out"),
                "`out` has one element for each warp that has elements. The other warps must not write.",
            ),
            Advice(advice.is_out_of_bounds, "Lanes beyond n must not load."),
            _MISSING_WARPS_ADVICE,
            _WRITTEN_TWICE_ADVICE,
            Advice(
                lambda mistake: (
                    mistake.actual_values is not None
                    and bool((mistake.actual_values[mistake.wrong_elements] == 0).all())
                ),
                "All elements may be negative, so 0 can be larger than all of them. Which int is never "
                "larger than another one?",
            ),
            Advice(
                _is_only_ragged_warp_wrong,
                "Full warps are right, but the incomplete one is not: which value do lanes without an "
                "element have?",
            ),
            _HAZARD_ADVICE,
        ),
        praise="all three flaws are fixed.",
    ),
    KernelExercise(
        "03-bins",
        "Bins",
        kernel="count_keys",
        parameters="const int* keys, int* bins, int n",
        case=make_count_keys_case,
        table=_KEY_ROWS,
        reference="count_keys.cu",
        naive="count_keys_naive.cu",
        budgets=(
            Budget(
                "global_atomic_lanes",
                "Let the lanes that hold the same key find each other with a match, and let one of them add "
                "for all.",
                max_reference_factor=1.1,
            ),
        ),
        measured_launch=replace(_MEASURED_LAUNCH, max_busiest_share_factor=12, max_instruction_factor=6.0),
        advice=(
            _MISSING_LANES_ADVICE,
            Advice(advice.is_out_of_bounds, "Lanes beyond n have no key, so they must neither load nor add."),
            Advice(
                lambda mistake: (
                    mistake.actual_values is not None
                    and bool((mistake.actual_values >= mistake.expected_values).all())
                ),
                "The counts are too high: every lane of a group gets the same peers, but only one of them "
                "may add for the group. Lanes beyond n must add nothing.",
            ),
            Advice(
                advice.is_hazard("WAW", "WAR", "RAW"),
                "Threads of different warps add to the same bins, so only an atomic addition is safe.",
            ),
            _HAZARD_ADVICE,
        ),
        praise="the bins are right, and one lane adds for all lanes with the same key.",
    ),
    KernelExercise(
        "03-compact",
        "Keep the order",
        kernel="compact",
        parameters="const float* x, float* out, int* counts, int n",
        case=draw_compact_case,
        table=_COMPACT_ROWS,
        reference="compact.cu",
        level="stretch",
        blocks=draw.draw_warp_blocks,
        budgets=(
            Budget(
                "atomics",
                "The order of the lanes' atomics is not fixed, so compute the positions from a ballot.",
                max_count=0,
            ),
        ),
        measured_launch=_MEASURED_LAUNCH,
        advice=(
            _MISSING_LANES_ADVICE,
            Advice(
                advice.is_out_of_bounds,
                "Lanes beyond n have no element to keep, but they must take part in the vote, and vote no.",
            ),
            Advice(
                lambda mistake: (
                    mistake.name == "out"
                    and _sort_values(mistake.actual_values) == _sort_values(mistake.expected_values)
                ),
                "The elements are right, but in another order: count the lower lanes that keep their "
                "elements.",
            ),
            _HAZARD_ADVICE,
        ),
        praise="every warp keeps its elements in order.",
    ),
)
