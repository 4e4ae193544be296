"""Forms, driven from Python: the effect of clicks, and the text that is shown without Jupyter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ipywidgets import Widget

from gpulab_course.api import quiz
from gpulab_course.teach import page
from gpulab_course.teach.forms import Form
from gpulab_course.teach.predictions.prediction import Prediction, Reveal, make_asking_form
from gpulab_course.teach.question import Question, WhyQuestion
from gpulab_course.teach.quizzes import Quiz, make_quiz_form
from tests.teach.asked import predict
from tests.teach.test_quiz import SMALL, right_place, wrong_place

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def no_widgets_left() -> Iterator[None]:
    yield
    Widget.close_all()


def say(form: Form, **message: Any) -> None:
    """Send a message to the form as the browser does."""
    form._handle_custom_msg(message, [])


def test_without_jupyter_only_text_is_shown() -> None:
    guess = predict("How many?", key="n", default=1)
    assert guess._repr_mimebundle_()["text/plain"] == "Predict: How many?"
    for shown_thing in (guess, guess.reveal(2), quiz("start")):
        assert shown_thing._repr_mimebundle_().keys() == {"text/html", "text/plain"}


def test_pages_have_the_text_escaped() -> None:
    guess = predict("Is `1 < 2` & 3?", key="n", choices=("yes", "no"), answer="no")
    bundle = guess._repr_mimebundle_()
    assert "Is <code>1 &lt; 2</code> &amp; 3?" in str(bundle["text/html"])
    assert "yes &nbsp;/&nbsp; no" in str(bundle["text/html"])
    text_of = str(guess.reveal("yes", because="`1 < 2`.")._repr_mimebundle_()["text/html"])
    assert "<b>✗ yes; you said no.</b> <code>1 &lt; 2</code>." in text_of
    text_of = str(quiz("devices")._repr_mimebundle_()["text/html"])
    with_choices = [q for q in quiz("devices").questions if isinstance(q, Question)]
    assert text_of.count("<li>") == len(quiz("devices").questions) + sum(len(q.options) for q in with_choices)


def test_in_jupyter_a_form_is_shown_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "is_in_jupyter", lambda: True)
    guess = predict("How many?", key="n", default=1)
    for shown_thing in (guess, guess.reveal(2), quiz("start")):
        assert shown_thing._repr_mimebundle_().keys() == {WIDGET, "text/html", "text/plain"}


def text_of(form: Form) -> str:
    return f"{form.state['sign']} {form.state['head']} {form.state['rest']}".strip()


def comparison(guess: Prediction) -> Form:
    """Return the form that the comparison displays."""
    form = guess._comparison
    assert form is not None
    return form


def test_a_number_is_locked_by_a_button_as_sure_or_as_a_guess() -> None:
    guess = predict("How many?", key="n", unit="blocks")
    form = make_asking_form(guess)
    say(form, value="a lot", sure=True)
    assert not guess.locked
    assert "not a number" in form.state["wrong"]
    states: list[str] = []
    form.observe(lambda change: states.append(change["new"]["wrong"]), "state")
    say(form, value="a lot", sure=True)
    assert [bool(text) for text in states] == [False, True], "the browser sees that it is said again"
    say(form, value="", sure=True)
    assert form.state["wrong"] == "Choose or type an answer first."
    say(form, value="4", sure=False)
    assert (guess.value, guess.sure) == (4, False)


def test_the_form_on_the_page_follows_its_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "is_in_jupyter", lambda: True)
    guess = predict("How many?", key="n", unit="blocks")
    guess._repr_mimebundle_()
    form = guess._form
    assert form is not None
    say(form, value="4", sure=True)
    assert form.state["note"] == "Locked: 4 blocks, sure."
    assert (form.state["locked"], form.state["final"], form.state["wrong"]) == (True, False, "")
    guess.reveal(5)
    assert form.state["final"]
    say(form, value="5", sure=True)
    assert guess.value == 4


def test_a_locked_choice_can_be_changed_until_it_is_revealed() -> None:
    guess = predict("Which?", key="w", choices=("yes", "no"))
    form = make_asking_form(guess)
    assert form.facts["choices"] == ["yes", "no"]
    say(form, value="", sure=True)
    assert not guess.locked
    say(form, value="yes", sure=True)
    say(form)
    assert not guess.locked
    say(form, value="no", sure=True)
    assert guess.value == "no"


def test_a_prediction_of_an_earlier_session_is_still_locked() -> None:
    predict("How many?", key="n", answer=7)
    form = make_asking_form(predict("How many?", key="n"))
    assert (form.state["value"], form.state["locked"]) == ("7", True)


def test_a_form_has_the_question_and_its_state() -> None:
    guess = predict("How many?", key="n", unit="blocks")
    form = make_asking_form(guess)
    assert form.facts == {"question": "How many?", "choices": [], "unit": "blocks"}
    assert form.state == {"value": "", "locked": False, "final": False, "note": "", "wrong": ""}
    guess.record_look()
    form.refresh()
    note = "The number below was shown without a prediction."
    assert form.state == {"value": "", "locked": True, "final": True, "note": note, "wrong": ""}
    say(form, value="4", sure=True)
    assert not guess.locked


def waiting(guess: Prediction, monkeypatch: pytest.MonkeyPatch) -> tuple[Reveal, Form]:
    """Return a comparison, and its form, that is shown before a prediction is locked."""
    monkeypatch.setattr(page, "is_in_jupyter", lambda: True)
    comparison_ = guess.reveal(42, "counted")
    bundle = comparison_._repr_mimebundle_()
    assert "42" in str(bundle["text/plain"]), "batch runs and saved notebooks show it"
    return comparison_, comparison(guess)


def test_the_result_is_hidden_until_the_prediction_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    guess = predict("How many?", key="n", unit="blocks", default=1)
    _, form = waiting(guess, monkeypatch)
    assert text_of(form) == ""
    guess.lock(40, sure=False)
    assert text_of(form) == "✗ 42 blocks; you guessed 40 blocks, two too few. Counted."
    assert form.state["verdict"] == "wrong"


def test_the_result_can_be_shown_without_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    guess = predict("How many?", key="n", unit="blocks", default=1)
    _, form = waiting(guess, monkeypatch)
    say(form)
    assert text_of(form).startswith("No prediction. 42 blocks. The usual wrong answer: 1 block.")
    assert guess.final


def test_a_quiz_answers_with_feedback_and_score() -> None:
    quiz_ = Quiz("small", "A small quiz", SMALL)
    form = make_quiz_form(quiz_)
    assert [len(question["choices"]) for question in form.facts["questions"]] == [3, 0, 3]
    say(form, number=1, answer=wrong_place(quiz_, 1))
    assert not form.state["answers"][0]["right"]
    say(form, number=1, answer=right_place(quiz_, 1))
    assert form.state["answers"][0] == {
        "choice": right_place(quiz_, 1),
        "right": True,
        "text": "Right. It is not.",
    }
    assert form.state["score"] == "1 of 3 answered; 0 of 1 right first time."


def test_points_of_a_why_question_are_shown_after_the_answer() -> None:
    quiz_ = Quiz("small", "A small quiz", SMALL)
    form = make_quiz_form(quiz_)
    why = SMALL[1]
    assert isinstance(why, WhyQuestion)
    assert form.state["answers"][1] == {"words": "", "points": [], "ticked": []}
    assert not any(point in str(form.facts) for point in why.points)
    say(form, number=2, answer="So.")
    assert form.state["answers"][1]["points"] == list(why.points)
    say(form, number=2, ticked=[0, 2])
    assert form.state["answers"][1]["ticked"] == [0, 2]
    later = make_quiz_form(Quiz("small", "A small quiz", SMALL))
    assert later.state == form.state, "after a restart"


def test_forms_of_repeated_cells_share_one_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "is_in_jupyter", lambda: True)
    guess = predict("How many?", key="n")
    guess._repr_mimebundle_()
    first = guess._form
    predict("How many?", key="n")._repr_mimebundle_()
    assert guess._form is not first, "both cells' runs share one prediction"
    guess.lock(1)
    assert guess._form is not None
    assert guess._form.state["locked"]


def test_a_form_shows_that_answers_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPULAB_HOME", str(tmp_path / "file"))
    guess = predict("How many?", key="n")
    form = make_asking_form(guess)
    say(form, value="7", sure=True)
    assert guess.value == 7
    assert "cannot be saved" in form.notice
    say(form)
    say(form, value="8", sure=True)
    assert form.notice == "", "said once a session"


def test_a_form_sends_its_state_and_acknowledges_messages() -> None:
    messages: list[dict[str, Any]] = []
    form = Form("quiz", {"title": "T"}, lambda: {"taken": len(messages)}, messages.append)
    say(form, pressed="lock")
    form.refresh()
    state = form.get_state()
    assert messages == [{"pressed": "lock"}]
    assert state["notice"] == ""
    for name, value in {"form": "quiz", "facts": {"title": "T"}, "state": {"taken": 1}, "heard": 1}.items():
        assert state[name] == value
