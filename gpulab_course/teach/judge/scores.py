"""Storage of a learner's best scores; a score is valid for one version of the exercise's rules."""

from __future__ import annotations

from typing import Any

from gpulab_course.teach.judge.exercise import Exercise
from gpulab_course.teach.store import store

_STORE_SECTION = "scores"


def read_best_scores(exercise: Exercise) -> dict[str, int]:
    """Return the learner's best scores by counter. Scores that were reached under other rules are deleted.

    An answer that passed under older rules may fail today, so its score could be impossible to beat.
    """
    record: Any = store().get(_STORE_SECTION, exercise.exercise_id)
    rules_version = getattr(exercise, "rules", 0)
    if (
        isinstance(record, dict)
        and record.get("rules") == rules_version
        and isinstance(record.get("best"), dict)
    ):
        return dict(record["best"])
    if record is not None:
        store().forget(_STORE_SECTION, exercise.exercise_id)
    return {}


def store_best_scores(exercise: Exercise, best_scores: dict[str, int]) -> None:
    """Store new best scores with the version of the exercise's rules, because other rules make them
    invalid.
    """
    record = {"rules": getattr(exercise, "rules", 0), "best": best_scores}
    store().put(_STORE_SECTION, exercise.exercise_id, record)
