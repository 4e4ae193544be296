"""Exercises of notebook 09."""

from __future__ import annotations

from gpulab_course.content.n09_profiling.readings.exercises import ROOFLINE, THROTTLED
from gpulab_course.content.n09_profiling.times import exercises as times

EXERCISES = (*times.EXERCISES, ROOFLINE, THROTTLED)
