"""``gl.predict`` and ``gl.reveal``: a prediction, asked for and compared."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import replace
from pathlib import Path

from gpulab_course.teach.predictions.prediction import Prediction, Reveal
from gpulab_course.teach.question import PredictionQuestion, Value
from gpulab_course.teach.store import store
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance

_STEP = re.compile(
    r"(?:(?P<beside>less than|under|more than|over|about) )?(?P<number>\d[\d,]*(?:\.\d+)?)(?!\w)"
)
_BESIDE = {"less than": -1, "under": -1, "more than": 1, "over": 1}


class UnknownPredictionError(GpulabError, ValueError):
    """A prediction that the course does not ask for; the message names the nearest."""


def predict(
    asked: PredictionQuestion, answer: Value | None, sure: bool | None, fields: dict[str, Value]
) -> Prediction:
    """Ask for a prediction, and lock the `answer` if there is one."""
    now = _for_now(asked, fields)
    prediction = _prediction(store().path, asked.key)
    prediction.ask(now, filled(now.question, fields, asked.key))
    if answer is not None:
        prediction.lock(answer, sure=sure)
    return prediction


def reveal(
    asked: PredictionQuestion, found: Value, source: Provenance | str, fields: dict[str, Value]
) -> Reveal:
    """Compare a prediction with what was found."""
    prediction = _prediction(store().path, asked.key)
    if not prediction.question:  # the cell that asks has not run since the kernel started
        prediction.ask(_for_now(asked, fields), asked.question)
    return prediction.reveal(found, source, filled(asked.because, fields, asked.key))


def filled(text: str, fields: dict[str, Value], key: str) -> str:
    """`text` with the values of its ``{name}``.

    Raises
    ------
    TypeError
        If one was not given.
    """
    try:
        return (
            text.format(**{name: _figure(value) for name, value in fields.items()}) if "{" in text else text
        )
    except (KeyError, IndexError) as missing:
        raise TypeError(f"The prediction {key!r} needs {str(missing).strip(chr(39))}=...") from None


def _for_now(asked: PredictionQuestion, fields: dict[str, Value]) -> PredictionQuestion:
    """The question with its choices in their order and a tempting answer such as ``"{sms}"`` filled in."""
    name = re.fullmatch(r"\{(\w+)\}", str(asked.comparison))
    comparison = fields.get(name[1]) if name else asked.comparison
    return replace(asked, choices=_ordered(asked.key, asked.choices), comparison=comparison)


def _ordered(key: str, choices: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return choices in an order that depends on the key, so that the position reveals nothing.

    The order is the same for all learners: a class can point at "the second". A scale such as "less than 2",
    "2 to 10", "more than 10" stays a scale, upwards or downwards.
    """

    def digest(choice: Value) -> bytes:
        return hashlib.sha256(f"{choice}@{key}".encode()).digest()

    steps = [_STEP.match(str(choice)) for choice in choices]
    if not choices or None in steps:
        return tuple(sorted(choices, key=digest))
    place = {
        choice: (float(step["number"].replace(",", "")), _BESIDE.get(step["beside"], 0), str(choice))
        for choice, step in zip(choices, steps, strict=True)
        if step is not None
    }
    return tuple(sorted(choices, key=place.__getitem__, reverse=digest("scale")[0] % 2 == 0))


def _figure(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@functools.cache
def _prediction(_learner: Path, key: str) -> Prediction:
    # One object a key, so that the comparison hears of an answer that is locked after it was shown.
    return Prediction(key)
