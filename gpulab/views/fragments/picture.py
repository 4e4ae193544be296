"""The plots of the fragment view: matrices with lanes and registers, and their bytes in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpulab.views.fragments.fragment_text import make_cell_texts, make_matrix_title, name_matrix
from gpulab.views.parts.boxes import Box, Plot, column, row
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Rects
from gpulab.views.parts.plots import make_labels, make_rects, make_y_ticks, plot
from virtualgpu.records import WARP_SIZE
from virtualgpu.records.access import BANKS, WORD_BYTES
from virtualgpu.records.fragments import KIND_BITS, FragmentTrace, Matrix, MatrixExecution
from virtualgpu.records.kernel import LINE_BYTES

LANE_PX = 24
TOP_MARGIN_PX = 16
LEFT_MARGIN_PX = 20
MEMORY_LEFT_PX = 52
MATRIX_PX = 192
MEMORY_PX = 200
MIN_CELL_PX = 11
MAX_CELL_PX = 17
LABEL_FONT_PX = 10
PICTURE_FONT_PX = 9  # in the static picture, whose letters are wider
LANES_PER_GROUP = 4
VECTOR_BYTES = 16
GROUP_COLOURS = [f"lane-{lane}" for lane in range(0, WARP_SIZE, LANES_PER_GROUP)]
MEMORY_HEADING = (
    "Shared memory: lines of 128 bytes over the 32 banks. "
    "Labels are row: columns (or rows: column) of a matrix."
)
ACCESS_HEADING = "Shared memory: lines of 128 bytes over the 32 banks, with the lane that accesses each part"
PASS_NOTE = "A frame marks bytes that need another pass through the banks: a bank conflict."


@dataclass(frozen=True, slots=True)
class ByteRun:
    """A range of adjacent bytes in shared memory. The range contains elements of one matrix row or column, or
    the bytes of one lane.
    """

    address: int
    size_bytes: int
    text: str
    is_conflict: bool


def find_drawn_matrices(trace: FragmentTrace, execution: MatrixExecution) -> list[int]:
    """Return the indices of the matrices that the picture shows. The accumulator of a multiplication is drawn
    only once, as matrix d.
    """
    matrices = trace.of(execution).matrices
    is_product = trace.of(execution).role == "multiply"
    return [index for index, matrix in enumerate(matrices) if not (is_product and matrix.name == "c")]


def draw_lanes() -> Plot:
    """Return a plot of the 32 lanes of a warp. Each lane has the colour of its group."""
    lanes = range(WARP_SIZE)
    return plot(
        LANE_PX,
        (0, WARP_SIZE),
        make_rects(
            [(lane, lane + 1, 0, LANE_PX, lane // LANES_PER_GROUP) for lane in lanes],
            GROUP_COLOURS,
            inset=1,
            columns={"lane": [*lanes]},
            say=["lane ", ["lane"]],
        ),
        make_labels(
            [(lane + 0.5, LANE_PX / 2, str(lane), 1.3) for lane in lanes], colour="on-lane", weight="bold"
        ),
        label="The 32 lanes of the warp",
        left=0,
        right=0,
    )


def compute_cell_px(rows: int) -> int:
    """Return the height in pixels of a row of a matrix."""
    return max(MIN_CELL_PX, min(MAX_CELL_PX, MATRIX_PX // rows))


def draw_matrix(matrix: Matrix) -> Plot:
    """Return a plot of a matrix. Its cells are ordered by element and lane."""
    cell_height = compute_cell_px(matrix.rows)
    elements, lanes = matrix.row.shape
    element, lane = (axis.ravel() for axis in np.indices((elements, lanes)))
    element_rows, element_columns = matrix.row.ravel(), matrix.column.ravel()
    cell_rects = Rects(
        element_columns.astype(np.uint8),
        (element_columns + 1).astype(np.uint8),
        (TOP_MARGIN_PX + element_rows * cell_height).astype(np.uint16),
        (TOP_MARGIN_PX + (element_rows + 1) * cell_height - 1).astype(np.uint16),
        (lane // LANES_PER_GROUP).astype(np.uint8),
        GROUP_COLOURS,
        inset=0.5,
        columns={
            "row": element_rows.astype(np.uint8),
            "column": element_columns.astype(np.uint8),
            "lane": lane.astype(np.uint8),
            "element": element.astype(np.uint8),
        },
        say=["row ", ["row"], ", column ", ["column"], ", lane ", ["lane"]],
    )
    label_step = max(1, -(-12 // cell_height))
    row_labels = range(0, matrix.rows, label_step)
    column_range = (0.0, float(matrix.columns))
    return plot(
        TOP_MARGIN_PX + cell_height * matrix.rows + 1,
        column_range,
        cell_rects,
        make_labels(
            [(number + 0.5, 8, str(number), 1.4) for number in range(matrix.columns)],
            colour="muted",
            size=LABEL_FONT_PX,
        ),
        make_y_ticks(
            [TOP_MARGIN_PX + cell_height * (number + 0.5) for number in row_labels],
            [*map(str, row_labels)],
            column_range,
        ),
        label=f"{make_matrix_title(matrix)}, with the lane of each element",
        left=LEFT_MARGIN_PX,
        right=0,
    )


def find_byte_runs(trace: FragmentTrace, execution: MatrixExecution) -> list[ByteRun]:
    """Return the ranges of adjacent bytes in shared memory that a matrix instruction loads or stores, with
    labels.
    """
    instruction = trace.of(execution)
    pieces = [piece for access in trace.accesses(execution) for piece in access.pieces()]
    piece_of_lane = {piece.lane: piece for piece in pieces} if instruction.rule == "matrix" else {}
    if instruction.role == "access":
        (access,) = trace.accesses(execution)
        return [
            ByteRun(
                access.addresses[piece.lane],
                access.size_bytes,
                _make_label(f"lane {piece.lane}\n{piece.lane}", piece.row, bool(piece.depth)),
                bool(piece.depth),
            )
            for piece in pieces
        ]
    byte_runs = []
    indices = [
        index for index in find_drawn_matrices(trace, execution) if (execution.address[index] >= 0).any()
    ]
    for index in indices:
        matrix = instruction.matrices[index]
        prefix = f"{name_matrix(matrix)} " if len(indices) > 1 else ""
        element_bytes = KIND_BITS[matrix.kind] // 8
        for cell_indices in _group_neighbours(execution.address[index].ravel(), matrix, element_bytes):
            matrix_rows, matrix_columns = (
                np.unique(axis.ravel()[cell_indices]).tolist() for axis in (matrix.row, matrix.column)
            )
            short_label = f"{_format_interval(matrix_rows)}: {_format_interval(matrix_columns)}"
            address = int(execution.address[index].ravel()[cell_indices[0]])
            # Lane 8m + r of ldmatrix passes the address of row r of matrix m.
            piece = piece_of_lane.get(8 * index + matrix_rows[0])
            run_label = f"{prefix}{short_label}\n{short_label}" if prefix else short_label
            is_conflict = piece is not None and bool(piece.depth)
            if piece is not None:
                run_label = _make_label(run_label, piece.row, is_conflict)
            byte_runs.append(ByteRun(address, element_bytes * len(cell_indices), run_label, is_conflict))
    return byte_runs


def _make_label(text: str, pass_row: int, is_conflict: bool) -> str:
    """Return the label of a byte run. If it waits for another run, a longer form with the number of its pass
    is added.
    """
    return f"{text.splitlines()[0]} · pass {pass_row + 1}\n{text}" if is_conflict else text


def _format_interval(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"


def _group_neighbours(address: npt.NDArray[np.int64], matrix: Matrix, size: int) -> list[list[int]]:
    """Return groups of cells that are next to each other in memory, and in one row or column of a matrix."""
    rows, columns = matrix.row.ravel(), matrix.column.ravel()
    cell_groups: list[list[int]] = []
    for cell in np.argsort(address, kind="stable").tolist():
        if address[cell] < 0:
            continue
        if cell_groups:
            last_cell = cell_groups[-1][-1]
            first_cell = cell_groups[-1][0]
            if address[cell] == address[last_cell]:
                continue  # another lane has passed the address of the same row
            is_adjacent = address[cell] == address[last_cell] + size
            is_in_vector = address[cell] // VECTOR_BYTES == address[first_cell] // VECTOR_BYTES
            is_in_line = (
                rows[cell] == rows[first_cell] == rows[last_cell]
                or columns[cell] == columns[first_cell] == columns[last_cell]
            )
            if is_adjacent and is_in_vector and is_in_line:
                cell_groups[-1].append(cell)
                continue
        cell_groups.append([cell])
    return cell_groups


def draw_memory(trace: FragmentTrace, execution: MatrixExecution) -> Plot | None:
    """Return a plot of the lines of shared memory that contain the matrix elements, or None if there are
    none.
    """
    instruction = trace.of(execution)
    tiles = _make_tiles(trace, execution)
    if not len(tiles["address"]):
        return None
    address = tiles["address"]
    tile_bytes = tiles["size"]
    line_numbers = np.unique(
        np.concatenate([address // LINE_BYTES, (address + tile_bytes - 1) // LINE_BYTES])
    )
    height = max(MIN_CELL_PX, min(MAX_CELL_PX, MEMORY_PX // line_numbers.size))
    line_tops = TOP_MARGIN_PX + height * np.searchsorted(line_numbers, address // LINE_BYTES)
    x = address % LINE_BYTES
    cells = Rects(
        x.astype(np.uint8),
        (x + tile_bytes).astype(np.uint8),
        line_tops.astype(np.uint16),
        (line_tops + height - 1).astype(np.uint16),
        (tiles["lane"] // LANES_PER_GROUP).astype(np.uint8),
        GROUP_COLOURS,
        columns={name: tiles[name].astype(np.uint8) for name in ("lane", "matrix", "element")},
        say=["lane ", ["lane"]],
    )
    run_labels = []
    frames_by_conflict: dict[bool, list[tuple[float, ...]]] = {False: [], True: []}
    for run in find_byte_runs(trace, execution):
        start_byte = run.address % LINE_BYTES
        y = TOP_MARGIN_PX + height * int(np.searchsorted(line_numbers, run.address // LINE_BYTES))
        run_labels.append(
            (start_byte + run.size_bytes / 2, y + height / 2 - 0.5, run.text, run.size_bytes + 0.8)
        )
        frames_by_conflict[run.is_conflict].append(
            (start_byte, start_byte + run.size_bytes, y, y + height - 1, 0)
        )
    column_range = (0.0, float(LINE_BYTES))
    tick_step = max(1, -(-13 // height))
    shown_lines = [*range(0, line_numbers.size, tick_step)]
    heading = "The lanes of an access" if instruction.role == "access" else "The elements"
    return plot(
        TOP_MARGIN_PX + height * int(line_numbers.size) + 1,
        column_range,
        _draw_line_backgrounds(int(line_numbers.size), height),
        cells,
        make_rects(frames_by_conflict[False], ["bg"], outline=True) if frames_by_conflict[False] else None,
        make_labels(run_labels, colour="on-lane", size=LABEL_FONT_PX),
        make_rects(frames_by_conflict[True], ["error"], outline=True) if frames_by_conflict[True] else None,
        make_labels(
            [(16 * n + 8, 8, f"banks {4 * n}–{4 * n + 3}\n{4 * n}–{4 * n + 3}", 16) for n in range(8)],
            colour="muted",
            size=LABEL_FONT_PX,
        ),
        make_y_ticks(
            [TOP_MARGIN_PX + height * (n + 0.5) for n in shown_lines],
            [str(int(line_numbers[n]) * LINE_BYTES) for n in shown_lines],
            column_range,
        ),
        label=f"{heading} in shared memory",
        left=MEMORY_LEFT_PX,
        right=2,
    )


def _draw_line_backgrounds(lines: int, height: int) -> Rects:
    """Return rectangles for the banks in a number of lines of shared memory, as a background."""
    line, bank = (axis.ravel() for axis in np.indices((lines, BANKS)))
    return Rects(
        (bank * WORD_BYTES).astype(np.uint8),
        ((bank + 1) * WORD_BYTES).astype(np.uint8),
        (TOP_MARGIN_PX + height * line).astype(np.uint16),
        (TOP_MARGIN_PX + height * (line + 1) - 1).astype(np.uint16),
        np.zeros(line.size, np.uint8),
        ["grid"],
        inset=0.5,
    )


def _make_tiles(trace: FragmentTrace, execution: MatrixExecution) -> dict[str, npt.NDArray[np.int64]]:
    """Return the address, size, lane, matrix and element of each part of shared memory that is drawn, as
    columns.
    """
    tile_parts: list[tuple[npt.NDArray[np.int64], int, int]] = []
    instruction = trace.of(execution)
    if instruction.role == "access":
        tile_parts = [(execution.lane_address, instruction.size_bytes, 0)]
    else:
        tile_parts = [
            (execution.address[index], KIND_BITS[instruction.matrices[index].kind] // 8, index)
            for index in find_drawn_matrices(trace, execution)
        ]
    tile_columns: dict[str, list[npt.NDArray[np.int64]]] = {
        name: [] for name in ("address", "size", "lane", "matrix", "element")
    }
    for address, tile_bytes, index in tile_parts:
        element, lane = np.nonzero(address >= 0)
        tile_columns["address"].append(address[element, lane])
        tile_columns["size"].append(np.full(lane.size, tile_bytes))
        tile_columns["lane"].append(lane)
        tile_columns["matrix"].append(np.full(lane.size, index))
        tile_columns["element"].append(element)
    return {
        name: np.concatenate([*arrays, np.zeros(0, np.int64)]).astype(np.int64)
        for name, arrays in tile_columns.items()
    }


def add_texts(box: Plot, cell_labels: list[str], lane: int) -> Plot:
    """Return a plot of a matrix with the texts of its cells. The cells of the given lane are inverted."""
    cells = box.items[0]
    assert isinstance(cells, Rects)
    is_of_lane = np.asarray(cells.columns["lane"]) == lane
    x0, x1, y0, y1 = (np.asarray(axis).tolist() for axis in (cells.x0, cells.x1, cells.y0, cells.y1))
    text_positions = [
        ((left_x + right_x) / 2, (top_y + bottom_y) / 2, cell_text, 1.25)
        for left_x, right_x, top_y, bottom_y, cell_text in zip(x0, x1, y0, y1, cell_labels, strict=True)
    ]
    inverted_cells = [(x0[n], x1[n], y0[n], y1[n], 0) for n in np.flatnonzero(is_of_lane).tolist()]
    label_items = [
        make_labels(
            [
                label
                for label, is_inverted in zip(text_positions, is_of_lane, strict=True)
                if bool(is_inverted) is is_inverted_group
            ],
            colour=colour,
            size=PICTURE_FONT_PX,
        )
        for is_inverted_group, colour in ((False, "on-lane"), (True, "bg"))
    ]
    return _replace_items(box, [*box.items, make_rects(inverted_cells, ["fg"], inset=0.5), *label_items])


def add_lane_outlines(box: Plot, lane: int) -> Plot:
    """Add the outlines of one lane's bytes to a plot of shared memory."""
    cells = box.items[1]
    assert isinstance(cells, Rects)
    x0, x1, y0, y1 = (np.asarray(axis).tolist() for axis in (cells.x0, cells.x1, cells.y0, cells.y1))
    lane_cells = np.flatnonzero(np.asarray(cells.columns["lane"]) == lane).tolist()
    return _replace_items(
        box,
        [*box.items, make_rects([(x0[n], x1[n], y0[n], y1[n], 0) for n in lane_cells], ["fg"], outline=True)],
    )


def _replace_items(box: Plot, items: list[Item]) -> Plot:
    return Plot(box.height, box.domain, box.left, box.right, box.label, box.zoom, items)


def draw(trace: FragmentTrace, execution: MatrixExecution, lane: int, shown: str, sentence: str) -> Box:
    """Return the static picture of one matrix instruction, with its matrices, a sentence about a lane, and
    shared memory.
    """
    indexed_matrices = [
        (index, trace.of(execution).matrices[index]) for index in find_drawn_matrices(trace, execution)
    ]
    panel_boxes = [
        column(
            paragraph(make_matrix_title(matrix), "heading"),
            add_texts(draw_matrix(matrix), make_cell_texts(execution, index, matrix, shown), lane),
            gap=2,
        )
        for index, matrix in indexed_matrices
    ]
    memory_plot = draw_memory(trace, execution)
    is_access = not indexed_matrices
    return column(
        row(
            *panel_boxes,
            weights=[matrix.columns + 1 for _, matrix in indexed_matrices],
            least=[60] * len(panel_boxes),
            gap=12,
        )
        if panel_boxes
        else None,
        paragraph(sentence, "plain"),
        paragraph(ACCESS_HEADING if is_access else MEMORY_HEADING, "heading") if memory_plot else None,
        add_lane_outlines(memory_plot, lane) if memory_plot else None,
        paragraph(PASS_NOTE, "note")
        if memory_plot and any(run.is_conflict for run in find_byte_runs(trace, execution))
        else None,
        gap=6,
    )
