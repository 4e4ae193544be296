"""Predictions, exercise checks and questions; what they ask is in `gpulab_course.content`."""

from gpulab_course.teach.judge.check import check
from gpulab_course.teach.judge.verdict import Verdict
from gpulab_course.teach.predictions import Prediction, Reveal, predict, reveal
from gpulab_course.teach.quizzes import Quiz, quiz

__all__ = ["Prediction", "Quiz", "Reveal", "Verdict", "check", "predict", "quiz", "reveal"]
