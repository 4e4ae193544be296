"""What cards with kernels share: an exercise of the course judges the answer."""

from __future__ import annotations

import importlib
from typing import Any

import gpulab.course
from gpulab.teach import folders
from gpulab.teach.interview import Outcome
from gpulab.teach.judge import KernelExercise, Wrong
from gpulab.teach.judge.check import judge
from gpulab.teach.judge.verdict import Verdict

# What an answer is worth that fails in a stage.
_WORTH = {"results": 0.0, "orders": 0.25, "hazards": 0.35, "budget": 0.6, "parallelism": 0.5}


def exercise(name: str) -> KernelExercise:
    """A kernel exercise of the course."""
    found = folders.exercise(name)
    assert isinstance(found, KernelExercise), name
    return found


def outcome(name: str, code: str) -> Outcome:
    """Let the exercise judge a kernel, in all of its stages."""
    verdict = judge(exercise(name), code)
    worth = 1.0 if verdict else _WORTH.get(verdict.failed_stage, 0.0)
    stages = ", ".join(f"{stage.name} {stage.state}" for stage in verdict.stages)
    label = f"judged as {name}" + (f": {stages}" if stages else "")
    return Outcome(worth, verdict.passed, verdict.message, label)


def verdict_of(name: str, code: str) -> Verdict:
    """What the exercise says of a kernel."""
    return judge(exercise(name), code)


def wrong_answers(name: str) -> list[Wrong]:
    """The shipped wrong answers to an exercise that fail in a stage, and are text."""
    folder = next(folder for folder in folders.folders() if folder.number == name[:2])
    module: Any = importlib.import_module(f"{gpulab.course.__name__}.{folder.path.name}.mutants")
    return [
        one for one in module.WRONG if one.exercise_id == name and one.stage and isinstance(one.answer, str)
    ]
