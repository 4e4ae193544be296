"""Contrast of text in views and forms: at least 4.5 to 1 (WCAG 2.1, criterion 1.4.3)."""

from __future__ import annotations

import re

import pytest

from gpulab.views.parts import palette

LEAST = 4.5
# JupyterLab's own text and page colours, which views take over.
JUPYTER = {
    "light": {"fg": "#212121", "bg": "#ffffff", "rule": "#616161"},
    "dark": {"fg": "#ffffff", "bg": "#212121", "rule": "#bdbdbd"},
}
CODE = [name for name in palette.COLOURS if name.startswith("code-")]
VIEW_PAIRS = [
    ("fg", "bg"),
    ("fg", "panel"),
    ("fg", "highlight"),
    ("muted", "bg"),
    ("muted", "panel"),
    ("muted", "grid"),
    ("muted", "highlight"),
    ("tail-text", "bg"),
    ("good-text", "bg"),
    ("error", "error-bg"),
    ("on-accent", "accent"),
    ("on-accent", "tail-text"),
    ("on-accent", "good-text"),
    ("on-accent-2", "accent-2"),
    ("on-tail", "tail"),
    ("on-good", "good"),
    ("on-warn", "warn"),
    ("on-purple", "purple"),
    *((f"on-{name}", name) for name in palette.KERNEL_COLOURS),
    ("on-muted", "muted"),
    ("on-error", "error"),
    ("fg", "other"),
    ("fg", "range"),
    ("fg", "other-pale"),
    ("error", "panel"),
    *(("on-lane", f"lane-{lane}") for lane in range(32)),
    ("tail-text", "panel"),
    ("accent", "bg"),
    *((f"on-lane-{state}", f"lane-{state}") for state in palette.LANE_STATES),
    *((name, ground) for name in CODE for ground in ("panel", "grid", "highlight")),
]


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_ratio_equals_known_values() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01), "WebAIM's limiting grey"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast(theme: str) -> None:
    own = {name: pair[theme == "dark"] for name, pair in palette.COLOURS.items()}
    # On a page of its own, and in JupyterLab, which provides the colours of text and ground.
    for colours in (own, own | JUPYTER[theme]):
        for text, ground in VIEW_PAIRS:
            assert contrast(colours[text], colours[ground]) >= LEAST, (text, ground)


def test_the_style_sheet_contains_the_palette_of_each_theme() -> None:
    light, *dark = re.findall(r"\{ ([^{}]*--gl-accent:[^{}]*) \}", palette.make_css())
    assert len(dark) == 2, "the page says that it is dark, or the system does"
    for block, index in ((light, 0), *((block, 1) for block in dark)):
        for name, pair in palette.COLOURS.items():
            value = re.search(rf"--gl-{name}: ([^;]*);", block)
            assert value is not None
            assert value[1].endswith((pair[index], f"{pair[index]})", f"{pair[index]}))"))
