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
_SAY_ALOUD_TEXT = "Say it aloud, as you would in the room: what is the answer, and why?"
_TICK_TEXT = "Tick the points that the candidate made."


def make_interview_page(interview: Interview) -> str:
    """Return static HTML of the current card and the results of its answers, for viewers without a kernel."""
    html_parts = [f"<p><small>{html.escape(interview.position_text)}</small></p>"]
    for question_record in _make_question_records(interview):
        truth_html = (
            f"<p>Truth: {page.render_prose(question_record['truth'])}</p>" if question_record["truth"] else ""
        )
        html_parts.append(
            f"<p><b>{page.render_prose(question_record['question'])}</b></p>{truth_html}{question_record['html']}"
        )
        if question_record["said"]:
            check_mark, box_colour = ("✓", "good") if question_record["right"] else ("✗", "tail")
            label_html = f"<i>{page.render_prose(question_record['label'])}</i>"
            result_html = f"<b>{check_mark}</b> {page.render_prose(question_record['said'])} {label_html}"
            html_parts.append(page.render_box(result_html, box_colour))
    if (question := _make_current_question(interview)) is not None:
        choices_html = "".join(f"<li>{page.render_prose(choice)}</li>" for choice in question["choices"])
        html_parts.append(f"<p><b>{page.render_prose(question['question'])}</b></p>")
        html_parts.append(question["html"] + (f"<ol>{choices_html}</ol>" if choices_html else ""))
    if _may_show_points(interview):
        points_html = "".join(
            f"<li>{page.render_prose(point)}</li>" for point in interview.drawn_card.rubric_points
        )
        html_parts.append(f"<p>A strong answer says:</p><ol>{points_html}</ol>")
        html_parts.append(f"<p><i>{page.render_prose(interview.drawn_card.strong_answer)}</i></p>")
    return make_card(interview.card.title, *html_parts, notes=[interview.source])


def make_interview_form(interview: Interview) -> Form:
    """Return the widget of an interview, which shows one card at a time."""
    from gpulab_course.teach.forms import Form

    is_warned = False

    def make_state(error_text: str = "") -> dict[str, object]:
        is_last = interview.index + 1 == len(interview.cards)
        return {
            "place": interview.position_text,
            "title": interview.card.title,
            "source": interview.source,
            "clock": {"elapsed_s": interview.elapsed_s, "since_s": interview.shown_since_s},
            "steps": _make_question_records(interview),
            "question": _make_current_question(interview),
            "rubric": _make_rubric_state(interview),
            "next": "" if is_last else "Skip them" if is_warned else "Next card",
            "warning": f"This card still has {interview.unfinished_text}." if is_warned else "",
            "scorecard": interview.scorecard._repr_html_() if is_last and interview.part is None else "",
            "wrong": error_text,
        }

    def handle_message(message: dict[str, Any]) -> None:
        nonlocal is_warned
        error_text = ""
        if "ticked" in message:
            interview.tick(*(int(point) + 1 for point in message["ticked"]))
        elif "answer" in message:
            interview.say(message["answer"])
        elif "next" in message:
            is_warned = bool(interview.unfinished_text) and not is_warned
            if not is_warned:
                interview.next()
        elif message["key"] == _make_question_key(
            interview
        ):  # a second press of the button does not answer the next question
            try:
                interview.answer(message.get("value", ""), sure=message.get("sure"))
            except (ValueError, GpulabError) as exception:
                error_text = str(exception) if message.get("value") else _MISSING_TEXT
        form.state = make_state(error_text)

    form = Form("interview", {}, make_state, handle_message)
    return form


def _make_question_key(interview: Interview) -> str:
    """Return the key of the current question in this interview."""
    return f"{interview.index}.{len(interview.outcomes)}"


def _may_show_points(interview: Interview) -> bool:
    """Return whether the points of a strong answer may be shown."""
    return interview.role == "interviewer" or interview.part is None


def _make_question_records(interview: Interview) -> list[dict[str, Any]]:
    """Return the answered questions with their results. For the interviewer, return all questions with their
    true values.
    """
    question_records: list[dict[str, Any]] = []
    if interview.role == "interviewer":
        for card_question, (question, truth, model_answer) in zip(
            interview.drawn_card.questions, interview.list_model_answers(), strict=True
        ):
            # The code of a question with a judge is in the field of the answer.
            code = "" if card_question.judge is not None else card_question.code
            question_html = "".join(map(_render_table_or_code, (card_question.table, code, model_answer)))
            question_records.append({"question": question, "truth": truth, "html": question_html})
    else:
        question_records = [
            {"question": card_question.question, "truth": "", "html": ""}
            for card_question in interview.drawn_card.questions
        ]
        del question_records[len(interview.outcomes) :]
    for question_record in question_records:
        question_record.update(said="", label="", right=False)
    for question_record, answer_outcome in zip(question_records, interview.outcomes, strict=False):
        question_record.update(
            said=answer_outcome.message, label=answer_outcome.label, right=answer_outcome.is_right
        )
        question_record["html"] += _render_table_or_code(answer_outcome.table) + _render_table_or_code(
            answer_outcome.code
        )
    return question_records


def _make_current_question(interview: Interview) -> dict[str, Any] | None:
    """Return the current question, or None if all are answered."""
    card_question = interview.part
    if card_question is None:
        return None
    is_kernel = card_question.judge is not None
    question_count = len(interview.drawn_card.questions)
    is_candidate = interview.role == "candidate"
    question_label = (
        f"Question {len(interview.outcomes) + 1} of {question_count}" if question_count > 1 else "Question"
    )
    return {
        "key": _make_question_key(interview),
        "label": question_label if is_candidate else f"The candidate's answer to {question_label.lower()}",
        "question": card_question.question if is_candidate else "",
        "choices": list(card_question.choices),
        "unit": card_question.unit,
        "html": _render_table_or_code(card_question.table)
        + ("" if is_kernel else _render_table_or_code(card_question.code))
        if is_candidate
        else "",
        **({"code": card_question.code} if is_kernel else {}),
        **({} if is_candidate else {"sure": "The candidate was sure", "guess": "The candidate guessed"}),
    }


def _make_rubric_state(interview: Interview) -> dict[str, Any] | None:
    """Return the points of a strong answer and the ticks, or None while the questions are open."""
    if not _may_show_points(interview):
        return None
    drawn_card = interview.drawn_card
    is_interviewer = interview.role == "interviewer"
    are_points_open = is_interviewer or interview.explanation is not None
    return {
        "key": str(interview.index),
        "label": "What to listen for" if is_interviewer else "Explanation",
        "text": _TICK_TEXT if is_interviewer else _SAY_ALOUD_TEXT,
        "written": not is_interviewer,
        "words": interview.explanation or "",
        "points": list(drawn_card.rubric_points) if are_points_open else [],
        "ticked": list(interview.ticked_points),
        "score": f"{len(interview.ticked_points)} of {len(drawn_card.rubric_points)} points"
        if are_points_open
        else "",
        "sentence": drawn_card.strong_answer if are_points_open else "",
    }


def _render_table_or_code(table_or_code: Table | str | None) -> str:
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
