"""Static pictures: one palette, one size, one caption; no pyplot, so safe on any thread."""

from __future__ import annotations

import io
import struct
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

WIDTH_PX = 900
DPI = 100
COLOURS = 256
SHARPNESS = 2

# Okabe and Ito's colours, told apart by every common kind of colour vision.
BLUE = "#0072B2"
SKY = "#56B4E9"
GREEN = "#009E73"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
INK = "#1f2328"
MUTED = "#57606a"
RULE = "#d0d7de"
FAINT = "#eaeef2"
# An opaque light card reads on a white page and on a dark one.
PAPER = "#ffffff"

FONT = "DejaVu Sans"
MONO = "DejaVu Sans Mono"

# matplotlib's font and path caches are shared by all figures.
_drawing = threading.Lock()


def figure(height_px: int, title: str, caption: str) -> Figure:
    """An empty picture of the common width with its title above and its provenance below."""
    fig = Figure(figsize=(WIDTH_PX / DPI, height_px / DPI), dpi=DPI, facecolor=PAPER)
    fig.patch.set_edgecolor(RULE)
    fig.patch.set_linewidth(1)
    fig.text(14 / WIDTH_PX, 1 - 12 / height_px, title, size=11.5, weight="bold", color=INK, va="top")
    fig.text(14 / WIDTH_PX, 10 / height_px, caption, size=8, color=MUTED, va="bottom")
    return fig


def wrapped(text: str) -> str:
    """A caption in lines that fit the picture."""
    return "\n".join(textwrap.wrap(text, 140))


def axes(fig: Figure, left: float, top: float, width: float, height: float, **options: Any) -> Axes:
    """Axes placed in nominal pixels from the top left corner, with quiet spines."""
    high = fig.get_figheight() * DPI
    ax = fig.add_axes(
        (left / WIDTH_PX, 1 - (top + height) / high, width / WIDTH_PX, height / high), **options
    )
    ax.set_facecolor("none")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.tick_params(colors=MUTED, labelsize=8, length=3, labelcolor=INK)
    return ax


def bare(ax: Axes) -> Axes:
    """`ax` without ticks and spines."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


def png(draw: Callable[[], Figure]) -> bytes:
    """Draw and render, one picture at a time."""
    with _drawing:
        fig = draw()
        canvas = FigureCanvasAgg(fig)
        fig.set_dpi(DPI * SHARPNESS)
        canvas.draw()  # type: ignore[no-untyped-call]
        pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
        picture = Image.fromarray(pixels).convert("RGB")
    out = io.BytesIO()
    # A palette keeps notebooks with saved pictures a third of the size.
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, format="PNG")
    return out.getvalue()


def nominal_size(picture: bytes) -> tuple[int, int]:
    """Width and height in page pixels, read off the PNG's header (bytes 16 to 24)."""
    width, height = struct.unpack(">II", picture[16:24])
    return width // SHARPNESS, height // SHARPNESS
