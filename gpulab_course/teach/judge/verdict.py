"""The result of a check, displayed as a sentence, as a table of stages, and as HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from typing import Literal

from gpulab.views.parts.card import make_card
from gpulab.views.tables import Table
from gpulab_course.teach import page
from gpulab_course.teach.judge.budget import Score

State = Literal["passed", "failed", "not reached"]

_STATE_SIGNS: dict[State, str] = {"passed": "✓", "failed": "✗", "not reached": "–"}


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of one stage of a check, with its state (passed, failed or not reached) and a message."""

    name: str
    state: State
    said: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check, which is true in a boolean context if the answer passed.

    The function ``repr`` returns one sentence, which is the same in each run, and ``print`` also shows the
    stages. ``failed_stage`` is empty for an answer that passed, or that could not be tested at all.
    """

    exercise_id: str
    passed: bool
    message: str
    stages: tuple[StageResult, ...] = ()
    scores: tuple[Score, ...] = ()

    def __bool__(self) -> bool:
        return self.passed

    @property
    def opening(self) -> str:
        return f"{self.exercise_id}: {'passed' if self.passed else 'not yet'}:"

    @property
    def failed_stage(self) -> str:
        """The name of the failed stage that the message explains, or an empty string if no stage failed."""
        return next((stage.name for stage in reversed(self.stages) if stage.state == "failed"), "")

    def _list_rows(self) -> list[StageResult]:
        """Return the rows of the table of stages; all stages that were not reached share one row."""
        rows = [
            replace(stage, said="see above") if stage.said == self.message else stage
            for stage in self.stages
            if stage.state != "not reached"
        ]
        unreached_names = ", ".join(stage.name for stage in self.stages if stage.state == "not reached")
        return (
            [*rows, StageResult("not reached", "not reached", unreached_names)] if unreached_names else rows
        )

    @property
    def _golf_scores(self) -> list[Score]:
        return [score for score in self.scores if score.golf]

    def __repr__(self) -> str:
        return f"{self.opening} {self.message}"

    def __str__(self) -> str:
        width = max((len(row.name) for row in self._list_rows()), default=0)
        lines = [
            f"  {_STATE_SIGNS[stage.state]} {stage.name:{width}}  {stage.said}" for stage in self._list_rows()
        ]
        return "\n".join(
            [repr(self), *lines, *(f"  score: {score.comparison_text}" for score in self._golf_scores)]
        )

    def _repr_html_(self) -> str:
        verdict_html = page.render_verdict(self.opening, self.message, self.passed)
        if not self.stages:
            return verdict_html
        rows = tuple((f"{_STATE_SIGNS[row.state]} {row.name}", row.said) for row in self._list_rows())
        scores = "".join(
            f"<p><b>Score:</b> {html.escape(score.comparison_text)}</p>" for score in self._golf_scores
        )
        return make_card(
            f"Check of {self.exercise_id}", verdict_html, Table("", ("stage", "found"), rows).html(), scores
        )
