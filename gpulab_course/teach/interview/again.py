"""Spaced repetition of interview cards: a missed or guessed card is shown again after 1, 3 and 7 days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from gpulab_course.teach.store import store

SECTION = "interview"
DAMAGED_SECTION = "interview-damaged"
REPEAT_DAYS = (1, 3, 7)


@dataclass(frozen=True, slots=True)
class CardHistory:
    """A learner's history of one interview card, such as the number of answers, the last score and the due
    date.

    The attribute ``due_day`` is None if the card does not have to be repeated.
    """

    answer_count: int = 0
    score: float = 0.0
    repetition_step: int | None = None
    due_day: date | None = None
    last_answers: dict[str, Any] | None = None

    def add_answer(self, score: float, success: bool, today: date, answers: dict[str, Any]) -> CardHistory:
        """Return the card's history after one more answer, with a new date on which the card is due.

        The card is due tomorrow after a failure, and later or never again after a success.
        """
        if not success:
            next_step: int | None = 0
        elif self.repetition_step is None:
            next_step = None
        else:
            next_step = self.repetition_step + 1 if self.repetition_step + 1 < len(REPEAT_DAYS) else None
        due_day = None if next_step is None else today + timedelta(days=REPEAT_DAYS[next_step])
        return CardHistory(self.answer_count + 1, score, next_step, due_day, answers)

    def as_json(self) -> dict[str, Any]:
        """Return the card's history as a dict for the learner's JSON file."""
        return {
            "met": self.answer_count,
            "score": self.score,
            "box": self.repetition_step,
            "due": self.due_day.isoformat() if self.due_day else None,
            "last": self.last_answers or {},
        }


def _read_history(entry: Any) -> CardHistory:
    """Parse a card's history from an entry of the learner's JSON file.

    Raises
    ------
    ValueError
        If the entry is damaged.
    """
    try:
        repetition_step = entry["box"]
        due_day = entry["due"]
        last_answers = entry["last"]
        answer_count = entry["met"]
        score = entry["score"]
        if not (
            type(answer_count) is int
            and answer_count >= 0
            and isinstance(score, int | float)
            and isinstance(last_answers, dict)
        ):
            raise ValueError(entry)
        if repetition_step not in (None, *range(len(REPEAT_DAYS))) or (repetition_step is None) != (
            due_day is None
        ):
            raise ValueError(entry)
        return CardHistory(
            answer_count,
            float(score),
            repetition_step,
            date.fromisoformat(due_day) if due_day else None,
            last_answers,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(entry) from error


def load_history(key: str) -> CardHistory:
    """Return the learner's history of an interview card.

    A damaged entry is copied to another section of the file and counts as empty.
    """
    stored_value = store().get(SECTION, key)
    if stored_value is None:
        return CardHistory()
    try:
        return _read_history(stored_value)
    except ValueError:
        damaged_entries = store().get(DAMAGED_SECTION, key)
        damaged_entries = damaged_entries if isinstance(damaged_entries, list) else []
        if stored_value not in damaged_entries:
            store().put(DAMAGED_SECTION, key, [*damaged_entries, stored_value])
        return CardHistory()


def store_history(key: str, history: CardHistory) -> None:
    """Write the history of an interview card to the learner's file."""
    load_history(key)  # copies a damaged entry to another section first
    store().put(SECTION, key, history.as_json())


def load_histories() -> dict[str, CardHistory]:
    """Return the histories of all interview cards that the learner has answered, by the key of the card."""
    return {
        card_key: card_history
        for card_key in sorted(store().get_section(SECTION))
        if (card_history := load_history(card_key)).answer_count
    }


def list_due_keys(keys: list[str], today: date) -> list[str]:
    """Return the keys of the cards that are due today or earlier, beginning with the longest overdue card."""
    due_days_and_keys = [
        (due_day, card_key)
        for card_key in keys
        if (due_day := load_history(card_key).due_day) is not None and due_day <= today
    ]
    return [card_key for _, card_key in sorted(due_days_and_keys)]
