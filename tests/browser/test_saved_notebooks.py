"""Notebooks that are opened again: after two partial runs, and after a restart of the kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEW_CELL = """
from tests.views import synthetic
from gpulab.views import WarpStepper
WarpStepper(synthetic.warp_trace(n=24))
"""
FORM_CELL = """
import gpulab as gl
gl.predict("00-small")
"""
VIEW = ".jp-Cell .gpulab-view"
ERROR = "Error displaying widget"


def saved_models(lab: Any, name: str) -> int:
    notebook = json.loads((lab.folder / name).read_text())
    state = notebook["metadata"].get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {})
    return len(state.get("state", {}))


def test_outputs_of_an_earlier_kernel_are_pictures_and_text(lab: Any) -> None:
    name = "days.ipynb"
    with lab.notebook(name, [VIEW_CELL, FORM_CELL, "2 + 2"]):
        lab.page.wait_for_selector(f"{VIEW} .gl-sentence:has-text('Step 1')", timeout=60_000)
        lab.page.wait_for_selector(".jp-Cell .gpulab-form", timeout=60_000)
        lab.save(name, until="metadata.widgets")
    first_day = saved_models(lab, name)
    assert first_day > 0
    # On the second day only the last cell runs, in a new kernel, and a widget of its own is saved.
    lab.page.goto(f"{lab.url}/lab/tree/{name}?reset")
    lab.page.wait_for_selector(f"{VIEW} .gl-sentence", timeout=60_000)
    status = "window.jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status"
    lab.page.wait_for_function(f"{status} === 'idle'")
    lab.page.locator(".jp-Cell .jp-InputArea-editor").last.click()
    lab.page.keyboard.press("Control+A")
    lab.page.keyboard.type("import ipywidgets; ipywidgets.IntSlider()")
    lab.page.keyboard.press("Control+Enter")
    lab.page.wait_for_selector(".jp-Cell .widget-slider", timeout=60_000)
    lab.command("docmanager:save")
    lab.wait_for(lambda: 0 < saved_models(lab, name) < first_day, what="the widgets of the second day")
    for kernel in lab._get("/api/kernels"):
        lab._get(f"/api/kernels/{kernel['id']}", method="DELETE")
    # On the third day JupyterLab has no state of the first cell's view.
    lab.page.goto(f"{lab.url}/lab/tree/{name}?reset")
    lab.page.wait_for_selector(".jp-Cell .widget-slider", timeout=60_000)
    lab.page.locator(".jp-Cell").nth(1).get_by_text("Predict:").wait_for(timeout=20_000)
    picture = lab.page.locator(".jp-RenderedImage img")
    assert picture.is_visible()
    assert "Warp 0 of block" in str(picture.get_attribute("alt"))
    assert lab.page.get_by_text(ERROR).count() == 0
    assert not lab.page.locator(".gpulab-cuda-missing").is_visible(), "the sentence above the picture"
    lab.picture("third_day")


def test_a_name_error_explains_how_to_run_the_cells_above(lab: Any) -> None:
    cells = ["from math import (pi, tau)", "first, second = 1, 2", "del tau, second\nraise SystemExit"]
    with lab.notebook("restarted.ipynb", [*cells, "tau + 1", "second + 1", "third + 1", "third = 3"]):
        lab.page.locator(".jp-Cell").last.locator(".jp-InputPrompt:has-text('[')").wait_for(timeout=60_000)
        for position in (3, 4, 5):
            lab.page.locator(".jp-Cell .jp-InputArea-editor").nth(position).click()
            lab.page.keyboard.press("Control+Enter")
            lab.page.locator(".jp-Cell").nth(position).get_by_text("NameError:").first.wait_for(
                timeout=20_000
            )
        advice = [
            lab.page.locator(".jp-Cell").nth(position).get_by_text("Run All Above Selected Cell").count()
            for position in (3, 4, 5)
        ]
    assert advice == [1, 1, 0], "the last name is defined below, not above"


def test_a_link_to_the_glossary_shows_the_definition(lab: Any) -> None:
    glossary = nbformat.read(
        Path(__file__).resolve().parents[2] / "notebooks" / "glossary.ipynb", as_version=4
    )
    (lab.folder / "course").mkdir()
    nbformat.write(glossary, lab.folder / "course" / "glossary.ipynb")
    text = "A [barrier](glossary.ipynb#barrier) in [shared memory](glossary.ipynb#shared-memory)."
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    notebook.metadata["kernelspec"] = glossary.metadata["kernelspec"]
    nbformat.write(notebook, lab.folder / "course" / "terms.ipynb")
    lab.page.goto(f"{lab.url}/lab/tree/course/terms.ipynb?reset")
    definitions = {cell.source.split("\n")[0]: cell.source.split("\n")[2] for cell in glossary.cells}
    for term in ("barrier", "shared memory"):
        link = lab.page.get_by_role("link", name=term, exact=True)
        link.wait_for(timeout=60_000)
        lab.wait_for(lambda link=link: link.hover() or link.get_attribute("title"), what="a definition")
        assert link.get_attribute("title")[:30] == definitions[f"## {term}"][:30]
