"""How far a learner has come."""

from __future__ import annotations

from dataclasses import dataclass

from gpulab.teach.store import store


@dataclass(frozen=True, slots=True)
class Progress:
    """Exercises passed, quizzes finished and predictions locked so far."""

    exercises: dict[str, bool]
    quizzes: dict[str, tuple[int, int]]
    predictions: int

    @property
    def passed(self) -> int:
        return sum(self.exercises.values())

    def __repr__(self) -> str:
        return (
            f"Progress: {self.passed} of {len(self.exercises)} exercises passed, "
            f"{len(self.quizzes)} quizzes finished, {self.predictions} predictions locked."
        )

    def __str__(self) -> str:
        lines = [repr(self)]
        for name, done in self.exercises.items():
            lines.append(f"  [{'x' if done else ' '}] {name}")
        for topic, (right, count) in self.quizzes.items():
            lines.append(f"  quiz {topic}: {right} of {count} right first time")
        return "\n".join(lines)


def progress() -> Progress:
    """What this learner has done, from the learner's store."""
    from gpulab.teach.exercises import EXERCISES
    from gpulab.teach.quizzes import QUIZZES

    kept = store()
    quizzes = {}
    for topic in QUIZZES:
        result = kept.get("quizzes", topic)
        if isinstance(result, dict):
            quizzes[topic] = (int(result.get("right", 0)), int(result.get("questions", 0)))
    return Progress(
        exercises={name: bool(kept.get("exercises", name)) for name in EXERCISES},
        quizzes=quizzes,
        predictions=len(kept.section("predictions")),
    )
