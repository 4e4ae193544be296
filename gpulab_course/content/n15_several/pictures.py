"""Pictures of notebook 15: messages of collective operations, halos, and shards of matrices."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from gpulab.views import CollectiveView
from gpulab.views.parts.palette import find_hex
from gpulab.words import count, number, size
from gpulab_course.teach.picture import Picture
from virtualgpu.records.traffic.collective import Collective

_GPU_COLOURS = ("accent", "warn", "good", "purple")


def link_messages(*views: CollectiveView) -> Picture:
    """Draw the messages in the first step of collective operations, with the number of bytes at each port.

    Parameters
    ----------
    views
        One operation per panel, on the same number of GPUs.
    """
    figure = Figure(figsize=(7.6, 4.5), dpi=100)
    captions = []
    column_width = 1 / len(views)
    for view_index, view in enumerate(views):
        record = view.record
        axes = figure.add_axes((view_index * column_width, 0.17, column_width, 0.72))
        axes.set_xlim(-1.5, 1.5)
        axes.set_ylim(-1.3, 1.3)
        axes.set_aspect("equal")
        axes.set_axis_off()
        _draw_step(axes, record)
        messages_by_link = Counter(
            (crossing.source, crossing.target) for crossing in record.traffic.crossings
        )
        in_array_count, out_array_count = (
            max(port_bytes(gpu) for gpu in range(record.gpus)) / record.size_bytes
            for port_bytes in (record.traffic.in_bytes, record.traffic.out_bytes)
        )
        algorithm_name = "naive (all through GPU 0)" if record.algorithm == "naive" else record.algorithm
        message_text = (
            f"{count(max(messages_by_link.values()), 'message')} of {size(max(record.chunk_bytes))} "
            "over each arrow"
        )
        port_text = f"busiest port: {number(in_array_count)} arrays in, {number(out_array_count)} out"
        heading = f"{algorithm_name[0].upper()}{algorithm_name[1:]}: step 1 of {len(record.steps)}"
        column_centre = (view_index + 0.5) * column_width
        figure.text(
            column_centre, 0.93, heading, ha="center", fontsize=11, weight="bold", color=find_hex("fg")
        )
        is_bidirectional = any((target, source) in messages_by_link for source, target in messages_by_link)
        direction_text = ", and as many back" if is_bidirectional else ", and none back"
        for text_y, text in ((0.115, f"whole operation: {message_text}"), (0.065, direction_text[2:])):
            figure.text(column_centre, text_y, text, ha="center", fontsize=9, color=find_hex("fg"))
        figure.text(
            column_centre, 0.015, port_text, ha="center", fontsize=9, weight="bold", color=find_hex("fg")
        )
        captions.append(
            f"{heading}, {count(len(record.steps[0].moves), 'arrow')} between {record.gpus} GPUs in a "
            f"circle; in the whole operation {message_text}{direction_text}; {port_text}."
        )
    return Picture.of(figure, " ".join(captions))


def _draw_step(axes: Axes, record: Collective) -> None:
    """Draw GPUs in a circle with the messages of the first step, and the arrays in and out of each port."""
    angles = [math.pi / 2 - 2 * math.pi * gpu / record.gpus for gpu in range(record.gpus)]
    gpu_positions = [(math.cos(angle), math.sin(angle)) for angle in angles]
    for move in record.steps[0].moves:
        axes.annotate(
            "",
            xy=gpu_positions[move.target],
            xytext=gpu_positions[move.source],
            arrowprops={
                "arrowstyle": "-|>",
                "color": find_hex("accent"),
                "lw": 1.8,
                "shrinkA": 15,
                "shrinkB": 15,
            },
        )
    max_port_bytes = record.traffic.busiest_bytes
    for gpu, (x, y) in enumerate(gpu_positions):
        in_bytes, out_bytes = record.traffic.in_bytes(gpu), record.traffic.out_bytes(gpu)
        is_busy = max(in_bytes, out_bytes) == max_port_bytes
        fill_colour = "warn" if is_busy else "grid"
        axes.add_patch(Circle((x, y), 0.17, facecolor=find_hex(fill_colour), edgecolor=find_hex("muted")))
        axes.text(x, y, str(gpu), ha="center", va="center", fontsize=11, color=find_hex("on-warn"))
    moves = record.steps[0].moves
    if len({move.chunk for move in moves}) > 1:
        for move in moves:
            x, y = (
                (source_coordinate + target_coordinate) / 2
                for source_coordinate, target_coordinate in zip(
                    gpu_positions[move.source], gpu_positions[move.target], strict=True
                )
            )
            axes.text(
                0.72 * x,
                0.72 * y,
                f"chunk {move.chunk}",
                ha="center",
                va="center",
                fontsize=9,
                color=find_hex("fg"),
            )


def find_halo_owners(rows: int, columns: int, height: int) -> list[npt.NDArray[np.int64]]:
    """Return which GPU owns each stored cell after the exchange of rows, and after the exchange of columns.

    Each part has `height` × `height` cells and a rim that is one cell wide. The arrays have the axes part
    row, part column, row and column. Rim cells without a value are -1.
    """
    owners = np.full((rows, columns, height + 2, height + 2), -1)
    owners[:, :, 1:-1, 1:-1] = np.arange(rows * columns).reshape(rows, columns, 1, 1)
    owners_after_rows = owners.copy()
    owners_after_rows[1:, :, 0] = owners[:-1, :, -2]
    owners_after_rows[:-1, :, -1] = owners[1:, :, 1]
    owners_after_columns = owners_after_rows.copy()
    owners_after_columns[:, 1:, :, 0] = owners_after_rows[:, :-1, :, -2]
    owners_after_columns[:, :-1, :, -1] = owners_after_rows[:, 1:, :, 1]
    return [owners_after_rows, owners_after_columns]


def halos(rows: int = 2, columns: int = 2, height: int = 4) -> Picture:
    """Draw the parts of a field on several GPUs, first after the exchange of rows and then of columns."""
    owners_by_step = find_halo_owners(rows, columns, height)
    figure = Figure(figsize=(7.6, 4.3), dpi=100)
    gpu_spacing = height + 3.5
    headings = (
        f"First the rows: messages of {height + 2} cells",
        f"Then the columns: messages of {height + 2} cells",
    )
    for panel_index, (owners, heading) in enumerate(zip(owners_by_step, headings, strict=True)):
        axes = figure.add_axes((0.01 + 0.5 * panel_index, 0.02, 0.48, 0.84))
        axes.set_xlim(-0.3, columns * gpu_spacing - 1.2)
        axes.set_ylim(rows * gpu_spacing - 1.2, -0.9)
        axes.set_aspect("equal")
        axes.set_axis_off()
        figure.text(
            0.25 + 0.5 * panel_index,
            0.93,
            heading,
            ha="center",
            fontsize=11,
            weight="bold",
            color=find_hex("fg"),
        )
        for (i, j, row, column), owner_gpu in np.ndenumerate(owners):
            gpu_colour_name = _GPU_COLOURS[int(owner_gpu) % len(_GPU_COLOURS)]
            is_rim_cell = not (1 <= row <= height and 1 <= column <= height)
            fill_colour = (
                find_hex("grid")
                if owner_gpu < 0
                else find_hex(f"{gpu_colour_name}-pale" if is_rim_cell else gpu_colour_name)
            )
            x, y = j * gpu_spacing + column, i * gpu_spacing + row
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=fill_colour, edgecolor="white"))
            if owner_gpu >= 0:
                colour = find_hex("fg") if is_rim_cell else find_hex(f"on-{gpu_colour_name}")
                axes.text(
                    x + 0.5, y + 0.5, str(owner_gpu), ha="center", va="center", fontsize=9, color=colour
                )
        for i in range(rows):
            for j in range(columns):
                axes.text(
                    j * gpu_spacing,
                    i * gpu_spacing - 0.25,
                    f"GPU {i * columns + j}",
                    ha="left",
                    va="bottom",
                    fontsize=9,
                    color=find_hex("fg"),
                )
        _draw_halo_messages(axes, rows, columns, height, gpu_spacing, by_rows=panel_index == 0)
    last_gpu = rows * columns - 1
    corner_owner = int(owners_by_step[1][-1, -1, 0, 0])
    return Picture.of(
        figure,
        f"{rows * columns} GPUs with parts of {height} × {height} cells and a rim one cell wide; each cell "
        "has the number and the colour of the GPU from which its value comes. Left: full rows of "
        f"{height + 2} cells have been exchanged up and down. Right: then full columns of {height + 2} "
        f"cells have been exchanged left and right, and the corner of GPU {last_gpu} (framed) has the value "
        f"of GPU {corner_owner}. Rim cells outside the whole field are empty.",
    )


def _draw_halo_messages(
    axes: Axes, rows: int, columns: int, height: int, gpu_spacing: float, by_rows: bool
) -> None:
    """Draw an arrow for each message between neighbours, and a frame around the cells with corners."""
    arrow_style = {"arrowstyle": "-|>", "color": find_hex("fg"), "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    for i in range(rows - by_rows):
        for j in range(columns - (not by_rows)):
            for arrow_direction, edge_offset_share in ((1, 0.25), (-1, 0.5)):
                edge_position = 1 + edge_offset_share * height
                if by_rows:
                    x = j * gpu_spacing + edge_position
                    arrow_ends = [(x, i * gpu_spacing + height + 0.5), (x, (i + 1) * gpu_spacing + 0.5)]
                else:
                    y = i * gpu_spacing + edge_position
                    arrow_ends = [(j * gpu_spacing + height + 0.5, y), ((j + 1) * gpu_spacing + 0.5, y)]
                start, end = arrow_ends[::arrow_direction]
                axes.annotate("", xy=end, xytext=start, arrowprops=arrow_style)
    # The value in the corner: an inner cell of the first part, a rim cell below it, the corner.
    corner_path = [((0, 0), (height, height)), ((rows - 1, 0), (0, height))]
    if not by_rows:
        corner_path = [((rows - 1, 0), (0, height)), ((rows - 1, columns - 1), (0, 0))]
    for (i, j), (row, column) in corner_path:
        axes.add_patch(
            Rectangle(
                (j * gpu_spacing + column, i * gpu_spacing + row),
                1,
                1,
                fill=False,
                edgecolor=find_hex("fg"),
                linewidth=2.2,
            )
        )


_SHARED_COLOUR = "grid"
_SHARDINGS = (
    ("by sequences", "separate", "whole", "squares", "whole", "nothing"),
    ("by heads", "whole", "columns", "squares", "rows", "all-reduce of\nthe results"),
    ("by rows", "rows", "whole", "rows", "whole", "all-gather of\nk and v"),
)


def shardings(gpus: int = 4) -> Picture:
    """Draw three ways to distribute the arrays of an attention layer over several GPUs."""
    figure = Figure(figsize=(7.6, 4.4), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 7.6)
    axes.set_ylim(4.4, 0)
    axes.set_axis_off()
    column_headings = (
        (1.9, "tokens h"),
        (3.1, "weights of\nq, k and v"),
        (4.3, "scores"),
        (5.5, "output\nweights"),
    )
    for x, heading_text in (*column_headings, (6.8, "exchanged")):
        axes.text(x, 0.3, heading_text, ha="center", va="center", fontsize=10, color=find_hex("fg"))
    for sharding_index, (sharding_name, *shapes, exchange_text) in enumerate(_SHARDINGS):
        y = 0.62 + 1.08 * sharding_index
        axes.text(
            0.15,
            y + 0.45,
            sharding_name,
            ha="left",
            va="center",
            fontsize=11,
            weight="bold",
            color=find_hex("fg"),
        )
        for (x, _), shard_shape in zip(column_headings, shapes, strict=True):
            _draw_shards(axes, x - 0.43, y, shard_shape, gpus)
        axes.text(6.8, y + 0.45, exchange_text, ha="center", va="center", fontsize=10, color=find_hex("fg"))
    legend = [(f"GPU {gpu}", _GPU_COLOURS[gpu % len(_GPU_COLOURS)]) for gpu in range(gpus)]
    for legend_index, (legend_text, colour_name) in enumerate(
        [*legend, ("all of it on each GPU", _SHARED_COLOUR)]
    ):
        x = 0.9 + 1.05 * legend_index
        axes.add_patch(
            Rectangle((x, 4.0), 0.2, 0.2, facecolor=find_hex(colour_name), edgecolor=find_hex("muted"))
        )
        axes.text(x + 0.28, 4.1, legend_text, ha="left", va="center", fontsize=9, color=find_hex("fg"))
    return Picture.of(
        figure,
        f"Three ways to shard the attention layer over {gpus} GPUs. By sequences: each GPU has the tokens "
        "and scores of some sequences and all weights, and nothing is exchanged. By heads: each GPU has all "
        "tokens, some columns of the weights of q, k and v, the scores of some heads and some rows of the "
        "output weights; an all-reduce adds the results. By rows: each GPU has some rows of the tokens and "
        "of the scores and all weights; an all-gather brings k and v.",
    )


def _draw_shards(axes: Axes, left_x: float, top_y: float, shard_shape: str, gpus: int) -> None:
    """Draw a matrix that is cut into pieces, in the colours of the GPUs that store the pieces."""
    matrix_side = 0.86
    shard_rectangles = []
    if shard_shape == "whole":
        shard_rectangles.append((left_x, top_y, matrix_side, matrix_side, _SHARED_COLOUR))
    for gpu in range(gpus):
        colour_name = _GPU_COLOURS[gpu % len(_GPU_COLOURS)]
        shard_side = matrix_side / gpus
        if shard_shape in ("rows", "separate"):
            shard_gap = 0.06 if shard_shape == "separate" else 0
            shard_rectangles.append(
                (left_x, top_y + gpu * shard_side, matrix_side, shard_side - shard_gap, colour_name)
            )
        elif shard_shape == "columns":
            shard_rectangles.append((left_x + gpu * shard_side, top_y, shard_side, matrix_side, colour_name))
        elif shard_shape == "squares":
            squares_per_row = math.ceil(math.sqrt(gpus))
            square_side = matrix_side / squares_per_row
            row, column = divmod(gpu, squares_per_row)
            shard_rectangles.append(
                (
                    left_x + column * square_side,
                    top_y + row * square_side,
                    square_side - 0.06,
                    square_side - 0.06,
                    colour_name,
                )
            )
    for x, y, width, height, colour_name in shard_rectangles:
        axes.add_patch(
            Rectangle((x, y), width, height, facecolor=find_hex(colour_name), edgecolor=find_hex("muted"))
        )
