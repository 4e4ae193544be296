"""Time a launch under the sanitizer and without it."""

from __future__ import annotations

import time

import numpy as np

from gpulab import session
from tools.corpus import read_kernel_code
from virtualgpu.errors import GpulabError
from virtualgpu.protocol import Hazards, Launch

# A tiled product of matrices of these sizes, and the milliseconds that checking it may take.
TARGETS_MS = {256: 1000.0, 512: None}
_TILE = 16


def time_sanitized_matmul(size: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return times in seconds of a tiled matrix product under all checks, and without checks.

    Raises
    ------
    GpulabError
        If the checks find a problem in the product, which has none.
    """
    checked_s = []
    plain_s = []
    with session.on_device("virtual:A100") as cp:
        matrices = [cp.ones((size, size), np.float32) for _ in range(3)]
        kernel = cp.RawKernel(read_kernel_code("matmul.cu"), "matmul_tiled")
        grid = (size // _TILE, size // _TILE, 1)
        block = (_TILE, _TILE, 1)
        launch = Launch(kernel, grid, block, (*matrices, np.int32(size)), 0)
        for _ in range(rounds + 1):
            start_s = time.perf_counter()
            report = session.backend().observe(launch, Hazards())
            checked_end_s = time.perf_counter()
            kernel(grid, block, launch.args)
            checked_s.append(checked_end_s - start_s)
            plain_s.append(time.perf_counter() - checked_end_s)
            if not report.clean:
                raise GpulabError(f"The checks complain of the tiled product: {report.hazards[0].message}")
    return checked_s[1:], plain_s[1:]  # the first ones compile
