"""`gl.lockstep_warps`: lanes of a warp that wait for each other hang, as they did before Volta."""

from __future__ import annotations

import pytest

import gpulab as gl
from virtualgpu.cuda_errors import LaunchTimeoutError

LOCK = """extern "C" __global__ void lock(int* lock, int* count) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    *count = *count + 1;
    __threadfence();
    atomicExch(lock, 0);
}"""


def test_lock_within_a_warp_hangs_only_with_lockstep_warps() -> None:
    cp = gl.use_device("virtual:T4", watchdog_s=0.5).cp
    kernel = cp.RawKernel(LOCK, "lock")
    with gl.lockstep_warps(), pytest.raises(LaunchTimeoutError):
        kernel((1,), (32,), (cp.zeros(1, cp.int32), cp.zeros(1, cp.int32)))
    count = cp.zeros(1, cp.int32)
    kernel((1,), (32,), (cp.zeros(1, cp.int32), count))
    assert int(count[0]) == 32
