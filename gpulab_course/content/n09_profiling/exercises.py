"""Exercises of notebook 09."""

from __future__ import annotations

from gpulab_course.content.n09_profiling.readings.exercises import ROOFLINE_EXERCISE, THROTTLED_EXERCISE
from gpulab_course.content.n09_profiling.times import exercises as times

EXERCISES = (*times.EXERCISES, ROOFLINE_EXERCISE, THROTTLED_EXERCISE)
