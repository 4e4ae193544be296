"""Predictions, exercise checks and questions; what they ask is in `gpulab.course`."""

from gpulab.teach.checking import Verdict, check
from gpulab.teach.prediction import Prediction, predict
from gpulab.teach.quizzes import Quiz, quiz

__all__ = ["Prediction", "Quiz", "Verdict", "check", "predict", "quiz"]
