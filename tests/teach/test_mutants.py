"""Every exercise is checked with the wrong and right answers that `tests/answers` has for its notebook.

A module there has `WRONG`, each with the stage that must catch it and words of the sentence
it earns, and `RIGHT`. `make test` judges a fixed sample of them with one draw of data, `make test-all` all of
them with five draws. That the folded solutions pass is tested with the notebooks.
"""

from __future__ import annotations

import importlib
import itertools
import os
from typing import Any

import numpy as np
import pytest

from gpulab_course import folders
from gpulab_course.teach.judge import KernelExercise
from gpulab_course.teach.judge.check import judge
from gpulab_course.teach.judge.past import PastFailures
from tests.answers import Right, Wrong
from tools import sample
from virtualgpu.compile import nvrtc

LEAST_WRONG, LEAST_RIGHT = 8, 4
# The number of random data sets per answer. `make test-all` sets GPULAB_TEST_ALL.
DRAWS = 5 if os.environ.get(sample.ALL) and not sample.is_on() else 1
# The sample has one of this many wrong and right answers of each exercise, and at least one.
ONE_IN = 16

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


def declared() -> dict[str, tuple[list[Wrong], list[Right]]]:
    """Return the wrong and the right answers of each exercise."""
    exercise: dict[str, tuple[list[Wrong], list[Right]]] = {
        name: ([], []) for name in folders.list_exercises()
    }
    for folder in folders.list_folders():
        module: Any = importlib.import_module(f"tests.answers.{folder.path.name}")
        for wrong in module.WRONG:
            exercise[wrong.exercise_id][0].append(wrong)
        for right in module.RIGHT:
            exercise[right.exercise_id][1].append(right)
    return exercise


DECLARED = declared()


def sampled(name: str) -> tuple[list[Wrong], list[Right]]:
    """Return the answers to an exercise that this run checks."""
    wrong, right = DECLARED[name]

    def label(answer: Wrong | Right) -> str:
        return f"{name}: {answer.what}"

    return sample.draw_sample(wrong, ONE_IN, label), sample.draw_sample(right, ONE_IN, label)


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_declared_wrong_answers_fail_and_right_ones_pass(name: str, record_property: Any) -> None:
    exercise = folders.list_exercises()[name]
    wrong, right = sampled(name)
    misjudged = []
    for wrong_, number in itertools.product(wrong, range(DRAWS)):
        verdict = judge(exercise, wrong_.answer, PastFailures(skipped_draws=number))
        if verdict or verdict.failed_stage != wrong_.stage or wrong_.says not in verdict.message:
            misjudged.append(f"{wrong_.what}, draw {number}: [{verdict.failed_stage}] {verdict!r}")
        if "\n" in verdict.message:
            misjudged.append(f"{wrong_.what}: more than a line")
    for right_, number in itertools.product(right, range(DRAWS)):
        verdict = judge(exercise, right_.answer, PastFailures(skipped_draws=number))
        if not verdict:
            misjudged.append(f"{right_.what}, draw {number}: [{verdict.failed_stage}] {verdict!r}")
    record_property("figure", f"{name}: {len(wrong)} wrong and {len(right)} right answers")
    assert not misjudged, "\n" + "\n".join(misjudged)


def test_enough_wrong_and_right_answers_are_declared() -> None:
    for name, (wrong, right) in DECLARED.items():
        assert len(wrong) >= LEAST_WRONG, name
        assert len(right) >= LEAST_RIGHT, name
        assert len({answer.what for answer in [*wrong, *right]}) == len(wrong) + len(right), name


def test_wrong_answers_shown_to_instructors_are_declared() -> None:
    every = [wrong_ for wrong, _ in DECLARED.values() for wrong_ in wrong]
    tried = {(wrong_.exercise_id, wrong_.what, wrong_.stage, wrong_.says) for wrong_ in every}
    for folder in folders.list_folders():
        shown_answers = {
            (wrong_.exercise_id, wrong_.mistake, wrong_.stage, wrong_.message)
            for wrong_ in folder.shown_answers
        }
        assert shown_answers <= tried
        assert {wrong_[0] for wrong_ in shown_answers} == set(folder.exercises)


ASKED = sorted(
    name for name, exercise in folders.list_exercises().items() if not isinstance(exercise, KernelExercise)
)


@pytest.mark.parametrize("name", sample.draw_sample(ASKED, 6))
def test_unexpected_result_types_do_not_crash_the_check(name: str) -> None:
    several = np.array([1, 2])
    for returned in (several, (several, several), {"A": several}):
        verdict = judge(folders.list_exercises()[name], lambda *_, returned=returned, **__: returned)
        assert not verdict
        assert "a fault of gpulab" not in verdict.message


KERNELS = sorted(
    name for name, exercise in folders.list_exercises().items() if isinstance(exercise, KernelExercise)
)


@pytest.mark.parametrize("name", sample.draw_sample(KERNELS, 6))
def test_the_reference_passes_and_the_naive_version_exceeds_its_budget(name: str) -> None:
    exercise = folders.list_exercises()[name]
    assert isinstance(exercise, KernelExercise)
    reference = judge(exercise, exercise.source(exercise.reference))
    assert reference, str(reference)
    if not exercise.naive:
        return
    # The naive version must differ from the reference in at least one counter.
    assert any(score.naive != score.reference for score in reference.scores)
    verdict = judge(exercise, exercise.source(exercise.naive))
    assert [stage.state for stage in verdict.stages[:4]] == [*["passed"] * 3, "failed"], str(verdict)
