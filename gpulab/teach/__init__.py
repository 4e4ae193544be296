"""Predictions, exercise checks and questions; what they ask is in `gpulab.course`."""

from gpulab.teach.checking import Verdict, check
from gpulab.teach.predictions import Prediction, Reveal, predict, reveal
from gpulab.teach.quizzes import Quiz, quiz

__all__ = ["Prediction", "Quiz", "Reveal", "Verdict", "check", "predict", "quiz", "reveal"]
