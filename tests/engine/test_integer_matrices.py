"""Tensor cores on 8-bit integers: products against NumPy's, places as the PTX manual has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.errors import NotSupportedError


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        yield


pytestmark = pytest.mark.skipif(
    not nvrtc.is_available() or not nvrtc.find_include_options(),
    reason="NVRTC or the CUDA headers are not installed",
)
TYPES = {"s8": np.int8, "u8": np.uint8}
WMMA = r"""
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(const TYPE* a, const TYPE* b, const int* c, int* d) {
    wmma::fragment<wmma::matrix_a, M, N, K, TYPE, wmma::ROW_A> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, TYPE, wmma::ROW_B> fb;
    wmma::fragment<wmma::accumulator, M, N, K, int> fc;
    wmma::load_matrix_sync(fa, a, LDA);
    wmma::load_matrix_sync(fb, b, LDB);
    wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc, SATURATE);
    for (int i = 0; i < fc.num_elements; i++) fc.x[i] += 1;
    wmma::store_matrix_sync(d, fc, N, wmma::mem_row_major);
}"""


def filled(rng: np.random.Generator, kind: str, *shape: int) -> Any:
    info = np.iinfo(TYPES[kind])
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(TYPES[kind])


@pytest.mark.parametrize(("layout", "saturate"), [("row col", False), ("col row", True)])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 8, 16), (8, 32, 16)])
def test_wmma(shape: tuple[int, int, int], kind: str, layout: str, saturate: bool) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m + n)
    a = filled(rng, kind, m, k)
    b = filled(rng, kind, k, n)
    c = rng.integers(-(2**31), 2**31 - 1, (m, n)).astype(np.int32)
    c[0], c[1] = 2**31 - 1, -(2**31)
    order = layout.split()
    code = WMMA
    for name, value in {
        "ROW_A": f"{order[0]}_major",
        "ROW_B": f"{order[1]}_major",
        "SATURATE": str(saturate).lower(),
        "LDA": k if order[0] == "row" else m,
        "LDB": n if order[1] == "row" else k,
        "TYPE": "signed char" if kind == "s8" else "unsigned char",
        "<wmma::matrix_a, M, N, K": f"<wmma::matrix_a, {m}, {n}, {k}",
        "<wmma::matrix_b, M, N, K": f"<wmma::matrix_b, {m}, {n}, {k}",
        "accumulator, M, N, K": f"accumulator, {m}, {n}, {k}",
        ", N, wmma": f", {n}, wmma",
    }.items():
        code = code.replace(name, str(value))
    operands = [np.asfortranarray(x) if o == "col" else x for x, o in zip((a, b), order, strict=True)]
    d = cp.zeros((m, n), "i4")
    flat = [cp.asarray(x.ravel(order="K")) for x in operands]
    cp.RawKernel(code, "k")((1,), (32,), (*flat, cp.asarray(c), d))
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    if saturate:
        exact = exact.clip(-(2**31), 2**31 - 1)
    np.testing.assert_array_equal(d.get(), (exact.astype(np.int32).astype(np.int64) + 1).astype(np.int32))


def place(part: str, shape: tuple[int, int, int], lane: int, i: int) -> tuple[int, int]:
    """Row and column of element i of a lane (PTX ISA, "Matrix Fragments for mma.m8n8k16" and following)."""
    group = lane // 4
    inner = lane % 4
    m = shape[0]
    if part == "a":
        if m == 8:
            return group, inner * 4 + i
        row = group if i < 4 or 8 <= i < 12 else group + 8
        return row, inner * 4 + i % 4 + (16 if i >= 8 else 0)
    if part == "b":
        return inner * 4 + i % 4 + (16 if i >= 4 else 0), group
    return (group if i < 2 else group + 8), inner * 2 + i % 2


def registers(part: str, shape: tuple[int, int, int], matrix: Any) -> Any:
    """What each lane holds of a matrix, as 32-bit words of shape (32, registers)."""
    count = matrix.size // 32
    elements = np.array(
        [[matrix[place(part, shape, lane, i)] for i in range(count)] for lane in range(32)], matrix.dtype
    )
    return np.ascontiguousarray(elements).view(np.uint32)


@pytest.mark.parametrize(
    ("first", "second", "saturate"),
    [("s8", "s8", True), ("u8", "u8", False), ("s8", "u8", False), ("u8", "s8", True)],
)
@pytest.mark.parametrize("shape", [(8, 8, 16), (16, 8, 16), (16, 8, 32)])
def test_mma_element_layouts_follow_the_ptx_manual(
    shape: tuple[int, int, int], first: str, second: str, saturate: bool
) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k)
    a = filled(rng, first, m, k)
    b = filled(rng, second, k, n)
    c = rng.integers(-(2**31), 2**31 - 1, (m, n)).astype(np.int32)
    c[0] = 2**31 - 1
    words = [registers(p, shape, x) for p, x in (("a", a), ("b", b), ("c", c))]
    counts = [w.shape[1] for w in words]
    slots = []
    at = 0
    for count in (counts[2], *counts):
        slots.append("{" + ", ".join(f"%{at + i}" for i in range(count)) + "}")
        at += count
    outs = ", ".join(f'"=r"(d[t * {counts[2]} + {i}])' for i in range(counts[2]))
    ins = ", ".join(
        f'"r"({name}[t * {count} + {i}])'
        for name, count in zip("abc", counts, strict=True)
        for i in range(count)
    )
    opcode = (
        f"mma.sync.aligned.m{m}n{n}k{k}.row.col{'.satfinite' if saturate else ''}.s32.{first}.{second}.s32"
    )
    code = f"""typedef const unsigned* words;
    extern "C" __global__ void k(words a, words b, words c, unsigned* d) {{
        int t = threadIdx.x;
        asm volatile("{opcode} {", ".join(slots)};" : {outs} : {ins}); }}"""
    d = cp.zeros((32, counts[2]), "u4")
    cp.RawKernel(code, "k")((1,), (32,), (*map(cp.asarray, words), d))
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    if saturate:
        exact = exact.clip(-(2**31), 2**31 - 1)
    np.testing.assert_array_equal(d.get(), registers("c", shape, exact.astype(np.int32)))


def test_mma_of_narrower_integers_is_refused() -> None:
    code = """extern "C" __global__ void k(unsigned* d) {
        asm volatile("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32 {%0, %1}, {%2}, {%2}, {%0, %1};"
                     : "+r"(d[0]), "+r"(d[1]) : "r"(0)); }"""
    with pytest.raises(NotSupportedError, match=r"s4.*s8, u8"):
        cp.RawKernel(code, "k")((1,), (32,), (cp.zeros(2, "u4"),))
