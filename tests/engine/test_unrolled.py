"""Iterations of loops and unroll factors, against the iterations that the source prescribes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gpulab import cp, session
from virtualgpu.protocol import Launch, Warp
from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.columns import expand_lane_masks
from virtualgpu.records.warp.loops import find_loops

LANES = np.arange(32)
TERMS = 203  # not a multiple of a power of two
KERNEL = """
__device__ float total(const float* x) {
    float sum = 0;
    for (int i = 0; i < 100; ++i) sum += x[i];
    return sum;
}
extern "C" __global__ void k(const float* x, float* y, int n) {
    int t = threadIdx.x;
    float sum = 0;
    LOOP
    y[t] = sum;
}
"""
UNROLLED = {
    "constant": ("#pragma unroll 8\nfor (int k = 0; k < 200; ++k) sum += x[k];", 200),
    "with a remainder": ("#pragma unroll 4\nfor (int k = 0; k < n; ++k) sum += x[k];", TERMS),
    "as long as the lane says": (
        "#pragma unroll 4\nfor (int k = 0; k < n + t; ++k) sum += x[k];",
        TERMS + LANES,
    ),
    "while": ("#pragma unroll 4\nwhile (n > 0) { sum += x[n]; n -= 1; }", TERMS),
}
OTHER = {
    "not unrolled": "#pragma unroll 1\nfor (int k = 0; k < n; ++k) sum += x[k];",
    "a loop in it is unrolled": """
        #pragma unroll 1
        for (int k = 0; k < n; ++k)
            for (int i = 0; i < 4; ++i) sum += x[k + i];""",
    "a function is called twice": """
        #pragma unroll 1
        for (int k = 0; k < 9; ++k) sum += total(x + k) * total(x + 2 * k);""",
    "left by break": """
        #pragma unroll 4
        for (int k = 0; k < n; ++k) { sum += x[k]; if (sum > 50) break; }""",
}


@pytest.fixture(autouse=True)
def virtual() -> Iterator[None]:
    session.use_device("virtual:A100")
    yield
    session.use_device("auto")


def trace_of(loop: str, options: tuple[str, ...] = ()) -> WarpTrace:
    x = cp.ones(1024, dtype=np.float32)
    y = cp.zeros(32, dtype=np.float32)
    kernel = cp.RawKernel(KERNEL.replace("LOOP", loop), "k", options=options)
    trace = session.backend().observe(Launch.of(kernel, 1, 32, (x, y, np.int32(TERMS))), Warp())
    assert trace.detail is not None
    return trace


@pytest.mark.parametrize("name", UNROLLED)
def test_unrolled_iterations_add_up_to_those_of_the_source(name: str) -> None:
    loop, expected = UNROLLED[name]
    trace = trace_of(loop)
    detail = trace.detail
    assert detail is not None
    factor_of_head = dict(zip(detail.loops[:, 0].tolist(), detail.unroll_factors, strict=True))
    assert max(detail.unroll_factors) in (4, 8)
    loops = find_loops(trace)
    iterations = np.zeros(32, int)
    for begin, words in zip(loops.turn_begin.tolist(), loops.words, strict=True):
        factor = factor_of_head[int(detail.order[trace.text_index[begin]])]
        iterations += max(1, factor) * expand_lane_masks(trace.active_mask[[begin]])[0]
        assert ("unrolled" in words) == bool(factor)
        assert not factor or f"each is {factor} in the source" in words
    assert (iterations == expected).all()


@pytest.mark.parametrize("name", OTHER)
def test_other_loops_are_not_marked_as_unrolled(name: str) -> None:
    trace = trace_of(OTHER[name])
    assert trace.detail is not None
    assert not any(trace.detail.unroll_factors)
    assert all("unrolled" not in words for words in find_loops(trace).words)


@pytest.mark.parametrize("options", [("-G",), ()], ids=["for debugging", "optimized"])
@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("#pragma unroll 1\n for (int k = 0; k < 6; ++k) sum += x[k];", 6),
        ("#pragma unroll 1\n for (int k = 0; k < 6; ++k) {\n sum += k;\n }", 6),
        ("#pragma unroll 1\n for (int k = 0; k < 6; ++k) sum = sum * n + k;", 6),
        ("#pragma unroll 1\n while (n > 0) {\n if (n & 1) sum += x[n];\n n /= 2;\n }", 8),
        ("#pragma unroll 1\n do {\n sum += x[n];\n n /= 2;\n } while (n > 0);", 8),
        ("#pragma unroll 1\n for (int k = 0; k < 9; ++k) {\n sum += x[k];\n if (k == 4) break;\n }", 5),
    ],
    ids=["for", "for over lines", "for without loads", "while", "do", "break"],
)
def test_the_final_false_condition_is_not_an_iteration(
    loop: str, expected: int, options: tuple[str, ...]
) -> None:
    loops = find_loops(trace_of(loop, options))
    assert loops.words[-1] == f"iteration {expected} of {expected}"
