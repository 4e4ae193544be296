"""The static picture of a memory map at one step, in which free memory is hatched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpulab.views.allocator import columns, pool_text
from gpulab.views.allocator.layout import MapLayout
from gpulab.views.parts import palette
from gpulab.views.parts.boxes import Box, column, legend, numbers
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Labels, LineSegments, Polyline
from gpulab.views.parts.plots import make_labels, make_rects, plot
from gpulab.words import size
from virtualgpu.records.memory import Block, Segment

if TYPE_CHECKING:
    from gpulab.views.allocator.maps import PoolMaps, PoolPanel

STATE_NAMES = {"used": "in use", "waiting": "waiting", "free": "free", "unmapped": "not mapped"}
WIDTH_PX = 872
LEFT_PX = columns.LEFT_PX
ROW_GAP_PX = 4
ROWS_PX = 210
MIN_ROW_PX = 14
MAX_ROW_PX = 44
HATCH_PX = 7
MAX_HATCHES = 6000
MIN_NAMED_PX = 28
NOTCH_PX = 8
# Left, right and row of a part of a segment or block.
Piece = tuple[float, float, int]


def compute_row_px(rows: int) -> int:
    """Return the height of the rows of a memory map in pixels."""
    return max(MIN_ROW_PX, min(MAX_ROW_PX, ROWS_PX // max(1, rows)))


def draw(maps: PoolMaps, position: int, colour_by: str) -> Box:
    """Return a picture of the memory maps at a slider position, with numbers and the curve over all
    positions.
    """
    row_height = compute_row_px(sum(layout.rows for layout in maps.layouts))
    map_boxes: list[Box] = (
        [paragraph(maps.describe_position(position), "heading")] if maps.last_position else []
    )
    if maps.last_position:
        curve = columns.draw_curve(maps)
        cursor_line = LineSegments([position], [0], [position], [columns.CURVE_PX], "fg", width=2)
        map_boxes.append(replace(curve, items=[*curve.items, cursor_line]))
    for panel, layout in zip(maps.panels, maps.layouts, strict=True):
        panel_prefix = f"{panel.name}: " if len(maps.panels) > 1 else ""
        _, fragmentation = maps.find_map(panel, position)
        map_boxes += [
            paragraph(f"{panel_prefix}{maps.describe_status(panel, position)}", "strong"),
            numbers(pool_text.make_figures(fragmentation), 150),
        ]
        map_boxes.append(_draw_map(maps, panel, layout, row_height, position, colour_by))
    is_widened = any(layout.is_widened.any() for layout in maps.layouts)
    widened_note = paragraph(pool_text.WIDENED_TEXT.capitalize(), "note") if is_widened else None
    return column(*map_boxes, legend(_make_legend(maps, colour_by)), widened_note, gap=6)


def _make_legend(maps: PoolMaps, colour_by: str) -> list[tuple[str, str]]:
    return [
        *columns.make_legends(maps)[colour_by],
        ("panel", "hatched: free"),
        *columns.make_curve_legend(maps),
    ]


def _draw_map(
    maps: PoolMaps, panel: PoolPanel, layout: MapLayout, row_height: int, position: int, colour_by: str
) -> Box:
    event_step = panel.find_step(position)
    panel_index = maps.panels.index(panel)
    block_map, _ = maps.find_map(panel, position)
    pieces_by_colour: dict[str, list[Piece]] = {}
    outline_pieces: list[Piece] = []
    notch_pieces: list[Piece] = []
    hatch_segments: list[tuple[float, float, float, float]] = []
    name_labels: list[tuple[float, float, int, str, str]] = []
    row_bytes = layout.row_bytes
    px_per_byte = (WIDTH_PX - LEFT_PX - 8) / layout.row_bytes
    block_row_of_address = _find_block_rows(panel, event_step)
    painted_spots: set[tuple[int, int, bool]] = set()  # half pixels with what is less wide
    for segment in block_map.segments:
        segment_index = _find_segment_index(panel, layout, segment, event_step)
        segment_pieces = [
            *_split_into_rows(layout, segment_index, segment.address, segment.address + segment.size_bytes)
        ]
        outline_pieces += segment_pieces
        if layout.is_widened[segment_index]:
            notch_pieces.append(segment_pieces[-1])
        for block in segment.blocks:
            block_pieces = list(_split_into_rows(layout, segment_index, block.address, block.end))
            left_byte, right_byte, row = max(block_pieces, key=lambda piece: piece[1] - piece[0])
            width_px = (right_byte - left_byte) * px_per_byte
            half_pixel = (row, int(2 * left_byte * px_per_byte), block.state == "used")
            if width_px < 0.5:
                if half_pixel in painted_spots:
                    continue
                painted_spots.add(half_pixel)
            colour = _choose_colour(
                maps, panel_index, block, segment, block_row_of_address, event_step, colour_by
            )
            pieces_by_colour.setdefault(colour, []).extend(block_pieces)
            if width_px >= MIN_NAMED_PX and block.state != "unmapped":
                block_label = size(block.size_bytes)
                if block.state != "free":
                    owner = maps.owners.names[
                        maps.owners.owners_of_blocks[panel_index][block_row_of_address[block.address]]
                    ]
                    block_label = f"{block_label}  {owner}\n{block_label}"
                name_labels.append((left_byte, right_byte, row, block_label, palette.choose_ink(colour)))
            if block.state != "used" and len(hatch_segments) < MAX_HATCHES:
                for left_byte, right_byte, row in block_pieces:
                    hatch_segments += _make_hatch_lines(
                        left_byte,
                        right_byte,
                        row * row_height,
                        row_height - ROW_GAP_PX,
                        px_per_byte,
                        block.state,
                    )
    plot_items: list[Item] = []
    bar_height = row_height - ROW_GAP_PX

    def draw_bars(pieces: list[Piece], colour: str, **options: Any) -> Item:
        return make_rects(
            [
                (left_byte, right_byte, row * row_height, row * row_height + bar_height, 0)
                for left_byte, right_byte, row in pieces
            ],
            [colour],
            **options,
        )

    plot_items += [
        draw_bars(block_pieces, colour, inset=0.5) for colour, block_pieces in pieces_by_colour.items()
    ]
    x0, y0, x1, y1 = np.array(hatch_segments or np.empty((0, 4))).T
    plot_items += [LineSegments(x0, y0, x1, y1, "other"), draw_bars(outline_pieces, "muted", outline=True)]
    for left_byte, right_byte, row in notch_pieces:
        notch_px = min(NOTCH_PX, (right_byte - left_byte) * px_per_byte / 2, bar_height / 2)
        notch_start_byte = right_byte - notch_px / px_per_byte
        y = row * row_height
        # A notch is a triangle cut off the upper right corner.
        plot_items += [
            Polyline([notch_start_byte, right_byte], [y, y + notch_px], "bg", width=0, fill="bg", base=y),
            LineSegments([notch_start_byte], [y], [right_byte], [y + notch_px], "muted"),
        ]
    for label_colour in sorted({name_label[4] for name_label in name_labels}):
        block_labels = [
            (
                left_byte,
                row * row_height + bar_height / 2,
                block_label,
                right_byte - left_byte - 4 / px_per_byte,
            )
            for left_byte, right_byte, row, block_label, own_ink in name_labels
            if own_ink == label_colour
        ]
        plot_items.append(make_labels(block_labels, anchor="start", colour=label_colour, dx=4, size=10.5))
    group_names = [
        columns.format_group_name(maps, row_group.stream, row_group.pool) for row_group in layout.groups
    ]
    group_centres = [(row_group.first_row + 0.5) * row_height - 2 for row_group in layout.groups]
    plot_items.append(
        Labels(
            [0.0] * len(group_names),
            group_centres,
            group_names,
            anchor="end",
            dx=-6,
            colour="muted",
            pin=True,
        )
    )
    map_height = max(1, layout.rows) * row_height + 2
    return plot(
        map_height,
        (0, row_bytes),
        *plot_items,
        label=maps.describe_status(panel, position),
        left=LEFT_PX,
        right=8,
    )


def _find_block_rows(panel: PoolPanel, step: int) -> dict[int, int]:
    """Return the index of each block that exists at a step in the history, by address."""
    blocks = panel.history.blocks
    live_rows = np.flatnonzero((blocks.begins <= step) & (step < blocks.ends))
    return dict(zip(blocks.addresses[live_rows].tolist(), live_rows.tolist(), strict=True))


def _find_segment_index(panel: PoolPanel, layout: MapLayout, segment: Segment, step: int) -> int:
    """Return the index of a segment that exists at a step."""
    ranges = panel.history.ranges
    is_match = (ranges.addresses == segment.address) & (ranges.begins <= step) & (step < ranges.ends)
    return int(ranges.segments[np.flatnonzero(is_match)[0]])


def _split_into_rows(
    layout: MapLayout, segment_index: int, start_address: int, end_address: int
) -> Iterator[Piece]:
    """Yield each part of a row that a range of addresses covers: its left and right end, and its row."""
    size_bytes = int(layout.size_bytes[segment_index])
    low_address = int(layout.low_addresses[segment_index])
    drawn_per_byte = layout.drawn_bytes[segment_index] / max(1, size_bytes)
    # A block of a damaged trace may reach beyond its segment.
    left_byte, right_byte = (
        layout.start_bytes[segment_index] + min(max(0, address - low_address), size_bytes) * drawn_per_byte
        for address in (start_address, end_address)
    )
    row_bytes = layout.row_bytes
    last_row = max(left_byte, right_byte - 1e-6) // row_bytes
    for row in range(int(left_byte // row_bytes), int(last_row) + 1):
        yield max(0.0, left_byte - row * row_bytes), min(right_byte - row * row_bytes, float(row_bytes)), row


def _choose_colour(
    maps: PoolMaps,
    panel: int,
    block: Block,
    segment: Segment,
    block_rows: dict[int, int],
    step: int,
    colour_by: str,
) -> str:
    if block.state == "free":
        return "panel"
    if block.state == "unmapped":
        return "bg"
    match colour_by:
        case "age":
            begin_step = int(maps.panels[panel].history.blocks.begins[block_rows[block.address]])
            age_steps = step - begin_step if begin_step else 1 << 30
            return next(colour for max_age, _, colour in columns.AGE_CLASSES if age_steps < max_age)
        case "stream":
            return columns.choose_colours([*maps.streams.values()])[list(maps.streams).index(segment.stream)]
    owner = int(maps.owners.owners_of_blocks[panel][block_rows[block.address]])
    return columns.choose_colours(maps.owners.names)[owner]


def _make_hatch_lines(
    left: float, right: float, top: float, height: float, px: float, state: str
) -> Iterator[tuple[float, float, float, float]]:
    """Yield hatch lines for a part of a row: rising if free, falling if waiting, dotted if unmapped."""
    width_px = (right - left) * px
    if state == "unmapped":
        for offset_px in range(4, int(width_px), 8):
            x = left + offset_px / px
            yield x, top + height / 2, x + 1 / px, top + height / 2
        return
    for offset_px in range(int(-height), int(width_px), HATCH_PX):
        start_px = max(0.0, offset_px)
        end_px = min(width_px, offset_px + height)
        if end_px - start_px < 1:
            continue
        y0 = top + height - (start_px - offset_px)
        y1 = top + height - (end_px - offset_px)
        if state == "waiting":
            y0 = 2 * top + height - y0
            y1 = 2 * top + height - y1
        yield left + start_px / px, y0, left + end_px / px, y1
