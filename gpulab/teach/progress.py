"""How far a learner has come."""

from __future__ import annotations

from dataclasses import dataclass

from gpulab.teach import folders
from gpulab.teach.store import store
from gpulab.views.tables import Table


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
        quizzes = "1 quiz" if len(self.quizzes) == 1 else f"{len(self.quizzes)} quizzes"
        predictions = "1 prediction" if self.predictions == 1 else f"{self.predictions} predictions"
        return (
            f"Progress: {self.passed} of {len(self.exercises)} exercises passed, "
            f"{quizzes} finished, {predictions} locked."
        )

    def __str__(self) -> str:
        lines = [repr(self)]
        for name, done in self.exercises.items():
            lines.append(f"  [{'x' if done else ' '}] {name}")
        for topic, (right, count) in self.quizzes.items():
            lines.append(f"  quiz {topic}: {right} of {count} right first time")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [(name, "✓ passed" if done else "open") for name, done in self.exercises.items()]
        rows += [(f"quiz {topic}", f"{r} of {n} right first time") for topic, (r, n) in self.quizzes.items()]
        return Table(repr(self), ("exercise or quiz", "so far"), tuple(rows)).html()


def progress() -> Progress:
    """What this learner has done so far, from the notes kept on this computer (``GPULAB_HOME``).

    Returns
    -------
    Progress
        Which exercises have passed, the quizzes' results and the number of locked predictions; a table
        in JupyterLab, the same as text with ``print``.
    """
    kept = store()
    quizzes = {}
    for topic in folders.quizzes():
        result = kept.get("quizzes", topic)
        if isinstance(result, dict):
            quizzes[topic] = (int(result.get("right", 0)), int(result.get("questions", 0)))
    return Progress(
        exercises={name: bool(kept.get("exercises", name)) for name in folders.exercises()},
        quizzes=quizzes,
        predictions=len(kept.section("predictions")),
    )
