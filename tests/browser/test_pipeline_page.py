"""A saved page of a pipeline in Chromium: keys show warps and lines, the zoom works, nothing is cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpulab.views import PipelineView
from tests.views.pipelines import block, copies_ahead

pytestmark = [pytest.mark.browser]


def opened(
    open_saved: Callable[..., Any], *size: Any, left_out: tuple[str, ...] = ()
) -> tuple[Any, PipelineView]:
    view = PipelineView(block([copies_ahead(3, 6, left_out)] * 2))
    page = open_saved(view, *size)
    view.close()
    return page, view


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1024, 700), (1400, 900)])
def test_pipeline_page_fits_the_window(
    open_saved: Callable[..., Any], width: int, height: int, dark: bool
) -> None:
    page, _ = opened(open_saved, width, height, dark, left_out=("barrier",))
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator("canvas").bounding_box()["height"] > 100
    for text in ("Used too early", "Overwritten while in use", "line 8", "line 10"):
        assert page.get_by_text(text).first.is_visible()


def test_keys_visit_each_bar_and_mark(open_saved: Callable[..., Any]) -> None:
    page, view = opened(open_saved, 1024, 700)
    page.locator("canvas").focus()
    elements = len(view.record.fills) + len(view.record.uses) + len(view.record.marks)
    spoken = []
    for _ in range(elements):
        spoken.append(page.locator(".gl-said").inner_text())
        page.keyboard.press("ArrowRight")
    seen = "\n".join(spoken)
    for fill in view.record.fills:
        assert f"Buffer {fill.buffer}, fill {fill.number}: warps 0 and 1 start to copy it at line 8" in seen
    for use in view.record.uses:
        assert f"Buffer {use.buffer}, use of fill {use.fill}: warps 0 and 1 read it at line 10" in seen
    for line in (6, 7, 9):
        assert f"Line {line} (" in seen


def test_the_picture_can_be_enlarged(open_saved: Callable[..., Any]) -> None:
    page, _ = opened(open_saved, 1024, 700)
    canvas = page.locator("canvas")
    canvas.focus()
    before = canvas.evaluate("node => node.toDataURL()")
    page.keyboard.press("+")
    page.wait_for_function("before => document.querySelector('canvas').toDataURL() !== before", arg=before)
    page.keyboard.press("0")
    page.wait_for_function("before => document.querySelector('canvas').toDataURL() === before", arg=before)
