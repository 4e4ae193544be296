"""Forms for predictions and quizzes: ipywidgets in JupyterLab, plain text everywhere else."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpulab.teach.prediction import Prediction, Reveal
    from gpulab.teach.questions import Quiz

Bundle = dict[str, object]

_BLUE, _GREEN, _ORANGE = "#0072b2", "#009e73", "#d55e00"
_NOTE = '<div aria-live="polite" style="padding:2px 0">{}</div>'


def bundle_of(widget: Any | None, text: str, page: str) -> Bundle:
    """A mime bundle of `widget`, with `page` (HTML) and `text` for places that cannot show it."""
    bundle: Bundle = {}
    if widget is not None:
        made = widget._repr_mimebundle_()
        bundle.update(made[0] if isinstance(made, tuple) else made)
    return bundle | {"text/html": page, "text/plain": text}


def boxed(content: str, colour: str = _BLUE) -> str:
    """HTML set off by a bar at its left; text keeps the page's own colour, light or dark."""
    return f'<div style="border-left:4px solid {colour};padding:2px 0 2px 10px">{content}</div>'


def verdict_page(opening: str, message: str, passed: bool) -> str:
    """An exercise's verdict as HTML: a sign and a word, not only a colour."""
    sign = "✓" if passed else "✗"
    content = f"<b>{sign} {html.escape(opening)}</b> {html.escape(message)}"
    return boxed(content, _GREEN if passed else _ORANGE)


def widgets_module() -> Any | None:
    """The ipywidgets module inside a running Jupyter kernel, else None."""
    try:
        import ipywidgets
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return ipywidgets if shell is not None and hasattr(shell, "kernel") else None


def prediction_bundle(prediction: Prediction) -> Bundle:
    """A form to lock a prediction, or the question as text."""
    widgets = widgets_module()
    page = f"<b>Predict:</b> {html.escape(prediction.question)}"
    if prediction.choices:
        page += "<br>" + " &nbsp;/&nbsp; ".join(html.escape(str(choice)) for choice in prediction.choices)
    form = _prediction_form(prediction, widgets) if widgets else None
    return bundle_of(form, str(prediction), boxed(page))


def reveal_bundle(reveal: Reveal) -> Bundle:
    """The comparison as text; in JupyterLab it waits for a prediction that is still open."""
    widgets = widgets_module()
    form = _reveal_gate(reveal, widgets) if widgets and not reveal.prediction.locked else None
    return bundle_of(form, repr(reveal), boxed(html.escape(repr(reveal))))


def _prediction_form(prediction: Prediction, w: Any) -> Any:
    question = w.HTML(f"<b>Predict:</b> {html.escape(prediction.question)}")
    if prediction.choices:
        field = w.ToggleButtons(options=[str(choice) for choice in prediction.choices], value=None)
    else:
        field = w.Text(placeholder="a number", layout=w.Layout(width="12em"))
    if prediction.value is not None:
        field.value = str(prediction.value)
    button = w.Button(description="Lock", button_style="primary", layout=w.Layout(width="8em"))
    note = w.HTML()

    def refresh() -> None:
        field.disabled = prediction.locked
        button.description = "Change" if prediction.locked else "Lock"
        button.disabled = prediction.revealed and prediction.locked
        if prediction.value is not None:
            note.value = _NOTE.format(f"Locked: {html.escape(prediction.show(prediction.value))}")
        elif not note.value.startswith("<div role"):
            note.value = ""

    def clicked(_: object) -> None:
        note.value = ""
        if prediction.locked:
            prediction.unlock()
            return
        try:
            prediction.lock(field.value if field.value is not None else "")
        except ValueError as error:
            note.value = f'<div role="alert">{html.escape(str(error))}</div>'

    button.on_click(clicked)
    prediction.on_change(refresh)
    refresh()
    row = w.HBox([field, w.Label(prediction.unit), button])
    return w.VBox([question, row, note])


def _reveal_gate(reveal: Reveal, w: Any) -> Any:
    """Hold the number back until the prediction above is locked, or the learner asks for it."""
    note = w.HTML(_NOTE.format("Lock your prediction above first, and the comparison appears here."))
    button = w.Button(description="Show it anyway", layout=w.Layout(width="12em"))

    def show(_: object = None) -> None:
        note.value = _NOTE.format(html.escape(repr(reveal)))
        button.layout.display = "none"

    def locked() -> None:
        if reveal.prediction.locked:
            show()

    button.on_click(show)
    reveal.prediction.on_change(locked)
    return w.VBox([note, button])


def quiz_bundle(quiz: Quiz) -> Bundle:
    """The questions as a form with feedback, or as text."""
    widgets = widgets_module()
    questions = "".join(
        f'<li>{html.escape(question.text)}<ol type="a">'
        + "".join(f"<li>{html.escape(choice)}</li>" for choice in question.choices)
        + "</ol></li>"
        for question in quiz.questions
    )
    page = f"<b>{html.escape(quiz.title)}</b><ol>{questions}</ol>"
    return bundle_of(_quiz_form(quiz, widgets) if widgets else None, str(quiz), page)


def _quiz_form(quiz: Quiz, w: Any) -> Any:
    score = w.HTML()
    rows: list[Any] = [w.HTML(f"<b>{html.escape(quiz.title)}</b>")]
    for number, question in enumerate(quiz.questions, start=1):
        rows.append(_question_form(quiz, number, question.text, question.choices, score, w))
    score.value = _NOTE.format(html.escape(repr(quiz)))
    rows.append(score)
    return w.VBox(rows)


def _question_form(quiz: Quiz, number: int, text: str, choices: tuple[str, ...], score: Any, w: Any) -> Any:
    options = [(choice, index) for index, choice in enumerate(choices)]
    field = w.RadioButtons(options=options, value=None, layout=w.Layout(width="max-content"))
    feedback = w.HTML()

    def picked(change: Any) -> None:
        if change["new"] is None:
            return
        feedback.value = _NOTE.format(html.escape(quiz.answer(number, int(change["new"]) + 1)))
        score.value = _NOTE.format(html.escape(repr(quiz)))

    field.observe(picked, names="value")
    return w.VBox([w.HTML(f"{number}. {html.escape(text)}"), field, feedback])
