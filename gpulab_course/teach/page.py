"""Display of predictions, verdicts and quizzes: a form in JupyterLab, elsewhere HTML and text."""

from __future__ import annotations

import html
import re
from typing import Any

from gpulab.views.parts import palette

Bundle = dict[str, object]


def bundle_of(widget: Any | None, text: str, page: str) -> Bundle:
    """A mime bundle of `widget`, with `page` (HTML) and `text` for places that cannot show it."""
    bundle: Bundle = {}
    if widget is not None:
        made = widget._repr_mimebundle_()
        bundle.update(made[0] if isinstance(made, tuple) else made)
    return bundle | {"text/html": page, "text/plain": text}


def boxed(content: str, colour: str = "accent") -> str:
    """HTML set off by a coloured bar at its left; text keeps the page's own colour, light or dark."""
    bar = f"4px solid {palette.light(colour)}"
    return f'<div style="border-left:{bar};padding:2px 0 2px 10px">{content}</div>'


def prose(text: str) -> str:
    """Text as HTML, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def verdict_page(opening: str, message: str, passed: bool) -> str:
    """An exercise's verdict as HTML: a sign and a word, not only a colour."""
    sign = "✓" if passed else "✗"
    content = f"<b>{sign} {html.escape(opening)}</b> {prose(message)}"
    return boxed(content, "good" if passed else "tail")


def in_jupyter() -> bool:
    """Return whether this runs in a Jupyter kernel, whose front end can show a form."""
    try:
        import anywidget  # noqa: F401
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
