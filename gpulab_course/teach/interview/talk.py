"""The state of an interview: the current card, the locked answers, their results, and the ticked points."""

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
from gpulab_course.teach.interview.cards import LEVELS, Card, CardQuestion, DrawnCard, Outcome
from gpulab_course.teach.interview.scorecard import CardResult, PartResult, Scorecard

Role = Literal["candidate", "interviewer"]


class Interview:
    """A mock interview, whose cards are drawn from one seed.

    In JupyterLab, the interview is a form. Elsewhere, and for kernels that are written in a cell, call its
    methods: ``answer(value, sure=True)`` locks the answer to the current question and measures the true
    value, ``tick(1, 3)`` ticks points of the rubric, and ``next()`` shows the next card.

    Attributes
    ----------
    seed : int
        The seed that draws the same cards again.
    role : str
        ``"candidate"``, or ``"interviewer"``, who sees truth, rubric and follow-up at once.
    """

    def __init__(
        self, cards: Sequence[Card], seed: int, role: Role, today: Callable[[], date], notice_text: str = ""
    ) -> None:
        self.cards = tuple(cards)
        self.seed = seed
        self.role = role
        self._today = today
        self.notice_text = notice_text
        self.index = 0
        self._drawn_cards: dict[int, DrawnCard] = {}
        self._part_results: dict[int, list[PartResult]] = {}
        self._outcomes: dict[int, list[Outcome]] = {}
        self._ticked_points: dict[int, tuple[int, ...]] = {}
        self._explanations: dict[int, str] = {}
        self._histories: dict[int, again.CardHistory] = {}
        self._truth_sentences: dict[int, list[str]] = {}
        self._shown_at_s = time.monotonic()

    @property
    def card(self) -> Card:
        """The current card of the interview."""
        return self.cards[self.index]

    @property
    def drawn_card(self) -> DrawnCard:
        """The current card of the interview, with the parameters that were chosen for it."""
        if self.index not in self._drawn_cards:
            self._drawn_cards[self.index] = self.card.draw_card(self.seed)
            self._shown_at_s = time.monotonic()
        return self._drawn_cards[self.index]

    @property
    def part(self) -> CardQuestion | None:
        """The current question, or None if all questions of the card are answered."""
        answer_count = len(self.outcomes)
        return (
            self.drawn_card.questions[answer_count] if answer_count < len(self.drawn_card.questions) else None
        )

    @property
    def outcomes(self) -> list[Outcome]:
        """The results of the answers to the current card so far."""
        return self._outcomes.setdefault(self.index, [])

    @property
    def ticked_points(self) -> tuple[int, ...]:
        """The indices (from 0) of the ticked rubric points of the current card."""
        return self._ticked_points.get(self.index, ())

    @property
    def explanation(self) -> str | None:
        """The candidate's own explanation for the current card, or None if there is none yet."""
        return self._explanations.get(self.index)

    def answer(self, value: Any, *, sure: bool | None = None, grid: Any = None, block: Any = None) -> Outcome:
        """Lock an answer to the current question, and then compare it with the measured value.

        Parameters
        ----------
        value
            A number or its text (``"0.3 ms"``), a choice or its position (from 1), or a kernel's text.
        sure
            Whether you are sure of the answer. Without this argument, the answer counts as a guess.
        grid, block
            The launch of your kernel, on cards that let you choose it: ``block=(32, 8)`` and
            ``grid=lambda rows, cols: ((cols + 31) // 32, (rows + 31) // 32)``, a function of the kernel's
            integer parameters in their order.

        Raises
        ------
        ValueError
            If the card is answered already, or the value does not fit the question. Nothing is locked.
        GpulabError
            If the true value cannot be measured here, or a kernel does not compile. Nothing is locked.
        """
        card_question = self.part
        if card_question is None:
            raise ValueError(
                "You have already answered this card. Tick its points with tick(1, 2, ...), then call next()."
            )
        answer = card_question.check_answer(value)
        answer_time_s = time.monotonic() - self._shown_at_s
        launch_shapes = {"grid": grid, "block": block}
        launch_shapes = {name: shape for name, shape in launch_shapes.items() if shape is not None}
        outcome = card_question.judge_answer(answer, **launch_shapes)
        self.outcomes.append(outcome)
        stored_answer = answer if card_question.judge is None else f"{len(answer.splitlines())} lines"
        self._part_results.setdefault(self.index, []).append(
            PartResult(
                card_question.question,
                stored_answer,
                bool(sure),
                outcome.is_right,
                outcome.merit,
                outcome.message,
                outcome.label,
                round(answer_time_s, 1),
            )
        )
        self._shown_at_s = time.monotonic()
        self._store_result()
        return outcome

    def say(self, explanation: str) -> str:
        """Store the candidate's own explanation, and return text with the points of a good answer."""
        self._explanations[self.index] = str(explanation)
        points_text = "\n".join(
            f"  {position}. {point}" for position, point in enumerate(self.drawn_card.rubric_points, start=1)
        )
        return f"A strong answer says:\n{points_text}\nTick the points that your answer contains: tick(1, 2)."

    def tick(self, *points: int) -> str:
        """Tick the rubric points (from 1) that the candidate's explanation contains, and return text with
        their number.

        Raises
        ------
        ValueError
            If there is no such point, or a question of the card is not answered yet.
        """
        point_count = len(self.drawn_card.rubric_points)
        if unknown_points := [point for point in points if not 1 <= point <= point_count]:
            raise ValueError(
                f"Point {unknown_points[0]} does not exist. The points have the numbers 1 to {point_count}."
            )
        if self.part is not None and self.role == "candidate":
            raise ValueError("Answer all questions of this card before you tick points.")
        self._ticked_points[self.index] = tuple(sorted({point - 1 for point in points}))
        self._store_result()
        return f"{len(self.ticked_points)} of {count(point_count, 'point')}. {self.drawn_card.strong_answer}"

    @property
    def unfinished_text(self) -> str:
        """Text that names the unfinished parts of the card, such as "2 questions and the rubric". The text is
        empty if the card is finished.
        """
        open_count = len(self.drawn_card.questions) - len(self.outcomes)
        open_items = [count(open_count, "question")] if open_count else []
        if self.role == "candidate" and self.explanation is None and not self.ticked_points:
            open_items.append("the rubric")
        return " and ".join(open_items)

    def next(self) -> Interview:
        """Go to the next card of the interview, or stay at the last card."""
        self.index = min(self.index + 1, len(self.cards) - 1)
        self._shown_at_s = time.monotonic()
        return self

    @property
    def scorecard(self) -> Scorecard:
        """The scorecard of the interview, with the results of all cards so far."""
        return Scorecard(
            self.seed, self._today().isoformat(), tuple(map(self._score_card, range(len(self.cards))))
        )

    def save(self, path: str | Path) -> Path:
        """Write the scorecard to a ``.json`` or ``.html`` file."""
        return self.scorecard.save(path)

    def _score_card(self, index: int) -> CardResult:
        card = self.cards[index]
        drawn_card = self._drawn_cards.get(index)
        part_results = tuple(self._part_results.get(index, ()))
        if drawn_card is None:
            return CardResult(card.key, card.kind, card.level, {}, (), (), (), 1)
        return CardResult(
            card.key,
            card.kind,
            card.level,
            drawn_card.parameters,
            part_results,
            drawn_card.rubric_points,
            self._ticked_points.get(index, ()),
            len(drawn_card.questions),
            self._explanations.get(index, ""),
        )

    def _store_result(self) -> None:
        """Store the history of the current card when all its questions are answered."""
        if self.role != "candidate" or self.part is not None:
            return
        card_result = self._score_card(self.index)
        card_key = self.card.key
        history = self._histories.setdefault(self.index, again.load_history(card_key))
        last_answers = {
            "day": self._today().isoformat(),
            "parts": [[p.question, p.said, p.sure, p.right, p.told, p.origin] for p in card_result.parts],
        }
        again.store_history(
            card_key,
            history.add_answer(card_result.score, card_result.is_well_answered, self._today(), last_answers),
        )

    def list_truths(self) -> list[str]:
        """Return the true values of the current card's questions for the interviewer."""
        if self.index not in self._truth_sentences:
            self._truth_sentences[self.index] = [
                _measure_truth(card_question) for card_question in self.drawn_card.questions
            ]
        return self._truth_sentences[self.index]

    def list_model_answers(self) -> list[tuple[str, str, str]]:
        """Return each question for the interviewer, with its true value and its model program (empty if there
        is none).
        """
        return [
            (card_question.question, truth, card_question.model_answer)
            for card_question, truth in zip(self.drawn_card.questions, self.list_truths(), strict=True)
        ]

    @property
    def position_text(self) -> str:
        """The position of the current card in the interview, its kind and its level."""
        card = self.card
        return f"Card {self.index + 1} of {len(self.cards)} · {card.kind} · level: {LEVELS[card.level]}"

    @property
    def source(self) -> str:
        """A sentence with the seed of the current card and the notebooks that teach its subject."""
        return f"Seed {self.seed}; taught in {', '.join(self.card.taught_in)}."

    @property
    def elapsed_s(self) -> float:
        """The time in seconds that the candidate needed for the answered questions of the current card."""
        return sum(result.seconds for result in self._part_results.get(self.index, ()))

    @property
    def shown_since_s(self) -> float | None:
        """The time since the epoch at which the current question was shown, or None if none is open."""
        if self.part is None:
            return None
        return time.time() - (time.monotonic() - self._shown_at_s)

    def list_shown_items(self) -> list[Table | str]:
        """Return the tables and code to show with the current question and with the latest result."""
        card_question = self.part
        last_outcome = self.outcomes[-1] if self.outcomes else None
        question_items = [(card_question.table, card_question.code)] if card_question is not None else []
        outcome_items = [(last_outcome.table, last_outcome.code)] if last_outcome is not None else []
        return [
            content
            for table_and_code in (*outcome_items, *question_items)
            for content in table_and_code
            if content
        ]

    def __str__(self) -> str:
        text_lines = [f"{self.position_text} · {self.card.title}. {self.source}"]
        for outcome in self.outcomes:
            text_lines.append(f"{'✓' if outcome.is_right else '✗'} {outcome.message} ({outcome.label})")
        text_lines += [
            shown_item if isinstance(shown_item, str) else shown_item.text()
            for shown_item in self.list_shown_items()
        ]
        point_lines = [
            f"  {position}. {point}" for position, point in enumerate(self.drawn_card.rubric_points, start=1)
        ]
        if self.role == "interviewer":
            for position, (question, truth, model_answer) in enumerate(self.list_model_answers(), start=1):
                text_lines.append(f"Question {position}: {question}")
                if position == 1:
                    text_lines += ["What to listen for:", *point_lines]
                text_lines += [f"Truth: {truth}", *filter(None, [model_answer])]
            if self.part is not None:
                text_lines.append(
                    "Record the candidate's answer: .answer(value, sure=True), and .tick(1, 2) for points."
                )
        elif self.part is not None:
            text_lines.append(self.part.question)
            text_lines += [
                f"  {position}. {choice}" for position, choice in enumerate(self.part.choices, start=1)
            ]
            text_lines.append("Lock an answer: .answer(value, sure=True).")
        else:
            text_lines += ["A strong answer says:", *point_lines]
        if self.part is None or self.role == "interviewer":
            text_lines.append(f"In one sentence: {self.drawn_card.strong_answer}")
        return "\n".join(text_lines)

    def __repr__(self) -> str:
        finished_cards = sum(self._score_card(card_index).is_done for card_index in range(len(self.cards)))
        card_count = count(len(self.cards), "card")
        progress_text = f"{finished_cards} of {card_count} answered.{self.notice_text}"
        return f"Interview, {self.role}'s chair, seed {self.seed}: {progress_text}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        from gpulab_course.teach.interview.form import make_interview_form, make_interview_page

        if page.is_in_jupyter():
            return page.make_bundle(make_interview_form(self), repr(self), make_interview_page(self))
        return page.make_bundle(None, str(self), make_interview_page(self))


def _measure_truth(card_question: CardQuestion) -> str:
    """Return a sentence with the true value of a question, or about how its program is judged."""
    if card_question.measure:
        truth = card_question.measure()
        return f"{card_question.scale.show(truth.value)}, {truth.label}. {truth.because}"
    return (
        "The judge tests the answer. One right program:"
        if card_question.model_answer
        else "The judge tests the answer."
    )
