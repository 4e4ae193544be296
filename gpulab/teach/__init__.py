"""Predictions, exercise checks and questions; what they ask is in `gpulab.course`."""

from gpulab.teach.judge.check import check
from gpulab.teach.judge.verdict import Verdict
from gpulab.teach.predictions import Prediction, Reveal, predict, reveal
from gpulab.teach.quizzes import Quiz, quiz

__all__ = ["Prediction", "Quiz", "Reveal", "Verdict", "check", "predict", "quiz", "reveal"]
