"""Views that fill the window: in JupyterLab by a button, as saved pages by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpulab as gl
from gpulab.views import DeviceCard, FragmentView, LaunchChart, TimelineView, WarpStepper
from gpulab.views.launch.chart import GAP_PX, OCCUPANCY_PX
from tests.views import fragment_traces, synthetic, timelines

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LEAST_PX = 14
ZOOM = "Number(document.querySelector('.gl-page').style.getPropertyValue('--gl-zoom'))"
SIZE = {"width": 1400, "height": 900}
# Every size of type on a canvas, in the view's own pixels.
LISTEN = """
window.typed = new Set();
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
  window.typed.add(parseFloat(this.font.match(/([\\d.]+)px/)[1]));
  return fillText.call(this, text, ...more);
};
"""
SMALL = """least => {
  const view = document.querySelector('.gpulab-view.gl-filled, .gpulab-view.gl-page');
  const zoom = Number(getComputedStyle(view).getPropertyValue('--gl-zoom'));
  const small = (size) => size * zoom < least - 0.01;
  const found = [...window.typed].filter(small).map((size) => `canvas ${size}`);
  const walk = document.createTreeWalker(view, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const { parentElement: node, textContent: text } = walk.currentNode;
    if (!text.trim() || !node.checkVisibility()) continue;
    const size = parseFloat(getComputedStyle(node).fontSize);
    if (small(size)) found.push(`${size} ${text}`);
  }
  return found;
}"""


def pictures() -> dict[str, Callable[[], Any]]:
    info, *others = synthetic.devices()
    return {
        "launch": lambda: LaunchChart(synthetic.launch_trace(256)),
        "beside": lambda: LaunchChart(
            synthetic.launch_trace(512),
            beside=synthetic.launch_trace(512, provenance=synthetic.MEASURED, jitter=0.12),
        ),
        "card": lambda: DeviceCard(info, others, lambda: synthetic.metrics(1)),
        "stepper": lambda: WarpStepper(synthetic.warp_trace(n=24)),
        "timeline": lambda: TimelineView(timelines.overlapped()),
        "graph": lambda: gl.graph(lambda x: (x * 2 + 1).sum(), gl.cp.ones(1000)).view(),
        "access": gl.access,
        "allocator": gl.allocator,
        "fragments": lambda: FragmentView(fragment_traces.trace()),
    }


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(offline=True, viewport=SIZE)
    context.add_init_script(LISTEN)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", pictures())
def test_a_saved_page_is_zoomed_until_its_text_is_legible(name: str, page: Any, tmp_path: Path) -> None:
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(pictures()[name]().save(tmp_path / "view.html").as_uri())
    page.wait_for_function(
        "Number(document.querySelector('.gl-page').style.getPropertyValue('--gl-zoom')) > 1"
    )
    page.evaluate("window.typed.clear(); dispatchEvent(new Event('resize'))")
    assert page.evaluate(SMALL, LEAST_PX) == []
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= SIZE["width"], "nothing beyond the right edge"
    assert not problems


@pytest.mark.parametrize("size", [(1400, 900), (1024, 700)])
@pytest.mark.parametrize("sms", [108, 200])
def test_the_time_axis_of_many_rows_is_visible(
    sms: int, size: tuple[int, int], page: Any, tmp_path: Path
) -> None:
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    view = LaunchChart(synthetic.launch_trace(256, sm_count=sms, blocks=20 * sms))
    page.goto(view.save(tmp_path / "view.html").as_uri())
    page.wait_for_function(
        "Number(document.querySelector('.gl-page').style.getPropertyValue('--gl-zoom')) > 1"
    )
    assert page.evaluate("document.documentElement.scrollHeight") <= height
    box = page.locator("canvas").bounding_box()
    assert box["y"] + box["height"] < height
    assert box["height"] > 0.4 * height, "the rows use the remaining space"
    # The row under the pointer is named; that of the last SM is above the warps and the axis.
    zoom = page.evaluate(ZOOM)
    rows_px = box["height"] - (GAP_PX + OCCUPANCY_PX + 34) * zoom
    page.mouse.move(box["x"] + 140, box["y"] + rows_px - rows_px / sms / 2)
    assert f"SM {sms - 1}" in page.locator(".gl-said").inner_text()


CELL = """
from tests.views import synthetic
from gpulab.views import LaunchChart
view = LaunchChart(synthetic.launch_trace(256), launch_at_block_size=synthetic.launch_trace)
view
"""
VIEW = ".jp-Cell .gpulab-view"


def test_a_button_fills_the_window_and_escape_restores_it(lab: Any) -> None:
    lab.page.set_viewport_size(SIZE)
    lab.page.context.add_init_script(LISTEN)
    with lab.notebook("room.ipynb", [CELL]) as kernel:
        view = lab.page.locator(VIEW)
        view.locator("canvas").wait_for(timeout=60_000)
        before = view.bounding_box()
        button = view.get_by_role("button", name="Fill the window")
        button.press("Enter")
        lab.page.wait_for_function(
            "document.querySelector('.gl-filled')?.style.getPropertyValue('--gl-zoom') > 1"
        )
        filled = view.bounding_box()
        assert (filled["x"], filled["y"]) == (0, 0)
        assert abs(filled["width"] - SIZE["width"]) < 20
        assert abs(filled["height"] - SIZE["height"]) < 2
        lab.page.evaluate("window.typed.clear(); dispatchEvent(new Event('resize'))")
        assert lab.page.evaluate(SMALL, LEAST_PX) == []
        lab.picture("filled", None)
        slider = view.locator("input[type=range]")
        slider.press("ArrowRight")
        lab.expect(kernel, "view.block_threads", 288)
        slider.press("Escape")
        assert not lab.page.evaluate("Boolean(document.querySelector('.gl-filled'))")
        lab.wait_for(lambda: abs(view.bounding_box()["width"] - before["width"]) < 2, what="the old width")
        assert view.evaluate("node => node.querySelector('canvas').clientWidth <= node.clientWidth")
    assert not lab.problems
