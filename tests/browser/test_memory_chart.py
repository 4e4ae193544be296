"""The live memory chart in a real JupyterLab: it moves while a cell runs, and its buttons work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gpulab.views import MemoryChart
from gpulab.views.memory.chart import order_by_event
from gpulab.words import duration, size
from tests.views import synthetic
from tests.views.unusual import refusals

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEW = ".jp-Cell:nth-child(2) .gpulab-memory-chart"
SESSION = "window.jupyterapp.shell.currentWidget.sessionContext.session"
CELLS = [
    'import gpulab as gl, time\ngl.use_device("virtual:H200")\nfrom gpulab import cp',
    "m = gl.memory()\nm",
    """
first, kept = "kept" not in globals(), []
for turn in range(0 if first else 3000):
    if turn < 30: kept.append(cp.zeros(1 << 20, cp.uint8))
    time.sleep(0.02)
""",
]


@pytest.fixture(scope="module")
def views(lab: Any) -> Iterator[tuple[Any, Any]]:
    with lab.notebook("memory.ipynb", CELLS) as kernel:
        lab.page.locator(f"{VIEW} canvas").wait_for(timeout=90_000)
        yield lab, kernel


def figures(lab: Any) -> list[str]:
    return [str(text) for text in lab.page.locator(f"{VIEW} .gl-numbers dd").all_inner_texts()]


def status(lab: Any) -> str:
    return str(lab.page.locator(f"{VIEW} .gl-said").inner_text())


def running(lab: Any) -> bool:
    return any("*" in text for text in lab.page.locator(".jp-InputArea-prompt").all_inner_texts())


def press(lab: Any, name: str) -> None:
    lab.page.locator(VIEW).get_by_role("button", name=name, exact=True).click()


def test_the_chart_is_updated_while_a_cell_runs(views: tuple[Any, Any]) -> None:
    lab, _ = views
    # Nobody waits for the last cell, which is the active one, and this time runs for a minute.
    lab.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell'); }")
    lab.wait_for(lambda: figures(lab)[0] == "30 MiB", what="30 MiB used")
    canvas = lab.page.locator(f"{VIEW} canvas")
    before = canvas.screenshot()
    lab.wait_for(lambda: canvas.screenshot() != before, what="time to go on")
    canvas.focus()
    lab.page.keyboard.press("Home")
    assert "allocation" in status(lab)
    assert "kept.append(cp.zeros(1 << 20, cp.uint8))" in status(lab)
    assert running(lab)
    lab.picture("memory_live", VIEW)


def test_chart_buttons_allocate_and_free_memory(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    press(lab, "Allocate")
    lab.page.locator(f"{VIEW} .gl-note", has_text="waits until the cell").wait_for()
    assert running(lab)
    lab.command("notebook:interrupt-kernel")
    lab.wait_for(lambda: figures(lab)[0] == "94 MiB", what="94 MiB used")
    press(lab, "Free")
    lab.wait_for(lambda: figures(lab)[:2] == ["30 MiB", "64 MiB"], what="64 MiB cached")
    press(lab, "Empty cache")
    lab.wait_for(lambda: figures(lab)[1] == "0 B", what="an empty cache")
    lab.page.locator(f"{VIEW} input").fill("40 MiB")
    press(lab, "Set limit")
    lab.wait_for(lambda: figures(lab)[3] == "40 MiB", what="a limit of 40 MiB")
    press(lab, "Allocate")
    lab.page.locator(f"{VIEW} .gl-error", has_text="OutOfMemoryError").wait_for()
    lab.page.locator(f"{VIEW} input").fill("much")
    press(lab, "Set limit")
    lab.page.locator(f"{VIEW} .gl-error", has_text="not a size").wait_for()
    assert kernel.value("m.record.peak[0]") == 94 << 20


def test_pause_stops_sampling_and_the_chart_remains_after_stop(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    press(lab, "Pause")
    lab.expect(kernel, "m.state", "paused")
    press(lab, "Resume")
    lab.expect(kernel, "m.state", "live")
    press(lab, "All")
    follow = lab.page.locator(VIEW).get_by_role("button", name="Follow", exact=True)
    assert follow.get_attribute("aria-pressed") == "false"
    kernel.value("m.stop()")
    lab.page.locator(VIEW).get_by_role("button", name="Allocate", exact=True).wait_for(state="hidden")
    lab.page.locator(f"{VIEW} canvas").focus()
    lab.page.keyboard.press("End")
    assert status(lab).startswith("At ")
    lab.picture("memory_stopped", VIEW)
    assert lab.problems == []


def test_chart_buttons_request_a_rerun_after_a_kernel_restart(lab: Any) -> None:
    with lab.notebook("restarted.ipynb", CELLS[:2]):
        lab.page.locator(f"{VIEW} canvas").wait_for(timeout=90_000)
        lab.page.evaluate(f"() => {SESSION}.kernel.restart()")
        press(lab, "Allocate")
        lab.page.locator(f"{VIEW} .gl-note", has_text="Run this cell again").wait_for(timeout=20_000)
        press(lab, "By event")
        button = lab.page.locator(VIEW).get_by_role("button", name="By event", exact=True)
        assert button.get_attribute("aria-pressed") == "true", "this needs no Python"


@pytest.mark.parametrize("make", [lambda: synthetic.memory_samples(100), refusals], ids=["plain", "odd"])
def test_a_page_shows_the_memory_after_each_event(make: Any, open_saved: Callable[..., Any]) -> None:
    record = make()
    page = open_saved(MemoryChart(lambda: record))
    canvas = page.locator("canvas")
    by_time = canvas.screenshot()
    page.get_by_role("button", name="By event", exact=True).click()
    assert canvas.screenshot() != by_time
    steps = order_by_event(record)
    count = len(record.marks)
    box = canvas.bounding_box()
    for step in range(count + 1):
        # The margins are 76 and 14 pixels wide; below the marks, the pointer selects a step.
        page.mouse.move(box["x"] + 76 + (box["width"] - 90) * (step + 0.5) / (count + 1), box["y"] + 150)
        time_ns = record.marks.time_ns[step - 1] if step else 0
        used, reserved, device = (
            getattr(steps, name)[step] for name in ("used_bytes", "reserved_bytes", "device_bytes")
        )
        text = page.locator(".gl-said").text_content()
        assert text.startswith(f"After event {step}, at {duration(round(time_ns))}: {size(used)} used"), step
        if not np.isnan(device):
            assert f"{size(max(0, reserved - used))} cached, {size(device - reserved)} driver" in text
