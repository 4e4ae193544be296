"""Kernel costs are counted in random launches, so answers cannot be special-cased for the score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpulab_course import folders
from gpulab_course.teach.judge import Budget, Case, DataGenerator, KernelExercise, MeasuredLaunch, draw
from gpulab_course.teach.judge.check import judge
from virtualgpu.compile import nvrtc

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

COPY = 'extern "C" __global__ void copied(const float* x, float* y, int n) {{ {} }}'
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
GOOD = "if (i < n) y[i] = x[i];"
ALONE = "if (i == 0) for (int k = 0; k < n; ++k) y[k] = x[k];"
# Lanes 33 elements apart: the same result, many more sectors.
APART = (
    "int T = gridDim.x * blockDim.x, each = (n + T - 1) / T * 4; for (int k = i * each; k < i * each"
    " + each && k < n; ++k) y[k] = x[k];"
)


def copied(data: DataGenerator, n: int, block: Any) -> Case:
    x = data.floats(n)
    return Case(draw.count_blocks(n, block[0]), {"x": x, "n": n}, {"y": x})


class Copied(KernelExercise):
    def source(self, file: str) -> str:
        return COPY.format(f"{INDEX} {GOOD}")


EXERCISE = Copied(
    "demo",
    "Demo",
    "copied",
    "const float* x, float* y, int n",
    copied,
    "-",
    budgets=(Budget("sectors"),),
    measured_launch=MeasuredLaunch(4096, (256, 1, 1)),
)


@needs_nvrtc
@pytest.mark.parametrize("special", ["n == 4096", "blockDim.x == 256", "n == 4096 && blockDim.x == 256"])
@pytest.mark.parametrize(("bad", "stage"), [(ALONE, "parallelism"), (APART, "budget")])
def test_a_special_case_for_the_scored_launch_fails(special: str, bad: str, stage: str) -> None:
    cheat = COPY.format(f"{INDEX} if ({special}) {{ {GOOD} }} else {{ {bad} }}")
    verdict = judge(EXERCISE, cheat)
    assert verdict.failed_stage == stage, str(verdict)
    assert "n = 4,096," not in verdict.message


@needs_nvrtc
def test_a_kernel_that_is_slow_only_at_large_sizes_fails() -> None:
    cheat = COPY.format(f"{INDEX} if (n < 50000) {{ {GOOD} }} else {{ {APART} }}")
    verdict = judge(EXERCISE, cheat)
    assert verdict.failed_stage == "budget", str(verdict)


@needs_nvrtc
def test_a_serial_special_case_for_small_sizes_fails() -> None:
    verdict = judge(EXERCISE, COPY.format(f"{INDEX} if (n > 900) {{ {GOOD} }} else {{ {ALONE} }}"))
    assert verdict.failed_stage == "parallelism", str(verdict)


@needs_nvrtc
def test_a_kernel_with_seven_of_eight_blocks_idle_fails() -> None:
    eighth = COPY.format(
        "int each = blockDim.x * 8, first = blockIdx.x / 8 * each; if (blockIdx.x % 8 == 0)"
        " for (int k = threadIdx.x; k < each && first + k < n; k += blockDim.x) y[first + k] = x[first + k];"
    )
    verdict = judge(EXERCISE, eighth)
    assert verdict.failed_stage == "parallelism", str(verdict)
    assert "few threads do the work of many" in verdict.message
    # The same number of instructions in every warp is not reported as imbalance.
    costly = COPY.format(f"{INDEX} if (i < n) {{ float v = x[i]; y[i] = powf(v, 1) + 0 * sinf(v * 0); }}")
    verdict = judge(
        replace(EXERCISE, measured_launch=MeasuredLaunch(4096, (256, 1, 1), max_instruction_factor=40)),
        costly,
    )
    assert "few threads" not in verdict.message


GROUPED = """extern "C" __global__ void copied(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, other = 7;
    if (lane < 16) other = __shfl_down_sync(0xffffffff, i, 16);
    if (i < n) y[i] = {} ? 0 : x[i];
}}"""


@needs_nvrtc
def test_shuffle_from_an_inactive_lane_fails_only_if_used() -> None:
    exercise = replace(EXERCISE, blocks=draw.draw_warp_blocks)
    assert judge(exercise, GROUPED.format("lane > 16 && other != 7"))
    verdict = judge(exercise, GROUPED.format("lane < 16 && other != i + 16"))
    assert verdict.failed_stage == "hazards", str(verdict)
    assert "does not execute the shuffle" in verdict.message


@needs_nvrtc
def test_parameters_differ_between_launches() -> None:
    code = 'extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {'
    verdict = judge(
        folders.list_exercises()["00-saxpy"], f"{code} {INDEX} if (i < n) y[i] += fabsf(a) * x[i]; }}"
    )
    assert verdict.failed_stage == "results", str(verdict)


@needs_nvrtc
def test_waiting_blocks_are_run_with_more_blocks_than_are_resident() -> None:
    """A kernel that uses its block index instead of a ticket fails only if some blocks must wait to start."""
    scan = folders.list_exercises()["06-scan"]
    assert isinstance(scan, KernelExercise)
    code = scan.source(scan.reference).replace(
        "atomicAdd(state, 1)", "n < 9000 ? atomicAdd(state, 1) : blockIdx.x"
    )
    verdict = judge(scan, code)
    assert verdict.failed_stage == "orders"
    assert "take a ticket" in verdict.message
