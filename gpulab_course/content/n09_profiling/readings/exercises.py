"""09-roofline, a dot under the roof by hand, and 09-throttled, what slowed a GPU down, from samples."""

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
    parts_of,
    spelt,
)

# 09-roofline

_FORMATS = {"float64": 34e3, "float32": 67e3, "float16": 134e3}
_CLOSE = 1e-6
_FIELDS = ("operations a byte", "GFLOP/s", "share of the roof")


def dot_of(
    launches: list[dict[str, float]],
    form: str,
    device: dict[str, Any],
    *,
    fma: float = 2,
    at: int = 0,
    time_at: int | None = None,
    moved: str = "dram_bytes",
    peak: str = "",
) -> tuple[float, float, float]:
    """Return operations per byte, GFLOP/s and the share of the ceiling; a keyword makes a known mistake."""
    run = launches[at]
    timed = launches[at if time_at is None else time_at]
    operations = fma * run["fma"] + run["add"] + run["mul"]
    rate = operations / timed["time_ns"]
    bytes_ = run[moved]
    intensity = operations / bytes_ if bytes_ else math.inf
    roof = min(device["gflops"][peak or form], intensity * device["gbps"])
    return intensity, rate, rate / roof


_LESSONS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"fma": 1}, "a fused multiply-add is two operations."),
    ({"moved": "requested_bytes"}, "what lanes ask for is not what moves: caches serve a part."),
    ({"moved": "l2_bytes"}, "the bytes that left L2 for the SMs are not those that memory moved."),
    ({"at": 1}, "the second launch found its data in L2; the program runs the first one."),
    ({"moved": "dram_bytes", "time_at": 1}, "bytes and time belong to the same launch, the first one."),
    ({"peak": "float32"}, "the roof is the peak of the format in which the kernel computes."),
    ({"peak": "float16"}, "the roof is the peak of the format in which the kernel computes."),
    ({"peak": "float64"}, "the roof is the peak of the format in which the kernel computes."),
)


def judge_roofline(answer: Answer) -> str:
    """``dot(launches, form, device)``: operations a byte, GFLOP/s and the share of the roof."""
    for at in range(16):
        launches, form, device = _launches(answer.rng, at)
        fma, moved = (launches[0][name] for name in ("fma", "dram_bytes"))
        shown = f"dot of a {form} kernel with {fma:,} fma and {moved:,} dram_bytes"
        found = call(answer, launches, form, device, name="dot", shown=shown)
        parts = parts_of(found)
        if parts is None or len(parts) != len(_FIELDS) or not all(map(is_number, parts)):
            raise NotYet(f"{shown} is {spelt(found)}: return three numbers, {', '.join(_FIELDS)}.")
        given = tuple(map(as_float, parts))
        right = dot_of(launches, form, device)
        for field, mine, wanted in zip(_FIELDS, given, right, strict=True):
            if not _close(mine, wanted):
                lesson = _lesson(given, launches, form, device)
                raise NotYet(f"{shown}: {mine:,.4g} {field}, it should be {wanted:,.4g}{lesson or '.'}")
    return "the dot stands where the counters put it: moved bytes, FMA as two, the format's own roof."


def _close(mine: float, wanted: float) -> bool:
    return mine == wanted or bool(np.isclose(mine, wanted, rtol=_CLOSE, atol=0))


def _lesson(
    given: tuple[float, ...], launches: list[dict[str, float]], form: str, device: dict[str, Any]
) -> str:
    """Return the feedback for a known mistake that leads to all three numbers."""
    intensity, rate, share = dot_of(launches, form, device)
    of_bandwidth = launches[0]["dram_bytes"] / launches[0]["time_ns"] / device["gbps"]
    right_so_far = _close(given[0], intensity) and _close(given[1], rate)
    said = ": where arithmetic is the roof, the share of the bandwidth says nothing"
    for mistake, lesson in _LESSONS:
        if all(map(_close, given, dot_of(launches, form, device, **mistake))):
            # Below another format's peak, the roof is the slope: both mistakes have the same numbers.
            both = right_so_far and _close(given[2], of_bandwidth)
            return f"{said}; {lesson}" if both else f": {lesson}"
    if right_so_far:
        if _close(given[2], rate / device["gflops"][form]):
            return ": under the slope the roof is intensity times bandwidth, not the peak."
        if _close(given[2], 100 * share):
            return ": a share is 1 at the roof, not 100."
        if _close(given[2], of_bandwidth):
            return f"{said}."
    if _close(given[1], 1e9 * rate) or _close(given[1], rate / 1e3):
        return ": operations in a nanosecond are GFLOP/s."
    return ""


def _launches(rng: np.random.Generator, at: int) -> tuple[list[dict[str, float]], str, dict[str, Any]]:
    """A kernel's two launches in a row; under slope and flat part in turns, once without DRAM."""
    form = list(_FORMATS)[at % 3]
    scale = float(rng.uniform(0.1, 2.0))
    device: dict[str, Any] = {
        "gbps": round(float(rng.uniform(200, 8000)), 1),
        "gflops": {
            name: round(scale * peak * float(rng.uniform(0.5, 1.5)), 1) for name, peak in _FORMATS.items()
        },
    }
    knee = device["gflops"][form] / device["gbps"]
    intensity = knee * float(rng.uniform(0.02, 0.6) if at % 2 else rng.uniform(2, 30))
    dram = int(rng.integers(1 << 20, 1 << 28))
    operations = intensity * dram
    fma = int(0.4 * operations)
    add = int(0.15 * operations) + 1
    mul = int(0.05 * operations) + 1
    if at == 5:
        dram = 0  # everything was in L2
    roof = min(device["gflops"][form], intensity * device["gbps"])
    time_ns = int((2 * fma + add + mul) / roof / float(rng.uniform(0.05, 0.95))) + 1
    first: dict[str, float] = {
        "fma": fma,
        "add": add,
        "mul": mul,
        "requested_bytes": 7 * dram + 4096,
        "l2_bytes": 2 * dram + 2048,
        "dram_bytes": dram,
        "time_ns": time_ns,
    }
    again = first | {"dram_bytes": dram // 9, "time_ns": int(0.7 * time_ns) + 1}
    return [first, again], form, device


ROOFLINE = PythonExercise("09-roofline", "A dot under the roof, by hand", judge_roofline, level="core")


# 09-throttled

POWER = 0x04 | 0x80  # software power cap, power brake
HEAT = 0x20 | 0x40  # software and hardware thermal slowdown
LEAST = 0.1  # of the busy time
_IDLE = 0x01
_OTHER = (0x02, 0x10, 0x100)
CAUSES = ("no", "power", "heat")
Samples = list[dict[str, float]]


def held_shares(samples: Samples) -> tuple[float, float]:
    """Shares of the busy time in which power and heat held the clocks; each sample lasts until the next."""
    busy = power = heat = 0.0
    for one, following in pairwise(samples):
        lasts_s = following["time_s"] - one["time_s"]
        if one["utilization"] > 0:
            busy += lasts_s
            power += lasts_s * bool(int(one["clock_reasons"]) & POWER)
            heat += lasts_s * bool(int(one["clock_reasons"]) & HEAT)
    return (power / busy, heat / busy) if busy else (0.0, 0.0)


def cause_of(samples: Samples) -> tuple[str, float]:
    """Return the right answer: the cause, and its share of the busy time."""
    power, heat = held_shares(samples)
    if max(power, heat) <= LEAST:
        return "no", 0.0
    return ("power", power) if power > heat else ("heat", heat)


def judge_throttled(answer: Answer) -> str:
    """``throttled(samples)``: ("no", "power" or "heat", share of the busy time that it held the clocks)."""
    for what, samples, lesson in _sessions(answer.rng):
        shown = f"throttled of {what}"
        found = call(answer, samples, name="throttled", shown=shown)
        parts = parts_of(found)
        if parts is None or len(parts) != 2 or str(parts[0]) not in CAUSES or not is_number(parts[1]):
            raise NotYet(f'{shown} is {spelt(found)}: return a cause, "no", "power" or "heat", and a share.')
        cause, share = cause_of(samples)
        if str(parts[0]) != cause:
            raise NotYet(f"{shown} is {parts[0]!s}, it should be {cause}: {lesson}")
        given = as_float(parts[1])
        if not np.isclose(given, share, rtol=0, atol=1e-9):
            said = f"{shown} is {cause} for {given:.4f}, it should be {share:.4f}"
            raise NotYet(f"{said}{_of_share(given, samples)}")
    return "idle clocks, bursts, power and heat are told apart, by time and not by count."


def _of_share(given: float, samples: Samples) -> str:
    """Return the feedback for a share that a known mistake leads to."""
    cause, _ = cause_of(samples)
    mask = POWER if cause == "power" else HEAT
    busy = [one for one in samples[:-1] if one["utilization"] > 0]
    mine = [one for one in busy if int(one["clock_reasons"]) & mask]
    if busy and np.isclose(given, len(mine) / len(busy), atol=1e-9):
        return ": samples lie unevenly; each counts for the time until the next one."
    if np.isclose(given, len(mine) / (len(samples) - 1), atol=1e-9):
        return ": samples lie unevenly, and only those of the busy time count."
    whole = samples[-1]["time_s"] - samples[0]["time_s"]
    power, heat = held_shares(samples)
    busy_s = sum(b["time_s"] - a["time_s"] for a, b in pairwise(samples) if a["utilization"] > 0)
    if whole and np.isclose(given, (power if cause == "power" else heat) * busy_s / whole, atol=1e-9):
        return ": it is a share of the busy time, not of the whole."
    if np.isclose(given, 100 * (power if cause == "power" else heat), atol=1e-7):
        return ": a share is at most 1."
    before = sum(b["time_s"] - a["time_s"] for a, b in pairwise(samples) if b["utilization"] > 0)
    held = sum(
        b["time_s"] - a["time_s"]
        for a, b in pairwise(samples)
        if b["utilization"] > 0 and int(b["clock_reasons"]) & mask
    )
    if before and np.isclose(given, held / before, atol=1e-9):
        return ": each sample holds until the next one, not since the one before."
    return "." if cause != "no" else ': of "no" the share is 0.'


def _sessions(rng: np.random.Generator) -> list[tuple[str, Samples, str]]:
    """Sessions with a description, their samples, and the feedback for a wrong answer."""
    boost = int(rng.integers(1200, 2600))
    limit = float(rng.integers(200, 900))

    def rest(seconds: float) -> list[Any]:
        return [(seconds, 0, 0.2 * boost, 0.12 * limit, 35, _IDLE)]

    def work(
        seconds: float,
        bits: int = 0,
        clock: float = 1.0,
        power: float = 0.7,
        heat: float = 60,
        least: int = 20,
    ) -> list[Any]:
        busy = least if least < 20 else int(rng.integers(least, 101))
        return [(seconds, busy, clock * boost, power * limit, heat, bits)]

    brake = "0x80 is a power brake; 0x8 alone says only that hardware slowed down."
    quiet = "what holds the clocks of an idle GPU slows nothing down: only busy time counts."
    resting = [(3.0, 0, 0.3 * boost, 0.1 * limit, 40, 0x04)]
    idle = "an idle GPU lowers its clock by itself: that is no throttling."
    burst = "a cap for a tenth of the busy time or less is a burst, not what made the program slow."
    hot = "a card at its power limit is warm, too; the reason says power (0x4, 0x80)."
    warm = "thermal slowdown is 0x20 or 0x40, whatever the power is."
    hidden = "the mean over a session hides a phase; look at each reading."
    other = "application clocks, sync boost and display clocks were asked for: neither power nor heat."
    share = "a tenth of the busy time counts, however long the GPU rests."
    both = "where both held the clocks, the cause is the one that did so for longer."
    drawn = [
        ("a GPU that mostly rests", rest(8.0) + work(2.0, clock=0.98), idle),
        ("a GPU that never worked", rest(5.0), idle),
        ("a product at the power cap, and hot", rest(1.0) + work(6.0, 0x04, 0.8, 1.0, 84), hot),
        ("a fan that failed", work(4.0) + work(5.0, 0x20, 0.6, 0.5, 88), warm),
        ("a power brake", work(3.0) + work(4.0, 0x08 | 0x80, 0.4, 0.4, 50), brake),
        ("a hot board", work(3.0) + work(2.0, 0x08 | 0x40, 0.4, 0.6, 95), warm),
        ("one burst at the cap", work(20.0) + work(1.5, 0x04, 0.9, 1.0), burst),
        (
            "a cap in what little work there is",
            rest(30.0) + work(4.0, least=1) + work(1.0, 0x04, 0.9, 1.0),
            share,
        ),
        ("a slow phase", work(7.0) + work(2.0, 0x20, 0.7, 0.6, 90) + work(6.0), hidden),
        ("a session that ends in the cap", work(9.5) + work(0.2, 0x04, 0.9, 1.0) + rest(4.0), burst),
        ("clocks that were set", work(6.0, 0x02, 0.7) + work(1.0, 0x10) + work(1.0, 0x100), other),
        ("power, then heat", work(2.0, 0x04, 0.9, 1.0, 80) + work(5.0, 0x20, 0.7, 0.8, 90), both),
        ("heat, then power", work(2.0, 0x40, 0.7, 0.6, 92) + work(5.0, 0x04, 0.9, 1.0, 70), both),
        ("both", work(4.0) + work(2.0, 0x24, 0.6, 1.0, 90) + work(1.0, 0x20, 0.6, 0.8, 90), both),
        (
            "a brake, then a hot board",
            work(1.0, 0x88, 0.4, 0.4) + work(2.0, 0x48, 0.4, 0.6, 95) + work(3.0),
            brake,
        ),
        ("a cap while nothing ran", [*rest(1.0), *resting, *work(5.0)], quiet),
    ]
    found = [(what, _sampled(rng, phases), lesson) for what, phases, lesson in drawn]
    for at in rng.permutation(len(found))[: len(found) // 2]:  # cards of other sizes
        for one in found[int(at)][1]:
            one["power"] = round(0.15 * one["power"], 1)
    each = "each cause has to hold for more than a tenth of the busy time by itself: they do not add up."
    bits = "a sample may have the bits of both: then both held the clocks."
    exact = "exactly a tenth is not more than a tenth."
    found += [
        ("power and heat, neither for a tenth", _exact((84, 0), (8, 0x04), (8, 0x20)), each),
        ("heat and power, neither for a tenth", _exact((5, 0x40), (86, 0), (9, 0x80)), each),
        ("a cap for exactly a tenth", _exact((45, 0), (10, 0x04), (45, 0)), exact),
        (
            "heat for exactly a tenth, and a cap for a little more",
            _exact((10, 0x20), (11, 0x04), (79, 0)),
            exact,
        ),
        ("heat in a ninth, a cap in half", _exact((11, 0x40), (39, 0), (50, 0x80)), both),
        ("a cap in a ninth, heat in half", _exact((11, 0x80), (39, 0), (50, 0x40)), both),
        ("both at once, the cap for longer", _exact((8, 0x24), (6, 0x04), (86, 0)), bits),
        ("a brake and heat at once, then heat", _exact((30, 0xC8), (15, 0x20), (55, 0x1)), bits),
        ("heat from the first sample to the last", _exact((100, 0x20)), warm),
    ]
    alone = "a sample holds until the next one: a single one lasts for no time."
    found.append(("one sample at the cap", _sampled(rng, work(1.0, 0x04, 0.9, 1.0))[:1], alone))
    # Few readings in the phase that is held, many beside it, and the other way round.
    sparse = _sampled(rng, work(5.0), 0.05) + _sampled(rng, work(5.0, 0x04, 0.8, 1.0), 1.0, 5.0)
    dense = _sampled(rng, work(19.5), 1.0) + _sampled(rng, work(0.5, 0x20, 0.8, 0.9, 85), 0.02, 19.5)
    ends = "samples lie unevenly; each counts for the time until the next one."
    return [*found, ("readings that come slowly", sparse, ends), ("a short dense burst", dense, ends)]


def _exact(*phases: tuple[int, int]) -> Samples:
    """Return samples of a busy GPU with so many seconds per reason, at most a second apart."""
    bits = [reason for seconds, reason in phases for _ in range(seconds)]
    return [
        {
            "time_s": float(at),
            "utilization": 1 + at % 100,
            "sm_clock": 1000,
            "power": 200.0,
            "temperature": 60,
            "clock_reasons": reason,
        }
        for at, reason in enumerate([*bits, bits[-1]])
    ]


def _sampled(rng: np.random.Generator, phases: list[Any], every_s: float = 0.1, at_s: float = 0.0) -> Samples:
    """Readings of phases: seconds, then utilization, clock, power, temperature and reasons."""
    found: Samples = []
    for seconds, utilization, clock, power, heat, bits in phases:
        for step in range(max(2, round(seconds / every_s))):
            shift = float(rng.uniform(0, 0.4)) * every_s if step else 0.0
            found.append(
                {
                    "time_s": round(at_s + step * every_s + shift, 4),
                    "utilization": utilization,
                    "sm_clock": round(float(clock * rng.uniform(0.99, 1.0))),
                    "power": round(float(power), 1),
                    "temperature": round(float(heat + rng.uniform(-1, 1))),
                    "clock_reasons": bits,
                }
            )
        at_s += seconds
    return found


THROTTLED = PythonExercise("09-throttled", "Throttled or not", judge_throttled, level="core")
