"""Times of the Numba CUDA simulator, taken in a child process, as it must be chosen before Numba loads."""

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
    """How long the simulator took for so many threads."""

    seconds: float
    threads: int


@dataclass(frozen=True, slots=True)
class SimulatorTimes:
    """The simulator's times by kernel name, and the versions that gave them."""

    kernels: dict[str, KernelTime]
    versions: str


def run_simulator() -> tuple[SimulatorTimes | None, str]:
    """Time the simulator in a child process.

    Returns
    -------
    SimulatorTimes or None, str
        The times, or None and the reason why there are none.
    """
    missing = [name for name in ("numba", "numba_cuda") if importlib.util.find_spec(name) is None]
    if missing:
        return None, INSTALL
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tools.bench.numba_simulator"],
            env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return None, f"it took more than {TIMEOUT_S} s"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"it ended with status {done.returncode}"
    found = json.loads(done.stdout.splitlines()[-1])
    kernels = {name: KernelTime(**values) for name, values in found["kernels"].items()}
    return SimulatorTimes(kernels, found["versions"]), ""
