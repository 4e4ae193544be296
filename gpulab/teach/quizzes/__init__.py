"""The quizzes of the course: one module a notebook."""

from gpulab.teach.quizzes import device, execution, start
from gpulab.teach.quizzes.question import Question

QUIZZES: dict[str, tuple[str, tuple[Question, ...]]] = {
    "start": (start.TITLE, start.QUESTIONS),
    "device": (device.TITLE, device.QUESTIONS),
    "execution": (execution.TITLE, execution.QUESTIONS),
}

__all__ = ["QUIZZES"]
