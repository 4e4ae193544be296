"""Exercises of notebook 01."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gpulab.session import list_table_devices, on_device
from gpulab_course.teach.judge import (
    Answer,
    NotYet,
    PythonExercise,
    as_float,
    call,
    format_call,
    is_number,
    list_parts,
    short_repr,
)
from gpulab_course.teach.judge.python.functions import must_be_a_function
from virtualgpu.records import DeviceInfo, Dim3

_MIB = 1 << 20


def judge_peak(answer: Answer) -> str:
    """Judge the learner's ``peak(info)``, which computes a GPU's peak FP32 TFLOP/s and its memory bandwidth
    in GB/s.
    """
    for info in _draw_devices(answer.rng):
        result = call(answer, info, name="peak", shown=f"peak(info) of a {info.name}")
        result_values = list_parts(result)
        if result_values is None or len(result_values) != 2:
            raise NotYet(
                f"peak(info) of a {info.name} returns {short_repr(result)}. Return two numbers, TFLOP/s and "
                "GB/s."
            )
        tflops, gbps = _compute_peak_rates(info)
        _check_rate(info, "TFLOP/s", result_values[0], tflops, _LESSON_OF_TFLOPS_FACTOR)
        _check_rate(info, "GB/s", result_values[1], gbps, _LESSON_OF_GBPS_FACTOR)
    return "both rates are computed from counts, clocks and widths, also for imaginary devices."


def _compute_peak_rates(device: Any) -> tuple[float, float]:
    """Return a device's peak rates in TFLOP/s and GB/s."""
    tflops = device.sm_count * device.fp32_lanes_per_sm * 2 * device.boost_clock_mhz / 1e6
    return tflops, 2 * device.memory_clock_mhz * device.memory_bus_bits / 8 / 1e3


_LESSON_OF_TFLOPS_FACTOR = {
    0.5: "a fused multiply-add is two operations.",
    1e3: "1 TFLOP is 10^12 operations; the clock is in MHz.",
    1e6: "1 TFLOP is 10^12 operations; the clock is in MHz.",
    1e12 / 2**40: "1 TFLOP is 10^12 operations, not 2^40.",
    1e-3: "1 TFLOP is 10^12 operations; the clock is in MHz.",
}
_LESSON_OF_GBPS_FACTOR = {
    0.5: "with double data rate, each wire carries two bits per clock cycle.",
    8: "the bus width is in bits, and a byte has 8 bits.",
    4: "the bus width is in bits, and each wire carries two bits per clock cycle.",
    1e3: "1 GB is 10^9 bytes; the clock is in MHz.",
    1e9 / 2**30: "1 GB is 10^9 bytes, not 2^30.",
    1e-3: "1 GB is 10^9 bytes; the clock is in MHz.",
}


def _check_rate(
    info: DeviceInfo, rate_unit: str, value: Any, expected: float, lesson_of_factor: dict[float, str]
) -> None:
    if not is_number(value):
        raise NotYet(
            f"peak(info) of a {info.name} returns {short_repr(value)} for {rate_unit}. Return numbers."
        )
    rate = as_float(value)
    if np.isclose(rate, expected, rtol=1e-3):
        return
    lesson = ""
    for known_factor, known_lesson in lesson_of_factor.items():
        if np.isclose(rate, known_factor * expected, rtol=1e-3):
            lesson = known_lesson
            break
    if not lesson and rate in (info.fp32_tflops, info.memory_bandwidth_gbps):
        lesson = "this is the published rate. Compute it from counts, clocks and widths."
    lane_multiple = rate / expected * info.fp32_lanes_per_sm / 32
    if (
        not lesson
        and "TFLOP" in rate_unit
        and 0.5 < lane_multiple < 100
        and np.isclose(lane_multiple, round(lane_multiple), rtol=1e-6)
    ):
        lesson = "the number of FP32 units per SM differs. Use info.fp32_lanes_per_sm."
    message = f"peak(info) of a {info.name} returns {rate:,.4g} {rate_unit}, but it should be {expected:,.4g}"
    raise NotYet(f"{message}: {lesson}" if lesson else f"{message}.")


def _draw_devices(rng: np.random.Generator) -> list[DeviceInfo]:
    """Return the devices of the table with known clocks, and three imaginary devices.

    The published rates of the imaginary devices are wrong, because they belong to another device.
    """
    table_devices = [
        info
        for info in list_table_devices()
        if info.boost_clock_mhz and info.memory_clock_mhz and info.memory_bus_bits
    ]
    imaginary_devices = []
    device_indices = rng.permutation(len(table_devices))
    for name, device_index in zip(("Imagined", "Fancied", "Invented"), device_indices, strict=False):
        model_device = table_devices[device_index]
        lane_counts = [
            lanes for lanes in (32, 64, 96, 128, 192, 256) if lanes != model_device.fp32_lanes_per_sm
        ]
        device = replace(
            model_device,
            name=f"{name} GPU",
            sm_count=int(rng.integers(5, 300)),
            fp32_lanes_per_sm=int(rng.choice(lane_counts)),
            boost_clock_mhz=int(rng.integers(500, 3000)),
            memory_clock_mhz=int(rng.integers(800, 14_000)),
            memory_bus_bits=int(64 * rng.integers(1, 128)),
        )
        imaginary_devices.append(device)
    return [*table_devices, *imaginary_devices]


_REQUIRED_CAPABILITIES = ((7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1))


def judge_capability(answer: Answer) -> str:
    """Judge the learner's ``at_least(text, major, minor)``, which checks whether a compute capability such as
    "120" reaches a minimum.
    """
    common_texts = ["80", "75", "52", "86", "89", "90", "100", "103", "110", "120", "121"]
    rare_texts = ["30", "37", "60", "61", "62", "70", "72", "87", "88", "101", "107", "115", "130", "139"]
    random_texts = [
        str(10 * int(answer.rng.integers(3, 26)) + int(answer.rng.integers(10))) for _ in range(8)
    ]
    for capability_text in (*common_texts, *rare_texts, *random_texts):
        version = divmod(int(capability_text), 10)
        neighbour_versions = [
            version,
            (version[0], version[1] + 1),
            (version[0] + 1, 0),
            (version[0] - 1, 9),
            (version[0], max(version[1] - 1, 0)),
        ]
        for required_version in (
            *_REQUIRED_CAPABILITIES,
            *(neighbour_version for neighbour_version in neighbour_versions if neighbour_version[1] < 10),
        ):
            _judge_comparison(answer, capability_text, version, required_version)
    return (
        "it is right from 3.0 to 25.9, and compares the two numbers of a version, not its digits as a string."
    )


def _judge_comparison(
    answer: Answer, capability_text: str, version: tuple[int, int], required_version: tuple[int, int]
) -> None:
    call_text = format_call("at_least", (capability_text, *required_version))
    result = call(answer, capability_text, *required_version, name="at_least")
    if not isinstance(result, bool | np.bool):
        raise NotYet(f"{call_text} returns {short_repr(result)}. Return True or False.")
    if bool(result) == (version >= required_version):
        return
    message = f"{call_text} returns {result}, but {capability_text} is {version[0]}.{version[1]}"
    if len(capability_text) == 3:
        raise NotYet(f"{message}: the minor version is the last digit, the rest is the major version.")
    if required_version[0] > 9:
        raise NotYet(f"{message}: compare numbers, not strings. As strings, '9' comes after '10'.")
    if version == required_version:
        raise NotYet(f'{message}: "at least" includes the version itself.')
    raise NotYet(f"{message}: the minor versions count only if the major versions are equal.")


def judge_limits(answer: Answer) -> str:
    """Judge the learner's ``first_problem(info, grid, block, shared_bytes)``, which names an exceeded launch
    limit.
    """
    info = list_table_devices()[0]
    for grid, block, shared_bytes, expected_problem, lesson in _list_example_launches(info):
        call_text = f"first_problem(info, {grid}, {block}, {shared_bytes})"
        result = call(answer, info, grid, block, shared_bytes, name="first_problem", shown=call_text)
        if not isinstance(result, str) or result != expected_problem:
            raise NotYet(
                f"{call_text} returns {short_repr(result)}, but it should be {expected_problem!r}: {lesson}"
            )
    _check_reads_info(answer, info)
    for _ in range(120):
        _judge_launch(answer, *_draw_launch(answer.rng, info))
    return "it finds every exceeded limit, on any device."


def _find_first_problem(info: DeviceInfo, grid: Dim3, block: Dim3, shared_bytes: int) -> str:
    if prod(block) > info.max_threads_per_block:
        return "threads"
    for shape_name, launch_shape, max_shape in (
        ("block", block, info.max_block_dim),
        ("grid", grid, info.max_grid_dim),
    ):
        if any(size > limit for size, limit in zip(launch_shape, max_shape, strict=True)):
            return shape_name
    return "shared" if shared_bytes > info.shared_per_block_bytes else "ok"


def _draw_launch(rng: np.random.Generator, info: DeviceInfo) -> tuple[DeviceInfo, Dim3, Dim3, int]:
    """Draw a device whose limits all differ, and a launch that reaches some limits and exceeds one or two."""

    def draw_triple(min_value: int, max_value: int) -> Dim3:
        x, y, z = (int(n) for n in rng.integers(min_value, max_value, 3))
        return x, y, z

    threads = int(rng.integers(100, 1100))
    device = replace(
        info,
        max_threads_per_block=threads,
        max_block_dim=draw_triple(8, threads),
        max_grid_dim=draw_triple(100, 90_000),
        shared_per_block_bytes=int(rng.integers(1 << 10, 1 << 17)),
        reserved_shared_per_block_bytes=1024,
    )
    grid = [1, 1, 1]
    block = [1, 1, 1]
    shared_bytes = int(rng.integers(0, device.shared_per_block_bytes + 1))
    for limit_index in rng.choice(8, int(rng.integers(1, 4)), replace=False):
        axis = int(limit_index) % 3
        excess_amount = int(rng.integers(0, 2))
        if limit_index < 3:
            block[axis] = device.max_block_dim[axis] + excess_amount
        elif limit_index < 6:
            grid[axis] = device.max_grid_dim[axis] + excess_amount
        elif limit_index == 6:
            shared_bytes = device.shared_per_block_bytes + excess_amount
        else:
            block = (
                [threads // 4 + excess_amount, 4, 1]
                if rng.random() < 0.5
                else [1, 2, threads // 2 + excess_amount]
            )
    return device, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), shared_bytes


def _judge_launch(answer: Answer, info: DeviceInfo, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
    expected_problem = _find_first_problem(info, grid, block, shared_bytes)
    call_text = f"first_problem(info, {grid}, {block}, {shared_bytes})"
    result = call(answer, info, grid, block, shared_bytes, name="first_problem", shown=call_text)
    if result != expected_problem:
        raise NotYet(
            f"{call_text} returns {short_repr(result)}, but it should be {expected_problem!r} on a device "
            f"with max_threads_per_block = {info.max_threads_per_block}, "
            f"max_block_dim = {info.max_block_dim}, max_grid_dim = {info.max_grid_dim}, "
            f"shared_per_block_bytes = {info.shared_per_block_bytes}."
        )


def _check_reads_info(answer: Answer, info: DeviceInfo) -> None:
    """Check with several devices that the answer reads its limits from `info`."""
    unit_shape = (1, 1, 1)
    narrow_device = replace(info, max_block_dim=(256, 256, 32))
    flat_device = replace(info, max_grid_dim=(1 << 20, 1000, 1000))
    small_device = replace(info, max_threads_per_block=512, shared_per_block_bytes=16 * 1024)
    large_device = replace(
        info, max_threads_per_block=2048, max_block_dim=(2048, 2048, 64), shared_per_block_bytes=_MIB
    )
    for device, grid, block, shared_bytes, expected_problem, info_field in (
        (small_device, unit_shape, (1024, 1, 1), 0, "threads", "max_threads_per_block"),
        (small_device, unit_shape, (32, 1, 1), 32 * 1024, "shared", "shared_per_block_bytes"),
        (narrow_device, unit_shape, (257, 1, 1), 0, "block", "max_block_dim"),
        (narrow_device, unit_shape, (1, 257, 1), 0, "block", "max_block_dim"),
        (narrow_device, unit_shape, (1, 1, 33), 0, "block", "max_block_dim"),
        (flat_device, ((1 << 20) + 1, 1, 1), (32, 1, 1), 0, "grid", "max_grid_dim"),
        (flat_device, (1, 1, 1001), (32, 1, 1), 0, "grid", "max_grid_dim"),
        (large_device, unit_shape, (2048, 1, 1), 512 * 1024, "ok", "max_threads_per_block"),
    ):
        result = call(
            answer,
            device,
            grid,
            block,
            shared_bytes,
            name="first_problem",
            shown="first_problem of another device",
        )
        if result != expected_problem:
            raise NotYet(
                f"it does not read info.{info_field}: for another device and grid {grid}, block {block}, "
                f"{shared_bytes:,} bytes it returns {short_repr(result)} instead of {expected_problem!r}."
            )


def _list_example_launches(info: DeviceInfo) -> tuple[tuple[Dim3, Dim3, int, str, str], ...]:
    max_threads = info.max_threads_per_block
    max_x, max_y, max_z = info.max_block_dim
    max_shared = info.shared_per_block_bytes
    max_grid_y = info.max_grid_dim[1]
    unit_shape = (1, 1, 1)
    warp_shape = (32, 1, 1)
    return (
        (unit_shape, warp_shape, 0, "ok", "a small launch exceeds no limit."),
        (
            unit_shape,
            (max_threads, 1, 1),
            max_shared,
            "ok",
            "a launch can reach a limit, but not exceed it: compare with >.",
        ),
        (
            unit_shape,
            (max_threads + 1, 1, 1),
            0,
            "threads",
            (f"a block can have at most {max_threads:,} threads."),
        ),
        (
            unit_shape,
            (max_x // 16, 32, 1),
            0,
            "threads",
            "the limit on threads applies to x · y · z, and not to each number alone.",
        ),
        (
            unit_shape,
            (1 << 16, 1 << 16, 1),
            0,
            "threads",
            "the limit on threads applies to x · y · z, even if it is very large.",
        ),
        (
            unit_shape,
            (8, 8, max_z + 1),
            0,
            "threads",
            ("in the order of the problems, the number of threads comes first."),
        ),
        (unit_shape, (1, 1, max_z + 1), 0, "block", f"a block can have at most {max_z} threads in z."),
        (unit_shape, (1, 1, max_z), 0, "ok", f"a block can have {max_z} threads in z."),
        (unit_shape, (8, max_y // 16, 1), 0, "ok", f"{8 * (max_y // 16)} threads fit."),
        ((1, max_grid_y, 1), warp_shape, 0, "ok", f"a grid can have {max_grid_y:,} blocks in y."),
        (
            (1, max_grid_y + 1, 1),
            warp_shape,
            0,
            "grid",
            f"a grid can have at most {max_grid_y:,} blocks in y. Put the longest axis in x.",
        ),
        (
            (1, 1, max_grid_y + 1),
            warp_shape,
            0,
            "grid",
            f"a grid can have at most {max_grid_y:,} blocks in z.",
        ),
        (
            (max_grid_y + 1, 1, 1),
            warp_shape,
            0,
            "ok",
            "x has a separate limit, which is far above that of y.",
        ),
        (
            (max_grid_y + 1, max_grid_y, 1),
            warp_shape,
            0,
            "ok",
            "each axis of a grid has a limit, but the product of the axes has none.",
        ),
        (info.max_grid_dim, warp_shape, 0, "ok", "all axes of a grid can reach their limits at once."),
        (
            (1, max_grid_y + 1, 1),
            (1, 1, max_z + 1),
            0,
            "block",
            "in the order of the problems, the block comes before the grid.",
        ),
        (
            (1, max_grid_y + 1, 1),
            warp_shape,
            max_shared + 1,
            "grid",
            "in the order of the problems, the grid comes before shared memory.",
        ),
        (
            unit_shape,
            warp_shape,
            max_shared + 1,
            "shared",
            f"{max_shared:,} bytes of shared memory are the default limit.",
        ),
    )


Job = tuple[list[DeviceInfo], float, float, float]


def judge_choose(answer: Answer) -> str:
    """Judge the learner's ``choose(gpus, memory_bytes, moved_bytes, flop)``, which returns the fastest GPU
    with enough memory.
    """
    rng = answer.rng
    gpus = [info for info in list_table_devices() if info.fp32_tflops and info.memory_bandwidth_gbps]
    for memory_bytes, moved_bytes, flop, lesson in (
        (1e9, 1e12, 1e9, "the job moves many bytes and computes little, so bandwidth decides."),
        (1e9, 1e9, 1e15, "the job computes much and moves few bytes, so FP32 arithmetic decides."),
        (60e9, 60e9, 120e9, "a GPU whose memory is too small for the job cannot run it at all."),
        (130e9, 1e12, 1e13, "a GPU whose memory is too small for the job cannot run it at all."),
        (1e13, 1e12, 1e12, "no GPU has enough memory. Return None."),
        (15e9, 5e11, 1.7e13, "the slower one of moving and computing determines the time."),
    ):
        _judge_choice(answer, (gpus, memory_bytes, moved_bytes, flop), f": {lesson}")
    gpu_with_16_gib = replace(gpus[0], memory_bytes=16 << 30)
    for available_gpus, memory_bytes in (
        ([gpu_with_16_gib], 16 << 30),
        ([gpu_with_16_gib], (16 << 30) + 1),
        ([], 1_000_000_000),
    ):
        _judge_choice(answer, (available_gpus, float(memory_bytes), 1e9, 1e9))
    for job, mistake_index in _draw_distinguishing_jobs(rng, gpus):
        _judge_choice(answer, job, mistake_index=mistake_index)
    return "it compares memory first, and then the time of the slower one of moving and computing."


def _compute_job_times_s(gpu: DeviceInfo, moved_bytes: float, flop: float) -> tuple[float, float]:
    return moved_bytes / ((gpu.memory_bandwidth_gbps or 0.0) * 1e9), flop / ((gpu.fp32_tflops or 0.0) * 1e12)


# Times that mistaken answers would compute from the times of moving and computing, each with its advice.
_TIME_MISTAKES: tuple[tuple[Callable[[float, float], float], str], ...] = (
    (
        lambda moving_s, computing_s: moving_s + computing_s,
        "moving and computing overlap, so the slower one determines the time.",
    ),
    (min, "the slower one of moving and computing determines the time."),
    (lambda moving_s, computing_s: moving_s, "computing can take longer than moving."),
    (lambda moving_s, computing_s: computing_s, "moving can take longer than computing."),
    (lambda moving_s, computing_s: moving_s * computing_s, "the slower of the two determines the time."),
    (
        lambda moving_s, computing_s: max(moving_s * 1e9 / 2**30, computing_s),
        "1 GB/s is 10^9 bytes per second.",
    ),
    (
        lambda moving_s, computing_s: max(moving_s, computing_s * 1e12 / 2**40),
        "1 TFLOP/s is 10^12 operations per second.",
    ),
)


def _draw_distinguishing_jobs(rng: np.random.Generator, gpus: list[DeviceInfo]) -> list[tuple[Job, int]]:
    """Draw jobs for which a known mistake leads to a wrong choice, with the index of that mistake.

    Some jobs are for existing GPUs, the others for imaginary ones.
    """
    jobs: list[tuple[Job, int]] = []
    for mistake_index, (compute_mistaken_time, _) in enumerate(_TIME_MISTAKES):
        jobs += [
            (job, mistake_index)
            for job in _draw_jobs_that_reveal_mistake(
                rng, gpus, compute_mistaken_time, uses_imaginary_gpus=mistake_index % 2 == 1
            )
        ]
    for index in range(24):  # memory decides
        job_gpus, memory_bytes, moved_bytes, flop = _draw_job(
            rng, gpus, uses_imaginary_gpus=bool(rng.integers(2))
        )
        if index % 2:  # as much memory as the fastest GPU has, or slightly more
            fastest_gpu = min(job_gpus, key=lambda gpu: max(_compute_job_times_s(gpu, moved_bytes, flop)))
            memory_bytes = float(fastest_gpu.memory_bytes + int(rng.choice([0, 1, 1 << 20])))
        jobs.append(((job_gpus, memory_bytes, moved_bytes, flop), 0))
    return jobs


def _draw_jobs_that_reveal_mistake(
    rng: np.random.Generator,
    gpus: list[DeviceInfo],
    compute_mistaken_time: Callable[[float, float], float],
    uses_imaginary_gpus: bool,
) -> list[Job]:
    jobs: list[Job] = []
    for _ in range(2000):
        job = _draw_job(rng, gpus, uses_imaginary_gpus)
        fitting_gpus = [gpu for gpu in job[0] if gpu.memory_bytes >= job[1]]
        gpu_times_s = [_compute_job_times_s(gpu, *job[2:]) for gpu in fitting_gpus]
        if len(fitting_gpus) < 2:
            continue
        times_of_fastest_gpu = min(gpu_times_s, key=max)
        times_of_mistaken_choice = min(gpu_times_s, key=lambda job_times: compute_mistaken_time(*job_times))
        if compute_mistaken_time(*times_of_mistaken_choice) != compute_mistaken_time(*times_of_fastest_gpu):
            jobs.append(job)
            if len(jobs) == 4:
                break
    return jobs


def _draw_job(rng: np.random.Generator, gpus: list[DeviceInfo], uses_imaginary_gpus: bool) -> Job:
    job_gpus = [gpus[i] for i in rng.permutation(len(gpus))[: int(rng.integers(2, 7))]]
    if uses_imaginary_gpus:
        job_gpus = [
            replace(
                gpu,
                name=f"GPU {gpu_letter}",
                memory_bytes=int(rng.integers(4, 200)) << 30,
                memory_bandwidth_gbps=float(rng.integers(100, 9000)),
                fp32_tflops=float(rng.integers(2, 150)),
            )
            for gpu_letter, gpu in zip("ABCDEF", job_gpus, strict=False)
        ]
    moved_bytes = float(10 ** rng.uniform(10, 14))
    return (
        job_gpus,
        float(10 ** rng.uniform(9, 11.3)),
        moved_bytes,
        moved_bytes * float(10 ** rng.uniform(0.5, 2.5)),
    )


def _explain_choice(job: Job, choice: str | None, mistake_index: int) -> str:
    """Return advice on a wrong choice if a known mistake leads to that choice, otherwise "".

    The mistake that the job was drawn to reveal is tried first, then the others.
    """
    gpus, memory_bytes, moved_bytes, flop = job
    fitting_gpus = [info for info in gpus if info.memory_bytes >= memory_bytes]
    if not gpus:
        return ": the list is empty. Return None."
    if not fitting_gpus:
        return ": a GPU whose memory is too small cannot run it at all."
    if choice is None and any(info.memory_bytes == memory_bytes for info in gpus):
        return ": a job may fill the memory to the last byte."
    fastest_gpu = min(gpus, key=lambda info: max(_compute_job_times_s(info, moved_bytes, flop)))
    if choice is None and fastest_gpu not in fitting_gpus:
        return ": a GPU whose memory is too small cannot run it at all. Choose one of the others."
    if choice not in [info.name for info in fitting_gpus]:
        return ": a GPU whose memory is too small cannot run it at all." if choice is not None else "."
    for compute_mistaken_time, lesson in (_TIME_MISTAKES[mistake_index], *_TIME_MISTAKES):
        times_by_gpu = {
            info.name: compute_mistaken_time(*_compute_job_times_s(info, moved_bytes, flop))
            for info in fitting_gpus
        }
        if min(times_by_gpu, key=times_by_gpu.__getitem__) == choice:
            return f": {lesson}"
    return "."


def _judge_choice(answer: Answer, job: Job, lesson: str = "", mistake_index: int = 0) -> None:
    gpus, memory_bytes, moved_bytes, flop = job
    fitting_gpus = [info for info in gpus if info.memory_bytes >= memory_bytes]
    shortest_time_s = min(
        (max(_compute_job_times_s(info, moved_bytes, flop)) for info in fitting_gpus), default=0.0
    )
    best_names = [
        info.name
        for info in fitting_gpus
        if max(_compute_job_times_s(info, moved_bytes, flop)) <= 1.001 * shortest_time_s
    ]
    call_text = f"choose(gpus, {memory_bytes:.3g}, {moved_bytes:.3g}, {flop:.3g})"
    must_be_a_function("choose", answer.is_function, answer.kind)
    choice = answer.call_as(call_text, gpus, memory_bytes, moved_bytes, flop)
    if choice is not None and not isinstance(choice, str):
        raise NotYet(f"{call_text} returns {short_repr(choice)}. Return the `.name` of a GPU, or None.")
    if choice in best_names or (choice is None and not best_names):
        return
    expected_text = repr(best_names[0]) if best_names else "None"
    gpu_list = f" among {', '.join(info.name for info in gpus)}" if 0 < len(gpus) < 5 else ""
    explanation = lesson or _explain_choice(job, choice, mistake_index)
    raise NotYet(
        f"{call_text}{gpu_list} returns {short_repr(choice)}, but it should be {expected_text}{explanation}"
    )


def judge_select(answer: Answer) -> str:
    """Judge the learner's ``make_on(cp, device_id, n)``, which creates the array 0 to n - 1 on a device."""
    must_be_a_function("make_on", answer.is_function, answer.kind)
    array_sizes = [5, 1, 300, 70_000, int(answer.rng.integers(129, 60_000)), 0, _LARGE_ELEMENT_COUNT]
    out_of_memory_text = ""
    for current_id, device_id, n in zip(
        (0, 0, 1, 2, 1, 2, 1), (1, 0, 0, 1, 2, 2, 0), array_sizes, strict=True
    ):
        call_text = f"with device {current_id} current, make_on(cp, {device_id}, {n:,})"
        array_facts, excessive_facts = answer.ask(_run_make_on, current_id, device_id, n, shown=call_text)
        _judge_array(call_text, array_facts, current_id, device_id, n)
        if excessive_facts["current_id"] != current_id:
            raise NotYet(
                f"make_on(cp, {device_id}, {_EXCESSIVE_ELEMENT_COUNT:,}) runs out of memory and "
                f"leaves device {excessive_facts['current_id']} current instead of "
                f"{current_id}. Use a `with` block, which makes the previous device "
                "current again."
            )
        if excessive_facts["description"]:
            out_of_memory_text = (
                f"device {device_id} does not have enough memory for make_on(cp, {device_id}, "
                f"{_EXCESSIVE_ELEMENT_COUNT:,}), but the call returns {excessive_facts['description']}: do "
                "not catch the exception."
            )
    if out_of_memory_text:
        raise NotYet(out_of_memory_text)
    return "the array is on the right device, and the caller's device is current again, even after an error."


_LARGE_ELEMENT_COUNT = (1 << 24) + 4  # beyond the integers that float32 represents exactly
_EXCESSIVE_ELEMENT_COUNT = 1 << 20
_MEMORY_LIMIT_BYTES = 1 << 20
_CHECKED_ELEMENTS = 70_000  # the judge checks only that many elements at the end


def _run_make_on(
    make_on: Any, current_id: int, device_id: int, n: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the answer in its own process: call it once with enough memory and once without."""
    with on_device("virtual:T4", count=3) as cp:
        for other_id in ((device_id + 1) % 3, device_id) if n < _LARGE_ELEMENT_COUNT else ():
            with cp.cuda.Device(current_id):
                earlier_array = make_on(cp, other_id, n)
            if isinstance(earlier_array, cp.ndarray):
                with earlier_array.device:
                    earlier_array.fill(9)  # a later call must not return this array again
        with cp.cuda.Device(current_id):
            result = make_on(cp, device_id, n)
            current_id_after = cp.cuda.Device().id
        array_facts: dict[str, Any] = {
            "current_id": current_id_after,
            "kind": type(result).__name__,
            "device_id": None,
        }
        if isinstance(result, cp.ndarray):
            host_values = cp.asnumpy(result)
            array_facts |= {
                "device_id": result.device.id,
                "shape": host_values.shape,
                "values": host_values.ravel()[-_CHECKED_ELEMENTS:],
            }
        elif result is None or result is ...:
            raise NotYet(
                f"make_on(cp, {device_id}, {n}) returns nothing; replace the TODO and end with a return."
            )
        with cp.cuda.Device(device_id):
            cp.get_default_memory_pool().set_limit(size=_MEMORY_LIMIT_BYTES)
        with cp.cuda.Device(current_id):
            problem_text = ""
            with suppress(Exception):
                problem_text = _describe_unexpected_result(
                    cp, make_on(cp, device_id, _EXCESSIVE_ELEMENT_COUNT), device_id
                )
            return array_facts, {"description": problem_text, "current_id": cp.cuda.Device().id}


def _describe_unexpected_result(cp: Any, result: Any, device_id: int) -> str:
    """Describe a wrong result of ``make_on``. For an array of `_EXCESSIVE_ELEMENT_COUNT` elements on the
    right device, return an empty string.
    """
    if not isinstance(result, cp.ndarray):
        return "nothing" if result is None else f"a {type(result).__name__}"
    if (result.device.id, result.size) == (device_id, _EXCESSIVE_ELEMENT_COUNT):
        return ""
    return f"{result.size:,} elements on device {result.device.id}"


def _judge_array(
    call_text: str, array_facts: dict[str, Any], current_id: int, device_id: int, n: int
) -> None:
    if array_facts["device_id"] is None:
        raise NotYet(f"{call_text} returns a {array_facts['kind']}. Return the device array.")
    if array_facts["device_id"] != device_id:
        raise NotYet(
            f"{call_text} makes the array on device {array_facts['device_id']}. An array is on the device "
            "that was current when it was made."
        )
    if array_facts["current_id"] != current_id:
        raise NotYet(
            f"{call_text} leaves device {array_facts['current_id']} current. The caller's device must be "
            "current again afterwards. Use a `with` block."
        )
    values = array_facts["values"]
    if n and values.dtype.kind not in "iu":
        raise NotYet(f"{call_text} contains {values.dtype.name}, but the elements must be integers.")
    if array_facts["shape"] != (n,):
        raise NotYet(f"{call_text} has the shape {array_facts['shape']}, but it should be ({n},).")
    expected = np.arange(n - values.size, n)
    wrong_indices = np.nonzero(values != expected)[0]
    if wrong_indices.size:
        first_index = int(wrong_indices[0])
        reason = (
            " A float cannot represent every integer above 16,777,216." if n == _LARGE_ELEMENT_COUNT else ""
        )
        raise NotYet(
            f"{call_text}: element {expected[first_index]:,} is {values[first_index]}, but it should be "
            f"{expected[first_index]:,}.{reason}"
        )


EXERCISES = (
    PythonExercise("01-peak", "Peak rates", judge_peak, level="warm-up"),
    PythonExercise("01-capability", "Repair: at least this capability", judge_capability, kind="repair"),
    PythonExercise("01-limits", "Does this launch fit?", judge_limits),
    PythonExercise("01-select", "On that device", judge_select),
    PythonExercise("01-choose", "Which GPU for this job?", judge_choose, level="stretch"),
)
