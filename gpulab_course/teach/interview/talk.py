"""An interview: its cards in turn, answers that are locked before anything is measured, and the rubric."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

from gpulab.views.tables import Table
from gpulab.words import count
from gpulab_course.teach import page
from gpulab_course.teach.interview import again
from gpulab_course.teach.interview.cards import Card, Drawn, Outcome, Part
from gpulab_course.teach.interview.scorecard import Answered, Scorecard, Scored

Chair = Literal["candidate", "interviewer"]


class Interview:
    """Cards drawn by one seed.

    In JupyterLab it is a form. Elsewhere, and for kernels that are written in a cell: ``answer(value,
    sure=True)`` locks the answer to the question at hand and measures, ``tick(1, 3)`` says which points of
    the rubric were made, ``next()`` goes on.

    Attributes
    ----------
    seed : int
        Draws the same cards again.
    chair : str
        ``"candidate"``, or ``"interviewer"``, who sees truth, rubric and follow-up at once.
    """

    def __init__(
        self, cards: Sequence[Card], seed: int, chair: Chair, today: Callable[[], date], why: str = ""
    ) -> None:
        self.cards = tuple(cards)
        self.seed = seed
        self.chair = chair
        self._today = today
        self.why = why
        self.at = 0
        self._drawn: dict[int, Drawn] = {}
        self._parts: dict[int, list[Answered]] = {}
        self._outcomes: dict[int, list[Outcome]] = {}
        self._ticked: dict[int, tuple[int, ...]] = {}
        self._words: dict[int, str] = {}
        self._before: dict[int, again.Kept] = {}
        self._truths: dict[int, list[str]] = {}
        self._shown_s = time.monotonic()

    @property
    def card(self) -> Card:
        """The current card."""
        return self.cards[self.at]

    @property
    def drawn(self) -> Drawn:
        """The current card with its parameters."""
        if self.at not in self._drawn:
            self._drawn[self.at] = self.card.drawn(self.seed)
            self._shown_s = time.monotonic()
        return self._drawn[self.at]

    @property
    def part(self) -> Part | None:
        """The current part; None once all parts of the card are answered."""
        answered = len(self.outcomes)
        return self.drawn.parts[answered] if answered < len(self.drawn.parts) else None

    @property
    def outcomes(self) -> list[Outcome]:
        """The results of the answers to this card so far."""
        return self._outcomes.setdefault(self.at, [])

    @property
    def ticked(self) -> tuple[int, ...]:
        """Points of this card's rubric (from 0) that were ticked."""
        return self._ticked.get(self.at, ())

    @property
    def words(self) -> str | None:
        """The text that the candidate wrote before the rubric opened."""
        return self._words.get(self.at)

    def answer(self, value: Any, *, sure: bool | None = None, grid: Any = None, block: Any = None) -> Outcome:
        """Lock an answer to the question at hand, as sure or as a guess; then measure.

        Parameters
        ----------
        value
            A number or its text (``"0.3 ms"``), a choice or its position (from 1), or a kernel's text.
        sure
            Whether you bet on it. Not saying so counts as a guess.
        grid, block
            The launch of your kernel, on cards that let you choose it: ``block=(32, 8)`` and
            ``grid=lambda rows, cols: ((cols + 31) // 32, (rows + 31) // 32)``, a function of the kernel's
            integer parameters in their order.

        Raises
        ------
        ValueError
            If the card is answered already, or takes something else. Nothing is locked then.
        GpulabError
            If it cannot be measured here, or a kernel does not compile. Nothing is locked then.
        """
        part = self.part
        if part is None:
            raise ValueError("This card is answered: tick(1, 2, ...) its points, then next().")
        answer = part.valid(value)
        seconds = time.monotonic() - self._shown_s
        launch = {name: chosen for name, chosen in (("grid", grid), ("block", block)) if chosen is not None}
        outcome = part.outcome(answer, **launch)
        self.outcomes.append(outcome)
        stored = answer if part.judge is None else f"{len(answer.splitlines())} lines"
        self._parts.setdefault(self.at, []).append(
            Answered(
                part.question,
                stored,
                bool(sure),
                outcome.right,
                outcome.merit,
                outcome.said,
                outcome.label,
                round(seconds, 1),
            )
        )
        self._shown_s = time.monotonic()
        self._keep()
        return outcome

    def say(self, words: str) -> str:
        """Say in words of one's own what a good answer needs; returns the points to compare it with."""
        self._words[self.at] = str(words)
        listed = "\n".join(f"  {number}. {point}" for number, point in enumerate(self.drawn.points, start=1))
        return f"A strong answer says:\n{listed}\nTick what yours says: tick(1, 2)."

    def tick(self, *points: int) -> str:
        """Say which points (from 1) of this card's rubric the answer made.

        Raises
        ------
        ValueError
            If there is no such point, or the card's parts are not all answered.
        """
        total = len(self.drawn.points)
        if unknown := [point for point in points if not 1 <= point <= total]:
            raise ValueError(f"There is no point {unknown[0]}; there are 1 to {total}.")
        if self.part is not None and self.chair == "candidate":
            raise ValueError("The rubric opens once all parts of the card are answered.")
        self._ticked[self.at] = tuple(sorted({point - 1 for point in points}))
        self._keep()
        return f"{len(self.ticked)} of {count(total, 'point')}. {self.drawn.sentence}"

    def next(self) -> Interview:
        """Go to the next card; at the last one stay."""
        self.at = min(self.at + 1, len(self.cards) - 1)
        self._shown_s = time.monotonic()
        return self

    @property
    def scorecard(self) -> Scorecard:
        """The result of the interview so far."""
        return Scorecard(
            self.seed, self._today().isoformat(), tuple(map(self._scored, range(len(self.cards))))
        )

    def save(self, path: str | Path) -> Path:
        """Write the scorecard to a file, ``.json`` or ``.html``."""
        return self.scorecard.save(path)

    def _scored(self, index: int) -> Scored:
        card = self.cards[index]
        drawn = self._drawn.get(index)
        parts = tuple(self._parts.get(index, ()))
        if drawn is None:
            return Scored(card.key, card.kind, card.level, {}, (), (), (), 1)
        return Scored(
            card.key,
            card.kind,
            card.level,
            drawn.parameters,
            parts,
            drawn.points,
            self._ticked.get(index, ()),
            len(drawn.parts),
            self._words.get(index, ""),
        )

    def _keep(self) -> None:
        """Note the card with the learner's other answers, once all its parts are answered."""
        if self.chair != "candidate" or self.part is not None:
            return
        now = self._scored(self.at)
        key = self.card.key
        before = self._before.setdefault(self.at, again.kept(key))
        last = {
            "day": self._today().isoformat(),
            "parts": [[p.question, p.said, p.sure, p.right, p.told, p.origin] for p in now.parts],
        }
        again.keep(key, before.after(now.score, now.well, self._today(), last))

    def truths(self) -> list[str]:
        """The true values of the parts of this card, as the interviewer sees them."""
        if self.at not in self._truths:
            self._truths[self.at] = [
                f"{part.scale.show(truth.value)}, {truth.label}. {truth.because}"
                if (truth := part.measure() if part.measure else None)
                else "It is judged. One right program:"
                if part.model
                else "It is judged."
                for part in self.drawn.parts
            ]
        return self._truths[self.at]

    def answers(self) -> list[tuple[str, str, str]]:
        """Return question, truth and a right program (or ``""``) of each part, for the interviewer."""
        return [
            (part.question, truth, part.model)
            for part, truth in zip(self.drawn.parts, self.truths(), strict=True)
        ]

    @property
    def heading(self) -> str:
        """The number and title of the current card."""
        card = self.card
        where = ", ".join(card.taught)
        return (
            f"Card {self.at + 1} of {len(self.cards)} · {card.kind} · {card.level} · {card.title} "
            f"(seed {self.seed}; taught in {where})"
        )

    def shown(self) -> list[Table | str]:
        """Tables and code to display with the current question and with the last answer."""
        part = self.part
        last = self.outcomes[-1] if self.outcomes else None
        parts = [(part.table, part.code)] if part is not None else []
        earlier = [(last.table, last.code)] if last is not None else []
        return [item for pair in (*earlier, *parts) for item in pair if item]

    def __str__(self) -> str:
        lines = [self.heading]
        lines += [f"{'✓' if found.right else '✗'} {found.said} ({found.label})" for found in self.outcomes]
        lines += [each if isinstance(each, str) else each.text() for each in self.shown()]
        if self.part is not None:
            lines.append(self.part.question)
            lines += [f"  {at}. {choice}" for at, choice in enumerate(self.part.choices, start=1)]
            lines.append("Lock an answer: .answer(value, sure=True).")
        if self.chair == "interviewer":
            for number, (question, truth, model) in enumerate(self.answers(), start=1):
                lines += [f"Question {number}: {question}", f"Truth: {truth}", *filter(None, [model])]
        if self.part is None or self.chair == "interviewer":
            lines.append("A strong answer says:")
            lines += [f"  {at}. {point}" for at, point in enumerate(self.drawn.points, start=1)]
            lines.append(f"In one sentence: {self.drawn.sentence}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        done = sum(self._scored(index).done for index in range(len(self.cards)))
        of = count(len(self.cards), "card")
        return f"Interview, {self.chair}'s chair, seed {self.seed}: {done} of {of} answered.{self.why}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        from gpulab_course.teach.interview.form import page_of, room

        live = page.in_jupyter()
        return page.bundle_of(room(self) if live else None, repr(self) if live else str(self), page_of(self))
