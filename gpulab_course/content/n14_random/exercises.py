"""Exercises of notebook 14."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from gpulab.processes.errors import short_repr
from gpulab.session import on_device
from gpulab.words import count
from gpulab_course.content.n14_random.generators import philox_words, sum_tiles_as_trees
from gpulab_course.teach.judge import (
    Advice,
    Answer,
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
    draw,
)
from gpulab_course.teach.judge.python.functions import must_be_a_function
from virtualgpu.records import Dim3

# 14-philox


def make_random_words_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that writes random words of Philox, with random keys and first
    counters.
    """
    rng = random_data.rng
    first_counter = int(rng.choice([0, 5, 2**32 - 3, 2**31 - 2, 2**40 + 2**32 - 7])) + int(rng.integers(3))
    keys = [int(rng.choice([0, 1, 2**31, 2**32 - 1, int(rng.integers(2**32))])) for _ in range(2)]
    return _make_words_case(first_counter, keys, size, block)


def make_words_case_maker(first_counter: int, *keys: int) -> Callable[[DataGenerator, Any, Dim3], Case]:
    """Return a function that creates a Philox test case with this first counter. If no keys are given, they
    are random.
    """
    return lambda random_data, size, block: _make_words_case(
        first_counter, keys or [int(key) for key in random_data.rng.integers(2**32, size=2)], size, block
    )


def _make_words_case(first_counter: int, keys: Sequence[int], size: int, block: Dim3) -> Case:
    """Return the test launch with this first counter and these keys."""
    expected = philox_words(keys[0] | keys[1] << 32, first_counter, -(-size // 4)).ravel()[:size]
    grid = draw.count_blocks(-(-size // 4), block[0])
    return Case(
        grid, {"key0": keys[0], "key1": keys[1], "first": first_counter, "n": size}, {"words": expected}
    )


def _equals_philox_words(mistake: Mistake, **philox_options: Any) -> bool:
    """Return whether the words equal those of a known wrong variant of Philox."""
    if mistake.actual_values is None:
        return False
    words = philox_words(
        mistake["key0"] | mistake["key1"] << 32, mistake["first"], -(-mistake["n"] // 4), **philox_options
    )
    return bool((words.ravel()[: mistake["n"]] == mistake.actual_values).all())


def _is_only_later_words_wrong(mistake: Mistake) -> bool:
    """Return whether the four words of the first counter are right, and only later words are wrong."""
    return (
        mistake.actual_values is not None
        and mistake.expected_values is not None
        and not mistake.wrong_elements[:4].any()
    )


# 14-sum


def make_tile_sums_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that sums tiles of 256 elements, with any number of blocks."""
    x = random_data.floats(size)
    x[~np.isfinite(x)] = 1
    if random_data.kind == draw.RANDOM_VALUES:
        x = x * np.float32(10.0) ** random_data.rng.integers(-3, 4, size).astype(np.float32)
    tile_count = -(-size // 256)
    # A whole tile of -0 has the sum -0. A tile has at most one infinity or NaN, or all sums would be NaN.
    special_indices = np.arange(tile_count) * 256 + random_data.rng.integers(0, 256, tile_count)
    special_indices = special_indices[(special_indices < size) & (random_data.rng.random(tile_count) < 0.7)]
    if random_data.kind == draw.ZERO_VALUES:
        x[: size // 512 * 256] = random_data.rng.choice((0.0, -0.0, -0.0), 1)
        x[size // 256 * 256 :] = -0.0
    elif random_data.kind == draw.INFINITE_VALUES:
        x[special_indices] = random_data.rng.choice((np.inf, -np.inf), special_indices.size)
    elif random_data.kind == draw.NAN_VALUES:
        x[special_indices] = np.nan
    return _make_sum_case(x, int(random_data.rng.integers(1, tile_count + 3)))


def _make_sum_case(x: Any, grid: int) -> Case:
    """Return the test launch with these elements and this grid."""
    return Case(grid, {"x": x, "n": x.size}, {"sums": ExpectedFloats(sum_tiles_as_trees(x), 0.0, ulps=0)})


def make_tiles_case_maker(*values: float) -> Callable[[DataGenerator, Any, Dim3], Case]:
    """Return a function that creates a test case with elements drawn at random from `values`."""

    def make_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
        x = random_data.rng.choice(np.array(values, np.float32), size)
        return _make_sum_case(x, int(random_data.rng.integers(1, -(-size // 256) + 3)))

    return make_case


def make_many_warps_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for tile sums, with as many blocks as tiles. With large blocks, the warp number does
    not fit into 16 bits.
    """
    return _make_sum_case(random_data.floats(size), -(-size // 256))


def make_many_blocks_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case with so many blocks that the block number does not fit into 16 bits. Most of the
    blocks have no tile.
    """
    return _make_sum_case(random_data.floats(size), 2**16 + 40)


def _is_only_zero_signs_wrong(mistake: Mistake) -> bool:
    """Return whether the only mistakes are wrong signs of zeros."""
    return (
        mistake.actual_values is not None
        and mistake.expected_values is not None
        and bool((mistake.actual_values == mistake.expected_values)[mistake.wrong_elements].all())
    )


def _is_only_sum_order_differs(mistake: Mistake) -> bool:
    """Return whether all sums are right up to the rounding of another order of additions."""
    if mistake.actual_values is None or mistake.expected_values is None:
        return False
    magnitude_sums = sum_tiles_as_trees(np.abs(mistake["x"])).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(
            (
                np.abs(mistake.actual_values.astype(np.float64) - mistake.expected_values)
                <= 4e-7 * magnitude_sums
            )[mistake.wrong_elements].all()
        )


# 14-dropout


def make_dropout_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that applies dropout to random elements with a grid of any size."""
    rng = random_data.rng
    x = random_data.floats(size)
    huge_offset = int(rng.integers(2**55, 2**62))
    counter_offset = int(rng.choice([0, 1, 6, 4 * 2**32 - 5, 2**33 + 3, huge_offset])) + int(rng.integers(4))
    # The limit is mostly one of the words, which is kept, or the next number, so that the word is dropped.
    limit_text = rng.choice(["0", "2**30", "3 * 2**30", "2**32 - 1", "a word", "a word", "a word + 1"])
    return _make_dropout_case(
        random_data, x, block, counter_offset, str(limit_text), float(rng.uniform(0.3, 9))
    )


def _make_dropout_case(
    random_data: DataGenerator, x: Any, block: Dim3, offset: int, limit_text: str, scale: float
) -> Case:
    """Return the test launch with these elements, offset, limit and scale."""
    rng = random_data.rng
    size = x.size
    key = int(rng.integers(2**64, dtype=np.uint64))
    words = philox_words(key, offset // 4, size // 4 + 2).ravel()[offset % 4 :][:size]
    chosen_word = int(rng.choice(words)) if size else 0
    limit_words = {
        "0": 0,
        "2**30": 2**30,
        "2**31": 2**31,
        "3 * 2**30": 3 * 2**30,
        "2**32 - 1": 2**32 - 1,
        "a word": chosen_word,
        "a word + 1": min(chosen_word + 1, 2**32 - 1),
    }
    limit_word = limit_words[limit_text]
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.where(words < limit_word, np.float32(0), x * np.float32(scale))
    grid = int(rng.integers(1, draw.count_blocks(size, block[0]) + 2))
    inputs = {"x": x, "key0": key & 0xFFFFFFFF, "key1": key >> 32, "offset": offset, "dropped": limit_word}
    return Case(grid, {**inputs, "scale": np.float32(scale), "n": size}, {"y": expected})


def make_dropout_case_maker(
    offset: int, limit_text: str, scale: float, *special_values: float
) -> Callable[[DataGenerator, Any, Dim3], Case]:
    """Return a function that creates a dropout test case with this offset, limit and scale.

    Every fifth element is one of the numbers in `special_values`.
    """

    def make_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
        x = random_data.floats(size)
        if special_values:
            x[::5] = random_data.rng.choice(np.array(special_values, np.float32), x[::5].size)
        return _make_dropout_case(random_data, x, block, offset, limit_text, scale)

    return make_case


def _is_product_with_zero(mistake: Mistake) -> bool:
    """Return whether only dropped infinities and NaNs are wrong, as if they were multiplied by 0."""
    if mistake.actual_values is None or mistake.expected_values is None:
        return False
    x = np.asarray(mistake["x"])[mistake.wrong_elements]
    return bool(
        np.isnan(mistake.actual_values[mistake.wrong_elements]).all()
        and not np.isfinite(x).any()
        and (mistake.expected_values[mistake.wrong_elements] == 0).all()
    )


def _is_wrong_at_limit(mistake: Mistake) -> bool:
    """Return whether only those elements are wrong whose random word is within 1 of the limit `dropped`."""
    if mistake.actual_values is None or not mistake.wrong_elements.any():
        return False
    key = mistake["key0"] | mistake["key1"] << 32
    offset = mistake["offset"]
    words = philox_words(key, offset // 4, mistake["n"] // 4 + 2).ravel()[offset % 4 :][: mistake["n"]]
    return bool((np.abs(words[mistake.wrong_elements].astype(np.int64) - mistake["dropped"]) <= 1).all())


def _has_dropout_mask(mistake: Mistake, offset: int, counter_bits: int = 64) -> bool:
    """Return whether the result is dropout with another offset, or with a counter that has fewer bits."""
    if mistake.actual_values is None:
        return False
    key = mistake["key0"] | mistake["key1"] << 32
    counter_count = mistake["n"] // 4 + 2
    words = philox_words(key, offset // 4, counter_count, counter_bits=counter_bits).ravel()[offset % 4 :]
    with np.errstate(over="ignore"):
        expected = np.where(
            words[: mistake["n"]] < mistake["dropped"], np.float32(0), mistake["x"] * mistake["scale"]
        )
    return bool(np.array_equal(expected, mistake.actual_values, equal_nan=True))


# 14-state

_GPU_COUNT = 2


def _run_twice(answer: Any, send_request: Callable[..., Any], seed: int, draw_count: int) -> dict[str, Any]:
    """Run `twice` in the answer's process, with generators of Python, NumPy and each GPU.

    The drawn numbers are sent to the judge at once. The expected numbers are computed after the answer has
    ended, so that the answer cannot read them.
    """

    def make_generators() -> dict[str, Any]:
        generator_types = (cp.random.Philox4x3210, cp.random.XORWOW)
        gpu_generators = []
        for device_index, generator_type in enumerate(generator_types):
            with cp.cuda.Device(device_index):
                gpu_generators.append(cp.random.Generator(generator_type(seed + device_index, size=1024)))
        return {"python": random.Random(seed), "numpy": np.random.default_rng(seed), "gpus": gpu_generators}

    def draw_numbers(rngs: dict[str, Any]) -> list[Any]:
        drawn_numbers = [
            [rngs["python"].random() for _ in range(draw_count)],
            rngs["numpy"].random(draw_count).tolist(),
        ]
        for device_index, rng in enumerate(rngs["gpus"]):
            with cp.cuda.Device(device_index):
                drawn_numbers += [
                    rng.random(draw_count).tolist(),
                    rng.standard_normal(2 * draw_count - 1).tolist(),
                ]
        return drawn_numbers

    with on_device("virtual:T4", count=_GPU_COUNT) as cp:
        answer_generators = make_generators()
        reference_generators = make_generators()
        for generators in (answer_generators, reference_generators):
            draw_numbers(generators)  # the generators are not in their initial state

        finished_runs: list[None] = []

        def run_once() -> list[Any]:
            drawn_numbers = draw_numbers(answer_generators)
            finished_runs.append(None)
            send_request(drawn_numbers)
            return drawn_numbers

        result = answer(run_once, answer_generators)
        outcome = {"result": result, "runs": len(finished_runs), "wanted": draw_numbers(reference_generators)}
        return {**outcome, "after": draw_numbers(answer_generators) == draw_numbers(reference_generators)}


_GENERATOR_NAMES = (
    "Python's",
    "NumPy's",
    *(
        f"GPU {device_index}'s {distribution_prefix}"
        for device_index in range(_GPU_COUNT)
        for distribution_prefix in ("", "normal ")
    ),
)


def judge_twice(answer: Answer) -> str:
    """Judge the learner's ``twice(work, rngs)``, which calls `work()` twice, both times from the same
    generator states.
    """
    must_be_a_function("twice", answer.is_function, answer.kind)
    for draw_count in (3, int(answer.rng.integers(4, 40))):
        call_text = f"`twice` with {count(draw_count, 'number')} drawn of each kind"
        draw_lists: list[Any] = []
        outcome = answer.ask(
            _run_twice, int(answer.rng.integers(1000)), draw_count, shown=call_text, back=draw_lists.append
        )
        expected = outcome["wanted"]
        run_matches = [draw_list == outcome["wanted"] for draw_list in draw_lists]
        if not len(run_matches) == outcome["runs"] == 2:
            raise NotYet(
                f"{call_text} calls work() {count(outcome['runs'], 'time')}, not 2 times. Both results "
                "must come from work()."
            )
        if not run_matches[0]:
            raise NotYet(
                f"{call_text}: the first run does not draw the next numbers. Do not "
                "change the states of the generators before this run, for example by "
                "seeding."
            )
        if not run_matches[1]:
            wrong_names = [
                name
                for name, drawn_numbers, expected_numbers in zip(
                    _GENERATOR_NAMES, draw_lists[-1], expected, strict=True
                )
                if drawn_numbers != expected_numbers
            ]
            generator_names = " and ".join(dict.fromkeys(name.split("'")[0] + "'s" for name in wrong_names))
            raise NotYet(
                f"{call_text}: the second run does not draw the same numbers from {generator_names} "
                "generator as the first run. Save a copy of its state before the first "
                "run, and restore it before the second."
            )
        run_results = outcome["result"]
        if not isinstance(run_results, tuple | list) or len(run_results) != 2:
            raise NotYet(f"{call_text} should return the results of both runs as a pair.")
        if list(run_results) != [expected, expected]:
            raise NotYet(
                f"{call_text} should return the two results of work() as a pair. The result of the first run "
                "must come first, and then the result of the second run."
            )
        if not outcome["after"]:
            raise NotYet(
                f"{call_text}: numbers that are drawn after this call must be the same as "
                "after a single run, but they are different."
            )
    return "four generators on three processors start both runs in the same states."


# 14-switch

SWITCH_NAMES = ("seed", "fixed order", "one stream", "sorted keys", "fixed algorithm")
_SWITCH_COSTS = {"seed": 0, "fixed order": 30, "one stream": 25, "sorted keys": 5, "fixed algorithm": 15}
MAX_RUNS = 200


class RandomizedProgram:
    """A model of a program with several causes of varying results, each of which a switch removes."""

    def __init__(self, cause_probabilities: dict[str, float], seed: int) -> None:
        self._cause_probabilities = cause_probabilities
        self._rng = random.Random(seed)
        self.runs = 0

    def __call__(self, switches: Sequence[str]) -> str:
        """Run the program once and return a digest of its result."""
        enabled_switches = set(switches)
        unknown_names = enabled_switches - set(SWITCH_NAMES)
        if unknown_names:
            raise ValueError(
                f"There is no switch {sorted(unknown_names)[0]!r}. "
                f"The switches are {', '.join(SWITCH_NAMES)}."
            )
        self.runs += 1
        if self.runs > 50 * MAX_RUNS:
            raise NotYet(
                f"needed(run, switches) calls run more than {MAX_RUNS} times, but that many runs are enough."
            )
        active_probabilities = [
            probability
            for name, probability in self._cause_probabilities.items()
            if name not in enabled_switches and self._rng.random() < probability
        ]
        return f"{sum(self._rng.randrange(1 << 30) for _ in active_probabilities):08x}"


def _run_needed(answer: Any, send_request: Callable[..., Any]) -> Any:
    """Run the answer in its own process, and return the switches that it finds."""
    result = answer(lambda on=(): send_request([str(name) for name in on]), SWITCH_NAMES)
    return sorted(map(str, result)) if isinstance(result, Set | list | tuple | np.ndarray) else result


def judge_needed(answer: Answer) -> str:
    """Judge the learner's ``needed(run, switches)``, which finds the smallest set of switches with which all
    runs agree.
    """
    must_be_a_function("needed", answer.is_function, answer.kind)
    rng = answer.rng
    cause_sets: list[tuple[str, ...]] = [
        ("fixed order",),
        ("seed",),
        (),
        ("seed", "fixed order"),
        SWITCH_NAMES,
    ]
    cause_sets += [tuple(name for name in SWITCH_NAMES if rng.random() < 0.5) for _ in range(4)]
    frequent_probabilities = (0.95, 0.6, 0.35)
    rare_probabilities = (0.35,)
    # Five runs miss about one of ten rare causes.
    cause_trials = [(cause_names, frequent_probabilities) for cause_names in cause_sets] + [
        (SWITCH_NAMES, rare_probabilities)
    ] * 12
    for program_index, (cause_names, probability_choices) in enumerate(cause_trials):
        probability_of_cause = {name: float(rng.choice(probability_choices)) for name in cause_names}
        call_text = f"needed(run, switches) for program {program_index + 1}"
        program = RandomizedProgram(probability_of_cause, int(rng.integers(10**6)))
        result = answer.ask(_run_needed, shown=call_text, back=program)
        if not isinstance(result, list):
            raise NotYet(f"{call_text} returns {short_repr(result)}. Return a set of names of switches.")
        missing_names = [name for name in cause_names if name not in result]
        if missing_names:
            raise NotYet(
                f"{call_text} leaves out {missing_names[0]!r}, and the results still differ from run to "
                "run. Some causes are rare, so one or two runs that agree prove nothing."
            )
        useless_switches = [name for name in result if name not in cause_names]
        if useless_switches:
            cost_percent = sum(_SWITCH_COSTS.get(name, 0) for name in useless_switches)
            raise NotYet(
                f"{call_text} turns on {useless_switches[0]!r} unnecessarily. Without "
                f"{'it' if len(useless_switches) == 1 else 'these'} the results are the "
                f"same each time, and the program takes {cost_percent} % less time. Turn "
                "all switches on, and then turn them off one at a time."
            )
        if program.runs > MAX_RUNS:
            raise NotYet(f"{call_text} calls run {program.runs:,} times, but {MAX_RUNS} are enough.")
    return f"all causes are found within {MAX_RUNS} runs, and no switch is on unnecessarily."


_CARRY_ADVICE = (
    "A counter has 64 bits here: its upper 32 bits belong in the second word. They are 0 only for the "
    "first 2³² counters."
)

EXERCISES = (
    KernelExercise(
        "14-philox",
        "Philox4x32-10, bit for bit",
        kernel="random_words",
        parameters="unsigned* words, unsigned key0, unsigned key1, long long first, int n",
        case=make_random_words_case,
        table=(
            SpecialInput("counter 0 and key 0", make_words_case_maker(0, 0, 0), (1, 2, 3, 5)),
            SpecialInput("the largest key", make_words_case_maker(1, 2**32 - 1, 2**32 - 1), (7,)),
            SpecialInput("counters around 2³¹", make_words_case_maker(2**31 - 2), (37,)),
            SpecialInput("counters around 2³²", make_words_case_maker(2**32 - 3), (38, 400)),
            SpecialInput("counters around 2⁴⁰ + 2³²", make_words_case_maker(2**40 + 2**32 - 3), (39,)),
            SpecialInput("counters around 2⁶²", make_words_case_maker(2**62 - 3), (40,)),
            SpecialInput("the last counters, and 0 after them", make_words_case_maker(-3), (41,)),
        ),
        reference="philox.cu",
        forbids_double_writes=True,
        measured_launch=MeasuredLaunch(1 << 13, (256, 1, 1)),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "n need not be a multiple of four: guard each of the thread's four words.",
            ),
            Advice(
                advice.is_written_twice, "The four words of a counter must be written by only one thread."
            ),
            Advice(advice.is_partly_unwritten, "Each thread writes four words, from 4 * its number on."),
            Advice(
                lambda m: _equals_philox_words(m, rounds=9),
                "These are the words of 9 rounds, but Philox has ten.",
            ),
            Advice(
                lambda m: _equals_philox_words(m, rounds=11),
                "These are the words of 11 rounds, but Philox has ten.",
            ),
            Advice(
                lambda m: _equals_philox_words(m, key_increments=(0, 0)),
                "Both words of the key have to grow after each round.",
            ),
            Advice(
                lambda m: _equals_philox_words(m, is_key_incremented_first=True),
                "The key grows *after* a round: the first round uses it unchanged.",
            ),
            Advice(lambda m: _equals_philox_words(m, counter_bits=32), _CARRY_ADVICE),
            Advice(_is_only_later_words_wrong, _CARRY_ADVICE),
            Advice(
                lambda m: m.actual_values is not None,
                "Compare with the table: multiply c.x and c.z without signs (__umulhi), move the halves of "
                "the products to their new positions, and combine the upper ones with c.y, c.w and the key.",
            ),
        ),
        praise="the words are the published ones, from any counter on, for any grid.",
    ),
    KernelExercise(
        "14-sum",
        "The same sums for every launch",
        kernel="tile_sums",
        parameters="const float* x, float* sums, int n",
        case=make_tile_sums_case,
        table=(
            SpecialInput("tiles of −0 alone", make_tiles_case_maker(-0.0), (256, 1024, 1)),
            SpecialInput("tiles of −0 and 0", make_tiles_case_maker(-0.0, 0.0), (600,)),
            SpecialInput(
                "infinities of both signs in a tile", make_tiles_case_maker(np.inf, -np.inf, 1), (700,)
            ),
            SpecialInput("sums beyond the largest float", make_tiles_case_maker(3e38, -3e38, 1e38), (900,)),
            SpecialInput("more blocks than 16 bits can count", make_many_blocks_case, (1500,)),
            SpecialInput("more warps than 16 bits can count", make_many_warps_case, (540_000,)),
        ),
        reference="tile_sums.cu",
        forbids_double_writes=True,
        measured_launch=MeasuredLaunch(1 << 14, (256, 1, 1)),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "The last tile may have fewer than 256 elements; the others count as 0.",
            ),
            Advice(
                advice.is_fault("barrier"),
                "All threads of a block must reach every barrier, even if only a few of them add.",
            ),
            Advice(advice.is_written_twice, "One thread writes the sum of a tile."),
            Advice(
                advice.is_hazard("RAW", "WAR", "WAW"),
                "You need a barrier after loading, after each step, and before the next tile overwrites s.",
            ),
            Advice(
                advice.is_in_stage("orders"),
                "The result depends on the order of the blocks. Do not use atomics on floats.",
            ),
            Advice(
                _is_only_zero_signs_wrong,
                "The sign of a zero is wrong: −0 + −0 is −0, but −0 + 0 is 0. Elements beyond n count as +0.",
            ),
            Advice(
                _is_only_sum_order_differs,
                "The sums are right up to rounding, but not bit for bit. For every blockDim.x, the order "
                "of the additions must be s[k] += s[k + half] for half = 128, 64, … 1.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some sums were never written. There may be fewer blocks than tiles, so "
                "each block goes on in steps of gridDim.x.",
            ),
            Advice(
                lambda m: m.actual_values is not None,
                "A tile has 256 elements for every blockDim.x. Let k run from "
                "threadIdx.x in steps of blockDim.x.",
            ),
        ),
        praise="the sums have the same bits for every grid and every block.",
    ),
    KernelExercise(
        "14-dropout",
        "One mask for every grid",
        kernel="dropout",
        parameters=(
            "const float* x, float* y, unsigned key0, unsigned key1, long long offset, unsigned dropped, "
            "float scale, int n"
        ),
        case=make_dropout_case,
        table=(
            SpecialInput("nothing dropped", make_dropout_case_maker(0, "0", 1.25, np.inf, np.nan), (77,)),
            SpecialInput(
                "nearly all dropped",
                make_dropout_case_maker(5, "2**32 - 1", 2.0, np.inf, -np.inf, np.nan),
                (300,),
            ),
            SpecialInput(
                "a limit of 2³¹",
                make_dropout_case_maker(2, "2**31", 2.0, np.inf, -np.inf, np.nan, -0.0),
                (1000,),
            ),
            SpecialInput("a word at the limit", make_dropout_case_maker(3, "a word", 1.5), (1, 50)),
            SpecialInput("a word below the limit", make_dropout_case_maker(6, "a word + 1", 1.5), (1, 50)),
            SpecialInput("a scale below 0", make_dropout_case_maker(1, "2**30", -3.5), (90,)),
            SpecialInput("a scale of 0", make_dropout_case_maker(1, "2**30", 0.0), (90,)),
            SpecialInput("words around 2³²", make_dropout_case_maker(2**32 - 7, "2**31", 2.0), (40,)),
            SpecialInput("counters around 2³²", make_dropout_case_maker(2**34 - 9, "2**31", 2.0), (60,)),
            SpecialInput("words around 2⁶²", make_dropout_case_maker(2**62 - 5, "2**31", 2.0), (60,)),
        ),
        reference="dropout.cu",
        level="stretch",
        forbids_double_writes=True,
        measured_launch=MeasuredLaunch(1 << 14, (256, 1, 1), max_instruction_factor=6.0),
        advice=(
            Advice(advice.is_out_of_bounds, "Guard the end: i < n, for each of a thread's elements."),
            Advice(
                _is_wrong_at_limit,
                "Words less than `dropped` are dropped, and `dropped` itself is not. Compare words and "
                "threshold as unsigned integers.",
            ),
            Advice(advice.is_written_twice, "Each element must be written by only one thread."),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written: there can be fewer threads than elements, so use a loop.",
            ),
            Advice(
                _is_product_with_zero,
                "An infinity times 0 is NaN. A dropped element must become 0, whatever it was.",
            ),
            Advice(
                lambda m: m["offset"] > 0 and _has_dropout_mask(m, 0),
                "This is the mask of offset 0, in every launch. Element i uses word offset + i.",
            ),
            Advice(
                lambda m: _has_dropout_mask(m, m["offset"], counter_bits=32),
                "Word w is word w % 4 of counter w / 4, and counters have 64 bits.",
            ),
            Advice(
                lambda m: m.actual_values is not None,
                "Element i uses word w = offset + i, which is word w % 4 of counter w / 4, in every thread. "
                "Counter and key must not depend on the thread, the block or the grid.",
            ),
        ),
        praise="element i is dropped or kept independently of the launch.",
    ),
    PythonExercise("14-state", "Save and restore all generators", judge_twice),
    PythonExercise("14-switch", "Find the necessary switches", judge_needed, level="stretch"),
)
