"""Nsight Compute from Python: run a command under ``ncu`` and read its counters per launch."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

from gpulab.analysis.files.ncu import DURATION_METRIC as DURATION_METRIC
from gpulab.analysis.files.ncu import Launch as Launch
from gpulab.analysis.files.ncu import parse_csv as parse_csv
from virtualgpu.errors import GpulabError

# Memory accesses of loads and stores, and branches, as the hardware counts them.
CORE_METRICS = (
    *(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st")),
    "smsp__sass_branch_targets_threads_divergent.sum",
)
# Warp instructions of the machine code, which show where ptxas merged or dropped accesses.
SASS_METRICS = (
    *(f"smsp__sass_inst_executed_op_global_{op}.sum" for op in ("ld", "st")),
    *(f"smsp__sass_inst_executed_op_shared_{op}.sum" for op in ("ld", "st")),
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
)


class NsightError(GpulabError):
    """Error for a missing Nsight Compute, missing rights to read counters, or unknown output."""


def is_available() -> bool:
    """Return whether ``ncu`` is on the path."""
    return shutil.which("ncu") is not None


def read_version() -> str:
    """Return Nsight Compute's version, such as ``2025.3.1.0``."""
    version_output = subprocess.run(
        [_find_ncu(), "--version"], capture_output=True, text=True, check=False
    ).stdout
    match = re.search(r"Version\s+([\d.]+)", version_output)
    return match[1] if match else ""


def profile(
    command: Sequence[str], kernels: Sequence[str], metrics: Sequence[str], *, timeout_s: float = 300.0
) -> list[Launch]:
    """Run a command and read metrics of the launches of some kernels, in launch order.

    Clocks are left as they are and caches are not flushed between launches.

    Parameters
    ----------
    command
        The program and its arguments.
    kernels
        Names of the kernels to profile; others run unobserved.
    metrics
        Metrics with their suffix, such as ``smsp__inst_executed.sum``.
    timeout_s
        Seconds until the run is given up.

    Raises
    ------
    NsightError
        If ncu is absent or fails; the message is what it printed.
    """
    names = "|".join(sorted(set(kernels)))
    call = [
        _find_ncu(),
        "--clock-control",
        "none",
        "--cache-control",
        "none",
        "--csv",
        "--print-units",
        "base",
    ]
    call += ["--kernel-name", f"regex:^({names})$", "--metrics", ",".join(metrics), *command]
    process = subprocess.run(call, capture_output=True, text=True, timeout=timeout_s, check=False)
    launches = parse_csv(process.stdout)
    if process.returncode or not launches:
        problems = [line for line in (process.stdout + process.stderr).splitlines() if line.startswith("==")]
        raise NsightError(
            "Nsight Compute gave no counters: "
            + (" ".join(problems[-4:]) or process.stderr[-400:] or "no output")
        )
    return launches


def _find_ncu() -> str:
    path = shutil.which("ncu")
    if path is None:
        raise NsightError("Nsight Compute (ncu) is not on the path; it comes with the CUDA toolkit.")
    return path
