"""What the site (`docs/conf.py`) needs beside Sphinx's settings."""

from __future__ import annotations


def heading_anchor(heading: str) -> str:
    """Return the anchor of a heading as JupyterLab makes it, because the notebooks link to those.

    >>> heading_anchor("CUDA graph")
    'CUDA-graph'
    """
    return heading.replace(" ", "-")
