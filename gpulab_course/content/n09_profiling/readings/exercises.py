"""Exercises 09-roofline (the roofline point of a kernel) and 09-throttled (the reason for low clocks)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from gpulab_course.teach.judge import (
    Answer,
    NotYet,
    PythonExercise,
    as_float,
    call,
    is_number,
    list_parts,
    short_repr,
)

# 09-roofline

_PEAK_GFLOPS_OF_FORMAT = {"float64": 34e3, "float32": 67e3, "float16": 134e3}
_RELATIVE_TOLERANCE = 1e-6
_DOT_FIELDS = ("operations per byte", "GFLOP/s", "share of the roofline")


def compute_roofline_dot(
    launches: list[dict[str, float]],
    format_name: str,
    device: dict[str, Any],
    *,
    operations_per_fma: float = 2,
    launch_index: int = 0,
    time_index: int | None = None,
    bytes_field: str = "dram_bytes",
    peak_format_name: str = "",
) -> tuple[float, float, float]:
    """Return a kernel's operations per byte, GFLOP/s and share of the ceiling for a roofline chart.

    The keyword arguments reproduce known mistakes in this computation.
    """
    launch_counters = launches[launch_index]
    timed_launch = launches[launch_index if time_index is None else time_index]
    operation_count = (
        operations_per_fma * launch_counters["fma"] + launch_counters["add"] + launch_counters["mul"]
    )
    gflops = operation_count / timed_launch["time_ns"]
    moved_bytes = launch_counters[bytes_field]
    intensity = operation_count / moved_bytes if moved_bytes else math.inf
    ceiling_gflops = min(device["gflops"][peak_format_name or format_name], intensity * device["gbps"])
    return intensity, gflops, gflops / ceiling_gflops


_LESSON_OF_MISTAKE: tuple[tuple[dict[str, Any], str], ...] = (
    ({"operations_per_fma": 1}, "a fused multiply-add is two operations."),
    (
        {"bytes_field": "requested_bytes"},
        "requested bytes are not the bytes that memory moves: caches deliver a part of them.",
    ),
    ({"bytes_field": "l2_bytes"}, "the bytes that L2 sent to the SMs are not those that memory moved."),
    ({"launch_index": 1}, "the second launch found its data in L2; the program runs the first one."),
    (
        {"bytes_field": "dram_bytes", "time_index": 1},
        "use the bytes and the time of the same launch, the first one.",
    ),
    ({"peak_format_name": "float32"}, "the ceiling is the peak of the format in which the kernel computes."),
    ({"peak_format_name": "float16"}, "the ceiling is the peak of the format in which the kernel computes."),
    ({"peak_format_name": "float64"}, "the ceiling is the peak of the format in which the kernel computes."),
)


def judge_roofline(answer: Answer) -> str:
    """Judge the learner's ``dot(launches, form, device)``, which computes a kernel's point in a roofline
    chart.
    """
    for trial_index in range(16):
        launches, format_name, device = _draw_launches(answer.rng, trial_index)
        fma_count, dram_bytes = (launches[0][name] for name in ("fma", "dram_bytes"))
        call_text = f"dot of a {format_name} kernel with {fma_count:,} fma and {dram_bytes:,} dram_bytes"
        result = call(answer, launches, format_name, device, name="dot", shown=call_text)
        result_values = list_parts(result)
        if (
            result_values is None
            or len(result_values) != len(_DOT_FIELDS)
            or not all(map(is_number, result_values))
        ):
            raise NotYet(
                f"{call_text} is {short_repr(result)}. Return three numbers, {', '.join(_DOT_FIELDS)}."
            )
        results = tuple(map(as_float, result_values))
        expected_values = compute_roofline_dot(launches, format_name, device)
        for field_name, result_number, expected_number in zip(
            _DOT_FIELDS, results, expected_values, strict=True
        ):
            if not _is_close(result_number, expected_number):
                lesson = _explain_wrong_dot(results, launches, format_name, device)
                raise NotYet(
                    f"{call_text} returns {result_number:,.4g} {field_name}, but it should be "
                    f"{expected_number:,.4g}{lesson or '.'}"
                )
    return (
        "the dot is right: you used the bytes that DRAM moved, two operations per FMA, and the format's peak."
    )


def _is_close(value: float, expected: float) -> bool:
    """Return whether two numbers agree to the tolerance of the exercise."""
    return value == expected or bool(np.isclose(value, expected, rtol=_RELATIVE_TOLERANCE, atol=0))


def _explain_wrong_dot(
    results: tuple[float, ...], launches: list[dict[str, float]], format_name: str, device: dict[str, Any]
) -> str:
    """Return the feedback for the known mistake that leads to exactly these numbers, or ""."""
    intensity, gflops, peak_share = compute_roofline_dot(launches, format_name, device)
    bandwidth_share = launches[0]["dram_bytes"] / launches[0]["time_ns"] / device["gbps"]
    has_right_coordinates = _is_close(results[0], intensity) and _is_close(results[1], gflops)
    ceiling_lesson = ": where arithmetic is the limit, the share of the bandwidth is not the answer"
    for mistake_arguments, lesson in _LESSON_OF_MISTAKE:
        if all(
            map(_is_close, results, compute_roofline_dot(launches, format_name, device, **mistake_arguments))
        ):
            # If memory is the limit in both formats, both mistakes have the same numbers.
            is_ambiguous = has_right_coordinates and _is_close(results[2], bandwidth_share)
            return f"{ceiling_lesson}; {lesson}" if is_ambiguous else f": {lesson}"
    if has_right_coordinates:
        if _is_close(results[2], gflops / device["gflops"][format_name]):
            return ": under the slope the ceiling is intensity times bandwidth, not the peak."
        if _is_close(results[2], 100 * peak_share):
            return ": a share is 1 at the roofline, not 100."
        if _is_close(results[2], bandwidth_share):
            return f"{ceiling_lesson}."
    if _is_close(results[1], 1e9 * gflops) or _is_close(results[1], gflops / 1e3):
        return ": operations per nanosecond are GFLOP/s."
    return ""


def _draw_launches(
    rng: np.random.Generator, trial_index: int
) -> tuple[list[dict[str, float]], str, dict[str, Any]]:
    """Draw two consecutive launches of a kernel, the number format, and the device.

    Memory-bound and compute-bound kernels alternate; one of the trials has no DRAM traffic.
    """
    format_name = list(_PEAK_GFLOPS_OF_FORMAT)[trial_index % 3]
    device_scale = float(rng.uniform(0.1, 2.0))
    device: dict[str, Any] = {
        "gbps": round(float(rng.uniform(200, 8000)), 1),
        "gflops": {
            number_format: round(device_scale * peak_gflops * float(rng.uniform(0.5, 1.5)), 1)
            for number_format, peak_gflops in _PEAK_GFLOPS_OF_FORMAT.items()
        },
    }
    ridge_intensity = device["gflops"][format_name] / device["gbps"]
    intensity = ridge_intensity * float(rng.uniform(0.02, 0.6) if trial_index % 2 else rng.uniform(2, 30))
    dram_bytes = int(rng.integers(1 << 20, 1 << 28))
    operation_count = intensity * dram_bytes
    fma_count = int(0.4 * operation_count)
    add_count = int(0.15 * operation_count) + 1
    mul_count = int(0.05 * operation_count) + 1
    if trial_index == 5:
        dram_bytes = 0  # everything was in L2
    ceiling_gflops = min(device["gflops"][format_name], intensity * device["gbps"])
    time_ns = (
        int((2 * fma_count + add_count + mul_count) / ceiling_gflops / float(rng.uniform(0.05, 0.95))) + 1
    )
    first_launch: dict[str, float] = {
        "fma": fma_count,
        "add": add_count,
        "mul": mul_count,
        "requested_bytes": 7 * dram_bytes + 4096,
        "l2_bytes": 2 * dram_bytes + 2048,
        "dram_bytes": dram_bytes,
        "time_ns": time_ns,
    }
    second_launch = first_launch | {"dram_bytes": dram_bytes // 9, "time_ns": int(0.7 * time_ns) + 1}
    return [first_launch, second_launch], format_name, device


ROOFLINE_EXERCISE = PythonExercise(
    "09-roofline", "A dot on the roofline, by hand", judge_roofline, level="core"
)


# 09-throttled

POWER_REASON_BITS = 0x04 | 0x80  # software power cap, power brake
HEAT_REASON_BITS = 0x20 | 0x40  # software and hardware thermal slowdown
MIN_CAUSE_SHARE = 0.1  # of the busy time, above which a cause counts
_IDLE_REASON_BIT = 0x01
_OTHER_REASON_BITS = (0x02, 0x10, 0x100)
THROTTLING_CAUSES = ("no", "power", "heat")
SensorSamples = list[dict[str, float]]


def compute_throttled_shares(samples: SensorSamples) -> tuple[float, float]:
    """Return the share of the busy time in which power limited the clocks, and the share in which temperature
    did.

    Each sample counts for the time until the next sample.
    """
    busy_s = 0.0
    power_s = 0.0
    heat_s = 0.0
    for sample, next_sample in pairwise(samples):
        duration_s = next_sample["time_s"] - sample["time_s"]
        if sample["utilization"] > 0:
            busy_s += duration_s
            power_s += duration_s * bool(int(sample["clock_reasons"]) & POWER_REASON_BITS)
            heat_s += duration_s * bool(int(sample["clock_reasons"]) & HEAT_REASON_BITS)
    return (power_s / busy_s, heat_s / busy_s) if busy_s else (0.0, 0.0)


def find_throttling_cause(samples: SensorSamples) -> tuple[str, float]:
    """Return the expected answer to the exercise 09-throttled, with the cause of the limit and its share of
    the busy time.
    """
    power_share, heat_share = compute_throttled_shares(samples)
    if max(power_share, heat_share) <= MIN_CAUSE_SHARE:
        return "no", 0.0
    return ("power", power_share) if power_share > heat_share else ("heat", heat_share)


def judge_throttled(answer: Answer) -> str:
    """Judge the learner's ``throttled(samples)``, which finds why clocks were limited, and for which share of
    the time.
    """
    for description, samples, lesson in _draw_sessions(answer.rng):
        call_text = f"throttled of {description}"
        result = call(answer, samples, name="throttled", shown=call_text)
        result_values = list_parts(result)
        if (
            result_values is None
            or len(result_values) != 2
            or str(result_values[0]) not in THROTTLING_CAUSES
            or not is_number(result_values[1])
        ):
            raise NotYet(
                f"{call_text} is {short_repr(result)}. Return a cause and a share. The cause must be "
                '"no", "power" or "heat".'
            )
        expected_cause, cause_share = find_throttling_cause(samples)
        if str(result_values[0]) != expected_cause:
            raise NotYet(f"{call_text} is {result_values[0]!s}, but it should be {expected_cause}: {lesson}")
        returned_share = as_float(result_values[1])
        if not np.isclose(returned_share, cause_share, rtol=0, atol=1e-9):
            explanation = (
                f"{call_text} is {expected_cause} for a share of {returned_share:.4f}, "
                f"but it should be {cause_share:.4f}"
            )
            raise NotYet(f"{explanation}{_explain_wrong_share(returned_share, samples)}")
    return "you distinguish idle clocks, bursts, power and heat, by time and not by count."


def _explain_wrong_share(share: float, samples: SensorSamples) -> str:
    """Return the feedback for a known mistake that leads to a wrong share, or ""."""
    cause, _ = find_throttling_cause(samples)
    cause_reason_bits = POWER_REASON_BITS if cause == "power" else HEAT_REASON_BITS
    busy_samples = [sample for sample in samples[:-1] if sample["utilization"] > 0]
    throttled_samples = [
        sample for sample in busy_samples if int(sample["clock_reasons"]) & cause_reason_bits
    ]
    if busy_samples and np.isclose(share, len(throttled_samples) / len(busy_samples), atol=1e-9):
        return ": samples are not evenly spaced; each counts for the time until the next one."
    if np.isclose(share, len(throttled_samples) / (len(samples) - 1), atol=1e-9):
        return ": samples are not evenly spaced, and only those of the busy time count."
    session_s = samples[-1]["time_s"] - samples[0]["time_s"]
    power_share, heat_share = compute_throttled_shares(samples)
    busy_s = sum(
        next_sample["time_s"] - sample["time_s"]
        for sample, next_sample in pairwise(samples)
        if sample["utilization"] > 0
    )
    if session_s and np.isclose(
        share, (power_share if cause == "power" else heat_share) * busy_s / session_s, atol=1e-9
    ):
        return ": it is a share of the busy time, not of the whole session."
    if np.isclose(share, 100 * (power_share if cause == "power" else heat_share), atol=1e-7):
        return ": a share is at most 1."
    shifted_busy_s = sum(
        next_sample["time_s"] - sample["time_s"]
        for sample, next_sample in pairwise(samples)
        if next_sample["utilization"] > 0
    )
    shifted_throttled_s = sum(
        next_sample["time_s"] - sample["time_s"]
        for sample, next_sample in pairwise(samples)
        if next_sample["utilization"] > 0 and int(next_sample["clock_reasons"]) & cause_reason_bits
    )
    if shifted_busy_s and np.isclose(share, shifted_throttled_s / shifted_busy_s, atol=1e-9):
        return ": each sample is valid until the next one, not since the one before."
    return "." if cause != "no" else ': with "no" the share is 0.'


def _draw_sessions(rng: np.random.Generator) -> list[tuple[str, SensorSamples, str]]:
    """Draw sessions to judge: a description, the samples, and the feedback for a wrong answer."""
    boost_mhz = int(rng.integers(1200, 2600))
    limit_w = float(rng.integers(200, 900))

    def make_idle_phase(seconds: float) -> list[Any]:
        return [(seconds, 0, 0.2 * boost_mhz, 0.12 * limit_w, 35, _IDLE_REASON_BIT)]

    def make_busy_phase(
        seconds: float,
        reasons: int = 0,
        clock_share: float = 1.0,
        power_share: float = 0.7,
        temperature_c: float = 60,
        min_utilization: int = 20,
    ) -> list[Any]:
        utilization = min_utilization if min_utilization < 20 else int(rng.integers(min_utilization, 101))
        return [
            (seconds, utilization, clock_share * boost_mhz, power_share * limit_w, temperature_c, reasons)
        ]

    brake_lesson = "0x80 is a power brake; 0x8 alone shows only that the hardware lowered the clock."
    capped_idle_lesson = "a reason on an idle GPU does not slow anything down: only busy time counts."
    capped_idle_phase = [(3.0, 0, 0.3 * boost_mhz, 0.1 * limit_w, 40, 0x04)]
    idle_lesson = "an idle GPU lowers its clock by itself, which is not throttling."
    burst_lesson = (
        "a cap for a tenth of the busy time or less is a burst, and not the reason why the program is slow."
    )
    hot_lesson = "a GPU at its power limit is also warm, but the reported reason is power (0x4, 0x80)."
    thermal_lesson = "thermal slowdown is 0x20 or 0x40, whatever the power is."
    phase_lesson = "the mean over a session hides a phase; look at each reading."
    other_reason_lesson = (
        "application clocks, sync boost and display clocks are settings: neither power nor heat."
    )
    short_lesson = "compare with a tenth of the busy time, however long the GPU is idle."
    longer_cause_lesson = "if both limited the clocks, the cause is the one that did so for longer."
    phase_sessions = [
        (
            "a GPU that is mostly idle",
            make_idle_phase(8.0) + make_busy_phase(2.0, clock_share=0.98),
            idle_lesson,
        ),
        ("a GPU that is always idle", make_idle_phase(5.0), idle_lesson),
        (
            "a hot GPU at the power cap",
            make_idle_phase(1.0) + make_busy_phase(6.0, 0x04, 0.8, 1.0, 84),
            hot_lesson,
        ),
        (
            "a fan that failed",
            make_busy_phase(4.0) + make_busy_phase(5.0, 0x20, 0.6, 0.5, 88),
            thermal_lesson,
        ),
        (
            "a power brake",
            make_busy_phase(3.0) + make_busy_phase(4.0, 0x08 | 0x80, 0.4, 0.4, 50),
            brake_lesson,
        ),
        (
            "a hot board",
            make_busy_phase(3.0) + make_busy_phase(2.0, 0x08 | 0x40, 0.4, 0.6, 95),
            thermal_lesson,
        ),
        (
            "one burst at the power cap",
            make_busy_phase(20.0) + make_busy_phase(1.5, 0x04, 0.9, 1.0),
            burst_lesson,
        ),
        (
            "a power cap while there is little work",
            make_idle_phase(30.0)
            + make_busy_phase(4.0, min_utilization=1)
            + make_busy_phase(1.0, 0x04, 0.9, 1.0),
            short_lesson,
        ),
        (
            "a slow phase",
            make_busy_phase(7.0) + make_busy_phase(2.0, 0x20, 0.7, 0.6, 90) + make_busy_phase(6.0),
            phase_lesson,
        ),
        (
            "a session that ends at the power cap",
            make_busy_phase(9.5) + make_busy_phase(0.2, 0x04, 0.9, 1.0) + make_idle_phase(4.0),
            burst_lesson,
        ),
        (
            "clocks that the user has set",
            make_busy_phase(6.0, 0x02, 0.7) + make_busy_phase(1.0, 0x10) + make_busy_phase(1.0, 0x100),
            other_reason_lesson,
        ),
        (
            "power, then heat",
            make_busy_phase(2.0, 0x04, 0.9, 1.0, 80) + make_busy_phase(5.0, 0x20, 0.7, 0.8, 90),
            longer_cause_lesson,
        ),
        (
            "heat, then power",
            make_busy_phase(2.0, 0x40, 0.7, 0.6, 92) + make_busy_phase(5.0, 0x04, 0.9, 1.0, 70),
            longer_cause_lesson,
        ),
        (
            "both",
            make_busy_phase(4.0)
            + make_busy_phase(2.0, 0x24, 0.6, 1.0, 90)
            + make_busy_phase(1.0, 0x20, 0.6, 0.8, 90),
            longer_cause_lesson,
        ),
        (
            "a power brake, then a hot board",
            make_busy_phase(1.0, 0x88, 0.4, 0.4)
            + make_busy_phase(2.0, 0x48, 0.4, 0.6, 95)
            + make_busy_phase(3.0),
            brake_lesson,
        ),
        (
            "a power cap while nothing runs",
            [*make_idle_phase(1.0), *capped_idle_phase, *make_busy_phase(5.0)],
            capped_idle_lesson,
        ),
    ]
    sessions = [
        (description, _make_samples_of_phases(rng, phases), lesson)
        for description, phases, lesson in phase_sessions
    ]
    for session_index in rng.permutation(len(sessions))[: len(sessions) // 2]:  # smaller cards
        for sample in sessions[int(session_index)][1]:
            sample["power"] = round(0.15 * sample["power"], 1)
    separate_lesson = (
        "each cause must limit the clocks for more than a tenth of the busy time: they do not add up."
    )
    two_reasons_lesson = "a sample can have the bits of both: then both limited the clocks."
    tenth_lesson = "exactly a tenth is not more than a tenth."
    sessions += [
        (
            "power and heat, neither for a tenth",
            _make_samples_by_second((84, 0), (8, 0x04), (8, 0x20)),
            separate_lesson,
        ),
        (
            "heat and power, neither for a tenth",
            _make_samples_by_second((5, 0x40), (86, 0), (9, 0x80)),
            separate_lesson,
        ),
        (
            "a power cap for exactly a tenth",
            _make_samples_by_second((45, 0), (10, 0x04), (45, 0)),
            tenth_lesson,
        ),
        (
            "heat for exactly a tenth, and a power cap for a little more",
            _make_samples_by_second((10, 0x20), (11, 0x04), (79, 0)),
            tenth_lesson,
        ),
        (
            "heat in a ninth, a power cap in half",
            _make_samples_by_second((11, 0x40), (39, 0), (50, 0x80)),
            longer_cause_lesson,
        ),
        (
            "a power cap in a ninth, heat in half",
            _make_samples_by_second((11, 0x80), (39, 0), (50, 0x40)),
            longer_cause_lesson,
        ),
        (
            "both at once, the power cap for longer",
            _make_samples_by_second((8, 0x24), (6, 0x04), (86, 0)),
            two_reasons_lesson,
        ),
        (
            "a power brake and heat at once, then heat",
            _make_samples_by_second((30, 0xC8), (15, 0x20), (55, 0x1)),
            two_reasons_lesson,
        ),
        ("heat from the first sample to the last", _make_samples_by_second((100, 0x20)), thermal_lesson),
    ]
    single_sample_lesson = "a sample is valid until the next one, so a single sample has no duration."
    sessions.append(
        (
            "one sample at the power cap",
            _make_samples_of_phases(rng, make_busy_phase(1.0, 0x04, 0.9, 1.0))[:1],
            single_sample_lesson,
        )
    )
    # Few samples in the throttled phase and many in the other, and vice versa.
    sparse_samples = _make_samples_of_phases(rng, make_busy_phase(5.0), 0.05) + _make_samples_of_phases(
        rng, make_busy_phase(5.0, 0x04, 0.8, 1.0), 1.0, 5.0
    )
    dense_samples = _make_samples_of_phases(rng, make_busy_phase(19.5), 1.0) + _make_samples_of_phases(
        rng, make_busy_phase(0.5, 0x20, 0.8, 0.9, 85), 0.02, 19.5
    )
    uneven_lesson = "samples are not evenly spaced; each counts for the time until the next one."
    return [
        *sessions,
        ("readings with long gaps in the busy phase", sparse_samples, uneven_lesson),
        ("a short burst with many readings", dense_samples, uneven_lesson),
    ]


def _make_samples_by_second(*phases: tuple[int, int]) -> SensorSamples:
    """Return one sample per second of a busy GPU, for phases given as (seconds, reason bits)."""
    reason_by_second = [throttle_reason for duration_s, throttle_reason in phases for _ in range(duration_s)]
    return [
        {
            "time_s": float(second_index),
            "utilization": 1 + second_index % 100,
            "sm_clock": 1000,
            "power": 200.0,
            "temperature": 60,
            "clock_reasons": throttle_reason,
        }
        for second_index, throttle_reason in enumerate([*reason_by_second, reason_by_second[-1]])
    ]


def _make_samples_of_phases(
    rng: np.random.Generator, phases: list[Any], interval_s: float = 0.1, start_s: float = 0.0
) -> SensorSamples:
    """Return samples for phases given as (seconds, utilization, clock, power, temperature, reason bits)."""
    samples: SensorSamples = []
    for duration_s, utilization, clock_mhz, power_w, temperature_c, reasons in phases:
        for sample_index in range(max(2, round(duration_s / interval_s))):
            time_shift_s = float(rng.uniform(0, 0.4)) * interval_s if sample_index else 0.0
            samples.append(
                {
                    "time_s": round(start_s + sample_index * interval_s + time_shift_s, 4),
                    "utilization": utilization,
                    "sm_clock": round(float(clock_mhz * rng.uniform(0.99, 1.0))),
                    "power": round(float(power_w), 1),
                    "temperature": round(float(temperature_c + rng.uniform(-1, 1))),
                    "clock_reasons": reasons,
                }
            )
        start_s += duration_s
    return samples


THROTTLED_EXERCISE = PythonExercise("09-throttled", "Throttled or not", judge_throttled, level="core")
