"""Read the output of Nsight Compute's command line (``ncu --csv``), and add up its counters."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpulab.analysis.cupti.names import kernel_name
from virtualgpu.records.profile import HardwareCounters, Profile

DURATION = "gpu__time_duration.sum"
_SECTORS = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
_DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_INSTRUCTIONS = "smsp__inst_executed.sum"
_L1 = "l1tex__t_sector_hit_rate.pct"
_L2 = "lts__t_sector_hit_rate.pct"
_FLOP = {
    f"smsp__sass_thread_inst_executed_op_{form}{op}_pred_on.sum": 2 if op == "fma" else 1
    for form in "fdh"
    for op in ("add", "mul", "fma")
}
_REFUSALS = {
    "ERR_NVGPUCTRPERM": "this user may not read counters (ERR_NVGPUCTRPERM): an administrator allows it with "
    "the driver's option NVreg_RestrictProfilingToAdminUsers=0, or runs this as root",
    "No kernels were profiled": "no kernel ran",
    "Unsupported GPU": "it does not know this GPU: install one that is as new as the driver",
    "InterprocessLockFailed": "another profiler is at work on this machine: end it first",
}
METRICS = (*_SECTORS, *_DRAM, _INSTRUCTIONS, _L1, _L2, *_FLOP, DURATION)


OPTIONS = (
    "--csv",
    "--print-units",
    "base",
    "--clock-control",
    "none",
    "--cache-control",
    "none",
    "--profile-from-start",
    "off",
    "--metrics",
    ",".join(METRICS),
    "--log-file",
)
"""For counters as the program's own launches have them; the path of the file follows."""


@dataclass(slots=True)
class Launch:
    """A profiled launch: the kernel's name, as printed without its parameters, and its metrics."""

    kernel: str
    metrics: dict[str, float] = field(default_factory=dict)
    printed: str = ""


def parse_csv(text: str) -> list[Launch]:
    """Parse ncu's CSV: one row per launch and metric, after lines of ncu and of the program."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    launches: dict[str, Launch] = {}
    for row in csv.DictReader(lines[start:]):
        if not row.get("Metric Name"):
            continue
        printed = row["Kernel Name"]
        launch = launches.setdefault(row["ID"], Launch(printed.split("(")[0], printed=printed))
        try:
            launch.metrics[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
        except ValueError:  # "n/a"
            continue
    return list(launches.values())


def refusal(text: str) -> str:
    """Return the reason why ncu counted nothing, in its own words; empty if it counted."""
    if '"ID"' in text:
        return ""
    said = next(
        (line.partition("==ERROR==")[2].strip() for line in text.splitlines() if "==ERROR==" in line), ""
    )
    return next((why for word, why in _REFUSALS.items() if word in text), said[:200])


def with_counters(profile: Profile, data: bytes, raised: str, why_not: str) -> Profile:
    """Return a profile with the counters that ncu wrote, or with the reason why there are none."""
    if why := why_not or (raised and f"in a process of its own the function raised {raised}"):
        return replace(profile, no_counters=f"not available on this machine: {why}")
    found = counters(parse_csv(data.decode(errors="replace")))
    return replace(profile, counters=found, no_counters="" if found else "no kernel ran")


def counters(launches: Sequence[Launch]) -> tuple[HardwareCounters, ...]:
    """Return counters by kernel, under the names of `gpulab.timeline`; the longest kernel first."""
    kernels: dict[str, list[Launch]] = {}
    for launch in launches:
        kernels.setdefault(kernel_name(launch.printed or launch.kernel), []).append(launch)
    ordered = sorted(kernels.items(), key=lambda item: -_sum(item[1], DURATION))
    return tuple(_of(key, ran) for key, ran in ordered)


def _of(key: str, ran: Sequence[Launch]) -> HardwareCounters:
    return HardwareCounters(
        key=key,
        count=len(ran),
        sectors=_whole(ran, *_SECTORS),
        dram_bytes=_whole(ran, *_DRAM),
        warp_instructions=_whole(ran, _INSTRUCTIONS),
        flop=_whole(ran, *_FLOP),
        l1_hit_rate=_rate(ran, _L1),
        l2_hit_rate=_rate(ran, _L2),
        time_ns=_whole(ran, DURATION),
    )


def _sum(ran: Sequence[Launch], metric: str) -> float:
    return sum(launch.metrics.get(metric, 0.0) for launch in ran)


def _whole(ran: Sequence[Launch], *metrics: str) -> int | None:
    """Return the sum of metrics over launches, or None if none of them was counted."""
    if not any(metric in launch.metrics for launch in ran for metric in metrics):
        return None
    return round(sum(_sum(ran, metric) * _FLOP.get(metric, 1) for metric in metrics))


def _rate(ran: Sequence[Launch], metric: str) -> float | None:
    """Return a rate of 0 to 1 as a mean over time, or None if it was not counted."""
    told = [launch for launch in ran if metric in launch.metrics]
    weights = [launch.metrics.get(DURATION, 1.0) for launch in told]
    if not told or not sum(weights):
        return None
    return sum(w * each.metrics[metric] for w, each in zip(weights, told, strict=True)) / sum(weights) / 100
