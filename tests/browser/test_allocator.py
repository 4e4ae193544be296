"""Memory maps in Chromium: the page says at each step what Python says, and steps as fast as frames come."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gpulab.views import AllocatorView
from gpulab.views.allocator.maps import Maps
from gpulab.views.allocator.pool_text import emptying, figures
from tests.allocators.traces import many_rows, trace_of
from tests.views import pools

pytestmark = [pytest.mark.browser]

STEP_MS = 50
# To a step, and what stands there then: what happened, what each pool says, its figures.
TOLD = """async ([step]) => {
  const slider = document.querySelector("input[type=range]");
  slider.value = String(step);
  slider.dispatchEvent(new Event("input"));
  const texts = (name, node = document) => [...node.querySelectorAll(name)].map((each) => each.textContent);
  return [texts(".gl-sentence")[0], ...[...document.querySelectorAll(".gl-pool")].flatMap((pool) => [
    texts(".gl-said", pool)[0], texts("dd", pool).map((text) => text.trim())])];
}"""
# Random steps: from the slider's event to the frame after the picture.
STEPS = """async () => {
  const slider = document.querySelector("input[type=range]");
  const frame = () => new Promise(requestAnimationFrame);
  const [drawn, shown] = [[], []], pictures = new Set();
  for (let at = 0, seed = 1; at < 40; at += 1) {
    seed = (seed * 16807) % 2147483647;
    slider.value = String(seed % (Number(slider.max) + 1));
    await frame();
    const began = performance.now();
    slider.dispatchEvent(new Event("input"));
    drawn.push(performance.now() - began);
    await frame();
    shown.push(performance.now() - began);
    if (at < 5) pictures.add(document.querySelector("canvas").toDataURL());
  }
  return [...[drawn, shown].map((times) => times.sort((a, b) => a - b)[30]), pictures.size];
}"""


@pytest.mark.parametrize(
    "made", [pools.one, lambda: pools.two(settings="expandable_segments:True")], ids=["one", "two"]
)
def test_the_page_says_what_python_says(
    made: Callable[[], AllocatorView], open_saved: Callable[..., Any]
) -> None:
    view = made()
    page = open_saved(view)
    draw = random.Random(7)
    for step in [0, 1, view.maps.last, *(draw.randint(0, view.maps.last) for _ in range(40))]:
        view.step = step
        expected: list[Any] = [view.maps.position_text(step)]
        for panel in view.panels:
            found = panel.fragmentation_of(panel.map_after(panel.step(step)))
            values = [f"{value} {detail}".strip() for _, value, detail in figures(found)]
            expected += [view.maps.status_text(panel, step), values]
        assert page.evaluate(TOLD, [step]) == expected, step
    page.keyboard.press("Tab")
    page.locator("canvas").nth(1).focus()
    page.keyboard.press("e")
    panel = view.panels[0]
    wanted = emptying(panel.fragmentation_of(panel.map_after(panel.step(view.step))))
    assert page.locator(".gl-pool .gl-said").first.text_content() == wanted
    view.close()


def test_blocks_are_walked_and_told_with_their_stack_traces(open_saved: Callable[..., Any]) -> None:
    view = pools.one()
    page = open_saved(view, dark=True)
    detail = page.locator(".gl-detail")
    page.locator("canvas").nth(1).focus()
    now = view.panels[0].map_after(view.step)
    for block in now.blocks[:12]:
        page.keyboard.press("ArrowRight")
        told = detail.text_content()
        assert f"0x{block.address:x}" in told
        assert told.startswith({"free": "Free", "used": "In use", "waiting": "Freed, but"}[block.state])
        if block.state == "used" and block.stack >= 0:
            frame = view.record.stacks[block.stack][0]
            assert f"{frame.filename}:{frame.line} in {frame.function}" in told
    page.locator("canvas").nth(1).click(position={"x": 110, "y": 10})
    first = now.segments[0].blocks[0]
    assert f"0x{first.address:x}" in detail.text_content()
    page.keyboard.press("PageDown")
    stops = view.panels[0].notable_steps
    assert page.locator("input[type=range]").input_value() == str(stops[stops > view.step][0])
    view.close()


def test_a_hundred_thousand_events_are_drawn_at_each_step(
    open_saved: Callable[..., Any], record_property: Callable[[str, object], None]
) -> None:
    view = AllocatorView(Maps([pools.panel(trace_of(many_rows()))]))
    page = open_saved(view)
    drawn, shown, pictures = page.evaluate(STEPS)
    record_property(
        "figure",
        f"memory map of 100,000 events, to any step: {drawn:.0f} ms to draw, {shown:.0f} ms to the next "
        f"frame, goal {STEP_MS} ms",
    )
    assert pictures == 5, "each step has a picture of its own"
    view.close()
