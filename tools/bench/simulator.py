"""Time the Numba CUDA simulator in a child process, because it must be chosen before Numba loads."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass

TIMEOUT_S = 300
INSTALL = 'pip install "gpulab[bench]" brings numba and numba-cuda'


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Time in seconds of a kernel in the simulator, and its number of threads."""

    seconds: float
    threads: int


@dataclass(frozen=True, slots=True)
class SimulatorTimes:
    """The simulator's times by kernel name, and the versions of the packages that were used."""

    kernels: dict[str, KernelTime]
    versions: str


def run_simulator() -> tuple[SimulatorTimes | None, str]:
    """Time the simulator in a child process.

    Returns
    -------
    SimulatorTimes or None, str
        The times, or None and the reason why there are none.
    """
    missing_names = [name for name in ("numba", "numba_cuda") if importlib.util.find_spec(name) is None]
    if missing_names:
        return None, INSTALL
    try:
        process = subprocess.run(
            [sys.executable, "-m", "tools.bench.numba_simulator"],
            env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return None, f"it took more than {TIMEOUT_S} s"
    if process.returncode != 0:
        error_lines = process.stderr.strip().splitlines()
        return None, error_lines[-1] if error_lines else f"it ended with status {process.returncode}"
    result = json.loads(process.stdout.splitlines()[-1])
    kernels = {name: KernelTime(**values) for name, values in result["kernels"].items()}
    return SimulatorTimes(kernels, result["versions"]), ""
