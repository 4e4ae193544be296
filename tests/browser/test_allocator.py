"""Memory maps in Chromium: the page says at each step what Python says, and steps as fast as frames come."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gpulab.views import AllocatorView
from gpulab.views.allocator.maps import PoolMaps
from gpulab.views.allocator.pool_text import describe_emptying, make_figures
from tests.allocators.traces import many_rows, trace_of
from tests.views import pools

pytestmark = [pytest.mark.browser]

# To a step, and what stands there then: what happened, what each pool says, its figures.
TOLD = """async ([step]) => {
  const slider = document.querySelector("input[type=range]");
  slider.value = String(step);
  slider.dispatchEvent(new Event("input"));
  const texts = (name, node = document) => [...node.querySelectorAll(name)].map((each) => each.textContent);
  return [texts(".gl-sentence")[0], ...[...document.querySelectorAll(".gl-pool")].flatMap((pool) => [
    texts(".gl-said", pool)[0], texts("dd", pool).map((text) => text.trim())])];
}"""
# Each of some random steps draws another picture.
PICTURES = """async () => {
  const slider = document.querySelector("input[type=range]");
  const pictures = new Set();
  for (let step = 0, seed = 1; step < 5; step += 1) {
    seed = (seed * 16807) % 2147483647;
    slider.value = String(seed % (Number(slider.max) + 1));
    slider.dispatchEvent(new Event("input"));
    await new Promise(requestAnimationFrame);
    pictures.add(document.querySelector("canvas").toDataURL());
  }
  return pictures.size;
}"""


@pytest.mark.parametrize(
    "make", [pools.one, lambda: pools.two(settings="expandable_segments:True")], ids=["one", "two"]
)
def test_page_and_python_describe_each_step_equally(
    make: Callable[[], AllocatorView], open_saved: Callable[..., Any]
) -> None:
    view = make()
    page = open_saved(view)
    draw = random.Random(7)
    for step in [
        0,
        1,
        view.maps.last_position,
        *(draw.randint(0, view.maps.last_position) for _ in range(40)),
    ]:
        view.step = step
        expected: list[Any] = [view.maps.describe_position(step)]
        for panel in view.panels:
            statistics_ = panel.fragmentation_of(panel.map_after(panel.find_step(step)))
            values = [f"{value} {detail}".strip() for _, value, detail in make_figures(statistics_)]
            expected += [view.maps.describe_status(panel, step), values]
        assert page.evaluate(TOLD, [step]) == expected, step
    page.keyboard.press("Tab")
    page.locator("canvas").nth(1).focus()
    page.keyboard.press("e")
    panel = view.panels[0]
    expected_text = describe_emptying(panel.fragmentation_of(panel.map_after(panel.find_step(view.step))))
    assert page.locator(".gl-pool .gl-said").first.text_content() == expected_text
    view.close()


def test_blocks_are_described_with_their_stack_traces(open_saved: Callable[..., Any]) -> None:
    view = pools.one()
    page = open_saved(view, dark=True)
    detail = page.locator(".gl-detail")
    page.locator("canvas").nth(1).focus()
    now = view.panels[0].map_after(view.step)
    for block in now.blocks[:12]:
        page.keyboard.press("ArrowRight")
        text = detail.text_content()
        assert f"0x{block.address:x}" in text
        assert text.startswith({"free": "Free", "used": "In use", "waiting": "Freed, but"}[block.state])
        if block.state == "used" and block.stack >= 0:
            frame = view.record.stacks[block.stack][0]
            assert f"{frame.filename}:{frame.line} in {frame.function}" in text
    page.locator("canvas").nth(1).click(position={"x": 110, "y": 10})
    first = now.segments[0].blocks[0]
    assert f"0x{first.address:x}" in detail.text_content()
    page.keyboard.press("PageDown")
    stops = view.panels[0].notable_steps
    assert page.locator("input[type=range]").input_value() == str(stops[stops > view.step][0])
    view.close()


def test_a_hundred_thousand_events_are_drawn_at_each_step(open_saved: Callable[..., Any]) -> None:
    view = AllocatorView(PoolMaps([pools.panel(trace_of(many_rows()))]))
    assert open_saved(view).evaluate(PICTURES) == 5
    view.close()
