"""Predictions, exercise checks and questions of the course."""

from gpulab.teach.checking import Verdict, check
from gpulab.teach.prediction import Prediction, predict
from gpulab.teach.questions import Quiz, quiz
from gpulab.teach.safe import on_device, virtual_cp
from gpulab.teach.standing import Progress, progress

__all__ = [
    "Prediction",
    "Progress",
    "Quiz",
    "Verdict",
    "check",
    "on_device",
    "predict",
    "progress",
    "quiz",
    "virtual_cp",
]
