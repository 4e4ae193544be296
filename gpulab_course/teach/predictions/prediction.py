"""A learner's prediction, its comparison with the true value, and the forms that display both."""

from __future__ import annotations

import html
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpulab_course.teach import page
from gpulab_course.teach.predictions.numbers import read_number
from gpulab_course.teach.predictions.verdicts import Scale
from gpulab_course.teach.question import AnswerValue, PredictionQuestion
from gpulab_course.teach.store import store
from virtualgpu.records import Provenance

if TYPE_CHECKING:
    from gpulab_course.teach.forms import Form

SECTION = "predictions"
_WAIT_TEXT = "Lock your prediction above, and the comparison appears here."
_MISSING_TEXT = "Choose or type an answer first."
_CERTAINTY_VERBS = {True: "were sure of", False: "guessed", None: "said"}


class Prediction:
    """A question with the learner's locked answer and the result of its comparison with the true value.

    Attributes
    ----------
    value : int, float or str, optional
        The locked answer.
    sure : bool, optional
        True if the answer was locked as sure, False if it was locked as a guess.
    right : bool, optional
        Whether the answer was right; None before the comparison.
    seen : bool
        Whether the learner displayed the true value without a prediction.
    """

    asked_question: PredictionQuestion
    value: AnswerValue | None
    sure: bool | None
    right: bool | None
    seen: bool

    def __init__(self, key: str) -> None:
        self.key = key
        self.question = ""
        self._waiting: Reveal | None = None
        # The forms of the latest runs of the cells.
        self._form: Form | None = None
        self._comparison: Form | None = None

    def ask(self, question: PredictionQuestion, text: str) -> None:
        """Set the question and its text, and load the learner's stored answer."""
        self.asked_question = question
        self.question = text
        self._waiting = None
        stored_record = store().get(SECTION, self.key)
        stored_record = stored_record if isinstance(stored_record, dict) else {"value": stored_record}
        self.value = self.sure = self.right = None
        self.seen = bool(stored_record.get("seen"))
        if stored_record.get("value") is not None:
            # An answer that does not fit belongs to an earlier version of the question: ask again.
            with suppress(ValueError):
                self.value = self._check_value(stored_record["value"])
                self.sure, self.right = stored_record.get("sure"), stored_record.get("right")

    @property
    def scale(self) -> Scale:
        question = self.asked_question
        return Scale(question.unit, "choice" if question.choices else question.kind, question.tolerance)

    @property
    def locked(self) -> bool:
        return self.value is not None

    @property
    def final(self) -> bool:
        """Return whether the true value was displayed. Afterwards, the answer cannot be changed."""
        return self.seen or self.right is not None

    def lock(self, value: AnswerValue, sure: bool | None = None) -> Prediction:
        """Lock an answer as sure or as a guess, unless the true value was already displayed.

        Raises
        ------
        ValueError
            If `value` is not one of the choices, or not a number where there are no choices.
        """
        if not self.final:
            self.value = self._check_value(value)
            self.sure = sure
            self._store_record()
            if self._waiting is not None:
                self._waiting.compare()
            self._refresh()
        return self

    def unlock(self) -> None:
        """Delete the locked answer, unless the true value was already displayed."""
        if not self.final:
            self.value = self.sure = None
            store().forget(SECTION, self.key)
            self._refresh()

    def reveal(self, value: AnswerValue, source: Provenance | str = "", because: str = "") -> Reveal:
        """Return the comparison of the learner's answer with the true `value`.

        If no answer is locked yet, the result is recorded when the learner locks one.

        Parameters
        ----------
        value
            The true number or choice.
        source
            Where it comes from: a record's provenance, or a phrase such as ``"counted by hand"``.
        because
            A sentence that explains the number.
        """
        self._waiting = Reveal(
            self, value, source.label if isinstance(source, Provenance) else source, because
        )
        if self.locked:
            self._waiting.compare()
        self._refresh()
        return self._waiting

    def store_result(self, right: bool) -> None:
        """Store whether the learner's answer was right. Later calls have no effect."""
        if self.right is None:
            self.right = right
            self._store_record()

    def record_look(self) -> None:
        """Record that the learner displayed the true value without a prediction."""
        if not self.final:
            self.seen = True
            store().put(SECTION, self.key, {"seen": True})
            self._refresh()

    def describe_answer(self) -> str:
        """Return a sentence with the locked answer, and whether the learner was sure."""
        if self.value is None:
            return "The number below was shown without a prediction." if self.seen else ""
        certainty_text = {True: ", sure", False: ", a guess", None: ""}[self.sure]
        return f"Locked: {self.scale.show(self.value)}{certainty_text}."

    def _store_record(self) -> None:
        store().put(SECTION, self.key, {"value": self.value, "sure": self.sure, "right": self.right})

    def _refresh(self) -> None:
        for form in (self._form, self._comparison):
            if form is not None:
                form.refresh()

    def _check_value(self, value: AnswerValue) -> AnswerValue:
        if self.asked_question.choices:
            for choice in self.asked_question.choices:
                if str(value) == str(choice):
                    return choice
            choices_text = ", ".join(map(str, self.asked_question.choices))
            raise ValueError(f"{value!r} is not one of the choices: {choices_text}.")
        return value if not isinstance(value, str) else read_number(value, self.asked_question.unit)

    def __str__(self) -> str:
        lines = [f"Predict: {self.question}"]
        if self.asked_question.choices:
            lines.append("  " + " / ".join(map(str, self.asked_question.choices)))
        return "\n".join(lines)

    def __repr__(self) -> str:
        status = self.describe_answer().removesuffix(".").lower() if self.locked else "open"
        return f"Prediction {self.key!r} ({self.question}): {status}."

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        question_html = f"<b>Predict:</b> {page.render_prose(self.question)}"
        if self.asked_question.choices:
            question_html += "<br>" + " &nbsp;/&nbsp; ".join(
                page.render_prose(str(choice)) for choice in self.asked_question.choices
            )
        if page.is_in_jupyter():
            self._form = make_asking_form(self)
        return page.make_bundle(
            self._form if page.is_in_jupyter() else None, str(self), page.render_box(question_html)
        )

    def set_comparing_form(self, form: Form) -> None:
        """Set the form that shows the comparison of the answer with the true value. This form is updated when
        the learner's answer changes.
        """
        self._comparison = form


@dataclass(frozen=True, eq=False, repr=False)
class Reveal:
    """A comparison of a learner's prediction with the true value, which is displayed below a cell."""

    prediction: Prediction
    found: AnswerValue
    label: str
    because: str

    @property
    def right(self) -> bool | None:
        """Return whether the prediction is right, or None if there is no prediction."""
        answer = self.prediction.value
        return None if answer is None else self.prediction.scale.right(answer, self.found)

    def compare(self) -> None:
        """Store the result of the comparison in the prediction."""
        if self.right is not None:
            self.prediction.store_result(self.right)

    @property
    def sign(self) -> str:
        return {True: "✓", False: "✗", None: ""}[self.right]

    @property
    def head(self) -> str:
        """The first sentence of the comparison, which gives the true value, the prediction and the
        difference.
        """
        prediction = self.prediction
        scale = self.prediction.scale
        value_text = scale.show(self.found)
        if prediction.value is None:
            wrong_answer = prediction.asked_question.comparison
            hint = ""
            if wrong_answer is not None and wrong_answer != self.found:
                hint = f" The usual wrong answer: {scale.show(wrong_answer)}."
            return (
                "No prediction. "
                f"{value_text if '_' in value_text else value_text[:1].upper() + value_text[1:]}.{hint}"
            )
        verb = f"you {_CERTAINTY_VERBS[prediction.sure]}"
        if prediction.value == self.found:
            return (
                f"{value_text}, as you "
                f"{_CERTAINTY_VERBS[prediction.sure].replace('were sure of', 'were sure')}."
            )
        distance = scale.distance(prediction.value, self.found)
        answer = f"{verb} {scale.show(prediction.value)}"
        return f"{value_text}; {answer}{f', {distance}' if distance else ''}."

    @property
    def rest(self) -> str:
        """The other sentences of the comparison, with the source of the true value and the explanation."""
        label = f"{self.label[0].upper()}{self.label[1:]}." if self.label else ""
        return f"{label} {self.because}".strip()

    def __repr__(self) -> str:
        return " ".join(part for part in (self.sign, self.head, self.rest) if part)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        colour = {True: "good", False: "tail", None: "accent"}[self.right]
        sign_html = html.escape(self.sign) + (" " if self.sign else "")
        comparison_html = page.render_box(
            f"<b>{sign_html}{page.render_prose(self.head)}</b> {page.render_prose(self.rest)}", colour
        )
        form = None
        if page.is_in_jupyter() and not self.prediction.locked:
            form = make_comparing_form(self)
            self.prediction.set_comparing_form(form)
        return page.make_bundle(form, repr(self), comparison_html)


def make_asking_form(prediction: Prediction) -> Form:
    """Return the form in which a learner enters and locks a prediction."""
    from gpulab_course.teach.forms import Form

    def make_state(error: str = "") -> dict[str, object]:
        locked_value = prediction.value
        return {
            "value": "" if locked_value is None else str(locked_value),
            "locked": prediction.locked or prediction.final,
            "final": prediction.final,
            "note": prediction.describe_answer(),
            "wrong": error,
        }

    def handle_message(message: dict[str, Any]) -> None:
        if prediction.locked:
            prediction.unlock()
            return
        try:
            prediction.lock(message.get("value", ""), sure=message.get("sure"))
        except ValueError as error:
            form.state = make_state(str(error) if message.get("value") else _MISSING_TEXT)

    form_facts = {
        "question": prediction.question,
        "choices": [str(choice) for choice in prediction.asked_question.choices],
        "unit": prediction.asked_question.unit,
    }
    form = Form("prediction", form_facts, make_state, handle_message)
    return form


def make_comparing_form(reveal: Reveal) -> Form:
    """Return the form that hides the true value until the learner locks a prediction or requests it."""
    from gpulab_course.teach.forms import Form

    prediction = reveal.prediction

    def make_state() -> dict[str, object]:
        is_shown = prediction.final
        verdict = {True: "right", False: "wrong", None: ""}[reveal.right]
        headline, details = (reveal.head, reveal.rest) if is_shown else ("", "")
        return {
            "verdict": verdict if is_shown else "",
            "sign": reveal.sign if is_shown else "",
            "head": headline,
            "rest": details,
        }

    return Form("reveal", {"wait": _WAIT_TEXT}, make_state, lambda _: prediction.record_look())
