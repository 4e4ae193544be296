"""The view of a collective operation in Chromium: it plays, and the chunks travel from GPU to GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpulab.views import CollectiveView
from tests.views import exchanges

pytestmark = [pytest.mark.browser]

RING = ".gl-row canvas >> nth=0"
IMAGE = "node => node.toDataURL()"


def opened(open_saved: Callable[..., Any], steps: int = 3) -> Any:
    view = CollectiveView(exchanges.collective(exchanges.ring(4, steps, steps), 4))
    page = open_saved(view, 1024, 700)
    view.close()
    return page


def heading(page: Any) -> str:
    return str(page.locator(".gl-switch .gl-words-strong").inner_text())


def test_play_shows_all_steps_and_space_pauses(open_saved: Callable[..., Any]) -> None:
    page = opened(open_saved)
    play = page.get_by_role("button", name="Play or pause")
    assert heading(page).startswith("Before the first step")
    page.get_by_label("Speed").select_option("10/s")
    play.click()
    page.wait_for_function("document.querySelector('.gl-switch').innerText.startsWith('Step 6 of 6')")
    assert play.inner_text() == "Play", "it stops at the end"
    page.get_by_label("Speed").select_option("1/s")
    page.locator("canvas[role=slider]").focus()
    page.keyboard.press(" ")
    assert play.inner_text() == "Pause"
    assert not heading(page).startswith("Step 6"), "it begins again"
    page.keyboard.press(" ")
    paused = heading(page)
    page.wait_for_timeout(1300)
    assert heading(page) == paused
    page.get_by_role("button", name="To the start").click()
    for name, step in (("Step on", 1), ("Step on", 2), ("Step back", 1)):
        page.get_by_role("button", name=name).click()
        assert heading(page).startswith(f"Step {step} of 6")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_animated_chunks_move_to_the_ends_of_their_arrows(
    open_saved: Callable[..., Any], motion: str
) -> None:
    page = opened(open_saved)
    page.emulate_media(reduced_motion=motion)
    step = page.get_by_role("button", name="Step on")
    step.click()
    first = page.locator(RING).evaluate(IMAGE)
    page.wait_for_timeout(900)
    last = page.locator(RING).evaluate(IMAGE)
    assert (first != last) == (motion == "no-preference")
    page.wait_for_timeout(100)
    assert page.locator(RING).evaluate(IMAGE) == last, "they have arrived"
    # A step that is not the next one is shown without a journey.
    page.get_by_role("button", name="To the start").click()
    page.locator("canvas[role=slider]").press("End")
    before = page.locator(RING).evaluate(IMAGE)
    page.wait_for_timeout(300)
    assert page.locator(RING).evaluate(IMAGE) == before
