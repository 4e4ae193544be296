"""Repetition of interview cards: cards that were missed or guessed come back after 1, 3 and 7 days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from gpulab_course.teach.store import store

SECTION = "interview"
ASIDE = "interview-damaged"
DAYS = (1, 3, 7)


@dataclass(frozen=True, slots=True)
class Kept:
    """A card's history: how often it was met, its last score, and when it is due (None: learned)."""

    met: int = 0
    score: float = 0.0
    box: int | None = None
    due: date | None = None
    last: dict[str, Any] | None = None

    def after(self, score: float, well: bool, today: date, last: dict[str, Any]) -> Kept:
        """Return the history after another answer: a miss is due in a day, a success moves up one box."""
        if not well:
            box: int | None = 0
        elif self.box is None:
            box = None
        else:
            box = self.box + 1 if self.box + 1 < len(DAYS) else None
        due = None if box is None else today + timedelta(days=DAYS[box])
        return Kept(self.met + 1, score, box, due, last)

    def as_json(self) -> dict[str, Any]:
        """Return the form in which it is stored in the learner's file."""
        return {
            "met": self.met,
            "score": self.score,
            "box": self.box,
            "due": self.due.isoformat() if self.due else None,
            "last": self.last or {},
        }


def _read(value: Any) -> Kept:
    """Read a card's history from the learner's file.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    try:
        box = value["box"]
        due = value["due"]
        last = value["last"]
        met = value["met"]
        score = value["score"]
        if not (type(met) is int and met >= 0 and isinstance(score, int | float) and isinstance(last, dict)):
            raise ValueError(value)
        if box not in (None, *range(len(DAYS))) or (box is None) != (due is None):
            raise ValueError(value)
        return Kept(met, float(score), box, date.fromisoformat(due) if due else None, last)
    except (KeyError, TypeError) as error:
        raise ValueError(value) from error


def kept(key: str) -> Kept:
    """Return a card's history. A file that cannot be read is set aside and never overwritten."""
    value = store().get(SECTION, key)
    if value is None:
        return Kept()
    try:
        return _read(value)
    except ValueError:
        others = store().get(ASIDE, key)
        others = others if isinstance(others, list) else []
        if value not in others:
            store().put(ASIDE, key, [*others, value])
        return Kept()


def keep(key: str, now: Kept) -> None:
    """Note what became of a card."""
    kept(key)  # what is damaged goes aside first
    store().put(SECTION, key, now.as_json())


def everything() -> dict[str, Kept]:
    """All cards that were met, by key."""
    return {key: known for key in sorted(store().section(SECTION)) if (known := kept(key)).met}


def due(keys: list[str], today: date) -> list[str]:
    """Return the cards that are due, the longest overdue first."""
    found = {key: when for key in keys if (when := kept(key).due) is not None and when <= today}
    return sorted(found, key=lambda key: (found[key], key))
