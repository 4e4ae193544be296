"""Memory of an exercise's earlier failures, for as long as the session lasts."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Past:
    """The failures of one exercise.

    The first data of an answer come from its text alone, so that its verdict is the same each time a notebook
    is run. An answer that has failed gets other data when it is tried again, and the case on which the last
    answer failed comes first.

    Attributes
    ----------
    salt : int
        What other data are drawn from.
    number : int
        How many draws to leave out: tests try the same answer with several.
    failures : Counter
        How often an answer of each seed has failed.
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
    _own: int = 0

    def seed(self, own: int) -> int:
        """The seed of the answer that is judged now, whose text gives the seed `own`."""
        self._own = own
        number = self.number + self.failures[own]
        return zlib.crc32(f"{own} {self.salt} {number}".encode()) if number else own

    def failed(self, stage: str, case: Any) -> None:
        """Remember what that answer has failed on."""
        self.failures[self._own] += 1
        self.stage = stage
        self.again = case

    def again_in(self, *stages: str) -> Any:
        """The case of the last failure, if it was in one of these stages."""
        return self.again if self.stage in stages else None


_SALT = int.from_bytes(os.urandom(4), "big")
_failures: dict[str, Past] = {}


def of(exercise_id: str) -> Past:
    """Return this session's memory of an exercise."""
    return _failures.setdefault(exercise_id, Past(_SALT))


def forget(exercise_id: str) -> None:
    """Begin anew, once an answer has passed."""
    _failures.pop(exercise_id, None)
