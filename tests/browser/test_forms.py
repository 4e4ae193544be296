"""The course's forms in a real JupyterLab: with the keyboard alone, and with names for screen readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = [
    """from gpulab_course.teach.predictions import Prediction
from gpulab_course.teach.question import PredictionQuestion
def ask(key, question, **more):
    made = Prediction(key)
    made.ask(PredictionQuestion(key, question, "", **more), question)
    return made
which = ask("t-which", "What does `x` hold?", choices=("red", "an amber `n`", "green"))
which""",
    'how_many = ask("t-many", "How many blocks?", unit="blocks")\nhow_many',
    'how_many.reveal(4, "counted", because="`n` is 1000.")',
    """from gpulab_course.teach.quizzes import Quiz
from gpulab_course.teach.question import Choice, Question, WhyQuestion
reds = (Choice("red", "It is `red`.", right=True), Choice("a much longer blue", "No."), Choice("sea", "Nor."))
questions = Quiz("small", "A small quiz", (Question("Which?", reds), WhyQuestion("Why?", ("This.", "That."))))
questions""",
    """from datetime import date
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard, TrueValue, Interview
parts = (
    CardQuestion(
        question="Twice 4?", unit="blocks", max_error_factor=1.0,
        measure=lambda: TrueValue(8, "arithmetic", "So it is."),
    ),
    CardQuestion(question="And red?", measure=lambda: TrueValue("red", "seen"), choices=("red", "blue")),
)
def draw(rng):
    points = ("Doubled it.", "Gave the unit.")
    return DrawnCard(questions=parts, rubric_points=points, strong_answer="Eight.", parameters={})
cards = [Card(title, "estimate", "L3", title, draw, ("02",)) for title in ("First", "Second")]
talk = Interview(cards, 1, "candidate", date.today)
talk""",
]
FORM = ".jp-Cell .gpulab-form"


@pytest.fixture(scope="module")
def forms(lab: Any) -> Iterator[tuple[Any, Any]]:
    with lab.notebook("forms.ipynb", CELLS) as kernel:
        head = "2 questions, 1 of them in your own words, none answered yet."
        lab.page.wait_for_selector(f"{FORM} >> text={head}", timeout=60_000)
        yield lab, kernel


def test_a_choice_is_selected_and_locked_by_keyboard(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    group = lab.page.get_by_role("group", name="Predict: What does x hold?")
    group.get_by_role("radio", name="red").focus()
    lab.page.keyboard.press("ArrowDown")
    lab.page.keyboard.press("ArrowDown")
    assert group.get_by_role("radio", name="green").is_checked()
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Enter")
    lab.expect(kernel, "[which.value, which.sure]", ["green", True])
    lab.page.wait_for_selector(f"{FORM} >> text=Locked: green, sure.")
    assert group.get_by_role("radio", name="red").is_disabled()
    assert lab.page.evaluate("document.activeElement.textContent") == "Change", "the focus is not lost"
    lab.page.keyboard.press("Enter")
    lab.expect(kernel, "which.value", None)
    group.get_by_role("button", name="I guess").wait_for()


def test_code_in_a_question_is_formatted_as_code(forms: tuple[Any, Any]) -> None:
    lab, _ = forms
    group = lab.page.get_by_role("group", name="Predict: What does x hold?")
    assert group.locator("code").all_text_contents() == ["x", "n"]


def test_a_number_is_locked_by_keyboard_and_then_compared(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    group = lab.page.get_by_role("group", name="Predict: How many blocks?")
    field = group.get_by_role("textbox", name="Your prediction in blocks")
    field.fill("1.000")
    field.press("Enter")
    lab.page.keyboard.press("Enter")
    lab.page.wait_for_selector(f"{FORM} [role=alert] >> text=Write 1 or 1000.")
    assert field.get_attribute("aria-invalid") == "true"
    alert = lab.page.locator(f"{FORM} [role=alert] >> text=Write 1 or 1000.")
    field.press("Backspace")
    assert alert.count() == 0, "the message belongs to the entry before"
    field.fill("8")
    field.press("Enter")
    group.get_by_text("Are you sure, or do you guess?").wait_for()
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Enter")
    lab.expect(kernel, "[how_many.value, how_many.sure]", [8, False])
    compared = lab.page.get_by_role("group", name="Comparison")
    compared.get_by_text("✗ 4 blocks; you guessed 8 blocks, 2 times too high.").wait_for()
    assert compared.locator("code").text_content() == "n"
    assert "gl-wrong" in str(compared.get_attribute("class"))


def test_quiz_feedback_appears_at_the_question(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    group = lab.page.get_by_role("group", name="1. Which?")
    right = [option.right for option in _options(kernel)].index(True)
    buttons = group.get_by_role("button")
    buttons.nth((right + 1) % 3).focus()
    lab.page.keyboard.press("Enter")
    group.get_by_text("✗ Not quite.").wait_for()
    buttons.nth(right).focus()
    lab.page.keyboard.press("Space")
    group.get_by_text("✓ Right. It is red.").wait_for()
    assert buttons.nth(right).get_attribute("aria-pressed") == "true"
    lab.page.locator(FORM).get_by_text("1 of 2 answered; 0 of 1 right first time.").wait_for()
    lab.expect(kernel, "[questions.answered, questions.score]", [1, 0])


def _options(kernel: Any) -> list[Any]:
    from types import SimpleNamespace

    return [SimpleNamespace(right=right) for right in kernel.value("[o.right for o in questions.options(1)]")]


def test_a_written_answer_is_compared_and_ticked(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    group = lab.page.get_by_role("group", name="2. Why?")
    assert not group.is_visible(), "one question at a time"
    lab.page.get_by_role("button", name="Next question").press("Enter")
    assert lab.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    group.get_by_role("textbox").fill("So.")
    assert group.get_by_role("checkbox").count() == 0
    group.get_by_role("button", name="Compare").click()
    group.get_by_role("checkbox", name="That.").check()
    lab.expect(kernel, "questions.points", [1, 2])
    lab.picture("forms")
    assert not lab.problems


def test_an_interview_card_is_answered_with_keys(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    keyboard = lab.page.keyboard
    card = lab.page.locator(f"{FORM}.gl-card")
    time = card.get_by_role("timer")
    lab.wait_for(lambda: time.text_content() not in ("", "0:00"), what="a second on the clock")
    card.get_by_role("textbox").fill("7")
    keyboard.press("Enter")
    keyboard.press("Enter")
    lab.expect(kernel, "[[o.is_right for o in talk.outcomes], talk.card.key]", [[False], "First"])
    card.get_by_text("8 blocks; you said 7 blocks").wait_for()
    assert lab.page.evaluate("document.activeElement.type") == "radio", "the next question has the focus"
    keyboard.press("Space")
    keyboard.press("Tab")
    keyboard.press("Enter")
    lab.expect(kernel, "[o.is_right for o in talk.outcomes]", [False, True])
    card.get_by_role("group", name="Explanation").wait_for()
    stopped = time.text_content()
    assert lab.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    assert card.get_by_text("Eight.").count() == 0, "the sentence would be the answer"
    keyboard.type("So.")
    keyboard.press("Tab")
    keyboard.press("Enter")
    card.get_by_role("checkbox", name="Gave the unit.").check()
    lab.expect(kernel, "talk.ticked_points", [1])
    card.get_by_text("1 of 2 points. In one sentence: Eight.").wait_for()
    lab.picture("interview_card", f"{FORM}.gl-card")
    assert time.text_content() == stopped, "an answered card costs no time"
    card.get_by_role("button", name="Hide the clock").press("Enter")
    assert not time.is_visible()
    card.get_by_role("button", name="Next card").press("Enter")
    card.get_by_text("Second").wait_for()
    assert not time.is_visible(), "the next card keeps the choice"
    card.get_by_role("button", name="Show the clock").press("Enter")
    assert time.is_visible()
    assert not lab.problems


def test_a_form_reports_a_kernel_restart_at_the_pressed_button(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    kernel.client.execute("import os; os._exit(1)", silent=True)
    # JupyterLab says in a dialog that it starts the kernel anew.
    lab.page.locator(".jp-Dialog button.jp-mod-accept").click()
    lab.page.get_by_role("button", name="Question 1 of 2, answered").click()
    group = lab.page.get_by_role("group", name="1. Which?")
    group.get_by_role("button").first.click()
    group.get_by_text("No answer from Python. Run this cell again.").wait_for(timeout=20_000)


def test_labels_are_not_truncated(forms: tuple[Any, Any]) -> None:
    lab, _ = forms
    cut = lab.page.evaluate(
        """selector => [...document.querySelectorAll(selector)]
        .filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.textContent)""",
        f"{FORM} .gl-choice, {FORM} button",
    )
    assert cut == []
