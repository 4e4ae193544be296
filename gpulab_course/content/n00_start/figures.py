"""Figures of notebook 00: the Mandelbrot set and its blocks, host and device, two stacks, memory, threads."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle
from matplotlib.ticker import MaxNLocator

from gpulab.session import which_device
from gpulab.views.parts.palette import find_hex
from gpulab.words import count as counted
from gpulab_course.teach.picture import Picture

_DPI = 100
# The boxes use pale tints of the views' colours, on which text stays readable.
_HOST_FILL = (find_hex("accent"), 0.16)
_DEVICE_FILL = (find_hex("good"), 0.18)
_BLOCK_COLOURS = tuple(map(find_hex, ("accent-2", "tail", "good", "warn")))
_TEXT_COLOUR = find_hex("fg")
_MUTED_COLOUR = find_hex("muted")


def picture(iterations: npt.NDArray[np.int32]) -> Picture:
    """Draw the Mandelbrot set. The colour of a pixel depends on its number of iterations."""
    log_iterations = _compute_brightness(iterations)
    file = io.BytesIO()
    imsave(file, log_iterations, cmap="inferno", format="png")
    height, width = iterations.shape
    return Picture(
        file.getvalue(), f"The Mandelbrot set, {width} by {height} pixels, one GPU thread per pixel."
    )


def _compute_brightness(iterations: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    return np.log1p(np.where(iterations == iterations.max(), 0, iterations))


def paths(values_of_z: Mapping[complex, Sequence[complex]]) -> Picture:
    """Draw the sequence of values of z in the complex plane, and its distance from 0 in each iteration.

    Parameters
    ----------
    values_of_z
        For each c, the values of z from z = 0 on.
    """
    figure = Figure(figsize=(7.6, 3.7), dpi=_DPI)
    plane_axes = figure.add_axes((0.09, 0.14, 0.42, 0.76))
    distance_axes = figure.add_axes((0.62, 0.14, 0.36, 0.76))
    plane_axes.add_patch(Circle((0, 0), 2, facecolor=(find_hex("other"), 0.25), edgecolor=_MUTED_COLOUR))
    plane_axes.text(0, -1.75, "distance 2", ha="center", fontsize=9, color=_MUTED_COLOUR)
    distance_axes.axhline(2, color=_MUTED_COLOUR, linewidth=1)
    text_transform = distance_axes.get_yaxis_transform()
    distance_axes.text(
        1, 2.06, "distance 2", ha="right", fontsize=9, color=_MUTED_COLOUR, transform=text_transform
    )
    outcome_texts = []
    for (c, z_values), colour, marker in zip(
        values_of_z.items(), ("accent", "tail"), ("o", "s"), strict=False
    ):
        z_points = np.array(z_values)
        c_text = f"c = {c.real:g} {'+' if c.imag >= 0 else '−'} {abs(c.imag):g}i"
        plane_axes.plot(
            z_points.real,
            z_points.imag,
            marker=marker,
            color=find_hex(colour),
            linewidth=1.2,
            label=c_text,
        )
        distance_axes.plot(
            np.abs(z_points), marker=marker, color=find_hex(colour), linewidth=1.2, label=c_text
        )
        escape_steps = np.flatnonzero(np.abs(z_points) >= 2)
        outcome_texts.append(
            f"with {c_text}, z escapes after {counted(int(escape_steps[0]), 'iteration')}"
            if escape_steps.size
            else f"with {c_text}, z stays within a distance of {np.abs(z_points).max():.1f} for "
            f"{counted(z_points.size - 1, 'iteration')}"
        )
    plane_axes.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), aspect="equal")
    plane_axes.set_xlabel("real part of z")
    plane_axes.set_ylabel("imaginary part of z", labelpad=2)
    plane_axes.set_title("z in the complex plane", fontsize=10)
    distance_axes.set_ylim(bottom=0)
    distance_axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    distance_axes.set_xlabel("iterations")
    distance_axes.set_title("distance of z from 0", fontsize=10)
    distance_axes.legend(frameon=False, fontsize=9, loc="upper right", bbox_to_anchor=(1.0, 0.94))
    return Picture.of(figure, f"The values of z, from z = 0 on, for two pixels: {'; '.join(outcome_texts)}.")


def blocks_of_picture(
    iterations: npt.NDArray[np.int32], side: int, block: tuple[int, int], thread: tuple[int, int]
) -> Picture:
    """Draw a picture divided into the square blocks of a grid, and enlarge one block with a marked thread.

    Parameters
    ----------
    iterations
        The iteration counts, as an array (height, width).
    side
        The number of threads in each direction of a block.
    block
        ``blockIdx.x`` and ``blockIdx.y`` of the enlarged block.
    thread
        ``threadIdx.x`` and ``threadIdx.y`` of the marked thread.
    """
    height, width = iterations.shape
    (block_x, block_y), (thread_x, thread_y) = block, thread
    block_left, block_top = block_x * side, block_y * side
    shades = np.round(3 * _compute_brightness(iterations)) / 3  # few colours, so that the file is small
    figure = Figure(figsize=(7.6, 3.9), dpi=_DPI)
    picture_axes = figure.add_axes((0.01, 0.1, 0.56, 0.82))
    block_axes = figure.add_axes((0.64, 0.22, 0.34, 0.66))
    picture_axes.imshow(shades, cmap="inferno", extent=(0, width, height, 0), interpolation="nearest")
    for x in range(0, width + 1, side):
        picture_axes.axvline(x, color="white", linewidth=0.5, antialiased=False)
    for y in range(0, height + 1, side):
        picture_axes.axhline(y, color="white", linewidth=0.5, antialiased=False)
    picture_axes.add_patch(
        Rectangle(
            (block_left, block_top),
            side,
            side,
            facecolor="none",
            edgecolor=find_hex("accent-2"),
            linewidth=3,
            zorder=3,
        )
    )
    picture_axes.axis("off")
    picture_axes.set_title(
        f"{width // side} × {height // side} blocks; enlarged: blockIdx = ({block_x}, {block_y})", fontsize=10
    )
    block_axes.imshow(
        shades[block_top : block_top + side, block_left : block_left + side],
        cmap="inferno",
        vmin=shades.min(),
        vmax=shades.max(),
        extent=(0, side, side, 0),
    )
    for line_position in range(side + 1):
        block_axes.axvline(line_position, color="white", linewidth=0.5, antialiased=False)
        block_axes.axhline(line_position, color="white", linewidth=0.5, antialiased=False)
    block_axes.add_patch(
        Rectangle(
            (thread_x, thread_y),
            1,
            1,
            facecolor="none",
            edgecolor=find_hex("accent-2"),
            linewidth=3,
            zorder=3,
        )
    )
    block_axes.xaxis.tick_top()
    ticks = range(0, side, 5)
    block_axes.set_xticks([tick + 0.5 for tick in ticks], [str(tick) for tick in ticks], fontsize=9)
    block_axes.set_yticks([tick + 0.5 for tick in ticks], [str(tick) for tick in ticks], fontsize=9)
    block_axes.xaxis.set_label_position("top")
    block_axes.set_xlabel("threadIdx.x")
    block_axes.set_ylabel("threadIdx.y")
    block_axes.tick_params(length=0)
    x, y = block_left + thread_x, block_top + thread_y
    figure.text(
        0.81,
        0.09,
        f"the marked thread ({thread_x}, {thread_y}):\n"
        f"x = {block_x} × {side} + {thread_x} = {x}\n"
        f"y = {block_y} × {side} + {thread_y} = {y}",
        ha="center",
        va="center",
        fontsize=10,
        color=_TEXT_COLOUR,
    )
    return Picture.of(
        figure,
        f"The picture in {width // side} × {height // side} blocks of {side} × {side} threads. Block "
        f"({block_x}, {block_y}) is enlarged: its thread ({thread_x}, {thread_y}) computes the pixel x = "
        f"{x}, y = {y}.",
    )


def after_the_end(launches: Sequence[tuple[int, int, int]]) -> Picture:
    """Draw the memory after the end of arrays, and the elements that surplus threads write there.

    Parameters
    ----------
    launches
        For each launch the number of elements, the number of threads, and the number of elements for
        which the pool reserved memory.
    """
    figure = Figure(figsize=(7.6, 1.25 + 1.1 * len(launches)), dpi=_DPI)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.96))
    max_surplus = max(threads - n for n, threads, _ in launches)
    x_min, x_max = -max_surplus * 0.42, max_surplus * 1.12
    outcome_texts = []
    for row, (n, threads, reserved_elements) in enumerate(launches):
        bottom_y = -2.2 * row
        free_elements, surplus_threads = reserved_elements - n, threads - n
        for start_x, end_x, colour_name, part_text in (
            (x_min, 0, "accent-2", f"… end of an array of {n:,}"),
            (0, free_elements, "bg", f"{free_elements} free"),
            (free_elements, x_max, "purple", "next array, or unused memory"),
        ):
            axes.add_patch(
                Rectangle(
                    (start_x, bottom_y),
                    end_x - start_x,
                    0.8,
                    facecolor=(find_hex(colour_name), 0.55),
                    edgecolor=_TEXT_COLOUR,
                )
            )
            axes.text((start_x + end_x) / 2, bottom_y + 0.4, part_text, ha="center", va="center", fontsize=9)
        axes.annotate(
            "",
            xy=(surplus_threads, bottom_y + 1.0),
            xytext=(0, bottom_y + 1.0),
            arrowprops={
                "arrowstyle": "|-|, widthA=0.3, widthB=0.3",
                "color": find_hex("tail"),
                "lw": 2,
            },
        )
        axes.text(
            0,
            bottom_y + 1.18,
            f"{surplus_threads} spare threads write here",
            fontsize=9,
            color=find_hex("tail-text"),
        )
        overflow_count = max(surplus_threads - free_elements, 0)
        outcome_texts.append(
            f"{n:,} elements and {threads:,} threads: {surplus_threads} spare threads, unused memory for "
            f"{free_elements} more elements, and {overflow_count or 'none'} of the writes beyond it"
        )
    axes.set(xlim=(x_min, x_max), ylim=(-2.2 * (len(launches) - 1) - 0.2, 1.7))
    axes.axis("off")
    return Picture.of(figure, f"Memory around the end of an array. {'; '.join(outcome_texts)}.")


def sooner(numpy_us: float, gpu_us: float) -> tuple[str, str]:
    """Return the right answer to the prediction ``00-small``, and a sentence that compares the times of NumPy
    and the GPU.

    Times within a factor of 1.5 are treated as equal.
    """
    time_ratio = gpu_us / numpy_us
    if max(time_ratio, 1 / time_ratio) < 1.5:
        return "both alike", f"The GPU took {time_ratio:.1f} times as long as NumPy"
    if time_ratio > 1:
        return "NumPy", f"The GPU took {time_ratio:.0f} times as long as NumPy"
    return "the GPU", f"NumPy took {1 / time_ratio:.1f} times as long as the GPU, on this computer"


def machine() -> Picture:
    """Draw the parts of a machine, from the host and the device to the threads of a block."""
    figure = Figure(figsize=(8.6, 3.6), dpi=_DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 17.2), ylim=(0, 7.2))
    axes.axis("off")

    def draw_box(
        left: float, bottom: float, width: float, height: float, name: str, caption: str, fill_colour: object
    ) -> None:
        box_patch = FancyBboxPatch(
            (left, bottom),
            width,
            height,
            boxstyle="round,pad=0.05",
            facecolor=fill_colour,
            edgecolor=_TEXT_COLOUR,
        )
        axes.add_patch(box_patch)
        axes.text(
            left + 0.15,
            bottom + height - 0.3,
            name,
            va="center",
            weight="bold",
            color=_TEXT_COLOUR,
            fontsize=10,
        )
        axes.text(left + 0.15, bottom + height - 0.75, caption, va="center", color=_TEXT_COLOUR, fontsize=8.5)

    draw_box(0.2, 0.3, 4.2, 6.5, "host", "your computer", (*_HOST_FILL,))
    draw_box(0.5, 3.2, 3.6, 2.0, "CPU", "runs Python", "white")
    draw_box(0.5, 0.6, 3.6, 2.0, "main memory", "NumPy arrays: np", "white")
    axes.annotate(
        "",
        xy=(6.3, 1.6),
        xytext=(4.5, 1.6),
        arrowprops={"arrowstyle": "<|-|>", "color": _TEXT_COLOUR, "lw": 1.5},
    )
    axes.text(5.4, 1.95, "copies", ha="center", color=_TEXT_COLOUR, fontsize=9)
    axes.annotate(
        "",
        xy=(6.3, 4.2),
        xytext=(4.5, 4.2),
        arrowprops={"arrowstyle": "-|>", "color": _TEXT_COLOUR, "lw": 1.5},
    )
    axes.text(5.4, 4.55, "launches", ha="center", color=_TEXT_COLOUR, fontsize=9)

    draw_box(6.4, 0.3, 10.6, 6.5, "device", "the GPU", (*_DEVICE_FILL,))
    draw_box(6.7, 0.6, 10.0, 1.5, "device memory", "arrays of the device: cp", "white")
    for sm_index, sm_left in enumerate((6.7, 8.5, 10.3)):
        draw_box(sm_left, 2.6, 1.5, 2.9, f"SM {sm_index}", "", "white")
    axes.text(12.05, 4.0, "…", color=_TEXT_COLOUR, fontsize=12)
    # One SM is enlarged: a block of threads that it runs.
    draw_box(12.9, 2.6, 3.8, 2.9, "block", "threads of one SM", "white")
    for row in range(2):
        for column in range(8):
            axes.add_patch(
                Rectangle(
                    (13.05 + 0.44 * column, 2.85 + 0.6 * row), 0.34, 0.45, facecolor=(_BLOCK_COLOURS[0], 0.55)
                )
            )
    for sm_left in (6.7, 8.5, 10.3):
        axes.add_patch(
            Rectangle(
                (sm_left + 0.2, 2.9), 1.1, 0.7, facecolor=(_BLOCK_COLOURS[0], 0.35), edgecolor=_TEXT_COLOUR
            )
        )
        axes.add_patch(
            Rectangle(
                (sm_left + 0.2, 3.8), 1.1, 0.7, facecolor=(_BLOCK_COLOURS[0], 0.35), edgecolor=_TEXT_COLOUR
            )
        )
    axes.plot([11.4, 12.9], [3.6, 5.5], [11.4, 12.9], [2.9, 2.6], color=_MUTED_COLOUR, lw=0.8)
    return Picture.of(
        figure,
        "On the left, the host: a CPU that runs Python, and main memory. On the right, the device: its "
        "memory, its SMs with blocks on them, and one block enlarged, in which each small box is a thread. "
        "Launches go from the host to the device, and copies go both ways.",
    )


_LAUNCH_STEPS = (
    ("Your cell", "kernel(grid, block, args)", _HOST_FILL),
    ("cp", "checks, and finds the compiled kernel", _HOST_FILL),
    ("stream", "a queue: here the call returns", _DEVICE_FILL),
    ("grid", "its blocks are assigned to SMs", _DEVICE_FILL),
    ("SM", "issues warps of 32 threads", _DEVICE_FILL),
)
# Layer, its contents, its replacement on a virtual GPU, and its fill.
_SOFTWARE_LAYERS = (
    ("Framework", "PyTorch, JAX, CuPy", "cp", _HOST_FILL),
    ("Libraries", "cuBLAS, cuDNN, NCCL; NVRTC compiles", "NumPy; NVRTC", _HOST_FILL),
    ("CUDA runtime", "memory, streams, events", "modelled", _HOST_FILL),
    ("CUDA driver", "contexts, launches; PTX → machine code", "PTX → code for your CPU", _HOST_FILL),
    ("GPU", "SMs, caches, memory", "your CPU, 32 lanes at a time", _DEVICE_FILL),
)


def stacks() -> Picture:
    """Draw the path of one kernel launch from Python to an SM through the software layers."""
    is_virtual = which_device().kind == "virtual"
    figure = Figure(figsize=(8.6, 4.3), dpi=_DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 17.2), ylim=(0, 8.6))
    axes.axis("off")
    axes.text(0.3, 8.1, "The path of one launch", weight="bold", color=_TEXT_COLOUR, fontsize=11)
    axes.text(8.1, 8.1, "The software layers", weight="bold", color=_TEXT_COLOUR, fontsize=11)
    for row, (
        (step_name, step_action, step_colour),
        (layer, layer_contents, replacement, layer_fill),
    ) in enumerate(zip(_LAUNCH_STEPS, _SOFTWARE_LAYERS, strict=True)):
        bottom_y = 6.5 - 1.55 * row
        for box_left, width, box_title, box_text, colour in (
            (0.3, 7.0, step_name, step_action, step_colour),
            (8.1, 8.8, layer, layer_contents, layer_fill),
        ):
            box = FancyBboxPatch(
                (box_left, bottom_y),
                width,
                1.05,
                boxstyle="round,pad=0.05",
                facecolor=colour,
                edgecolor=_TEXT_COLOUR,
            )
            axes.add_patch(box)
            axes.text(
                box_left + 0.2,
                bottom_y + 0.72,
                box_title,
                va="center",
                weight="bold",
                color=_TEXT_COLOUR,
                fontsize=10,
            )
            axes.text(box_left + 0.2, bottom_y + 0.27, box_text, va="center", color=_TEXT_COLOUR, fontsize=9)
        if is_virtual:
            replacement_text = f"here: {replacement}"
            axes.text(
                16.7,
                bottom_y + 0.72,
                replacement_text,
                va="center",
                ha="right",
                color=_TEXT_COLOUR,
                fontsize=8.5,
                style="italic",
            )
        if row:
            axes.annotate(
                "",
                xy=(1.0, bottom_y + 1.12),
                xytext=(1.0, bottom_y + 1.49),
                arrowprops={"arrowstyle": "-|>", "color": _TEXT_COLOUR},
            )
    italics_note = "; the substitute for each layer without a GPU is in italics" if is_virtual else ""
    return Picture.of(
        figure,
        "Left, the path of one launch: your cell, cp, a stream, the grid, an SM. Right, the layers of "
        f"software: framework, libraries, CUDA runtime, CUDA driver, GPU{italics_note}.",
    )


def numbering(n: int, block_threads: int) -> Picture:
    """Draw a 1-D grid over `n` elements, with the block and thread of each element and the idle threads."""
    blocks = -(-n // block_threads)
    figure = Figure(figsize=(7.6, 1.9), dpi=_DPI)
    axes = figure.add_axes((0.01, 0.02, 0.98, 0.96))
    total_threads = blocks * block_threads
    for index in range(total_threads):
        block, thread = divmod(index, block_threads)
        is_idle = index >= n
        axes.add_patch(
            Rectangle(
                (index + 0.05, 0.0),
                0.9,
                1.0,
                facecolor="white" if is_idle else (_BLOCK_COLOURS[block % len(_BLOCK_COLOURS)], 0.55),
                edgecolor=_BLOCK_COLOURS[block % len(_BLOCK_COLOURS)],
                hatch="////" if is_idle else None,
            )
        )
        axes.text(
            index + 0.5,
            0.5,
            str(thread),
            ha="center",
            va="center",
            fontsize=8,
            color=_TEXT_COLOUR,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"}
            if is_idle
            else None,
        )
        axes.text(
            index + 0.5,
            -0.35,
            "–" if is_idle else str(index),
            ha="center",
            va="center",
            fontsize=8,
            color=_MUTED_COLOUR,
        )
    for block in range(blocks):
        axes.text((block + 0.5) * block_threads, 1.35, f"blockIdx.x = {block}", ha="center", fontsize=9)
    axes.text(-0.2, 0.5, "threadIdx.x", ha="right", va="center", fontsize=8)
    axes.text(-0.2, -0.35, "element i", ha="right", va="center", fontsize=8)
    axes.set(xlim=(-total_threads * 0.12, total_threads), ylim=(-0.8, 1.8))
    axes.axis("off")
    idle_threads = total_threads - n
    return Picture.of(
        figure,
        f"{n} elements in {blocks} blocks of {block_threads} threads: i = blockIdx.x * {block_threads} + "
        f"threadIdx.x; {idle_threads} threads (hatched) have no element.",
    )
