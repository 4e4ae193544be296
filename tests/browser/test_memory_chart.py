"""The live memory chart in a real JupyterLab: it moves while a cell runs, and its buttons work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEW = ".jp-Cell:nth-child(2) .gpulab-memory-chart"
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


def test_the_chart_moves_while_a_cell_runs(views: tuple[Any, Any]) -> None:
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


def test_its_buttons_change_the_pool(views: tuple[Any, Any]) -> None:
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


def test_pause_stops_the_readings_and_the_end_keeps_the_chart(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    press(lab, "Pause")
    lab.expect(kernel, "m.state", "paused")
    press(lab, "Resume")
    lab.expect(kernel, "m.state", "live")
    press(lab, "Whole time")
    follow = lab.page.locator(VIEW).get_by_role("button", name="Follow", exact=True)
    assert follow.get_attribute("aria-pressed") == "false"
    kernel.value("m.stop()")
    lab.page.locator(VIEW).get_by_role("button", name="Allocate", exact=True).wait_for(state="hidden")
    lab.page.locator(f"{VIEW} canvas").focus()
    lab.page.keyboard.press("End")
    assert status(lab).startswith("At ")
    lab.picture("memory_stopped", VIEW)
    assert lab.problems == []
