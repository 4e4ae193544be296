"""The views in a real JupyterLab: stepped, slid, read in light and dark, failing and closed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.views import synthetic

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STEPPER, LAUNCH, BESIDE, CARD, BROKEN = (f".jp-Cell:nth-child({n}) .gpulab-view" for n in (2, 3, 4, 5, 7))
LOAD = ".jp-Cell:nth-child(8) .gpulab-view"
OCCUPANCY = ".jp-Cell:nth-child(6) img[class^=gl-figure]"

CELLS = [
    """
from tests.views import synthetic
from gpulab.views import DeviceCard, LaunchChart, WarpStepper
reading = iter(range(10_000))
""",
    """
trace = synthetic.warp_trace(n=24)
stepper = WarpStepper(trace, synthetic.measured_blocks(trace))
stepper.by_line = False
stepper
""",
    "launch = LaunchChart(synthetic.launch_trace(256), launch_at_block_size=synthetic.launch_trace)\nlaunch",
    """
measured = synthetic.launch_trace(512, provenance=synthetic.MEASURED, jitter=0.12)
beside = LaunchChart(synthetic.launch_trace(512), beside=measured)
beside
""",
    """
info, *others = synthetic.devices()
card = DeviceCard(info, others, lambda: synthetic.metrics(next(reading)))
card
""",
    """
from gpulab.views import OccupancyChart
occupancy = OccupancyChart(synthetic.occupancies(), 256)
occupancy
""",
    """
def refuse(threads):
    raise ValueError(f"no launch with {threads} threads per block here")
broken = LaunchChart(synthetic.launch_trace(blocks=300), launch_at_block_size=refuse)
broken
""",
    """
from gpulab.views import LoadChart
count = 20
load = LoadChart(lambda: synthetic.load_samples(count), "live")
load
""",
    """
from matplotlib.figure import Figure
from gpulab_course.teach.picture import Picture
Picture.of(Figure(figsize=(2, 1)), "a picture on white")
""",
]


@pytest.fixture(scope="module")
def views(lab: Any) -> Iterator[tuple[Any, Any]]:
    """The notebook with every view, and its kernel."""
    with lab.notebook("views.ipynb", CELLS) as kernel:
        lab.page.wait_for_selector(f"{STEPPER} .gl-sentence:has-text('Step 1')", timeout=60_000)
        lab.page.locator(BROKEN).wait_for(timeout=60_000)
        yield lab, kernel


def shown_step(lab: Any) -> tuple[str, list[str]]:
    """The spoken sentence and the 32 lane states on the page."""
    return lab.page.evaluate(
        """selector => {
            const view = document.querySelector(selector);
            return [view.querySelector('.gl-sentence').textContent,
                    [...view.querySelectorAll('.gl-lane')].map(lane => lane.dataset.state)];
        }""",
        STEPPER,
    )


def expected_states(trace: Any, step: int) -> list[str]:
    active = int(trace.active_mask[step])
    executed = int(trace.executed_mask[step])
    return [
        "active" if executed >> lane & 1 else "off" if active >> lane & 1 else "inactive"
        for lane in range(32)
    ]


def wait_for_text(lab: Any, selector: str, start: str) -> None:
    """Wait until an element's text begins so, in whatever case."""
    lab.page.wait_for_function(
        "([s, start]) => document.querySelector(s).textContent.toLowerCase().startsWith(start)",
        arg=[selector, start.lower()],
    )


def check_step(lab: Any, kernel: Any, step: int) -> None:
    trace = synthetic.warp_trace(n=24)
    wait_for_text(lab, f"{STEPPER} .gl-sentence", f"Step {step + 1} of ")
    sentence, states = shown_step(lab)
    assert sentence == kernel.value(f"stepper.steps.sentence({step})")
    assert f"{int(trace.active_mask[step]).bit_count()} of 32 lanes active" in sentence
    assert states == expected_states(trace, step)


def test_buttons_step_and_play(views: tuple[Any, Any]) -> None:
    lab, kernel = views

    def press(name: str) -> None:
        lab.page.locator(f"{STEPPER} button[data-move={name}]").click()

    lab.page.locator(f"{STEPPER} .gl-listing").press("Home")
    check_step(lab, kernel, 0)
    press("next")
    check_step(lab, kernel, 1)
    lab.page.locator(f"{STEPPER} .gl-listing").press("ArrowDown")
    check_step(lab, kernel, 2)
    press("access")
    check_step(lab, kernel, 4)
    press("previous")
    check_step(lab, kernel, 3)
    press("play")
    check_step(lab, kernel, 5)
    press("play")
    assert lab.page.locator(f"{STEPPER} button[data-move=play]").text_content() == "Play"
    press("last")
    check_step(lab, kernel, 13)
    assert lab.page.locator(f"{STEPPER} button[data-move=next]").get_attribute("aria-disabled") == "true"
    press("first")
    check_step(lab, kernel, 0)


def test_source_line_steps_and_ptx_listing(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    unit = lab.page.locator(f"{STEPPER} select[aria-label='One step is']")
    lab.page.locator(f"{STEPPER} .gl-listing").press("Home")
    unit.select_option("line")
    lab.page.locator(f"{STEPPER} button[data-move=next]").click()
    lab.expect(kernel, "stepper.by_line", True)
    row = lab.page.locator(f"{STEPPER} [aria-current=step] code")
    assert row.text_content() == "    if (i < n) {"
    lab.picture("stepper_lines", STEPPER)
    lab.page.get_by_role("button", name="PTX").click()
    check_step(lab, kernel, 2)
    lab.expect(kernel, "stepper.by_line", False)
    assert row.text_content() == "setp.ge.s32 %p1, %r2, %r5;"
    lab.picture("stepper_ptx", STEPPER)
    lab.page.get_by_role("button", name="PTX").click()
    assert row.text_content() == "    if (i < n) {"
    unit.select_option("step")


def slide(lab: Any, key: str, selector: str = LAUNCH) -> None:
    lab.page.locator(f"{selector} input[type=range]").focus()
    lab.page.keyboard.press(key)


def test_slider_redraws_and_reports_its_time(
    views: tuple[Any, Any], record_property: Callable[[str, object], None]
) -> None:
    lab, kernel = views
    lab.picture("launch_256", LAUNCH)
    before = lab.page.locator(f"{LAUNCH} dl").inner_text()
    median = lab.slide(kernel, LAUNCH, "launch", start=256)
    lab.expect(kernel, "launch.block_threads", 512)
    wait_for_text(lab, f"{LAUNCH} .gl-waves", f"512 threads per block: {kernel_waves(512)}")
    assert lab.page.locator(f"{LAUNCH} dl").inner_text() != before
    lab.picture("launch_512", LAUNCH)
    record_property("figure", f"slider to new picture (records): median {median:.0f} ms, goal 60 ms")
    assert median > 0


def kernel_waves(threads: int) -> str:
    from gpulab.views._waves import Waves

    return Waves(synthetic.launch_trace(threads)).describe_waves()


def test_fast_slider_moves_end_at_the_last_position(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    slide(lab, "Home")
    for _ in range(12):
        lab.page.keyboard.press("ArrowRight")
    words = kernel_waves(32 + 12 * 32)
    wait_for_text(lab, f"{LAUNCH} .gl-waves", f"416 threads per block: {words}")
    lab.expect(kernel, "launch.trace.block[0]", 416)


def test_an_error_is_shown_and_the_kernel_keeps_running(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    slide(lab, "ArrowRight", BROKEN)
    error = lab.page.locator(f"{BROKEN} .gl-error")
    error.wait_for(state="visible")
    assert "no launch with 288 threads per block here" in error.text_content()
    note = lab.page.locator(f"{BROKEN} .gl-redraw")
    assert note.text_content() == "failed: ValueError; still showing 256 threads"
    slider = lab.page.locator(f"{BROKEN} .gl-slider").bounding_box()
    below = error.bounding_box()["y"] - slider["y"] - slider["height"]
    assert 0 <= below < 12, "the message stands right below the slider"
    dimmed = f"getComputedStyle(document.querySelector('{BROKEN} .gl-scene')).opacity"
    assert float(lab.page.evaluate(dimmed)) < 0.5
    assert kernel.value("1 + 1") == 2
    lab.picture("error", BROKEN)


def test_live_readings_refresh_and_pause(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    table = lab.page.locator(f"{CARD} .gl-readings")
    assert "not available" in table.inner_text()
    assert "This board has no fan of its own." in table.inner_text()
    lab.page.get_by_role("button", name="Read now").click()
    lab.page.locator(f"{CARD} select").select_option("500")
    lab.page.locator(f"{CARD} button", has_text="Read by itself").click()
    lab.wait_for(lambda: kernel.value("card.readings['time_ns']") >= 4_000_000_000, what="several readings")
    lab.page.locator(f"{CARD} button", has_text="Pause").click()
    lab.page.wait_for_timeout(800)
    time_ns = kernel.value("card.readings['time_ns']")
    lab.page.wait_for_timeout(1_200)
    assert kernel.value("card.readings['time_ns']") == time_ns
    lab.picture("card", CARD)


def test_a_live_chart_keeps_the_selected_time(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    said = lab.page.locator(f"{LOAD} .gl-said")
    lab.page.locator(f"{LOAD} canvas").focus()
    for _ in range(2):
        lab.page.keyboard.press("ArrowRight")

    def time_of(index: int) -> str:
        return f"At {index / 2:g} s"

    assert time_of(2) in said.text_content()
    for readings in (25, 30):
        kernel.client.execute(f"count = {readings}; load.show_new_readings()", reply=True)
        lab.page.wait_for_selector(f"{LOAD} .gl-words-heading:has-text('{readings / 2 - 0.5:g} s')")
        assert time_of(2) in said.text_content()
    lab.page.keyboard.press("ArrowRight")
    assert time_of(3) in said.text_content(), "the chart has kept the focus"
    size = lab.page.locator(f"{LOAD} canvas").bounding_box()
    lab.page.mouse.move(size["x"] + size["width"] - 16, size["y"] + 100)
    assert time_of(29) in said.text_content()


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_a_figure_has_alternative_text_and_follows_the_theme(views: tuple[Any, Any], theme: str) -> None:
    lab, kernel = views
    dark = "Dark" in theme
    lab.command("apputils:change-theme", {"theme": theme})
    lab.page.wait_for_function(
        "light => document.body.dataset.jpThemeLight === light", arg="false" if dark else "true"
    )
    image = lab.page.locator(OCCUPANCY)
    image.scroll_into_view_if_needed()
    assert image.get_attribute("alt") == kernel.value("occupancy.describe()")
    content = image.evaluate("img => getComputedStyle(img).content")
    assert content.startswith("url(") == dark
    assert "invert" not in image.evaluate("img => getComputedStyle(img).filter")
    box = image.bounding_box()
    assert box["width"] > 500
    assert box["height"] > 200
    lab.picture(f"occupancy_{'dark' if dark else 'light'}", OCCUPANCY)


def luminance(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    return sum(
        w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
        for w, c in zip((0.2126, 0.7152, 0.0722), (red, green, blue), strict=True)
    )


def contrast(lab: Any, text: str, ground: str) -> float:
    """WCAG 2 contrast ratio of an element's colour on another's background."""
    colours = lab.page.evaluate(
        """([a, b]) => [getComputedStyle(document.querySelector(a)).color,
                        getComputedStyle(document.querySelector(b)).backgroundColor]""",
        [text, ground],
    )
    light, dark = sorted((luminance(c) for c in colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_is_readable_in_each_theme(views: tuple[Any, Any], theme: str) -> None:
    lab, _ = views
    lab.command("apputils:change-theme", {"theme": theme})
    dark = "Dark" in theme
    lab.page.wait_for_function(
        "light => document.body.dataset.jpThemeLight === light", arg="false" if dark else "true"
    )
    lab.page.wait_for_timeout(500)
    name = "dark" if dark else "light"
    for view, selector in (("stepper", STEPPER), ("launch", LAUNCH), ("beside", BESIDE), ("card", CARD)):
        lab.page.locator(selector).scroll_into_view_if_needed()
        lab.picture(f"{view}_{name}", selector)
        assert contrast(lab, f"{selector} .gl-title", selector) >= 7
        assert contrast(lab, f"{selector} .gl-caption", selector) >= 4.5
    lab.page.locator(".jp-RenderedImage img").last.scroll_into_view_if_needed()
    filter_ = lab.page.locator(".jp-RenderedImage img").last.evaluate("img => getComputedStyle(img).filter")
    assert ("invert" in filter_) == dark, "white paper would shine in the dark"
    lab.page.locator(f"{STEPPER} .gl-listing").press("Home")
    lane = f"{STEPPER} .gl-lane[data-state=active]"
    assert contrast(lab, lane, lane) >= 4.5
    ground = lab.page.evaluate("s => getComputedStyle(document.querySelector(s)).backgroundColor", STEPPER)
    assert (luminance(ground) < 0.1) == dark


def test_views_use_the_keyboard_only(views: tuple[Any, Any]) -> None:
    """Tab reaches the stepper's controls, and its shortcuts do not leak into the notebook."""
    lab, kernel = views
    lab.page.locator(f"{STEPPER} button[data-move=next]").focus()
    before = kernel.value("stepper.step")
    lab.page.keyboard.press("Enter")
    lab.expect(kernel, "stepper.step", before + 1)
    reached = []
    for _ in range(8):
        lab.page.keyboard.press("Tab")
        reached.append(
            lab.page.evaluate("() => document.activeElement.ariaLabel || document.activeElement.textContent")
        )
    assert "Step" in reached
    assert "Kernel text; keys step through it" in reached
    cells = lab.page.locator(".jp-Notebook .jp-Cell").count()
    for key in ("a", "d", "d", "ArrowDown"):
        lab.page.keyboard.press(key)
    assert lab.page.locator(".jp-Notebook .jp-Cell").count() == cells
    assert lab.page.evaluate("s => document.querySelector(s).contains(document.activeElement)", STEPPER)


def test_views_do_not_overflow_a_narrow_page(views: tuple[Any, Any]) -> None:
    lab, _ = views
    lab.page.set_viewport_size({"width": 760, "height": 1500})
    lab.page.wait_for_timeout(500)
    for view, selector in (("stepper", STEPPER), ("launch", LAUNCH), ("card", CARD)):
        wide = lab.page.evaluate(
            "s => { const v = document.querySelector(s); return [v.scrollWidth, v.clientWidth]; }", selector
        )
        assert wide[0] <= wide[1] + 1, view
        lab.picture(f"{view}_narrow", selector)
    lab.page.set_viewport_size({"width": 1280, "height": 1500})
    lab.page.wait_for_timeout(300)


def test_running_a_cell_again_closes_its_view(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    counting = (
        "sum(isinstance(w, LaunchChart) for w in __import__('ipywidgets').widgets.widget._instances.values())"
    )
    before = kernel.value(counting)
    old = kernel.value("beside.model_id")
    lab.page.locator(".jp-Cell:nth-child(4) .jp-InputArea-editor").click()
    lab.page.keyboard.press("Control+Enter")
    lab.wait_for(lambda: kernel.value("beside.model_id") != old, what="the cell")
    lab.page.locator(BESIDE).wait_for()
    assert kernel.value(counting) == before


def test_page_has_no_script_errors(views: tuple[Any, Any]) -> None:
    lab, _ = views
    assert [problem for problem in lab.problems if "gpulab" in problem or "anywidget" in problem] == []
