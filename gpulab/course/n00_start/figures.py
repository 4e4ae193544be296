"""Figures of notebook 00: the layers a call goes through, and how threads are numbered."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from gpulab.session import which_device
from gpulab.teach.picture import Picture
from gpulab.views.parts.palette import light

_DPI = 100
# Boxes are tints of the views' colours, on which text keeps its contrast.
_HOST = (light("accent"), 0.16)
_DEVICE = (light("good"), 0.18)
_BLOCKS = tuple(map(light, ("accent-2", "tail", "good", "warn")))
_INK, _SOFT = light("fg"), light("muted")


def stack() -> Picture:
    """The layers from a Python line to the SMs, for the device in use."""
    choice = which_device()
    virtual = choice.kind == "virtual"
    layers = [
        ("Your cell", "y = 2 * x + 1        kernel(grid, block, args)", _HOST),
        ("cp", "the virtual GPU's module, shaped like CuPy" if virtual else "CuPy", _HOST),
        ("NVRTC", "CUDA C++ text → PTX, at run time", _HOST),
        (
            ("engine", "PTX → CPU code that runs 32 lanes in step", _HOST)
            if virtual
            else ("CUDA driver", "PTX → machine code (SASS); queues work on a stream", _HOST)
        ),
        (
            "Device",
            f"{'virtual ' if virtual else ''}{choice.device}: the grid of blocks is dealt out",
            _DEVICE,
        ),
        ("SMs", "hold several blocks each and issue their warps of 32 threads", _DEVICE),
    ]
    figure = Figure(figsize=(7.6, 3.9), dpi=_DPI)
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=(0, 10), ylim=(0, len(layers) * 1.15), xticks=[], yticks=[])
    axes.axis("off")
    for row, (name, what, colour) in enumerate(layers):
        bottom = (len(layers) - 1 - row) * 1.15 + 0.18
        axes.add_patch(
            FancyBboxPatch(
                (0.3, bottom), 8.0, 0.72, boxstyle="round,pad=0.03", facecolor=colour, edgecolor=_INK
            )
        )
        axes.text(0.5, bottom + 0.36, name, va="center", weight="bold", color=_INK, fontsize=10)
        axes.text(2.2, bottom + 0.36, what, va="center", color=_INK, fontsize=10)
        if row:
            axes.annotate(
                "",
                xy=(1.1, bottom + 0.76),
                xytext=(1.1, bottom + 1.14),
                arrowprops={"arrowstyle": "-|>", "color": _INK},
            )
    axes.text(8.5, 4.6, "host:\nPython,\nordinary\nmemory", va="center", color=_SOFT, fontsize=9)
    axes.text(8.5, 1.15, "device:\nits own\nmemory", va="center", color=_SOFT, fontsize=9)
    place = "on the virtual GPU" if virtual else "on this GPU"
    return Picture.of(
        figure, f"The layers a Python line goes through {place}, from the cell down to the SMs."
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
