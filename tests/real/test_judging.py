"""Where a real GPU is in use, kernels are judged on its twin, and then take their results on the GPU, too."""

from __future__ import annotations

from typing import Any

import pytest

import gpulab as gl
from gpulab_course.content.n03_lanes.exercises import EXERCISES
from gpulab_course.teach.judge import KernelExercise
from gpulab_course.teach.judge.check import judge

pytestmark = pytest.mark.gpu

BRANCH = EXERCISES[0]
assert isinstance(BRANCH, KernelExercise)


@pytest.fixture(autouse=True)
def on_the_gpu() -> Any:
    pytest.importorskip("cupy")
    assert gl.use_device("auto").kind == "cuda"
    yield
    gl.use_device("auto")


def test_every_stage_is_judged_beside_a_gpu_and_the_results_on_it() -> None:
    verdict = judge(BRANCH, BRANCH.source(BRANCH.reference))
    assert verdict, str(verdict)
    assert f"The same on the {gl.which_device().device}" in verdict.stages[0].said
    assert [score.yours for score in verdict.scores] == [score.reference for score in verdict.scores]


def test_a_budget_that_is_not_kept_is_a_verdict_beside_a_gpu_too() -> None:
    verdict = judge(BRANCH, BRANCH.source(BRANCH.naive))
    assert not verdict
    assert verdict.failed_stage == "budget", str(verdict)


def test_arrays_of_the_gpu_outlive_a_check() -> None:
    mine = gl.cp.arange(5)
    judge(BRANCH, BRANCH.source(BRANCH.reference))
    assert mine.sum() == 10
