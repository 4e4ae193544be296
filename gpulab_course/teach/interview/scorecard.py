"""The scorecard of an interview: coverage times calibration, as a sentence, a table and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpulab.views._saving import Savable, Writers, make_text_writer
from gpulab.views.tables import Table
from gpulab.words import count, percent
from gpulab_course.teach.interview.cards import LEVELS

CONFIDENCE_BY_CERTAINTY = {True: 0.9, False: 0.5}
"""The probability of being right that "I am sure" and "I guess" stand for."""


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of one interview question, with the answer, the candidate's certainty and the merit."""

    question: str
    said: Any
    sure: bool
    right: bool
    merit: float
    told: str
    origin: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CardResult:
    """The result of one interview card, with the answers and the rubric points that were ticked."""

    key: str
    kind: str
    level: str
    parameters: dict[str, Any]
    parts: tuple[PartResult, ...]
    points: tuple[str, ...]
    ticked: tuple[int, ...]
    asked: int
    words: str = ""

    @property
    def is_done(self) -> bool:
        """Return whether the candidate has answered all questions of the card."""
        return len(self.parts) == self.asked

    @property
    def coverage(self) -> float:
        """The mean merit of the card's answers. The share of ticked rubric points determines a quarter of
        this value.

        Points count in proportion to the merit, because ticks are not checked.
        """
        mean_merit = sum(part_result.merit for part_result in self.parts) / self.asked
        ticked_share = len(self.ticked) / len(self.points) if self.points else 1.0
        return mean_merit * (3 + ticked_share) / 4

    @property
    def calibration(self) -> float:
        """1 minus the Brier score, which is the mean squared difference between the candidate's certainty and
        the result.
        """
        return compute_calibration(self.parts)

    @property
    def score(self) -> float:
        """The score of the card, which is its coverage multiplied by its calibration."""
        return self.coverage * self.calibration

    @property
    def is_well_answered(self) -> bool:
        """Return whether all answers are right and sure, and at least half of the points are ticked."""
        is_right_and_sure = self.is_done and all(
            part_result.right and part_result.sure for part_result in self.parts
        )
        return is_right_and_sure and 2 * len(self.ticked) >= len(self.points)


def compute_calibration(part_results: Sequence[PartResult]) -> float:
    """Return 1 minus the Brier score of some answers, or 1 if there are no answers.

    Examples
    --------
    A sure answer loses 0.81 if it is wrong and 0.01 if it is right; a guess loses 0.25 in both cases.
    """
    if not part_results:
        return 1.0
    return 1 - sum(
        (CONFIDENCE_BY_CERTAINTY[part_result.sure] - part_result.right) ** 2 for part_result in part_results
    ) / len(part_results)


@dataclass(frozen=True, slots=True, repr=False)
class Scorecard(Savable):
    """The results of all cards of an interview, and their total score.

    Attributes
    ----------
    coverage, calibration, score : float
        Each from 0 to 1; the score is the product of the others. A card without an answer has the coverage 0.
    """

    seed: int
    day: str
    cards: tuple[CardResult, ...] = field(default=())

    @property
    def coverage(self) -> float:
        return sum(card.coverage for card in self.cards) / len(self.cards) if self.cards else 0.0

    @property
    def calibration(self) -> float:
        return compute_calibration([part_result for card in self.cards for part_result in card.parts])

    @property
    def score(self) -> float:
        return self.coverage * self.calibration

    def __repr__(self) -> str:
        answered_cards = [card for card in self.cards if card.parts]
        if not answered_cards:
            return f"Scorecard, seed {self.seed}: {count(len(self.cards), 'card')}, none answered yet."
        return (
            f"Scorecard, seed {self.seed}: {len(answered_cards)} of {count(len(self.cards), 'card')} "
            f"answered; coverage {percent(self.coverage)} × calibration {percent(self.calibration)} = "
            f"{percent(self.score)}."
        )

    def _make_table(self) -> Table:
        card_rows = tuple(
            (
                card.key,
                card.kind,
                LEVELS[card.level],
                f"{sum(part_result.right for part_result in card.parts)} of {card.asked}",
                f"{len(card.ticked)} of {len(card.points)}",
                percent(card.coverage) if card.parts else "",
                percent(card.calibration) if card.parts else "",
                f"{sum(part_result.seconds for part_result in card.parts):.0f} s" if card.parts else "",
            )
            for card in self.cards
        )
        headings = ("card", "kind", "level", "right", "points said", "coverage", "calibration", "time")
        return Table(repr(self), headings, card_rows)

    def __str__(self) -> str:
        return self._make_table().text()

    def _repr_html_(self) -> str:
        return self._make_table().card()

    def json(self) -> str:
        """Return the scorecard of the interview as JSON, for example for an instructor."""
        card_records = [
            {**asdict(card), "coverage": card.coverage, "calibration": card.calibration, "score": card.score}
            for card in self.cards
        ]
        record = {
            "format": "gpulab-interview",
            "version": 1,
            "seed": self.seed,
            "day": self.day,
            "coverage": self.coverage,
            "calibration": self.calibration,
            "score": self.score,
            "cards": card_records,
        }
        return json.dumps(record, indent=1, ensure_ascii=False)

    def _make_writers(self) -> Writers:
        return {
            ".json": make_text_writer(lambda: f"{self.json()}\n"),
            ".html": make_text_writer(lambda: f"<!doctype html><meta charset='utf-8'>{self._repr_html_()}\n"),
        }
