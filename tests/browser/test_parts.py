"""Saved pages in a bare Chromium: what the painter paints, says and sends, without a kernel or JupyterLab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulab import words
from gpulab.views import DeviceCard, LaunchChart, LoadChart, TimelineView, WarpStepper
from gpulab.views._base import View, read_module
from gpulab.views.parts import palette
from tests.browser.conftest import PICTURES
from tests.views import synthetic, timelines

pytestmark = [pytest.mark.browser]

SIZES = {"projector": (1024, 700), "laptop": (1400, 900)}
MAKERS: dict[str, Callable[[], Any]] = {
    "launch": lambda: LaunchChart(synthetic.launch_trace(256), synthetic.launch_trace),
    "beside": lambda: LaunchChart(
        synthetic.launch_trace(),
        synthetic.launch_trace,
        beside=synthetic.launch_trace(provenance=synthetic.MEASURED, jitter=0.1),
    ),
    "few": lambda: LaunchChart(synthetic.launch_trace(blocks=16), synthetic.launch_trace),
    "card": lambda: DeviceCard(synthetic.devices()[0], synthetic.devices()[1:], synthetic.metrics),
    "stepper": lambda: WarpStepper(synthetic.warp_trace()),
    "timeline": lambda: TimelineView(timelines.overlapped(12, 40), summary="Copies and kernels overlap."),
}


class Bare:
    """A page of Chromium that sees files only; it collects what goes wrong and what is asked outside."""

    def __init__(self, browser: Any, folder: Path, **options: Any) -> None:
        self.page = browser.new_page(**({"viewport": {"width": 1024, "height": 700}} | options))
        self.folder = folder
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.set_default_timeout(10_000)

    def open(self, view: View) -> Any:
        path = self.folder / "view.html"
        view.save(path)
        view.close()
        self.asked.clear()
        self.page.goto(f"{path.as_uri()}?notebook")
        self.page.locator(".gpulab-view").wait_for()
        self.page.wait_for_timeout(100)
        return self.page

    def pixel(self, x: float, y: float) -> tuple[int, ...]:
        """Colour of a canvas at a point in page pixels."""
        return tuple(
            self.page.evaluate(
                """([x, y]) => [...document.querySelector("canvas").getContext("2d")
                 .getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data].slice(0, 3)""",
                [x, y],
            )
        )

    def width(self) -> int:
        return int(self.page.locator("canvas").first.evaluate("c => c.clientWidth"))


@pytest.fixture
def bare(browser: Any, tmp_path: Path) -> Iterator[Bare]:
    page_ = Bare(browser, tmp_path)
    yield page_
    page_.page.close()
    assert not page_.problems


def rgb(name: str, dark: bool = False) -> tuple[int, ...]:
    return tuple(bytes.fromhex(palette.COLOURS[name][dark][1:]))


@pytest.mark.parametrize(("size", "scheme"), [("projector", "light"), ("laptop", "dark")])
@pytest.mark.parametrize("name", MAKERS)
def test_every_view_fits_the_window_without_clipped_text(
    browser: Any, tmp_path: Path, name: str, size: str, scheme: str
) -> None:
    width, height = SIZES[size]
    bare = Bare(browser, tmp_path, viewport={"width": width, "height": height}, color_scheme=scheme)
    page = bare.open(MAKERS[name]())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if name != "stepper":  # its panels below the lanes may be scrolled to
        assert page.evaluate("document.documentElement.scrollHeight") <= height
    # No text runs out of its box, and none of the page's text lies under another.
    cut = page.evaluate(
        """() => [...document.querySelectorAll(".gpulab-view *")].filter((node) => node.children.length === 0
             && node.textContent && node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 1
             && getComputedStyle(node).display !== "inline").map((node) => node.textContent)"""
    )
    assert not cut
    assert all(url.startswith(("file:", "data:", "blob:")) for url in bare.asked), (
        "a page alone needs no network"
    )
    assert not bare.problems
    page.screenshot(path=PICTURES / f"bare_{name}_{size}_{scheme}.png")
    page.close()


# What JupyterLab leaves for a view at 1024x700 and 1280x720, its file browser open, and what must be in
# sight there together.
BESIDE_THE_FILES = {"projector": (612, 579), "laptop": (868, 599)}
ESSENTIALS = {
    "launch": (".gl-slider", "canvas", ".gl-numbers", ".gl-said"),
    "few": (".gl-slider", "canvas", ".gl-numbers", ".gl-said"),
    "beside": (".gl-slider", "canvas", ".gl-column > table"),
    "card": (".gl-matrix", "summary"),
    "timeline": (".gl-tracks-tools", "canvas", ".gl-said"),
}


@pytest.mark.parametrize("size", BESIDE_THE_FILES)
@pytest.mark.parametrize("name", ESSENTIALS)
def test_essential_elements_are_visible_without_scrolling(
    browser: Any, tmp_path: Path, name: str, size: str
) -> None:
    width, height = BESIDE_THE_FILES[size]
    bare = Bare(browser, tmp_path, viewport={"width": width, "height": height})
    page = bare.open(MAKERS[name]())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lowest = page.evaluate(
        """names => Math.max(...names.flatMap((name) => [...document.querySelectorAll(name)])
             .map((node) => node.getBoundingClientRect().bottom)) - document.querySelector(".gpulab-view")
             .getBoundingClientRect().top""",
        list(ESSENTIALS[name]),
    )
    assert lowest <= height
    small = page.evaluate(
        """() => [...document.querySelectorAll(".gpulab-view *")].filter((node) => node.textContent.trim()
             && node.getClientRects().length && parseFloat(getComputedStyle(node).fontSize) < 11)
             .map((node) => node.textContent)"""
    )
    assert not small
    out = page.evaluate(
        """() => { const edge = document.querySelector(".gpulab-view").getBoundingClientRect().right;
             return [...document.querySelectorAll(".gpulab-view *")].filter((node) =>
               !node.closest(".gl-hidden-text") && node.getBoundingClientRect().right > edge)
               .map((node) => node.className || node.tagName); }"""
    )
    assert not out
    assert not bare.problems
    page.screenshot(path=PICTURES / f"small_{name}_{size}.png")
    page.close()


def test_enter_or_a_click_shows_one_sm_alone(bare: Bare) -> None:
    view = launch()
    trace = view.trace
    order = view.waves.order
    slot = view.waves.slot
    page = bare.open(view)
    canvas = page.locator("canvas")
    status = page.locator(".gl-said")
    wide = bare.width() - 54 - 8
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + 54 + 5, box["y"] + 7.5 * 17)
    assert status.text_content().endswith("Click or Enter: all SMs.")
    assert " on SM 7:" in status.text_content()
    for index in range(order.size):  # the six places of SM 7 share the height of all rows
        if trace.sm_id[order][index] == 7:
            middle = (trace.start_ns[order][index] + trace.end_ns[order][index]) / 2 / trace.span_ns
            name = "tail" if view.waves.in_tail[index] else ("accent", "accent-2")[view.waves.wave[index] % 2]
            assert bare.pixel(54 + middle * wide, (slot[index] + 0.9) * 169 / 6) == rgb(name)
    page.keyboard.press("ArrowDown")
    assert " on SM 8:" in status.text_content(), "the next SM, alone as well"
    page.keyboard.press("Enter")
    assert not status.text_content().endswith("all SMs.")
    page.mouse.move(box["x"] + 54 + 5, box["y"] + 2.5 * 17)
    assert " on SM 2:" in status.text_content()


def launch(**options: Any) -> LaunchChart:
    """Few SMs, so that every block has rows of its own."""
    return LaunchChart(synthetic.launch_trace(256, sm_count=10, blocks=100), **options)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_block_has_the_colour_of_its_wave(browser: Any, tmp_path: Path, scheme: str) -> None:
    """Pixels of the page are compared with the record; the tail has a colour that no wave has."""
    view = launch()
    waves = view.waves
    order = view.waves.order
    bare = Bare(browser, tmp_path, color_scheme=scheme)
    bare.open(view)
    wide = bare.width() - 54 - 8
    counts: dict[str, int] = {}
    for index in range(0, order.size, 3):
        trace = waves.trace
        middle = (trace.start_ns[order][index] + trace.end_ns[order][index]) / 2 / trace.span_ns
        y = 17 * trace.sm_id[order][index] + (waves.slot[index] + 0.5) * 16 / 6  # a pixel between two SMs
        name = "tail" if waves.in_tail[index] else ("accent", "accent-2")[waves.wave[index] % 2]
        colour = bare.pixel(54 + middle * wide, y)
        assert colour == rgb(name, scheme == "dark"), (index, name)
        counts[name] = counts.get(name, 0) + 1
    assert counts["tail"] > 5
    assert counts["accent"] > 10
    bare.page.close()


def test_pointer_and_keys_show_details_of_the_record(bare: Bare) -> None:
    view = launch()
    trace = view.trace
    order = view.waves.order
    page = bare.open(view)
    status = page.locator(".gl-said")
    page.locator("canvas").focus()
    first = order[0]
    assert status.text_content().startswith(
        f"Block {trace.block_index[first]} on SM {trace.sm_id[first]}: from 0 ns to "
    )
    page.keyboard.press("End")
    last = order[-1]
    text = status.text_content()
    assert text.startswith(f"Block {trace.block_index[last]} on SM {trace.sm_id[last]}: from ")
    assert text.endswith(", the tail.")
    on_same = [index for index in order.tolist() if trace.sm_id[index] == trace.sm_id[last]]
    page.keyboard.press("ArrowLeft")
    assert status.text_content().startswith(f"Block {trace.block_index[on_same[-2]]} on SM ")
    page.keyboard.press("ArrowUp")
    assert f" on SM {trace.sm_id[last] - 1}:" in status.text_content()
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 54 + 5, box["y"] + 7.5 * 17)
    assert " on SM 7: from 0 ns" in status.text_content()


def many_values() -> dict[str, list[float]]:
    """Of what each writer of words may be given: edges, halves that round to even, and a spread at random."""
    random = np.random.default_rng(1)
    integers = [0, 1, 2, 99, 100, 999, 1000, 1023, 1024, 12_340, 999_400, 999_999, 4_100_000, 2e9, 3_661e9]
    halves = [n / 8 for n in range(1, 801)] + [n + 0.5 for n in range(95, 1_101, 5)]
    spread = (10 ** random.uniform(-9, 14, 2_000)).tolist()
    shares = [
        *random.uniform(0, 1.2, 500).tolist(),
        0.994999,
        0.995,
        0.996,
        0.9996,
        1 - 1e-9,
        1 - 1e-16,
        1.004,
    ]
    times = [*integers, *halves, *map(float, map(round, spread))]
    return {
        "number": [*integers, *halves, *spread, *(-value for value in spread[:200])],
        "percent": [*shares, *(n / 800 for n in range(801)), *(10 ** random.uniform(-9, 0, 300)).tolist()],
        "sized": [*times, *(2.0**k * n / 32 for k in range(10, 41) for n in (31, 32, 33, 36))],
        "duration": times,
    }


def test_the_page_formats_numbers_as_python_does(bare: Bare) -> None:
    """JavaScript formats the numbers at the pointer; they must look like those of Python's texts."""
    page = bare.open(launch())
    page.add_script_tag(
        content=read_module("parts/view").replace("export default", "const unused =")
        + ";window.words = { number, percent, sized, duration, count };"
    )
    python = (words.number, words.percent, words.size, words.duration)
    for (name, values), write in zip(many_values().items(), python, strict=True):
        written = page.evaluate("([name, values]) => values.map((each) => words[name](each))", [name, values])
        expected = [write(value) for value in values]
        wrong = [(v, w, e) for v, w, e in zip(values, written, expected, strict=True) if w != e]
        assert not wrong, (name, len(wrong), wrong[:5])
    plurals = page.evaluate(
        "[0, 1, 2, 1000].map((each) => [words.count(each, 'wait'), words.count(each, 'copy', 'copies')])"
    )
    assert plurals == [[words.count(n, "wait"), words.count(n, "copy", "copies")] for n in (0, 1, 2, 1000)]


def test_resizing_the_page_redraws_the_view_without_python(bare: Bare) -> None:
    page = bare.open(launch())
    narrow = bare.width()
    page.set_viewport_size({"width": 860, "height": 700})
    page.wait_for_timeout(150)
    assert bare.width() != narrow
    wide = bare.width() - 54 - 8
    assert bare.pixel(54 + 0.1 * wide, 6) == rgb("accent")
    assert page.evaluate("document.documentElement.scrollWidth") <= 860


def test_a_reattached_cell_is_repainted(bare: Bare) -> None:
    """JupyterLab detaches cells that are out of sight; a detached view has no size."""
    page = bare.open(launch())
    page.evaluate(
        """async () => {
             const view = document.querySelector(".gpulab-view"), place = view.parentElement;
             const frames = () => new Promise((done) => { setTimeout(done, 100); });
             view.remove();
             await frames();
             place.style.width = "800px";
             place.append(view);
             await frames();
           }"""
    )
    assert bare.width() < 600
    assert bare.pixel(54 + 0.1 * (bare.width() - 54 - 8), 6) == rgb("accent")
    assert rgb("tail") in {
        bare.pixel(54 + x, 6 + y) for x in range(300, bare.width() - 70, 5) for y in (0, 17, 34)
    }


def test_zoom_shows_a_part_and_can_be_reset(bare: Bare) -> None:
    view = launch()
    first = int(view.waves.in_tail.argmax())
    y = 17 * view.trace.sm_id[view.waves.order][first] + (view.waves.slot[first] + 0.5) * 16 / 6
    page = bare.open(view)
    wide = bare.width() - 54 - 8

    def row() -> list[tuple[int, ...]]:
        return [bare.pixel(54 + share * wide, y) for share in np.linspace(0.02, 0.98, 40)]

    integers = row()
    assert rgb("tail") in integers
    assert rgb("accent") in integers
    page.locator("canvas").focus()
    for _ in range(4):
        page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")  # what the keys choose comes into sight
    assert set(row()) == {rgb("accent")}, "the start of the launch, and nothing of its tail"
    page.keyboard.press("0")
    assert row() == integers


def test_controls_that_need_python_are_disabled(bare: Bare) -> None:
    page = bare.open(launch(launch_at_block_size=synthetic.launch_trace))
    assert page.locator("input[type=range]").is_disabled()
    assert "works without Python" in page.locator(".gl-saved").text_content()
    page = bare.open(DeviceCard(synthetic.devices()[0], read_metrics=synthetic.metrics))
    assert page.get_by_role("button", name="Read now").is_disabled()


def test_a_hundred_thousand_blocks_are_painted_fast(
    bare: Bare, record_property: Callable[[str, object], None]
) -> None:
    page = bare.open(LaunchChart(synthetic.wide_launch(100_000)))
    took, pictures = page.evaluate(
        """async () => {
             const canvas = document.querySelector("canvas"), times = [], shown = new Set();
             canvas.focus();
             for (const key of "+0+0+0") {
               const start = performance.now();
               canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
               if (key === "0") times.push(performance.now() - start);
               await new Promise(requestAnimationFrame);
               shown.add(canvas.toDataURL());
             }
             return [Math.min(...times), shown.size];
           }"""
    )
    record_property("figure", f"100,000 blocks painted on a canvas: {took:.0f} ms, goal 50 ms")
    assert pictures == 2, "zoomed into and whole"


def test_the_load_chart_shows_the_values_at_a_time(open_saved: Callable[..., Any]) -> None:
    record = synthetic.load_samples()
    page = open_saved(LoadChart(lambda: record))
    canvas = page.locator("canvas")
    said = page.locator(".gl-said")

    def text_of(index: int) -> str:
        return f"At {words.duration(record.time_ns[index])}, in {'copy' if index < 24 else 'compute'}"

    before = canvas.screenshot()
    canvas.focus()
    for key, index in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 59)):
        page.keyboard.press(key)
        assert text_of(index) in said.text_content()
        assert f"power {words.number(record['power'][index])} W" in said.text_content()
    assert canvas.screenshot() != before
    size = canvas.bounding_box()
    # The margins are 48 and 14 pixels wide.
    page.mouse.move(size["x"] + 48 + (size["width"] - 62) * 10.25 / 29.5, size["y"] + 150)
    assert text_of(21) in said.text_content()
