"""A notebook opened again without its kernel: a saved view still steps, a stripped one is a picture."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
    lab.picture("without_kernel", VIEW)


def test_a_stripped_view_is_a_picture(lab: Any) -> None:
    """As the course's notebooks are stored: no widget state, no reference to a live widget."""
    with lab.notebook("stripped.ipynb", [CELL]):
        lab.page.wait_for_selector(f"{VIEW} .gl-sentence:has-text('Step 1')", timeout=60_000)
        lab.save("stripped.ipynb", until="metadata.widgets")
    path = lab.folder / "stripped.ipynb"
    notebook = json.loads(path.read_text())
    del notebook["metadata"]["widgets"]
    del notebook["cells"][0]["outputs"][0]["data"]["application/vnd.jupyter.widget-view+json"]
    path.write_text(json.dumps(notebook))
    lab.page.goto(f"{lab.url}/lab/tree/stripped.ipynb?reset")
    picture = lab.page.locator(".jp-RenderedImage img")
    picture.wait_for(timeout=60_000)
    box = picture.bounding_box()
    assert 600 < box["width"] <= 900
    assert box["height"] > 200
    lab.picture("stripped", ".jp-RenderedImage")
