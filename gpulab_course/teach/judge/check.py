"""Implementation of ``gl.check``: judge an answer, and store the result and the best scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpulab_course.teach.first_lines import limit_printed_lines
from gpulab_course.teach.judge import past, scores
from gpulab_course.teach.judge.exercise import Exercise, KernelExercise
from gpulab_course.teach.judge.kernel.stages import judge_kernel
from gpulab_course.teach.judge.past import PastFailures
from gpulab_course.teach.judge.python.apart import judge_in_process
from gpulab_course.teach.judge.verdict import Verdict
from gpulab_course.teach.store import store
from virtualgpu.errors import GpulabError

_STORE_SECTION = "exercises"


class UnknownExerciseError(GpulabError, ValueError):
    """Error for an unknown exercise. The message suggests the most similar name."""


def check(exercise: Exercise, answer: Any) -> Verdict:
    """Judge an answer. Store its result and its best scores in the learner's file.

    The judge first tries the data on which the last answer failed.
    """
    name = exercise.exercise_id
    verdict = judge(exercise, answer, past.get_past_failures(name))
    if verdict:
        past.forget_failures(name)
    return _store_verdict(exercise, verdict)


def judge(exercise: Exercise, answer: Any, past: PastFailures | None = None) -> Verdict:
    """Judge an answer without changing the learner's file. The object `past` stores the data on which the
    answer fails.
    """
    past = past or PastFailures()
    if answer is None or answer is ...:
        return Verdict(exercise.exercise_id, False, "nothing to check; replace the TODO with your answer.")
    if not isinstance(exercise, KernelExercise):
        return judge_in_process(exercise, answer, past)
    try:
        with limit_printed_lines():
            return judge_kernel(exercise, answer, past)
    except KeyboardInterrupt:
        return Verdict(exercise.exercise_id, False, "you stopped the check.")


def _store_verdict(exercise: Exercise, verdict: Verdict) -> Verdict:
    """Store a passed exercise and its best scores, and return the verdict with those best scores."""
    learner_store = store()
    name = verdict.exercise_id
    if verdict.passed or not learner_store.get(_STORE_SECTION, name):
        learner_store.put(_STORE_SECTION, name, verdict.passed)
    best_counts = scores.read_best_scores(exercise)
    golf_counts = {score.counter: score.yours for score in verdict.scores if score.golf}
    if verdict.passed and golf_counts:
        best_counts |= {
            counter: min(count, best_counts.get(counter, count)) for counter, count in golf_counts.items()
        }
        scores.store_best_scores(exercise, best_counts)
    return replace(verdict, scores=tuple(replace(s, best=best_counts.get(s.counter)) for s in verdict.scores))
