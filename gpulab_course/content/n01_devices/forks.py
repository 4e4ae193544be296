"""Use of a GPU in worker processes after the parent has used it: forked workers and newly started ones.

``python -m gpulab_course.content.n01_devices.forks`` uses the device, then tries both kinds of worker.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

from gpulab import session

_LIMIT_S = 120
METHODS = ("fork", "spawn")


def tried() -> str:
    """Return one line per way to start a worker: the outcome of its first array.

    All of it happens in a process of its own, since CUDA in this one must not be forked.
    """
    device = os.environ.get("GPULAB_DEVICE", "")
    choice = session.which_device()
    if choice.kind == "virtual":
        device = f"virtual:{session.backend().device_info().name}"
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        capture_output=True,
        text=True,
        check=True,
        timeout=_LIMIT_S,
        env=os.environ | {"GPULAB_DEVICE": device},
    )
    return done.stdout.rstrip()


def first_array() -> str:
    """Make an array on the device, and say how that went."""
    try:
        return f"an array of {session.cp().ones(4).size} elements"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Use the device here, then in workers."""
    print(f"{'parent':>6}: {first_array()}")
    for method in METHODS:
        if method not in multiprocessing.get_all_start_methods():
            print(f"{method:>6}: not on this operating system")
            continue
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as worker:
            print(f"{method:>6}: {worker.submit(first_array).result()}", flush=True)


if __name__ == "__main__":
    main()
