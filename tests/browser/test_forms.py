"""The course's forms in a real JupyterLab: with the keyboard alone, and with names for screen readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = [
    """import gpulab as gl
which = gl.predict("Which one?", key="t-which", choices=("red", "an amber one", "green"))
which""",
    'how_many = gl.predict("How many blocks?", key="t-many", unit="blocks")\nhow_many',
    'how_many.reveal(4, "counted", because="Because.")',
    'questions = gl.quiz("start")\nquestions',
]
FORM = ".jp-Cell .gpulab-form"


@pytest.fixture(scope="module")
def forms(lab: Any) -> Iterator[tuple[Any, Any]]:
    with lab.notebook("forms.ipynb", CELLS) as kernel:
        lab.page.wait_for_selector(f"{FORM} >> text=5 questions, none answered yet.", timeout=60_000)
        yield lab, kernel


def test_a_choice_is_made_and_locked_with_keys(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    group = lab.page.get_by_role("group", name="Predict: Which one?")
    group.get_by_role("radio", name="red").focus()
    lab.page.keyboard.press("ArrowDown")
    lab.page.keyboard.press("ArrowDown")
    assert group.get_by_role("radio", name="green").is_checked()
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Enter")
    lab.expect(kernel, "which.value", "green")
    lab.page.wait_for_selector(f"{FORM} >> text=Locked: green")
    assert group.get_by_role("radio", name="red").is_disabled()
    group.get_by_role("button", name="Change").click()
    lab.expect(kernel, "which.value", None)


def test_a_number_is_locked_with_enter_and_reveals_the_comparison(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    field = lab.page.get_by_role("textbox", name="Your prediction in blocks")
    field.fill("many")
    field.press("Enter")
    lab.page.wait_for_selector(f"{FORM} [role=alert] >> text='many' is not a number")
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("8")
    field.press("Enter")
    lab.expect(kernel, "how_many.value", 8)
    lab.page.wait_for_selector(f"{FORM} >> text=You said 8 blocks. Counted: 4 blocks. 1/2 of that. Because.")


def test_a_quiz_is_answered_with_keys_wrong_and_right(forms: tuple[Any, Any]) -> None:
    lab, kernel = forms
    groups = lab.page.locator(f"{FORM} fieldset", has_text="1. ")
    groups.first.get_by_role("radio").first.focus()
    lab.page.keyboard.press("Space")
    lab.page.wait_for_selector(f"{FORM} [role=status] >> text=✗ Not quite.")
    lab.page.keyboard.press("ArrowDown")
    lab.page.wait_for_selector(f"{FORM} [role=status] >> text=✓ Right.")
    lab.expect(kernel, "[questions.answered, questions.score]", [1, 0])
    lab.picture("forms")
    assert not lab.problems


def test_no_label_is_cut(forms: tuple[Any, Any]) -> None:
    lab, _ = forms
    cut = lab.page.evaluate(
        """selector => [...document.querySelectorAll(selector)]
        .filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.textContent)""",
        f"{FORM} .gl-choice, {FORM} button",
    )
    assert cut == []
