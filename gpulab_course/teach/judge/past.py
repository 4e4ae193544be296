"""Storage of the earlier failures of each exercise during a session, so that their data are tested again."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class PastFailures:
    """The failures of a learner's earlier answers to one exercise, which affect the choice of the next tests.

    The first data for an answer depend only on its text, so that a notebook has the same verdict each time it
    is run. A failed answer gets other data when it is tried again. The case on which the last answer failed
    is tested first.

    Attributes
    ----------
    salt : int
        A random number that changes the seeds of later data.
    skipped_draws : int
        Number of draws to skip, so that tests can try one answer with several seeds.
    failures : Counter
        The number of failures by the seed of the answer's text.
    failed_stage : str
        The stage in which the last answer failed.
    failed_case : object, optional
        The case on which the last answer failed.
    """

    salt: int = 0
    skipped_draws: int = 0
    failures: Counter[int] = field(default_factory=Counter)
    failed_stage: str = ""
    failed_case: Any = None
    _text_seed: int = 0

    def choose_seed(self, text_seed: int) -> int:
        """Return the seed for the test data of an answer. After each failure of an answer with the same text,
        the seed changes.
        """
        self._text_seed = text_seed
        draw_number = self.skipped_draws + self.failures[text_seed]
        return zlib.crc32(f"{text_seed} {self.salt} {draw_number}".encode()) if draw_number else text_seed

    def record_failure(self, stage: str, case: Any) -> None:
        """Record the stage and the test case in which the current answer failed."""
        self.failures[self._text_seed] += 1
        self.failed_stage = stage
        self.failed_case = case

    def get_failed_case(self, *stages: str) -> Any:
        """Return the test case of the last failure if it was in one of these stages, and otherwise None."""
        return self.failed_case if self.failed_stage in stages else None


_SALT = int.from_bytes(os.urandom(4), "big")
_failures: dict[str, PastFailures] = {}


def get_past_failures(exercise_id: str) -> PastFailures:
    """Return the earlier failures of an exercise in this session."""
    return _failures.setdefault(exercise_id, PastFailures(_SALT))


def forget_failures(exercise_id: str) -> None:
    """Delete the earlier failures of an exercise after an answer has passed."""
    _failures.pop(exercise_id, None)
