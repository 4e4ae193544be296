"""The picture of one access: lanes above, sectors left and banks right; ``picture.js`` draws the same."""

from __future__ import annotations

from collections import defaultdict

from gpulab.views.access import words
from gpulab.views.parts.boxes import Box, column, legend, row
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.plots import labels, plot, rects, y_ticks
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE
from virtualgpu.records.access import BANKS, Access
from virtualgpu.records.kernel import LINE_BYTES

LEFT_PX, TOP_PX, BELOW_PX, LANE_PX = 62, 16, 16, 26
ROOM_PX, LEAST_PX, MOST_PX = 224, 7, 40
LANE_COLOURS = [f"lane-{lane}" for lane in range(WARP_SIZE)]
MEMORY_HEADING = "Memory: lines of 128 bytes, each four sectors of 32"
CONSTANT_HEADING = "Constant memory: words that several lanes want are served to all of them"
BANKS_HEADING = "Shared memory: 32 banks of 4 bytes, pass by pass"
UNUSED, EXTRA = "fetched, but nobody asked for it", "extra pass: bank conflict"


def row_px(rows: int) -> int:
    """Height of a row, so that all of them have room."""
    return max(LEAST_PX, min(MOST_PX, ROOM_PX // max(1, rows)))


def lanes_plot(access: Access, say: list[str]) -> Box:
    """The 32 lanes; those that take no part are grey."""
    lanes = list(range(WARP_SIZE))
    taking = [place >= 0 for place in access.addresses]
    colours = [*LANE_COLOURS, "grid"]
    tops, bottoms = [0] * WARP_SIZE, [LANE_PX] * WARP_SIZE
    items = [
        rects(lanes, [lane + 1 for lane in lanes], tops, bottoms,
              [lane if taking[lane] else WARP_SIZE for lane in lanes], colours, inset=1,
              lane=lanes, at=lanes, say=[["at", say]]),
    ]  # fmt: skip
    for part, colour in ((True, "on-lane"), (False, "muted")):
        named = [lane for lane in lanes if taking[lane] is part]
        items.append(
            labels([lane + 0.5 for lane in named], [LANE_PX / 2] * len(named), [str(lane) for lane in named],
                   anchor="middle", colour=colour, size=11, weight="bold" if part else "normal",
                   room=[1.3] * len(named))
        )  # fmt: skip
    return plot(LANE_PX, (0, WARP_SIZE), *items, label="The 32 lanes of the warp", left=0, right=0)


def memory_plot(access: Access, say: list[str]) -> Box:
    """The touched lines, one below the other: bytes in their lanes' colours, what else is fetched hatched."""
    lanes, size = access.lanes, access.size_bytes
    lines = sorted({access.addresses[lane] // LINE_BYTES for lane in lanes})
    place = {line: at for at, line in enumerate(lines)}
    touched = {access.addresses[lane] // SECTOR_BYTES for lane in lanes}
    high = row_px(len(lines))
    gap = 2 if high > 10 else 1
    sectors = [(line, sector) for line in lines for sector in range(LINE_BYTES // SECTOR_BYTES)]
    grounds: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for line, sector in sectors:
        grounds[line * 4 + sector in touched].append((place[line], sector))
    items = [
        rects([SECTOR_BYTES * s for _, s in found], [SECTOR_BYTES * (s + 1) for _, s in found],
              [TOP_PX + r * high for r, _ in found], [TOP_PX + r * high + high - gap for r, _ in found],
              "muted" if fetched else "grid", inset=1, hatch=fetched)
        for fetched, found in grounds.items()
    ]  # fmt: skip
    at_place: dict[int, list[int]] = defaultdict(list)
    for lane in lanes:
        at_place[access.addresses[lane]].append(lane)
    x0 = [access.addresses[lane] % LINE_BYTES for lane in lanes]
    height_of = {lane: TOP_PX + place[access.addresses[lane] // LINE_BYTES] * high for lane in lanes}
    tops, bottoms = [], []
    for lane in lanes:
        sharing = at_place[access.addresses[lane]]
        top, each = height_of[lane], (high - gap) / len(sharing)
        tops.append(top + sharing.index(lane) * each)
        bottoms.append(top + (sharing.index(lane) + 1) * each)
    items.append(
        rects(x0, [x + size for x in x0], tops, bottoms, list(lanes), LANE_COLOURS, inset=0.5,
              lane=list(lanes), at=list(range(len(lanes))), say=[["at", [say[lane] for lane in lanes]]])
    )  # fmt: skip
    alone = [lane for lane in lanes if len(at_place[access.addresses[lane]]) == 1 and high > 12]
    middle = [access.addresses[lane] % LINE_BYTES + size / 2 for lane in alone]
    across = [
        TOP_PX + place[access.addresses[lane] // LINE_BYTES] * high + (high - gap) / 2 for lane in alone
    ]
    heads = [f"bytes {32 * s}–{32 * s + 31}\n{32 * s}–{32 * s + 31}" for s in range(4)]
    step = -(-13 // high)
    shown = [(TOP_PX + at * high + high / 2 - 1, f"+{LINE_BYTES * (line - lines[0]):,}")
             for at, line in enumerate(lines) if at % step == 0]  # fmt: skip
    items += [
        labels(middle, across, [str(lane) for lane in alone], anchor="middle", colour="on-lane", size=10,
               room=[size * 1.25] * len(alone)),
        labels([32 * s + 16 for s in range(4)], [7] * 4, heads, anchor="middle", colour="muted", size=10.5,
               room=[32] * 4),
        y_ticks([y for y, _ in shown], [text for _, text in shown], (0, LINE_BYTES)),
    ]  # fmt: skip
    height = TOP_PX + high * max(1, len(lines)) + 2
    return plot(height, (0, LINE_BYTES), *items, label="Lines and sectors", left=LEFT_PX, right=2)


def banks_plot(access: Access, say: list[str]) -> Box:
    """The 32 banks, their words stacked pass by pass; what a conflict adds has a ground of its own."""
    passed, pieces = access.banks().passes, access.pieces()
    rows = max(1, passed)
    high = row_px(rows)
    gap = 2 if high > 10 else 1
    extra = {piece.row for piece in pieces if piece.depth}
    items = []
    for conflict, colour in ((False, "grid"), (True, "error-bg")):
        found = [(r, bank) for r in range(rows) if (r in extra) is conflict for bank in range(BANKS)]
        items.append(
            rects([bank for _, bank in found], [bank + 1 for _, bank in found],
                  [TOP_PX + r * high for r, _ in found], [TOP_PX + r * high + high - gap for r, _ in found],
                  colour, inset=0.5)
        )  # fmt: skip
    sharing: dict[tuple[int, int], list[int]] = defaultdict(list)
    for piece in pieces:
        sharing[piece.row, piece.bank].append(piece.lane)
    x0, x1, tops, bottoms, lanes = [], [], [], [], []
    for piece in sorted(pieces, key=lambda each: each.lane):
        same = sharing[piece.row, piece.bank]
        each = (high - gap) / len(same)
        top = TOP_PX + piece.row * high + same.index(piece.lane) * each
        x0.append(piece.bank)
        x1.append(piece.bank + piece.banks)
        tops.append(top)
        bottoms.append(top + each)
        lanes.append(piece.lane)
    alone = [at for at, (top, bottom) in enumerate(zip(tops, bottoms, strict=True)) if bottom - top > 10]
    step = -(-13 // high)
    marked = range(0, BANKS, 4)
    passes = [r for r in range(passed) if r % step == 0]
    items += [
        rects(x0, x1, tops, bottoms, lanes, LANE_COLOURS, inset=0.5, lane=lanes, at=list(range(len(lanes))),
              say=[["at", [say[lane] for lane in lanes]]]),
        labels([(x0[at] + x1[at]) / 2 for at in alone], [(tops[at] + bottoms[at]) / 2 for at in alone],
               [str(lanes[at]) for at in alone], anchor="middle", colour="on-lane", size=10,
               room=[1.25 * (x1[at] - x0[at]) for at in alone]),
        labels([bank + 0.5 for bank in marked], [7] * 8, [str(bank) for bank in marked],
               anchor="middle", colour="muted", size=10.5),
        *(labels([0] * len(found), [TOP_PX + r * high + high / 2 - 1 for r in found],
                 [f"pass {r + 1}" for r in found], anchor="end", dx=-5, pin=True, colour=colour)
          for found, colour in (([r for r in passes if r not in extra], "fg"),
                                ([r for r in passes if r in extra], "tail-text"))),
    ]  # fmt: skip
    return plot(TOP_PX + high * rows + 2, (0, BANKS), *items, label="Banks", left=LEFT_PX, right=2)


def _figures(figures: list[words.Figure]) -> Box:
    """Figures in large type, side by side."""
    places, across = list(range(len(figures))), len(figures)
    large = [
        labels([at], [14], [figure.value], size=24, weight="bold",
               colour="tail-text" if figure.over else "good-text")
        for at, figure in enumerate(figures)
    ]  # fmt: skip
    small = [
        labels(places, [35] * across, [figure.term for figure in figures], weight="bold"),
        labels(places, [49] * across, [figure.detail for figure in figures], colour="muted", size=10.5),
    ]
    return plot(58, (0, max(3, across)), *large, *small, label="Figures", left=0, right=0)


def draw(access: Access, memory: bool, banks: bool) -> Box:
    """The whole picture on paper."""
    say = words.lane_sentences(access, memory, banks)
    panels = []
    if memory:
        figures = _figures(words.memory_figures(access))
        unused = legend([("muted", UNUSED)])
        heading = CONSTANT_HEADING if access.space == "const" else MEMORY_HEADING
        panels.append(column(paragraph(heading, "heading"), figures, memory_plot(access, say), unused))
    if banks:
        figures = _figures(words.bank_figures(access))
        extra = legend([("error-bg", EXTRA)])
        panels.append(column(paragraph(BANKS_HEADING, "heading"), figures, banks_plot(access, say), extra))
    note = words.notes(access, memory, banks)
    return column(
        lanes_plot(access, say), row(*panels, least=[320] * len(panels)),
        paragraph(note, "note") if note else None, gap=8,
    )  # fmt: skip
