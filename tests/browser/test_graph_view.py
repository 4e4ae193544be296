"""The view of a graph in a real JupyterLab: nodes walked and picked, their bars marked, small enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEW, CHAIN, DANGLING = (f".jp-Cell:nth-child({n}) .gpulab-view" for n in (2, 3, 4))
CELLS = [
    """
import gpulab as gl, numpy as np
from IPython.display import display
gl.use_device("virtual:H200")
from gpulab import cp
add = cp.RawKernel('extern "C" __global__ void add(float* x, float y) { x[threadIdx.x] += y; }', "add")
side = cp.cuda.Stream(non_blocking=True)
def fork(x, y):
    stream = cp.cuda.get_current_stream()
    add((1,), (32,), (x, np.float32(1)))
    side.wait_event(stream.record())
    add((1,), (32,), (y, np.float32(2)), stream=side)
    x.data.memset_async(0, 64, stream)
    stream.wait_event(side.record())
    x[...] = y
def chain(x):
    for _ in range(200): add((1,), (32,), (x, np.float32(1)))
x, y = cp.zeros(32, np.float32), cp.zeros(32, np.float32)
""",
    "view = gl.graph(fork, x, y).compare(repeats=2).view()\nview",
    "gl.graph(chain, x)",
    "g = gl.graph(fork, x, y)\nx = cp.ones(32, np.float32)\ng",
]


@pytest.fixture(scope="module")
def views(lab: Any) -> Iterator[tuple[Any, Any]]:
    with lab.notebook("graphs.ipynb", CELLS) as kernel:
        lab.page.locator(DANGLING).wait_for(timeout=90_000)
        yield lab, kernel


def status(lab: Any) -> str:
    return str(lab.page.locator(f"{VIEW} .gl-dag .gl-said").inner_text())


def test_keys_move_from_node_to_node(views: tuple[Any, Any]) -> None:
    lab, _ = views
    lab.page.locator(f"{VIEW} .gl-dag canvas").focus()
    assert status(lab).startswith("Node 0: kernel add")
    lab.page.keyboard.press("Tab")
    assert status(lab).startswith("Node 1: kernel add")
    lab.page.keyboard.press("ArrowDown")
    second = status(lab)
    assert second.startswith("Node 2: memory set")
    lab.page.keyboard.press("ArrowRight")
    assert status(lab).startswith("Node 3: ")
    lab.page.keyboard.press("Shift+Tab")
    assert status(lab) == second
    for _ in range(2):
        lab.page.keyboard.press("Tab")
    assert (
        lab.page.evaluate("document.activeElement.tagName") != "CANVAS"
    )  # past the last node: on to the next


def test_keyboard_selects_nodes_and_timeline_bars(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    lab.page.locator(f"{VIEW} .gl-dag canvas").focus()
    lab.page.keyboard.press("Home")
    lab.page.keyboard.press("Tab")
    marked = "view.node"
    lab.page.keyboard.press("Enter")
    lab.page.wait_for_timeout(300)
    assert kernel.value(marked) == 1
    lab.page.keyboard.press("Enter")
    lab.page.wait_for_timeout(300)
    assert kernel.value(marked) == -1
    tracks = lab.page.locator(f"{VIEW} .gl-tracks canvas")
    tracks.focus()
    lab.page.keyboard.press("End")  # the last bar is a node of the replay, or the host's call
    lab.page.keyboard.press("Enter")
    lab.page.wait_for_timeout(300)
    assert kernel.value("view.selected") > 0


def test_a_click_selects_a_node(views: tuple[Any, Any]) -> None:
    lab, kernel = views
    kernel.value("setattr(view, 'node', -1)")
    canvas = lab.page.locator(f"{VIEW} .gl-dag canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": 60, "y": box["height"] / 2})
    lab.page.wait_for_timeout(300)
    assert kernel.value("view.node") == 0


@pytest.mark.parametrize("selector", [VIEW, CHAIN, DANGLING])
def test_views_are_at_most_560_pixels_high(views: tuple[Any, Any], selector: str) -> None:
    lab, _ = views
    assert lab.page.locator(selector).bounding_box()["height"] <= 560


def test_dangling_arrays_and_collapsed_nodes_are_reported(views: tuple[Any, Any]) -> None:
    lab, _ = views
    assert "x dangles" in lab.page.locator(DANGLING).inner_text()
    assert "200 nodes drawn as 1" in lab.page.locator(CHAIN).inner_text()
