"""Wrong and right answers to 09-roofline and 09-throttled."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from gpulab_course.content.n09_profiling.readings.exercises import (
    HEAT_REASON_BITS,
    MIN_CAUSE_SHARE,
    POWER_REASON_BITS,
    compute_roofline_dot,
    compute_throttled_shares,
)
from tests.answers import Right, Wrong


def _dot(launches: Any, form: str, device: Any) -> tuple[float, float, float]:
    run = launches[0]
    operations = 2 * run["fma"] + run["add"] + run["mul"]
    intensity = operations / run["dram_bytes"] if run["dram_bytes"] else math.inf
    rate = operations / run["time_ns"]
    return intensity, rate, rate / min(device["gflops"][form], intensity * device["gbps"])


def _mistaken(**mistake: Any) -> Any:
    return lambda launches, form, device: compute_roofline_dot(launches, form, device, **mistake)


def _flat(launches: Any, form: str, device: Any) -> tuple[float, float, float]:
    intensity, rate, _ = _dot(launches, form, device)
    return intensity, rate, rate / device["gflops"][form]


def _of_bandwidth(launches: Any, form: str, device: Any) -> tuple[float, float, float]:
    intensity, rate, _ = _dot(launches, form, device)
    return intensity, rate, launches[0]["dram_bytes"] / launches[0]["time_ns"] / device["gbps"]


def _divides_by_zero(launches: Any, form: str, device: Any) -> tuple[float, float, float]:
    run = launches[0]
    operations = 2 * run["fma"] + run["add"] + run["mul"]
    intensity = operations / run["dram_bytes"]
    rate = operations / run["time_ns"]
    return intensity, rate, rate / min(device["gflops"][form], intensity * device["gbps"])


def _best_of_both(launches: Any, form: str, device: Any) -> tuple[float, float, float]:
    run = {name: min(one[name] for one in launches) for name in launches[0]}
    return _dot([run, run], form, device)


def _both(launches: Any, form: str, device: Any) -> tuple[float, float, float]:
    run = {name: sum(one[name] for one in launches) for name in launches[0]}
    return _dot([run, run], form, device)


def _upper(launches: Any, form: str, device: Any) -> tuple[float, float, float]:
    intensity, rate, _ = _dot(launches, form, device)
    return intensity, rate, rate / max(device["gflops"][form], min(intensity, 1e9) * device["gbps"])


def _in_steps(launches: Any, form: str, device: Any) -> list[float]:
    # fma counts once? No: a * b + c is two operations.
    first, *_ = launches
    done = sum(times * first[kind] for kind, times in {"fma": 2, "add": 1, "mul": 1}.items())
    peak, slope = device["gflops"][form], device["gbps"]
    if first["dram_bytes"] == 0:
        return [math.inf, done / first["time_ns"], done / first["time_ns"] / peak]
    intensity = done / first["dram_bytes"]
    roof = peak if intensity > peak / slope else intensity * slope
    return [intensity, done / first["time_ns"], done / first["time_ns"] / roof]


def _as_array(launches: Any, form: str, device: Any) -> Any:
    run = launches[0]
    operations = np.float64(2 * run["fma"] + run["add"] + run["mul"])
    with np.errstate(divide="ignore"):
        intensity = operations / np.float64(run["dram_bytes"])
    rate = operations / run["time_ns"]
    return np.array([intensity, rate, rate / np.minimum(device["gflops"][form], intensity * device["gbps"])])


def _by_times(launches: Any, form: str, device: Any) -> tuple[float, float, float]:
    """The roof as the longer of two times."""
    run = launches[0]
    operations = 2 * run["fma"] + run["add"] + run["mul"]
    least_ns = max(operations / device["gflops"][form], run["dram_bytes"] / device["gbps"])
    intensity = operations / run["dram_bytes"] if run["dram_bytes"] else float("inf")
    return intensity, operations / run["time_ns"], least_ns / run["time_ns"]


_ROOFLINES: tuple[Wrong | Right, ...] = (
    Wrong("09-roofline", "requested bytes", _mistaken(bytes_field="requested_bytes"), "", "caches deliver a part"),
    Wrong("09-roofline", "bytes from L2", _mistaken(bytes_field="l2_bytes"), "", "not those that memory moved"),
    Wrong("09-roofline", "an FMA as one operation", _mistaken(operations_per_fma=1), "", "two operations"),
    Wrong("09-roofline", "FP32's peak for every format", _mistaken(peak_format_name="float32"), "", "format in which the kernel"),
    Wrong("09-roofline", "tensor cores' peak", _mistaken(peak_format_name="float16"), "", "format in which the kernel"),
    Wrong("09-roofline", "FP64's peak for every format", _mistaken(peak_format_name="float64"), "", "format in which the kernel"),
    Wrong("09-roofline", "the warm launch", _mistaken(launch_index=1), "", "found its data in L2"),
    Wrong("09-roofline", "cold bytes, warm time", _mistaken(time_index=1), "", "time of the same launch"),
    Wrong("09-roofline", "the best of both launches", _best_of_both, "", "found its data in L2"),
    Wrong("09-roofline", "the sum of both launches", _both, "", "it should be"),
    Wrong("09-roofline", "share of the flat part", _flat, "", "intensity times bandwidth, not the peak"),
    Wrong("09-roofline", "share of the bandwidth", _of_bandwidth, "", "share of the bandwidth is not the answer"),
    Wrong("09-roofline", "the higher of the two ceilings", _upper, "", "it should be"),
    Wrong("09-roofline", "divides by no bytes", _divides_by_zero, "", "ZeroDivisionError"),
    Wrong("09-roofline", "a share in per cent", lambda *a: (*_dot(*a)[:2], 100 * _dot(*a)[2]), "", "1 at the roof"),
    Wrong("09-roofline", "FLOP/s instead of GFLOP/s", lambda *a: (_dot(*a)[0], 1e9 * _dot(*a)[1], _dot(*a)[2]), "", "are GFLOP/s"),
    Wrong("09-roofline", "returns one number", lambda *a: _dot(*a)[0], "", "Return three numbers"),
    Wrong("09-roofline", "returns nothing", lambda *a: None, "", "returns nothing"),
    Right("09-roofline", "as taught", _dot),
    Right("09-roofline", "step by step", _in_steps),
    Right("09-roofline", "an array", _as_array),
    Right("09-roofline", "the longer of two times", _by_times),
)


Verdict = tuple[str, float]


def _throttled(
    samples: Any, power: int = POWER_REASON_BITS, heat: int = HEAT_REASON_BITS, least: float = MIN_CAUSE_SHARE, busy_only: bool = True,
    lasts: Callable[[Any, Any], float] = lambda one, following: following["time_s"] - one["time_s"],
) -> Verdict:
    """The right answer, of which a part can be had wrong."""
    busy = held_by_power = held_by_heat = 0.0
    for one, following in pairwise(samples):
        if one["utilization"] > 0 or not busy_only:
            took = lasts(one, following)
            busy += took
            held_by_power += took * bool(one["clock_reasons"] & power)
            held_by_heat += took * bool(one["clock_reasons"] & heat)
    if not busy or max(held_by_power, held_by_heat) <= least * busy:
        return "no", 0.0
    return max(("heat", held_by_heat / busy), ("power", held_by_power / busy), key=lambda each: each[1])


def _misread(**part: Any) -> Any:
    return lambda samples: _throttled(samples, **part)


def _mean_clock(samples: Any) -> Verdict:
    top = max(one["sm_clock"] for one in samples)
    mean = sum(one["sm_clock"] for one in samples) / len(samples)
    return ("power", 1 - mean / top) if mean < 0.85 * top else ("no", 0.0)


def _low_clock(samples: Any) -> Verdict:
    top = max(one["sm_clock"] for one in samples)
    low = [one for one in samples if one["sm_clock"] < 0.9 * top]
    hot = [one for one in low if one["temperature"] > 80]
    return ("heat" if hot else "power", len(low) / len(samples)) if low else ("no", 0.0)


def _tenth_of_all(samples: Any) -> Verdict:
    cause, share = _throttled(samples, least=0.0)
    busy = sum(b["time_s"] - a["time_s"] for a, b in pairwise(samples) if a["utilization"] > 0)
    whole = samples[-1]["time_s"] - samples[0]["time_s"]
    return (cause, share) if share * busy > 0.1 * whole else ("no", 0.0)


def _last_one(samples: Any) -> Verdict:
    bits = samples[-1]["clock_reasons"]
    return ("power", 1.0) if bits & POWER_REASON_BITS else ("heat", 1.0) if bits & HEAT_REASON_BITS else ("no", 0.0)


def _by_temperature(samples: Any) -> Verdict:
    cause, share = _throttled(samples)
    hot = max((one["temperature"] for one in samples if one["clock_reasons"] & (POWER_REASON_BITS | HEAT_REASON_BITS)), default=0)
    return (cause, share) if cause == "no" else ("heat" if hot > 80 else "power", share)


def _by_watts(samples: Any) -> Verdict:
    cause, share = _throttled(samples)
    most = max(one["power"] for one in samples)
    held = [one["power"] for one in samples if one["clock_reasons"] & (POWER_REASON_BITS | HEAT_REASON_BITS)]
    return (cause, share) if cause == "no" else ("power" if max(held) > 0.9 * most else "heat", share)


def _first_cause(samples: Any) -> Verdict:
    cause, share = _throttled(samples)
    first = next((one["clock_reasons"] for one in samples if one["clock_reasons"] & (POWER_REASON_BITS | HEAT_REASON_BITS)), 0)
    return (cause, share) if cause == "no" else ("power" if first & POWER_REASON_BITS else "heat", share)


def _of_the_whole(samples: Any) -> Verdict:
    cause, share = _throttled(samples)
    gaps = list(pairwise(samples))
    busy = sum(b["time_s"] - a["time_s"] for a, b in gaps if a["utilization"] > 0)
    return cause, share * busy / (samples[-1]["time_s"] - samples[0]["time_s"])


def _together(samples: Any) -> Verdict:
    """Power and heat add up to more than a tenth."""
    power, heat = compute_throttled_shares(samples)
    if power + heat <= MIN_CAUSE_SHARE:
        return "no", 0.0
    return ("power", power) if power > heat else ("heat", heat)


def _since_the_one_before(samples: Any) -> Verdict:
    shifted = [b | {"time_s": a["time_s"]} for a, b in pairwise(samples)]
    return _throttled([*shifted, samples[-1]])


def _with_arrays(samples: Any) -> Any:
    time_s, use, bits = (
        np.array([one[name] for one in samples]) for name in ("time_s", "utilization", "clock_reasons")
    )
    lasts = np.diff(time_s) * (use[:-1] > 0)
    if lasts.sum() == 0:
        return "no", 0.0
    shares = {name: float(lasts[(bits[:-1] & mask) > 0].sum() / lasts.sum())
              for name, mask in (("power", 0x84), ("heat", 0x60))}
    cause = max(shares, key=lambda name: shares[name])
    return (cause, shares[cause]) if shares[cause] > 0.1 else ("no", 0.0)


def _with_sums(samples: Any) -> list[Any]:
    sums = {"busy": 0.0, "power": 0.0, "heat": 0.0}
    for at in range(len(samples) - 1):
        one, took = samples[at], samples[at + 1]["time_s"] - samples[at]["time_s"]
        if one["utilization"]:
            sums["busy"] += took
            for name, bits in {"power": (4, 128), "heat": (32, 64)}.items():
                if any(int(one["clock_reasons"]) // bit % 2 for bit in bits):
                    sums[name] += took
    name = "power" if sums["power"] >= sums["heat"] else "heat"
    return [name, sums[name] / sums["busy"]] if sums[name] > sums["busy"] / 10 else ["no", 0]


def _backwards(samples: Any) -> Verdict:
    """From the end, each reading with the one behind it."""
    held = {0: 0.0, POWER_REASON_BITS: 0.0, HEAT_REASON_BITS: 0.0}
    until = samples[-1]["time_s"]
    for one in reversed(samples):
        for mask in held:
            if one["utilization"] > 0 and (mask == 0 or one["clock_reasons"] & mask):
                held[mask] += until - one["time_s"]
        until = one["time_s"]
    busy, power, heat = held[0], held[POWER_REASON_BITS], held[HEAT_REASON_BITS]
    if max(power, heat) <= busy / 10:
        return "no", 0.0
    return ("power", power / busy) if power > heat else ("heat", heat / busy)


_SESSIONS: tuple[Wrong | Right, ...] = (
    Wrong("09-throttled", "the mean clock", _mean_clock, "", "idle GPU lowers its clock"),
    Wrong("09-throttled", "every low clock", _low_clock, "", "idle GPU lowers its clock"),
    Wrong("09-throttled", "the last reading", _last_one, "", ""),
    Wrong("09-throttled", "a single reading is enough", _misread(least=0.0), "", "is a burst"),
    Wrong("09-throttled", "a high temperature counts as heat", _by_temperature, "", "the reported reason is power"),
    Wrong("09-throttled", "many watts mean power", _by_watts, "", ""),
    Wrong("09-throttled", "busy from 6 %", lambda s: _throttled([one | {"utilization": max(0, one["utilization"] - 5)} for one in s]), "", ""),
    Wrong("09-throttled", "both together count", _together, "", "they do not add up"),
    Wrong("09-throttled", "from a tenth on", _misread(least=0.1 - 1e-12), "", "not more than a tenth"),
    Wrong("09-throttled", "since the sample before", _since_the_one_before, "", ""),
    Wrong("09-throttled", "a twentieth counts", _misread(least=0.05), "", "is a burst"),
    Wrong("09-throttled", "hardware slowdown is power", _misread(power=POWER_REASON_BITS | 0x08), "", "power brake"),
    Wrong("09-throttled", "a tenth of the whole", _tenth_of_all, "", "however long the GPU is idle"),
    Wrong("09-throttled", "two samples at least", lambda s: _throttled(s) if s[1] else None, "", "IndexError"),
    Wrong("09-throttled", "idle time counts", _misread(busy_only=False), "", ""),
    Wrong("09-throttled", "samples are counted", _misread(lasts=lambda one, following: 1.0), "", "until the next one"),
    Wrong("09-throttled", "ignores the power brake", _misread(power=0x04), "", "power brake"),
    Wrong("09-throttled", "hardware slowdown is heat", _misread(heat=HEAT_REASON_BITS | 0x08), "", ""),
    Wrong("09-throttled", "only software's thermal slowdown", _misread(heat=0x20), "", "0x20 or 0x40"),
    Wrong("09-throttled", "application clocks are power", _misread(power=POWER_REASON_BITS | 0x02), "", "are settings"),
    Wrong("09-throttled", "idle is a power state", _misread(power=POWER_REASON_BITS | 0x01, busy_only=False), "", "idle GPU lowers"),
    Wrong("09-throttled", "whatever came first", _first_cause, "", "for longer"),
    Wrong("09-throttled", "a share of the whole", _of_the_whole, "", "not of the whole"),
    Wrong("09-throttled", "the share in percent", lambda s: (_throttled(s)[0], 100 * _throttled(s)[1]), "", "at most 1"),
    Wrong("09-throttled", "returns only the cause", lambda s: _throttled(s)[0], "", "Return a cause"),
    Wrong("09-throttled", "returns nothing", lambda s: None, "", "returns nothing"),
    Right("09-throttled", "as taught", _throttled),
    Right("09-throttled", "with arrays", _with_arrays),
    Right("09-throttled", "with sums by name", _with_sums),
    Right("09-throttled", "from the end", _backwards),
)

DECLARED: tuple[Wrong | Right, ...] = (*_ROOFLINES, *_SESSIONS)
