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
    Column,
    FoldBox,
    Legend,
    MatrixBox,
    Plot,
    RemarksBox,
    Row,
    SwitchBox,
    TableBox,
    TermsBox,
    WordsBox,
    column,
    words,
)
from gpulab.views.parts.pen import SHARPNESS, Pen, shorten, text_width, wrap
from gpulab.views.parts.plot_picture import paint_plot

WIDTH_PX = 900
MARGIN_PX = 14
# Text in these colours on these backgrounds keeps its smooth edges.
_TEXT_COLOURS = ("fg", "muted", "tail-text", "on-accent", "error")
_BACKGROUND_COLOURS = ("bg", "grid", "other", "accent", "accent-2")
_TEXT_STYLES = {
    # style -> size, weight, colour
    "plain": (11.5, "normal", "fg"),
    "heading": (12, "bold", "fg"),
    "note": (11, "normal", "muted"),
    "strong": (11.5, "bold", "fg"),
    "mono": (11, "mono", "fg"),
    "title": (15.5, "bold", "fg"),
}

BoxPainter = Callable[[Pen, float, float], None]
# Lock for drawing, because fonts keep state while they measure and draw.
_drawing_lock = threading.Lock()


def lay_out(box: Box, width: float) -> tuple[float, BoxPainter]:
    """Compute the layout of a box. Return its height at the given width, and a function that paints it at a
    position.
    """
    if box.only == "page":
        return 0.0, lambda pen, x, y: None
    return _LAYOUTS[type(box)](box, width)


def _stack_boxes(boxes: list[Box], width: float, gap: float) -> tuple[float, BoxPainter]:
    layouts = [lay_out(box, width) for box in boxes]
    layouts = [layout for layout in layouts if layout[0]]
    height = sum(box_height for box_height, _ in layouts) + gap * max(0, len(layouts) - 1)

    def paint(pen: Pen, x: float, y: float) -> None:
        for box_height, painter in layouts:
            painter(pen, x, y)
            y += box_height + gap

    return height, paint


def _lay_out_row(box: Row, width: float) -> tuple[float, BoxPainter]:
    """Lay out boxes like CSS flexible boxes: wrap by their minimum widths, and share the remaining width."""
    gap = box.gap
    min_widths = box.least
    box_lines: list[list[int]] = [[]]
    for index in range(len(box.boxes)):
        filled_px = sum(min_widths[index] + gap for index in box_lines[-1])
        if box_lines[-1] and filled_px + min_widths[index] > width:
            box_lines.append([])
        box_lines[-1].append(index)
    placed_painters: list[tuple[float, float, BoxPainter]] = []
    top_px = 0.0
    for line in reversed(box_lines) if box.above else box_lines:
        spare_px = width - sum(min_widths[index] for index in line) - gap * (len(line) - 1)
        weight_sum = sum(box.weights[index] for index in line)
        left_px = 0.0
        line_height = 0.0
        for index in line:
            box_width = min_widths[index] + spare_px * box.weights[index] / weight_sum
            box_height, painter = lay_out(box.boxes[index], box_width)
            placed_painters.append((left_px, top_px, painter))
            left_px = left_px + box_width + gap
            line_height = max(line_height, box_height)
        top_px += line_height + 8

    def paint(pen: Pen, x: float, y: float) -> None:
        for offset_x, offset_y, painter in placed_painters:
            painter(pen, x + offset_x, y + offset_y)

    return top_px - 8, paint


def _lay_out_words(box: WordsBox, width: float) -> tuple[float, BoxPainter]:
    font_size_px, font_weight, colour = _TEXT_STYLES[box.style]
    lines = wrap(box.text, width, font_size_px, font_weight)
    line_height = round(font_size_px * 1.42, 1)

    def paint(pen: Pen, x: float, y: float) -> None:
        for line_index, text in enumerate(lines):
            pen.text(
                x,
                y + (line_index + 0.5) * line_height,
                text,
                font_size=font_size_px,
                font_weight=font_weight,
                colour=colour,
            )

    return line_height * len(lines), paint


def _lay_out_legend(box: Legend, width: float) -> tuple[float, BoxPainter]:
    placed_entries: list[tuple[float, float, str, str, bool]] = []
    x = 0.0
    y = 0.0
    for colour, text, *style in box.entries:
        entry_width = 16 + text_width(text, 11)
        if x and x + entry_width > width:
            x = 0.0
            y = y + 17
        placed_entries.append((x, y, colour, text, bool(style)))
        x += entry_width + 16

    def paint(pen: Pen, left: float, top: float) -> None:
        for x, y, colour, text, is_outline in placed_entries:
            box_edges = (left + x, top + y + 3, left + x + 11, top + y + 14)
            pen.outline(*box_edges, colour) if is_outline else pen.rect(*box_edges, colour)
            pen.text(left + x + 16, top + y + 8.5, text)

    return (y + 17 if placed_entries else 0.0), paint


def _lay_out_numbers(box: TermsBox, width: float) -> tuple[float, BoxPainter]:
    column_count = max(1, int((width + 16) // (box.least + 16)))
    column_width = (width + 16) / column_count - 16
    row_count = -(-len(box.rows) // column_count)

    def paint(pen: Pen, x: float, y: float) -> None:
        for index, (term, value, detail) in enumerate(box.rows):
            left_px = x + (index % column_count) * (column_width + 16)
            top_px = y + (index // column_count) * 36
            pen.text(left_px, top_px + 7, shorten(term, column_width, 11), font_size=11, colour="muted")
            pen.text(left_px, top_px + 22, value, font_size=14, font_weight="bold")
            detail_width = column_width - text_width(value, 14, "bold") - 7
            if detail:
                short_detail = shorten(detail, detail_width, 11)
                pen.text(
                    left_px + column_width - detail_width,
                    top_px + 23,
                    short_detail,
                    font_size=11,
                    colour="muted",
                )

    return 36.0 * row_count, paint


def _lay_out_bars(box: Bars, width: float) -> tuple[float, BoxPainter]:
    rows = box.rows
    label_width = box.label * width
    value_texts = [f"{bar['value']} {bar.get('mark', '')}".strip() for bar in rows]
    value_width = max((text_width(value_text, 11, "bold") for value_text in value_texts), default=0.0)
    track_width = max(10.0, width - label_width - value_width - 12)

    def paint(pen: Pen, x: float, y: float) -> None:
        for index, bar in enumerate(rows):
            middle_y = y + 16 * index + 8
            is_strong = bool(bar.get("strong"))
            weight = "bold" if is_strong else "normal"
            pen.text(
                x,
                middle_y,
                shorten(bar["label"], label_width - 4, 11, weight),
                font_size=11,
                font_weight=weight,
            )
            left_px = x + label_width
            if bar["share"] is not None:
                pen.rect(left_px, middle_y - 4.5, left_px + track_width, middle_y + 4.5, "grid")
                filled_width = track_width * min(1.0, max(0.0, bar["share"]))
                pen.rect(
                    left_px,
                    middle_y - 4.5,
                    left_px + filled_width,
                    middle_y + 4.5,
                    bar.get("colour") or ("accent" if is_strong else "other"),
                )
            mark_text = f" {bar['mark']}" if bar.get("mark") else ""
            pen.text(
                x + width,
                middle_y,
                mark_text,
                font_size=11,
                font_weight=weight,
                colour="tail-text",
                anchor="end",
            )
            end_x = x + width - text_width(mark_text, 11, weight)
            pen.text(end_x, middle_y, bar["value"], font_size=11, font_weight=weight, anchor="end")

    return 16.0 * len(rows), paint


def _lay_out_table(box: TableBox, width: float) -> tuple[float, BoxPainter]:
    """Lay out a table: the last column is on the right; the others share the remaining width."""
    headings = [box.headings] if box.headings else []
    rows = headings + box.rows
    font_size_px = 11
    text_widths = [
        max(text_width(cell, font_size_px) for cell in row_cells) + 10
        for row_cells in zip(*rows, strict=True)
    ]
    # If there is too little space, only the widest columns become narrower.
    max_width = max(text_widths)
    while sum(min(column_width, max_width) for column_width in text_widths) > width and max_width > 40:
        max_width -= 4
    column_widths = [min(column_width, max_width) for column_width in text_widths]
    spare_px = max(0.0, width - sum(column_widths)) / max(1, len(column_widths) - 1)
    cell_lines = [
        [
            wrap(cell, column_width - 8, font_size_px)
            for cell, column_width in zip(row, column_widths, strict=True)
        ]
        for row in rows
    ]
    row_heights = [2 + 14.0 * max(map(len, row_cells)) for row_cells in cell_lines]
    title_px = 18.0 if box.title else 0.0

    def paint(pen: Pen, x: float, y: float) -> None:
        if box.title:
            pen.text(x, y + 9, box.title, font_size=11, font_weight="bold")
        row_top = y + title_px
        for row_index, (row_cells, row_height) in enumerate(zip(cell_lines, row_heights, strict=True)):
            cell_x = x
            for column_index, (lines, column_width) in enumerate(zip(row_cells, column_widths, strict=True)):
                is_last_column = column_index == len(column_widths) - 1
                colour = "fg" if column_index and row_index >= len(headings) else "muted"
                text_x, anchor = (x + width, "end") if is_last_column else (cell_x, "start")
                for line_index, line in enumerate(lines):
                    pen.text(
                        text_x,
                        row_top + 8 + 14 * line_index,
                        line,
                        font_size=font_size_px,
                        colour=colour,
                        anchor=anchor,
                    )
                cell_x += column_width + spare_px
            row_top += row_height
            pen.rect(x, row_top, x + width, row_top + 0.5, "grid")

    return title_px + sum(row_heights) + 2, paint


def _lay_out_matrix(box: MatrixBox, width: float) -> tuple[float, BoxPainter]:
    """Lay out a matrix: a column of labels, then columns that are as wide as their texts."""
    rows = box.rows
    font_size_px = 11
    column_texts = list(zip(*([text for text, _ in row["cells"]] for row in rows), strict=True))
    label_width = max(text_width(row["label"], font_size_px, "bold") for row in rows) + 10
    text_widths = [max(text_width(text, font_size_px, "bold") for text in column) for column in column_texts]
    spare_px = max(0.0, (width - label_width - sum(text_widths)) / len(text_widths))
    column_widths = [text_px + spare_px for text_px in text_widths]
    heading_lines = [
        wrap(text, column_width - 8, 11)
        for text, column_width in zip(box.headings, column_widths, strict=True)
    ]
    heading_px = 13.0 * max(map(len, heading_lines)) + 6

    def paint(pen: Pen, x: float, y: float) -> None:
        cell_x = x + label_width
        for lines, column_width in zip(heading_lines, column_widths, strict=True):
            for index, line in enumerate(lines):
                pen.text(
                    cell_x,
                    y + heading_px - 6 - 13 * (len(lines) - index - 0.5),
                    line,
                    font_size=11,
                    colour="muted",
                )
            cell_x += column_width
        for index, row in enumerate(rows):
            weight = "bold" if row["strong"] else "normal"
            row_top = y + heading_px + 21 * index
            cell_x = x + label_width
            pen.text(x, row_top + 8, row["label"], font_size=font_size_px, font_weight=weight)
            for (text, cell_share), column_width in zip(row["cells"], column_widths, strict=True):
                pen.text(cell_x, row_top + 8, text, font_size=font_size_px, font_weight=weight)
                if cell_share is not None:
                    pen.rect(
                        cell_x, row_top + 15, cell_x + cell_share * (column_width - 8), row_top + 18, "other"
                    )
                cell_x += column_width

    return heading_px + 21.0 * len(rows), paint


_LAYOUTS: dict[type[Box], Callable[[Any, float], tuple[float, BoxPainter]]] = {
    Column: lambda box, width: _stack_boxes(box.boxes, width, box.gap),
    Row: _lay_out_row,
    WordsBox: _lay_out_words,
    Legend: _lay_out_legend,
    TermsBox: _lay_out_numbers,
    Bars: _lay_out_bars,
    TableBox: _lay_out_table,
    MatrixBox: _lay_out_matrix,
    RemarksBox: lambda box, width: _stack_boxes(
        [words(box.title, "heading"), *(words(f"{i}. {text}") for i, text in enumerate(box.texts, 1))],
        width,
        4,
    ),
    FoldBox: lambda box, width: _stack_boxes([words(box.summary, "heading"), box.inner], width, 2),
    SwitchBox: lambda box, width: lay_out(box.cases[box.chosen], width),
    Plot: lambda box, width: (box.height, lambda pen, x, y: paint_plot(pen, box, x, y, width)),
}


def draw_png(scene: Box, title: str, caption: str) -> bytes:
    """Return the picture of a view as PNG. The picture consists of a title, the scene and a caption."""
    with _drawing_lock:
        inner_width = WIDTH_PX - 2 * MARGIN_PX
        page_box = column(words(title, "title"), scene, words(caption, "note"), gap=8)
        height, paint_page = lay_out(page_box, inner_width)
        pen = Pen(WIDTH_PX, round(height) + 2 * 12)
        paint_page(pen, MARGIN_PX, 12)
        width_px, height_px = pen.image.size
        pen.draw.rectangle(
            (0, 0, width_px - 1, height_px - 1), outline=palette.find_hex("rule"), width=SHARPNESS
        )
        return encode_png(pen.image)


@cache
def _make_ink_palette() -> Any:
    """Return an image whose palette has every colour, and mixed colours for the edges of text."""
    colours = [*map(_parse_rgb, palette.COLOURS)]
    for text, background in (
        (_parse_rgb(text), _parse_rgb(background))
        for text in _TEXT_COLOURS
        for background in _BACKGROUND_COLOURS
    ):
        for mix_step in range(1, 9):
            mixed_colour = tuple(
                round(a + (b - a) * mix_step / 9) for a, b in zip(text, background, strict=True)
            )
            # Pillow searches colours in boxes, and confuses colours that are too close.
            if all(
                max(abs(a - b) for a, b in zip(mixed_colour, known_colour, strict=True)) > 14
                for known_colour in colours
            ):
                colours.append(mixed_colour)
    palette_image = Image.new("P", (1, 1))
    palette_image.putpalette([component for colour in colours[:256] for component in colour])
    return palette_image


def _parse_rgb(name: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(palette.find_hex(name)[1:]))


def encode_png(image: Image.Image) -> bytes:
    """Encode an image as a PNG with a palette, which is smaller and faster than a PNG in full colour."""
    buffer = io.BytesIO()
    palette_image = image.quantize(palette=_make_ink_palette(), dither=Image.Dither.NONE)
    palette_image.save(buffer, format="PNG", compress_level=3)
    return buffer.getvalue()


def read_nominal_size(png_bytes: bytes) -> tuple[int, int]:
    """Return the width and height of a PNG in page pixels. The size is read from the PNG header (bytes 16 to
    24).
    """
    width, height = struct.unpack(">II", png_bytes[16:24])
    return width // SHARPNESS, height // SHARPNESS
