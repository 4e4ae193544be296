"""The interview card in JupyterLab, and the static page of a card."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from gpulab.views.parts.card import make_card
from gpulab.views.tables import Table
from gpulab_course.teach import page
from virtualgpu.errors import GpulabError

if TYPE_CHECKING:
    from gpulab_course.teach.forms import Form

Interview = Any
"""A `gpulab_course.teach.interview.talk.Interview`; its module imports this one."""

_MISSING_TEXT = "Choose or type an answer first."
_ALOUD_TEXT = "Say it aloud, as you would in the room: what is the answer, and why?"
_TICK_TEXT = "Tick the points that the candidate made."


def page_of(talk: Interview) -> str:
    """Return static HTML of the current card and the results of its answers, for viewers without a kernel."""
    html_parts = [f"<p><small>{html.escape(talk.place)}</small></p>"]
    for record in _question_records(talk):
        truth = f"<p>Truth: {page.prose(record['truth'])}</p>" if record["truth"] else ""
        html_parts.append(f"<p><b>{page.prose(record['question'])}</b></p>{truth}{record['html']}")
        if record["said"]:
            check_mark, colour = ("✓", "good") if record["right"] else ("✗", "tail")
            result_html = (
                f"<b>{check_mark}</b> {page.prose(record['said'])} <i>{page.prose(record['label'])}</i>"
            )
            html_parts.append(page.boxed(result_html, colour))
    if (question := _current_question(talk)) is not None:
        choices = "".join(f"<li>{page.prose(choice)}</li>" for choice in question["choices"])
        html_parts.append(f"<p><b>{page.prose(question['question'])}</b></p>")
        html_parts.append(question["html"] + (f"<ol>{choices}</ol>" if choices else ""))
    if _is_open(talk):
        points_html = "".join(f"<li>{page.prose(point)}</li>" for point in talk.drawn.points)
        html_parts.append(f"<p>A strong answer says:</p><ol>{points_html}</ol>")
        html_parts.append(f"<p><i>{page.prose(talk.drawn.sentence)}</i></p>")
    return make_card(talk.card.title, *html_parts, notes=[talk.source])


def interview_form(talk: Interview) -> Form:
    """Return the widget of an interview, which shows one card at a time."""
    from gpulab_course.teach.forms import Form

    is_warned = False

    def state(error: str = "") -> dict[str, object]:
        is_last = talk.index + 1 == len(talk.cards)
        return {
            "place": talk.place,
            "title": talk.card.title,
            "source": talk.source,
            "clock": {"elapsed_s": talk.elapsed_s, "since_s": talk.since_s},
            "steps": _question_records(talk),
            "question": _current_question(talk),
            "rubric": _rubric_state(talk),
            "next": "" if is_last else "Skip them" if is_warned else "Next card",
            "warning": f"This card still has {talk.rest}." if is_warned else "",
            "scorecard": talk.scorecard._repr_html_() if is_last and talk.part is None else "",
            "wrong": error,
        }

    def react(message: dict[str, Any]) -> None:
        nonlocal is_warned
        error = ""
        if "ticked" in message:
            talk.tick(*(int(point) + 1 for point in message["ticked"]))
        elif "answer" in message:
            talk.say(message["answer"])
        elif "next" in message:
            is_warned = bool(talk.rest) and not is_warned
            if not is_warned:
                talk.next()
        elif message["key"] == _key(talk):  # a second press of the button does not answer the next question
            try:
                talk.answer(message.get("value", ""), sure=message.get("sure"))
            except (ValueError, GpulabError) as exception:
                error = str(exception) if message.get("value") else _MISSING_TEXT
        form.state = state(error)

    form = Form("interview", {}, state, react)
    return form


def _key(talk: Interview) -> str:
    """Return the key of the current question in this interview."""
    return f"{talk.index}.{len(talk.outcomes)}"


def _is_open(talk: Interview) -> bool:
    """Return whether the points of a strong answer may be shown."""
    return talk.chair == "interviewer" or talk.part is None


def _question_records(talk: Interview) -> list[dict[str, Any]]:
    """Return the answered questions with their results; for the interviewer, all questions with the truth."""
    records: list[dict[str, Any]] = []
    if talk.chair == "interviewer":
        for part, (question, truth, model) in zip(talk.drawn.parts, talk.answers(), strict=True):
            code = "" if part.judge is not None else part.code  # otherwise it is in the field of the answer
            question_html = "".join(map(_table_or_code_html, (part.table, code, model)))
            records.append({"question": question, "truth": truth, "html": question_html})
    else:
        records = [{"question": part.question, "truth": "", "html": ""} for part in talk.drawn.parts]
        del records[len(talk.outcomes) :]
    for record in records:
        record.update(said="", label="", right=False)
    for record, outcome in zip(records, talk.outcomes, strict=False):
        record.update(said=outcome.said, label=outcome.label, right=outcome.right)
        record["html"] += _table_or_code_html(outcome.table) + _table_or_code_html(outcome.code)
    return records


def _current_question(talk: Interview) -> dict[str, Any] | None:
    """Return the current question, or None if all are answered."""
    part = talk.part
    if part is None:
        return None
    is_kernel = part.judge is not None
    question_count = len(talk.drawn.parts)
    is_candidate = talk.chair == "candidate"
    label = f"Question {len(talk.outcomes) + 1} of {question_count}" if question_count > 1 else "Question"
    return {
        "key": _key(talk),
        "label": label if is_candidate else f"The candidate's answer to {label.lower()}",
        "question": part.question if is_candidate else "",
        "choices": list(part.choices),
        "unit": part.unit,
        "html": _table_or_code_html(part.table) + ("" if is_kernel else _table_or_code_html(part.code))
        if is_candidate
        else "",
        **({"code": part.code} if is_kernel else {}),
        **({} if is_candidate else {"sure": "The candidate was sure", "guess": "The candidate guessed"}),
    }


def _rubric_state(talk: Interview) -> dict[str, Any] | None:
    """Return the points of a strong answer and the ticks, or None while the questions are open."""
    if not _is_open(talk):
        return None
    drawn_card = talk.drawn
    is_interviewer = talk.chair == "interviewer"
    are_points_open = is_interviewer or talk.words is not None
    return {
        "key": str(talk.index),
        "label": "What to listen for" if is_interviewer else "Explanation",
        "text": _TICK_TEXT if is_interviewer else _ALOUD_TEXT,
        "written": not is_interviewer,
        "words": talk.words or "",
        "points": list(drawn_card.points) if are_points_open else [],
        "ticked": list(talk.ticked),
        "score": f"{len(talk.ticked)} of {len(drawn_card.points)} points" if are_points_open else "",
        "sentence": drawn_card.sentence if are_points_open else "",
    }


def _table_or_code_html(table_or_code: Table | str | None) -> str:
    """Return a table or source code as HTML; nothing for an empty item."""
    if isinstance(table_or_code, Table):
        return table_or_code.html()
    style = "overflow:auto;max-height:300px;padding:6px 8px;font-size:12px;line-height:1.35;"
    style += "background:var(--gl-panel);border-radius:4px"
    return (
        f'<pre tabindex="0" aria-label="source" style="{style}">{html.escape(table_or_code)}</pre>'
        if table_or_code
        else ""
    )
