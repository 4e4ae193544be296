"""Pictures of notebook 12: fusion boundaries of a small program, and the tile of a block."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.patches import Rectangle

from gpulab.views.parts.palette import find_hex
from gpulab_course.teach.drawing import draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture

_KERNEL_COLOURS = ("accent", "good", "warn", "purple", "accent-2")
# A step of a program: its name, its operation, the names that it reads, and the array for its result or None.
Step = tuple[str, str, Sequence[str], str | None]


# Fusion boundaries of a small program


def find_fusion_boundaries(steps: Sequence[Step], kernels: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Return the edges of a program's graph that lead from one kernel to another, as pairs of names."""
    kernel_index_of_step = {
        name: kernel_index for kernel_index, step_names in enumerate(kernels) for name in step_names
    }
    return [
        (input_name, name)
        for name, _, input_names, _ in steps
        for input_name in input_names
        if input_name in kernel_index_of_step
        and kernel_index_of_step[input_name] != kernel_index_of_step[name]
    ]


def kernels_of_steps(steps: Sequence[Step], kernels: Sequence[Sequence[str]]) -> Picture:
    """Draw a program as a graph, with a box around each kernel. The fusion boundaries are red.

    Parameters
    ----------
    steps
        The steps, as in exercise 12-fuses.
    kernels
        The names of the steps of each kernel, in the order of the program.
    """
    boundary_edges = find_fusion_boundaries(steps, kernels)
    max_step_count = max(map(len, kernels))
    box_spacing = 20 / (len(kernels) + 0.6)
    figure, axes = make_empty_axes(0.8 * max_step_count + 1.1, (0, 20), (0, 2.1 * max_step_count + 2.1))
    box_width = 0.72 * box_spacing
    boxes: dict[str, tuple[float, float]] = {"x": (0.1 * box_spacing, 1.9 + 0.55)}
    draw_text(axes, 0.22 * box_spacing, 2.5, "x", ha="center", weight="bold")
    step_texts = {
        step_name: f"{step_name} = {operation}({', '.join(input_names)})"
        for step_name, operation, input_names, _ in steps
    }
    for kernel_index, step_names in enumerate(kernels):
        x = (0.7 + kernel_index) * box_spacing
        colour = _KERNEL_COLOURS[kernel_index % len(_KERNEL_COLOURS)]
        left_x, outer_width = x - 0.06 * box_spacing, box_width + 0.12 * box_spacing
        kernel_height = 2.1 * len(step_names) - 0.15
        draw_box(
            axes,
            left_x,
            1.35,
            outer_width,
            kernel_height,
            f"{colour}-pale",
            edge_colour=colour,
            linewidth=1.5,
        )
        name_y = 1.65 + 2.1 * len(step_names)
        draw_text(axes, x + box_width / 2, name_y, f"kernel {kernel_index + 1}", ha="center", weight="bold")
        for step_index, step_name in enumerate(step_names):
            y = 1.9 + 2.1 * step_index
            boxes[step_name] = (x, y)
            draw_box(axes, x, y, box_width, 1.1, "bg", step_texts[step_name])
    for step_name, _, input_names, _ in steps:
        x, y = boxes[step_name]
        for input_name in input_names:
            if input_name not in boxes:
                continue
            input_x, input_y = boxes[input_name]
            arrow_bend = 0.0
            if x == input_x:
                arrow_ends = (x + box_width / 2, input_y + 1.1), (x + box_width / 2, y)
            elif input_name == "x" and x > box_spacing:
                arrow_ends, arrow_bend = ((0.22 * box_spacing, 2.15), (x + 0.2 * box_width, y)), -0.3
            elif input_name == "x":
                arrow_ends = (0.32 * box_spacing, 2.5), (x, y + 0.55)
            elif x - input_x > 1.5 * box_spacing:
                arrow_ends, arrow_bend = (
                    ((input_x + 0.75 * box_width, input_y), (x + 0.3 * box_width, y)),
                    -0.3,
                )
            else:
                arrow_ends = (input_x + box_width, input_y + 0.55), (x, y + 0.55)
            colour, linewidth = ("error", 2) if (input_name, step_name) in boundary_edges else ("fg", 1.2)
            draw_arrow(
                axes, *arrow_ends, colour, linewidth=linewidth, connectionstyle=f"arc3,rad={arrow_bend}"
            )
    boundaries_text = ", ".join(
        f"from {input_step} to {reading_step}" for input_step, reading_step in boundary_edges
    )
    groups_text = "; ".join(
        f"kernel {kernel_number} has {', '.join(step_texts[step_name] for step_name in step_names)}"
        for kernel_number, step_names in enumerate(kernels, 1)
    )
    return Picture.of(
        figure, f"A program of {len(steps)} steps: {groups_text}. Drawn in red: {boundaries_text}."
    )


# The tile of a block in a matrix multiplication


def tile_of_a_block(rows: int, columns: int, step: int, thread: int) -> Picture:
    """Draw the tile of the result that a block computes, with the part of one thread and its operands.

    Parameters
    ----------
    rows, columns
        The rows of the block, and the columns of the result; a thread has 4 columns.
    step
        The number of columns of x, and rows of w, that one iteration multiplies.
    thread
        The thread whose part is drawn.
    """
    first_column = 4 * thread
    figure, axes = make_empty_axes(4.3, (0, 20), (0, 11.3))
    x_left, x_width = 0.6, 3.6
    y_left, y_width = 5.6, 13.9
    w_top, w_height = 1.2, 2.7
    y_top, y_height = 5.5, 4.0
    column_x = y_left + y_width * first_column / columns
    column_width = max(0.45, y_width * 4 / columns)
    draw_text(axes, y_left, 0.55, f"w: {step} rows × {columns:,} columns per iteration", weight="bold")
    draw_box(axes, y_left, w_top, y_width, w_height, "panel")
    row_y = w_top + 0.45 * w_height
    axes.add_patch(Rectangle((y_left, row_y), y_width, 0.42, facecolor=find_hex("accent-2"), alpha=0.35))
    draw_box(axes, column_x, row_y, column_width, 0.42, "accent")
    draw_text(axes, column_x + column_width + 0.25, row_y + 0.21, "float4 v: row k, 4 columns")
    draw_text(axes, x_left + x_width / 2, y_top - 0.5, f"x: {rows} rows × {step}", ha="center", weight="bold")
    draw_box(axes, x_left, y_top, x_width, y_height, "panel")
    thread_part_x = x_left + 0.45 * x_width
    draw_box(axes, thread_part_x, y_top, 0.3, y_height, "warn")
    draw_text(axes, x_left + x_width / 2, y_top + y_height + 0.5, "in shared memory (part)", ha="center")
    draw_text(axes, x_left + x_width / 2, y_top + y_height + 1.15, "orange: part[r][k]", ha="center")
    draw_text(axes, y_left, y_top - 0.5, f"result: {rows} × {columns:,}", weight="bold")
    draw_box(axes, y_left, y_top, y_width, y_height, "panel")
    for row in range(1, rows):
        line_y = y_top + row * y_height / rows
        axes.plot((y_left, y_left + y_width), (line_y, line_y), color=find_hex("rule"), linewidth=0.8)
    draw_box(axes, column_x, y_top, column_width, y_height, "good")
    draw_text(
        axes,
        column_x + column_width + 0.25,
        y_top + y_height / 2,
        f"thread {thread}: sums[{rows}][4]\ncolumns {first_column} to {first_column + 3} of all rows",
        bbox={"fc": find_hex("panel"), "ec": "none", "pad": 1},
    )
    location_text = "in registers of the block's threads"
    draw_text(axes, y_left + y_width / 2, y_top + y_height + 0.5, location_text, ha="center")
    draw_arrow(axes, (column_x + column_width / 2, row_y + 0.42), (column_x + column_width / 2, y_top))
    draw_arrow(axes, (x_left + x_width, y_top + y_height / 2), (y_left, y_top + y_height / 2))
    return Picture.of(
        figure,
        f"A block computes {rows} rows × {columns:,} columns of the result. Thread {thread} keeps columns "
        f"{first_column} to {first_column + 3} of all {rows} rows in registers. Per iteration, {rows} × "
        f"{step} elements of x are in shared memory. For each of the {step} rows of w, the thread loads 4 "
        f"elements of its columns as a float4 and multiplies them by {rows} elements of x.",
    )
