"""Exercises of notebook 09."""

from __future__ import annotations

from gpulab.course.n09_profiling.readings.exercises import ROOFLINE, THROTTLED
from gpulab.course.n09_profiling.times import exercises as times

EXERCISES = (*times.EXERCISES, ROOFLINE, THROTTLED)
