"""Wrong and right answers to the exercises of notebook 09."""

from __future__ import annotations

from tests.answers import Right, Wrong
from tests.answers.n09_profiling.readings import DECLARED as READINGS
from tests.answers.n09_profiling.times import DECLARED as TIMES

_ALL: tuple[Wrong | Right, ...] = (*TIMES, *READINGS)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
