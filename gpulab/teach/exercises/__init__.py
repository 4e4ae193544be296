"""The exercises of the course: one module a notebook."""

from gpulab.teach.exercises import device, execution, start
from gpulab.teach.judging import Exercise

EXERCISES: dict[str, Exercise] = {
    exercise.exercise_id: exercise for exercise in (*start.EXERCISES, *device.EXERCISES, *execution.EXERCISES)
}

__all__ = ["EXERCISES"]
