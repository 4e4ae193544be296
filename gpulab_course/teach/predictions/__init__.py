"""Predictions of learners: locked as sure or as a guess, and compared with the result of a cell."""

from gpulab_course.teach.predictions.asking import UnknownPredictionError, predict, reveal
from gpulab_course.teach.predictions.prediction import Prediction, Reveal

__all__ = ["Prediction", "Reveal", "UnknownPredictionError", "predict", "reveal"]
