"""How far a learner has come."""

from __future__ import annotations

import html
from dataclasses import dataclass

from gpulab.teach import folders
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
        rows += [
            (f"quiz {topic}", f"{right} of {count} right first time")
            for topic, (right, count) in self.quizzes.items()
        ]
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(state)}</td></tr>'
            for name, state in rows
        )
        return f"<p>{html.escape(repr(self))}</p><table>{cells}</table>"


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
