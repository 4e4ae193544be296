"""Display of predictions, verdicts and quizzes: as forms in JupyterLab, elsewhere as HTML and text."""

from __future__ import annotations

import html
import re
from typing import Any

from gpulab.views.parts import palette

Bundle = dict[str, object]


def make_bundle(widget: Any | None, text: str, page_html: str) -> Bundle:
    """Return the MIME bundle of a widget. The bundle also contains HTML (`page_html`) and text for viewers
    without widgets.
    """
    bundle: Bundle = {}
    if widget is not None:
        widget_bundle = widget._repr_mimebundle_()
        bundle.update(widget_bundle[0] if isinstance(widget_bundle, tuple) else widget_bundle)
    return bundle | {"text/html": page_html, "text/plain": text}


def render_box(content: str, colour: str = "accent") -> str:
    """Return HTML for a box around `content` with a coloured bar at its left edge."""
    border_style = f"4px solid {palette.find_hex(colour)}"
    return f'<div style="border-left:{border_style};padding:2px 0 2px 10px">{content}</div>'


def render_prose(text: str) -> str:
    """Escape text for HTML, and mark the parts between backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def render_verdict(opening: str, message: str, passed: bool) -> str:
    """Return HTML for a verdict, which shows the result by a sign and a word as well as by colour."""
    check_mark = "✓" if passed else "✗"
    verdict_html = f"<b>{check_mark} {html.escape(opening)}</b> {render_prose(message)}"
    return render_box(verdict_html, "good" if passed else "tail")


def is_in_jupyter() -> bool:
    """Return whether this process is a Jupyter kernel, which can display forms."""
    try:
        import anywidget  # noqa: F401
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
