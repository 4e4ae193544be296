"""Text of views and forms against what lies behind it: at least 4.5 to 1 (WCAG 2.1, criterion 1.4.3)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from gpulab.views.parts import palette

LEAST = 4.5
VIEWS = files("gpulab.views") / "static" / "base.css"
# JupyterLab's own text and page colours, where a style sheet takes them over.
JUPYTER = {
    "light": {"fg": "#212121", "bg": "#ffffff", "rule": "#616161"},
    "dark": {"fg": "#ffffff", "bg": "#212121", "rule": "#bdbdbd"},
}
VIEW_PAIRS = [
    ("fg", "bg"), ("fg", "panel"), ("fg", "highlight"), ("muted", "bg"), ("muted", "panel"),
    ("muted", "grid"), ("muted", "highlight"), ("tail-text", "bg"), ("good-text", "bg"),
    ("error", "error-bg"), ("on-accent", "accent"), ("on-accent", "tail-text"),
]  # fmt: skip


def colours(css: str, theme: str) -> dict[str, str]:
    """The colour variables of a theme: the first block is light, the second changes it to dark."""
    blocks = re.findall(r"\{([^{}]*--gl-accent:[^{}]*)\}", css)
    found = dict(JUPYTER[theme])
    for block in blocks[: 1 if theme == "light" else 2]:
        found |= dict(re.findall(r"--gl-([\w-]+): (#[0-9a-f]{6})", block))
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_is_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01), "WebAIM's limiting grey"


def from_palette(theme: str) -> dict[str, str]:
    """What forms and new views use; a page that has colours of its own gives text and ground."""
    return {name: pair[theme == "dark"] for name, pair in palette.COLOURS.items()} | JUPYTER[theme]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "behind"), VIEW_PAIRS)
def test_text_stands_out(text: str, behind: str, theme: str) -> None:
    for known in (colours(VIEWS.read_text(encoding="utf-8"), theme), from_palette(theme)):
        assert contrast(known[text], known[behind]) >= LEAST
