"""A notebook opened again without its kernel: a saved view still steps, a stripped one is a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter

from tools.notebooks import clean

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL = """
from tests.views import synthetic
from gpulab.views import WarpStepper
stepper = WarpStepper(synthetic.warp_trace(n=24))
stepper
"""
VIEW = ".jp-Cell .gpulab-view"


def test_a_saved_view_steps_without_a_kernel(lab: Any) -> None:
    with lab.notebook("kept.ipynb", [CELL]) as kernel:
        lab.page.wait_for_selector(f"{VIEW} .gl-sentence:has-text('Step 1')", timeout=60_000)
        expected = kernel.value("stepper.steps.sentence(4, by_line=True)")
        lab.save("kept.ipynb", until="metadata.widgets")
    lab.page.goto(f"{lab.url}/lab/tree/kept.ipynb?reset")
    lab.page.wait_for_selector(f"{VIEW} .gl-sentence:has-text('Step 1')", timeout=60_000)
    lab.page.locator(f"{VIEW} .gl-listing").press("PageDown")
    assert lab.page.locator(f"{VIEW} .gl-sentence").text_content() == expected
    assert lab.page.locator(".jp-RenderedImage img").count() == 1
    assert not lab.page.locator(".jp-RenderedImage img").is_visible(), "beside a live view"
    lab.picture("without_kernel", VIEW)


def test_an_export_shows_the_picture_offline(lab: Any, browser: Any, tmp_path: Path) -> None:
    """nbconvert writes a widget, which needs the network, and then a picture, which does not."""
    with lab.notebook("exported.ipynb", [CELL]):
        lab.page.wait_for_selector(f"{VIEW} .gl-sentence:has-text('Step 1')", timeout=60_000)
        lab.save("exported.ipynb", until="metadata.widgets")
    text, _ = HTMLExporter(embed_images=True).from_filename(str(lab.folder / "exported.ipynb"))
    (tmp_path / "exported.html").write_text(text, encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "exported.html").as_uri(), wait_until="domcontentloaded")
    box = page.locator(".jp-OutputArea img").bounding_box()
    context.close()
    assert box["width"] > 600
    assert box["height"] > 200


def test_a_view_without_widget_state_is_a_picture(lab: Any) -> None:
    """The course's notebooks are stored without widget state and without references to live widgets."""
    with lab.notebook("stripped.ipynb", [CELL]):
        lab.page.wait_for_selector(f"{VIEW} .gl-sentence:has-text('Step 1')", timeout=60_000)
        lab.save("stripped.ipynb", until="metadata.widgets")
    path = lab.folder / "stripped.ipynb"
    notebook = clean(nbformat.read(path, as_version=4))
    (output,) = notebook.cells[0].outputs
    assert set(output.data) == {"text/plain", "image/png"}
    nbformat.write(notebook, path)
    lab.page.goto(f"{lab.url}/lab/tree/stripped.ipynb?reset")
    picture = lab.page.locator(".jp-RenderedImage img")
    picture.wait_for(timeout=60_000)
    box = picture.bounding_box()
    assert 600 < box["width"] <= 900
    assert box["height"] > 200
    lab.picture("stripped", ".jp-RenderedImage")
