"""The forms, driven from Python: what a click does, and what is shown where no form can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ipywidgets import Widget

from gpulab.teach import check, page, predict, quiz
from gpulab.teach.forms import Form
from gpulab.teach.prediction import prediction_form, reveal_form
from gpulab.teach.quizzes import quiz_form

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def no_widgets_left() -> Iterator[None]:
    yield
    Widget.close_all()


def say(form: Form, **message: Any) -> None:
    """What arrives when the browser sends a message."""
    form._handle_custom_msg(message, [])


def test_without_jupyter_only_text_is_shown() -> None:
    guess = predict("How many?", key="n", default=1)
    assert guess._repr_mimebundle_()["text/plain"] == "Predict: How many?"
    for shown_thing in (guess, guess.reveal(2), quiz("start")):
        assert shown_thing._repr_mimebundle_().keys() == {"text/html", "text/plain"}


def test_pages_say_what_the_text_says_and_escape_it() -> None:
    guess = predict("Is 1 < 2 & 3?", key="n", choices=("yes", "no"), answer="no")
    bundle = guess._repr_mimebundle_()
    assert "Is 1 &lt; 2 &amp; 3?" in str(bundle["text/html"])
    assert "yes &nbsp;/&nbsp; no" in str(bundle["text/html"])
    shown = str(guess.reveal("yes", because="1 < 2.")._repr_mimebundle_()["text/html"])
    assert "You said no. Found: yes. Not this one. 1 &lt; 2." in shown
    shown = str(quiz("devices")._repr_mimebundle_()["text/html"])
    assert shown.count("<li>") == sum(1 + len(question.choices) for question in quiz("devices").questions)


def test_a_verdict_shows_a_sign_beside_its_colour() -> None:
    verdict = check("00-blocks", lambda n, threads: n // threads)
    assert "✗ 00-blocks: not yet:" in verdict._repr_html_()
    assert "&lt;" not in verdict._repr_html_()
    assert "✓ 00-blocks: passed:" in check("00-blocks", lambda n, threads: -(-n // threads))._repr_html_()


def test_in_jupyter_a_form_is_shown_beside_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "in_jupyter", lambda: True)
    guess = predict("How many?", key="n", default=1)
    for shown_thing in (guess, guess.reveal(2), quiz("start")):
        assert shown_thing._repr_mimebundle_().keys() == {WIDGET, "text/html", "text/plain"}


def test_a_number_is_locked_by_the_button() -> None:
    guess = predict("How many?", key="n", unit="blocks")
    form = prediction_form(guess)
    say(form, do="press", value="a lot")
    assert not guess.locked
    assert "not a number" in form.state["wrong"]
    say(form, do="press", value="")
    assert form.state["wrong"] == "Choose or type an answer first."
    say(form, do="press", value="4")
    assert guess.value == 4
    assert form.state["note"] == "Locked: 4 blocks"
    assert (form.state["locked"], form.state["final"], form.state["wrong"]) == (True, False, "")
    guess.reveal(5)
    assert form.state["final"]
    say(form, do="press", value="5")
    assert guess.value == 4


def test_a_locked_choice_can_be_changed_until_it_is_revealed() -> None:
    guess = predict("Which?", key="w", choices=("yes", "no"))
    form = prediction_form(guess)
    assert form.facts["choices"] == ["yes", "no"]
    say(form, do="press", value="")
    assert not guess.locked
    say(form, do="press", value="yes")
    say(form, do="press", value="yes")
    assert not guess.locked
    assert not form.state["locked"]
    say(form, do="press", value="no")
    assert guess.value == "no"


def test_a_prediction_of_an_earlier_day_is_still_locked() -> None:
    predict("How many?", key="n", answer=7)
    form = prediction_form(predict("How many?", key="n"))
    assert (form.state["value"], form.state["locked"]) == ("7", True)


def test_the_number_waits_for_the_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "in_jupyter", lambda: True)
    guess = predict("How many?", key="n", default=1)
    found = guess.reveal(42, "counted")
    form = reveal_form(found)
    assert form.state == {"shown": ""}
    assert "42" in str(found._repr_mimebundle_()["text/plain"]), "batch runs and saved notebooks show it"
    guess.lock(40)
    assert "You said 40. Counted: 42." in form.state["shown"]


def test_the_number_can_be_shown_without_a_prediction() -> None:
    form = reveal_form(predict("How many?", key="n").reveal(42))
    say(form, do="show")
    assert "42" in form.state["shown"]


def test_a_quiz_answers_with_feedback_and_score() -> None:
    questions = quiz("start")
    form = quiz_form(questions)
    assert [len(question["choices"]) for question in form.facts["questions"]] == [3] * 5
    say(form, do="answer", number=1, choice=1)
    assert not form.state["answers"]["1"]["right"]
    say(form, do="answer", number=1, choice=2)
    assert form.state["answers"]["1"]["right"]
    assert "Right. Results and counters" in form.state["answers"]["1"]["text"]
    assert form.state["score"] == "1 of 5 answered, 0 right first time."
    assert questions.score == 0


def test_progress_is_public_and_counts_what_was_done() -> None:
    import gpulab as gl

    before = gl.progress()
    assert (before.passed, before.predictions) == (0, 0)
    check("00-blocks", lambda n, threads: -(-n // threads))
    predict("How many?", key="n", answer=1)
    after = gl.progress()
    assert (after.passed, after.predictions) == (1, 1)
    assert "✓ passed" in after._repr_html_()
    assert "[x] 00-blocks" in str(after)


def test_a_form_shows_that_answers_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPULAB_HOME", str(tmp_path / "file"))
    guess = predict("How many?", key="n")
    form = prediction_form(guess)
    say(form, value="7")
    assert guess.value == 7
    assert "not saved" in form.notice
    say(form)
    say(form, value="8")
    assert form.notice == "", "said once a session"
