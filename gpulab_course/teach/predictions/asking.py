"""Implementation of ``gl.predict`` and ``gl.reveal``."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import replace
from pathlib import Path

from gpulab_course.teach.predictions.prediction import Prediction, Reveal
from gpulab_course.teach.question import AnswerValue, PredictionQuestion
from gpulab_course.teach.store import store
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance

_SCALE_STEP_PATTERN = re.compile(
    r"(?:(?P<bound>less than|under|more than|over|about) )?(?P<number>\d[\d,]*(?:\.\d+)?)(?!\w)"
)
_BOUND_SIGNS = {"less than": -1, "under": -1, "more than": 1, "over": 1}


class UnknownPredictionError(GpulabError, ValueError):
    """Error for an unknown prediction. The message suggests the most similar key."""


def predict(
    question: PredictionQuestion,
    answer: AnswerValue | None,
    sure: bool | None,
    fields: dict[str, AnswerValue],
) -> Prediction:
    """Return the learner's prediction for a question, and lock the given answer, if there is one."""
    current_question = _fill_question(question, fields)
    prediction = _get_prediction(store().path, question.key)
    prediction.ask(current_question, fill_fields(current_question.question, fields, question.key))
    if answer is not None:
        prediction.lock(answer, sure=sure)
    return prediction


def reveal(
    question: PredictionQuestion, value: AnswerValue, source: Provenance | str, fields: dict[str, AnswerValue]
) -> Reveal:
    """Return a comparison of the learner's prediction with the true value."""
    prediction = _get_prediction(store().path, question.key)
    if not prediction.question:  # the cell with the question has not run since the kernel started
        prediction.ask(_fill_question(question, fields), question.question)
    return prediction.reveal(value, source, fill_fields(question.because, fields, question.key))


def fill_fields(text: str, fields: dict[str, AnswerValue], key: str) -> str:
    """Return `text` after replacing each ``{name}`` by the value with this name in `fields`.

    Raises
    ------
    TypeError
        If a value is missing.
    """
    if "{" not in text:
        return text
    try:
        return text.format(**{name: _format_number(value) for name, value in fields.items()})
    except (KeyError, IndexError) as missing:
        raise TypeError(
            f"The prediction {key!r} needs the argument {str(missing).strip(chr(39))}=..."
        ) from None


def _fill_question(question: PredictionQuestion, fields: dict[str, AnswerValue]) -> PredictionQuestion:
    """Return the question with its choices in display order and its `comparison` filled in from `fields`."""
    field_match = re.fullmatch(r"\{(\w+)\}", str(question.comparison))
    comparison = fields.get(field_match[1]) if field_match else question.comparison
    return replace(question, choices=_order_choices(question.key, question.choices), comparison=comparison)


def _order_choices(key: str, choices: tuple[AnswerValue, ...]) -> tuple[AnswerValue, ...]:
    """Return the choices in a fixed order that depends on the key, so that the position reveals nothing.

    The order is the same for all learners, so a teacher can refer to "the second choice". Choices that form a
    scale, such as "less than 2", "2 to 10" and "more than 10", are sorted upwards or downwards.
    """

    def hash_choice(choice: AnswerValue) -> bytes:
        return hashlib.sha256(f"{choice}@{key}".encode()).digest()

    scale_matches = [_SCALE_STEP_PATTERN.match(str(choice)) for choice in choices]
    if not choices or None in scale_matches:
        return tuple(sorted(choices, key=hash_choice))
    sort_keys = {
        choice: (
            float(scale_match["number"].replace(",", "")),
            _BOUND_SIGNS.get(scale_match["bound"], 0),
            str(choice),
        )
        for choice, scale_match in zip(choices, scale_matches, strict=True)
        if scale_match is not None
    }
    return tuple(sorted(choices, key=sort_keys.__getitem__, reverse=hash_choice("scale")[0] % 2 == 0))


def _format_number(value: AnswerValue) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@functools.cache
def _get_prediction(_learner: Path, key: str) -> Prediction:
    # One object per key, so that a comparison that is shown already sees an answer that is locked later.
    return Prediction(key)
