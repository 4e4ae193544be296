"""Reports of real profilers, recorded on an H200 by `tools.recordings.screens`, as tables and files."""

from __future__ import annotations

import itertools
import re
import textwrap
from importlib import resources
from pathlib import Path

from gpulab.analysis.files.ncu import Launch, parse_csv
from gpulab.views.tables import Table
from gpulab.words import duration
from gpulab_course.content.screens import Screens

REPORTS_PACKAGE = "gpulab_course.content.n09_profiling"
# Metrics of `ncu --set full` that a first reading needs: the section, the metric, and how it is printed.
_SHOWN_METRICS = (
    ("GPU Speed Of Light Throughput", "Duration", duration),
    ("GPU Speed Of Light Throughput", "DRAM Throughput", "{:.0f} %".format),
    ("GPU Speed Of Light Throughput", "L2 Cache Throughput", "{:.0f} %".format),
    ("GPU Speed Of Light Throughput", "L1/TEX Cache Throughput", "{:.0f} %".format),
    ("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "{:.0f} %".format),
    ("Occupancy", "Achieved Occupancy", "{:.0f} %".format),
    ("Warp State Statistics", "Warp Cycles Per Issued Instruction", "{:.0f}".format),
)
_MAX_CHARACTERS = 84


def path(name: str) -> Path:
    """Return the path of a recorded file, such as ``steps.json.gz``."""
    return Path(str(resources.files(REPORTS_PACKAGE).joinpath(name)))


def nsight_compute() -> Screens:
    """Return the recorded session of Nsight Compute, in which two transpose kernels were profiled."""
    return Screens(REPORTS_PACKAGE, "nsight_compute")


def nsight_systems() -> Screens:
    """Return the recorded session of Nsight Systems, in which eight steps of a small model were profiled."""
    return Screens(REPORTS_PACKAGE, "nsight_systems")


def nsys_summary(report: str, *headings: str) -> Table:
    """Tabulate some columns of a summary that ``nsys stats`` printed.

    Parameters
    ----------
    report
        The summary, such as ``cuda_api_sum``.
    headings
        The headings of its columns. A value of more than `_MAX_CHARACTERS` is shortened at its end.
    """
    lines = nsight_systems().screen("stats").splitlines()
    title_row = next(
        line_number for line_number, line in enumerate(lines) if line.strip().endswith(f"({report}):")
    )
    rule_row = next(
        line_number
        for line_number in range(title_row, len(lines))
        if lines[line_number].strip().startswith("--")
    )
    column_spans = [match.span() for match in re.finditer("-+", lines[rule_row])]
    column_names = [
        lines[rule_row - 1][column_start:column_end].strip() for column_start, column_end in column_spans
    ]
    chosen_spans = [column_spans[column_names.index(heading)] for heading in headings]
    report_rows = tuple(
        tuple(
            _shorten_text(line[column_start:column_end].strip()) for column_start, column_end in chosen_spans
        )
        for line in itertools.takewhile(str.strip, lines[rule_row + 1 :])
    )
    return Table(f"nsys stats -r {report}, {nsight_systems().label}", headings, report_rows)


def _shorten_text(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"


def read_launches() -> list[Launch]:
    """Return the kernel launches of the recorded report, read from its CSV file."""
    return parse_csv(nsight_compute().screen("--csv"))


def ncu_metrics() -> Table:
    """Tabulate the most important metrics of the report, with one column per kernel launch."""
    profiled_launches = read_launches()
    metric_rows = tuple(
        (section, metric, *(format_value(launch.metrics[metric]) for launch in profiled_launches))
        for section, metric, format_value in _SHOWN_METRICS
    )
    headings = ("section", "metric", *(launch.kernel for launch in profiled_launches))
    return Table(f"Nsight Compute, {nsight_compute().label}", headings, metric_rows)


def ncu_rules(kernel: str, most: int = 3) -> Table:
    """Tabulate the rules of Nsight Compute with the largest estimated savings for a kernel.

    Parameters
    ----------
    kernel
        The name of the kernel.
    most
        The largest number of rules.
    """
    launch = next(launch for launch in read_launches() if launch.kernel == kernel)
    rules = [rule for rule in launch.rules if rule.saving_fraction is not None and rule.scope == "global"]
    rules.sort(key=lambda rule: -(rule.saving_fraction or 0))
    rule_rows = tuple(
        (
            rule.section,
            f"{100 * (rule.saving_fraction or 0):.0f} %",
            textwrap.shorten(rule.message, 190, placeholder=" ..."),
        )
        for rule in rules[:most]
    )
    title = f"Rules of Nsight Compute for {kernel}, {nsight_compute().label}"
    return Table(title, ("section", "Est. Speedup", "message"), rule_rows)
