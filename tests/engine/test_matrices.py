"""Tensor-core instructions: every shape, type and layout against NumPy, and kernels with very many."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import parser
from virtualgpu.engine.lower import codegen

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

SHAPES = [(16, 16, 16), (32, 8, 16), (8, 32, 16)]
CASES = [
    (kind, shape, total, order)
    for kind, total in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32"))
    for shape in ([(16, 16, 8)] if kind == "tf32" else SHAPES)
    for order in (("row", "col"), ("col", "row"))
]
SPELLED = {
    "f16": ("__half", "__half"),
    "bf16": ("__nv_bfloat16", "__nv_bfloat16"),
    "tf32": ("wmma::precision::tf32", "float"),
    "f32": ("float", "float"),
}


@pytest.fixture(scope="module", autouse=True)
def device() -> Any:
    try:
        nvrtc.compile_ptx("#include <mma.h>\n", target=80)
    except nvrtc.NvrtcCompileError as error:
        if "crt/mma.h" in error.log:
            pytest.skip("the headers of mma.h are not installed")
        raise
    with session.on_device("virtual:A100"):
        yield


def multiplying(kind: str, shape: tuple[int, int, int], total: str, order: tuple[str, str]) -> str:
    m, n, k = shape
    element, stored = SPELLED[kind]
    result = SPELLED[total][1]
    a_stride = (k if order[0] == "row" else m) + 8
    b_stride = (n if order[1] == "row" else k) + 8
    a_lines = m if order[0] == "row" else k
    return f"""#include <mma.h>
    using namespace nvcuda;
    extern "C" __global__ void k(const {stored}* a, const {stored}* b, const {result}* c, {result}* d) {{
        __shared__ {stored} tile[{a_lines * a_stride}];
        for (int i = threadIdx.x; i < {a_lines * a_stride}; i += 32) tile[i] = a[i];
        __syncthreads();
        wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, {element}, wmma::{order[0]}_major> fa;
        wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, {element}, wmma::{order[1]}_major> fb;
        wmma::fragment<wmma::accumulator, {m}, {n}, {k}, {result}> fc;
        wmma::load_matrix_sync(fc, c, {n}, wmma::mem_row_major);
        wmma::load_matrix_sync(fa, tile, {a_stride});
        wmma::load_matrix_sync(fb, b, {b_stride});
        wmma::mma_sync(fc, fa, fb, fc);
        wmma::store_matrix_sync(d, fc, {m}, wmma::mem_col_major);
    }}"""


def rounded(values: npt.NDArray[np.float32], kind: str) -> npt.NDArray[Any]:
    """Values that a kind of element can hold, as float32."""
    if kind == "f16":
        return values.astype(np.float16).astype(np.float32)
    keep = 0xFFFF0000 if kind == "bf16" else 0xFFFFE000
    return (values.view(np.uint32) & np.uint32(keep)).view(np.float32)


def stored(values: npt.NDArray[np.float32], kind: str, order: str) -> npt.NDArray[Any]:
    """A matrix as the kernel wants it in memory, each line padded by eight elements."""
    lines = values if order == "row" else values.T
    lines = np.ascontiguousarray(np.pad(lines, ((0, 0), (0, 8))))
    if kind == "f16":
        return lines.astype(np.float16)
    return (lines.view(np.uint32) >> 16).astype(np.uint16) if kind == "bf16" else lines


def cut_sums(a: Any, b: Any, c: Any) -> Any:
    """Each sum as an H200 makes it: terms cut behind the 25th bit after the largest one's, and added."""
    wide = [x.astype(np.float64) for x in (a, b, c)]
    power = [np.frexp(x)[1] - 1 for x in (a, b, c)]
    terms = np.concatenate([wide[0][:, :, None] * wide[1], wide[2][:, None]], axis=1)
    powers = np.concatenate([power[0][:, :, None] + power[1], power[2][:, None]], axis=1)
    unit = np.ldexp(1.0, powers.max(axis=1) - 25)
    total = np.trunc(terms / unit[:, None]).sum(axis=1) * unit
    if c.dtype == np.float16:
        return total.astype(np.float16)
    last = np.ldexp(1.0, np.frexp(total)[1] - 24)
    return (np.trunc(total / last) * last).astype(np.float32)


@pytest.mark.parametrize(("kind", "shape", "total", "order"), CASES)
def test_every_shape_type_and_layout(
    kind: str, shape: tuple[int, int, int], total: str, order: tuple[str, str]
) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rounded(rng.standard_normal(s).astype(np.float32), kind) for s in ((m, k), (k, n)))
    c = rng.standard_normal((m, n)).astype(np.float32 if total == "f32" else np.float16)
    d = cp.zeros((n, m), c.dtype)
    kernel = cp.RawKernel(multiplying(kind, shape, total, order), "k")
    args = [cp.asarray(v) for v in (stored(a, kind, order[0]), stored(b, kind, order[1]), c)]
    counters = gl.count(kernel, 1, 32, (*args, d))
    np.testing.assert_array_equal(cp.asnumpy(d).T, cut_sums(a, b, c))
    # Every lane moves its share of each matrix, an element at a time.
    loads = [x for x in counters.accesses if x.kind == "load" and "wmma" in x.text]
    assert sum(x.requests for x in loads) == (m * k + k * n + m * n) // 32
    assert {x.size_bytes for x in loads} == {2 if kind in ("f16", "bf16") else 4, c.itemsize}
    stores = [x for x in counters.accesses if x.kind == "store" and "wmma" in x.text]
    assert sum(x.requests for x in stores) == m * n // 32
    assert sum(x.sectors for x in stores) >= m * n * c.itemsize // 32


def unrolled(steps: int) -> str:
    """A product of 32 rows, 32 columns and 16 for each step, all in one basic block."""
    return f"""#include <mma.h>
    using namespace nvcuda;
    extern "C" __global__ void k(const __half* a, const __half* b, float* d) {{
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
        for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) wmma::fill_fragment(sum[i][j], 0.f);
        #pragma unroll
        for (int step = 0; step < {steps}; step++) {{
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb[2];
            #pragma unroll
            for (int i = 0; i < 2; i++) {{
                wmma::load_matrix_sync(fa[i], a + i * 16 * {16 * steps} + step * 16, {16 * steps});
                wmma::load_matrix_sync(fb[i], b + i * 16 * {16 * steps} + step * 16, {16 * steps});
            }}
            #pragma unroll
            for (int i = 0; i < 2; i++)
                #pragma unroll
                for (int j = 0; j < 2; j++) wmma::mma_sync(sum[i][j], fa[i], fb[j], sum[i][j]);
        }}
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                wmma::store_matrix_sync(d + i * 16 * 32 + j * 16, sum[i][j], 32, wmma::mem_row_major);
    }}"""


def test_a_matrix_multiplication_of_many_fragments_equals_numpy() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (32, 16 * 64)).astype(np.float16) for _ in range(2))
    d = cp.zeros((32, 32), cp.float32)
    cp.RawKernel(unrolled(64), "k")((1,), (32,), (cp.asarray(a), cp.asarray(b), d))
    np.testing.assert_array_equal(cp.asnumpy(d), a.astype(np.float32) @ b.astype(np.float32).T)


def test_code_and_frame_grow_little_with_each_fragment() -> None:
    lines = []
    frames = []
    for steps in (8, 72):
        module = parser.parse(nvrtc.compile_ptx(unrolled(steps), target=80).ptx)
        kernel = codegen.generate_kernel(module, "k", with_counters=True, with_trace=False)
        lines.append(kernel.text.count("\n"))
        frames.append(kernel.frame_bytes)
    # Four loads and four products a step, each of them an instruction or two on its operands' addresses.
    assert lines[1] - lines[0] < 64 * 8 * 12
    assert frames[1] < frames[0] + 4096


def test_a_fault_names_the_fragment_that_is_out_of_bounds() -> None:
    a, b = (cp.zeros(size, cp.float16) for size in (32 * 16 * 8, 31 * 16 * 8))
    report = gl.sanitize(cp.RawKernel(unrolled(8), "k"), 1, 32, (a, b, cp.zeros((32, 32), cp.float32)))
    (hazard, *_) = report.hazards
    assert hazard.kind == "out of bounds"
    assert hazard.second is not None
    assert "fb[i]" in hazard.second.source
