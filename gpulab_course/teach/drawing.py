"""Functions that draw boxes, text and arrows for the course's pictures, in colours of gpulab's palette."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from gpulab.views.parts.palette import choose_ink, find_hex

NumberPair = tuple[float, float]
WIDTH_IN = 7.6
"""The width of a picture in inches."""


def make_empty_axes(
    height_in: float, x_limits: NumberPair, y_limits: NumberPair, margin: float = 0.01
) -> tuple[Figure, Axes]:
    """Return a figure of the usual width, with frameless axes that fill it.

    Parameters
    ----------
    height_in
        The height of the figure in inches.
    x_limits
        The coordinates at the left and at the right.
    y_limits
        The coordinates at the top and at the bottom.
    margin
        The space on each side of the axes, as a share of the figure.
    """
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=100)
    axes = figure.add_axes((margin, margin, 1 - 2 * margin, 1 - 2 * margin))
    axes.set_xlim(*x_limits)
    axes.set_ylim(y_limits[1], y_limits[0])
    axes.set_axis_off()
    return figure, axes


def draw_text(axes: Axes, x: float, y: float, text: str, colour: str = "fg", **style: Any) -> None:
    """Draw text that begins at x and is vertically centred at y, unless `style` sets another alignment.

    Parameters
    ----------
    axes
        The axes.
    x, y
        The position.
    text
        The text.
    colour
        Its colour.
    style
        Further properties of the text, such as ``ha="center"`` or ``fontsize``, which is 10 otherwise.
    """
    text_properties: dict[str, Any] = {"ha": "left", "va": "center", "fontsize": 10} | style
    axes.text(x, y, text, color=find_hex(colour), **text_properties)


def draw_box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    colour: str,
    text: str = "",
    *,
    edge_colour: str = "fg",
    text_colour: str | None = None,
    fontsize: float = 10,
    **style: Any,
) -> None:
    """Draw a rectangle at (x, y), with optional text in its middle.

    Parameters
    ----------
    axes
        The axes.
    x, y
        The corner of the rectangle with the smallest coordinates.
    width, height
        The size.
    colour
        The colour of the box.
    text
        The text, if any.
    edge_colour
        The colour of the frame.
    text_colour
        The colour of the text; otherwise the one that fits `colour`.
    fontsize
        The size of the text.
    style
        Further properties of the box, such as ``hatch`` or ``linewidth``, which is 0.8 otherwise.
    """
    rectangle_properties: dict[str, Any] = {"linewidth": 0.8} | style
    axes.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=find_hex(colour),
            edgecolor=find_hex(edge_colour),
            **rectangle_properties,
        )
    )
    if text:
        box_middle = (x + width / 2, y + height / 2)
        draw_text(axes, *box_middle, text, text_colour or choose_ink(colour), ha="center", fontsize=fontsize)


def draw_arrow(axes: Axes, start: NumberPair, end: NumberPair, colour: str = "fg", **style: Any) -> None:
    """Draw an arrow from `start` to `end`, which lies above boxes and lines but below text.

    Parameters
    ----------
    axes
        The axes.
    start, end
        Where it begins, and where its head is.
    colour
        The colour.
    style
        Further properties of the arrow, such as ``linestyle``, ``linewidth`` (otherwise 1.2) or
        ``mutation_scale``, the size of its head (otherwise 12).
    """
    arrow_properties: dict[str, Any] = {"arrowstyle": "-|>", "linewidth": 1.2, "mutation_scale": 12} | style
    arrow = FancyArrowPatch(
        start, end, color=find_hex(colour), shrinkA=0, shrinkB=0, zorder=2.5, **arrow_properties
    )
    axes.add_patch(arrow)
