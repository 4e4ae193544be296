"""The static picture: boxes laid out on light paper and painted with Pillow, `WIDTH_PX` wide."""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from PIL import Image

from gpulab.views.parts import palette
from gpulab.views.parts.boxes import (
    Bars,
    Box,
    Cells,
    Column,
    Fold,
    Legend,
    Matrix,
    Plot,
    Row,
    Switch,
    Terms,
    Words,
    column,
    words,
)
from gpulab.views.parts.pen import SHARPNESS, Pen, shortened, text_width, wrapped
from gpulab.views.parts.plot_picture import paint_plot

WIDTH_PX = 900
MARGIN_PX = 14
# Letters in these colours on these grounds keep their smooth edges.
_LETTERS = ("fg", "muted", "tail-text", "on-accent", "error")
_GROUNDS = ("bg", "grid", "other", "accent", "accent-2")
_STYLES = {
    # style -> size, weight, colour
    "plain": (11.5, "normal", "fg"),
    "heading": (12, "bold", "fg"),
    "note": (11, "normal", "muted"),
    "strong": (11.5, "bold", "fg"),
    "mono": (11, "mono", "fg"),
    "title": (15.5, "bold", "fg"),
}

Painter = Callable[[Pen, float, float], None]
# Fonts keep state while they measure and draw.
_drawing = threading.Lock()


def lay(box: Box, width: float) -> tuple[float, Painter]:
    """Return the height of `box` at a width, and a function that paints it at a position."""
    if box.only == "page":
        return 0.0, lambda pen, x, y: None
    return _LAYS[type(box)](box, width)


def _stacked(boxes: list[Box], width: float, gap: float) -> tuple[float, Painter]:
    laid = [lay(box, width) for box in boxes]
    laid = [each for each in laid if each[0]]
    height = sum(high for high, _ in laid) + gap * max(0, len(laid) - 1)

    def paint(pen: Pen, x: float, y: float) -> None:
        for high, painter in laid:
            painter(pen, x, y)
            y += high + gap

    return height, paint


def _row(box: Row, width: float) -> tuple[float, Painter]:
    """Lay out boxes like CSS flexible boxes: wrap by their least widths, and share the remaining width."""
    gap = box.gap
    least = box.least
    lines: list[list[int]] = [[]]
    for at in range(len(box.boxes)):
        taken = sum(least[i] + gap for i in lines[-1])
        if lines[-1] and taken + least[at] > width:
            lines.append([])
        lines[-1].append(at)
    parts: list[tuple[float, float, Painter]] = []
    top = 0.0
    for line in reversed(lines) if box.above else lines:
        spare = width - sum(least[i] for i in line) - gap * (len(line) - 1)
        total = sum(box.weights[i] for i in line)
        left = 0.0
        tallest = 0.0
        for i in line:
            own = least[i] + spare * box.weights[i] / total
            high, painter = lay(box.boxes[i], own)
            parts.append((left, top, painter))
            left = left + own + gap
            tallest = max(tallest, high)
        top += tallest + 8

    def paint(pen: Pen, x: float, y: float) -> None:
        for left, down, painter in parts:
            painter(pen, x + left, y + down)

    return top - 8, paint


def _words(box: Words, width: float) -> tuple[float, Painter]:
    size, weight, colour = _STYLES[box.style]
    lines = wrapped(box.text, width, size, weight)
    high = round(size * 1.42, 1)

    def paint(pen: Pen, x: float, y: float) -> None:
        for at, text in enumerate(lines):
            pen.text(x, y + (at + 0.5) * high, text, size=size, weight=weight, colour=colour)

    return high * len(lines), paint


def _legend(box: Legend, width: float) -> tuple[float, Painter]:
    places: list[tuple[float, float, str, str]] = []
    x = 0.0
    y = 0.0
    for colour, text in box.entries:
        wide = 16 + text_width(text, 11)
        if x and x + wide > width:
            x = 0.0
            y = y + 17
        places.append((x, y, colour, text))
        x += wide + 16

    def paint(pen: Pen, left: float, top: float) -> None:
        for x, y, colour, text in places:
            pen.rect(left + x, top + y + 3, left + x + 11, top + y + 14, colour)
            pen.text(left + x + 16, top + y + 8.5, text)

    return (y + 17 if places else 0.0), paint


def _numbers(box: Terms, width: float) -> tuple[float, Painter]:
    across = max(1, int((width + 16) // (box.least + 16)))
    wide = (width + 16) / across - 16
    rows = -(-len(box.rows) // across)

    def paint(pen: Pen, x: float, y: float) -> None:
        for at, (term, value, detail) in enumerate(box.rows):
            left = x + (at % across) * (wide + 16)
            top = y + (at // across) * 36
            pen.text(left, top + 7, shortened(term, wide, 11), size=11, colour="muted")
            pen.text(left, top + 22, value, size=14, weight="bold")
            rest = wide - text_width(value, 14, "bold") - 7
            pen.text(left + wide - rest, top + 23, shortened(detail, rest, 11), size=11, colour="muted")

    return 36.0 * rows, paint


def _bars(box: Bars, width: float) -> tuple[float, Painter]:
    rows = box.rows
    label = box.label * width
    values = [f"{each['value']} {each.get('mark', '')}".strip() for each in rows]
    value_wide = max((text_width(value, 11, "bold") for value in values), default=0.0)
    track = max(10.0, width - label - value_wide - 12)

    def paint(pen: Pen, x: float, y: float) -> None:
        for at, each in enumerate(rows):
            middle = y + 16 * at + 8
            strong = bool(each.get("strong"))
            weight = "bold" if strong else "normal"
            pen.text(x, middle, shortened(each["label"], label - 4, 11, weight), size=11, weight=weight)
            left = x + label
            if each["share"] is not None:
                pen.rect(left, middle - 4.5, left + track, middle + 4.5, "grid")
                full = track * min(1.0, max(0.0, each["share"]))
                pen.rect(
                    left,
                    middle - 4.5,
                    left + full,
                    middle + 4.5,
                    each.get("colour") or ("accent" if strong else "other"),
                )
            mark = f" {each['mark']}" if each.get("mark") else ""
            pen.text(x + width, middle, mark, size=11, weight=weight, colour="tail-text", anchor="end")
            end = x + width - text_width(mark, 11, weight)
            pen.text(end, middle, each["value"], size=11, weight=weight, anchor="end")

    return 16.0 * len(rows), paint


def _table(box: Cells, width: float) -> tuple[float, Painter]:
    """Lay out a table: the last cell is on the right, the others share the rest and break at words."""
    headings = [box.headings] if box.headings else []
    rows = headings + box.rows
    size = 11
    needed = [max(text_width(cell, size) for cell in cells) + 10 for cells in zip(*rows, strict=True)]
    # If there is too little space, only the widest columns become narrower.
    most = max(needed)
    while sum(min(wide, most) for wide in needed) > width and most > 40:
        most -= 4
    widths = [min(wide, most) for wide in needed]
    spare = max(0.0, width - sum(widths)) / max(1, len(widths) - 1)
    broken = [[wrapped(cell, wide - 8, size) for cell, wide in zip(r, widths, strict=True)] for r in rows]
    highs = [2 + 14.0 * max(map(len, cells)) for cells in broken]
    top = 18.0 if box.title else 0.0

    def paint(pen: Pen, x: float, y: float) -> None:
        if box.title:
            pen.text(x, y + 9, box.title, size=11, weight="bold")
        below = y + top
        for at, (cells, high) in enumerate(zip(broken, highs, strict=True)):
            left = x
            for place, (lines, wide) in enumerate(zip(cells, widths, strict=True)):
                last = place == len(widths) - 1
                colour = "fg" if place and at >= len(headings) else "muted"
                edge, anchor = (x + width, "end") if last else (left, "start")
                for down, line in enumerate(lines):
                    pen.text(edge, below + 8 + 14 * down, line, size=size, colour=colour, anchor=anchor)
                left += wide + spare
            below += high
            pen.rect(x, below, x + width, below + 0.5, "grid")

    return top + sum(highs) + 2, paint


def _matrix(box: Matrix, width: float) -> tuple[float, Painter]:
    """Lay out a matrix: labels, then columns as wide as their texts need; headings break at words."""
    rows = box.rows
    size = 11
    texts = list(zip(*([text for text, _ in each["cells"]] for each in rows), strict=True))
    label = max(text_width(each["label"], size, "bold") for each in rows) + 10
    needed = [max(text_width(text, size, "bold") for text in column) for column in texts]
    spare = max(0.0, (width - label - sum(needed)) / len(needed))
    widths = [each + spare for each in needed]
    heads = [wrapped(text, wide - 8, 11) for text, wide in zip(box.headings, widths, strict=True)]
    top = 13.0 * max(map(len, heads)) + 6

    def paint(pen: Pen, x: float, y: float) -> None:
        left = x + label
        for lines, wide in zip(heads, widths, strict=True):
            for at, line in enumerate(lines):
                pen.text(left, y + top - 6 - 13 * (len(lines) - at - 0.5), line, size=11, colour="muted")
            left += wide
        for at, each in enumerate(rows):
            weight = "bold" if each["strong"] else "normal"
            base = y + top + 21 * at
            left = x + label
            pen.text(x, base + 8, each["label"], size=size, weight=weight)
            for (text, share), wide in zip(each["cells"], widths, strict=True):
                pen.text(left, base + 8, text, size=size, weight=weight)
                if share is not None:
                    pen.rect(left, base + 15, left + share * (wide - 8), base + 18, "other")
                left += wide

    return top + 21.0 * len(rows), paint


_LAYS: dict[type[Box], Callable[[Any, float], tuple[float, Painter]]] = {
    Column: lambda box, width: _stacked(box.boxes, width, box.gap),
    Row: _row,
    Words: _words,
    Legend: _legend,
    Terms: _numbers,
    Bars: _bars,
    Cells: _table,
    Matrix: _matrix,
    Fold: lambda box, width: _stacked([words(box.summary, "heading"), box.inner], width, 2),
    Switch: lambda box, width: lay(box.cases[box.chosen], width),
    Plot: lambda box, width: (box.height, lambda pen, x, y: paint_plot(pen, box, x, y, width)),
}


def png(scene: Box, title: str, caption: str) -> bytes:
    """The view's picture: title, scene, provenance."""
    with _drawing:
        inside = WIDTH_PX - 2 * MARGIN_PX
        whole = column(words(title, "title"), scene, words(caption, "note"), gap=8)
        height, paint = lay(whole, inside)
        pen = Pen(WIDTH_PX, round(height) + 2 * 12)
        paint(pen, MARGIN_PX, 12)
        wide, high = pen.image.size
        pen.draw.rectangle((0, 0, wide - 1, high - 1), outline=palette.light("rule"), width=SHARPNESS)
        return encoded(pen.image)


@cache
def _inks() -> Any:
    """Return an image with the picture's palette: every colour, and the steps for smooth letters."""
    colours = [*map(_rgb, palette.COLOURS)]
    for text, ground in ((_rgb(text), _rgb(ground)) for text in _LETTERS for ground in _GROUNDS):
        for step in range(1, 9):
            mixed = tuple(round(a + (b - a) * step / 9) for a, b in zip(text, ground, strict=True))
            # Pillow searches colours in boxes, and confuses colours that are too close.
            if all(max(abs(a - b) for a, b in zip(mixed, other, strict=True)) > 14 for other in colours):
                colours.append(mixed)
    inks = Image.new("P", (1, 1))
    inks.putpalette([part for colour in colours[:256] for part in colour])
    return inks


def _rgb(name: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(palette.light(name)[1:]))


def encoded(image: Image.Image) -> bytes:
    """Encode as PNG with a palette, which is a third of the size and takes a quarter of the time."""
    out = io.BytesIO()
    small = image.quantize(palette=_inks(), dither=Image.Dither.NONE)
    small.save(out, format="PNG", compress_level=3)
    return out.getvalue()


def nominal_size(picture: bytes) -> tuple[int, int]:
    """Return width and height in page pixels, from the PNG's header (bytes 16 to 24)."""
    width, height = struct.unpack(">II", picture[16:24])
    return width // SHARPNESS, height // SHARPNESS
