"""Exercises of notebook 17."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.kernels import count
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.processes.errors import short_repr
from gpulab.words import count as plural
from gpulab_course.content.n17_interview.cards.laboratory import (
    DEVICES,
    compile_kernel,
    read_published_info,
    use_device,
)
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
    draw,
)
from gpulab_course.teach.judge.python.functions import equals, is_number, must_be_a_function
from virtualgpu.records import Dim3

# 17-estimate

_ESTIMATE_KEYS = ("bytes", "operations", "memory_us", "compute_us", "us")


def estimate_kernel_work(work: Mapping[str, Any], card: Mapping[str, Any]) -> dict[str, float]:
    """Compute the estimates of the exercise 17-napkin (reference solution)."""
    moved_bytes = (sum(map(math.prod, work["reads"])) + sum(map(math.prod, work["writes"]))) * work[
        "bytes_each"
    ]
    operation_count = 2 * work["multiply_adds"] + work["others"]
    memory_us = moved_bytes / card["gb_per_s"] / 1e3
    compute_us = operation_count / card["tflops"] / 1e6
    time_us = max(memory_us, compute_us)
    return dict(
        zip(_ESTIMATE_KEYS, (moved_bytes, operation_count, memory_us, compute_us, time_us), strict=True)
    )


def _draw_kernel_works(rng: np.random.Generator, ridge_intensity: float) -> list[dict[str, Any]]:
    """Draw work to estimate: an element-wise kernel, a matrix product, row sums, random work, and edge cases.

    `ridge_intensity` is the number of operations per byte at which a card changes from memory-bound to
    compute-bound; some works are close to it, on either side.

    The first work has more operations than bytes and is nevertheless memory-bound. The third has more than
    2**32 elements.
    """
    m, n, k = (int(rng.integers(200, 5000)) for _ in range(3))
    long_shape = (int(rng.integers(50_000, 90_000)), int(rng.integers(90_000, 200_000)))
    element_bytes = [2, 4, 8, 4]
    rng.shuffle(element_bytes)

    def make_work_near_ridge(intensity_share: float) -> dict[str, Any]:
        operation_count = int(intensity_share * ridge_intensity * 8 * m * n)
        return {
            "reads": [(m, n)],
            "writes": [(m, n)],
            "bytes_each": 4,
            "multiply_adds": operation_count // 3,
            "others": operation_count - operation_count // 3 * 2,
        }

    return [
        {
            "reads": [(m, n), (m, n)],
            "writes": [(m, n)],
            "bytes_each": element_bytes[0],
            "multiply_adds": 4 * element_bytes[0] * m * n,
            "others": m * n,
        },
        {
            "reads": [(m, k), (k, n)],
            "writes": [(m, n)],
            "bytes_each": element_bytes[1],
            "multiply_adds": m * n * k,
            "others": 0,
        },
        {
            "reads": [long_shape],
            "writes": [long_shape[:1]],
            "bytes_each": element_bytes[2],
            "multiply_adds": 0,
            "others": math.prod(long_shape),
        },
        {
            "reads": [(k, 3, 7)],
            "writes": [(k,), (n, 2)],
            "bytes_each": 1,
            "multiply_adds": int(rng.integers(10**6, 10**9)),
            "others": int(rng.integers(10**6)),
        },
        *(make_work_near_ridge(ridge_share) for ridge_share in (0.9, 1.1, 0.5, 2.0)),
        {"reads": [], "writes": [(m, n)], "bytes_each": 4, "multiply_adds": 0, "others": m * n},
        {"reads": [(n,)], "writes": [()], "bytes_each": 8, "multiply_adds": n, "others": 0},
    ]


_LESSONS_BY_FACTOR = {
    "bytes": (
        (0.5, "Something is counted half or twice. Each array is moved once, with the size of its elements."),
        (2.0, "Something is counted twice. Each array is moved once, with the size of its elements."),
        (8.0, "These are bits. Return bytes."),
    ),
    "operations": ((0.5, "A multiply-add counts as two operations."),),
    "memory_us": (
        (1e-3, "These are milliseconds: return microseconds."),
        (1e3, "These are nanoseconds: return microseconds."),
        (1e9 / 2**30, "GB/s on data sheets are 10⁹ bytes per second, not 2³⁰."),
    ),
    "compute_us": (
        (1e-3, "These are milliseconds: return microseconds."),
        (1e3, "These are nanoseconds: return microseconds."),
        (0.5, "A multiply-add counts as two operations."),
    ),
}


def judge_napkin(answer: Answer) -> str:
    """Judge the learner's ``napkin(work, card)``, which estimates the bytes, operations and times of a
    kernel, and names the bound.
    """
    must_be_a_function("napkin", answer.is_function, answer.kind)
    devices = [read_published_info(str(name)) for name in answer.rng.permutation(DEVICES)[:3]]
    ridges = [1e3 * device.fp32_tflops / device.memory_bandwidth_gbps for device in devices]
    works_by_device = [_draw_kernel_works(answer.rng, ridge) for ridge in ridges]
    device_work_pairs = [
        (device, kernel_work)
        for device, device_works in zip(devices, works_by_device, strict=True)
        for kernel_work in device_works
    ]
    for device, kernel_work in device_work_pairs:
        device_rates = {"gb_per_s": device.memory_bandwidth_gbps, "tflops": device.fp32_tflops}
        call_text = (
            f"napkin(...) for reads {kernel_work['reads']}, writes {kernel_work['writes']} on {device.name}"
        )
        result = answer.call_as(call_text, dict(kernel_work), dict(device_rates))
        expected = estimate_kernel_work(kernel_work, device_rates)
        if not isinstance(result, dict):
            raise NotYet(
                f"{call_text} returns {short_repr(result)}. Return a dict with {', '.join(_ESTIMATE_KEYS)} "
                "and bound."
            )
        for name in _ESTIMATE_KEYS:
            result_value: Any = result.get(name)
            if not is_number(result_value):
                raise NotYet(f"{call_text}: {name} is {short_repr(result_value)}, but it must be a number.")
            if math.isclose(float(result_value), expected[name], rel_tol=1e-6):
                continue
            lesson = next(
                (
                    lesson
                    for mistake_factor, lesson in _LESSONS_BY_FACTOR.get(name, ())
                    if math.isclose(float(result_value), mistake_factor * expected[name], rel_tol=1e-6)
                ),
                "",
            )
            if name == "us" and not lesson:
                is_time_sum = math.isclose(
                    float(result_value), expected["memory_us"] + expected["compute_us"], rel_tol=1e-6
                )
                lesson = (
                    (
                        "Memory and arithmetic work at the same time, so the larger time counts, not the sum "
                        "of both."
                    )
                    if is_time_sum
                    else ("Both times are right, and the larger of them is the estimate.")
                )
            if name == "bytes" and not lesson:
                lesson = "Count all arrays that are read or written, with the size of their elements."
            raise NotYet(
                f"{call_text}: {name} is {float(result_value):.6g}, "
                f"it should be {expected[name]:.6g}. {lesson}".rstrip()
            )
        expected_bound = "memory" if expected["memory_us"] > expected["compute_us"] else "arithmetic"
        if result.get("bound") != expected_bound:
            raise NotYet(
                f"{call_text}: bound is {short_repr(result.get('bound'))}, but it should be "
                f"{expected_bound!r}, which takes longer."
            )
    return "every number is right, so no errors cancel each other."


# 17-diagnose

CAUSES = ("uncoalesced", "bank conflicts", "atomics", "divergence", "grid", "nothing")
SYMPTOMS = ("memory-bound", "compute-bound", "latency-bound", "slow", "DRAM", "issue", "load/store")


def draw_flawed_launches(cp: Any, rng: random.Random) -> list[tuple[Any, ...]]:
    """Create launches of kernels in random order, each with one performance flaw.

    A launch is a tuple (kernel, grid, block, arguments, shared bytes). Each flaw is as slight as it can be
    and still worth fixing on every device: 12 sectors per load, fewer than 4 wavefronts per request, three
    branches, a block for half of the SMs. The kernel with 12 sectors keeps DRAM busy for more than 0.7 of its
    time; the kernel with branches has hardly more blocks than there are SMs. Of the kernels without a flaw,
    one keeps DRAM busy and the other does not.
    """
    blocks = rng.randint(400, 700)
    n = 256 * blocks
    zero_array = cp.zeros(n, "float32")
    bin_counts = cp.zeros(64, "float32")
    sm_count = session.backend().device_info().sm_count
    few_blocks = rng.randint(2, 12)
    block_count = rng.randint(3500, 4500)
    strided_blocks = 7 * block_count

    def make_strided_launch(stride_floats: int) -> tuple[Any, ...]:
        x = cp.zeros(256 * strided_blocks * stride_floats, "float32")
        y = cp.zeros(256 * strided_blocks, "float32")
        return (
            compile_kernel(cp, "strided"),
            strided_blocks,
            256,
            (x, y, np.int32(stride_floats), np.int32(256 * strided_blocks)),
            0,
        )

    def make_table_launch(row_words: int) -> tuple[Any, ...]:
        args = (
            cp.zeros(128 * row_words, "float32"),
            zero_array,
            np.int32(row_words),
            np.int32(rng.randint(72, 100)),
        )
        return compile_kernel(cp, "tabled", 512 * row_words), 2 * blocks, 128, args, 512 * row_words

    def make_divergent_launch(path_count: int, block_count: int) -> tuple[Any, ...]:
        return (
            compile_kernel(cp, "forked"),
            block_count,
            256,
            (zero_array, zero_array, np.int32(path_count), np.int32(32)),
            0,
        )

    def make_scale_launch(grid: int, n: int) -> tuple[Any, ...]:
        x, y = (cp.zeros(n, "float32") for _ in range(2))
        return compile_kernel(cp, "scaled"), grid, 256, (x, y, np.int32(n)), 0

    count_args = cp.zeros(n, "int32"), bin_counts, np.int32(rng.choice([1, 8, 64])), np.int32(n)
    launches = [
        make_strided_launch(3),
        make_table_launch(4),
        (compile_kernel(cp, "counted"), blocks, 256, count_args, 0),
        make_scale_launch(few_blocks, n),
        make_divergent_launch(3, sm_count + rng.randint(1, 8)),
        make_scale_launch(sm_count // 2, n),
        make_divergent_launch(1, blocks),
        make_scale_launch(4 * block_count, 1024 * block_count),
    ]
    rng.shuffle(launches)
    return launches


def count_launch(launch: tuple[Any, ...]) -> tuple[dict[str, float], str]:
    """Return the counters of a kernel launch for the learner's function, and the cause in the diagnosis."""
    launched_kernel, grid, block, args, shared_bytes = launch
    counters = count(launched_kernel, grid, block, args, shared_mem=shared_bytes)
    diagnosis_table = diagnosis(launched_kernel, grid, block, args, shared_mem=shared_bytes)
    device = read_published_info(session.backend().device_info().name)
    cache_counters = counters.caches
    assert cache_counters is not None
    load_requests = counters.total("requests", "global", "load")
    shared_requests = counters.total("requests", "shared")
    counter_values = {
        "sms": device.sm_count,
        "blocks": grid,
        "sectors_per_load": counters.total("sectors", "global", "load") / load_requests
        if load_requests
        else 0.0,
        "wavefronts_per_shared": counters.total("wavefronts", "shared") / shared_requests
        if shared_requests
        else 0.0,
        "atomics": counters.total("requests", "global", "atomic"),
        "active_lanes": counters.lane_efficiency,
        "dram_share": (cache_counters.dram_read_bytes + cache_counters.dram_write_bytes)
        / diagnosis_table.time_ns
        / device.memory_bandwidth_gbps,
        "us": diagnosis_table.time_ns / 1e3,
    }
    causes = [cause for cause in diagnosis_table.worth_fixing if cause.kind != "launch"]
    rounded_values = {name: round(float(counter_value), 4) for name, counter_value in counter_values.items()}
    return rounded_values, causes[0].kind if causes else "nothing"


def judge_cause(answer: Answer) -> str:
    """Judge the learner's ``cause(seen)``, which determines from counters why a hidden kernel is slow."""
    must_be_a_function("cause", answer.is_function, answer.kind)
    rng = random.Random(answer.seed)
    device = rng.choice(["RTX 4090", "A100", "H100"])
    with use_device(device) as cp:
        counted_causes = [count_launch(launch) for launch in draw_flawed_launches(cp, rng)]
    counted_causes = [
        (counters, expected_cause) for counters, expected_cause in counted_causes if expected_cause in CAUSES
    ]
    for counters, expected_cause in counted_causes:
        result = answer.call_as(f"cause({counters})", dict(counters))
        if equals(result, expected_cause):
            continue
        message = f"On {read_published_info(device).name}, for {counters}, cause returns {short_repr(result)}"
        if isinstance(result, str) and result in SYMPTOMS:
            raise NotYet(
                f"{message}. The returned value is a symptom, because it describes the busy unit. Return the "
                f"cause, which is one of {', '.join(CAUSES)}."
            )
        if not isinstance(result, str) or result not in CAUSES:
            raise NotYet(f"{message}. Return one of {', '.join(CAUSES)}.")
        raise NotYet(
            f"{message}. The kernel would gain {_CAUSE_PHRASES[expected_cause]}, so the cause is "
            f"{expected_cause!r}. {_CAUSE_LESSONS[expected_cause]}"
        )
    return (
        f"the causes of {len(counted_causes)} hidden kernels on {read_published_info(device).name} are right."
    )


_CAUSE_PHRASES = {
    "uncoalesced": "most without scattered loads",
    "bank conflicts": "most without bank conflicts",
    "atomics": "most without contended atomics",
    "divergence": "most without divergence",
    "grid": "most with more blocks",
    "nothing": "little without any of these causes",
}
_CAUSE_LESSONS = {
    "uncoalesced": "A load of 32 neighbouring floats needs 4 sectors.",
    "bank conflicts": "A shared-memory request needs only one wavefront.",
    "atomics": "All lanes add to a few words of memory, one after the other.",
    "divergence": "Most lanes wait while other lanes of their warp work.",
    "grid": "There are fewer blocks than SMs. Check this first.",
    "nothing": "A busy DRAM alone is not a cause: the kernel has reached the bandwidth.",
}

# 17-bug


def draw_argmax_case(random_data: DataGenerator, size: tuple[int, int], block: Dim3) -> Case:
    """Return a test case for a kernel that finds the index of the first maximum of each row."""
    row_count, column_count = size
    min_int = _INT_MIN
    max_int = _INT_MAX
    x = random_data.integers((row_count, column_count), -40, 40)
    for matrix_row, row_kind in zip(
        x, random_data.rng.integers(0, 6, row_count) if column_count else (), strict=False
    ):
        if row_kind == 1:
            matrix_row[:] = random_data.any_integers(column_count)
        elif row_kind > 1:  # equal and adjacent ints, which are equal as floats
            matrix_row[:] = (
                min_int + random_data.rng.integers(0, 3, column_count)
                if row_kind < 4
                else max_int - random_data.rng.integers(0, 3, column_count)
            )
        if row_kind == 3:  # its difference to the others overflows an int
            matrix_row[int(random_data.rng.integers(column_count))] = random_data.rng.integers(1, max_int)
    if row_count and column_count:
        # A row of equal elements.
        x[int(random_data.rng.integers(row_count))] = np.int32(random_data.rng.choice([-7, min_int]))
        x[int(random_data.rng.integers(row_count)), -1] = max_int
    return _make_argmax_case(random_data, x)


def _make_argmax_case(random_data: DataGenerator, x: Any) -> Case:
    """Return the test launch with this matrix."""
    row_count, column_count = x.shape
    expected = np.full(row_count, -1, np.int32) if column_count == 0 else x.argmax(axis=1).astype(np.int32)
    grid = max(1, row_count) + int(random_data.rng.integers(0, 3))
    return Case(grid, {"x": x, "rows": row_count, "cols": column_count}, {"at": expected})


_INT_MIN = -(2**31)
_INT_MAX = 2**31 - 1


def make_one_above_maker(*row_values: int) -> Callable[[DataGenerator, Any, Dim3], Case]:
    """Return a function that creates a test case in which one element of each row is larger by 1 than the
    others.
    """

    def make_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
        row_count, column_count = size
        x = np.resize(np.array(row_values, np.int32), (row_count, 1)) * np.ones(column_count, np.int32)
        larger_columns = np.r_[column_count - 1, 0, random_data.rng.integers(0, column_count, row_count)][
            :row_count
        ]
        x[np.arange(row_count), larger_columns] += 1
        return _make_argmax_case(random_data, x)

    return make_case


def make_equal_maxima_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case in which several or all elements of a row are equal to its maximum."""
    row_count, _ = size
    row_maxima = np.resize(np.array([_INT_MIN, -5, 0, _INT_MAX, -1, 7], np.int32), (row_count, 1))
    x = np.where(random_data.rng.random(size) < 0.5, row_maxima, _INT_MIN)
    x[:, -1] = row_maxima[:, 0]
    x[::2] = row_maxima[::2]
    return _make_argmax_case(random_data, x.astype(np.int32))


def make_large_ints_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case with one value near the largest int in each row, and values near the smallest int
    elsewhere.
    """
    row_count, column_count = size
    x = _INT_MIN + random_data.rng.integers(0, 3, size)
    x[np.arange(row_count), random_data.rng.integers(0, column_count, row_count)] = (
        _INT_MAX - np.arange(row_count) % 3
    )
    return _make_argmax_case(random_data, x.astype(np.int32))


def _draw_row_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Return random matrix sizes, and the size of a matrix without columns."""
    return [*draw.draw_matrix_sizes(rng, threads_at_once), (int(rng.integers(2, 30)), 0)]


def _is_another_maximum(mistake: Mistake) -> bool:
    """Return whether each wrong answer is the index of another element of the same value."""
    if mistake.actual_values is None or mistake.expected_values is None or mistake["cols"] == 0:
        return False
    x = np.asarray(mistake["x"])
    is_valid = (mistake.actual_values >= 0) & (mistake.actual_values < mistake["cols"])
    row_indices = np.arange(len(x))
    return bool(
        is_valid.all()
        and (x[row_indices, mistake.actual_values] == x[row_indices, mistake.expected_values]).all()
    )


def _are_rows_all_int_min(mistake: Mistake) -> bool:
    """Return whether all wrong rows contain only the smallest int."""
    return (
        mistake.actual_values is not None
        and mistake["cols"] > 0
        and bool((mistake["x"].max(axis=1) == _INT_MIN)[mistake.wrong_elements].all())
    )


def _are_rows_without_positive(mistake: Mistake) -> bool:
    """Return whether all wrong rows lack positive numbers, as if the maximum started at 0.

    Each row without positive numbers whose maximum is not its first element must be wrong.
    """
    if mistake.actual_values is None or mistake["cols"] == 0:
        return False
    x = np.asarray(mistake["x"])
    is_negative = x.max(axis=1) <= 0
    return bool(
        is_negative[mistake.wrong_elements].all()
        and mistake.wrong_elements[is_negative & (mistake.expected_values != 0)].all()
    )


def _are_equal_as_floats(mistake: Mistake) -> bool:
    """Return whether each answer is the index of a largest element after conversion to float."""
    if mistake.actual_values is None or mistake.expected_values is None or mistake["cols"] == 0:
        return False
    x = np.asarray(mistake["x"], np.float32)
    is_valid = (mistake.actual_values >= 0) & (mistake.actual_values < mistake["cols"])
    row_indices = np.arange(len(x))
    return bool(
        is_valid.all()
        and (x[row_indices, mistake.actual_values] == x[row_indices, mistake.expected_values]).all()
    )


# 17-refute

MAX_BENCH_RUNS = 60
DEFAULT_SETTING = {"n": 1 << 20, "block": 256, "pad": 0, "unroll": 1}
_GAIN_MARGIN = 1.03


class TimedProgramModel:
    """A model of a program whose time in µs depends on the device and on settings by a hidden rule."""

    def __init__(
        self,
        seed: int,
        device: str,
        changed_parameter: str,
        claimed_values: tuple[int, int],
        fixed_parameters: dict[str, int],
        true_gain: float,
        claim_holds: bool,
        claim_number: int,
    ) -> None:
        self._rng = random.Random(seed)
        self.runs = 0
        self._claim_number = claim_number
        self._claim = device, changed_parameter, claimed_values, dict(fixed_parameters), true_gain
        self._run_counts: dict[Any, int] = {}
        self._slow_run_numbers: dict[Any, int] = {}
        # Slow runs slow this value down more, so that the verdict looks false.
        self._misleading_value = claimed_values[claim_holds]
        self.measured_settings: set[tuple[str, tuple[tuple[str, int], ...]]] = set()

    def __call__(self, device: str, setting: dict[str, int]) -> float:
        """Return the time of one run in µs.

        Missing parameters of the setting have default values: n = 2**20, block = 256 and so on.
        """
        unknown_names = set(setting) - set(DEFAULT_SETTING)
        if unknown_names:
            raise TypeError(
                f"run() has no parameter {sorted(unknown_names)[0]!r}. It has {', '.join(DEFAULT_SETTING)}."
            )
        self.runs += 1
        if self.runs > 40 * MAX_BENCH_RUNS:
            raise NotYet(
                f"settle calls run() more than {MAX_BENCH_RUNS} times, but {MAX_BENCH_RUNS} runs are enough."
            )
        full_setting = {**DEFAULT_SETTING, **setting}
        device_and_setting = device, tuple(sorted(full_setting.items()))
        self.measured_settings.add(device_and_setting)
        changed_parameter = self._claim[1]
        time_us = 30.0 + full_setting["n"] / 2**16
        time_us *= (
            1.0
            + 0.35 * abs(math.log2(full_setting["block"] / 128)) / 3
            + 0.2 * (full_setting["unroll"] - 1) / 7
        )
        time_us *= 1.6 if device == "T4" else 1.0
        time_us *= self._find_gain_factor(device, full_setting)
        run_number = self._run_counts.get(device_and_setting, 0) + 1
        self._run_counts[device_and_setting] = run_number
        # One of every six runs of a setting is slow, so that neither a single run nor a mean is reliable. If
        # a slow run misleads, its number differs from claim to claim: each number misleads once or twice.
        if run_number % 6 == 1:
            slow_run_offset = (
                self._claim_number
                if full_setting[changed_parameter] == self._misleading_value
                else self._rng.randrange(30)
            )
            self._slow_run_numbers[device_and_setting] = run_number + (
                slow_run_offset % 6 if run_number > 1 else 1 + slow_run_offset % 5
            )
        first_factor = self._rng.uniform(8.0, 20.0) if self.runs == 1 else self._rng.uniform(2.0, 5.0)
        time_us *= self._rng.uniform(1.0, 1.04) * (first_factor if run_number == 1 else 1.0)
        slow_factor = (
            self._rng.uniform(7.0, 9.0)
            if full_setting[changed_parameter] == self._misleading_value
            else self._rng.uniform(1.5, 2.0)
        )
        return time_us * (slow_factor if run_number == self._slow_run_numbers[device_and_setting] else 1.0)

    def _find_gain_factor(self, device: str, full_setting: dict[str, int]) -> float:
        """Return the factor by which the claimed change alters the time in this setting."""
        claimed_device, changed_parameter, (_, changed_value), claimed_setting, true_gain = self._claim
        if full_setting[changed_parameter] != changed_value:
            return 1.0
        is_claimed_setting = device == claimed_device and all(
            full_setting[parameter_name] == claimed_value
            for parameter_name, claimed_value in claimed_setting.items()
            if parameter_name != changed_parameter
        )
        plain_factor = self._compute_plain_ratio(full_setting, changed_parameter)
        return (1 / true_gain if is_claimed_setting else true_gain) / plain_factor

    def _compute_plain_ratio(self, full_setting: dict[str, int], changed_parameter: str) -> float:
        """Return the factor by which the change would alter the time without the hidden gain."""
        (initial_value, changed_value) = self._claim[2]
        if changed_parameter not in ("block", "unroll", "n"):
            return 1.0

        def compute_time_ratio(parameter_value: int) -> float:
            if changed_parameter == "n":
                return 30.0 + parameter_value / 2**16
            if changed_parameter == "block":
                return (
                    1.0
                    + 0.35 * abs(math.log2(parameter_value / 128)) / 3
                    + 0.2 * (full_setting["unroll"] - 1) / 7
                )
            return (
                1.0 + 0.35 * abs(math.log2(full_setting["block"] / 128)) / 3 + 0.2 * (parameter_value - 1) / 7
            )

        return compute_time_ratio(changed_value) / compute_time_ratio(initial_value)


def _run_claim_test(answer: Any, send_request: Callable[..., Any], claim: dict[str, Any]) -> Any:
    """Run the answer in its own process, and return its result."""

    def run_program(device: str = "T4", **setting: int) -> Any:
        return send_request(
            device,
            {parameter_name: int(parameter_value) for parameter_name, parameter_value in setting.items()},
        )

    return answer(claim, run_program)


def _draw_claims(rng: random.Random) -> list[tuple[dict[str, Any], float]]:
    """Draw claims and their true speedups; half of the claims are true."""
    claims = []
    claimed_gains = (3.0, 1.5, 2.0, 3.0, 1.5, 2.0, 2.0, 1.5)
    for claim_index in range(8):
        changed_parameter, claimed_values = rng.choice(
            [("pad", (0, 1)), ("block", (64, 512)), ("unroll", (1, 4)), ("block", (1024, 256))]
        )
        fixed_parameters = {
            "n": rng.choice([1 << 16, 1 << 18, 3 << 20]),
            "block": rng.choice([64, 128, 512]),
            "pad": rng.choice([2, 3]),
            "unroll": rng.choice([2, 8]),
        }
        del fixed_parameters[changed_parameter]
        # Some false claims have a gain a little below the claimed one, and no fixed threshold between 1.5 and
        # 3 separates true claims from false ones.
        claimed_gain = claimed_gains[claim_index]
        true_margins = (1.05, 1.4)
        false_gains = (claimed_gain / _GAIN_MARGIN / 1.05, 1.1, 0.6, claimed_gain / _GAIN_MARGIN / 1.05)
        true_gain = (
            claimed_gain * _GAIN_MARGIN * true_margins[claim_index // 2 % 2]
            if claim_index % 2
            else false_gains[claim_index // 2]
        )
        claim = {
            "device": rng.choice(["H100", "A100", "L40S"]),
            "change": changed_parameter,
            "from": claimed_values[0],
            "to": claimed_values[1],
            "times_as_fast": claimed_gain,
            "setting": fixed_parameters,
        }
        claims.append((claim, true_gain))
    rng.shuffle(claims)
    return claims


def judge_claim_test(answer: Answer) -> str:
    """Judge the learner's ``settle(claim, run)``, which confirms or refutes a claim by a sound experiment."""
    must_be_a_function("settle", answer.is_function, answer.kind)
    rng = random.Random(answer.seed)
    verdicts = []
    for claim_number, (claim, true_gain) in enumerate(_draw_claims(rng), start=1):
        expected_verdict = "holds" if true_gain >= claim["times_as_fast"] else "refuted"
        change_text = f"{claim['change']} {claim['from']} → {claim['to']}"
        call_text = f"settle for claim {claim_number}, {change_text} on {claim['device']}"
        claim_values = claim["from"], claim["to"]
        program_model = TimedProgramModel(
            rng.randrange(10**6),
            claim["device"],
            claim["change"],
            claim_values,
            claim["setting"],
            true_gain,
            expected_verdict == "holds",
            claim_number,
        )
        verdict = answer.ask(_run_claim_test, claim, shown=call_text, back=program_model)
        if not isinstance(verdict, str) or verdict not in ("holds", "refuted"):
            raise NotYet(f"{call_text} returns {short_repr(verdict)}. Return 'holds' or 'refuted'.")
        if not program_model.runs:
            raise NotYet(f"{call_text} never runs the program. A verdict needs an experiment that can fail.")
        if not any(device == claim["device"] for device, _ in program_model.measured_settings):
            raise NotYet(f"{call_text} measures on another device: the claim is about {claim['device']}.")
        compared_settings = [
            {**DEFAULT_SETTING, **claim["setting"], claim["change"]: claim_value}
            for claim_value in claim_values
        ]
        if (
            not {
                (claim["device"], tuple(sorted(compared_setting.items())))
                for compared_setting in compared_settings
            }
            <= program_model.measured_settings
        ):
            raise NotYet(
                f"{call_text} never runs the two settings that the claim compares, {claim['setting']} with "
                f"{claim['change']} {claim['from']} and {claim['to']}: if anything else differs, you cannot "
                "tell the effects apart."
            )
        verdicts.append(verdict)
        if verdict != expected_verdict:
            claimed_gain = claim["times_as_fast"]
            raise NotYet(
                f"{call_text}: the program becomes {true_gain:.2f} times as fast, and the "
                f"claim says at least {claimed_gain:g} times. The claim "
                f"{_make_verdict_phrase(expected_verdict)}, but settle returns {verdict!r}. "
                "Divide the time of the first setting by the time of the second, and "
                "compare the result with the claimed number. Use a statistic that a cold "
                "first run and a few slow runs do not change."
            )
        if program_model.runs > MAX_BENCH_RUNS:
            raise NotYet(
                f"{call_text} uses {plural(program_model.runs, 'run')}, but {MAX_BENCH_RUNS} are enough."
            )
    return "the verdict is right for every claim, on its own device and setting."


def _make_verdict_phrase(expected_verdict: str) -> str:
    """Return the verdict as a phrase."""
    return "holds" if expected_verdict == "holds" else "is refuted"


# 17-capstone

MAX_SPLITS = 64
_PART_FLOATS = 34  # the scratch of one block: 32 sums, the largest score, and the sum of the weights
_SPLITS_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+SPLITS\b(.*)$", re.MULTILINE)


def read_split_count(code: str) -> int:
    """Return the value of the macro ``SPLITS`` in a kernel's source, or 1 if the macro is not defined.

    Raises
    ------
    NotYet
        If it is not a number from 1 to 64.
    """
    split_texts = [match.partition("//")[0].strip() for match in _SPLITS_DEFINE.findall(code)]
    split_text = split_texts[-1] if split_texts else "1"
    if not re.fullmatch("[0-9]{1,4}", split_text) or not 1 <= int(split_text) <= MAX_SPLITS:
        raise NotYet(
            f"SPLITS is {split_text!r}. Write `#define SPLITS 8`, with a number from 1 to {MAX_SPLITS}."
        )
    return int(split_text)


def _adapt_to_splits(exercise: KernelExercise, kernel_code: str) -> KernelExercise:
    """Return the exercise with the number of blocks per head that an answer chooses.

    The reference solution uses the same number of blocks.
    """
    split_count = read_split_count(kernel_code)

    def make_split_maker(make_case: Callable[..., Case]) -> Callable[..., Case]:
        @wraps(make_case)
        def make_split_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
            unsplit_case = make_case(random_data, size, block)
            _, head_count, _ = unsplit_case.launch_grid
            shape = size[0], split_count, _PART_FLOATS
            partial_results = random_data.rng.uniform(-1000, 1000, shape).astype(np.float32)
            return replace(
                unsplit_case,
                grid=(split_count, head_count),
                values={**unsplit_case.values, "parts": partial_results},
            )

        return make_split_case

    split_table = tuple(
        replace(table_row, case=make_split_maker(table_row.case)) for table_row in exercise.table
    )
    return replace(exercise, case=make_split_maker(exercise.case), table=split_table)


def draw_decoding_case(random_data: DataGenerator, size: tuple[int, int], block: Dim3) -> Case:
    """Return a test case for a kernel that computes attention for one query. Some scores are very large."""
    head_count, token_count = size
    rng = random_data.rng
    array_shapes = (head_count, 32), (head_count, token_count, 32), (head_count, token_count, 32)
    query, keys, values = (rng.standard_normal(shape).astype(np.float32) for shape in array_shapes)
    score_scale = np.float32(rng.choice([rng.uniform(0.1, 0.3), 1.0, -1.5, rng.uniform(4, 7)]))
    if rng.random() < 0.4:  # large integer scores, exact in any order of additions
        query = rng.integers(1, 4, array_shapes[0]).astype(np.float32)
        score_offset = 40 * rng.choice([-1, 1], (head_count, 1, 1))
        keys = (rng.integers(-3, 4, array_shapes[1]) + score_offset).astype(np.float32)
        score_scale = np.float32(rng.choice([0.125, 0.5, 1]))
    values *= np.float32(rng.choice([1, 1000]))
    return _make_attention_case(random_data, query, keys, values, score_scale)


def make_attention_maker(
    scale: float, offset: float = 0, equal_keys: bool = False, value_kind: str = ""
) -> Callable[[DataGenerator, Any, Dim3], Case]:
    """Return a function that creates an attention test case with this scale and offset of the scores."""

    def make_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
        head_count, token_count = size
        query = random_data.rng.integers(1, 4, (head_count, 32)).astype(np.float32)
        keys = random_data.rng.integers(-3, 4, (head_count, 1 if equal_keys else token_count, 32)) + offset
        keys = np.ascontiguousarray(np.broadcast_to(keys, (head_count, token_count, 32)), np.float32)
        values = random_data.rng.standard_normal((head_count, token_count, 32)).astype(np.float32)
        if value_kind == "negative":
            values = -np.abs(values) - 1
        elif value_kind == "far":
            values = values + 1000
        return _make_attention_case(random_data, query, keys, values, np.float32(scale))

    return make_case


def make_peaks_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return an attention test case in which one token per head has a far higher or lower score than the
    others.
    """
    head_count, token_count = size
    query = random_data.rng.integers(1, 4, (head_count, 32)).astype(np.float32)
    keys = random_data.rng.integers(-3, 4, (head_count, token_count, 32)).astype(np.float32)
    peak_tokens = np.arange(head_count) % token_count
    keys[np.arange(head_count), peak_tokens] += random_data.rng.choice((-40, 40, 40), (head_count, 1))
    values = random_data.rng.standard_normal((head_count, token_count, 32)).astype(np.float32)
    return _make_attention_case(random_data, query, keys, values, np.float32(0.25))


def _make_attention_case(random_data: DataGenerator, query: Any, keys: Any, values: Any, scale: Any) -> Case:
    """Return the test launch with these queries, keys and values."""
    rng = random_data.rng
    head_count, token_count, _ = keys.shape
    scores = np.einsum("hd,htd->ht", query.astype(float), keys.astype(float)) * float(scale)
    if token_count > 1000:  # the last token shares the weight of the best one
        best_tokens = scores.argmax(axis=1)
        keys[:, -1] = keys[range(head_count), best_tokens]
        scores[:, -1] = scores[range(head_count), best_tokens]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    expected, absolute_sums = (
        np.einsum("ht,htd->hd", weights, operand) for operand in (values, np.abs(values))
    )
    arguments = {
        "query": query,
        "keys": keys,
        "values": values,
        "parts": np.zeros((head_count, 1, _PART_FLOATS), np.float32),
        "done": np.zeros(head_count, np.uint32),
        "scale": scale,
        "heads": head_count,
        "tokens": token_count,
    }
    # Rounding errors of a score are relative to its products, and affect the weights.
    absolute_products = np.einsum("hd,htd->ht", np.abs(query).astype(float), np.abs(keys).astype(float))
    error_scale = 16 + np.abs(float(scale)) * absolute_products.max(axis=1, keepdims=True)
    near_expected = ExpectedFloats(expected.astype(np.float32), absolute_sums * error_scale, ulps=4)
    return Case((1, head_count + int(rng.integers(0, 3))), arguments, {"out": near_expected})


def _equals_attention(mistake: Mistake, scale: Any = None, element_count: int = 32) -> bool:
    """Return whether the result is that of another scale, or of dot products over fewer elements."""
    if mistake.actual_values is None or mistake.expected_values is None:
        return False
    scores = np.einsum(
        "hd,htd->ht",
        mistake["query"][:, :element_count].astype(float),
        mistake["keys"][..., :element_count].astype(float),
    )
    scores *= float(mistake["scale"] if scale is None else scale)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    result = np.einsum("ht,htd->hd", weights / weights.sum(axis=1, keepdims=True), mistake["values"])
    matched_results = [
        np.allclose(candidate, result, rtol=1e-3, atol=1e-3 * np.abs(result).max())
        for candidate in (mistake.actual_values, mistake.expected_values)
    ]
    return matched_results == [True, False]


def _draw_head_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw pairs of heads and tokens: one of each, fewer tokens than warps, ragged and large sizes."""
    random_sizes = [(int(rng.integers(2, 9)), int(rng.integers(2, 200))) for _ in range(3)]
    return [(1, 1), (2, 5), (3, 32), (5, 33), *random_sizes, (7, 300), (1, int(rng.integers(12_300, 13_000)))]


EXERCISES = (
    PythonExercise("17-estimate", "A napkin", judge_napkin, level="warm-up"),
    PythonExercise("17-diagnose", "Eight hidden kernels", judge_cause),
    KernelExercise(
        "17-bug",
        "Repair: where is the largest?",
        "row_argmax",
        "const int* x, int* at, int rows, int cols",
        draw_argmax_case,
        reference="row_argmax.cu",
        kind="repair",
        sizes=_draw_row_sizes,
        table=(
            SpecialInput(
                "one element 1 above the others",
                make_one_above_maker(_INT_MAX - 1, _INT_MIN, 2**24, -(2**24) - 2, 0, -1, -2),
                ((7, 1500), (9, 70), (7, 1), (8, 2)),
            ),
            SpecialInput(
                "one large element, others that differ by more than an int can represent",
                make_large_ints_case,
                ((6, 1300), (6, 40)),
            ),
            SpecialInput("several largest elements", make_equal_maxima_case, ((12, 1400), (12, 33), (12, 2))),
        ),
        forbids_double_writes=True,
        measured_launch=MeasuredLaunch((40, 700), (256, 1, 1)),
        budgets=(Budget("atomics", "A tree in shared memory needs no atomics.", max_count=0),),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "The grid can have more blocks than there are rows, and a row can have fewer columns than "
                "the block has threads.",
            ),
            Advice(advice.is_fault("barrier"), "All threads of a block must reach every barrier."),
            Advice(advice.is_hazard("WAW"), "Let one thread of one block write the result of a row."),
            Advice(
                advice.is_hazard("RAW", "WAR"),
                "The values that are read were written by other warps. Add a barrier of the block after "
                "each step.",
            ),
            Advice(advice.is_written_twice, "Let one thread write the result of a row."),
            Advice(lambda m: m["cols"] == 0, "Each row has a result. For an empty row, it is -1."),
            Advice(
                _is_another_maximum,
                "Of several equal elements, the first counts. Compare the indices if values are equal.",
            ),
            Advice(
                _are_equal_as_floats, "Two neighbouring ints can be the same float. Compare them as ints."
            ),
            Advice(
                _are_rows_all_int_min,
                "All elements of a row can be negative, or even the smallest int. Then the first of them "
                "counts.",
            ),
            Advice(
                _are_rows_without_positive,
                "All elements of a row can be negative, so 0 is not a valid start value.",
            ),
            Advice(advice.is_partly_unwritten, "Each row has a result. For an empty row, it is -1."),
            Advice(
                lambda m: m.actual_values is not None,
                "Check three things. Does the tree lose an element if the number of threads is odd? Does "
                "every thread read all of its columns? Do all threads of the block reach each barrier?",
            ),
        ),
        praise="the result is the first of the largest elements, for every row, block size and sign.",
    ),
    PythonExercise("17-refute", "Settle a claim", judge_claim_test, level="stretch"),
    KernelExercise(
        "17-capstone",
        "One decoding step",
        "attend",
        "const float* query, const float* keys, const float* values, float* parts, unsigned* done, "
        "float* out, float scale, int heads, int tokens",
        draw_decoding_case,
        reference="attend.cu",
        naive="attend_naive.cu",
        level="stretch",
        sizes=_draw_head_sizes,
        table=(
            SpecialInput("one token", make_attention_maker(0.25), ((3, 1),)),
            SpecialInput("a scale of 0", make_attention_maker(0), ((3, 40),)),
            SpecialInput("a scale below 0", make_attention_maker(-0.5, 3), ((3, 40), (2, 400))),
            SpecialInput("equal keys", make_attention_maker(0.5, equal_keys=True), ((3, 5), (2, 300))),
            SpecialInput(
                "scores of tens of thousands below 0", make_attention_maker(1, -2000), ((3, 4), (3, 90))
            ),
            SpecialInput(
                "scores of tens of thousands above 0", make_attention_maker(1, 2000), ((3, 4), (3, 90))
            ),
            SpecialInput(
                "one score far off", make_peaks_case, ((33, 33), (34, 34), (35, 35), (40, 70), (9, 4))
            ),
            SpecialInput("negative values", make_attention_maker(0.125, value_kind="negative"), ((3, 70),)),
            SpecialInput("values around 1,000", make_attention_maker(0.125, value_kind="far"), ((3, 70),)),
        ),
        blocks=draw.draw_warp_blocks,
        adapt_to_answer=_adapt_to_splits,
        forbids_double_writes=True,
        rules=5,
        measured_launch=MeasuredLaunch((12, 256), (256, 1, 1), max_instruction_factor=3.0),
        budgets=(
            Budget(
                "load_sectors",
                "Read keys and values once, with neighbouring lanes.",
                max_reference_factor=1.3,
            ),
            Budget(
                "warp_instructions",
                "A score is a sum of 32 products. Let all lanes of a warp share this work.",
                max_reference_factor=1.6,
            ),
            Budget(
                "atomics",
                "One atomic operation per block is enough, to find the last block of a head. Let warps "
                "exchange their results in shared memory.",
                max_reference_factor=1.0,
            ),
        ),
        advice=(
            Advice(
                advice.is_out_of_bounds,
                "blockIdx.y can be `heads` or more. `parts` has 34 numbers for each block of a head.",
            ),
            Advice(advice.is_fault("barrier"), "All warps of a block must reach the barrier."),
            Advice(
                lambda m: m.hazard_kind != "" and m["parts"].shape[1] > 1 and "parts" in m.message,
                "The last block reads results of other blocks. A __threadfence() must come between the "
                "results of a block and its ticket, and another one after the last ticket.",
            ),
            Advice(
                advice.is_hazard("RAW", "WAR"),
                "Warps exchange results in shared memory, with a barrier between writing and reading.",
            ),
            Advice(advice.is_written_twice, "Let one warp write the numbers of a head."),
            Advice(
                advice.is_in_stage("orders"),
                "Only the block with the last ticket of its head knows that all parts are stored. Each head "
                "has its own parts and its own ticket counter.",
            ),
            Advice(
                lambda m: _equals_attention(m, scale=np.float32(1)),
                "The scores are not scaled. A score is the dot product of query and key, times scale.",
            ),
            Advice(
                lambda m: _equals_attention(m, element_count=16) or _equals_attention(m, element_count=1),
                "A score must be the sum over all 32 lanes.",
            ),
            Advice(
                lambda m: m.actual_values is not None and not np.isfinite(m.actual_values).all(),
                "NaN and ∞ come from an exponential that overflows (subtract the largest score), from a warp "
                "or block that has no token, or from values that others have not written yet (add a "
                "barrier).",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some numbers were never written. Each head has 32 numbers.",
            ),
            Advice(
                lambda m: m.actual_values is not None,
                "Compare with NumPy for one head. Check the score (all lanes, scale). After a higher score, "
                "the sum and the weight so far must shrink, in each warp and where warps or blocks are "
                "combined. All of them must be combined: warps after a barrier, blocks by the last one.",
            ),
        ),
        praise="every key and value is read once, for any number of tokens and warps.",
    ),
)
