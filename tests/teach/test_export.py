"""HTML export: each picture has its alternative text."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup

from gpulab_course.export import DescribedHTMLExporter

ROOT = Path(__file__).resolve().parents[2]


def test_exported_pictures_have_an_alternative_text(caplog: pytest.LogCaptureFixture) -> None:
    (path,) = (ROOT / "notebooks").glob("00*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    text, _ = DescribedHTMLExporter().from_notebook_node(notebook)
    images = BeautifulSoup(text, "html.parser").select("img")
    descriptions = [output.metadata["image/png"]["alt"] for output in pictures]
    assert [image["alt"] for image in images] == descriptions
    sources = [image["src"].removeprefix("data:image/png;base64,") for image in images]
    assert sources == ["".join(output.data["image/png"]) for output in pictures]
    assert "lternative text" not in caplog.text
    assert all("text/html" not in output.data for output in pictures), "the notebook is unchanged"


def test_an_alternative_text_is_escaped() -> None:
    data, metadata = {"image/png": "AAAA"}, {"image/png": {"alt": '5 < 6 & "7"', "width": 900}}
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    cell = nbformat.v4.new_code_cell("", outputs=[output])
    text, _ = DescribedHTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    (image,) = BeautifulSoup(text, "html.parser").select("img")
    assert (image["alt"], image["width"]) == ('5 < 6 & "7"', "900")
