"""Painters of a plot's items on the static picture; ``plot.js`` paints the same on a canvas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from gpulab.views.parts import palette
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import (
    Item,
    Labels,
    LineSegments,
    Nodes,
    Polyline,
    ReadingMarks,
    Rects,
    Ring,
    Spans,
    TickAxis,
    TimeAxis,
    Tracks,
)
from gpulab.views.parts.pen import SHARPNESS, Pen, shorten, text_width, wrap
from gpulab.views.parts.ring_picture import paint_ring
from gpulab.views.parts.tracks_picture import PlotScale, paint_time_axis, paint_tracks
from gpulab.words import duration, number, size

MIN_ROW_PX_WITH_GAP = 6
MIN_NAMED_LANE_PX = 13
NODE_SLANT_PX = 8
HATCH_SPACING_PX = 5
ROW_LEADING_PX = 2
MIN_OUTLINED_WIDTH_PX = 4


def paint_plot(pen: Pen, box: Plot, left: float, top: float, width: float) -> None:
    """Paint all items of a plot, and the outline and mark of the selected element."""
    scale = PlotScale(box, left, top, width)
    for item in box.items:
        _PAINTERS[type(item)](pen, item, scale)
    if box.chosen is not None:
        _paint_selection(pen, box, box.chosen, scale)


def _paint_spans(pen: Pen, item: Spans, scale: PlotScale) -> None:
    if item.lane is not None and not item.busy and int(item.height / item.rows * SHARPNESS) < item.lanes:
        _paint_shares(pen, item, scale)
        return
    width_px = max(1, round(scale.width * SHARPNESS))
    row_count = item.rows
    top_px = round(item.top * SHARPNESS)
    row_height = item.height / row_count
    lane_count = max(1, min(item.lanes, int(row_height * SHARPNESS)))
    is_joined = bool(item.joined)
    span_rows = np.asarray(item.row, np.int64)
    span_starts, span_ends = (np.asarray(item.column(name), np.float64) - scale.low for name in ("x0", "x1"))
    is_visible = (span_rows >= 0) & (span_rows < row_count)
    span_rows = span_rows[is_visible]
    span_starts = span_starts[is_visible]
    span_ends = span_ends[is_visible]
    lane_key = span_rows * lane_count
    if item.lane is not None:
        lane_key = lane_key + np.asarray(item.lane, np.int64)[is_visible] * lane_count // item.lanes
    colour_index = np.asarray(item.colour, np.int64)[is_visible] + 1
    first_px = np.clip(
        np.floor(span_starts * scale.px_per_unit * SHARPNESS).astype(np.int64), 0, width_px - 1
    )
    last_px = np.minimum(
        width_px,
        np.maximum(first_px + 1, np.floor(span_ends * scale.px_per_unit * SHARPNESS).astype(np.int64)),
    )
    # An interval inside a pixel that is already painted changes nothing.
    lane_order = np.argsort(lane_key, kind="stable")
    end_key = lane_key[lane_order] * (width_px + 1) + last_px[lane_order]
    paints_new_pixels = np.ones(end_key.size, bool)
    paints_new_pixels[1:] = end_key[1:] > np.maximum.accumulate(end_key)[:-1]
    painted_indices = np.sort(lane_order[paints_new_pixels])
    last_px = last_px - ((last_px - first_px > 5) & (not is_joined))
    pixel_colours = np.zeros(row_count * lane_count * width_px, np.uint8)
    if busy_spans := item.busy:
        busy_edges_px = (
            np.clip(
                (np.asarray(busy_spans[edge_name]) - scale.low) * scale.px_per_unit * SHARPNESS, 0, width_px
            )
            for edge_name in ("x0", "x1")
        )
        for index, span_start, busy_end in zip(
            busy_spans["row"].tolist(), *(edge.astype(int).tolist() for edge in busy_edges_px), strict=True
        ):
            pixel_colours.reshape(row_count, lane_count, width_px)[index, :, span_start:busy_end] = (
                len(item.colours) + 1
            )
    run_columns = (lane_key * width_px + first_px, lane_key * width_px + last_px, colour_index)
    for span_start, span_end, shade_index in zip(
        *(run_column[painted_indices].tolist() for run_column in run_columns), strict=True
    ):
        pixel_colours[span_start:span_end] = shade_index
    pixel_rows = pixel_colours.reshape(row_count * lane_count, width_px)
    pixel_lines = np.zeros((max(1, round((item.top + item.height) * SHARPNESS) - top_px), width_px), np.uint8)
    row_height_without_gap = row_height - (1 if row_height > MIN_ROW_PX_WITH_GAP and not is_joined else 0)
    for index in range(row_count * lane_count):
        row_top = item.top + index // lane_count * row_height
        # Adding 1e-6 keeps the end of a row and the start of the next one on one pixel despite rounding.
        lane_top, lane_bottom = (
            round(
                (row_top + (index % lane_count + lane_edge) * row_height_without_gap / lane_count) * SHARPNESS
                + 1e-6
            )
            - top_px
            for lane_edge in (0, 1)
        )
        lane_height = max(1, lane_bottom - lane_top)
        lane_gap_px = SHARPNESS // 2 if lane_height > 4 * SHARPNESS and not is_joined else 0
        pixel_lines[lane_top : lane_top + lane_height - lane_gap_px] = pixel_rows[index]
    bitmap = Image.fromarray(pixel_lines)
    bitmap.putpalette(
        b"".join(bytes.fromhex(palette.find_hex(name)[1:]) for name in _list_span_colours(item))
    )
    pen.image.paste(
        bitmap.convert("RGB"), (round(scale.left * SHARPNESS), round(scale.top * SHARPNESS) + top_px)
    )
    if item.written and row_height / item.lanes >= MIN_NAMED_LANE_PX:
        _paint_span_names(pen, item, scale, row_height, row_height_without_gap)


def _paint_shares(pen: Pen, item: Spans, scale: PlotScale) -> None:
    """Paint rows whose lanes are less than one pixel high. The colour of a pixel shows the share of lanes
    that are in use.
    """
    width = max(1, round(scale.width * SHARPNESS))
    top_px = round(item.top * SHARPNESS)
    height_px = max(1, round((item.top + item.height) * SHARPNESS) - top_px)
    ground_rgb, *colours_rgb = (
        np.frombuffer(bytes.fromhex(palette.find_hex(name)[1:]), np.uint8).astype(float)
        for name in (item.ground, *item.colours)
    )
    rgb_offsets = (np.array(colours_rgb) - ground_rgb) / item.lanes
    interval_row = np.asarray(item.row, np.int64)
    is_visible = (interval_row >= 0) & (interval_row < item.rows)
    interval_row = interval_row[is_visible]
    rgb_offset = rgb_offsets[np.asarray(item.colour, np.int64)[is_visible]]
    colour_change = np.zeros((item.rows, width + 1, 3))  # of the colour, from one pixel to the next
    for name, edge_sign in (("x0", 1), ("x1", -1)):
        edge_px_position = (
            (np.asarray(item.column(name), float)[is_visible] - scale.low) * scale.px_per_unit * SHARPNESS
        )
        edge_px_position = np.clip(edge_px_position, 0, width)
        pixel_index = np.minimum(width - 1, edge_px_position.astype(np.int64))
        pixel_share = (edge_px_position - pixel_index)[:, None]
        np.add.at(colour_change, (interval_row, pixel_index), edge_sign * rgb_offset * (1 - pixel_share))
        np.add.at(colour_change, (interval_row, pixel_index + 1), edge_sign * rgb_offset * pixel_share)
    row_pixels = np.clip(np.rint(ground_rgb + colour_change.cumsum(axis=1)[:, :-1]), 0, 255).astype(np.uint8)
    picture = np.empty((height_px, width, 3), np.uint8)
    picture[:] = ground_rgb
    row_height = item.height / item.rows
    row_height_without_gap = row_height - (1 if row_height > MIN_ROW_PX_WITH_GAP and not item.joined else 0)
    for index in range(item.rows):
        first_row_px, last_row_px = (
            round((item.top + index * row_height + edge_px) * SHARPNESS + 1e-6) - top_px
            for edge_px in (0, row_height_without_gap)
        )
        picture[first_row_px : max(first_row_px + 1, last_row_px)] = row_pixels[index]
    pen.image.paste(
        Image.fromarray(picture), (round(scale.left * SHARPNESS), round(scale.top * SHARPNESS) + top_px)
    )


def _list_span_colours(item: Spans) -> list[str]:
    """Return the colours of an item's pixels: the background, its colours, and the colour of busy time."""
    return [item.ground, *item.colours, *([item.busy["colour"]] if item.busy else [])]


def _paint_span_names(
    pen: Pen, item: Spans, scale: PlotScale, row_height: float, row_height_without_gap: float
) -> None:
    """Draw the texts of spans that have enough space for them."""
    lane = item.lane if item.lane is not None else np.zeros(len(item.row), int)
    lane_height = row_height_without_gap / item.lanes
    ink_names = [palette.choose_ink(name) for name in item.colours]
    for index, (x0, x1) in enumerate(zip(item.x0.tolist(), item.x1.tolist(), strict=True)):
        text_room_px = (x1 - x0) * scale.px_per_unit - 6
        if (
            text_room_px >= 6
            and text_width(span_text := make_element_sentence(item, index, item.written), 11) <= text_room_px
        ):
            y = scale.top + item.top + item.row[index] * row_height + (lane[index] + 0.5) * lane_height
            pen.text(scale.x(x0) + 3, y, span_text, colour=ink_names[int(item.colour[index])])


def make_element_sentence(item: Item, index: int, pieces: Sequence[Any]) -> str:
    """Build the sentence that describes an element of a plot item from its pieces. The function
    ``elementSentence`` in ``plot.js`` does the same.
    """
    phrases = []
    for sentence_piece in pieces:
        if isinstance(sentence_piece, str):
            phrases.append(sentence_piece)
            continue
        column_name, *options = sentence_piece
        column_value = int(item.column(column_name)[index])
        if options[:1] == ["time"]:
            phrases.append(
                duration(
                    column_value
                    - sum(int(item.column(subtrahend_name)[index]) for subtrahend_name in options[1:])
                )
            )
            continue
        if options[:1] == ["moved"]:
            duration_ns = max(1, int(item.column(options[1])[index]) - int(item.column(options[2])[index]))
            phrases.append(
                f", {size(column_value)} at {number(column_value / duration_ns)} GB/s" if column_value else ""
            )
            continue
        choice_texts = options[0] if options else None
        if isinstance(choice_texts, str):
            choice_texts = item.column(choice_texts)
        phrases.append(f"{column_value:,}" if choice_texts is None else choice_texts[column_value])
    return "".join(phrases)


def _paint_rects(pen: Pen, item: Rects, scale: PlotScale) -> None:
    for x0, x1, y0, y1, colour_index in zip(item.x0, item.x1, item.y0, item.y1, item.colour, strict=True):
        left_px = scale.x(x0) + item.inset
        right_px = max(left_px + 1, scale.x(x1) - item.inset)
        if item.outline:
            if right_px - left_px >= MIN_OUTLINED_WIDTH_PX:
                pen.outline(
                    left_px, scale.top + y0, right_px, scale.top + y1, item.colours[int(colour_index)], 1
                )
            continue
        if item.hatch:
            _paint_hatch(
                pen, left_px, right_px, scale.top + y0, scale.top + y1, item.colours[int(colour_index)]
            )
            continue
        pen.rect(left_px, scale.top + y0, right_px, scale.top + y1, item.colours[int(colour_index)])


def _paint_hatch(pen: Pen, left: float, right: float, top: float, bottom: float, colour: str) -> None:
    """Draw slanted lines across a rectangle; the lines of adjacent rectangles continue each other."""
    offset = (left + top) // HATCH_SPACING_PX * HATCH_SPACING_PX
    while offset < right + bottom:
        # The part of the line x + y = `offset` inside the rectangle.
        upper_y = max(top, offset - right)
        lower_y = min(bottom, offset - left)
        if upper_y < lower_y:
            pen.line([(offset - upper_y, upper_y), (offset - lower_y, lower_y)], colour, 1.2)
        offset += HATCH_SPACING_PX


def _paint_polyline(pen: Pen, item: Polyline, scale: PlotScale) -> None:
    if not len(item.x):
        return
    xs: npt.NDArray[np.float64] = (
        scale.left + (np.asarray(item.x, np.float64) - scale.low) * scale.px_per_unit
    )
    ys = scale.top + np.asarray(item.y, np.float64)
    if item.step:
        xs = np.repeat(xs, 2)[1:]
        ys = np.repeat(ys, 2)[:-1]
    line_points = list(zip(xs.tolist(), ys.tolist(), strict=True))
    if item.fill:
        base_y = scale.top + item.base
        pen.polygon([(line_points[0][0], base_y), *line_points, (line_points[-1][0], base_y)], item.fill)
    if item.width:
        pen.line(line_points, item.colour, item.width)


def _paint_line_segments(pen: Pen, item: LineSegments, scale: PlotScale) -> None:
    if item.most and len(item.x0) > item.most:
        return
    for x0, y0, x1, y1 in zip(item.x0, item.y0, item.x1, item.y1, strict=True):
        start_point = (scale.x(x0), scale.top + y0)
        end_point = (scale.x(x1), scale.top + y1)
        length_px = math.dist(start_point, end_point)
        if item.dash and length_px:
            unit_x = (end_point[0] - start_point[0]) / length_px
            unit_y = (end_point[1] - start_point[1]) / length_px
            for dash_start in np.arange(0, length_px, 7).tolist():
                dash_end = min(length_px, dash_start + 4)
                pen.line(
                    [
                        (start_point[0] + unit_x * dash_start, start_point[1] + unit_y * dash_start),
                        (start_point[0] + unit_x * dash_end, start_point[1] + unit_y * dash_end),
                    ],
                    item.colour,
                    item.width,
                )
        else:
            pen.line([start_point, end_point], item.colour, item.width)
        if item.arrow:
            pen.arrow_head(start_point, end_point, item.colour)


def _paint_labels(pen: Pen, item: Labels, scale: PlotScale) -> None:
    font_weight = "mono" if item.mono else item.weight
    font_size_px = item.size - (1 if item.mono else 0)
    right_edges: dict[float, float] = {}
    for index, text_forms in enumerate(item.text):
        max_width = math.inf if item.room is None else item.room[index] * scale.px_per_unit - 4
        line_candidates = (
            _fit_lines(text_form, max_width, item.lines, font_size_px, font_weight)
            for text_form in text_forms.split("\n")
        )
        lines = next((line_candidate for line_candidate in line_candidates if line_candidate), None)
        if not lines or not lines[0]:
            continue
        x = scale.x(item.x[index]) + item.dx
        y = float(item.y[index])
        width = max(text_width(line, font_size_px, font_weight) for line in lines)
        left_px = x - {"start": 0, "middle": width / 2, "end": width}[item.anchor]
        if item.spread and left_px < right_edges.get(y, -math.inf) + 6:
            continue
        right_edges[y] = left_px + width
        for line_index, line in enumerate(lines):
            pen.text(
                x,
                scale.top + y + line_index * (font_size_px + ROW_LEADING_PX),
                line,
                font_size=font_size_px,
                font_weight=font_weight,
                colour=item.colour,
                anchor=item.anchor,
                is_vertical=item.turn,
            )


def _fit_lines(
    text: str, max_width: float, max_lines: int, font_size_px: float, font_weight: str
) -> list[str] | None:
    """Return a text in at most `max_lines` lines, each at most `max_width` wide; None if it does not fit."""
    lines = wrap(text, max_width, font_size_px, font_weight) if max_lines > 1 else [text]
    is_fitting = len(lines) <= max_lines and all(
        text_width(line, font_size_px, font_weight) <= max_width for line in lines
    )
    return lines if is_fitting else None


def _paint_ticks(pen: Pen, item: TickAxis, scale: PlotScale) -> None:
    selected_level = item.levels[0]
    for tick_level in item.levels:
        tick_texts = tick_level[1]
        if tick_level[0] * scale.px_per_unit >= 16 + max(
            text_width(tick_texts[-1], 11), text_width(tick_texts[len(tick_texts) // 2], 11)
        ):
            selected_level = tick_level
    y = scale.top + item.y
    right_px = scale.left + scale.width
    pen.rect(scale.left, y, right_px, y + 1, "muted")
    for index, text in enumerate(selected_level[1]):
        x = scale.x(index * selected_level[0])
        if x > right_px + 1:
            break
        pen.rect(x, y, x + 1, y + 4, "muted")
        pen.text(min(x, right_px + scale.box.right - text_width(text, 11) / 2), y + 12, text, anchor="middle")
    axis_title = next(
        (title_form for title_form in item.title if text_width(title_form, 11) <= scale.width), item.title[-1]
    )
    pen.text(scale.left, y + 26, axis_title, colour="muted")


def _paint_selection(pen: Pen, box: Plot, index: int, scale: PlotScale) -> None:
    rects = next(rects for rects in box.items if isinstance(rects, Rects) and rects.say)
    left_px = scale.x(rects.x0[index]) + rects.inset
    right_px = scale.x(rects.x1[index]) - rects.inset
    top_px = scale.top + rects.y0[index]
    bottom_px = scale.top + rects.y1[index]
    pen.outline(left_px - 1, top_px - 1, right_px + 1, bottom_px + 1, "fg")
    if not box.marks:
        return
    is_right_half = left_px > scale.left + scale.width / 2
    mark_text = f"{box.marks[index]} ▼" if is_right_half else f"▼ {box.marks[index]}"
    pen.text(
        (left_px + right_px) / 2 + (5 if is_right_half else -5),
        scale.top + (box.mark_y or 0),
        mark_text,
        font_weight="bold",
        anchor="end" if is_right_half else "start",
    )


def _paint_nodes(pen: Pen, item: Nodes, scale: PlotScale) -> None:
    for index, (text, detail) in enumerate(zip(item.text, item.detail, strict=True)):
        left_px = scale.x(item.x0[index])
        right_px = scale.x(item.x1[index])
        top_px = scale.top + item.y0[index]
        bottom_px = scale.top + item.y1[index]
        shape_index = item.shape[index]
        colour_name = item.colours[item.colour[index]]
        mark_colour = item.mark[index]
        if mark_colour >= 0:
            pen.polygon(
                _find_node_outline(shape_index, left_px - 3, top_px - 3, right_px + 3, bottom_px + 3),
                item.colours[mark_colour],
            )
        pen.polygon(_find_node_outline(shape_index, left_px, top_px, right_px, bottom_px), colour_name)
        text_width_px = right_px - left_px - 10 - (NODE_SLANT_PX if shape_index in (1, 2, 4) else 0)
        lines = [(line_text, font_px) for line_text, font_px in ((text, 11), (detail, 10)) if line_text]
        for line_index, (line_text, font_px) in enumerate(lines):
            middle_y = (top_px + bottom_px) / 2 + (line_index - (len(lines) - 1) / 2) * 14
            pen.text(
                (left_px + right_px) / 2,
                middle_y,
                shorten(line_text, text_width_px, font_px),
                font_size=font_px,
                colour=palette.choose_ink(colour_name),
                anchor="middle",
            )


def _find_node_outline(
    shape: int, left: float, top: float, right: float, bottom: float
) -> list[tuple[float, float]]:
    """Return the corners of a node's shape; ``outline`` in ``dag.js`` returns the same corners."""
    slant_px = min(NODE_SLANT_PX, (right - left) / 4)
    middle_y = (top + bottom) / 2
    if shape == 1:
        return [(left + slant_px, top), (right - slant_px, top), (right, bottom), (left, bottom)]
    if shape == 2:
        return [(left, top), (right, top), (right - slant_px, bottom), (left + slant_px, bottom)]
    if shape == 4:
        return [
            (left, middle_y),
            (left + slant_px, top),
            (right - slant_px, top),
            (right, middle_y),
            (right - slant_px, bottom),
            (left + slant_px, bottom),
        ]
    radius = (bottom - top) / 2 if shape == 3 else 5
    corner_arcs = (
        (right - radius, top + radius, -90),
        (right - radius, bottom - radius, 0),
        (left + radius, bottom - radius, 90),
        (left + radius, top + radius, 180),
    )
    return [
        (
            x + radius * math.cos(math.radians(start_degrees + degrees)),
            y + radius * math.sin(math.radians(start_degrees + degrees)),
        )
        for x, y, start_degrees in corner_arcs
        for degrees in range(0, 91, 15)
    ]


_PAINTERS: dict[type[Item], Callable[[Pen, Any, PlotScale], None]] = {
    Spans: _paint_spans,
    Rects: _paint_rects,
    Polyline: _paint_polyline,
    LineSegments: _paint_line_segments,
    Labels: _paint_labels,
    TickAxis: _paint_ticks,
    Tracks: paint_tracks,
    TimeAxis: paint_time_axis,
    Nodes: _paint_nodes,
    ReadingMarks: lambda *_: None,  # only the browser selects one
    Ring: paint_ring,
}
