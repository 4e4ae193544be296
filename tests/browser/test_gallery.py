"""The gallery in a real browser, offline: the index leads to views, and these answer to keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

GALLERY = Path(__file__).resolve().parents[2] / "gallery"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    yield page
    context.close()
    assert problems == []


def test_every_link_opens_a_page_that_shows_its_view(page: Any) -> None:
    page.goto((GALLERY / "index.html").as_uri())
    links = page.locator("article a")
    assert links.count() == len(list(GALLERY.glob("*.html"))) - 1
    for number in range(links.count()):
        picture = links.nth(number).locator("img")
        picture.scroll_into_view_if_needed()
        page.wait_for_function(
            "image => image.complete && image.naturalWidth > 0", arg=picture.element_handle()
        )
        links.nth(number).click()
        # A widget, or an image with its description.
        page.wait_for_selector(".gpulab-view, body img[alt]")
        view = page.locator(".gpulab-view, body img[alt]").first
        assert len(view.inner_text() or view.get_attribute("alt") or "") > 100
        page.go_back()


def test_a_warp_is_stepped_with_the_keyboard(page: Any) -> None:
    page.goto((GALLERY / "warp_stepper.html").as_uri())
    view = page.locator(".gpulab-view").first
    view.wait_for()
    before = view.inner_text()
    view.locator("[tabindex='0']").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('.gpulab-view').innerText !== before", arg=before
    )
