"""Predictions that are locked before a cell reveals the number, and the sentence that compares them."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

from gpulab.teach import page
from gpulab.teach.store import store
from virtualgpu.records import Provenance

if TYPE_CHECKING:
    from gpulab.teach.forms import Form

Value = int | float | str

_SECTION = "predictions"
_WAIT = "Lock your prediction above first, and the comparison appears here."
_MISSING = "Choose or type an answer first."


def predict(
    question: str,
    *,
    key: str,
    choices: Sequence[Value] = (),
    unit: str = "",
    default: Value | None = None,
    answer: Value | None = None,
) -> Prediction:
    """Ask for a prediction; the object returned later compares it with what was found.

    In JupyterLab it shows as a small form with a *Lock* button. In plain Python pass `answer`
    or call ``.lock(value)``. Where nobody answers (a test run, a batch run) `default` stands in.

    Parameters
    ----------
    question
        One sentence that a number or one of `choices` answers.
    key
        Name under which the prediction is kept for this learner, such as ``"02-waves"``.
    choices
        The answers to pick from; empty for a free number.
    unit
        Unit of the number, for the sentence that compares.
    default
        The common guess that stands in when no prediction was locked.
    answer
        Locks this value at once.

    Raises
    ------
    ValueError
        If `answer` or `default` is not among `choices`, or is not a number where there are none.
    """
    return Prediction(question, key=key, choices=choices, unit=unit, default=default, answer=answer)


@dataclass(eq=False, repr=False)
class Prediction:
    """One question, the learner's locked answer, and its comparison with the number found."""

    question: str
    _: KW_ONLY
    key: str
    choices: Sequence[Value] = ()
    unit: str = ""
    default: Value | None = None
    answer: InitVar[Value | None] = None
    value: Value | None = field(default=None, init=False)
    revealed: bool = field(default=False, init=False)
    _listeners: list[Callable[[], None]] = field(default_factory=list, init=False)

    def __post_init__(self, answer: Value | None) -> None:
        self.choices = tuple(self.choices)
        self.default = None if self.default is None else self._valid(self.default)
        if answer is not None:
            self.lock(answer)
        else:
            self._recall()

    @property
    def locked(self) -> bool:
        return self.value is not None

    def lock(self, value: Value) -> Prediction:
        """Fix the prediction. After the number was revealed it can no longer be changed.

        Raises
        ------
        ValueError
            If `value` is none of the choices, or not a number where there are no choices.
        """
        if self.revealed and self.locked:
            return self
        self.value = self._valid(value)
        store().put(_SECTION, self.key, self.value)
        self._notify()
        return self

    def unlock(self) -> None:
        """Take the prediction back, as long as nothing was revealed."""
        if self.revealed:
            return
        self.value = None
        store().forget(_SECTION, self.key)
        self._notify()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every lock, unlock and reveal."""
        self._listeners.append(listener)

    def reveal(
        self, found: Value, source: Provenance | str = "", because: str = "", tolerance: float = 0.1
    ) -> Reveal:
        """Compare the prediction with `found`.

        Parameters
        ----------
        found
            The number or choice that was found.
        source
            Where it comes from: a record's provenance, or a phrase such as ``"counted by hand"``.
        because
            One sentence that explains the number.
        tolerance
            Relative distance up to which a number counts as close.
        """
        label = source.label if isinstance(source, Provenance) else source
        self.revealed = True
        self._notify()
        return Reveal(self, found, label, because, tolerance)

    def show(self, value: Value) -> str:
        """`value` with its unit, as it stands in sentences."""
        text = (
            f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if _is_number(value) else str(value)
        )
        if not self.unit or not _is_number(value):
            return text
        return f"{text} {self.unit.removesuffix('s') if value == 1 else self.unit}"

    def _valid(self, value: Value) -> Value:
        if self.choices:
            for choice in self.choices:
                if value == choice or str(value) == str(choice):
                    return choice
            listed = ", ".join(str(choice) for choice in self.choices)
            raise ValueError(f"{value!r} is not one of the choices: {listed}.")
        if _is_number(value):
            return value
        try:
            number = float(str(value).replace(",", "").replace("_", ""))
        except ValueError:
            raise ValueError(f"{value!r} is not a number; this prediction takes a plain number.") from None
        return int(number) if number.is_integer() else number

    def _recall(self) -> None:
        earlier = store().get(_SECTION, self.key)
        if earlier is not None:
            # Where it does not fit, the question has changed since: ask again.
            with suppress(ValueError):
                self.value = self._valid(earlier)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def __str__(self) -> str:
        lines = [f"Predict: {self.question}"]
        if self.choices:
            lines.append("  " + " / ".join(str(choice) for choice in self.choices))
        return "\n".join(lines)

    def __repr__(self) -> str:
        state = f"locked at {self.show(self.value)}" if self.value is not None else "open"
        return f"Prediction '{self.key}' ({self.question}): {state}."

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        content = f"<b>Predict:</b> {html.escape(self.question)}"
        if self.choices:
            content += "<br>" + " &nbsp;/&nbsp; ".join(html.escape(str(choice)) for choice in self.choices)
        form = prediction_form(self) if page.in_jupyter() else None
        return page.bundle_of(form, str(self), page.boxed(content))


@dataclass(frozen=True, eq=False, repr=False)
class Reveal:
    """What was found beside what was predicted, in a sentence or two."""

    prediction: Prediction
    found: Value
    label: str
    because: str
    tolerance: float

    @property
    def right(self) -> bool | None:
        """Whether the prediction holds, or None where nothing was predicted."""
        said = self.prediction.value
        return None if said is None else _same(said, self.found, self.tolerance)

    def __repr__(self) -> str:
        prediction = self.prediction
        if prediction.value is not None:
            opening = f"You said {prediction.show(prediction.value)}"
        elif prediction.default is not None:
            opening = f"You made no prediction; a common guess is {prediction.show(prediction.default)}"
        else:
            opening = "You made no prediction"
        where = f"{self.label}: " if self.label else "found: "
        text = f"{opening}. {where[0].upper()}{where[1:]}{prediction.show(self.found)}."
        said = prediction.default if prediction.value is None else prediction.value
        if said is not None:
            text += f" {_verdict(said, self.found, self.tolerance)}"
        return f"{text} {self.because}".rstrip()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        # In JupyterLab it waits for a prediction that is still open.
        form = reveal_form(self) if page.in_jupyter() and not self.prediction.locked else None
        return page.bundle_of(form, repr(self), page.boxed(html.escape(repr(self))))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(said: Value, found: Value, tolerance: float) -> bool:
    if isinstance(said, int | float) and isinstance(found, int | float):
        return math.isclose(said, found, rel_tol=tolerance, abs_tol=1e-12)
    return said == found


def _verdict(said: Value, found: Value, tolerance: float) -> str:
    if said == found:
        return "Right."
    if _same(said, found, tolerance):
        return "Close."
    if isinstance(said, str) or isinstance(found, str) or said <= 0 or found <= 0:
        return "Not this one."
    ratio = found / said
    if ratio < 1 and math.isclose(said / found, round(said / found), rel_tol=1e-3):
        return f"1/{round(said / found):,} of that."
    return f"{ratio:,.3g} times that."


def prediction_form(prediction: Prediction) -> Form:
    """The form that locks a prediction, or takes it back while nothing is revealed."""
    from gpulab.teach.forms import Form

    def state(wrong: str = "") -> dict[str, object]:
        value = prediction.value
        return {
            "value": "" if value is None else str(value),
            "locked": prediction.locked,
            "final": prediction.revealed and prediction.locked,
            "note": "" if value is None else f"Locked: {prediction.show(value)}",
            "wrong": wrong,
        }

    def heard(message: dict[str, Any]) -> None:
        if prediction.locked:
            prediction.unlock()
            return
        try:
            prediction.lock(message.get("value", ""))
        except ValueError as error:
            form.state = state(str(error) if message.get("value") else _MISSING)

    def refresh() -> None:
        form.state = state()

    facts = {
        "question": prediction.question,
        "choices": [str(choice) for choice in prediction.choices],
        "unit": prediction.unit,
    }
    form = Form("prediction", facts, state(), heard)
    prediction.on_change(refresh)
    return form


def reveal_form(reveal: Reveal) -> Form:
    """Hold the number back until the prediction above is locked, or the learner asks for it."""
    from gpulab.teach.forms import Form

    def show(_: object = None) -> None:
        form.state = {"shown": repr(reveal)}

    def locked() -> None:
        if reveal.prediction.locked:
            show()

    form = Form("reveal", {"wait": _WAIT}, {"shown": ""}, show)
    reveal.prediction.on_change(locked)
    return form
