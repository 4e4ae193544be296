"""Measure the slowdown of a program while its timeline is recorded."""

from __future__ import annotations

import time

from gpulab import session
from virtualgpu.errors import GpulabError

LAUNCHES = 10_000
# Maximum time with recording, as a multiple of the time without it.
MAX_SLOWDOWN = 1.3


_CODE = 'extern "C" __global__ void add(float* x) { x[threadIdx.x] += 1.0f; }'


def time_recorded_launches(launches: int = LAUNCHES) -> tuple[float, float]:
    """Return the times in seconds of small kernels with a timeline, including its end, and without one.

    Raises
    ------
    GpulabError
        If the timeline lacks a launch.
    """
    with session.on_device("virtual:A100") as cp:
        kernel = cp.RawKernel(_CODE, "add")
        x = cp.ones(32, cp.float32)
        for _ in range(launches // 20):
            kernel((1,), (32,), (x,))
        start_s = time.perf_counter()
        for _ in range(launches):
            kernel((1,), (32,), (x,))
        plain_end_s = time.perf_counter()
        recorder = session.backend().timeline_recorder()
        recorder.start()
        for _ in range(launches):
            kernel((1,), (32,), (x,))
        timeline = recorder.stop()
        recorded_s = time.perf_counter() - plain_end_s
    if len(timeline.activities) != launches or timeline.lost:
        raise GpulabError(f"The timeline holds {len(timeline.activities):,} of {launches:,} launches.")
    return recorded_s, plain_end_s - start_s
