"""Exercises of notebook 01."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from gpulab.session import on_device, table
from gpulab.teach.judge import NotYet, PythonExercise, call, spell
from virtualgpu.records import DeviceInfo, Dim3

_MIB = 1 << 20


def judge_peak(answer: Any) -> str:
    """``peak(info)``: (TFLOP/s in FP32, GB/s of memory) from counts, clocks and widths."""
    for info in _devices():
        found = call(answer, info, name="peak", shown=f"peak of a {info.name}")
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise NotYet(f"peak of a {info.name} gives {found!r}: return two numbers, TFLOP/s and GB/s.")
        tflops, gbps = _peak(info)
        _same_rate(info, "TFLOP/s", found[0], tflops, _TFLOPS_LESSONS)
        _same_rate(info, "GB/s", found[1], gbps, _GBPS_LESSONS)
    return "both rates follow from counts, clocks and widths, for devices that do not exist, too."


def _peak(info: Any) -> tuple[float, float]:
    tflops = info.sm_count * info.fp32_lanes_per_sm * 2 * info.boost_clock_mhz / 1e6
    return tflops, 2 * info.memory_clock_mhz * info.memory_bus_bits / 8 / 1e3


_TFLOPS_LESSONS = {
    0.5: "a fused multiply-add is two operations.",
    1e3: "TFLOP are 10^12 operations; the clock is in MHz.",
    1e6: "TFLOP are 10^12 operations; the clock is in MHz.",
    1e-3: "TFLOP are 10^12 operations; the clock is in MHz.",
}
_GBPS_LESSONS = {
    0.5: "double data rate moves two bits a wire in each clock.",
    8: "the bus width is in bits; a byte has eight.",
    4: "the bus width is in bits, and data moves twice in each clock.",
    1e3: "GB are 10^9 bytes; the clock is in MHz.",
    1e-3: "GB are 10^9 bytes; the clock is in MHz.",
}


def _same_rate(info: DeviceInfo, unit: str, found: Any, right: float, lessons: dict[float, str]) -> None:
    if isinstance(found, bool) or not isinstance(found, int | float | np.number):
        raise NotYet(f"peak of a {info.name} gives {found!r} for {unit}: return numbers.")
    if np.isclose(found, right, rtol=1e-3):
        return
    lesson = next(
        (text for factor, text in lessons.items() if np.isclose(found, factor * right, rtol=1e-3)), ""
    )
    if not lesson and found in (info.fp32_tflops, info.memory_bandwidth_gbps):
        lesson = "that is the published rate; compute it from counts, clocks and widths."
    said = f"peak of a {info.name} gives {float(found):,.4g} {unit}, it should be {right:,.4g}"
    raise NotYet(f"{said}: {lesson}" if lesson else f"{said}.")


def _devices() -> list[DeviceInfo]:
    known = [
        info for info in table() if info.boost_clock_mhz and info.memory_clock_mhz and info.memory_bus_bits
    ]
    # What is only looked up in a table is wrong for this one, whose published rates are another's.
    imagined = replace(
        known[0],
        name="Imagined GPU",
        sm_count=17,
        boost_clock_mhz=1000,
        memory_clock_mhz=2000,
        memory_bus_bits=192,
    )
    return [*known, imagined]


def judge_capability(answer: Any) -> str:
    """``at_least(text, major, minor)``: whether a capability such as "120" is at least major.minor."""
    for text in ("80", "75", "52", "86", "89", "90", "100", "103", "110", "120", "121"):
        own = divmod(int(text), 10)
        for asked in ((7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1), own):
            found = call(answer, text, *asked, name="at_least")
            if not isinstance(found, bool | np.bool):
                raise NotYet(f"{spell('at_least', (text, *asked))} returns {found!r}; return True or False.")
            if bool(found) == (own >= asked):
                continue
            said = f"{spell('at_least', (text, *asked))} returns {found}, but {text} is {own[0]}.{own[1]}"
            if len(text) == 3:
                raise NotYet(
                    f"{said}: the minor version is the last digit, and all before it is the major one."
                )
            if asked[0] > 9:
                raise NotYet(f"{said}: compare numbers, not texts; as a text, 9 comes after 10.")
            if own == asked:
                raise NotYet(f"{said}: at least includes the version itself.")
            raise NotYet(f"{said}: the minor version counts only where the major ones are equal.")
    return "right from 5.2 to 12.1, and a pair is compared as a pair."


def judge_limits(answer: Any) -> str:
    """``first_problem(info, grid, block, shared_bytes)``: the first limit a launch breaks, or "ok"."""
    info = table()[0]
    for grid, block, shared_bytes, wanted, lesson in _launches(info):
        shown = f"first_problem(info, {grid}, {block}, {shared_bytes})"
        found = call(answer, info, grid, block, shared_bytes, name="first_problem", shown=shown)
        if not isinstance(found, str) or found != wanted:
            raise NotYet(f"{shown} returns {found!r}, it should be {wanted!r}: {lesson}")
    _reads_info(answer, info)
    return "it finds every broken limit, on any device."


def _reads_info(answer: Any, info: DeviceInfo) -> None:
    """A function with numbers typed in passes on one device only."""
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
                f"{shared:,} bytes it says {found!r} instead of {wanted!r}."
            )


def _launches(info: DeviceInfo) -> tuple[tuple[Dim3, Dim3, int, str, str], ...]:
    most = info.max_threads_per_block
    wide, high, deep = info.max_block_dim
    shared = info.shared_per_block_bytes
    grid_y = info.max_grid_dim[1]
    one, warp = (1, 1, 1), (32, 1, 1)
    return (
        (one, warp, 0, "ok", "a small launch breaks no limit."),
        (one, (most, 1, 1), shared, "ok", "a limit may be reached, not passed: compare with >."),
        (one, (most + 1, 1, 1), 0, "threads", f"a block has at most {most:,} threads."),
        (one, (wide // 16, 32, 1), 0, "threads", "x × y × z counts, not each alone."),
        (one, (8, 8, deep + 1), 0, "threads", "the number of threads comes first in the order."),
        (one, (1, 1, deep + 1), 0, "block", f"a block is at most {deep} deep in z."),
        (one, (1, 1, deep), 0, "ok", f"a block may be {deep} deep."),
        (one, (8, high // 16, 1), 0, "ok", f"{8 * (high // 16)} threads fit."),
        ((1, grid_y, 1), warp, 0, "ok", f"a grid may be {grid_y:,} high."),
        ((1, grid_y + 1, 1), warp, 0, "grid", f"a grid is at most {grid_y:,} high; put the long axis in x."),
        ((1, 1, grid_y + 1), warp, 0, "grid", f"a grid is at most {grid_y:,} deep."),
        ((grid_y + 1, 1, 1), warp, 0, "ok", "x has a limit of its own, far above y's."),
        ((1, grid_y + 1, 1), (1, 1, deep + 1), 0, "block", "the block comes before the grid in the order."),
        ((1, grid_y + 1, 1), warp, shared + 1, "grid", "the grid comes before shared memory in the order."),
        (one, warp, shared + 1, "shared", f"{shared:,} bytes of shared memory are the default limit."),
    )


def judge_choose(answer: Any) -> str:
    """``choose(gpus, memory_bytes, moved_bytes, flop)``: the fastest GPU that holds the job, or None."""
    rng = np.random.default_rng(1)
    gpus = [info for info in table() if info.fp32_tflops]
    jobs = [
        (1e9, 1e12, 1e9, "it moves much and computes little, so bandwidth decides."),
        (1e9, 1e9, 1e15, "it computes much and moves little, so FP32 arithmetic decides."),
        (60e9, 60e9, 120e9, "a GPU whose memory is too small cannot run it at all."),
        (130e9, 1e12, 1e13, "a GPU whose memory is too small cannot run it at all."),
        (1e13, 1e12, 1e12, "no GPU holds it: return None."),
        (15e9, 5e11, 1.7e13, "the slower of the two, moving and computing, takes the time."),
    ]
    for number in range(40):
        named = jobs[number] if number < len(jobs) else None
        memory, moved, flop = (
            named[:3] if named else (float(10 ** rng.uniform(9, 11.3)), *(10 ** rng.uniform(10, 14, 2)))
        )
        chosen = gpus if named else [gpus[k] for k in rng.permutation(len(gpus))[: int(rng.integers(1, 7))]]
        _judge_choice(answer, chosen, float(memory), float(moved), float(flop), named[3] if named else "")
    exact = replace(gpus[0], memory_bytes=16 << 30)
    _judge_choice(answer, [exact], float(16 << 30), 1e9, 1e9, "a job may fill the memory to the last byte.")
    return "it chooses by what the job needs: memory first, then the slower of moving and computing."


def _judge_choice(
    answer: Any, gpus: list[DeviceInfo], memory: float, moved: float, flop: float, why: str
) -> None:
    def seconds(info: DeviceInfo) -> float:
        gbps, tflops = info.memory_bandwidth_gbps or 0.0, info.fp32_tflops or 0.0
        return max(moved / (gbps * 1e9), flop / (tflops * 1e12))

    fitting = [info for info in gpus if info.memory_bytes >= memory]
    best = min(map(seconds, fitting), default=None)
    right = [info.name for info in fitting if seconds(info) <= 1.001 * (best or 0)]
    shown = f"choose(gpus, {memory:.3g}, {moved:.3g}, {flop:.3g})"
    try:
        found = answer(gpus, memory, moved, flop)
    except Exception as error:
        raise NotYet(f"{shown} raised {type(error).__name__}: {error}") from None
    if found is not None and not isinstance(found, str):
        raise NotYet(f"{shown} gives a {type(found).__name__}: return the `.name` of a GPU, or None.")
    if found in right or (found is None and not right):
        return
    wanted = repr(right[0]) if right else "None"
    named = f" among {', '.join(info.name for info in gpus)}" if len(gpus) < 5 else ""
    raise NotYet(f"{shown}{named} gives {found!r}, it should be {wanted}{f': {why}' if why else '.'}")


def judge_select(answer: Any) -> str:
    """``make_on(cp, device_id, n)``: 0, 1, ... n - 1 on a device, without changing the current one."""
    with on_device("virtual:T4", count=3) as cp:
        for current, device_id in ((0, 1), (0, 0), (1, 0), (2, 1), (1, 2)):
            with cp.cuda.Device(current):
                shown = f"with device {current} current, make_on(cp, {device_id}, 5)"
                made = call(answer, cp, device_id, 5, name="make_on", shown=shown)
                now = cp.cuda.Device().id
                if not isinstance(made, cp.ndarray):
                    raise NotYet(f"{shown} gives a {type(made).__name__}; return the device array.")
                if made.device.id != device_id:
                    raise NotYet(
                        f"{shown} makes the array on device {made.device.id}: an array lies on the "
                        "device that was current when it was made."
                    )
                if now != current:
                    cp.cuda.Device(current).use()
                    raise NotYet(
                        f"{shown} leaves device {now} current: the caller's device must come back, as a "
                        "`with` block sees to."
                    )
                if not np.array_equal(cp.asnumpy(made), np.arange(5)):
                    raise NotYet(f"{shown} holds {cp.asnumpy(made).tolist()}, it should be [0, 1, 2, 3, 4].")
            _comes_back_after_an_error(answer, cp, current, device_id)
    return "the array is where it should be, and the caller's device comes back, after an error, too."


def _comes_back_after_an_error(answer: Any, cp: Any, current: int, device_id: int) -> None:
    with cp.cuda.Device(current):
        with suppress(Exception):
            answer(cp, device_id, 1 << 50)
        now = cp.cuda.Device().id
    if now != current:
        raise NotYet(
            f"make_on(cp, {device_id}, 2**50) runs out of memory and leaves device {now} current "
            f"instead of {current}: let a `with` block give the device back."
        )


EXERCISES = (
    PythonExercise("01-peak", "Peak rates", judge_peak, level="warm-up"),
    PythonExercise("01-capability", "Repair: at least this capability", judge_capability, kind="repair"),
    PythonExercise("01-limits", "Does this launch fit?", judge_limits),
    PythonExercise("01-select", "On that device", judge_select),
    PythonExercise("01-choose", "Which GPU for this job?", judge_choose, level="stretch"),
)
