"""Multiple-choice questions with feedback for every choice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer, whether it holds, and why."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """One question with exactly one right choice."""

    text: str
    options: tuple[Choice, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(option.text for option in self.options)
