"""Drawing of a GPU with areas to scale: one tile per SM, the L2 cache and the memory."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gpulab.views.parts.boxes import Box, Plot, column, words
from gpulab.views.parts.items import Labels, Rects
from gpulab.views.parts.palette import choose_ink
from gpulab.views.parts.plots import make_sentence_args, plot
from gpulab.words import count, number, size
from virtualgpu.records import DeviceInfo

# As in the roofline chart.
SM_COLOUR, L2_COLOUR, MEMORY_COLOUR = "good", "accent", "tail-pale"  # palette colours
CHIP_PX = 84
MEMORY_PX = 22
NOMINAL_WIDTH_PX = 520
"""Width for which tiles are square."""


def compute_chip_layout(
    info: DeviceInfo, width: float, height: float
) -> tuple[npt.NDArray[np.float64], float]:
    """Return the rectangle (x, y, width, height) of each SM in the drawing of a chip, and the width of the L2
    rectangle.

    The parameters `width` and `height` are the size of the chip. The area of an SM's tile represents its
    shared memory, and the area of L2 its size, on the same scale. L2 has the remaining width and the whole
    height.
    """
    sm_bytes = info.sm_count * info.shared_per_sm_bytes
    sm_width = width * sm_bytes / (sm_bytes + info.l2_bytes)
    # With this number of rows tiles are nearly square; a last, incomplete column takes space of L2.
    row_count = max(1, round(math.sqrt(info.sm_count * height / sm_width)))
    column_count = -(-info.sm_count // row_count)
    tiles_bytes = row_count * column_count * info.shared_per_sm_bytes
    tile_width = width / column_count * tiles_bytes / (tiles_bytes + info.l2_bytes)
    sm_index = np.arange(info.sm_count)
    tile_corners = np.stack(
        [sm_index // row_count * tile_width, sm_index % row_count * height / row_count], axis=1
    )
    tile_sizes = np.tile([tile_width, height / row_count], (info.sm_count, 1))
    return np.concatenate([tile_corners, tile_sizes], axis=1), width - column_count * tile_width


def draw_chip(info: DeviceInfo) -> Box:
    """Return a drawing that shows the SMs, the L2 cache and the device memory of a GPU."""
    memory_text = f"{size(info.memory_bytes)} of {info.memory_type or 'memory'}"
    tiles_text = f"{count(info.sm_count, 'SM')}, one tile each"
    return column(
        _draw_sms(info, f"{tiles_text}: point at one, or use the arrow keys."),
        words(tiles_text, "note", only="picture"),
        _draw_memory(info, memory_text),
    )


def explain_scales(info: DeviceInfo) -> str:
    """Return sentences that explain the scales of the drawing."""
    return (
        f"The areas of the chip are to scale: a tile is {size(info.shared_per_sm_bytes)} of shared memory. "
        f"In the bar, L2 and memory are to scale: 1 to {number(info.memory_bytes / info.l2_bytes)}."
    )


def _draw_sms(info: DeviceInfo, hint: str) -> Plot:
    sm_rectangles, l2_width = compute_chip_layout(info, NOMINAL_WIDTH_PX, CHIP_PX)
    x, y, tile_width, tile_height = sm_rectangles.T
    l2_x = NOMINAL_WIDTH_PX - l2_width
    sm_description = (
        f": {count(info.fp32_lanes_per_sm, 'FP32 lane')}, {number(info.max_threads_per_sm)} threads, "
        f"{size(info.shared_per_sm_bytes)} of shared memory."
    )
    sentences = [f"SM {sm}{sm_description}" for sm in range(info.sm_count)]
    sentences.append(f"L2: {size(info.l2_bytes)} for all SMs.")
    return plot(
        CHIP_PX,
        (0, NOMINAL_WIDTH_PX),
        Rects(
            [*x, l2_x],
            [*(x + tile_width), NOMINAL_WIDTH_PX],
            [*y, 0],
            [*(y + tile_height - 1), CHIP_PX - 1],
            [0] * info.sm_count + [1],
            [SM_COLOUR, L2_COLOUR],
            inset=0.5,
            **make_sentence_args(sentences),
        ),
        Labels(
            [l2_x + l2_width / 2],
            [CHIP_PX / 2],
            [f"L2: {size(info.l2_bytes)}\nL2"],
            anchor="middle",
            colour=choose_ink(L2_COLOUR),
            room=[l2_width],
        ),
        label=f"Chip with {count(info.sm_count, 'SM')} and {size(info.l2_bytes)} of L2",
        hint=hint,
    )


def _draw_memory(info: DeviceInfo, text: str) -> Plot:
    l2_px = math.sqrt(NOMINAL_WIDTH_PX * MEMORY_PX * info.l2_bytes / info.memory_bytes)
    l2_top = (MEMORY_PX - l2_px) / 2
    return plot(
        MEMORY_PX,
        (0, NOMINAL_WIDTH_PX),
        Rects([0], [NOMINAL_WIDTH_PX], [0], [MEMORY_PX], MEMORY_COLOUR),
        Rects([8], [8 + l2_px], [l2_top], [l2_top + l2_px], L2_COLOUR),
        Labels(
            [8 + l2_px],
            [MEMORY_PX / 2],
            [f"L2 on the scale of the memory: {text}\n{text}"],
            dx=6,
            colour=choose_ink(MEMORY_COLOUR),
            room=[NOMINAL_WIDTH_PX - 30],
        ),
        label=f"Memory of {text}",
    )
