"""Predictions: asked for by key, locked as sure or as a guess, compared with what a cell found."""

from gpulab_course.teach.predictions.asking import UnknownPredictionError, predict, reveal
from gpulab_course.teach.predictions.prediction import Prediction, Reveal

__all__ = ["Prediction", "Reveal", "UnknownPredictionError", "predict", "reveal"]
