"""A learner's best scores, each valid under the rules of its time."""

from __future__ import annotations

from typing import Any

from gpulab_course.teach.judge.exercise import Exercise
from gpulab_course.teach.store import store

_SECTION = "scores"


def best(exercise: Exercise) -> dict[str, int]:
    """Return the best scores by counter; scores under other rules are dropped, in the store as well.

    An answer that passed under old rules may fail today, and its score could never be beaten.
    """
    record: Any = store().get(_SECTION, exercise.exercise_id)
    rules = getattr(exercise, "rules", 0)
    if isinstance(record, dict) and record.get("rules") == rules and isinstance(record.get("best"), dict):
        return dict(record["best"])
    if record is not None:
        store().forget(_SECTION, exercise.exercise_id)
    return {}


def keep(exercise: Exercise, values: dict[str, int]) -> None:
    """Store the best scores, with the rules under which they were reached."""
    record = {"rules": getattr(exercise, "rules", 0), "best": values}
    store().put(_SECTION, exercise.exercise_id, record)
