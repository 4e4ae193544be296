"""The access microscope: its accesses of all warps add up to the counters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gpulab import session
from tests.counters import cases, patterns
from tests.counters.test_patterns import GROUPS
from virtualgpu.protocol import Accesses, Launch
from virtualgpu.records import KernelSource
from virtualgpu.records.access import AccessTrace

# A partial second warp, lanes that a condition turns off, addresses of every space behind one pointer.
MIXED = r"""
#include <cuda_pipeline.h>
extern "C" __global__ void mixed(double* wide, float* x, unsigned char* bytes, const int* places, int n)
{
    __shared__ float tile[33 * 32];
    __shared__ __align__(16) float4 quads[64];
    __shared__ int bins[8];
    int t = threadIdx.x, p = places[t];
    float mine[48];
    for (int k = 0; k < 48; ++k) mine[k] = x[(k * p) & 255];
    if (t < 8) bins[t] = 0;
    tile[t * 33 & 1023] = mine[p & 31];
    if (t % 3) quads[p & 63] = make_float4(p, t, 1, 2);
    __syncthreads();
    if (p & 1) atomicAdd(&bins[p & 7], 1);
    atomicMax(&bins[t & 7], p);
    atomicCAS((int*)&x[p & 127], 3, 4);
    float* either = p % 3 == 0 ? &mine[p & 15] : p % 3 == 1 ? &tile[p & 511] : &x[p & 255];
    *either += 1.0f;
    __pipeline_memcpy_async(&quads[t & 63], &wide[2 * (p & 63)], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (t < n) wide[p & 127] = quads[t & 63].x + tile[(p * 7) & 1023] + bins[p & 7] + mine[(p * 5) % 48];
    bytes[p] = bytes[t ^ 1] + 1;
}
"""
FRAGMENTS = r"""
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void fragments(const half* a, float* c)
{
    __shared__ half tile[16 * 24];
    for (int k = threadIdx.x; k < 16 * 24; k += 32) tile[k] = a[k];
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::load_matrix_sync(left, tile, 24);
    wmma::load_matrix_sync(right, a, 16);
    wmma::fill_fragment(sum, 0.0f);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
"""


def traced(code: str, name: str, block: int, arrays: Any, shared_bytes: int = 0) -> list[AccessTrace]:
    """Trace every warp of one block, each in its own run."""
    traces = []
    for warp in range(-(-block // 32)):
        args = tuple(session.cp().asarray(a) if isinstance(a, np.ndarray) else a for a in arrays)
        launch = Launch.of(KernelSource(name, code), 1, block, args, shared_bytes)
        traces.append(session.observe(launch, Accesses(warp=warp)).record)
    return traces


def added_up(traces: list[AccessTrace]) -> dict[tuple[int, str], int]:
    total: Counter[tuple[int, str]] = Counter()
    for trace in traces:
        assert not trace.truncated
        for index in range(len(trace)):
            site = int(trace.site[index])
            access = trace.access(index)
            banks = access.banks()
            memory = access.memory()
            counts = {"requests": 1, "bytes_requested": memory.bytes_requested}
            if access.space == "shared":
                counts |= {"wavefronts": banks.wavefronts, "ideal_wavefronts": banks.ideal_wavefronts}
            elif access.space != "const":
                counts |= {"sectors": memory.sectors}
            for name, value in counts.items():
                total[site, name] += value
    return total


def equal_to_counters(traces: list[AccessTrace]) -> int:
    """Compare traces with the counters, and return the number of instructions."""
    total = added_up(traces)
    counters = traces[0].counters
    for site, a in enumerate(counters.accesses):
        for name in ("requests", "bytes_requested", "wavefronts", "ideal_wavefronts", "sectors"):
            if a.space != "const" or name in ("requests", "bytes_requested"):
                assert total[site, name] == getattr(a, name), (a, name)
    return sum(a.requests > 0 for a in counters.accesses)


@pytest.mark.parametrize("seed", range(4))
def test_accesses_of_each_space_and_width_add_up_to_the_counters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = rng.integers(0, (64, 7, 200, 33)[seed], 64).astype(np.int32)
    arrays = (np.zeros(256), np.zeros(256, np.float32), np.zeros(256, np.uint8), places, np.int32(45))
    traces = traced(MIXED, "mixed", 50, arrays)
    assert equal_to_counters(traces) >= 20
    spaces = {traces[0].access(index).space for index in range(len(traces[0]))}
    assert spaces >= {"global", "shared", "local"}


def test_accesses_of_matrix_fragments_add_up_to_the_counters() -> None:
    traces = traced(FRAGMENTS, "fragments", 32, (np.zeros(512, np.float16), np.zeros(256, np.float32)))
    assert equal_to_counters(traces) >= 5


@pytest.mark.parametrize("group", [g for index, g in enumerate(GROUPS) if index % 3 == 0])
def test_single_accesses_equal_counters_fitted_to_nsight_compute(group: str) -> None:
    for pattern in GROUPS[group][::6]:
        arrays = (
            np.array(pattern.places, np.int32),
            np.uint32(pattern.mask),
            np.zeros(2048 * 16, np.uint8),
        )
        code = cases.source(patterns.FILE)
        traces = traced(code, group, 32, arrays, patterns.SHARED_BYTES)
        equal_to_counters(traces)
        for index in range(len(traces[0])):  # at best, too, where an instruction ran once
            a = traces[0].counters.accesses[traces[0].site[index]]
            if a.requests == 1 and a.space == "global":
                assert traces[0].access(index).memory().ideal_sectors == a.ideal_sectors


@pytest.mark.parametrize("file", ["transpose", "matmul_tiled", "block_sum"])
def test_accesses_of_course_kernels_add_up_to_the_counters(file: str) -> None:
    case = next(case for case in cases.CASES if file in f"{case.file} {case.kernel}")
    shape = case.shape(case.sizes[0])
    block = int(np.prod(shape.block))
    traces = []
    for warp in range(block // 32):
        args = tuple(session.cp().asarray(a) if isinstance(a, np.ndarray) else a for a in shape.values)
        launch = Launch.of(KernelSource(case.kernel, case.code), 1, shape.block, args, shape.shared_bytes)
        traces.append(session.observe(launch, Accesses(warp=warp)).record)
    assert equal_to_counters(traces) >= 2
