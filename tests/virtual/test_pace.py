"""What the time model makes of PTX: chains and independent work, divisions, atomics, shared words, long
kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu.backend import VirtualBackend
from virtualgpu.compile import nvrtc
from virtualgpu.model.machine import Machine
from virtualgpu.protocol import Launch

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")


def ns(machine: Machine, body: str, grid: int = 1, block: int = 32, *args: Any) -> float:
    """Modelled time of a kernel with `body` over ``float* x, int n``."""
    code = f'extern "C" __global__ void k(float* x, int n) {{ int t = threadIdx.x; {body} }}'
    arguments = args or (cp.ones(max(grid * block, 1024), cp.float32), np.int32(512))
    launch = Launch.of(cp.RawKernel(code, "k"), (grid, 1, 1), (block, 1, 1), arguments)
    return VirtualBackend(machine).prepared(launch).run().duration_ns


CHAIN = "float v = x[t]; for (int i = 0; i < n; i++) { STEP } x[t] = v;"


def test_a_dependent_chain_takes_longer_than_independent_chains(machine: Machine) -> None:
    chain = CHAIN.replace("STEP", "for (int k = 0; k < 4; k++) v = v * 1.5f + 0.5f;")
    four = (
        "float a = x[t], b = a + 1, c = a + 2, d = a + 3; for (int i = 0; i < n; i++) { a = a * 1.5f + 0.5f; "
        "b = b * 1.5f + 0.5f; c = c * 1.5f + 0.5f; d = d * 1.5f + 0.5f; } x[t] = a + b + c + d;"
    )
    # The same work: alone a chain of 4 clk an FMA is slower; where an SM is full, both wait for its FMA
    # units.
    assert ns(machine, chain) > 1.6 * ns(machine, four)
    assert ns(machine, chain, 864, 256) == pytest.approx(ns(machine, four, 864, 256), rel=0.25)


@pytest.mark.parametrize(
    ("slow", "fast", "min_ratio"),
    [
        ("v = __sinf(v);", "v = v + 0.5f;", 3.0),
        ("v = 1.5f / (v + 0.5f);", "v = v + 0.5f;", 6.0),
        ("v = (float)(1000003 / ((int)v | 1));", "v = (float)((int)v | 1);", 3.0),
        ("v = (float)sqrt((double)v);", "v = sqrtf(v);", 1.5),
    ],
)
def test_slow_operations_are_slow(machine: Machine, slow: str, fast: str, min_ratio: float) -> None:
    start = ns(machine, CHAIN.replace("STEP", ""))
    assert ns(machine, CHAIN.replace("STEP", slow)) - start > min_ratio * (
        ns(machine, CHAIN.replace("STEP", fast)) - start
    )


def test_one_lane_adds_for_its_warp_where_ptxas_lets_it(machine: Machine) -> None:
    """An integer added to one address, known beforehand: 192 us become 6.8 us on an H100, if nobody asks
    back."""
    target = cp.zeros(1, cp.float32)
    args = (target, np.int32(1))
    known_ns = ns(machine, "atomicAdd((int*)x, t);", 512, 256, *args)
    unknown_ns = ns(machine, "atomicAdd((int*)x + t % n, 1);", 512, 256, *args)
    assert unknown_ns > 10 * known_ns


def test_data_evicted_from_l2_comes_from_memory(machine: Machine) -> None:
    kernel = cp.RawKernel(
        'extern "C" __global__ void k(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f; }', "k"
    )
    x = cp.zeros(1 << 20, cp.float32)
    large = cp.zeros(64 << 20, cp.float32)
    log = machine.devices[0].work.log

    def run() -> int:
        kernel((1 << 12,), (256,), (x,))
        return int(log[-1].duration_ns)

    run()
    warm = run()
    large.fill(0)
    assert run() > 1.05 * warm
    assert run() == warm


def test_a_kernel_with_a_long_chain_has_a_pace(machine: Machine) -> None:
    steps = " ".join(f"a = a * 3 + (b ^ {k}); b += a;" for k in range(1500))
    start = "__shared__ int s[1024]; s[t] = n; __syncthreads(); int a = t, b = n;"
    body = f"{start} {steps} x[t] = s[(a * 4) & 1020];"
    assert ns(machine, body) > 3_000
