"""Export of notebooks to HTML with a description of each picture: ``jupyter nbconvert --to gpulab NOTEBOOK``.

The pages of ``--to html`` are the same, but nbconvert's default template ignores the descriptions of PNG
and SVG outputs. It would keep them in outputs of HTML. An HTML image next to the PNG doubles the size of a
notebook, and one in place of the PNG is not shown by pages that remove embedded images from HTML, such as
GitHub.
"""

from __future__ import annotations

import copy
import html
from typing import Any

from nbconvert.exporters import HTMLExporter


class DescribedHTMLExporter(HTMLExporter):
    """An exporter to HTML that writes the descriptions of pictures as their alternative texts."""

    export_from_notebook = "HTML with Descriptions of Pictures"

    def from_notebook_node(  # type: ignore[override]
        self, nb: Any, resources: Any = None, **options: Any
    ) -> tuple[str, dict[str, Any]]:
        """Convert a notebook to an HTML page, and return the page with its resources."""
        described_notebook = copy.deepcopy(nb)
        for cell in described_notebook.cells:
            for output in cell.get("outputs", ()):
                if _find_description(output) and "text/html" not in output["data"]:
                    output["data"]["text/html"] = _render_image(output)
        return super().from_notebook_node(described_notebook, resources, **options)


def _find_description(output: Any) -> str:
    """Return the description of an output's PNG; empty if it has none."""
    return str(output.get("metadata", {}).get("image/png", {}).get("alt", ""))


def _render_image(output: Any) -> str:
    """Return an output's PNG as an HTML element."""
    width = output["metadata"]["image/png"].get("width")
    width_attribute = f' width="{int(width)}"' if width else ""
    return (
        f'<img alt="{html.escape(_find_description(output))}"{width_attribute} '
        f'src="data:image/png;base64,{html.escape(output["data"]["image/png"])}">'
    )
