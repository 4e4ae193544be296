"""Exercises of notebook 01."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gpulab.session import on_device, table
from gpulab_course.teach.judge import (
    Answer,
    NotYet,
    PythonExercise,
    as_float,
    call,
    is_number,
    parts_of,
    spell,
    spelt,
)
from gpulab_course.teach.judge.python.functions import must_be_a_function
from virtualgpu.records import DeviceInfo, Dim3

_MIB = 1 << 20


def judge_peak(answer: Answer) -> str:
    """``peak(info)``: (TFLOP/s in FP32, GB/s of memory) from counts, clocks and widths."""
    for info in _devices(answer.rng):
        found = call(answer, info, name="peak", shown=f"peak of a {info.name}")
        parts = parts_of(found)
        if parts is None or len(parts) != 2:
            raise NotYet(f"peak of a {info.name} gives {spelt(found)}: return two numbers, TFLOP/s and GB/s.")
        tflops, gbps = _peak(info)
        _same_rate(info, "TFLOP/s", parts[0], tflops, _TFLOPS_LESSONS)
        _same_rate(info, "GB/s", parts[1], gbps, _GBPS_LESSONS)
    return "both rates follow from counts, clocks and widths, for devices that do not exist, too."


def _peak(info: Any) -> tuple[float, float]:
    tflops = info.sm_count * info.fp32_lanes_per_sm * 2 * info.boost_clock_mhz / 1e6
    return tflops, 2 * info.memory_clock_mhz * info.memory_bus_bits / 8 / 1e3


_TFLOPS_LESSONS = {
    0.5: "a fused multiply-add is two operations.",
    1e3: "TFLOP are 10^12 operations; the clock is in MHz.",
    1e6: "TFLOP are 10^12 operations; the clock is in MHz.",
    1e12 / 2**40: "TFLOP are 10^12 operations, not 2^40.",
    1e-3: "TFLOP are 10^12 operations; the clock is in MHz.",
}
_GBPS_LESSONS = {
    0.5: "double data rate moves two bits a wire in each clock.",
    8: "the bus width is in bits; a byte has eight.",
    4: "the bus width is in bits, and data moves twice in each clock.",
    1e3: "GB are 10^9 bytes; the clock is in MHz.",
    1e9 / 2**30: "GB are 10^9 bytes, not 2^30.",
    1e-3: "GB are 10^9 bytes; the clock is in MHz.",
}


def _same_rate(info: DeviceInfo, unit: str, given: Any, right: float, lessons: dict[float, str]) -> None:
    if not is_number(given):
        raise NotYet(f"peak of a {info.name} gives {spelt(given)} for {unit}: return numbers.")
    found = as_float(given)
    if np.isclose(found, right, rtol=1e-3):
        return
    lesson = next(
        (text for factor, text in lessons.items() if np.isclose(found, factor * right, rtol=1e-3)), ""
    )
    if not lesson and found in (info.fp32_tflops, info.memory_bandwidth_gbps):
        lesson = "that is the published rate; compute it from counts, clocks and widths."
    lanes = found / right * info.fp32_lanes_per_sm / 32
    if not lesson and "TFLOP" in unit and 0.5 < lanes < 100 and np.isclose(lanes, round(lanes), rtol=1e-6):
        lesson = "not every SM has as many lanes: info.fp32_lanes_per_sm says how many."
    said = f"peak of a {info.name} gives {found:,.4g} {unit}, it should be {right:,.4g}"
    raise NotYet(f"{said}: {lesson}" if lesson else f"{said}.")


def _devices(rng: np.random.Generator) -> list[DeviceInfo]:
    known = [
        info for info in table() if info.boost_clock_mhz and info.memory_clock_mhz and info.memory_bus_bits
    ]
    # Rates from a table are wrong for these devices, whose published rates are those of another device.
    imagined = [
        replace(
            other,
            name=f"{name} GPU",
            sm_count=int(rng.integers(5, 300)),
            fp32_lanes_per_sm=int(
                rng.choice(
                    [lanes for lanes in (32, 64, 96, 128, 192, 256) if lanes != other.fp32_lanes_per_sm]
                )
            ),
            boost_clock_mhz=int(rng.integers(500, 3000)),
            memory_clock_mhz=int(rng.integers(800, 14_000)),
            memory_bus_bits=int(64 * rng.integers(1, 128)),
        )
        for name, other in zip(("Imagined", "Fancied", "Invented"), rng.permutation(len(known)), strict=False)
        for other in [known[other]]
    ]
    return [*known, *imagined]


_ASKED = ((7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1))


def judge_capability(answer: Answer) -> str:
    """``at_least(text, major, minor)``: whether a capability such as "120" is at least major.minor."""
    known = ["80", "75", "52", "86", "89", "90", "100", "103", "110", "120", "121"]
    other = ["30", "37", "60", "61", "62", "70", "72", "87", "88", "101", "107", "115", "130", "139"]
    drawn = [str(10 * int(answer.rng.integers(3, 26)) + int(answer.rng.integers(10))) for _ in range(8)]
    for text in (*known, *other, *drawn):
        own = divmod(int(text), 10)
        near = [own, (own[0], own[1] + 1), (own[0] + 1, 0), (own[0] - 1, 9), (own[0], max(own[1] - 1, 0))]
        for asked in (*_ASKED, *(pair for pair in near if pair[1] < 10)):
            _judge_pair(answer, text, own, asked)
    return "right from 3.0 to 25.9, and a pair is compared as a pair."


def _judge_pair(answer: Answer, text: str, own: tuple[int, int], asked: tuple[int, int]) -> None:
    found = call(answer, text, *asked, name="at_least")
    if not isinstance(found, bool | np.bool):
        raise NotYet(f"{spell('at_least', (text, *asked))} returns {spelt(found)}; return True or False.")
    if bool(found) == (own >= asked):
        return
    said = f"{spell('at_least', (text, *asked))} returns {found}, but {text} is {own[0]}.{own[1]}"
    if len(text) == 3:
        raise NotYet(f"{said}: the minor version is the last digit, and all before it is the major one.")
    if asked[0] > 9:
        raise NotYet(f"{said}: compare numbers, not texts; as a text, 9 comes after 10.")
    if own == asked:
        raise NotYet(f"{said}: at least includes the version itself.")
    raise NotYet(f"{said}: the minor version counts only where the major ones are equal.")


def judge_limits(answer: Answer) -> str:
    """``first_problem(info, grid, block, shared_bytes)``: the first limit a launch breaks, or "ok"."""
    info = table()[0]
    for grid, block, shared_bytes, wanted, lesson in _launches(info):
        shown = f"first_problem(info, {grid}, {block}, {shared_bytes})"
        found = call(answer, info, grid, block, shared_bytes, name="first_problem", shown=shown)
        if not isinstance(found, str) or found != wanted:
            raise NotYet(f"{shown} returns {spelt(found)}, it should be {wanted!r}: {lesson}")
    _reads_info(answer, info)
    for _ in range(120):
        _judge_launch(answer, *_drawn_launch(answer.rng, info))
    return "it finds every broken limit, on any device."


def _first_problem(info: DeviceInfo, grid: Dim3, block: Dim3, shared_bytes: int) -> str:
    if prod(block) > info.max_threads_per_block:
        return "threads"
    for name, sizes, limits in (("block", block, info.max_block_dim), ("grid", grid, info.max_grid_dim)):
        if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
            return name
    return "shared" if shared_bytes > info.shared_per_block_bytes else "ok"


def _drawn_launch(rng: np.random.Generator, info: DeviceInfo) -> tuple[DeviceInfo, Dim3, Dim3, int]:
    """Draw a device whose limits all differ, and a launch that reaches some limits and exceeds one or two."""

    def three(low: int, high: int) -> Dim3:
        x, y, z = (int(n) for n in rng.integers(low, high, 3))
        return x, y, z

    threads = int(rng.integers(100, 1100))
    other = replace(
        info,
        max_threads_per_block=threads,
        max_block_dim=three(8, threads),
        max_grid_dim=three(100, 90_000),
        shared_per_block_bytes=int(rng.integers(1 << 10, 1 << 17)),
        reserved_shared_per_block_bytes=1024,
    )
    grid = [1, 1, 1]
    block = [1, 1, 1]
    shared = int(rng.integers(0, other.shared_per_block_bytes + 1))
    for part in rng.choice(8, int(rng.integers(1, 4)), replace=False):
        axis = int(part) % 3
        over = int(rng.integers(0, 2))
        if part < 3:
            block[axis] = other.max_block_dim[axis] + over
        elif part < 6:
            grid[axis] = other.max_grid_dim[axis] + over
        elif part == 6:
            shared = other.shared_per_block_bytes + over
        else:
            block = [threads // 4 + over, 4, 1] if rng.random() < 0.5 else [1, 2, threads // 2 + over]
    return other, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), shared


def _judge_launch(answer: Answer, info: DeviceInfo, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
    wanted = _first_problem(info, grid, block, shared_bytes)
    shown = f"first_problem(info, {grid}, {block}, {shared_bytes})"
    found = call(answer, info, grid, block, shared_bytes, name="first_problem", shown=shown)
    if found != wanted:
        raise NotYet(
            f"{shown} returns {spelt(found)}, it should be {wanted!r} on a device with "
            f"max_threads_per_block = {info.max_threads_per_block}, max_block_dim = {info.max_block_dim}, "
            f"max_grid_dim = {info.max_grid_dim}, shared_per_block_bytes = {info.shared_per_block_bytes}."
        )


def _reads_info(answer: Answer, info: DeviceInfo) -> None:
    """Check on several devices that the function reads its limits from `info`."""
    one = (1, 1, 1)
    narrow = replace(info, max_block_dim=(256, 256, 32))
    flat = replace(info, max_grid_dim=(1 << 20, 1000, 1000))
    small = replace(info, max_threads_per_block=512, shared_per_block_bytes=16 * 1024)
    large = replace(
        info, max_threads_per_block=2048, max_block_dim=(2048, 2048, 64), shared_per_block_bytes=_MIB
    )
    for other, grid, block, shared, wanted, field in (
        (small, one, (1024, 1, 1), 0, "threads", "max_threads_per_block"),
        (small, one, (32, 1, 1), 32 * 1024, "shared", "shared_per_block_bytes"),
        (narrow, one, (257, 1, 1), 0, "block", "max_block_dim"),
        (narrow, one, (1, 257, 1), 0, "block", "max_block_dim"),
        (narrow, one, (1, 1, 33), 0, "block", "max_block_dim"),
        (flat, ((1 << 20) + 1, 1, 1), (32, 1, 1), 0, "grid", "max_grid_dim"),
        (flat, (1, 1, 1001), (32, 1, 1), 0, "grid", "max_grid_dim"),
        (large, one, (2048, 1, 1), 512 * 1024, "ok", "max_threads_per_block"),
    ):
        found = call(
            answer, other, grid, block, shared, name="first_problem", shown="first_problem of another device"
        )
        if found != wanted:
            raise NotYet(
                f"it does not read info.{field}: for another device and grid {grid}, block {block}, "
                f"{shared:,} bytes it says {spelt(found)} instead of {wanted!r}."
            )


def _launches(info: DeviceInfo) -> tuple[tuple[Dim3, Dim3, int, str, str], ...]:
    most = info.max_threads_per_block
    wide, high, deep = info.max_block_dim
    shared = info.shared_per_block_bytes
    grid_y = info.max_grid_dim[1]
    one = (1, 1, 1)
    warp = (32, 1, 1)
    return (
        (one, warp, 0, "ok", "a small launch breaks no limit."),
        (one, (most, 1, 1), shared, "ok", "a limit may be reached, not passed: compare with >."),
        (one, (most + 1, 1, 1), 0, "threads", f"a block has at most {most:,} threads."),
        (one, (wide // 16, 32, 1), 0, "threads", "x × y × z counts, not each alone."),
        (one, (1 << 16, 1 << 16, 1), 0, "threads", "x × y × z counts, however large that is."),
        (one, (8, 8, deep + 1), 0, "threads", "the number of threads comes first in the order."),
        (one, (1, 1, deep + 1), 0, "block", f"a block is at most {deep} deep in z."),
        (one, (1, 1, deep), 0, "ok", f"a block may be {deep} deep."),
        (one, (8, high // 16, 1), 0, "ok", f"{8 * (high // 16)} threads fit."),
        ((1, grid_y, 1), warp, 0, "ok", f"a grid may be {grid_y:,} high."),
        ((1, grid_y + 1, 1), warp, 0, "grid", f"a grid is at most {grid_y:,} high; put the long axis in x."),
        ((1, 1, grid_y + 1), warp, 0, "grid", f"a grid is at most {grid_y:,} deep."),
        ((grid_y + 1, 1, 1), warp, 0, "ok", "x has a limit of its own, far above y's."),
        ((grid_y + 1, grid_y, 1), warp, 0, "ok", "each axis of a grid has a limit, and their product none."),
        (info.max_grid_dim, warp, 0, "ok", "each axis of a grid may reach its limit, all at once, too."),
        ((1, grid_y + 1, 1), (1, 1, deep + 1), 0, "block", "the block comes before the grid in the order."),
        ((1, grid_y + 1, 1), warp, shared + 1, "grid", "the grid comes before shared memory in the order."),
        (one, warp, shared + 1, "shared", f"{shared:,} bytes of shared memory are the default limit."),
    )


Job = tuple[list[DeviceInfo], float, float, float]


def judge_choose(answer: Answer) -> str:
    """``choose(gpus, memory_bytes, moved_bytes, flop)``: the fastest GPU that holds the job, or None."""
    rng = answer.rng
    gpus = [info for info in table() if info.fp32_tflops and info.memory_bandwidth_gbps]
    for memory, moved, flop, why in (
        (1e9, 1e12, 1e9, "it moves much and computes little, so bandwidth decides."),
        (1e9, 1e9, 1e15, "it computes much and moves little, so FP32 arithmetic decides."),
        (60e9, 60e9, 120e9, "a GPU whose memory is too small cannot run it at all."),
        (130e9, 1e12, 1e13, "a GPU whose memory is too small cannot run it at all."),
        (1e13, 1e12, 1e12, "no GPU holds it: return None."),
        (15e9, 5e11, 1.7e13, "the slower of the two, moving and computing, takes the time."),
    ):
        _judge_choice(answer, (gpus, memory, moved, flop), f": {why}")
    exact = replace(gpus[0], memory_bytes=16 << 30)
    for gpus_there, memory in (([exact], 16 << 30), ([exact], (16 << 30) + 1), ([], 1_000_000_000)):
        _judge_choice(answer, (gpus_there, float(memory), 1e9, 1e9))
    for job, against in _telling(rng, gpus):
        _judge_choice(answer, job, against=against)
    return "it chooses by what the job needs: memory first, then the slower of moving and computing."


def _seconds(gpu: DeviceInfo, moved: float, flop: float) -> tuple[float, float]:
    return moved / ((gpu.memory_bandwidth_gbps or 0.0) * 1e9), flop / ((gpu.fp32_tflops or 0.0) * 1e12)


# What a mistake would take for the time, or for holding the job; and what it should learn.
_MISTAKES: tuple[tuple[Callable[[float, float], float], str], ...] = (
    (
        lambda moving, computing: moving + computing,
        "moving and computing overlap: the slower takes the time.",
    ),
    (min, "the slower of the two, moving and computing, takes the time."),
    (lambda moving, computing: moving, "computing may take longer than moving."),
    (lambda moving, computing: computing, "moving may take longer than computing."),
    (lambda moving, computing: moving * computing, "the slower of the two takes the time."),
    (lambda moving, computing: max(moving * 1e9 / 2**30, computing), "GB/s are 10^9 bytes a second."),
    (lambda moving, computing: max(moving, computing * 1e12 / 2**40), "TFLOP/s are 10^12 operations."),
)


def _telling(rng: np.random.Generator, gpus: list[DeviceInfo]) -> list[tuple[Job, int]]:
    """Draw jobs that distinguish the right answer from each mistake, on existing and on imagined GPUs."""
    found: list[tuple[Job, int]] = []
    for number, (wrong, _) in enumerate(_MISTAKES):
        found += [(job, number) for job in _jobs_against(rng, gpus, wrong, imagined=number % 2 == 1)]
    for number in range(24):  # memory decides
        chosen, memory, moved, flop = _job(rng, gpus, imagined=bool(rng.integers(2)))
        if number % 2:  # just more than the fastest has, or just as much
            fastest = min(chosen, key=lambda gpu: max(_seconds(gpu, moved, flop)))
            memory = float(fastest.memory_bytes + int(rng.choice([0, 1, 1 << 20])))
        found.append(((chosen, memory, moved, flop), 0))
    return found


def _jobs_against(
    rng: np.random.Generator, gpus: list[DeviceInfo], wrong: Callable[[float, float], float], imagined: bool
) -> list[Job]:
    jobs: list[Job] = []
    for _ in range(2000):
        job = _job(rng, gpus, imagined)
        holding = [gpu for gpu in job[0] if gpu.memory_bytes >= job[1]]
        times = [_seconds(gpu, *job[2:]) for gpu in holding]
        if len(holding) > 1 and wrong(*min(times, key=lambda t: wrong(*t))) != wrong(*min(times, key=max)):
            jobs.append(job)
            if len(jobs) == 4:
                break
    return jobs


def _job(rng: np.random.Generator, gpus: list[DeviceInfo], imagined: bool) -> Job:
    chosen = [gpus[k] for k in rng.permutation(len(gpus))[: int(rng.integers(2, 7))]]
    if imagined:
        chosen = [
            replace(
                gpu,
                name=f"GPU {letter}",
                memory_bytes=int(rng.integers(4, 200)) << 30,
                memory_bandwidth_gbps=float(rng.integers(100, 9000)),
                fp32_tflops=float(rng.integers(2, 150)),
            )
            for letter, gpu in zip("ABCDEF", chosen, strict=False)
        ]
    moved = float(10 ** rng.uniform(10, 14))
    return chosen, float(10 ** rng.uniform(9, 11.3)), moved, moved * float(10 ** rng.uniform(0.5, 2.5))


def _why(job: Job, found: str | None, against: int) -> str:
    """Return what is wrong with a choice, if a known mistake leads to the same choice.

    The mistake that a job was made to reveal is tried first, then the others.
    """
    gpus, memory, moved, flop = job
    fitting = [info for info in gpus if info.memory_bytes >= memory]
    if not gpus:
        return ": there is no GPU: return None."
    if not fitting:
        return ": a GPU whose memory is too small cannot run it at all."
    if found is None and any(info.memory_bytes == memory for info in gpus):
        return ": a job may fill the memory to the last byte."
    fastest = min(gpus, key=lambda info: max(_seconds(info, moved, flop)))
    if found is None and fastest not in fitting:
        return ": a GPU whose memory is too small cannot run it at all; choose among the others."
    if found not in [info.name for info in fitting]:
        return ": a GPU whose memory is too small cannot run it at all." if found is not None else "."
    for wrong, lesson in (_MISTAKES[against], *_MISTAKES):
        times = {info.name: wrong(*_seconds(info, moved, flop)) for info in fitting}
        if min(times, key=times.__getitem__) == found:
            return f": {lesson}"
    return "."


def _judge_choice(answer: Answer, job: Job, why: str = "", against: int = 0) -> None:
    gpus, memory, moved, flop = job
    fitting = [info for info in gpus if info.memory_bytes >= memory]
    best = min((max(_seconds(info, moved, flop)) for info in fitting), default=0.0)
    right = [info.name for info in fitting if max(_seconds(info, moved, flop)) <= 1.001 * best]
    shown = f"choose(gpus, {memory:.3g}, {moved:.3g}, {flop:.3g})"
    must_be_a_function("choose", answer.is_function, answer.kind)
    found = answer.calling(shown, gpus, memory, moved, flop)
    if found is not None and not isinstance(found, str):
        raise NotYet(f"{shown} gives {spelt(found)}: return the `.name` of a GPU, or None.")
    if found in right or (found is None and not right):
        return
    wanted = repr(right[0]) if right else "None"
    named = f" among {', '.join(info.name for info in gpus)}" if 0 < len(gpus) < 5 else ""
    raise NotYet(
        f"{shown}{named} gives {spelt(found)}, it should be {wanted}{why or _why(job, found, against)}"
    )


def judge_select(answer: Answer) -> str:
    """``make_on(cp, device_id, n)``: 0, 1, ... n - 1 on a device, without changing the current one."""
    must_be_a_function("make_on", answer.is_function, answer.kind)
    sizes = [5, 1, 300, 70_000, int(answer.rng.integers(129, 60_000)), 0, _MANY]
    instead = ""
    for current, device_id, n in zip((0, 0, 1, 2, 1, 2, 1), (1, 0, 0, 1, 2, 2, 0), sizes, strict=True):
        shown = f"with device {current} current, make_on(cp, {device_id}, {n:,})"
        made, too_large = answer.ask(_made, current, device_id, n, shown=shown)
        _judge_made(shown, made, current, device_id, n)
        if too_large["now"] != current:
            raise NotYet(
                f"make_on(cp, {device_id}, {_TOO_MANY:,}) runs out of memory and leaves device "
                f"{too_large['now']} current instead of {current}: let a `with` block give the device back."
            )
        if too_large["given"]:
            instead = (
                f"device {device_id} has no memory for make_on(cp, {device_id}, {_TOO_MANY:,}), and yet it "
                f"returns {too_large['given']}: let the exception through."
            )
    if instead:
        raise NotYet(instead)
    return "the array is where it should be, and the caller's device comes back, after an error, too."


_MANY = (1 << 24) + 4  # more than a float counts
_TOO_MANY = 1 << 20
_LITTLE_BYTES = 1 << 20
_SHOWN = 70_000  # so many of the last elements are looked at


def _made(make_on: Any, current: int, device_id: int, n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the answer in its own process: one call that succeeds, and one without enough memory."""
    with on_device("virtual:T4", count=3) as cp:
        for other in ((device_id + 1) % 3, device_id) if n < _MANY else ():
            with cp.cuda.Device(current):
                earlier = make_on(cp, other, n)
            if isinstance(earlier, cp.ndarray):
                with earlier.device:
                    earlier.fill(9)  # it is the caller's
        with cp.cuda.Device(current):
            result = make_on(cp, device_id, n)
            now = cp.cuda.Device().id
        facts: dict[str, Any] = {"now": now, "kind": type(result).__name__, "at": None}
        if isinstance(result, cp.ndarray):
            holds = cp.asnumpy(result)
            facts |= {"at": result.device.id, "shape": holds.shape, "holds": holds.ravel()[-_SHOWN:]}
        elif result is None or result is ...:
            raise NotYet(
                f"make_on(cp, {device_id}, {n}) returns nothing; replace the TODO and end with a return."
            )
        with cp.cuda.Device(device_id):
            cp.get_default_memory_pool().set_limit(size=_LITTLE_BYTES)
        with cp.cuda.Device(current):
            given = ""
            with suppress(Exception):
                given = _instead(cp, make_on(cp, device_id, _TOO_MANY), device_id)
            return facts, {"given": given, "now": cp.cuda.Device().id}


def _instead(cp: Any, result: Any, device_id: int) -> str:
    """Describe a result that is not an array on the device with more elements than fit into its memory."""
    if not isinstance(result, cp.ndarray):
        return "nothing" if result is None else f"a {type(result).__name__}"
    if (result.device.id, result.size) == (device_id, _TOO_MANY):
        return ""
    return f"{result.size:,} elements on device {result.device.id}"


def _judge_made(shown: str, made: dict[str, Any], current: int, device_id: int, n: int) -> None:
    if made["at"] is None:
        raise NotYet(f"{shown} gives a {made['kind']}; return the device array.")
    if made["at"] != device_id:
        raise NotYet(
            f"{shown} makes the array on device {made['at']}: an array lies on the device that was current "
            "when it was made."
        )
    if made["now"] != current:
        raise NotYet(
            f"{shown} leaves device {made['now']} current: the caller's device must come back, as a `with` "
            "block sees to."
        )
    holds = made["holds"]
    if n and holds.dtype.kind not in "iu":
        raise NotYet(f"{shown} holds {holds.dtype.name}: integers are asked for.")
    if made["shape"] != (n,):
        raise NotYet(f"{shown} has the shape {made['shape']}, it should be ({n},).")
    right = np.arange(n - holds.size, n)
    wrong = np.nonzero(holds != right)[0]
    if wrong.size:
        first = int(wrong[0])
        why = " A float counts no further than 16,777,216." if n == _MANY else ""
        raise NotYet(
            f"{shown}: element {right[first]:,} is {holds[first]}, it should be {right[first]:,}.{why}"
        )


EXERCISES = (
    PythonExercise("01-peak", "Peak rates", judge_peak, level="warm-up"),
    PythonExercise("01-capability", "Repair: at least this capability", judge_capability, kind="repair"),
    PythonExercise("01-limits", "Does this launch fit?", judge_limits),
    PythonExercise("01-select", "On that device", judge_select),
    PythonExercise("01-choose", "Which GPU for this job?", judge_choose, level="stretch"),
)
