"""Time a full trace of one warp for each of the course's kernels."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Sequence

import numpy as np

from gpulab import session
from tools.corpus import CASES, Case
from virtualgpu.protocol import Launch, Warp

TRACE_TARGET_MS = 200.0


def time_slowest_trace(cases: Sequence[Case] = CASES) -> tuple[str, list[float]]:
    """Trace a warp of each case on the virtual A100; return the name and the times of the slowest case.

    Returns
    -------
    tuple
        The name of the slowest kernel and its times in seconds, without compiling.
    """
    slowest_case: tuple[str, list[float]] = ("", [0.0])
    with session.on_device("virtual:A100") as cp, contextlib.redirect_stdout(io.StringIO()):
        for case in cases:
            args = tuple(cp.asarray(v) if isinstance(v, np.ndarray) else v for v in case.make_args(1).values)
            kernel = cp.RawKernel(case.code, case.kernel, options=case.options)
            times_s = []
            for _ in range(4):
                start_s = time.perf_counter()
                session.backend().observe(
                    Launch(kernel, case.grid, case.block, args, case.shared_bytes), Warp()
                )
                times_s.append(time.perf_counter() - start_s)
            if min(times_s[1:]) > min(slowest_case[1]):
                slowest_case = (case.name, times_s[1:])
    return slowest_case
