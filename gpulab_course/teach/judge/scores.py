"""A learner's best scores, each valid under the rules that it was reached under."""

from __future__ import annotations

from typing import Any

from gpulab_course.teach.judge.exercise import Exercise
from gpulab_course.teach.store import store

_SECTION = "scores"


def best(exercise: Exercise) -> dict[str, int]:
    """Return the best scores by counter; scores under other rules are dropped, in the store as well.

    What passed under them may be wrong by those of today, and no right answer could ever beat it.
    """
    kept: Any = store().get(_SECTION, exercise.exercise_id)
    rules = getattr(exercise, "rules", 0)
    if isinstance(kept, dict) and kept.get("rules") == rules and isinstance(kept.get("best"), dict):
        return dict(kept["best"])
    if kept is not None:
        store().forget(_SECTION, exercise.exercise_id)
    return {}


def keep(exercise: Exercise, figures: dict[str, int]) -> None:
    """Keep best figures, with the rules that they were reached under."""
    kept = {"rules": getattr(exercise, "rules", 0), "best": figures}
    store().put(_SECTION, exercise.exercise_id, kept)
