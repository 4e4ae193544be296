"""Cards of tables in a browser: the full view by keyboard, and tables that stay within the card."""

from __future__ import annotations

from typing import Any

import pytest

from tests.views.every_table import TABLES

pytestmark = [pytest.mark.browser]

OPEN = "document.querySelectorAll(':popover-open').length"
OVERFLOW = """() => [...document.querySelectorAll(".gpulab-card")]
  .filter((card) => card.scrollWidth > card.clientWidth)
  .map((card) => card.getAttribute("aria-label"))"""


def test_the_full_view_opens_and_closes_by_keyboard(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1024, "height": 700})
    page.set_content(TABLES["profile"]()._repr_html_() + TABLES["two causes"]()._repr_html_())
    page.keyboard.press("Tab")
    assert page.evaluate(OPEN) == 0
    page.keyboard.press("Enter")
    assert page.evaluate(OPEN) == 1
    box = page.locator(":popover-open").bounding_box()
    assert (box["x"], box["y"], box["width"], box["height"]) == (0, 0, 1024, 700)
    page.keyboard.press("Escape")
    assert page.evaluate(OPEN) == 0
    assert page.evaluate("document.activeElement.className") == "gl-filling"
    page.close()


@pytest.mark.parametrize("width", [600, 933])
def test_tables_do_not_overflow_their_card(browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 700})
    page.set_content("".join(make()._repr_html_() for make in TABLES.values()))
    assert page.evaluate(OVERFLOW) == []
    page.close()
