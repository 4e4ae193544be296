"""Floating-point operations by type: kernels counted by hand, and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpulab import session
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import KernelCounters

N = 1000
CODE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#define AT int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
extern "C" {
__global__ void axpy(float* x, float* y, int n) { AT; y[i] = 2.5f * x[i] + y[i]; }
__global__ void apart(float* x, float* y, int n) { AT; y[i] = __fadd_rn(__fmul_rn(2.5f, x[i]), y[i]); }
// A sum that NVVM leaves apart, and ptxas and the virtual GPU fuse.
__global__ void fused(float* x, float* y, int n) {
    AT; asm("{.reg .f32 p; mul.f32 p, %1, %0; add.f32 %0, p, %1;}" : "+f"(y[i]) : "f"(x[i]));
}
__global__ void doubles(double* x, double* y, int n) { AT; y[i] = x[i] * y[i] - 1.0; }
__global__ void mixed(float* x, double* y, int n) { AT; x[i] = x[i] + 1.0f; y[i] = y[i] * 3.0; }
__global__ void pairs(__half2* x, __half2* y, int n) { AT; y[i] = __hadd2(__hfma2(x[i], x[i], y[i]), x[i]); }
__global__ void halves(__half* x, __half* y, int n) { AT; y[i] = __hmul(x[i], y[i]); }
__global__ void brains(__nv_bfloat162* x, __nv_bfloat162* y, int n) { AT; y[i] = __hfma2(x[i], x[i], y[i]); }
__global__ void functions(float* x, float* y, int n) { AT; y[i] = sqrtf(x[i]) / y[i]; }
__global__ void integers(int* x, int* y, int n) { AT; y[i] = 3 * x[i] + y[i]; }
__global__ void compared(float* x, float* y, int n) { AT; y[i] = fmaxf(-x[i], fabsf(y[i])); }
__global__ void every_third(float* x, float* y, int n) { AT; if (i % 3 == 0) y[i] = x[i] + y[i]; }
__global__ void summed(float* x, float* y, int n) { AT; atomicAdd(y, x[i]); }
__global__ void guarded(float* x, float* y, int n) {
    AT; asm("{.reg .pred p; setp.gt.s32 p, %2, -1; @p add.f32 %0, %0, %1;}" : "+f"(y[i]) : "f"(x[i]), "r"(i));
}
__global__ void matmul(float* a, float* b, float* c, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || column >= n) return;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
__global__ void tiles(__half* a, __half* b, float* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, row_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.0f);
    for (int k = 0; k < 32; k += 16) {
        load_matrix_sync(fa, a + k, 32);
        load_matrix_sync(fb, b + k * 16, 16);
        mma_sync(fc, fa, fb, fc);
    }
    store_matrix_sync(c, fc, 16, mem_row_major);
}
__global__ void bytes(signed char* a, signed char* b, int* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, signed char, row_major> fa;
    fragment<matrix_b, 16, 16, 16, signed char, row_major> fb;
    fragment<accumulator, 16, 16, 16, int> fc;
    fill_fragment(fc, 0);
    load_matrix_sync(fa, a, 16);
    load_matrix_sync(fb, b, 16);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c, fc, 16, mem_row_major);
}
}
"""


def counted(name: str, grid: Any, block: Any, args: tuple[Any, ...]) -> KernelCounters:
    launch = Launch.of(session.cp().RawKernel(CODE, name), grid, block, args)
    return session.observe(launch, Counters()).record


@pytest.mark.parametrize(
    ("name", "types", "expected"),
    [
        ("axpy", "ff", {"f32": 2 * N}),
        ("apart", "ff", {"f32": 2 * N}),
        ("fused", "ff", {"f32": 2 * N}),
        ("doubles", "dd", {"f64": 2 * N}),
        ("mixed", "fd", {"f32": N, "f64": N}),
        ("pairs", "ff", {"f16": 6 * N}),
        ("halves", "ee", {"f16": N}),
        ("brains", "ff", {"bf16": 4 * N}),
        ("functions", "ff", {"f32": 2 * N}),
        ("integers", "ii", {}),
        ("compared", "ff", {}),
        ("every_third", "ff", {"f32": (N + 2) // 3}),
        ("summed", "ff", {"f32": N}),
        ("guarded", "ff", {"f32": N}),
    ],
)
def test_operations_are_those_counted_by_hand(name: str, types: str, expected: dict[str, int]) -> None:
    x, y = (session.cp().ones(N, kind) for kind in types)
    counters = counted(name, -(-N // 128), 128, (x, y, np.int32(N)))
    assert counters.flops == expected
    assert counters.tensor_flops == {}


@pytest.mark.parametrize("n", [16, 37])
def test_a_product_of_matrices_takes_two_n_cubed(n: int) -> None:
    cp = session.cp()
    a = cp.ones((n, n), np.float32)
    b = cp.ones((n, n), np.float32)
    c = cp.zeros((n, n), np.float32)
    counters = counted("matmul", (-(-n // 16), -(-n // 16)), (16, 16), (a, b, c, np.int32(n)))
    assert (cp.asnumpy(c) == n).all()
    assert counters.flops == {"f32": 2 * n**3}


def test_tensor_cores_count_as_the_product_that_they_do() -> None:
    cp = session.cp()
    a = cp.ones((16, 32), np.float16)
    b = cp.ones((32, 16), np.float16)
    c = cp.zeros((16, 16), np.float32)
    counters = counted("tiles", 3, 32, (a, b, c))
    assert (cp.asnumpy(c) == 32).all()
    assert counters.flops == counters.tensor_flops == {"f16": 3 * 2 * 16 * 16 * 32}


def test_whole_numbers_are_no_floating_point_operations() -> None:
    cp = session.cp()
    a = cp.ones((16, 16), np.int8)
    b = cp.ones((16, 16), np.int8)
    c = cp.zeros((16, 16), np.int32)
    counters = counted("bytes", 1, 32, (a, b, c))
    assert (cp.asnumpy(c) == 16).all()
    assert counters.flops == counters.tensor_flops == {}
