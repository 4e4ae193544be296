"""Predictions: a learner locks an answer before a cell shows the true value, and then both are compared."""

from gpulab_course.teach.predictions.asking import UnknownPredictionError, predict, reveal
from gpulab_course.teach.predictions.prediction import Prediction, Reveal

__all__ = ["Prediction", "Reveal", "UnknownPredictionError", "predict", "reveal"]
