"""Read the output of Nsight Compute's command line (``ncu --csv``), and add up its counters."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpulab.analysis.cupti.names import shorten_kernel_name
from virtualgpu.records.profile import HardwareCounters, Profile

DURATION_METRIC = "gpu__time_duration.sum"
_SECTOR_METRICS = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
_DRAM_METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_INSTRUCTION_METRIC = "smsp__inst_executed.sum"
_L1_HIT_METRIC = "l1tex__t_sector_hit_rate.pct"
_L2_HIT_METRIC = "lts__t_sector_hit_rate.pct"
_FLOP_METRICS = {
    f"smsp__sass_thread_inst_executed_op_{precision_letter}{op}_pred_on.sum": 2 if op == "fma" else 1
    for precision_letter in "fdh"
    for op in ("add", "mul", "fma")
}
_REFUSAL_REASONS = {
    "ERR_NVGPUCTRPERM": "this user has no permission to read counters (ERR_NVGPUCTRPERM): an administrator "
    "can allow it with the driver's option NVreg_RestrictProfilingToAdminUsers=0, or run the program as root",
    "No kernels were profiled": "no kernel ran",
    "Unsupported GPU": "ncu does not support this GPU: install a version that is as new as the driver",
    "InterprocessLockFailed": "another profiler is running on this machine: end that profiler first",
}
METRICS = (
    *_SECTOR_METRICS,
    *_DRAM_METRICS,
    _INSTRUCTION_METRIC,
    _L1_HIT_METRIC,
    _L2_HIT_METRIC,
    *_FLOP_METRICS,
    DURATION_METRIC,
)


NCU_OPTIONS = (
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
"""Options of ncu to count a program's launches without changing clocks or caches.

The path of the output file must follow.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A message about a launch from one of ncu's rules.

    The attribute ``saving_fraction`` is ncu's estimate of the share of the kernel's time that a change could
    save, or None. ncu prints it as "Est. Speedup". ``scope`` is ``"global"`` if it refers to the whole kernel
    and ``"local"`` if it refers to one section only.
    """

    section: str
    name: str
    message: str
    saving_fraction: float | None
    scope: str


@dataclass(slots=True)
class Launch:
    """A launch that ncu profiled, with its kernel name (without parameters), its metrics and the messages of
    ncu's rules.
    """

    kernel: str
    metrics: dict[str, float] = field(default_factory=dict)
    printed_name: str = ""
    rules: list[Rule] = field(default_factory=list)


def parse_csv(text: str) -> list[Launch]:
    """Parse the CSV output of ncu, which has one row per launch and metric or rule. Lines before the header
    row are skipped.

    Rules are in the CSV of ``ncu --import FILE --page details --csv``. If two sections have a metric with the
    same name, the first value is kept.
    """
    lines = text.splitlines()
    header_index = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header_index is None:
        return []
    launches: dict[str, Launch] = {}
    for row in csv.DictReader(lines[header_index:]):
        metric, rule = row.get("Metric Name"), row.get("Rule Name")
        if not metric and not rule:
            continue
        printed_name = row["Kernel Name"]
        launch = launches.setdefault(row["ID"], Launch(printed_name.split("(")[0], printed_name=printed_name))
        if rule and row["Rule Type"] == "OPT":  # others only inform
            saving_percent = row["Estimated Speedup"]
            saving_fraction = float(saving_percent) / 100 if saving_percent else None
            saving_type = row["Estimated Speedup Type"]
            launch.rules.append(
                Rule(row["Section Name"], rule, row["Rule Description"], saving_fraction, saving_type)
            )
        if metric:
            with contextlib.suppress(ValueError):  # "n/a"
                launch.metrics.setdefault(metric, float(row["Metric Value"].replace(",", "")))
    return list(launches.values())


def find_refusal(text: str) -> str:
    """Return the reason why ncu collected no counters, or an empty string if it collected counters."""
    if '"ID"' in text:
        return ""
    message = next(
        (line.partition("==ERROR==")[2].strip() for line in text.splitlines() if "==ERROR==" in line), ""
    )
    return next(
        (reason for message_part, reason in _REFUSAL_REASONS.items() if message_part in text), message[:200]
    )


def add_counters(profile: Profile, data: bytes, program_error: str, unavailable_reason: str) -> Profile:
    """Return a copy of a profile with the counters that ncu collected. If there are no counters, the copy
    contains the reason.
    """
    if reason := unavailable_reason or (
        program_error and f"in a separate process the function raised {program_error}"
    ):
        return replace(profile, no_counters=f"not available on this machine: {reason}")
    kernel_counters = sum_counters(parse_csv(data.decode(errors="replace")))
    return replace(profile, counters=kernel_counters, no_counters="" if kernel_counters else "no kernel ran")


def sum_counters(launches: Sequence[Launch]) -> tuple[HardwareCounters, ...]:
    """Return the counters of each kernel as sums over its launches. Kernels are sorted by total time, with
    the longest time first.
    """
    launches_by_kernel: dict[str, list[Launch]] = {}
    for launch in launches:
        launches_by_kernel.setdefault(shorten_kernel_name(launch.printed_name or launch.kernel), []).append(
            launch
        )
    kernels_by_duration = sorted(
        launches_by_kernel.items(), key=lambda item: -_sum_metric(item[1], DURATION_METRIC)
    )
    return tuple(
        _make_kernel_counters(kernel_name, kernel_launches)
        for kernel_name, kernel_launches in kernels_by_duration
    )


def _make_kernel_counters(kernel_name: str, launches: Sequence[Launch]) -> HardwareCounters:
    return HardwareCounters(
        key=kernel_name,
        count=len(launches),
        sectors=_sum_weighted_metrics(launches, *_SECTOR_METRICS),
        dram_bytes=_sum_weighted_metrics(launches, *_DRAM_METRICS),
        warp_instructions=_sum_weighted_metrics(launches, _INSTRUCTION_METRIC),
        flop=_sum_weighted_metrics(launches, *_FLOP_METRICS),
        l1_hit_rate=_average_hit_rate(launches, _L1_HIT_METRIC),
        l2_hit_rate=_average_hit_rate(launches, _L2_HIT_METRIC),
        time_ns=_sum_weighted_metrics(launches, DURATION_METRIC),
    )


def _sum_metric(launches: Sequence[Launch], metric: str) -> float:
    return sum(launch.metrics.get(metric, 0.0) for launch in launches)


def _sum_weighted_metrics(launches: Sequence[Launch], *metrics: str) -> int | None:
    """Return the sum of metrics over launches, or None if none was counted; an FMA counts as two FLOP."""
    if not any(metric in launch.metrics for launch in launches for metric in metrics):
        return None
    return round(sum(_sum_metric(launches, metric) * _FLOP_METRICS.get(metric, 1) for metric in metrics))


def _average_hit_rate(launches: Sequence[Launch], metric: str) -> float | None:
    """Return a rate, 0 to 1, as a mean weighted by time, or None if it was not counted."""
    counted_launches = [launch for launch in launches if metric in launch.metrics]
    duration_weights = [launch.metrics.get(DURATION_METRIC, 1.0) for launch in counted_launches]
    if not counted_launches or not sum(duration_weights):
        return None
    return (
        sum(
            duration_weight * counted_launch.metrics[metric]
            for duration_weight, counted_launch in zip(duration_weights, counted_launches, strict=True)
        )
        / sum(duration_weights)
        / 100
    )
