"""The picture of one access: lanes above, sectors left and banks right; ``picture.js`` draws the same."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gpulab.views.access import access_text
from gpulab.views.parts.boxes import Box, column, legend, row
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Labels
from gpulab.views.parts.plots import boxes, plot, texts, y_ticks
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE
from virtualgpu.records.access import BANKS, Access
from virtualgpu.records.kernel import LINE_BYTES

LEFT_PX = 62
TOP_PX = 16
BELOW_PX = 16
LANE_PX = 26
ROOM_PX = 224
LEAST_PX = 7
MOST_PX = 40
LANE_COLOURS = [f"lane-{lane}" for lane in range(WARP_SIZE)]
MEMORY_HEADING = "Memory: lines of 128 bytes, each four sectors of 32"
CONSTANT_HEADING = "Constant memory: words that several lanes want are served to all of them"
BANKS_HEADING = "Shared memory: 32 banks of 4 bytes, pass by pass"
UNUSED = "fetched, but nobody asked for it"
EXTRA = "extra pass: bank conflict"


def row_px(rows: int) -> int:
    """Height of a row, chosen so that all rows fit."""
    return max(LEAST_PX, min(MOST_PX, ROOM_PX // max(1, rows)))


def _of(lanes: list[int], say: list[str], inset: float) -> dict[str, Any]:
    """Return the arguments that let each lane's rectangle be chosen and described."""
    places = [*range(len(lanes))]
    sentences = [say[lane] for lane in lanes]
    return {"inset": inset, "columns": {"lane": lanes, "at": places}, "say": [["at", sentences]]}


def lanes_plot(access: Access, say: list[str]) -> Box:
    """Draw the 32 lanes; inactive lanes are grey."""
    lanes = [*range(WARP_SIZE)]
    tiles = [(lane, lane + 1, 0, LANE_PX, lane if lane in access.lanes else WARP_SIZE) for lane in lanes]
    names = [(lane in access.lanes, (lane + 0.5, LANE_PX / 2, str(lane), 1.3)) for lane in lanes]
    items = [
        boxes(tiles, [*LANE_COLOURS, "grid"], **_of(lanes, say, 1)),
        texts([row for taking, row in names if taking], colour="on-lane", weight="bold"),
        texts([row for taking, row in names if not taking], colour="muted"),
    ]
    return plot(LANE_PX, (0, WARP_SIZE), *items, label="The 32 lanes of the warp", left=0, right=0)


def memory_plot(access: Access, say: list[str]) -> Box:
    """Draw the touched lines one below the other: bytes in their lanes' colours, other bytes hatched."""
    lanes = access.lanes
    size = access.size_bytes
    addresses = access.addresses
    lines = sorted({addresses[lane] // LINE_BYTES for lane in lanes})
    touched = {addresses[lane] // SECTOR_BYTES for lane in lanes}
    high = row_px(len(lines))
    full = high - (2 if high > 10 else 1)
    top_of = {line: TOP_PX + at * high for at, line in enumerate(lines)}
    grounds: dict[bool, list[tuple[int, ...]]] = {True: [], False: []}
    for line, top in top_of.items():
        for s in range(LINE_BYTES // SECTOR_BYTES):
            ground = (SECTOR_BYTES * s, SECTOR_BYTES * (s + 1), top, top + full, 0)
            grounds[line * 4 + s in touched].append(ground)
    at_place: dict[int, list[int]] = defaultdict(list)
    for lane in lanes:
        at_place[addresses[lane]].append(lane)
    tiles = []
    named = []
    for lane in lanes:
        line, x = divmod(addresses[lane], LINE_BYTES)
        same = at_place[addresses[lane]]
        top = top_of[line]
        each = full / len(same)
        nth = same.index(lane)
        tiles.append((x, x + size, top + nth * each, top + (nth + 1) * each, lane))
        if len(same) == 1 and high > 12:
            named.append((x + size / 2, top + full / 2, str(lane), size * 1.25))
    shown = [(top + high / 2 - 1, f"+{LINE_BYTES * (line - lines[0]):,}") for line, top in top_of.items()]
    shown = shown[:: -(-13 // high)]
    items = [
        boxes(grounds[True], ["muted"], inset=1, hatch=True),
        boxes(grounds[False], ["grid"], inset=1),
        boxes(tiles, LANE_COLOURS, **_of([*lanes], say, 0.5)),
        texts(named, colour="on-lane", size=10),
        texts(
            [(s + 16, 7, f"bytes {s}–{s + 31}\n{s}–{s + 31}", 32) for s in (0, 32, 64, 96)],
            colour="muted",
            size=10.5,
        ),
        y_ticks([y for y, _ in shown], [text for _, text in shown], (0, LINE_BYTES)),
    ]
    height = TOP_PX + high * max(1, len(lines)) + 2
    return plot(height, (0, LINE_BYTES), *items, label="Lines and sectors", left=LEFT_PX, right=2)


def banks_plot(access: Access, say: list[str]) -> Box:
    """Draw the 32 banks, their words stacked pass by pass; words of a conflict have another background."""
    passed = access.banks().passes
    pieces = access.pieces()
    rows = range(max(1, passed))
    high = row_px(len(rows))
    full = high - (2 if high > 10 else 1)
    extra = {piece.row for piece in pieces if piece.depth}
    sharing: dict[tuple[int, int], list[int]] = defaultdict(list)
    for piece in pieces:
        sharing[piece.row, piece.bank].append(piece.lane)
    tiles = []
    for piece in sorted(pieces, key=lambda each: each.lane):
        same = sharing[piece.row, piece.bank]
        top = TOP_PX + piece.row * high + same.index(piece.lane) * (full / len(same))
        tiles.append((piece.bank, piece.bank + piece.banks, top, top + full / len(same), piece.lane))
    grounds = {
        conflict: [
            (bank, bank + 1, TOP_PX + r * high, TOP_PX + r * high + full, 0)
            for r in rows
            if (r in extra) is conflict
            for bank in range(BANKS)
        ]
        for conflict in (False, True)
    }
    named = [
        ((x0 + x1) / 2, (y0 + y1) / 2, str(lane), 1.25 * (x1 - x0))
        for x0, x1, y0, y1, lane in tiles
        if y1 - y0 > 10
    ]
    passes = [
        (r, (0, TOP_PX + r * high + high / 2 - 1, f"pass {r + 1}", 0))
        for r in range(0, passed, -(-13 // high))
    ]
    items = [
        boxes(grounds[False], ["grid"], inset=0.5),
        boxes(grounds[True], ["error-bg"], inset=0.5),
        boxes(tiles, LANE_COLOURS, **_of([tile[4] for tile in tiles], say, 0.5)),
        texts(named, colour="on-lane", size=10),
        texts(
            [(bank + 0.5, 7, str(bank), 0) for bank in range(0, BANKS, 4)],
            colour="muted",
            size=10.5,
            room=None,
        ),
        *(
            texts(
                [row for r, row in passes if (r in extra) is conflict],
                room=None,
                anchor="end",
                dx=-5,
                pin=True,
                colour=colour,
            )
            for conflict, colour in ((False, "fg"), (True, "tail-text"))
        ),
    ]
    return plot(TOP_PX + high * len(rows) + 2, (0, BANKS), *items, label="Banks", left=LEFT_PX, right=2)


def _figures(figures: list[access_text.Figure]) -> Box:
    """Figures in large type, side by side."""
    places = list(range(len(figures)))
    across = len(figures)
    large = [
        Labels(
            [at],
            [14],
            [figure.value],
            size=24,
            weight="bold",
            colour="tail-text" if figure.over else "good-text",
        )
        for at, figure in enumerate(figures)
    ]
    small = [
        Labels(places, [35] * across, [figure.term for figure in figures], weight="bold"),
        Labels(places, [49] * across, [figure.detail for figure in figures], colour="muted", size=10.5),
    ]
    return plot(58, (0, max(3, across)), *large, *small, label="Figures", left=0, right=0)


def draw(access: Access, memory: bool, banks: bool) -> Box:
    """Draw the whole static picture."""
    say = access_text.lane_sentences(access, memory, banks)
    panels = []
    if memory:
        figures = _figures(access_text.memory_figures(access))
        unused = legend([("muted", UNUSED)])
        heading = CONSTANT_HEADING if access.space == "const" else MEMORY_HEADING
        panels.append(column(paragraph(heading, "heading"), figures, memory_plot(access, say), unused))
    if banks:
        figures = _figures(access_text.bank_figures(access))
        extra = legend([("error-bg", EXTRA)])
        panels.append(column(paragraph(BANKS_HEADING, "heading"), figures, banks_plot(access, say), extra))
    note = access_text.notes(access, memory, banks)
    return column(
        lanes_plot(access, say),
        row(*panels, least=[320] * len(panels)),
        paragraph(note, "note") if note else None,
        gap=8,
    )
