"""The exercises of the course: one module a notebook."""

from gpulab.teach.checking import Exercise
from gpulab.teach.exercises import device, execution, start

EXERCISES: dict[str, Exercise] = {
    exercise.exercise_id: exercise for exercise in (*start.EXERCISES, *device.EXERCISES, *execution.EXERCISES)
}

__all__ = ["EXERCISES"]
