"""Floating-point operations by type: kernels counted by hand, and matrix products."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gpulab import session
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import KernelCounters, KernelSource

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
def test_flops_equal_a_count_by_hand(name: str, types: str, expected: dict[str, int]) -> None:
    x, y = (session.cp().ones(N, kind) for kind in types)
    counters = counted(name, -(-N // 128), 128, (x, y, np.int32(N)))
    assert counters.flops == expected
    assert counters.tensor_operations == {}


@pytest.mark.parametrize("n", [16, 37])
def test_a_matrix_multiplication_takes_two_n_cubed_flops(n: int) -> None:
    cp = session.cp()
    a = cp.ones((n, n), np.float32)
    b = cp.ones((n, n), np.float32)
    c = cp.zeros((n, n), np.float32)
    counters = counted("matmul", (-(-n // 16), -(-n // 16)), (16, 16), (a, b, c, np.int32(n)))
    assert (cp.asnumpy(c) == n).all()
    assert counters.flops == {"f32": 2 * n**3}


def test_tensor_core_flops_equal_their_matrix_multiplication() -> None:
    cp = session.cp()
    a = cp.ones((16, 32), np.float16)
    b = cp.ones((32, 16), np.float16)
    c = cp.zeros((16, 16), np.float32)
    counters = counted("tiles", 3, 32, (a, b, c))
    assert (cp.asnumpy(c) == 32).all()
    assert counters.flops == {}
    assert counters.tensor_operations == {"f16 to f32": 3 * 2 * 16 * 16 * 32}
    assert counters.total_flops == 3 * 2 * 16 * 16 * 32


# Registers of the accumulator, A and B, and their letters in inline assembly.
MMA_FORMS = {
    "m16n8k16.row.col.f32.f16.f16.f32": (4, 4, 2, "f", "r", "f16 to f32"),
    "m16n8k8.row.col.f32.f16.f16.f32": (4, 2, 1, "f", "r", "f16 to f32"),
    "m16n8k16.row.col.f16.f16.f16.f16": (2, 4, 2, "r", "r", "f16 to f16"),
    "m16n8k16.row.col.f32.bf16.bf16.f32": (4, 4, 2, "f", "r", "bf16 to f32"),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (4, 4, 2, "f", "r", "tf32 to f32"),
    "m16n8k32.row.col.f32.e4m3.e5m2.f32": (4, 4, 2, "f", "r", "f8 to f32"),
    "m16n8k32.row.col.s32.s8.u8.s32": (4, 4, 2, "r", "r", "s8 to s32"),
    "m8n8k16.row.col.s32.u8.u8.s32": (2, 1, 1, "r", "r", "s8 to s32"),
    "m8n8k4.row.col.f64.f64.f64.f64": (2, 1, 1, "d", "d", "f64 to f64"),
    "m16n8k16.row.col.f64.f64.f64.f64": (4, 8, 4, "d", "d", "f64 to f64"),
}
TYPES = {"f": "float", "r": "unsigned", "d": "double"}


def mma_kernel(form: str) -> str:
    sums, a_count, b_count, sum_letter, factor_letter, _ = MMA_FORMS[form]
    numbers = iter(range(20))
    groups = ["{" + ",".join(f"%{next(numbers)}" for _ in range(n)) + "}" for n in (sums, a_count, b_count)]
    outputs = ", ".join(f'"+{sum_letter}"(c[{n}])' for n in range(sums))
    factors = [f"a[{n}]" for n in range(a_count)] + [f"b[{n}]" for n in range(b_count)]
    inputs = ", ".join(f'"{factor_letter}"({factor})' for factor in factors)
    return f"""
    using In = {TYPES[factor_letter]};
    using Sum = {TYPES[sum_letter]};
    extern "C" __global__ void k(const In* x, const In* y, Sum* z, int times) {{
        In a[{a_count}], b[{b_count}];
        Sum c[{sums}] = {{}};
        for (int n = 0; n < {a_count}; ++n) a[n] = x[n * 32 + threadIdx.x % 32];
        for (int n = 0; n < {b_count}; ++n) b[n] = y[n * 32 + threadIdx.x % 32];
        for (int i = 0; i < times; ++i)
            asm volatile("mma.sync.aligned.{form} {groups[0]}, {groups[1]}, {groups[2]}, {groups[0]};"
                         : {outputs} : {inputs});
        for (int n = 0; n < {sums}; ++n) z[n * 32 + threadIdx.x % 32] = c[n];
    }}"""


@pytest.mark.parametrize("form", MMA_FORMS)
def test_tensor_core_operations_are_counted_by_format(form: str) -> None:
    cp = session.cp()
    _, _, _, sum_letter, factor_letter, name = MMA_FORMS[form]
    x = cp.zeros(8 * 32, {"r": np.uint32, "d": np.float64}[factor_letter])
    z = cp.zeros(4 * 32, {"r": np.uint32, "d": np.float64, "f": np.float32}[sum_letter])
    launch = Launch.of(KernelSource("k", mma_kernel(form)), 5, 64, (x, x, z, np.int32(7)), 0)
    counters = session.observe(launch, Counters()).record
    m, n, k = (int(size) for size in re.match(r"m(\d+)n(\d+)k(\d+)", form).groups())
    expected = 5 * 2 * 7 * 2 * m * n * k  # blocks, warps, repetitions
    assert counters.tensor_operations == {name: expected}
    assert counters.total_flops == (0 if name == "s8 to s32" else expected)


def test_a_double_precision_mma_equals_numpy() -> None:
    cp = session.cp()
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((8, 4)), rng.standard_normal((4, 8))
    z = cp.zeros(2 * 32)
    code = mma_kernel("m8n8k4.row.col.f64.f64.f64.f64")
    cp.RawKernel(code, "k")((1,), (32,), (cp.asarray(a.ravel()), cp.asarray(b.T.ravel()), z, np.int32(3)))
    # Lane 4 g + t has elements 2 t and 2 t + 1 of row g (PTX ISA, m8n8k4 with .f64).
    result = cp.asnumpy(z).reshape(2, 8, 4).transpose(1, 2, 0).reshape(8, 8)
    np.testing.assert_allclose(result, 3 * (a @ b), rtol=1e-14)


def test_integer_operations_are_not_counted_as_flops() -> None:
    cp = session.cp()
    a = cp.ones((16, 16), np.int8)
    b = cp.ones((16, 16), np.int8)
    c = cp.zeros((16, 16), np.int32)
    counters = counted("bytes", 1, 32, (a, b, c))
    assert (cp.asnumpy(c) == 16).all()
    assert counters.flops == {}
    assert counters.tensor_operations == {"s8 to s32": 2 * 16**3}
    assert counters.total_flops == 0
