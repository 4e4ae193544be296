"""Memory of an exercise's earlier failures, for as long as the session lasts."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Past:
    """The earlier failures of answers to one exercise.

    The first data of an answer come from its text alone, so that its verdict is the same each time a notebook
    is run. An answer that has failed gets other data when it is tried again, and the case on which the last
    answer failed comes first.

    Attributes
    ----------
    salt : int
        A random number that changes the seeds of later data.
    number : int
        Number of draws to skip, so that tests can try one answer with several seeds.
    failures : Counter
        Number of failures of answers by seed.
    stage : str
        The stage in which the last answer failed.
    again : object, optional
        The case on which it failed.
    """

    salt: int = 0
    number: int = 0
    failures: Counter[int] = field(default_factory=Counter)
    stage: str = ""
    again: Any = None
    _text_seed: int = 0

    def seed(self, text_seed: int) -> int:
        """Return the seed for the current answer, whose text has the seed `text_seed`."""
        self._text_seed = text_seed
        number = self.number + self.failures[text_seed]
        return zlib.crc32(f"{text_seed} {self.salt} {number}".encode()) if number else text_seed

    def failed(self, stage: str, case: Any) -> None:
        """Store the stage and the case in which the current answer failed."""
        self.failures[self._text_seed] += 1
        self.stage = stage
        self.again = case

    def again_in(self, *stages: str) -> Any:
        """Return the case of the last failure, if it was in one of these stages."""
        return self.again if self.stage in stages else None


_SALT = int.from_bytes(os.urandom(4), "big")
_failures: dict[str, Past] = {}


def of(exercise_id: str) -> Past:
    """Return this session's memory of an exercise."""
    return _failures.setdefault(exercise_id, Past(_SALT))


def forget(exercise_id: str) -> None:
    """Forget the failures of an exercise, after an answer has passed."""
    _failures.pop(exercise_id, None)
