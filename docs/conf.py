"""Settings of the site, which `make docs` builds with Sphinx from the top level of the repository."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent

project = "gpulab"
copyright = "the gpulab developers"
version = tomllib.loads((ROOT / "gpulab" / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "version"
]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "notebooks/*.ipynb",
    "*.md",
    "gpulab/README.md",
    "gpulab_course/README.md",
    "virtualgpu/**.md",
    "tools/**.md",
]
# Pages that only other pages link to.
suppress_warnings = ["toc.not_included"]
exclude_patterns = ["**/tests/**", "**/node_modules/**"]

# The notebooks are shown with their stored outputs. Their links use JupyterLab's anchors.
nb_execution_mode = "off"
myst_heading_anchors = 4
myst_heading_slug_func = "tools.site.heading_anchor"
html_theme = "furo"
html_title = "gpulab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
autodoc_typehints = "none"
napoleon_google_docstring = False


def _describe_pictures(app: Sphinx, document: nodes.document) -> None:
    """Give the pictures of a notebook the alternative texts that are stored with them."""
    path = ROOT / f"{app.env.docname}.ipynb"
    if not path.exists():
        return
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    texts = [
        output["metadata"].get("image/png", {}).get("alt", "")
        for output in outputs
        if "image/png" in output.get("data", ()) and "text/html" not in output["data"]
    ]
    pictures = [
        image
        for block in document.findall(nodes.container)
        if "cell_output" in block["classes"]
        for image in block.findall(nodes.image)
    ]
    for image, text in zip(pictures, texts, strict=True):
        image["alt"] = text


def _add_gallery(app: Sphinx, error: Exception | None) -> None:
    """Copy the gallery, whose pages are complete, and lead from the top of the site to the first page."""
    if error is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir)
    shutil.copytree(ROOT / "gallery", folder / "gallery", dirs_exist_ok=True)
    shutil.copytree(ROOT / "notebooks" / "images", folder / "notebooks" / "images", dirs_exist_ok=True)
    (folder / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>gpulab</title>'
        f'<meta http-equiv="refresh" content="0; url={root_doc}.html"><a href="{root_doc}.html">gpulab</a>\n',
        encoding="utf-8",
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the functions above; Sphinx calls this."""
    app.connect("doctree-read", _describe_pictures)
    app.connect("build-finished", _add_gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
