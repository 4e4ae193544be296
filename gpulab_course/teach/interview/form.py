"""Forms of an interview in JupyterLab, one below the other, a card at a time."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from gpulab.views.tables import Table
from gpulab_course.teach import page
from virtualgpu.errors import GpulabError

if TYPE_CHECKING:
    from gpulab_course.teach.forms import Form

Interview = Any
"""A `gpulab_course.teach.interview.talk.Interview`; its module imports this one."""

_MISSING = "Choose or type an answer first."


def page_of(talk: Interview) -> str:
    """Return the page for readers without a kernel: the current card and the answers to it."""
    content = f"<p><b>{html.escape(talk.heading)}</b></p>" + _answered(talk)
    if talk.chair == "interviewer":
        content += _answers(talk)
    elif talk.part is not None:
        choices = "".join(f"<li>{page.prose(choice)}</li>" for choice in talk.part.choices)
        content += f"<p>{page.prose(talk.part.question)}</p>{f'<ol>{choices}</ol>' if choices else ''}"
    else:
        content += f"<p>A strong answer says:</p>{_points(talk)}"
    if talk.part is None or talk.chair == "interviewer":
        content += f"<p><i>{page.prose(talk.drawn.sentence)}</i></p>"
    return page.boxed(content)


def _answers(talk: Interview) -> str:
    """Return the questions, points and true values of the card as HTML, for the interviewer."""
    pieces = []
    for number, (question, truth, model) in enumerate(talk.answers(), start=1):
        pieces.append(f"<p><b>{number}. {page.prose(question)}</b></p>")
        if number == 1:
            pieces.append(f"<p>What to listen for:</p>{_points(talk)}")
        pieces.append(f"<p>Truth: {page.prose(truth)}</p>")
        pieces += [_item_html(model)] if model else []
    return "".join(pieces)


def _points(talk: Interview) -> str:
    """Return the points of a strong answer as an HTML list."""
    return f"<ol>{''.join(f'<li>{page.prose(point)}</li>' for point in talk.drawn.points)}</ol>"


def _answered(talk: Interview) -> str:
    """Return the results of the answers to this card, and the tables and code to show with them, as HTML."""
    boxes = []
    for outcome in talk.outcomes:
        sign = "✓" if outcome.right else "✗"
        text = f"<b>{sign}</b> {page.prose(outcome.said)} <i>{page.prose(outcome.label)}</i>"
        boxes.append(page.boxed(text, "good" if outcome.right else "tail"))
    return "".join([*boxes, *map(_item_html, talk.shown())])


def _item_html(item: Table | str) -> str:
    if isinstance(item, Table):
        return item.html()
    style = "overflow:auto;max-height:300px;font-size:12px;line-height:1.35"
    return f'<pre tabindex="0" aria-label="source" style="{style}">{html.escape(item)}</pre>'


def interview_form(talk: Interview) -> Any:
    """Return the form of an interview: question, lock, measurement, rubric, button for the next card."""
    import ipywidgets as widgets

    box = widgets.VBox()

    def show() -> None:
        parts: list[Any] = [widgets.HTML(f"<b>{html.escape(talk.heading)}</b>{_answered(talk)}")]
        if talk.chair == "interviewer":
            parts.append(widgets.HTML(f"{_answers(talk)}<p><b>The candidate's answer</b></p>"))
        if talk.part is not None:
            parts.append(_question_form(talk, show) if talk.part.judge is None else _kernel_form(talk, show))
        if talk.part is None or talk.chair == "interviewer":
            parts.append(_rubric_form(talk))
            parts.append(widgets.HTML(page.boxed(f"<i>{page.prose(talk.drawn.sentence)}</i>")))
        parts.append(_next_button(talk, show))
        box.children = tuple(parts)

    show()
    return box


def _question_form(talk: Interview, show: Any) -> Form:
    """Return the form for a number or a choice, locked as sure or as a guess."""
    from gpulab_course.teach.forms import Form

    part = talk.part
    assert part is not None

    def state(error: str = "") -> dict[str, object]:
        return {"value": "", "locked": False, "final": False, "note": "", "wrong": error}

    def react(message: dict[str, Any]) -> None:
        try:
            talk.answer(message.get("value", ""), sure=message.get("sure"))
        except (ValueError, GpulabError) as error:
            form.state = state(str(error) if message.get("value") else _MISSING)
        else:
            show()

    facts = {"question": part.question, "choices": list(part.choices), "unit": part.unit}
    form = Form("prediction", facts, state, react)
    return form


def _kernel_form(talk: Interview, show: Any) -> Any:
    """Return the form for a kernel, written here or in a cell with ``answer(code)``."""
    import ipywidgets as widgets

    part = talk.part
    assert part is not None
    code = widgets.Textarea(
        value=part.code, description="Kernel", layout=widgets.Layout(width="100%", height="260px")
    )
    problem = widgets.HTML()

    def lock(sure: bool) -> None:
        try:
            talk.answer(code.value, sure=sure)
        except (ValueError, GpulabError) as error:
            problem.value = page.boxed(html.escape(str(error)), "tail")
        else:
            show()

    buttons = []
    for text, sure in (("I am sure", True), ("I guess", False)):
        button = widgets.Button(description=text)
        button.on_click(lambda _, sure=sure: lock(sure))
        buttons.append(button)
    question = widgets.HTML(f"<p>{page.prose(part.question)}</p>")
    return widgets.VBox([question, code, widgets.HBox(buttons), problem])


def _rubric_form(talk: Interview) -> Form:
    """Return the form for an answer in one's own words, and then for the points to tick."""
    from gpulab_course.teach.forms import Form

    drawn = talk.drawn

    def state() -> dict[str, object]:
        is_open = talk.words is not None or talk.chair == "interviewer"
        points = list(drawn.points) if is_open else []
        answers = [{"words": talk.words or "", "points": points, "ticked": list(talk.ticked)}]
        return {"answers": answers, "score": f"{len(talk.ticked)} of {len(drawn.points)} points"}

    def react(message: dict[str, Any]) -> None:
        if "ticked" in message:
            talk.tick(*(int(point) + 1 for point in message["ticked"]))
        else:
            talk.say(message["answer"])
        form.refresh()

    question = "Say it aloud, as you would in the room: what is the answer, and why?"
    if talk.chair == "interviewer":
        question = "Tick the points that the candidate made."
    facts = {"title": "Points of a strong answer", "questions": [{"text": question, "choices": []}]}
    form = Form("quiz", facts, state, react)
    return form


def _next_button(talk: Interview, show: Any) -> Any:
    import ipywidgets as widgets

    is_last = talk.index + 1 == len(talk.cards)
    if is_last and talk.part is None:
        return widgets.HTML(talk.scorecard._repr_html_())
    button = widgets.Button(description="Next card", disabled=is_last)
    warning = widgets.HTML()

    def go_on(_: object) -> None:
        if talk.rest and not warning.value:
            warning.value = page.boxed(f"This card still has {talk.rest}.", "tail")
            button.description = "Skip them"
            return
        talk.next()
        show()

    button.on_click(go_on)
    return widgets.VBox([warning, button])
