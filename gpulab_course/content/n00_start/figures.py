"""Figures of notebook 00: a picture, two stacks, numbered threads."""

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
# Boxes are tints of the views' colours, on which text keeps its contrast.
_HOST = (light("accent"), 0.16)
_DEVICE = (light("good"), 0.18)
_BLOCKS = tuple(map(light, ("accent-2", "tail", "good", "warn")))
_INK = light("fg")
_SOFT = light("muted")


def picture(turns: npt.NDArray[np.int32]) -> Picture:
    """Draw numbers of iterations (height, width) as colours: the fewer, the darker; black inside the set."""
    shown = np.log1p(np.where(turns == turns.max(), 0, turns))
    file = io.BytesIO()
    imsave(file, shown, cmap="inferno", format="png")
    height, width = turns.shape
    return Picture(file.getvalue(), f"Mandelbrot's set, {width} by {height} pixels, one GPU thread a pixel.")


def sooner(numpy_us: float, gpu_us: float) -> tuple[str, str]:
    """Which of the two was faster, as ``00-small`` names them, and by how much. Up to 1.5 times is alike."""
    ratio = gpu_us / numpy_us
    if max(ratio, 1 / ratio) < 1.5:
        return "both alike", f"The GPU took {ratio:.1f} times as long as NumPy"
    if ratio > 1:
        return "NumPy", f"The GPU took {ratio:.0f} times as long as NumPy"
    return "the GPU", f"NumPy took {1 / ratio:.1f} times as long as the GPU, on this computer"


def machine() -> Picture:
    """A picture of host and device, SMs on the device, a block on an SM, and threads in a block."""
    figure = Figure(figsize=(8.6, 3.6), dpi=_DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 17.2), ylim=(0, 7.2))
    axes.axis("off")

    def box(
        left: float, bottom: float, width: float, height: float, name: str, told: str, ground: object
    ) -> None:
        shape = FancyBboxPatch(
            (left, bottom), width, height, boxstyle="round,pad=0.05", facecolor=ground, edgecolor=_INK
        )
        axes.add_patch(shape)
        axes.text(
            left + 0.15, bottom + height - 0.3, name, va="center", weight="bold", color=_INK, fontsize=10
        )
        axes.text(left + 0.15, bottom + height - 0.75, told, va="center", color=_INK, fontsize=8.5)

    box(0.2, 0.3, 4.2, 6.5, "host", "your computer", (*_HOST,))
    box(0.5, 3.2, 3.6, 2.0, "CPU", "runs Python", "white")
    box(0.5, 0.6, 3.6, 2.0, "main memory", "NumPy arrays: np", "white")
    axes.annotate(
        "", xy=(6.3, 1.6), xytext=(4.5, 1.6), arrowprops={"arrowstyle": "<|-|>", "color": _INK, "lw": 1.5}
    )
    axes.text(5.4, 1.95, "copies", ha="center", color=_INK, fontsize=9)
    axes.annotate(
        "", xy=(6.3, 4.2), xytext=(4.5, 4.2), arrowprops={"arrowstyle": "-|>", "color": _INK, "lw": 1.5}
    )
    axes.text(5.4, 4.55, "launches", ha="center", color=_INK, fontsize=9)

    box(6.4, 0.3, 10.6, 6.5, "device", "the GPU", (*_DEVICE,))
    box(6.7, 0.6, 10.0, 1.5, "device memory", "arrays of the device: cp", "white")
    for number, left in enumerate((6.7, 8.5, 10.3)):
        box(left, 2.6, 1.5, 2.9, f"SM {number}", "", "white")
    axes.text(12.05, 4.0, "…", color=_INK, fontsize=12)
    # One SM is enlarged: a block of threads that it runs.
    box(12.9, 2.6, 3.8, 2.9, "block", "threads of one SM", "white")
    for row in range(2):
        for column in range(8):
            axes.add_patch(
                Rectangle((13.05 + 0.44 * column, 2.85 + 0.6 * row), 0.34, 0.45, facecolor=(_BLOCKS[0], 0.55))
            )
    for left in (6.7, 8.5, 10.3):
        axes.add_patch(Rectangle((left + 0.2, 2.9), 1.1, 0.7, facecolor=(_BLOCKS[0], 0.35), edgecolor=_INK))
        axes.add_patch(Rectangle((left + 0.2, 3.8), 1.1, 0.7, facecolor=(_BLOCKS[0], 0.35), edgecolor=_INK))
    axes.plot([11.4, 12.9], [3.6, 5.5], [11.4, 12.9], [2.9, 2.6], color=_SOFT, lw=0.8)
    return Picture.of(
        figure,
        "Left the host: a CPU that runs Python, and main memory. Right the device: its memory, its SMs with "
        "blocks on them, and one block enlarged, in which each small box is a thread. Launches go from the "
        "host to the device, copies both ways.",
    )


_WAY = (
    ("Your cell", "kernel(grid, block, args)", _HOST),
    ("cp", "checks, and finds the compiled kernel", _HOST),
    ("stream", "a queue: here the call returns", _DEVICE),
    ("grid", "its blocks are dealt out to SMs", _DEVICE),
    ("SM", "issues warps of 32 threads", _DEVICE),
)
# Layer, what belongs to it, and what stands in its place without a GPU.
_LAYERS = (
    ("Framework", "PyTorch, JAX, CuPy", "cp", _HOST),
    ("Libraries", "cuBLAS, cuDNN, NCCL; NVRTC compiles", "NumPy; NVRTC", _HOST),
    ("CUDA runtime", "memory, streams, events", "modelled", _HOST),
    ("CUDA driver", "contexts, launches; PTX → machine code", "PTX → code for your CPU", _HOST),
    ("GPU", "SMs, caches, memory", "your CPU, 32 lanes at a time", _DEVICE),
)


def stacks() -> Picture:
    """The way of one launch from Python to an SM, beside the layers of software that it crosses."""
    virtual = which_device().kind == "virtual"
    figure = Figure(figsize=(8.6, 4.3), dpi=_DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 17.2), ylim=(0, 8.6))
    axes.axis("off")
    axes.text(0.3, 8.1, "The way of one launch", weight="bold", color=_INK, fontsize=11)
    axes.text(8.1, 8.1, "The layers of software", weight="bold", color=_INK, fontsize=11)
    for row, ((step, does, ground), (layer, holds, stand_in, layer_ground)) in enumerate(
        zip(_WAY, _LAYERS, strict=True)
    ):
        bottom = 6.5 - 1.55 * row
        for left, width, name, text, colour in (
            (0.3, 7.0, step, does, ground),
            (8.1, 8.8, layer, holds, layer_ground),
        ):
            box = FancyBboxPatch(
                (left, bottom), width, 1.05, boxstyle="round,pad=0.05", facecolor=colour, edgecolor=_INK
            )
            axes.add_patch(box)
            axes.text(left + 0.2, bottom + 0.72, name, va="center", weight="bold", color=_INK, fontsize=10)
            axes.text(left + 0.2, bottom + 0.27, text, va="center", color=_INK, fontsize=9)
        if virtual:
            told = f"here: {stand_in}"
            axes.text(
                16.7, bottom + 0.72, told, va="center", ha="right", color=_INK, fontsize=8.5, style="italic"
            )
        if row:
            axes.annotate(
                "",
                xy=(1.0, bottom + 1.12),
                xytext=(1.0, bottom + 1.49),
                arrowprops={"arrowstyle": "-|>", "color": _INK},
            )
    place = "; what stands in for each layer without a GPU is in italics" if virtual else ""
    return Picture.of(
        figure,
        "Left, the way of one launch: your cell, cp, a stream, the grid, an SM. Right, the layers of "
        f"software: framework, libraries, CUDA runtime, CUDA driver, GPU{place}.",
    )


def numbering(n: int, block_threads: int) -> Picture:
    """A 1-D grid over `n` elements: which block and thread serves which, and the idle tail."""
    blocks = -(-n // block_threads)
    figure = Figure(figsize=(7.6, 1.9), dpi=_DPI)
    axes = figure.add_axes((0.01, 0.02, 0.98, 0.96))
    total = blocks * block_threads
    for index in range(total):
        block, thread = divmod(index, block_threads)
        idle = index >= n
        axes.add_patch(
            Rectangle(
                (index + 0.05, 0.0),
                0.9,
                1.0,
                facecolor="white" if idle else (_BLOCKS[block % len(_BLOCKS)], 0.55),
                edgecolor=_BLOCKS[block % len(_BLOCKS)],
                hatch="////" if idle else None,
            )
        )
        axes.text(
            index + 0.5,
            0.5,
            str(thread),
            ha="center",
            va="center",
            fontsize=8,
            color=_INK,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"} if idle else None,
        )
        axes.text(
            index + 0.5,
            -0.35,
            "–" if idle else str(index),
            ha="center",
            va="center",
            fontsize=8,
            color=_SOFT,
        )
    for block in range(blocks):
        axes.text((block + 0.5) * block_threads, 1.35, f"blockIdx.x = {block}", ha="center", fontsize=9)
    axes.text(-0.2, 0.5, "threadIdx.x", ha="right", va="center", fontsize=8)
    axes.text(-0.2, -0.35, "element i", ha="right", va="center", fontsize=8)
    axes.set(xlim=(-total * 0.12, total), ylim=(-0.8, 1.8))
    axes.axis("off")
    idle_count = total - n
    return Picture.of(
        figure,
        f"{n} elements in {blocks} blocks of {block_threads} threads: i = blockIdx.x * {block_threads} + "
        f"threadIdx.x; {idle_count} threads (hatched) have no element.",
    )
