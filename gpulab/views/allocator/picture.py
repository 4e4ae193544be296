"""The static picture of a memory map at one step; free memory is hatched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpulab.views.allocator import columns, pool_text
from gpulab.views.allocator.layout import Places
from gpulab.views.parts import palette
from gpulab.views.parts.boxes import Box, column, legend, numbers
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Labels, Rules
from gpulab.views.parts.plots import boxes, plot, texts
from gpulab.words import size
from virtualgpu.records.memory import Block, Segment

if TYPE_CHECKING:
    from gpulab.views.allocator.maps import Maps, PoolPanel

STATES = {"used": "in use", "waiting": "waiting", "free": "free", "unmapped": "not mapped"}
WIDTH_PX = 872
LEFT_PX = columns.LEFT_PX
ROW_GAP_PX = 4
ROWS_PX = 210
LEAST_PX = 14
MOST_PX = 44
HATCH_PX = 7
MOST_HATCHES = 6000
LEAST_NAMED_PX = 28
PIECE = tuple[float, float, int]


def row_px(rows: int) -> int:
    """Return the height of the rows of a map."""
    return max(LEAST_PX, min(MOST_PX, ROWS_PX // max(1, rows)))


def draw(maps: Maps, position: int, colour_by: str) -> Box:
    """Draw the maps at a position of the slider, with numbers and the curve over all positions."""
    row_height = row_px(sum(places.rows for places in maps.places))
    parts: list[Box] = [paragraph(maps.position_text(position), "heading")] if maps.last else []
    if maps.last:
        curve = columns.curve(maps)
        cursor = Rules([position], [0], [position], [columns.CURVE_PX], "fg", width=2)
        parts.append(replace(curve, items=[*curve.items, cursor]))
    for panel, places in zip(maps.panels, maps.places, strict=True):
        name = f"{panel.name}: " if len(maps.panels) > 1 else ""
        _, fragmentation = maps.map_at(panel, position)
        parts += [
            paragraph(f"{name}{maps.status_text(panel, position)}", "strong"),
            numbers(pool_text.figures(fragmentation), 150),
        ]
        parts.append(_map(maps, panel, places, row_height, position, colour_by))
    return column(*parts, legend(_legend(maps, colour_by)), gap=6)


def _legend(maps: Maps, colour_by: str) -> list[tuple[str, str]]:
    if colour_by == "age":
        entries = [(colour, text) for _, text, colour in columns.AGES]
    else:
        by_stream = colour_by == "stream"
        names = [*maps.streams.values()] if by_stream else maps.owners.names
        entries = list(zip(columns.COLOURS, names, strict=False))
        if len(names) > len(columns.COLOURS):
            entries.append((columns.REST, "other streams" if by_stream else "other lines"))
    return [*[(colour, text or "unknown") for colour, text in entries], ("panel", "hatched: free")]


def _map(maps: Maps, panel: PoolPanel, places: Places, row_height: int, position: int, colour_by: str) -> Box:
    step = panel.step(position)
    index = maps.panels.index(panel)
    block_map, _ = maps.map_at(panel, position)
    tiles: dict[str, list[PIECE]] = {}
    outlines: list[PIECE] = []
    hatched: list[tuple[float, float, float, float]] = []
    names: list[tuple[float, float, int, str, str]] = []
    row_bytes = places.row_bytes
    px = (WIDTH_PX - LEFT_PX - 8) / places.row_bytes
    numbers_of = _rows_of_blocks(panel, step)
    painted: set[tuple[int, int, bool]] = set()  # half pixels with what is less wide
    for segment in block_map.segments:
        place = _place(panel, places, segment, step)
        outlines += _pieces(places, place, segment.address, segment.address + segment.size_bytes)
        for block in segment.blocks:
            pieces = list(_pieces(places, place, block.address, block.end))
            left, right, row = max(pieces, key=lambda piece: piece[1] - piece[0])
            wide = (right - left) * px
            spot = (row, int(2 * left * px), block.state == "used")
            if wide < 0.5:
                if spot in painted:
                    continue
                painted.add(spot)
            colour = _colour(maps, index, block, segment, numbers_of, step, colour_by)
            tiles.setdefault(colour, []).extend(pieces)
            if wide >= LEAST_NAMED_PX and block.state != "unmapped":
                label = size(block.size_bytes)
                if block.state != "free":
                    owner = maps.owners.names[maps.owners.of_blocks[index][numbers_of[block.address]]]
                    label = f"{label}  {owner}\n{label}"
                names.append((left, right, row, label, palette.ink(colour)))
            if block.state != "used" and len(hatched) < MOST_HATCHES:
                for left, right, row in pieces:
                    hatched += _hatch(left, right, row * row_height, row_height - ROW_GAP_PX, px, block.state)
    items: list[Item] = []
    full = row_height - ROW_GAP_PX

    def bars(pieces: list[PIECE], colour: str, **look: Any) -> Item:
        return boxes(
            [(left, right, row * row_height, row * row_height + full, 0) for left, right, row in pieces],
            [colour],
            **look,
        )

    items += [bars(pieces, colour, inset=0.5) for colour, pieces in tiles.items()]
    x0, y0, x1, y1 = np.array(hatched or np.empty((0, 4))).T
    items += [Rules(x0, y0, x1, y1, "other"), bars(outlines, "muted", outline=True)]
    for ink in sorted({name[4] for name in names}):
        labels = [
            (left, row * row_height + full / 2, label, right - left - 4 / px)
            for left, right, row, label, own in names
            if own == ink
        ]
        items.append(texts(labels, anchor="start", colour=ink, dx=4, size=10.5))
    group_names = [columns.group_name(maps, group.stream, group.pool) for group in places.groups]
    middle = [(group.first_row + 0.5) * row_height - 2 for group in places.groups]
    items.append(
        Labels([0.0] * len(group_names), middle, group_names, anchor="end", dx=-6, colour="muted", pin=True)
    )
    height = max(1, places.rows) * row_height + 2
    return plot(
        height, (0, row_bytes), *items, label=maps.status_text(panel, position), left=LEFT_PX, right=8
    )


def _rows_of_blocks(panel: PoolPanel, step: int) -> dict[int, int]:
    """Return the row of each block in use in the history, by address."""
    lives = panel.history.blocks
    rows = np.flatnonzero((lives.begins <= step) & (step < lives.ends))
    return dict(zip(lives.addresses[rows].tolist(), rows.tolist(), strict=True))


def _place(panel: PoolPanel, places: Places, segment: Segment, step: int) -> int:
    """Return the index of a segment that exists at a step."""
    ranges = panel.history.ranges
    matches = (ranges.addresses == segment.address) & (ranges.begins <= step) & (step < ranges.ends)
    return int(ranges.segments[np.flatnonzero(matches)[0]])


def _pieces(places: Places, number: int, low: int, high: int) -> Iterator[PIECE]:
    """Yield the parts of rows that a range of addresses covers: left, right, row."""
    size_bytes = int(places.size_bytes[number])
    first = int(places.low[number])
    scale = places.wide[number] / max(1, size_bytes)
    # A block of a damaged trace may reach beyond its segment.
    left, right = (
        places.start[number] + min(max(0, address - first), size_bytes) * scale for address in (low, high)
    )
    row_bytes = places.row_bytes
    last = max(left, right - 1e-6) // row_bytes
    for row in range(int(left // row_bytes), int(last) + 1):
        yield max(0.0, left - row * row_bytes), min(right - row * row_bytes, float(row_bytes)), row


def _colour(
    maps: Maps,
    panel: int,
    block: Block,
    segment: Segment,
    numbers_of: dict[int, int],
    step: int,
    colour_by: str,
) -> str:
    if block.state == "free":
        return "panel"
    if block.state == "unmapped":
        return "bg"
    match colour_by:
        case "age":
            begin = int(maps.panels[panel].history.blocks.begins[numbers_of[block.address]])
            age = step - begin if begin else 1 << 30
            return next(colour for most, _, colour in columns.AGES if age < most)
        case "stream":
            index = list(maps.streams).index(segment.stream)
        case _:
            index = int(maps.owners.of_blocks[panel][numbers_of[block.address]])
    return columns.COLOURS[index] if index < len(columns.COLOURS) else columns.REST


def _hatch(
    left: float, right: float, top: float, height: float, px: float, state: str
) -> Iterator[tuple[float, float, float, float]]:
    """Yield strokes over a piece of a row: rising if it is free, falling if it waits, dots if unmapped."""
    width = (right - left) * px
    if state == "unmapped":
        for offset in range(4, int(width), 8):
            x = left + offset / px
            yield x, top + height / 2, x + 1 / px, top + height / 2
        return
    for offset in range(int(-height), int(width), HATCH_PX):
        low = max(0.0, offset)
        up = min(width, offset + height)
        if up - low < 1:
            continue
        y0 = top + height - (low - offset)
        y1 = top + height - (up - offset)
        if state == "waiting":
            y0 = 2 * top + height - y0
            y1 = 2 * top + height - y1
        yield left + low / px, y0, left + up / px, y1
