"""The picture of one access: lanes, sectors of memory, and banks. ``picture.js`` draws the same picture."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gpulab.views.access import access_text
from gpulab.views.parts.boxes import Box, column, legend, row
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Labels
from gpulab.views.parts.plots import make_labels, make_rects, make_y_ticks, plot
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE
from virtualgpu.records.access import BANKS, Access
from virtualgpu.records.kernel import LINE_BYTES

LEFT_MARGIN_PX = 62
TOP_MARGIN_PX = 16
LANE_PX = 26
ROWS_PX = 224
MIN_ROW_PX = 7
MAX_ROW_PX = 40
LANE_COLOURS = [f"lane-{lane}" for lane in range(WARP_SIZE)]
MEMORY_HEADING = "Memory: lines of 128 bytes, each four sectors of 32"
CONSTANT_HEADING = "Constant memory: one word at a time, returned to all lanes that use it"
BANKS_HEADING = "Shared memory: 32 banks of 4 bytes, pass by pass"
UNUSED_TEXT = "fetched, but not requested"
EXTRA_PASS_TEXT = "extra pass: bank conflict"


def compute_row_px(rows: int) -> int:
    """Return the height of a row in pixels, which is smaller if the picture has many rows."""
    return max(MIN_ROW_PX, min(MAX_ROW_PX, ROWS_PX // max(1, rows)))


def _make_lane_args(lanes: list[int], sentences: list[str], inset_px: float) -> dict[str, Any]:
    """Return the arguments of a plot item in which each rectangle belongs to a lane and shows the lane's
    sentence.
    """
    sentence_indices = [*range(len(lanes))]
    lane_texts = [sentences[lane] for lane in lanes]
    return {
        "inset": inset_px,
        "columns": {"lane": lanes, "at": sentence_indices},
        "say": [["at", lane_texts]],
    }


def draw_lanes(access: Access, sentences: list[str]) -> Box:
    """Return a plot of the 32 lanes of a warp. Inactive lanes are grey."""
    lanes = [*range(WARP_SIZE)]
    lane_boxes = [(lane, lane + 1, 0, LANE_PX, lane if lane in access.lanes else WARP_SIZE) for lane in lanes]
    lane_labels = [(lane in access.lanes, (lane + 0.5, LANE_PX / 2, str(lane), 1.3)) for lane in lanes]
    plot_items = [
        make_rects(lane_boxes, [*LANE_COLOURS, "grid"], **_make_lane_args(lanes, sentences, 1)),
        make_labels(
            [label for is_active, label in lane_labels if is_active], colour="on-lane", weight="bold"
        ),
        make_labels([label for is_active, label in lane_labels if not is_active], colour="muted"),
    ]
    return plot(LANE_PX, (0, WARP_SIZE), *plot_items, label="The 32 lanes of the warp", left=0, right=0)


def draw_memory(access: Access, sentences: list[str]) -> Box:
    """Return a plot of the cache lines of a memory access. The bytes have the colours of their lanes.

    The other bytes of the transferred sectors are hatched.
    """
    lanes = access.lanes
    size_bytes = access.size_bytes
    addresses = access.addresses
    line_numbers = sorted({addresses[lane] // LINE_BYTES for lane in lanes})
    touched_sectors = {addresses[lane] // SECTOR_BYTES for lane in lanes}
    row_height = compute_row_px(len(line_numbers))
    cell_height = row_height - (2 if row_height > 10 else 1)
    top_of_line = {line: TOP_MARGIN_PX + index * row_height for index, line in enumerate(line_numbers)}
    sector_boxes: dict[bool, list[tuple[int, ...]]] = {True: [], False: []}
    for line, line_top in top_of_line.items():
        for sector in range(LINE_BYTES // SECTOR_BYTES):
            sector_box = (
                SECTOR_BYTES * sector,
                SECTOR_BYTES * (sector + 1),
                line_top,
                line_top + cell_height,
                0,
            )
            sector_boxes[line * 4 + sector in touched_sectors].append(sector_box)
    lanes_at_address: dict[int, list[int]] = defaultdict(list)
    for lane in lanes:
        lanes_at_address[addresses[lane]].append(lane)
    lane_boxes = []
    lane_labels = []
    for lane in lanes:
        line, line_offset = divmod(addresses[lane], LINE_BYTES)
        sharing_lanes = lanes_at_address[addresses[lane]]
        line_top = top_of_line[line]
        lane_height = cell_height / len(sharing_lanes)
        lane_position = sharing_lanes.index(lane)
        lane_boxes.append(
            (
                line_offset,
                line_offset + size_bytes,
                line_top + lane_position * lane_height,
                line_top + (lane_position + 1) * lane_height,
                lane,
            )
        )
        if len(sharing_lanes) == 1 and row_height > 12:
            lane_labels.append(
                (line_offset + size_bytes / 2, line_top + cell_height / 2, str(lane), size_bytes * 1.25)
            )
    line_labels = [
        (line_top + row_height / 2 - 1, f"+{LINE_BYTES * (line - line_numbers[0]):,}")
        for line, line_top in top_of_line.items()
    ]
    line_labels = line_labels[:: -(-13 // row_height)]
    plot_items = [
        make_rects(sector_boxes[True], ["muted"], inset=1, hatch=True),
        make_rects(sector_boxes[False], ["grid"], inset=1),
        make_rects(lane_boxes, LANE_COLOURS, **_make_lane_args([*lanes], sentences, 0.5)),
        make_labels(lane_labels, colour="on-lane", size=10),
        make_labels(
            [
                (sector + 16, 7, f"bytes {sector}–{sector + 31}\n{sector}–{sector + 31}", 32)
                for sector in (0, 32, 64, 96)
            ],
            colour="muted",
            size=10.5,
        ),
        make_y_ticks([y for y, _ in line_labels], [text for _, text in line_labels], (0, LINE_BYTES)),
    ]
    plot_height = TOP_MARGIN_PX + row_height * max(1, len(line_numbers)) + 2
    return plot(
        plot_height, (0, LINE_BYTES), *plot_items, label="Lines and sectors", left=LEFT_MARGIN_PX, right=2
    )


def draw_banks(access: Access, sentences: list[str]) -> Box:
    """Return a plot of the 32 shared-memory banks in each pass. Passes due to a bank conflict have another
    background.
    """
    pass_count = access.banks().passes
    access_pieces = access.pieces()
    pass_rows = range(max(1, pass_count))
    row_height = compute_row_px(len(pass_rows))
    cell_height = row_height - (2 if row_height > 10 else 1)
    conflict_rows = {piece.row for piece in access_pieces if piece.depth}
    lanes_of_bank: dict[tuple[int, int], list[int]] = defaultdict(list)
    for piece in access_pieces:
        lanes_of_bank[piece.row, piece.bank].append(piece.lane)
    lane_boxes = []
    for piece in sorted(access_pieces, key=lambda access_piece: access_piece.lane):
        sharing_lanes = lanes_of_bank[piece.row, piece.bank]
        piece_top = (
            TOP_MARGIN_PX
            + piece.row * row_height
            + sharing_lanes.index(piece.lane) * (cell_height / len(sharing_lanes))
        )
        lane_boxes.append(
            (
                piece.bank,
                piece.bank + piece.banks,
                piece_top,
                piece_top + cell_height / len(sharing_lanes),
                piece.lane,
            )
        )
    sector_boxes = {
        is_conflict: [
            (
                bank,
                bank + 1,
                TOP_MARGIN_PX + pass_row * row_height,
                TOP_MARGIN_PX + pass_row * row_height + cell_height,
                0,
            )
            for pass_row in pass_rows
            if (pass_row in conflict_rows) is is_conflict
            for bank in range(BANKS)
        ]
        for is_conflict in (False, True)
    }
    lane_labels = [
        ((x0 + x1) / 2, (y0 + y1) / 2, str(lane), 1.25 * (x1 - x0))
        for x0, x1, y0, y1, lane in lane_boxes
        if y1 - y0 > 10
    ]
    pass_labels = [
        (pass_row, (0, TOP_MARGIN_PX + pass_row * row_height + row_height / 2 - 1, f"pass {pass_row + 1}", 0))
        for pass_row in range(0, pass_count, -(-13 // row_height))
    ]
    plot_items = [
        make_rects(sector_boxes[False], ["grid"], inset=0.5),
        make_rects(sector_boxes[True], ["error-bg"], inset=0.5),
        make_rects(
            lane_boxes,
            LANE_COLOURS,
            **_make_lane_args([lane_box[4] for lane_box in lane_boxes], sentences, 0.5),
        ),
        make_labels(lane_labels, colour="on-lane", size=10),
        make_labels(
            [(bank + 0.5, 7, str(bank), 0) for bank in range(0, BANKS, 4)],
            colour="muted",
            size=10.5,
            room=None,
        ),
        *(
            make_labels(
                [label for pass_row, label in pass_labels if (pass_row in conflict_rows) is is_conflict],
                room=None,
                anchor="end",
                dx=-5,
                pin=True,
                colour=colour,
            )
            for is_conflict, colour in ((False, "fg"), (True, "tail-text"))
        ),
    ]
    return plot(
        TOP_MARGIN_PX + row_height * len(pass_rows) + 2,
        (0, BANKS),
        *plot_items,
        label="Banks",
        left=LEFT_MARGIN_PX,
        right=2,
    )


def _draw_figures(figures: list[access_text.CostFigure]) -> Box:
    """Return a plot of numbers in large type, side by side."""
    column_positions = list(range(len(figures)))
    column_count = len(figures)
    value_labels = [
        Labels(
            [index],
            [14],
            [figure.value],
            size=24,
            weight="bold",
            colour="tail-text" if figure.is_excessive else "good-text",
        )
        for index, figure in enumerate(figures)
    ]
    text_labels = [
        Labels(column_positions, [35] * column_count, [figure.term for figure in figures], weight="bold"),
        Labels(
            column_positions,
            [49] * column_count,
            [figure.detail for figure in figures],
            colour="muted",
            size=10.5,
        ),
    ]
    return plot(58, (0, max(3, column_count)), *value_labels, *text_labels, label="Figures", left=0, right=0)


def draw(access: Access, shows_memory: bool, shows_banks: bool) -> Box:
    """Return the static picture of a memory access with its lanes, sectors, banks and notes."""
    sentences = access_text.make_lane_sentences(access, shows_memory, shows_banks)
    panel_boxes = []
    if shows_memory:
        figures_plot = _draw_figures(access_text.make_memory_figures(access))
        unused_legend = legend([("muted", UNUSED_TEXT)])
        memory_heading = CONSTANT_HEADING if access.space == "const" else MEMORY_HEADING
        panel_boxes.append(
            column(
                paragraph(memory_heading, "heading"),
                figures_plot,
                draw_memory(access, sentences),
                unused_legend,
            )
        )
    if shows_banks:
        figures_plot = _draw_figures(access_text.make_bank_figures(access))
        extra_legend = legend([("error-bg", EXTRA_PASS_TEXT)])
        panel_boxes.append(
            column(
                paragraph(BANKS_HEADING, "heading"), figures_plot, draw_banks(access, sentences), extra_legend
            )
        )
    note_text = access_text.explain_rules(access, shows_memory, shows_banks)
    return column(
        draw_lanes(access, sentences),
        row(*panel_boxes, least=[320] * len(panel_boxes)),
        paragraph(note_text, "note") if note_text else None,
        gap=8,
    )
