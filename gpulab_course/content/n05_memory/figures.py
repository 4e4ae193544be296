"""Figures of notebooks 05a and 05b: traffic, levels of memory, sectors, a texture, and a tile."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpulab.views.parts.palette import find_hex
from gpulab_course.teach.drawing import draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Provenance


def least_bytes(args: Sequence[Any]) -> int:
    """Return the total size of a launch's array arguments, which is a lower bound of its memory traffic in
    bytes.
    """
    arrays = {id(argument): int(argument.nbytes) for argument in args if len(getattr(argument, "shape", ()))}
    return sum(arrays.values())


def traffic(
    requested_bytes: Mapping[str, int], needed_bytes: Mapping[str, int], origin: Provenance
) -> Picture:
    """Draw the number of bytes that each step of a computation requests, next to the number that it needs.

    Parameters
    ----------
    requested_bytes, needed_bytes
        The bytes of each step by its name.
    origin
        The provenance of `requested_bytes`.
    """
    names = list(requested_bytes)
    figure = Figure(figsize=(7.6, 0.7 + 0.52 * len(names)), dpi=100)
    axes = figure.add_axes((0.23, 0.2, 0.66, 0.68))
    bar_positions = range(len(names))
    axes.barh(
        [bar_position - 0.19 for bar_position in bar_positions],
        [requested_bytes[name] for name in names],
        0.36,
        color=find_hex("warn"),
        label="requested",
    )
    axes.barh(
        [bar_position + 0.19 for bar_position in bar_positions],
        [needed_bytes[name] for name in names],
        0.36,
        color=find_hex("good"),
        label="needed",
    )
    for bar_position, name in enumerate(names):
        axes.annotate(
            f"{requested_bytes[name] / needed_bytes[name]:,.0f} ×",
            (requested_bytes[name], bar_position - 0.19),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.set_yticks(list(bar_positions), names)
    axes.invert_yaxis()
    axes.set_xlabel("bytes")
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    axes.set_title(origin.label, fontsize=10, color=find_hex("muted"))
    axes.spines[["top", "right"]].set_visible(False)
    ratios_text = ", ".join(
        f"{name} {requested_bytes[name] / needed_bytes[name]:,.0f} times" for name in names
    )
    return Picture.of(
        figure,
        f"Bytes requested per step, {origin.label}, as multiples of the bytes that the step needs: "
        f"{ratios_text}.",
    )


# Levels of memory

_LEVEL_BOXES = {
    "device memory (HBM, GDDR)": (0.4, 5.2, 5.6),
    "L2": (0.4, 3.8, 5.6),
    "L1": (0.7, 2.2, 2.4),
    "shared memory": (3.3, 2.2, 2.4),
    "registers": (0.7, 0.8, 5.0),
}
_LEVEL_COLOURS = {
    "device memory (HBM, GDDR)": "accent",
    "L2": "accent",
    "L1": "accent",
    "shared memory": "warn",
    "registers": "accent",
}
_LOAD_PATH = ("device memory (HBM, GDDR)", "L2", "L1", "registers")


def levels() -> Picture:
    """Draw the levels of the memory hierarchy, the path of a load, and the ways to fill shared memory."""
    figure, axes = make_empty_axes(4.0, (0, 9.6), (0, 6.1))
    draw_box(axes, 0.4, 0.3, 5.6, 2.8, "panel", edge_colour="muted", linewidth=1, linestyle="--")
    draw_text(axes, 6.2, 0.55, "each SM has its own", "muted")
    draw_text(axes, 6.2, 4.15, "one for the whole GPU", "muted")
    draw_text(axes, 6.2, 5.55, "outside the GPU chip", "muted")
    for name, (left_x, top_y, width) in _LEVEL_BOXES.items():
        draw_box(axes, left_x, top_y, width, 0.7, _LEVEL_COLOURS[name], name, edge_colour="bg")
    for upper_level, lower_level in itertools.pairwise(_LOAD_PATH):
        top_y = _LEVEL_BOXES[upper_level][1]
        bottom_y = _LEVEL_BOXES[lower_level][1] + 0.7
        draw_arrow(axes, (1.9, top_y), (1.9, bottom_y), linewidth=3.5, mutation_scale=20)
    draw_arrow(axes, (4.5, 1.5), (4.5, 2.2))
    draw_text(axes, 6.2, 1.85, "only by stores of your own code")
    axes.plot([4.65, 6.1], [1.85, 1.85], color=find_hex("rule"), linewidth=1)
    draw_text(axes, 2.1, 4.85, "a load")
    return Picture.of(
        figure,
        f"The levels of memory. A load passes from {_LOAD_PATH[0]} through {_LOAD_PATH[1]} and "
        f"{_LOAD_PATH[2]} to the {_LOAD_PATH[3]}. Shared memory is next to L1 and not on this path: only "
        "stores of your own code put data there.",
    )


# Sectors of a request

_FLOATS_PER_SECTOR = 8
_SHOWN_SECTORS = 8


def sector_map(requests: Mapping[str, Sequence[int]]) -> Picture:
    """Draw the memory sectors of each request in a row, and mark the floats that the lanes of a warp read.

    Parameters
    ----------
    requests
        The indices of the floats that the lanes read, by the name of the request. Float 0 starts a line.
    """
    shown_floats = _FLOATS_PER_SECTOR * _SHOWN_SECTORS
    map_left_x = 22.0
    height_in = 0.55 + 0.45 * len(requests)
    figure, axes = make_empty_axes(
        height_in, (0, map_left_x + shown_floats + 15), (-0.1, len(requests) + 0.9)
    )
    for sector in range(_SHOWN_SECTORS):
        x = map_left_x + _FLOATS_PER_SECTOR * (sector + 0.5)
        draw_text(axes, x, 0.4, str(sector), "muted", ha="center", fontsize=9)
    draw_text(axes, 0, 0.4, "sector", "muted", fontsize=9)
    sector_counts = {}
    for row, (name, indices) in enumerate(requests.items()):
        top_y = row + 0.9
        read_floats = {int(index) for index in indices}
        touched_sectors = {index // _FLOATS_PER_SECTOR for index in read_floats}
        sector_counts[name] = len(touched_sectors)
        draw_text(axes, 0, top_y + 0.35, name)
        for index in range(shown_floats):
            is_touched = index // _FLOATS_PER_SECTOR in touched_sectors
            colour = "accent" if index in read_floats else "accent-2" if is_touched else "grid"
            alpha = 1.0 if index in read_floats or not is_touched else 0.45
            cell = Rectangle(
                (map_left_x + index, top_y),
                1,
                0.7,
                facecolor=find_hex(colour),
                edgecolor="none",
                alpha=alpha,
            )
            axes.add_patch(cell)
        for sector in range(_SHOWN_SECTORS + 1):
            x = map_left_x + _FLOATS_PER_SECTOR * sector
            axes.plot([x, x], [top_y - 0.02, top_y + 0.72], color="white", linewidth=2.5)
        hidden_sectors = max(touched_sectors) - _SHOWN_SECTORS + 1
        text = f"{'… ' if hidden_sectors > 0 else ''}{sector_counts[name]} sectors"
        draw_text(axes, map_left_x + shown_floats + 0.8, top_y + 0.35, text)
    counts_text = ", ".join(f"{count} for {name}" for name, count in sector_counts.items())
    return Picture.of(figure, f"The sectors that a request of one warp touches: {counts_text}.")


# Textures


def texture_curve(texels: Sequence[float], coordinates: Any, values: Any) -> Picture:
    """Draw the value of a texture against the coordinate, with a box for each texel.

    Parameters
    ----------
    texels
        The values of the texels.
    coordinates, values
        The coordinates that were read, and the returned values.
    """
    figure = Figure(figsize=(7.6, 3.3), dpi=100)
    axes = figure.add_axes((0.08, 0.15, 0.9, 0.8))
    max_texel = max(texels)
    for index, texel in enumerate(texels):
        box = Rectangle(
            (index, -0.28 * max_texel),
            1,
            0.18 * max_texel,
            facecolor=find_hex("accent-2"),
            edgecolor="white",
        )
        axes.add_patch(box)
        text = f"texel {index}: {texel:g}"
        box_middle_y = -0.19 * max_texel
        axes.text(
            index + 0.5,
            box_middle_y,
            text,
            ha="center",
            va="center",
            fontsize=9,
            color=find_hex("on-accent-2"),
        )
        axes.plot(
            [index + 0.5] * 2,
            [-0.1 * max_texel, texel],
            color=find_hex("rule"),
            linewidth=1,
            zorder=0,
        )
    axes.plot(coordinates, values, color=find_hex("accent"), linewidth=2, label="returned")
    texel_centres = [index + 0.5 for index in range(len(texels))]
    axes.plot(texel_centres, texels, "o", color=find_hex("tail"), label="centre of a texel")
    halfway_value = float(np.interp(1.0, coordinates, values))
    axes.plot(
        [1.0],
        [halfway_value],
        "s",
        color=find_hex("purple"),
        label=f"coordinate 1: {halfway_value:g}",
    )
    axes.set_xlim(float(min(coordinates)), float(max(coordinates)))
    axes.set_ylim(-0.32 * max_texel, 1.1 * max_texel)
    axes.set_xlabel("coordinate")
    axes.set_ylabel("value")
    axes.set_yticks(list(texels))
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return Picture.of(
        figure,
        f"The values that a texture of the texels {', '.join(f'{texel:g}' for texel in texels)} returns: "
        "at the centre of each texel its value, between the centres values on a straight line, and "
        f"{halfway_value:g} at the coordinate 1.",
    )


_TILE_SIDE = 32
_TILE_SCALE = 3  # the tile is drawn larger than in the matrices
_PANEL_GAP = 56


def transpose_through_tile(
    shape: tuple[int, int], block: tuple[int, int], loads: Any, stores: Any
) -> Picture:
    """Draw how a warp loads a row of a tile, and later stores a column of the tile as a row of the result.

    Parameters
    ----------
    shape
        The rows and columns of the matrix.
    block
        The position (x, y) of the block in the grid.
    loads, stores
        The elements that the lanes load from the matrix and store to the result, as indices.
    """
    rows, columns = shape
    block_x, block_y = block
    load_sectors, store_sectors = (_count_sectors(elements) for elements in (loads, stores))
    loaded_row, stored_row = int(loads[0]) // columns, int(stores[0]) // rows
    tile_side = _TILE_SCALE * _TILE_SIDE
    tile_x = columns + _PANEL_GAP
    out_x = tile_x + tile_side + _PANEL_GAP
    height = max(rows, columns)
    figure, axes = make_empty_axes(3.5, (-2, out_x + rows + 2), (-24, height + 38))
    axes.set_aspect("equal")
    for x, width, panel_height in ((0, columns, rows), (out_x, rows, columns)):
        for left_x in range(0, width, _TILE_SIDE):
            for top_y in range(0, panel_height, _TILE_SIDE):
                draw_box(axes, x + left_x, top_y, 32, 32, "bg", edge_colour="rule", linewidth=1)
    x_corner = (block_x * _TILE_SIDE, block_y * _TILE_SIDE)
    result_corner = (out_x + block_y * _TILE_SIDE, block_x * _TILE_SIDE)
    for corner in (x_corner, result_corner):
        draw_box(axes, *corner, 32, 32, "highlight")
    draw_box(axes, tile_x, 0, tile_side, tile_side, "highlight")
    tile_row = _TILE_SCALE * (loaded_row % _TILE_SIDE)
    tile_column = _TILE_SCALE * (stored_row % _TILE_SIDE)
    highlighted_bars = (
        ((x_corner[0], loaded_row), 32, 3, "accent"),
        ((tile_x, tile_row), tile_side, 4, "accent"),
        ((tile_x + tile_column, 0), 4, tile_side, "tail"),
        ((result_corner[0], stored_row), 32, 3, "tail"),
    )
    for corner, width, panel_height, colour in highlighted_bars:
        axes.add_patch(Rectangle(corner, width, panel_height, facecolor=find_hex(colour)))
    arrow_start, arrow_end = (x_corner[0] + 36, loaded_row + 1.5), (tile_x - 3, tile_row + 2)
    draw_arrow(axes, arrow_start, arrow_end, linewidth=2, mutation_scale=16)
    y = stored_row + 1.5
    draw_arrow(axes, (tile_x + tile_side + 3, y), (result_corner[0] - 3, y), linewidth=2, mutation_scale=16)
    step_labels = (
        (columns / 2, f"1  load a row: {load_sectors} sectors", "accent"),
        (tile_x + tile_side / 2, "2  store it as a row", "accent"),
        (out_x + rows / 2, f"4  store a row: {store_sectors} sectors", "tail-text"),
    )
    for label_x, text, colour in step_labels:
        draw_text(axes, label_x, height + 14, text, colour, ha="center", fontsize=9)
    draw_text(
        axes, tile_x + tile_side / 2, height + 28, "3  read a column", "tail-text", ha="center", fontsize=9
    )
    panel_titles = (
        (columns / 2, f"in: {rows} × {columns}"),
        (tile_x + tile_side / 2, "tile in shared memory"),
        (out_x + rows / 2, f"out: {columns} × {rows}"),
    )
    for title_x, text in panel_titles:
        draw_text(axes, title_x, -12, text, ha="center", fontsize=9, weight="bold")
    return Picture.of(
        figure,
        f"A transpose of a matrix of {rows} × {columns} floats through a tile, for block ({block_x}, "
        f"{block_y}). A warp loads 32 neighbouring floats of row {loaded_row} of `in` ({load_sectors} "
        "sectors) into a row of the tile. After the barrier, a warp reads a column of the tile and stores "
        f"it to 32 neighbouring floats of row {stored_row} of `out` ({store_sectors} sectors).",
    )


def _count_sectors(elements: Any) -> int:
    return len(np.unique(np.asarray(elements) // _FLOATS_PER_SECTOR))
