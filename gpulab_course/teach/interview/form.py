"""The interview form in JupyterLab, which shows one card at a time."""

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
    """Return static HTML of the current card and the results of its answers, for viewers without a kernel."""
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
    """Return HTML with the questions, rubric and true values of the current card, for the interviewer."""
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


def _answered(talk: Interview, code_in_form: str = "") -> str:
    """Return HTML with the results of the answers so far and their tables and code, except `code_in_form`."""
    boxes = []
    for outcome in talk.outcomes:
        sign = "✓" if outcome.right else "✗"
        text = f"<b>{sign}</b> {page.prose(outcome.said)} <i>{page.prose(outcome.label)}</i>"
        boxes.append(page.boxed(text, "good" if outcome.right else "tail"))
    return "".join([*boxes, *(_item_html(item) for item in talk.shown() if item != code_in_form)])


def _item_html(item: Table | str) -> str:
    if isinstance(item, Table):
        return item.html()
    style = "overflow:auto;max-height:300px;font-size:12px;line-height:1.35"
    return f'<pre tabindex="0" aria-label="source" style="{style}">{html.escape(item)}</pre>'


def interview_form(talk: Interview) -> Any:
    """Return the widget of an interview: question, result, rubric, and a button for the next card."""
    import ipywidgets as widgets

    box = widgets.VBox()

    def show() -> None:
        code = talk.part.code if talk.part is not None and talk.part.judge is not None else ""
        parts: list[Any] = [widgets.HTML(f"<b>{html.escape(talk.heading)}</b>{_answered(talk, code)}")]
        if talk.chair == "interviewer":
            parts.append(widgets.HTML(f"{_answers(talk)}<p><b>The candidate's answer</b></p>"))
        if talk.part is not None:
            parts.append(_question_form(talk, show))
        if talk.part is None or talk.chair == "interviewer":
            parts.append(_rubric_form(talk))
            parts.append(widgets.HTML(page.boxed(f"<i>{page.prose(talk.drawn.sentence)}</i>")))
        parts.append(_next_button(talk, show))
        box.children = tuple(parts)

    show()
    return box


def _question_form(talk: Interview, show: Any) -> Form:
    """Return the form in which a candidate enters a number, a choice or a kernel, and locks the answer."""
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

    facts = {
        "label": "Question",
        "question": part.question,
        "choices": list(part.choices),
        "unit": part.unit,
    }
    if part.judge is not None:
        facts["code"] = part.code
    form = Form("prediction", facts, state, react)
    return form


def _rubric_form(talk: Interview) -> Form:
    """Return the form for an explanation in the candidate's own words, followed by the points to tick."""
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
    """Return the button for the next card, or the scorecard after the last card.

    The button warns once before it skips unanswered questions.
    """
    import ipywidgets as widgets

    from gpulab_course.teach.forms import Form

    if talk.index + 1 == len(talk.cards):
        return widgets.HTML("" if talk.part is not None else talk.scorecard._repr_html_())
    is_warned = False

    def state() -> dict[str, object]:
        if is_warned:
            return {"text": "Skip them", "warning": f"This card still has {talk.rest}."}
        return {"text": "Next card", "warning": ""}

    def go_on(_: object) -> None:
        nonlocal is_warned
        if talk.rest and not is_warned:
            is_warned = True
            form.refresh()
        else:
            talk.next()
            show()

    form = Form("button", {}, state, go_on)
    return form
