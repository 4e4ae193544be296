"""Figures of notebook 18: fragments, a tile in the banks of shared memory, a pipeline, and recorded times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gpulab import session
from gpulab.views.tables import Table
from gpulab.words import count as count_of
from gpulab_course.content.n18_tensor_cores.versions import VERSIONS
from gpulab_course.content.ranges import among as among
from gpulab_course.teach.drawing import draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Provenance

_REGISTER_COLOURS = ("accent-2", "highlight", "good", "purple", "warn", "tail", "accent", "panel")


def positions(element_numbers: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Return the lane and the register that hold each element of a matrix.

    Parameters
    ----------
    element_numbers
        The numbers of the elements (row by row) that each register of each lane holds, with the shape
        (registers, lanes) or, with several elements per register, (registers, lanes, elements).
    shape
        The rows and columns of the matrix.
    """
    registers, lanes = (index_array.ravel() for index_array in np.indices(element_numbers.shape)[:2])
    lane_of = np.empty(shape, np.int64)
    register_of = np.empty(shape, np.int64)
    lane_of.flat[element_numbers.ravel()] = lanes
    register_of.flat[element_numbers.ravel()] = registers
    return lane_of, register_of


def fragments(lanes_and_registers: Mapping[str, tuple[Any, Any]], lane: int = 5) -> Picture:
    """Draw matrices in which each element shows its lane as a number and its register as a colour.

    Parameters
    ----------
    lanes_and_registers
        The lanes and the registers of the elements of each matrix, by the name of the matrix.
    lane
        The lane whose elements have a bold frame.
    """
    total_columns = sum(lanes.shape[1] + 2 for lanes, _ in lanes_and_registers.values())
    max_row_count = max(lanes.shape[0] for lanes, _ in lanes_and_registers.values())
    figure, axes = make_empty_axes(
        0.24 * max_row_count + 0.85, (-1.5, total_columns - 1), (-2.2, max_row_count + 2.2)
    )
    left_x = 0
    for matrix_name, (lanes, registers) in lanes_and_registers.items():
        row_count, column_count = lanes.shape
        draw_text(axes, left_x, -1.2, f"{matrix_name}: {row_count} × {column_count}", weight="bold")
        for row, column in np.ndindex(row_count, column_count):
            colour = _REGISTER_COLOURS[registers[row, column]]
            draw_box(
                axes,
                left_x + column,
                row,
                1,
                1,
                colour,
                str(lanes[row, column]),
                edge_colour="bg",
                fontsize=7.5,
            )
        for row, column in np.argwhere(lanes == lane):
            draw_box(
                axes, left_x + column, row, 1, 1, "bg", edge_colour="fg", linewidth=2, fill=False, zorder=3
            )
        left_x += column_count + 2
    _draw_register_key(
        axes,
        max_row_count + 1.2,
        1 + max(int(registers.max()) for _, registers in lanes_and_registers.values()),
    )
    element_texts = [
        f"{matrix_name}: " + _list_elements(np.argwhere(lanes == lane).tolist())
        for matrix_name, (lanes, _) in lanes_and_registers.items()
    ]
    return Picture.of(
        figure,
        f"The lane of each element as a number, its register as a colour. Lane {lane} has elements of "
        + "; of ".join(element_texts)
        + ".",
    )


def _draw_register_key(axes: Axes, y: float, register_count: int) -> None:
    for register in range(register_count):
        x = 4.6 * register
        draw_box(axes, x, y, 1, 0.9, _REGISTER_COLOURS[register], edge_colour="bg")
        draw_text(axes, x + 1.3, y + 0.45, f"register {register}", "muted", fontsize=8)


def _list_elements(elements: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"({row}, {column})" for row, column in elements)


def missing() -> str:
    """Return a sentence about the instructions that the device in use lacks, and their replacement."""
    major, minor = session.backend().device_info().compute_capability
    device_name = session.which_device().device
    if (major, minor) >= (8, 0):
        return f"{device_name} has all instructions of this notebook."
    return (
        f"{device_name} (compute capability {major}.{minor}) has no mma.m16n8k16 and no cp.async.\n"
        "The kernels of this notebook use two mma.m16n8k8 instead, and copy through registers."
    )


def executed() -> Provenance:
    """Return the provenance of results that were computed on the device in use."""
    device = session.which_device()
    device_name = device.device if device.kind == "cuda" else f"virtual {device.device}"
    return Provenance("measured" if device.kind == "cuda" else "modelled", device_name)


_BANKS = 32
_VECTOR_WORDS = 4


def banks(positions_by_tile: Mapping[str, Any], column: int = 0) -> Picture:
    """Draw the first eight rows of tiles in shared memory, with the vectors that ``ldmatrix`` reads together.

    Parameters
    ----------
    positions_by_tile
        The position of each vector of 16 bytes in its tile, by the name of the tile, with the shape (rows,
        vectors per row). Position 0 is at the start of bank 0.
    column
        The vector of each row that is read.
    """
    bank_group_count = _BANKS // _VECTOR_WORDS
    place_width = bank_group_count + 2
    line_count = 1 + max(
        int(vector_slots[:8].max()) // bank_group_count for vector_slots in positions_by_tile.values()
    )
    figure, axes = make_empty_axes(
        0.25 * line_count + 0.9, (-1.6, place_width * len(positions_by_tile) - 1), (-2.1, line_count + 1.3)
    )
    conflict_ways = {}
    for place_index, (name, vector_slots) in enumerate(positions_by_tile.items()):
        left_x = place_width * place_index
        draw_text(axes, left_x, -1.5, name, weight="bold")
        draw_text(axes, left_x - 0.2, -0.6, "line", "muted", ha="right", fontsize=8)
        for bank_group in range(bank_group_count):
            bank_range_text = f"{bank_group * _VECTOR_WORDS}–{bank_group * _VECTOR_WORDS + 3}"
            draw_text(
                axes, left_x + bank_group + 0.5, -0.6, bank_range_text, "muted", ha="center", fontsize=7
            )
        read_bank_groups = []
        for row, vector in np.ndindex(8, vector_slots.shape[1]):
            line_number, bank_group = divmod(int(vector_slots[row, vector]), bank_group_count)
            is_read = vector == column
            colour = "warn" if is_read else "panel"
            draw_box(
                axes,
                left_x + bank_group,
                line_number,
                1,
                1,
                colour,
                f"{row}·{vector}",
                edge_colour="rule",
                fontsize=8,
            )
            if is_read:
                read_bank_groups.append(bank_group)
        for line_number in range(1 + int(vector_slots[:8].max()) // bank_group_count):
            draw_text(
                axes, left_x - 0.2, line_number + 0.5, str(line_number), "muted", ha="right", fontsize=8
            )
        conflict_ways[name] = max(np.bincount(read_bank_groups))
        conflict_note = f"at most {count_of(conflict_ways[name], 'marked vector')} in the same banks"
        draw_text(
            axes, left_x, 1.7 + int(vector_slots[:8].max()) // bank_group_count, conflict_note, fontsize=9
        )
    ways_text = "; ".join(
        f"{name}: at most {count_of(way_count, 'marked vector')} in the same banks"
        for name, way_count in conflict_ways.items()
    )
    return Picture.of(
        figure,
        "Rows 0 to 7 of a tile in shared memory. Each cell is a vector of 16 bytes, named row·vector; its "
        f"column shows its four banks. Marked are the eight vectors {column}, which ldmatrix reads at once. "
        f"{ways_text}.",
    )


def pipeline(
    tiles_and_buffers: Sequence[tuple[int, int]], pending_tiles: Sequence[Sequence[int]], buffer_count: int
) -> Picture:
    """Draw the buffers of a pipeline, with the buffers that a block reads and fills in each iteration.

    Parameters
    ----------
    tiles_and_buffers
        The tile and the buffer that are multiplied, for each iteration.
    pending_tiles
        The tiles whose copies are pending during each iteration.
    buffer_count
        The number of buffers.
    """
    iteration_count = len(tiles_and_buffers)
    figure, axes = make_empty_axes(
        0.5 * buffer_count + 1.1, (-2.6, iteration_count + 0.1), (-0.8, buffer_count + 0.9)
    )
    for iteration, (multiplied_tile, buffer) in enumerate(tiles_and_buffers):
        draw_text(axes, iteration + 0.5, -0.4, str(iteration), "muted", ha="center")
        draw_box(
            axes,
            iteration,
            buffer,
            1,
            0.85,
            "accent",
            f"multiply {multiplied_tile}",
            edge_colour="bg",
            fontsize=8,
        )
        for copied_tile in pending_tiles[iteration]:
            buffer_row = copied_tile % buffer_count
            draw_box(
                axes,
                iteration,
                buffer_row,
                1,
                0.85,
                "highlight",
                f"copy {copied_tile}",
                edge_colour="bg",
                fontsize=8,
            )
    for buffer in range(buffer_count):
        draw_text(axes, -0.15, buffer + 0.43, f"buffer {buffer}", "muted", ha="right")
    draw_text(axes, -0.15, -0.4, "iteration", "muted", ha="right")
    synchronization_note = "A wait and one barrier come before each iteration."
    draw_text(axes, 0, buffer_count + 0.5, synchronization_note, "muted", fontsize=9)
    steps_text = "; ".join(
        f"iteration {iteration}: multiply tile {multiplied_tile} in buffer {buffer}, pending copies of "
        f"{' and '.join(map(str, pending_tiles[iteration])) or 'no tile'}"
        for iteration, (multiplied_tile, buffer) in enumerate(tiles_and_buffers)
    )
    return Picture.of(figure, f"A pipeline with {buffer_count} buffers. {steps_text}.")


def recorded() -> list[dict[str, Any]]:
    """Load the times that were recorded on GPUs, or an empty list if there are none.

    The command ``python -m tools.recordings.tensor_cores`` writes these times.
    """
    file = resources.files("gpulab_course.content.n18_tensor_cores") / "recorded.json"
    if not file.is_file():
        return []
    records: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return records


def recorded_series() -> str:
    """Return a table of the recorded speed of each version on real GPUs, relative to cuBLAS."""
    records = recorded()
    if not records:
        return "No GPU has been recorded yet. To measure yours: python -m tools.recordings.tensor_cores"
    headings = ("version", "what is new", *map(_record_heading, records))
    version_rows = tuple(
        (version.name, version.new_idea, *(_format_speed(record, version.name) for record in records))
        for version in VERSIONS
    )
    cublas_row = ("cuBLAS", "NVIDIA's library", *(_format_speed(record, "cuBLAS") for record in records))
    return Table("Speed of each version, recorded", headings, (*version_rows, cublas_row)).text()


def _record_heading(record: Mapping[str, Any]) -> str:
    return f"{record['device']}, n = {record['side']:,}, {record['date']}, driver {record['driver']}"


def _format_speed(record: Mapping[str, Any], name: str) -> str:
    tflops = record["tflops"]
    if name not in tflops:
        return ""
    return f"{tflops[name]:.1f} TFLOP/s, {tflops[name] / tflops['cuBLAS']:.0%} of cuBLAS"
