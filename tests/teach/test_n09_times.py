"""Example programs of notebook 09: stages equal NumPy, and each program has its stated bottleneck."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import gpulab as gl
from gpulab.lab.timeline import TimelineReport
from gpulab_course.content.n07_streams.work import simmer_by_numpy
from gpulab_course.content.n09_profiling.times import exercises, stages
from tests.answers import Right
from tests.answers.n09_profiling import times
from virtualgpu.compile import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


@pytest.fixture(autouse=True, params=["T4", "H100"])
def virtual(request: pytest.FixtureRequest) -> None:
    gl.use_device(f"virtual:{request.param}")


@pytest.mark.parametrize("name", stages.STAGE_NAMES)
def test_a_stage_equals_its_numpy_version(name: str) -> None:
    x = np.random.default_rng(1).random(77, dtype=np.float32)
    array = gl.cp.asarray(x)
    stages.run(name, array, 3, blocks=2)
    assert np.allclose(array.get(), simmer_by_numpy(x, 3), rtol=1e-4)


def recorded(key: str) -> TimelineReport:
    """Return the timeline of a warm run of a program."""
    program = exercises.PROGRAMS[key][1]
    program(*exercises.arguments(key, True, 0))
    array = exercises.arguments(key, True, 0)
    gl.cp.cuda.Device().synchronize()
    with gl.timeline() as t:
        program(*array)
    return t


@pytest.mark.parametrize(("key", "cause"), [("A", "launch-bound"), ("C", "hidden synchronisation")])
def test_gaps_of_a_program_have_the_cause_expected_by_the_exercise(key: str, cause: str) -> None:
    idle: Counter[str] = Counter()
    for gap in recorded(key).gaps():
        if gap.where == "compute":
            idle[gap.cause] += gap.duration_ns
    assert idle.most_common(1)[0][0] == cause


def test_the_second_program_copies_for_longer_than_it_computes() -> None:
    ran = recorded("B").record.activities
    copies = sum(a.duration_ns for a in ran if a.copy_kind == "HtoD")
    assert copies > sum(a.duration_ns for a in ran if a.kind == "CONCURRENT_KERNEL")


def test_the_fix_of_the_last_program_uses_several_streams() -> None:
    right = next(
        answer.answer
        for answer in times.DECLARED
        if answer.exercise_id == "09-timelines" and isinstance(answer, Right)
    )
    result = exercises.run_pair(right, "D", 3)
    assert result["before/counts"]["one stream"] == 1
    assert result["after/counts"]["one stream"] > 1
    assert result["after"] < result["before"]
    assert result["hazards/True"] == []
