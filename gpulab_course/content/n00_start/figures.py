"""Figures of notebook 00: a Mandelbrot picture, host and device, two stacks, and numbered threads."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.patches import FancyBboxPatch, Rectangle

from gpulab.session import which_device
from gpulab.views.parts.palette import light
from gpulab_course.teach.picture import Picture

_DPI = 100
# The boxes use pale tints of the views' colours, on which text stays readable.
_HOST_FILL = (light("accent"), 0.16)
_DEVICE_FILL = (light("good"), 0.18)
_BLOCK_COLOURS = tuple(map(light, ("accent-2", "tail", "good", "warn")))
_TEXT_COLOUR = light("fg")
_MUTED_COLOUR = light("muted")


def picture(iterations: npt.NDArray[np.int32]) -> Picture:
    """Draw iteration counts (height, width) as colours: fewer iterations are darker; the set is black."""
    log_iterations = np.log1p(np.where(iterations == iterations.max(), 0, iterations))
    file = io.BytesIO()
    imsave(file, log_iterations, cmap="inferno", format="png")
    height, width = iterations.shape
    return Picture(file.getvalue(), f"Mandelbrot's set, {width} by {height} pixels, one GPU thread a pixel.")


def sooner(numpy_us: float, gpu_us: float) -> tuple[str, str]:
    """Return the faster one of NumPy and the GPU as a choice of ``00-small``, and a sentence with the ratio.

    Times within a factor of 1.5 are treated as equal.
    """
    ratio = gpu_us / numpy_us
    if max(ratio, 1 / ratio) < 1.5:
        return "both alike", f"The GPU took {ratio:.1f} times as long as NumPy"
    if ratio > 1:
        return "NumPy", f"The GPU took {ratio:.0f} times as long as NumPy"
    return "the GPU", f"NumPy took {1 / ratio:.1f} times as long as the GPU, on this computer"


def machine() -> Picture:
    """Draw host and device, SMs on the device, a block on an SM, and threads in a block."""
    figure = Figure(figsize=(8.6, 3.6), dpi=_DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 17.2), ylim=(0, 7.2))
    axes.axis("off")

    def box(
        left: float, bottom: float, width: float, height: float, name: str, caption: str, fill: object
    ) -> None:
        shape = FancyBboxPatch(
            (left, bottom), width, height, boxstyle="round,pad=0.05", facecolor=fill, edgecolor=_TEXT_COLOUR
        )
        axes.add_patch(shape)
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

    box(0.2, 0.3, 4.2, 6.5, "host", "your computer", (*_HOST_FILL,))
    box(0.5, 3.2, 3.6, 2.0, "CPU", "runs Python", "white")
    box(0.5, 0.6, 3.6, 2.0, "main memory", "NumPy arrays: np", "white")
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

    box(6.4, 0.3, 10.6, 6.5, "device", "the GPU", (*_DEVICE_FILL,))
    box(6.7, 0.6, 10.0, 1.5, "device memory", "arrays of the device: cp", "white")
    for number, left in enumerate((6.7, 8.5, 10.3)):
        box(left, 2.6, 1.5, 2.9, f"SM {number}", "", "white")
    axes.text(12.05, 4.0, "…", color=_TEXT_COLOUR, fontsize=12)
    # One SM is enlarged: a block of threads that it runs.
    box(12.9, 2.6, 3.8, 2.9, "block", "threads of one SM", "white")
    for row in range(2):
        for column in range(8):
            axes.add_patch(
                Rectangle(
                    (13.05 + 0.44 * column, 2.85 + 0.6 * row), 0.34, 0.45, facecolor=(_BLOCK_COLOURS[0], 0.55)
                )
            )
    for left in (6.7, 8.5, 10.3):
        axes.add_patch(
            Rectangle(
                (left + 0.2, 2.9), 1.1, 0.7, facecolor=(_BLOCK_COLOURS[0], 0.35), edgecolor=_TEXT_COLOUR
            )
        )
        axes.add_patch(
            Rectangle(
                (left + 0.2, 3.8), 1.1, 0.7, facecolor=(_BLOCK_COLOURS[0], 0.35), edgecolor=_TEXT_COLOUR
            )
        )
    axes.plot([11.4, 12.9], [3.6, 5.5], [11.4, 12.9], [2.9, 2.6], color=_MUTED_COLOUR, lw=0.8)
    return Picture.of(
        figure,
        "Left the host: a CPU that runs Python, and main memory. Right the device: its memory, its SMs with "
        "blocks on them, and one block enlarged, in which each small box is a thread. Launches go from the "
        "host to the device, copies both ways.",
    )


_LAUNCH_STEPS = (
    ("Your cell", "kernel(grid, block, args)", _HOST_FILL),
    ("cp", "checks, and finds the compiled kernel", _HOST_FILL),
    ("stream", "a queue: here the call returns", _DEVICE_FILL),
    ("grid", "its blocks are dealt out to SMs", _DEVICE_FILL),
    ("SM", "issues warps of 32 threads", _DEVICE_FILL),
)
# Layer, its contents, its replacement on a virtual GPU, and its fill.
_LAYERS = (
    ("Framework", "PyTorch, JAX, CuPy", "cp", _HOST_FILL),
    ("Libraries", "cuBLAS, cuDNN, NCCL; NVRTC compiles", "NumPy; NVRTC", _HOST_FILL),
    ("CUDA runtime", "memory, streams, events", "modelled", _HOST_FILL),
    ("CUDA driver", "contexts, launches; PTX → machine code", "PTX → code for your CPU", _HOST_FILL),
    ("GPU", "SMs, caches, memory", "your CPU, 32 lanes at a time", _DEVICE_FILL),
)


def stacks() -> Picture:
    """Draw the path of one launch from Python to an SM, next to the software layers that it crosses."""
    is_virtual = which_device().kind == "virtual"
    figure = Figure(figsize=(8.6, 4.3), dpi=_DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 17.2), ylim=(0, 8.6))
    axes.axis("off")
    axes.text(0.3, 8.1, "The way of one launch", weight="bold", color=_TEXT_COLOUR, fontsize=11)
    axes.text(8.1, 8.1, "The layers of software", weight="bold", color=_TEXT_COLOUR, fontsize=11)
    for row, ((step, action, fill), (layer, contents, stand_in, layer_fill)) in enumerate(
        zip(_LAUNCH_STEPS, _LAYERS, strict=True)
    ):
        bottom = 6.5 - 1.55 * row
        for left, width, name, text, colour in (
            (0.3, 7.0, step, action, fill),
            (8.1, 8.8, layer, contents, layer_fill),
        ):
            box = FancyBboxPatch(
                (left, bottom),
                width,
                1.05,
                boxstyle="round,pad=0.05",
                facecolor=colour,
                edgecolor=_TEXT_COLOUR,
            )
            axes.add_patch(box)
            axes.text(
                left + 0.2, bottom + 0.72, name, va="center", weight="bold", color=_TEXT_COLOUR, fontsize=10
            )
            axes.text(left + 0.2, bottom + 0.27, text, va="center", color=_TEXT_COLOUR, fontsize=9)
        if is_virtual:
            label = f"here: {stand_in}"
            axes.text(
                16.7,
                bottom + 0.72,
                label,
                va="center",
                ha="right",
                color=_TEXT_COLOUR,
                fontsize=8.5,
                style="italic",
            )
        if row:
            axes.annotate(
                "",
                xy=(1.0, bottom + 1.12),
                xytext=(1.0, bottom + 1.49),
                arrowprops={"arrowstyle": "-|>", "color": _TEXT_COLOUR},
            )
    note = "; what stands in for each layer without a GPU is in italics" if is_virtual else ""
    return Picture.of(
        figure,
        "Left, the way of one launch: your cell, cp, a stream, the grid, an SM. Right, the layers of "
        f"software: framework, libraries, CUDA runtime, CUDA driver, GPU{note}.",
    )


def numbering(n: int, block_threads: int) -> Picture:
    """Draw a 1-D grid over `n` elements: the block and thread of each element, and the idle tail."""
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
