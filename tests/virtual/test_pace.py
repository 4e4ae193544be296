"""Modelled times of kernels whose data was evicted from L2, and of a long chain of instructions."""

from __future__ import annotations

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu.compile import nvrtc
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


def test_data_evicted_from_l2_comes_from_memory(machine: Machine) -> None:
    kernel = cp.RawKernel(
        'extern "C" __global__ void k(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f; }', "k"
    )
    x = cp.zeros(1 << 20, cp.float32)
    large = cp.zeros(64 << 20, cp.float32)
    log = machine.devices[0].work_queue.log

    def run() -> int:
        kernel((1 << 12,), (256,), (x,))
        return int(log[-1].duration_ns)

    run()
    warm = run()
    large.fill(0)
    assert run() > 1.05 * warm
    assert run() == warm


def test_the_time_of_a_long_dependency_chain_has_a_lower_bound(machine: Machine) -> None:
    steps = " ".join(f"a = a * 3 + (b ^ {k}); b += a;" for k in range(1500))
    code = f"""extern "C" __global__ void k(float* x, int n) {{
        __shared__ int s[1024];
        int t = threadIdx.x, a = t, b = n;
        s[t] = n;
        __syncthreads();
        {steps}
        x[t] = s[(a * 4) & 1020];
    }}"""
    cp.RawKernel(code, "k")((1,), (32,), (cp.ones(1024, cp.float32), np.int32(512)))
    assert machine.devices[0].work_queue.log[-1].duration_ns > 3_000
