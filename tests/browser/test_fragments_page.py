"""The fragment view's page: the same texts as Python's, keys and clicks that select, without a kernel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpulab.views import FragmentView
from gpulab.views._base import read_module
from gpulab.views.fragments import fragment_text, picture
from tests.engine.test_fragments import TILE
from tests.views import fragment_traces

pytestmark = pytest.mark.browser

TWIN = "globalThis.twin = { cellTexts, sentenceOfElement, sentenceOfLane }; const unused ="
SELECTED = ".gpulab-fragment-view .gl-selection"


def test_texts_of_the_page_equal_those_of_python(open_saved: Any) -> None:
    trace = fragment_traces.trace()
    view = FragmentView(trace)
    page = open_saved(view)
    page.add_script_tag(content=read_module("fragments/view").replace("export default", TWIN), type="module")
    page.wait_for_function("globalThis.twin !== undefined")
    for role in ("multiply", "load"):
        execution = next(e for e in trace.executions if trace.of(e).role == role)
        for index in picture.find_drawn_matrices(trace, execution):
            matrix = trace.of(execution).matrices[index]
            values = fragment_text.decode_bits(execution.bits[index], matrix.kind).ravel().tolist()
            sent = {
                "name": fragment_text.name_matrix(matrix),
                "per_register": matrix.per_register,
                "registers": list(matrix.registers),
                "first_register": fragment_text.find_first_register(matrix),
                "values": values,
                "address": execution.address[index].ravel().tolist(),
                "plot": {
                    "items": [{"row": matrix.row.ravel().tolist(), "column": matrix.column.ravel().tolist()}]
                },
            }
            if matrix.name == "d":
                sent["before"] = fragment_text.decode_bits(execution.bits[2], "f32").ravel().tolist()
            answer = json.loads(
                page.evaluate(
                    """([templates, role, matrix, listed]) => {
                        const cells = Array.from({ length: matrix.values.length }, (_, cell) => cell);
                        const said = (cell) => twin.sentenceOfElement(
                            templates, role, matrix, Math.floor(cell / 32), cell % 32);
                        const saidOfLane = (lane) => twin.sentenceOfLane(templates, [matrix], lane, listed);
                        return JSON.stringify([
                            ["held", "value", "address"].map((shown) => twin.cellTexts(matrix, shown)),
                            cells.map(said), cells.slice(0, 32).map(saidOfLane)]); }""",
                    [fragment_text.PAGE_TEXTS, role, sent, fragment_text.MAX_LISTED],
                )
            )
            shown = ("held", "value", "address")
            assert answer[0] == [
                fragment_text.make_cell_texts(execution, index, matrix, name) for name in shown
            ]
            assert answer[1] == [
                fragment_text.element_sentence(trace, execution, index, element, lane)
                for element in range(len(matrix.row))
                for lane in range(32)
            ]
            assert answer[2] == [fragment_text.lane_sentence([matrix], lane) for lane in range(32)]


def click(page: Any, canvas: int, row: float, column: float, rows: int, columns: int) -> None:
    """Click a cell of a matrix: positions are given by the plot's geometry."""
    box = page.locator(".gpulab-fragment-view .gl-panel canvas").nth(canvas).bounding_box()
    left, top = picture.LEFT_MARGIN_PX, picture.TOP_MARGIN_PX
    x = left + (column + 0.5) * (box["width"] - left) / columns
    y = top + (row + 0.5) * (box["height"] - top - 1) / rows
    page.mouse.click(box["x"] + x, box["y"] + y)


def test_clicks_and_keys_select_elements_and_lanes(open_saved: Any) -> None:
    page = open_saved(FragmentView(fragment_traces.trace()), 1024, 700)
    said = page.locator(SELECTED)
    click(page, 0, 9, 10, 16, 16)  # PTX: a(9, 10) is in lane 5, register 3
    assert "a (9, 10)" in said.inner_text()
    assert "lane 5, register 3" in said.inner_text()
    page.keyboard.press("ArrowRight")
    assert "a (9, 11)" in said.inner_text()
    page.keyboard.press("ArrowDown")
    assert "a (10, 11)" in said.inner_text()
    assert "lane 9," in said.inner_text()
    click(page, 1, 3, 2, 16, 8)  # PTX: b(3, 2) is in lane 9, register 0, in the upper half
    assert "b (3, 2)" in said.inner_text()
    assert "lane 9, register 0" in said.inner_text()
    page.locator(".gl-picture canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert "lane 10," in said.inner_text()
    page.keyboard.press("End")
    assert "lane 31," in said.inner_text()


def test_rows_and_executions_are_selected_by_keyboard(open_saved: Any) -> None:
    page = open_saved(FragmentView(fragment_traces.trace()), 1024, 700, dark=True)
    which = page.locator(".gl-which")
    assert which.inner_text().startswith("Execution 1 of 10 (8 can be shown)")
    page.get_by_label("Execution").focus()
    page.keyboard.press("End")
    assert which.inner_text().startswith("Execution 8 of")
    page.locator(".gl-accesses button").first.focus()
    page.keyboard.press("ArrowDown")
    assert "32 passes through the banks, at best 4" in which.inner_text()
    assert page.locator(".gl-panel:visible").count() == 4
    page.keyboard.press("End")
    assert page.locator(".gl-panel:visible").count() == 0
    assert page.locator(SELECTED).inner_text() == "Lane 0 accesses bytes 0 to 15 of shared memory in pass 1."


def test_a_small_window_shows_a_multiplication_without_scrolling(browser: Any, tmp_path: Any) -> None:
    size = 1024, 700
    view = FragmentView(fragment_traces.trace())
    context = browser.new_context(offline=True, viewport={"width": size[0], "height": size[1]})
    page = context.new_page()
    page.goto(view.save(tmp_path / "view.html").as_uri())
    page.wait_for_function(
        "Number(document.querySelector('.gl-page').style.getPropertyValue('--gl-zoom')) >= 1"
    )
    page.wait_for_timeout(200)
    box = page.locator(".gl-picture canvas").last.bounding_box()
    assert box["y"] + box["height"] <= size[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    context.close()


@pytest.mark.slow
def test_selection_in_a_notebook_is_sent_to_python(lab: Any) -> None:
    setup = f"import gpulab as gl\ngl.use_device('virtual:A100')\nfrom gpulab import cp\ncode = {TILE!r}"
    cell = (
        "arrays = cp.ones((16, 64), cp.float16), cp.ones((16, 8), cp.float16), cp.zeros(128, cp.float32)\n"
        "run = gl.launch(cp.RawKernel(code, 'k'), 1, 32, arrays)\nview = run.fragments()\nview"
    )
    with lab.notebook("fragments.ipynb", [setup, cell]) as kernel:
        lab.page.locator(".gpulab-fragment-view .gl-panel canvas").first.wait_for(timeout=90_000)
        click(lab.page, 0, 9, 10, 16, 16)
        lab.expect(kernel, "[view.lane, view.element, view.matrix]", [5, 6, 0])
        lab.page.locator(".gpulab-fragment-view select").select_option("value")
        lab.expect(kernel, "view.shown", "value")
        lab.page.locator(".gpulab-fragment-view").get_by_label("Execution").focus()
        lab.page.keyboard.press("End")
        lab.expect(kernel, "view.execution", 3)
        assert "before 48" in kernel.value("[setattr(view, 'matrix', 2), view.describe()][1]")
        lab.wait_for(
            lambda: "before 48" in lab.page.locator(SELECTED).inner_text(),
            what="the sentence to follow Python",
        )
        lab.picture("fragments", ".gpulab-fragment-view")
