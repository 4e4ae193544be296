"""Records of matrix instructions: positions against PTX's formulas, values and addresses against NumPy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpulab as gl
from gpulab import cp, session
from tools.recordings import wmma_layouts as recording
from virtualgpu.compile import nvrtc
from virtualgpu.engine.lower.ops.matrices import wmma_layouts
from virtualgpu.protocol import Fragments, Launch
from virtualgpu.records.fragments import FragmentTrace, MatrixExecution, decode_bits

Formula = Callable[[int, int, int], tuple[int, int]]  # group, lane in group, element -> row, column


pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


@pytest.fixture(autouse=True, scope="module")
def hopper() -> Iterator[None]:
    with session.on_device("virtual:H100"):
        yield


def traced(kernel: Any, block: int, args: tuple[Any, ...], **options: Any) -> FragmentTrace:
    record: FragmentTrace = session.observe(
        Launch.of(kernel, 1, block, args, 0, None), Fragments(**options)
    ).record
    return record


def with_role(trace: FragmentTrace, role: str) -> list[MatrixExecution]:
    return [execution for execution in trace.executions if trace.of(execution).role == role]


# The layouts of "Matrix Fragments for mma.m16n8k16" and others in the PTX ISA, chapter on warp-level matrix
# instructions, with i for an element of a lane.
def c_16x8(g: int, t: int, i: int) -> tuple[int, int]:
    return g + (8 if i >= 2 else 0), 2 * t + (i & 1)


LAYOUTS: dict[str, tuple[tuple[int, int, int], str, str, int, Formula, int, Formula, Formula]] = {
    **{
        f"m16n8k16 {kind}": (
            (16, 8, 16),
            kind,
            "f32",
            8,
            lambda g, t, i: (
                g if i in (0, 1, 4, 5) else g + 8,
                2 * t + (i & 1) if i < 4 else 2 * t + (i & 1) + 8,
            ),
            4,
            lambda g, t, i: (2 * t + (i & 1) if i < 2 else 2 * t + (i & 1) + 8, g),
            c_16x8,
        )
        for kind in ("f16", "bf16")
    },
    **{
        f"m16n8k8 half, sums of {sum_kind}": (
            (16, 8, 8),
            "f16",
            sum_kind,
            4,
            lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
            2,
            lambda g, t, i: (2 * t + i, g),
            c_16x8,
        )
        for sum_kind in ("f32", "f16")
    },
    "m16n8k8 tf32": (
        (16, 8, 8),
        "tf32",
        "f32",
        4,
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
        2,
        lambda g, t, i: (t if i == 0 else t + 4, g),
        c_16x8,
    ),
    "m16n8k4 tf32": (
        (16, 8, 4),
        "tf32",
        "f32",
        2,
        lambda g, t, i: (g if i == 0 else g + 8, t),
        1,
        lambda g, t, i: (t, g),
        c_16x8,
    ),
    **{
        f"m16n8k32 {kind}": (
            (16, 8, 32),
            kind,
            "s32" if kind == "s8" else "f32",
            16,
            lambda g, t, i: (
                g if i < 4 or 8 <= i < 12 else g + 8,
                4 * t + (i & 3) if i < 8 else 4 * t + (i & 3) + 16,
            ),
            8,
            lambda g, t, i: (4 * t + (i & 3) if i < 4 else 4 * t + (i & 3) + 16, g),
            c_16x8,
        )
        for kind in ("s8", "e4m3", "e5m2")
    },
    # Matrix Fragments for mma.m8n8k4 with .f64 and for mma.m16n8k4, m16n8k8 and m16n8k16 with .f64.
    "m8n8k4 f64": (
        (8, 8, 4),
        "f64",
        "f64",
        1,
        lambda g, t, i: (g, t),
        1,
        lambda g, t, i: (t, g),
        lambda g, t, i: (g, 2 * t + i),
    ),
    **{
        f"m16n8k{k} f64": (
            (16, 8, k),
            "f64",
            "f64",
            k // 2,
            lambda g, t, i: (g + 8 * (i % 2), 2 * i + t if i % 2 == 0 else 2 * i - 2 + t),
            k // 4,
            lambda g, t, i: (4 * i + t, g),
            c_16x8,
        )
        for k in (4, 8, 16)
    },
    "m8n8k16 s8": (
        (8, 8, 16),
        "s8",
        "s32",
        4,
        lambda g, t, i: (g, 4 * t + i),
        4,
        lambda g, t, i: (4 * t + i, g),
        lambda g, t, i: (g, 2 * t + i),
    ),
}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "s8": 8, "e4m3": 8, "e5m2": 8, "f64": 64}


def encoded(values: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Return the bits of small integers in a type; those of FP8 are searched among all values."""
    if kind in ("e4m3", "e5m2"):
        exponent_bits, fraction_bits, bias = (4, 3, 7) if kind == "e4m3" else (5, 2, 15)
        code = np.arange(1 << (exponent_bits + fraction_bits))
        exponent, fraction = np.divmod(code, 1 << fraction_bits)
        size = (1 + fraction / (1 << fraction_bits)) * 2.0 ** (exponent - bias)
        size[exponent == 0] = fraction[exponent == 0] / (1 << fraction_bits) * 2.0 ** (1 - bias)
        index = np.array([int(np.flatnonzero(size == abs(v))[0]) for v in values.ravel()]).reshape(
            values.shape
        )
        return (index + 128 * (values < 0)).astype(np.uint32)
    if kind == "f64":
        return values.astype(np.float64).view(np.uint64)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    if kind in ("bf16", "tf32", "f32"):
        return values.astype(np.float32).view(np.uint32) >> (16 if kind == "bf16" else 0)
    return values.astype(np.int32).view(np.uint32) & (1 << BITS[kind]) - 1


def registers_of(matrix: npt.NDArray[Any], kind: str, count: int, formula: Formula) -> npt.NDArray[Any]:
    """Return the registers (number, lane) that hold a matrix by a formula of PTX."""
    per_register = max(32 // BITS[kind], 1)
    result = np.zeros((count // per_register, 32), np.uint64 if kind == "f64" else np.uint32)
    for lane in range(32):
        for element in range(count):
            bits = encoded(matrix[formula(lane // 4, lane % 4, element)], kind)
            result[element // per_register, lane] |= int(bits) << BITS[kind] * (element % per_register)
    return result


@pytest.mark.parametrize("name", LAYOUTS)
def test_positions_and_values_follow_the_formulas_of_ptx(name: str) -> None:
    (m, n, k), kind, sum_kind, a_count, a_at, b_count, b_at, d_at = LAYOUTS[name]
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-7, 8, shape).astype(np.float64) for shape in ((m, k), (k, n), (m, n)))
    d_count = m * n // 32
    fa, fb, fc = (
        registers_of(matrix, element_kind, count, formula)
        for matrix, element_kind, count, formula in (
            (a, kind, a_count, a_at),
            (b, kind, b_count, b_at),
            (c, sum_kind, d_count, d_at),
        )
    )
    counts = [len(f) for f in (fc, fa, fb)]
    lists = []
    start = 0
    for count in counts:
        lists.append("{" + ", ".join(f"%{start + number}" for number in range(count)) + "}")
        start += count
    letter, cpp = ("d", "double") if kind == "f64" else ("r", "unsigned")
    outputs = ", ".join(f'"+{letter}"(d[{number}])' for number in range(counts[0]))
    inputs = ", ".join(
        f'"{letter}"({name}[{number}])'
        for name, count in (("a", counts[1]), ("b", counts[2]))
        for number in range(count)
    )
    opcode = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{sum_kind}.{kind}.{kind}.{sum_kind}"
    code = f"""
    extern "C" __global__ void k(const {cpp}* fa, const {cpp}* fb, {cpp}* fd) {{
        {cpp} a[{counts[1]}], b[{counts[2]}], d[{counts[0]}];
        for (int i = 0; i < {counts[1]}; ++i) a[i] = fa[32 * i + threadIdx.x];
        for (int i = 0; i < {counts[2]}; ++i) b[i] = fb[32 * i + threadIdx.x];
        for (int i = 0; i < {counts[0]}; ++i) d[i] = fd[32 * i + threadIdx.x];
        asm volatile("{opcode} {lists[0]}, {lists[1]}, {lists[2]}, {lists[0]};" : {outputs} : {inputs});
        for (int i = 0; i < {counts[0]}; ++i) fd[32 * i + threadIdx.x] = d[i];
    }}"""
    if kind == "f64":
        fa, fb, fc = (registers.view(np.float64) for registers in (fa, fb, fc))
    trace = traced(cp.RawKernel(code, "k"), 32, tuple(map(cp.asarray, (fa, fb, fc))))
    (execution,) = trace.executions
    instruction = trace.of(execution)
    assert instruction.shape == (m, n, k)
    for matrix, formula in zip(instruction.matrices, (a_at, b_at, d_at, d_at), strict=True):
        for lane in range(32):
            for element in range(len(matrix.row)):
                position = int(matrix.row[element, lane]), int(matrix.column[element, lane])
                assert position == formula(lane // 4, lane % 4, element), (matrix.name, lane, element)
    for matrix_name, expected in {"a": a, "b": b, "c": c, "d": a @ b + c}.items():
        np.testing.assert_array_equal(trace.values(execution, matrix_name), expected)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_number_of_eight_bits_is_decoded(kind: str) -> None:
    values = decode_bits(np.arange(256, dtype=np.uint32), kind)
    finite = np.isfinite(values)
    assert finite.sum() == {"e4m3": 254, "e5m2": 248}[kind]
    np.testing.assert_array_equal(
        encoded(values[finite][values[finite] > 0], kind), np.flatnonzero(finite & (values > 0))
    )


# Macros, because versions of NVRTC give an asm statement on several lines different lines.
TILE = r"""
#ifdef SWIZZLE
#define PLACE(row, v) ((row) * 8 + ((v) ^ (row) % 8))
#else
#define PLACE(row, v) ((row) * 8 + (v))
#endif
#define LOAD_X4(x, p) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" \
    : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(p));
#define LOAD_X2(x, p) asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" \
    : "=r"(x[0]), "=r"(x[1]) : "r"(p));
extern "C" __global__ void k(const uint4* a, const uint4* b, float* d) {
    __shared__ uint4 unused[3], tile[16 * 8], right[16];
    unused[threadIdx.x % 3] = a[0];
    for (int i = threadIdx.x; i < 128; i += 32) tile[PLACE(i / 8, i % 8)] = a[i];
    if (threadIdx.x < 16) right[threadIdx.x] = b[threadIdx.x];
    __syncwarp();
    int lane = threadIdx.x;
    float s[4] = {};
    for (int step = 0; step < 4; ++step) {
        unsigned x[4], y[2];
        unsigned p = (unsigned)__cvta_generic_to_shared(&tile[PLACE(lane % 16, 2 * step + lane / 16)]);
        unsigned q = (unsigned)__cvta_generic_to_shared(&right[lane % 16]);
        LOAD_X4(x, p)
        LOAD_X2(y, q)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},"
                     "{%8,%9},{%0,%1,%2,%3};"
                     : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    }
    for (int i = 0; i < 4; ++i) d[32 * i + lane] = s[i];
}"""


@pytest.mark.parametrize(("options", "passes"), [((), 8), (("-DSWIZZLE",), 1)])
def test_element_addresses_equal_positions_in_the_tile(options: tuple[str, ...], passes: int) -> None:
    rng = np.random.default_rng(6)
    a = rng.integers(-7, 8, (16, 64)).astype(np.float16)
    b = rng.integers(-7, 8, (16, 8)).astype(np.float16)
    kernel = cp.RawKernel(TILE, "k", options=options)
    args = (cp.asarray(a), cp.asarray(b), cp.zeros(128, cp.float32))
    trace = traced(kernel, 32, args)
    products = with_role(trace, "multiply")
    loads = [load for load in with_role(trace, "load") if "x4" in trace.of(load).opcode]
    counters = gl.count(kernel, 1, 32, args).record.accesses
    counted = [access for access in counters if "ldmatrix" in access.text and "x4" in access.text]
    assert sum(access.requests for access in counted) == 4
    assert sum(access.wavefronts for access in counted) == 4 * 4 * passes
    base = min(int(load.address[0].min()) for load in loads)
    partial = np.zeros((16, 8))
    for step, (product, load) in enumerate(zip(products, loads, strict=True)):
        part = a[:, 16 * step : 16 * step + 16].astype(np.float64)
        np.testing.assert_array_equal(trace.values(product, "a"), part)
        np.testing.assert_array_equal(trace.values(product, "b"), b)
        partial += part @ b.astype(np.float64)
        np.testing.assert_array_equal(trace.values(product, "d"), partial)
        matrix = trace.of(product).matrices[0]
        row, column = matrix.row, matrix.column + 16 * step
        vector = column // 8 ^ (row % 8 if options else 0)
        np.testing.assert_array_equal(product.address[0], base + 128 * row + 16 * vector + column % 8 * 2)
        assert (product.address[2] == -1).all()
        # ldmatrix knows the type of its elements from the multiplication, and has the rows of the tile.
        assert {m.kind for m in trace.of(load).matrices} == {"f16"}
        np.testing.assert_array_equal(trace.values(load, "1"), part[8:, :8])
        np.testing.assert_array_equal(trace.values(load, "2"), part[:8, 8:])
        (access,) = trace.accesses(load)
        assert access.banks().wavefronts == counted[0].wavefronts // counted[0].requests
    stored = [access for s in with_role(trace, "access") for access in trace.accesses(s)]
    assert sum(access.banks().wavefronts for access in stored) == sum(
        access.wavefronts for access in counters if access.kind == "store" and access.space == "shared"
    )


@pytest.mark.parametrize(("options", "counted"), [((), 130), (("-DSWIZZLE",), 18)])
def test_passes_equal_nsight_compute_on_an_h200(options: tuple[str, ...], counted: int) -> None:
    """Recorded with ``ncu`` (wavefronts of shared loads and stores) on 29 November 2026.

    ptxas executes ``ldmatrix.x2``, which is the same in each iteration, only once (5 ``ldsm`` instructions),
    and leaves out the stores to ``unused``.
    """
    args = (cp.ones((16, 64), cp.float16), cp.ones((16, 8), cp.float16), cp.zeros(128, cp.float32))
    trace = traced(cp.RawKernel(TILE, "k", options=options), 32, args)

    def passes(executions: list[MatrixExecution]) -> int:
        return sum(access.banks().wavefronts for e in executions for access in trace.accesses(e))

    loads = with_role(trace, "load")
    pairs = [load for load in loads if "x2" in trace.of(load).opcode]
    assert passes([load for load in loads if "x4" in trace.of(load).opcode]) + passes(pairs[:1]) == counted
    line = next(n for n, text in enumerate(TILE.splitlines(), 1) if "unused[threadIdx" in text)
    assert passes([store for store in with_role(trace, "access") if trace.of(store).line != line]) == 18


def test_registers_filled_by_ordinary_loads_have_their_addresses() -> None:
    code = r"""
    extern "C" __global__ void k(const unsigned short* b, float* d) {
        __shared__ unsigned short tile[16 * 10];
        __shared__ uint4 ones[32];
        ones[threadIdx.x] = make_uint4(0x3C003C00, 0x3C003C00, 0x3C003C00, 0x3C003C00);
        for (int i = threadIdx.x; i < 128; i += 32) tile[i / 8 * 10 + i % 8] = b[i];
        __syncthreads();
        int g = threadIdx.x / 4, t = threadIdx.x % 4;
        unsigned y[2];
        for (int i = 0; i < 2; ++i)
            asm volatile("mov.b32 %0, {%1, %2};" : "=r"(y[i])
                : "h"(tile[(2 * t + 8 * i) * 10 + g]), "h"(tile[(2 * t + 8 * i + 1) * 10 + g]));
        uint4 x = ones[threadIdx.x];
        float s[4] = {};
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},"
            "{%8,%9},{%0,%1,%2,%3};"
            : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
            : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y[0]), "r"(y[1]));
        for (int i = 0; i < 4; ++i) d[32 * i + threadIdx.x] = s[i];
    }"""
    b = np.random.default_rng(7).integers(-7, 8, (16, 8)).astype(np.float16)
    trace = traced(cp.RawKernel(code, "k"), 32, (cp.asarray(b), cp.zeros(128, cp.float32)))
    (product,) = with_role(trace, "multiply")
    matrix = trace.of(product).matrices[1]
    start = int(product.address[1].min())
    np.testing.assert_array_equal(product.address[1] - start, 20 * matrix.row + 2 * matrix.column)
    element, lane = np.indices((8, 32))
    ones = product.address[0]
    np.testing.assert_array_equal(ones - ones.min(), 16 * lane + 2 * element)
    np.testing.assert_array_equal(trace.values(product, "a"), np.ones((16, 16)))
    np.testing.assert_array_equal(
        trace.values(product, "d"), np.tile(b.sum(axis=0, dtype=np.float64), (16, 1))
    )


def test_doubles_have_the_addresses_of_their_first_bytes() -> None:
    code = r"""
    extern "C" __global__ void k(const double* a, const double2* b, double* d) {
        __shared__ double tile[16 * 5];
        __shared__ double2 pairs[32];
        for (int i = threadIdx.x; i < 64; i += 32) tile[i / 4 * 5 + i % 4] = a[i];
        pairs[threadIdx.x] = b[threadIdx.x];
        __syncwarp();
        int g = threadIdx.x / 4, t = threadIdx.x % 4;
        double2 pair = pairs[threadIdx.x];
        double s[4] = {};
        asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, "
            "{%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+d"(s[0]), "+d"(s[1]), "+d"(s[2]), "+d"(s[3])
            : "d"(tile[g * 5 + t]), "d"(tile[(g + 8) * 5 + t]), "d"(pair.y));
        d[threadIdx.x] = s[0] + pair.x;
    }"""
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal((16, 4)), rng.standard_normal((32, 2))
    trace = traced(cp.RawKernel(code, "k"), 32, tuple(map(cp.asarray, (a, b, np.zeros(32)))))
    (product,) = with_role(trace, "multiply")
    matrices = trace.of(product).matrices
    np.testing.assert_array_equal(trace.values(product, "a"), a)
    np.testing.assert_array_equal(trace.values(product, "b"), b[:, 1].reshape(8, 4).T)
    address = product.address[0]
    np.testing.assert_array_equal(address - address.min(), 40 * matrices[0].row + 8 * matrices[0].column)
    address = product.address[1][0]
    np.testing.assert_array_equal(address - address.min(), 16 * np.arange(32))
    assert (product.address[2] == -1).all()
    assert [len(matrix.registers) for matrix in matrices] == [2, 1, 4, 4]


@pytest.mark.parametrize("transposed", [False, True])
def test_stores_of_matrices_have_the_addresses_of_their_elements(transposed: bool) -> None:
    suffix = ".trans" if transposed else ""
    code = f"""
    extern "C" __global__ void k(const unsigned* x, unsigned* y) {{
        __shared__ __align__(16) unsigned tile[16 * 8];
        int lane = threadIdx.x;
        unsigned row = (unsigned)__cvta_generic_to_shared(&tile[lane % 16 * 8]);
        asm volatile("stmatrix.sync.aligned.m8n8.x2{suffix}.shared.b16 [%2], {{%0, %1}};"
                     :: "r"(x[lane]), "r"(x[32 + lane]), "r"(row) : "memory");
        __syncwarp();
        for (int i = lane; i < 128; i += 32) y[i] = tile[i];
    }}"""
    x = np.random.default_rng(9).integers(0, 1 << 16, (2, 64)).astype(np.uint16)
    y = cp.zeros((16, 8), cp.uint32)
    trace = traced(cp.RawKernel(code, "k"), 32, (cp.asarray(x.view(np.uint32)), y))
    (store,) = with_role(trace, "store")
    stored = cp.asnumpy(y).view(np.uint16)  # rows of 8 elements and 8 that are not used
    for number, (matrix, address) in enumerate(zip(trace.of(store).matrices, store.address, strict=True)):
        np.testing.assert_array_equal(trace.values(store, str(number)), stored[8 * number :][:8, :8])
        np.testing.assert_array_equal(address, 32 * (8 * number + matrix.row) + 2 * matrix.column)
        np.testing.assert_array_equal(store.bits[number], x[number].reshape(32, 2).T)


WMMA = r"""
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(const half* a, const half* b, float* d) {
    __shared__ half tile[16 * 24];
    int warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < 256; i += 64) tile[i / 16 * 24 + i % 16] = a[i];
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, warp + 1.0f);
    wmma::load_matrix_sync(fa, tile, 24);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(d + 256 * warp, sum, 16, wmma::mem_row_major);
}"""


def test_wmma_fragments_of_a_chosen_warp() -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-7, 8, (16, 16)).astype(np.float16) for _ in range(2))
    args = (cp.asarray(a), cp.asarray(b), cp.zeros((2, 16, 16), cp.float32))
    trace = traced(cp.RawKernel(WMMA, "k"), 64, args, warp=1)
    load_a, load_b = with_role(trace, "load")
    (product,) = with_role(trace, "multiply")
    (store,) = with_role(trace, "store")
    exact = a.astype(np.float64) @ b.T.astype(np.float64) + 2
    for execution, name, expected in (
        (load_a, "a", a),
        (load_b, "b", b.T),
        (product, "a", a),
        (product, "b", b.T),
        (product, "c", np.full((16, 16), 2.0)),
        (product, "d", exact),
        (store, "d", exact),
    ):
        np.testing.assert_array_equal(trace.values(execution, name), expected)
    np.testing.assert_array_equal(cp.asnumpy(args[2])[1], exact)
    for execution in (load_a, product):
        matrix = trace.of(execution).matrices[0]
        address = execution.address[0]
        np.testing.assert_array_equal(address - address.min(), 48 * matrix.row + 2 * matrix.column)
    assert (load_b.address[0] == -1).all()
    lane, element = trace.of(product).matrices[3].holder(3, 5)
    stored = decode_bits(product.bits[3], "f32")
    assert stored[element, lane] == exact[3, 5]


def test_wmma_fragments_of_doubles() -> None:
    code = r"""
    #include <mma.h>
    using namespace nvcuda;
    extern "C" __global__ void k(const double* a, const double* b, double* d) {
        __shared__ double tile[8 * 5];
        for (int i = threadIdx.x; i < 32; i += 32) tile[i / 4 * 5 + i % 4] = a[i];
        __syncwarp();
        wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::row_major> fb;
        wmma::fragment<wmma::accumulator, 8, 8, 4, double> sum;
        wmma::load_matrix_sync(fa, tile, 5);
        wmma::load_matrix_sync(fb, b, 8);
        wmma::load_matrix_sync(sum, d, 8, wmma::mem_col_major);
        wmma::mma_sync(sum, fa, fb, sum);
        wmma::store_matrix_sync(d, sum, 8, wmma::mem_row_major);
    }"""
    rng = np.random.default_rng(11)
    a, b, c = (rng.integers(-9, 10, shape).astype(np.float64) for shape in ((8, 4), (4, 8), (8, 8)))
    args = tuple(map(cp.asarray, (a, b, c)))
    trace = traced(cp.RawKernel(code, "k"), 32, args)
    (product,) = with_role(trace, "multiply")
    np.testing.assert_array_equal(cp.asnumpy(args[2]), a @ b + c.T)
    for name, expected in {"a": a, "b": b, "c": c.T, "d": a @ b + c.T}.items():
        np.testing.assert_array_equal(trace.values(product, name), expected)
    matrix = trace.of(product).matrices[0]
    address = product.address[0]
    np.testing.assert_array_equal(address - address.min(), 40 * matrix.row + 8 * matrix.column)
    counters = gl.count(cp.RawKernel(code, "k"), 1, 32, args).record
    assert counters.tensor_operations == {"f64 to f64": 2 * 8 * 8 * 4}


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("f16", (16, 16, 16)),
        ("f16", (32, 8, 16)),
        ("f16", (8, 32, 16)),
        ("bf16", (16, 16, 16)),
        ("s8", (32, 8, 16)),
        ("u8", (8, 32, 16)),
        ("tf32", (16, 16, 8)),
        ("f64", (8, 8, 4)),
    ],
)
def test_wmma_element_layouts_equal_an_h200s(kind: str, shape: tuple[int, int, int]) -> None:
    """`record_layouts` also compares results with NumPy after each x[i] was replaced."""
    known = json.loads(wmma_layouts.LAYOUTS_PATH.read_text(encoding="utf-8"))
    assert known["device"] == "NVIDIA H200"
    case = next(case for case in recording.list_cases(kind) if case.shape == shape)
    layouts = dict(recording.record_layouts(recording.compile_kernels([case])[0], case))
    assert len(layouts) == 3
    assert layouts == {name: known["layouts"][name] for name in layouts}


@pytest.mark.parametrize(
    ("kind", "k", "of_mma"),
    [("f16", 16, "m16n8k16 f16"), ("bf16", 16, "m16n8k16 bf16"), ("tf32", 8, "m16n8k8 tf32")],
)
def test_recorded_wmma_layouts_equal_two_mma_layouts(kind: str, k: int, of_mma: str) -> None:
    _, _, _, a_count, a_at, b_count, b_at, d_at = LAYOUTS[of_mma]
    sums = "c", "f32", 4, d_at
    for name, element_kind, count, formula in (("a", kind, a_count, a_at), ("b", kind, b_count, b_at), sums):
        row, column = wmma_layouts.positions_of(name, (16, 16, k), element_kind)
        for lane, element in np.ndindex(row.shape):
            expected_row, expected_column = formula(lane // 4, lane % 4, element % count)
            assert row[lane, element] == expected_row
            assert column[lane, element] == expected_column + 8 * (element // count)


def test_a_trace_ends_after_the_maximum_number_of_steps() -> None:
    args = (cp.ones((16, 64), cp.float16), cp.ones((16, 8), cp.float16), cp.zeros(128, cp.float32))
    kernel = cp.RawKernel(TILE, "k")
    whole = traced(kernel, 32, args)
    products = with_role(whole, "multiply")
    part = traced(kernel, 32, args, max_steps=products[1].step)
    assert part.truncated
    assert not whole.truncated
    assert len(with_role(part, "multiply")) == 1
