"""Predictions, exercise checks and questions of the course."""

from gpulab.teach.checking import Verdict, check
from gpulab.teach.prediction import Prediction, predict
from gpulab.teach.progress import Progress, progress
from gpulab.teach.questions import Quiz, quiz

__all__ = ["Prediction", "Progress", "Quiz", "Verdict", "check", "predict", "progress", "quiz"]
