"""The forms, driven from Python: what a click does, and what is shown where no form can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ipywidgets
import pytest

from gpulab.teach import check, predict, quiz, widgets

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def in_jupyter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(widgets, "widgets_module", lambda: ipywidgets)
    yield
    ipywidgets.Widget.close_all()


def shown(bundle: dict[str, Any]) -> list[Any]:
    """All widgets of a form, outermost first."""
    from ipywidgets.widgets.widget import _instances

    def below(widget: Any) -> list[Any]:
        return [widget] + [child for one in getattr(widget, "children", ()) for child in below(one)]

    return below(_instances[bundle[WIDGET]["model_id"]])


def only(widgets_: list[Any], kind: type) -> Any:
    (found,) = [widget for widget in widgets_ if isinstance(widget, kind)]
    return found


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
    page = str(guess.reveal("yes", because="1 < 2.")._repr_mimebundle_()["text/html"])
    assert "You said no. Found: yes. Not this one. 1 &lt; 2." in page
    page = str(quiz("device")._repr_mimebundle_()["text/html"])
    assert page.count("<li>") == sum(1 + len(question.choices) for question in quiz("device").questions)


def test_a_verdict_shows_a_sign_beside_its_colour() -> None:
    verdict = check("00-blocks", lambda n, threads: n // threads)
    assert "✗ 00-blocks: not yet:" in verdict._repr_html_()
    assert "&lt;" not in verdict._repr_html_()
    assert "✓ 00-blocks: passed:" in check("00-blocks", lambda n, threads: -(-n // threads))._repr_html_()


@pytest.mark.usefixtures("in_jupyter")
def test_a_number_is_locked_by_the_button() -> None:
    guess = predict("How many?", key="n", unit="blocks")
    form = shown(guess._repr_mimebundle_())
    field, button = only(form, ipywidgets.Text), only(form, ipywidgets.Button)
    field.value = "a lot"
    button.click()
    assert not guess.locked
    assert "not a number" in form[-1].value
    field.value = "4"
    button.click()
    assert guess.value == 4
    assert field.disabled
    assert "Locked: 4 blocks" in form[-1].value
    assert button.description == "Change"
    guess.reveal(5)
    assert button.disabled


@pytest.mark.usefixtures("in_jupyter")
def test_a_locked_choice_can_be_changed_until_it_is_revealed() -> None:
    guess = predict("Which?", key="w", choices=("yes", "no"))
    form = shown(guess._repr_mimebundle_())
    field, button = only(form, ipywidgets.ToggleButtons), only(form, ipywidgets.Button)
    assert field.value is None
    button.click()
    assert not guess.locked
    field.value = "yes"
    button.click()
    button.click()
    assert not guess.locked
    assert not field.disabled
    field.value = "no"
    button.click()
    assert guess.value == "no"


@pytest.mark.usefixtures("in_jupyter")
def test_the_number_waits_for_the_prediction() -> None:
    guess = predict("How many?", key="n", default=1)
    bundle = guess.reveal(42, "counted")._repr_mimebundle_()
    form = shown(bundle)
    assert "42" not in form[1].value
    assert "42" in str(bundle["text/plain"]), "batch runs and saved notebooks show it"
    guess.lock(40)
    assert "You said 40. Counted: 42." in form[1].value


@pytest.mark.usefixtures("in_jupyter")
def test_the_number_can_be_shown_without_a_prediction() -> None:
    form = shown(predict("How many?", key="n").reveal(42)._repr_mimebundle_())
    only(form, ipywidgets.Button).click()
    assert "42" in form[1].value


@pytest.mark.usefixtures("in_jupyter")
def test_a_quiz_answers_with_feedback_and_score() -> None:
    questions = quiz("start")
    form = shown(questions._repr_mimebundle_())
    first = next(widget for widget in form if isinstance(widget, ipywidgets.RadioButtons))
    assert first.value is None
    first.value = 1
    assert questions.score == 1
    notes = [widget.value for widget in form if isinstance(widget, ipywidgets.HTML)]
    assert any("Right. Results and counters" in note for note in notes)
    assert any("1 of 5 answered, 1 right first time" in note for note in notes)
