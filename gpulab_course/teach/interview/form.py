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
"""An `gpulab_course.teach.interview.talk.Interview`, whose module shows itself by this one."""

_MISSING = "Choose or type an answer first."


def page_of(talk: Interview) -> str:
    """Return the page for readers without a kernel: the current card and the answers to it."""
    content = f"<p><b>{html.escape(talk.heading)}</b></p>" + _told(talk)
    if talk.part is not None:
        choices = "".join(f"<li>{page.prose(choice)}</li>" for choice in talk.part.choices)
        content += f"<p>{page.prose(talk.part.question)}</p>{f'<ol>{choices}</ol>' if choices else ''}"
    if talk.chair == "interviewer":
        content += _answers(talk)
    if talk.part is None or talk.chair == "interviewer":
        points = "".join(f"<li>{page.prose(point)}</li>" for point in talk.drawn.points)
        content += (
            f"<p>A strong answer says:</p><ol>{points}</ol><p><i>{page.prose(talk.drawn.sentence)}</i></p>"
        )
    return page.boxed(content)


def _answers(talk: Interview) -> str:
    """All questions of the card with their truths, as the interviewer sees them."""
    return "".join(
        f"<p>{number}. {page.prose(question)}</p><p><b>Truth:</b> {page.prose(truth)}</p>"
        + (_shown(model) if model else "")
        for number, (question, truth, model) in enumerate(talk.answers(), start=1)
    )


def _told(talk: Interview) -> str:
    said = "".join(
        page.boxed(
            f"<b>{'✓' if found.right else '✗'}</b> {page.prose(found.said)} <i>{page.prose(found.label)}</i>",
            "good" if found.right else "tail",
        )
        for found in talk.outcomes
    )
    return said + "".join(map(_shown, talk.shown()))


def _shown(thing: Table | str) -> str:
    if isinstance(thing, Table):
        return thing.html()
    style = "overflow:auto;max-height:300px;font-size:12px;line-height:1.35"
    return f'<pre tabindex="0" aria-label="source" style="{style}">{html.escape(thing)}</pre>'


def room(talk: Interview) -> Any:
    """Return the form of an interview: question, lock, measurement, rubric, and the way to the next card."""
    import ipywidgets as widgets

    box = widgets.VBox()

    def show() -> None:
        parts: list[Any] = [widgets.HTML(f"<b>{html.escape(talk.heading)}</b>{_told(talk)}")]
        if talk.chair == "interviewer":
            parts.append(widgets.HTML(_answers(talk)))
        if talk.part is not None:
            parts.append(_asking(talk, show) if talk.part.judge is None else _writing(talk, show))
        if talk.part is None or talk.chair == "interviewer":
            parts.append(_rubric(talk))
            parts.append(widgets.HTML(page.boxed(f"<i>{page.prose(talk.drawn.sentence)}</i>")))
        parts.append(_onward(talk, show))
        box.children = tuple(parts)

    show()
    return box


def _asking(talk: Interview, show: Any) -> Form:
    """Return the form for a number or a choice, locked as sure or as a guess."""
    from gpulab_course.teach.forms import Form

    asked = talk.part
    assert asked is not None

    def state(wrong: str = "") -> dict[str, object]:
        return {"value": "", "locked": False, "final": False, "note": "", "wrong": wrong}

    def heard(message: dict[str, Any]) -> None:
        try:
            talk.answer(message.get("value", ""), sure=message.get("sure"))
        except (ValueError, GpulabError) as error:
            form.state = state(str(error) if message.get("value") else _MISSING)
        else:
            show()

    facts = {"question": asked.question, "choices": list(asked.choices), "unit": asked.unit}
    form = Form("prediction", facts, state, heard)
    return form


def _writing(talk: Interview, show: Any) -> Any:
    """Return the form for a kernel, written here or in a cell with ``answer(code)``."""
    import ipywidgets as widgets

    asked = talk.part
    assert asked is not None
    code = widgets.Textarea(
        value=asked.code, description="Kernel", layout=widgets.Layout(width="100%", height="260px")
    )
    problem = widgets.HTML()

    def locked(sure: bool) -> None:
        try:
            talk.answer(code.value, sure=sure)
        except (ValueError, GpulabError) as error:
            problem.value = page.boxed(html.escape(str(error)), "tail")
        else:
            show()

    buttons = []
    for text, sure in (("I am sure", True), ("I guess", False)):
        button = widgets.Button(description=text)
        button.on_click(lambda _, sure=sure: locked(sure))
        buttons.append(button)
    question = widgets.HTML(f"<p>{page.prose(asked.question)}</p>")
    return widgets.VBox([question, code, widgets.HBox(buttons), problem])


def _rubric(talk: Interview) -> Form:
    """Return the form for an answer in one's own words, and then for the points to tick."""
    from gpulab_course.teach.forms import Form

    drawn = talk.drawn

    def state() -> dict[str, object]:
        told = talk.words is not None or talk.chair == "interviewer"
        points = list(drawn.points) if told else []
        answers = [{"words": talk.words or "", "points": points, "ticked": list(talk.ticked)}]
        return {"answers": answers, "score": f"{len(talk.ticked)} of {len(drawn.points)} points"}

    def heard(message: dict[str, Any]) -> None:
        if "ticked" in message:
            talk.tick(*(int(point) + 1 for point in message["ticked"]))
        else:
            talk.say(message["answer"])
        form.refresh()

    asked = "Say it aloud, as you would in the room: what is the answer, and why?"
    facts = {"title": "What has to be said", "questions": [{"text": asked, "choices": []}]}
    form = Form("quiz", facts, state, heard)
    return form


def _onward(talk: Interview, show: Any) -> Any:
    import ipywidgets as widgets

    last = talk.at + 1 == len(talk.cards)
    if last and talk.part is None:
        return widgets.HTML(talk.scorecard._repr_html_())
    button = widgets.Button(description="Next card", disabled=last)

    def pressed(_: object) -> None:
        talk.next()
        show()

    button.on_click(pressed)
    return button
