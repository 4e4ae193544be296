"""Predictions that are not the course's, for tests."""

from __future__ import annotations

from gpulab_course.teach.predictions import Prediction, asking
from gpulab_course.teach.question import AnswerValue, PredictionQuestion
from gpulab_course.teach.store import store


def predict(
    question: str,
    *,
    key: str,
    choices: tuple[AnswerValue, ...] = (),
    unit: str = "",
    default: AnswerValue | None = None,
    answer: AnswerValue | None = None,
) -> Prediction:
    """As `gpulab.predict`, of this question."""
    prediction = asking._get_prediction(store().path, key)
    prediction.ask(PredictionQuestion(key, question, "", choices, unit, comparison=default), question)
    return prediction if answer is None else prediction.lock(answer)
