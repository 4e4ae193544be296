"""Exercises on a GPU machine: results are taken on the GPU as well, once the twin has passed all else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpulab_course import folders
from gpulab_course.content.n03_lanes.exercises import EXERCISES
from gpulab_course.teach.judge import KernelExercise, ProgramCase, ProgramExercise
from gpulab_course.teach.judge.check import judge
from gpulab_course.teach.judge.kernel import bench, stages

pytestmark = pytest.mark.gpu
BRANCH = EXERCISES[0]
assert isinstance(BRANCH, KernelExercise)


def exercise(name: str) -> KernelExercise:
    found = folders.find_exercise(name)
    assert isinstance(found, KernelExercise)
    return found


@pytest.mark.parametrize("name", ["00-saxpy", "00-picture"])
def test_results_are_also_checked_on_the_gpu(cp: Any, name: str) -> None:
    found = exercise(name)
    mine = cp.arange(1000)
    verdict = judge(found, found.source(found.reference))
    assert verdict, str(verdict)
    assert "The same on the " in verdict.stages[0].said
    assert (mine.get() == np.arange(1000)).all()


def test_a_solution_that_exceeds_its_budget_fails(cp: Any) -> None:
    verdict = judge(BRANCH, BRANCH.source(BRANCH.naive))
    assert verdict.failed_stage == "budget", str(verdict)


def test_a_kernel_that_faults_never_runs_on_the_gpu(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(stages, "launch_on_gpu", lambda *_: ran.append("on the GPU"))
    found = exercise("00-saxpy")
    assert not judge(found, found.source(found.reference).replace("if (i < n)", ""))
    assert not ran
    assert float(cp.ones(4).sum()) == 4, "the context lives"


def test_a_different_result_on_the_gpu_fails(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(*launch: Any) -> Any:
        found, start = bench.launch_on_gpu(*launch)
        return {name: values + 1 for name, values in found.items()}, start

    monkeypatch.setattr(stages, "launch_on_gpu", other)
    found = exercise("00-saxpy")
    verdict = judge(found, found.source(found.reference))
    assert verdict.failed_stage == "results"
    assert ", on the " in verdict.message


def total_case(data: Any, n: int) -> ProgramCase:
    x = data.integer_floats(n)
    return ProgramCase((x,), np.float64(x.sum()))


def total(x: Any) -> Any:
    import cupy

    return float(cupy.asarray(x).sum())


@pytest.mark.hardware("the process that judges takes the computer's own CuPy")
def test_a_program_exercise_also_runs_on_the_gpu(cp: Any) -> None:
    assert cp is not None
    verdict = judge(ProgramExercise("demo", "Demo", "total", total_case, total), total)
    assert verdict, str(verdict)
    assert "The same on the " in verdict.stages[0].said
