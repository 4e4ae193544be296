"""Forms for predictions and quizzes: widgets in JupyterLab, plain text everywhere else."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gpulab.teach.question import Question
from gpulab.views.parts import palette

if TYPE_CHECKING:
    from gpulab.teach.forms import Form

Bundle = dict[str, object]


class Asked(Protocol):
    """Of a prediction, what its form shows and does."""

    question: str
    unit: str
    revealed: bool

    @property
    def choices(self) -> Sequence[object]: ...
    @property
    def value(self) -> Any: ...
    @property
    def locked(self) -> bool: ...
    def show(self, value: Any, /) -> str: ...
    def lock(self, value: Any, /) -> object: ...
    def unlock(self) -> None: ...
    def on_change(self, listener: Callable[[], None], /) -> None: ...


class Compared(Protocol):
    """A comparison, which waits for the prediction it belongs to; its text is its `repr`."""

    @property
    def prediction(self) -> Asked: ...


class Questions(Protocol):
    """Of a quiz, what its form shows and does."""

    title: str
    questions: tuple[Question, ...]

    def answer(self, number: int, choice: int | str, /) -> str: ...
    def score_words(self) -> str: ...


_WAIT = "Lock your prediction above first, and the comparison appears here."
_MISSING = "Choose or type an answer first."


def bundle_of(widget: Any | None, text: str, page: str) -> Bundle:
    """A mime bundle of `widget`, with `page` (HTML) and `text` for places that cannot show it."""
    bundle: Bundle = {}
    if widget is not None:
        made = widget._repr_mimebundle_()
        bundle.update(made[0] if isinstance(made, tuple) else made)
    return bundle | {"text/html": page, "text/plain": text}


def boxed(content: str, colour: str = "accent") -> str:
    """HTML set off by a coloured bar at its left; text keeps the page's own colour, light or dark."""
    bar = f"4px solid {palette.light(colour)}"
    return f'<div style="border-left:{bar};padding:2px 0 2px 10px">{content}</div>'


def verdict_page(opening: str, message: str, passed: bool) -> str:
    """An exercise's verdict as HTML: a sign and a word, not only a colour."""
    sign = "✓" if passed else "✗"
    content = f"<b>{sign} {html.escape(opening)}</b> {html.escape(message)}"
    return boxed(content, "good" if passed else "tail")


def in_jupyter() -> bool:
    """Whether a Jupyter kernel runs this and its front end can therefore show a form."""
    try:
        import anywidget  # noqa: F401
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def prediction_bundle(prediction: Asked) -> Bundle:
    """A form to lock a prediction, or the question as text."""
    page = f"<b>Predict:</b> {html.escape(prediction.question)}"
    if prediction.choices:
        page += "<br>" + " &nbsp;/&nbsp; ".join(html.escape(str(choice)) for choice in prediction.choices)
    form = prediction_form(prediction) if in_jupyter() else None
    return bundle_of(form, str(prediction), boxed(page))


def reveal_bundle(reveal: Compared) -> Bundle:
    """The comparison as text; in JupyterLab it waits for a prediction that is still open."""
    form = reveal_form(reveal) if in_jupyter() and not reveal.prediction.locked else None
    return bundle_of(form, repr(reveal), boxed(html.escape(repr(reveal))))


def prediction_form(prediction: Asked) -> Form:
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


def reveal_form(reveal: Compared) -> Form:
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


def quiz_bundle(quiz: Questions) -> Bundle:
    """The questions as a form with feedback, or as text."""
    questions = "".join(
        f'<li>{html.escape(question.text)}<ol type="a">'
        + "".join(f"<li>{html.escape(choice)}</li>" for choice in question.choices)
        + "</ol></li>"
        for question in quiz.questions
    )
    page = f"<b>{html.escape(quiz.title)}</b><ol>{questions}</ol>"
    return bundle_of(quiz_form(quiz) if in_jupyter() else None, str(quiz), page)


def quiz_form(quiz: Questions) -> Form:
    """All questions of a quiz; every choice answers with its reason."""
    from gpulab.teach.forms import Form

    answers: dict[str, dict[str, object]] = {}

    def heard(message: dict[str, Any]) -> None:
        number, choice = int(message["number"]), int(message["choice"])
        text = quiz.answer(number, choice)
        right = quiz.questions[number - 1].options[choice - 1].right
        answers[str(number)] = {"choice": choice, "right": right, "text": text}
        form.state = {"answers": dict(answers), "score": quiz.score_words()}

    facts = {
        "title": quiz.title,
        "questions": [
            {"text": question.text, "choices": list(question.choices)} for question in quiz.questions
        ],
    }
    form = Form("quiz", facts, {"answers": {}, "score": quiz.score_words()}, heard)
    return form
