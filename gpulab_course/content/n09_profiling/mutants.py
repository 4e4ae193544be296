"""Wrong and right answers to the exercises of notebook 09."""

from __future__ import annotations

from gpulab_course.content.n09_profiling.readings.mutants import DECLARED as READINGS
from gpulab_course.content.n09_profiling.times.mutants import DECLARED as TIMES
from gpulab_course.teach.judge import Right, Wrong

_ALL: tuple[Wrong | Right, ...] = (*TIMES, *READINGS)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
