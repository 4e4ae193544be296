"""``gl.predict`` and ``gl.reveal``: the course's prediction of a key, asked and compared."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import replace
from pathlib import Path

from gpulab_course.teach import folders
from gpulab_course.teach.predictions.prediction import Prediction, Reveal
from gpulab_course.teach.question import PredictionQuestion, Value
from gpulab_course.teach.store import store
from virtualgpu.errors import GpulabError, did_you_mean
from virtualgpu.records import Provenance

_STEP = re.compile(
    r"(?:(?P<beside>less than|under|more than|over|about) )?(?P<number>\d[\d,]*(?:\.\d+)?)(?!\w)"
)
_BESIDE = {"less than": -1, "under": -1, "more than": 1, "over": 1}


class UnknownPredictionError(GpulabError, ValueError):
    """A prediction that the course does not ask for; the message names the nearest."""


def predict(
    key: str, *, answer: Value | None = None, sure: bool | None = None, **fields: Value
) -> Prediction:
    """Ask for a prediction before a cell shows the number: ``gl.predict("02-tail")``.

    In JupyterLab it is a small form that locks an answer as sure or as a guess. In plain Python pass
    `answer`, or call ``.lock(value, sure=True)``. `gl.reveal` compares it with what was found.

    Parameters
    ----------
    key
        Of one of the course's predictions. Their texts are in ``predictions.py`` of the notebook's
        folder in `gpulab_course.content`.
    answer, sure
        Locks this answer at once.
    **fields
        What the question's ``{name}`` stand for, such as ``blocks=4``.

    Raises
    ------
    UnknownPredictionError
        If the course asks for no such prediction; the message names the nearest.
    ValueError
        If `answer` is not among the choices, or is not a number where there are none.

    Examples
    --------
    >>> guess = predict("00-threads", n=1000, threads=256, answer="1,000", sure=False)
    >>> reveal("00-threads", 1024, "counted by the kernel", blocks=4, idle=24)
    ✗ 1,024 threads; you guessed 1,000 threads, 24 too few. Counted by the kernel. A launch starts ...
    """
    asked = _for_now(_question(key), fields)
    prediction = _prediction(store().path, key)
    prediction.ask(asked, filled(asked.question, fields, key))
    if answer is not None:
        prediction.lock(answer, sure=sure)
    return prediction


def reveal(key: str, found: Value, source: Provenance | str, **fields: Value) -> Reveal:
    """Compare the prediction `key` with what was found: ``gl.reveal("02-tail", 1.45, trace.provenance)``.

    Parameters
    ----------
    key
        The prediction's.
    found
        The number or choice that was found.
    source
        Where it comes from: a record's provenance, or a phrase such as ``"counted by the kernel"``.
    **fields
        What ``{name}`` in the explanation stand for.

    Returns
    -------
    Reveal
        ``.right`` and, as text or in JupyterLab, the comparison. There it waits for a prediction
        that is not locked yet.

    Raises
    ------
    UnknownPredictionError
        If the course asks for no such prediction; the message names the nearest.
    """
    asked = _question(key)
    prediction = _prediction(store().path, key)
    if not prediction.question:  # the cell that asks has not run since the kernel started
        prediction.ask(_for_now(asked, fields), asked.question)
    return prediction.reveal(found, source, filled(asked.because, fields, key))


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
    """Choices in an order that follows from the key, so that the right answer's position tells nothing.

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


def _question(key: str) -> PredictionQuestion:
    asked = folders.prediction(key)
    if asked is None:
        known = folders.predictions()
        raise UnknownPredictionError(f"The course asks for no prediction {key!r}.{did_you_mean(key, known)}")
    return asked


@functools.cache
def _prediction(_learner: Path, key: str) -> Prediction:
    # One object a key, so that the comparison hears of an answer that is locked after it was shown.
    return Prediction(key)
