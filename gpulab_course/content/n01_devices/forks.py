"""Tests whether forked and spawned worker processes can use a GPU that their parent has already used.

``python -m gpulab_course.content.n01_devices.forks`` uses the device, then tries both kinds of worker.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

from gpulab import session

_TIMEOUT_S = 120
START_METHODS = ("fork", "spawn")


def tried() -> str:
    """Return text that says whether a parent process and its two workers could each create a device array.

    Parent and workers are new processes, because the current process may already have a CUDA context.
    """
    device = os.environ.get("GPULAB_DEVICE", "")
    device_choice = session.which_device()
    if device_choice.kind == "virtual":
        device = f"virtual:{session.backend().device_info().name}"
    process = subprocess.run(
        [sys.executable, "-m", __name__],
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
        env=os.environ | {"GPULAB_DEVICE": device},
    )
    return process.stdout.rstrip()


def create_first_array() -> str:
    """Create a device array. Return text that states its number of elements or the error."""
    try:
        return f"an array of {session.cp().ones(4).size} elements"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Create a device array in this process and in two workers, and print each result."""
    print(f"{'parent':>6}: {create_first_array()}")
    for start_method in START_METHODS:
        if start_method not in multiprocessing.get_all_start_methods():
            print(f"{start_method:>6}: not on this operating system")
            continue
        with ProcessPoolExecutor(1, multiprocessing.get_context(start_method)) as worker_pool:
            print(f"{start_method:>6}: {worker_pool.submit(create_first_array).result()}", flush=True)


if __name__ == "__main__":
    main()
