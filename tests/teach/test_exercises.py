"""Every exercise rejects the typical wrong answers, each with the message that helps.

That the folded solutions pass is tested with the notebooks (`tests/notebooks/test_solutions.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from gpulab.teach import check
from gpulab.teach.folders import exercises

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def saxpy(body: str) -> str:
    return f'extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {{ {INDEX} {body} }}'


def scale2d(body: str) -> str:
    return (
        'extern "C" __global__ void scale2d(const float* x, float* y, int rows, int cols) {'
        "int col = blockIdx.x * blockDim.x + threadIdx.x;"
        f"int row = blockIdx.y * blockDim.y + threadIdx.y; {body} }}"
    )


def warp_sum(body: str) -> str:
    return f'extern "C" __global__ void warp_sum(const int* x, int* out, int n) {{ {INDEX} {body} }}'


def count_positive(body: str) -> str:
    return f'extern "C" __global__ void count_positive(const float* x, int* out, int n) {{ {INDEX} {body} }}'


SHUFFLES = "for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);"
BALLOT = "unsigned b = __ballot_sync(0xffffffff, i < n && x[i] > 0.0f);"

WRONG_PYTHON = [
    ("00-blocks", lambda n, t: n // t, "blocks_for(1, 256) returns 0: 0 × 256 = 0 threads leave 1 elements"),
    ("00-blocks", lambda n, t: n // t + 1, "blocks_for(256, 256) returns 2, but 1 block is enough"),
    ("00-blocks", lambda n, t: n / t, "whole numbers; use // instead of /"),
    ("00-blocks", lambda n: n, "blocks_for(1, 256) raised TypeError"),
    ("00-blocks", lambda n, t: None, "returns nothing; replace the TODO"),
    ("00-blocks", 4, "should be a function, not int"),
    ("01-capability", lambda t: (int(t[0]), int(t[1:])), "the minor version is always the last one"),
    ("01-capability", lambda t: int(t) / 10, "a version is a pair"),
    ("01-capability", lambda t: (t[:-1], t[-1]), "return whole numbers"),
    ("01-capability", lambda t: (int(t[0]), int(t[1])), "parse_capability('100') returns (1, 0)"),
    ("02-waves", lambda b, p, s: divmod(b, s), "a wave is 2 × 108 blocks"),
    ("02-waves", lambda b, p, s: b / (p * s), "return two numbers"),
    ("02-waves", lambda b, p, s: (-(-b // (p * s)), b % (p * s)), "waves(217, 2, 108) returns (2, 1)"),
]


def limits(threads: Any = "x * y * z", above: str = ">", most: str = "info.max_threads_per_block") -> Any:
    """A `first_problem` with one part of it made wrong."""

    def first_problem(info: Any, grid: Any, block: Any, shared_bytes: int) -> str:
        x, y, z = block
        scope = {"x": x, "y": y, "z": z, "info": info}
        if eval(f"({threads}) {above} ({most})", scope):
            return "threads"
        if any(size > limit for size, limit in zip(block, info.max_block_dim, strict=True)):
            return "block"
        if any(size > limit for size, limit in zip(grid, info.max_grid_dim, strict=True)):
            return "grid"
        return "shared" if shared_bytes > info.shared_per_block_bytes else "ok"

    return first_problem


WRONG_LIMITS = [
    (limits(above=">="), "a limit may be reached, not passed"),
    (limits(threads="max(x, y, z)"), "x × y × z counts, not each alone"),
    (limits(most="1024"), "it does not read info.max_threads_per_block"),
    (lambda info, grid, block, shared: "ok", "a block has at most"),
]

WRONG_KERNELS = [
    ("00-saxpy", saxpy("// TODO"), "still has its TODO"),
    ("00-saxpy", saxpy("y[i] = a * x[i] + y[i];"), "guard with `if (i < n)`"),
    ("00-saxpy", saxpy("if (i < n) y[i] = a * x[i];"), "the old y is missing from the sum"),
    ("00-saxpy", saxpy("if (i < n - 1) y[i] = a * x[i] + y[i];"), "y[127] is"),
    ("00-saxpy", saxpy("if (i < n) { float z = a * x[i] + y[i]; }"), "y is unchanged"),
    ("00-saxpy", saxpy("if (i < n) y[i] = a * x[i] + y[i]"), "it does not compile"),
    ("00-saxpy", 3, "pass the kernel itself"),
    ("02-index", scale2d("y[row * cols + col] = 2 * x[row * cols + col];"), "guard the row and the column"),
    (
        "02-index",
        scale2d("if (row < rows && col < cols) { int i = row * rows + col; y[i] = 2 * x[i]; }"),
        "the index is row * cols + col",
    ),
    (
        "02-index",
        scale2d("if (col < cols) { int i = row * cols + col; y[i] = 2 * x[i]; }"),
        "guard the row and the column",
    ),
    ("03-warp-sum", warp_sum("if (i < n) atomicAdd(&out[i / 32], x[i]);"), "it uses atomicAdd"),
    (
        "03-warp-sum",
        warp_sum(f"int v = i < n ? x[i] : 0; {SHUFFLES} if (threadIdx.x == 0) out[blockIdx.x] = v;"),
        "only out[0] is written",
    ),
    (
        "03-warp-sum",
        warp_sum(
            "int v = i < n ? x[i] : 0;"
            "for (int d = 8; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);"
            "if (threadIdx.x % 32 == 0) out[i / 32] = v;"
        ),
        "The offsets are 16, 8, 4, 2, 1",
    ),
    (
        "03-warp-sum",
        warp_sum(f"if (i >= n) return; int v = x[i]; {SHUFFLES} if (threadIdx.x % 32 == 0) out[i / 32] = v;"),
        "",
    ),
    (
        "03-warp-sum",
        warp_sum(f"int v = x[i]; {SHUFFLES} if (threadIdx.x % 32 == 0) out[i / 32] = v;"),
        "must not load",
    ),
    ("03-count", count_positive(f"{BALLOT} atomicAdd(out, __popc(b));"), "too many lanes add the same vote"),
    ("03-count", count_positive("if (i < n && x[i] > 0.0f) atomicAdd(out, 1);"), "each lane adds for itself"),
    (
        "03-count",
        count_positive(f"{BALLOT} if (threadIdx.x == 0) atomicAdd(out, __popc(b));"),
        "which lanes were left out?",
    ),
]


def rejected(name: str, answer: Any) -> str:
    verdict = check(name, answer)
    assert not verdict
    assert "\n" not in verdict.message
    return verdict.message


@pytest.mark.parametrize(("name", "answer", "message"), WRONG_PYTHON)
def test_wrong_functions_get_their_message(name: str, answer: Any, message: str) -> None:
    assert message in rejected(name, answer)


@pytest.mark.parametrize(("answer", "message"), WRONG_LIMITS)
def test_wrong_limits_get_their_message(answer: Any, message: str) -> None:
    assert message in rejected("01-limits", answer)


@pytest.mark.parametrize(("name", "answer", "message"), WRONG_KERNELS)
def test_wrong_kernels_get_their_message(name: str, answer: Any, message: str) -> None:
    assert message in rejected(name, answer)


def test_each_exercise_is_tried_with_two_wrong_answers_at_least() -> None:
    tried = [name for name, _, _ in [*WRONG_PYTHON, *WRONG_KERNELS]] + ["01-limits"] * len(WRONG_LIMITS)
    assert not [name for name in exercises() if tried.count(name) < 2]


def test_an_endless_kernel_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.teach import checking

    monkeypatch.setattr(checking, "TIME_LIMIT_S", 3.0)
    message = rejected("00-saxpy", saxpy("while (true) { if (i == -1) y[0] = a; }"))
    assert "did not" in message or "stopped" in message or "cudaErrorLaunchTimeout" in message
