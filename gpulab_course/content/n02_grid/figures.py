"""Figures of notebook 02: warps of a block, sectors of a warp, an SM, and latency hiding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpulab.views.parts.palette import find_hex
from gpulab.words import count as counted
from gpulab_course.teach.picture import Picture
from virtualgpu.records import DeviceInfo, Provenance

_FLOATS_PER_SECTOR = 8
_SCHEDULER_COUNT = 4  # per SM, since Volta
_LINE_COLOURS = ("accent", "warn", "good")
_LINE_MARKERS = ("o", "s", "^")
_WARP_COLOURS = ("accent", "warn", "good", "purple", "accent-2")


def warps_of_block(warp_numbers: Any) -> Picture:
    """Draw the threads of a two-dimensional block as cells, with one colour per warp.

    Parameters
    ----------
    warp_numbers
        The warp of each thread, as an array with a row for each y and a column for each x.
    """
    rows, columns = warp_numbers.shape
    figure = Figure(figsize=(7.6, 7.0 * rows / columns + 0.9), dpi=100)
    axes = figure.add_axes((0.07, 0.03, 0.92, 0.78))
    for y in range(rows):
        for x in range(columns):
            warp_number = int(warp_numbers[y, x])
            colour_name = _WARP_COLOURS[warp_number % len(_WARP_COLOURS)]
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=find_hex(colour_name), edgecolor="white"))
            colour = find_hex(f"on-{colour_name}")
            axes.text(x + 0.5, y + 0.5, str(warp_number), ha="center", va="center", fontsize=9, color=colour)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_xticks([x + 0.5 for x in range(columns)], [str(x) for x in range(columns)], fontsize=8)
    axes.set_yticks([y + 0.5 for y in range(rows)], [str(y) for y in range(rows)], fontsize=8)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("threadIdx.x")
    axes.set_ylabel("threadIdx.y")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    threads_of_warps = [
        int((warp_numbers == warp_number).sum()) for warp_number in range(int(warp_numbers.max()) + 1)
    ]
    warps_text = ", ".join(
        f"{thread_count} in warp {warp_number}" for warp_number, thread_count in enumerate(threads_of_warps)
    )
    return Picture.of(
        figure,
        f"The threads of a block of {columns} × {rows}, row by row, in the colours of their warps: "
        f"{warps_text}.",
    )


def sectors_of_warps(positions: Mapping[str, Any], cols: int) -> Picture:
    """Draw the memory sectors that the lanes of a warp write in a row-major matrix of floats.

    Parameters
    ----------
    positions
        For each way to write, the positions in the matrix that the 32 lanes write.
    cols
        The number of columns, a multiple of the 8 floats of a sector.
    """
    figure = Figure(figsize=(7.6, 4.4), dpi=100)
    axes_of_panels = figure.subplots(1, len(positions), squeeze=False)[0]
    figure.subplots_adjust(left=0.08, right=0.99, top=0.87, bottom=0.03, wspace=0.18)
    count_texts = []
    row_count = max(int(max(element_positions)) // cols + 1 for element_positions in positions.values())
    for axes, (name, element_positions) in zip(axes_of_panels, positions.items(), strict=True):
        sectors = {int(position) // _FLOATS_PER_SECTOR for position in element_positions}
        count_texts.append(f"{name}: {len(sectors)} sectors")
        for sector in range(row_count * cols // _FLOATS_PER_SECTOR):
            row, column = divmod(sector * _FLOATS_PER_SECTOR, cols)
            axes.add_patch(
                Rectangle(
                    (column, row),
                    _FLOATS_PER_SECTOR,
                    1,
                    facecolor=find_hex("accent-2") if sector in sectors else "white",
                    edgecolor=find_hex("muted"),
                    linewidth=0.6,
                )
            )
        for position in element_positions:
            row, column = divmod(int(position), cols)
            axes.add_patch(Rectangle((column + 0.15, row + 0.2), 0.7, 0.6, facecolor=find_hex("tail")))
        axes.set_xlim(0, cols)
        axes.set_ylim(row_count, 0)
        axes.set_title(count_texts[-1], fontsize=11, pad=22)
        ticks = range(0, cols, 2 * _FLOATS_PER_SECTOR)
        axes.set_xticks([tick + 0.5 for tick in ticks], [str(tick) for tick in ticks], fontsize=9)
        axes.set_yticks(
            [row + 0.5 for row in range(0, row_count, 8)], [str(row) for row in range(0, row_count, 8)]
        )
        axes.tick_params(length=0, labelsize=9)
        axes.xaxis.tick_top()
        for spine in axes.spines.values():
            spine.set_visible(False)
    axes_of_panels[0].set_ylabel("row")
    return Picture.of(
        figure,
        f"The sectors that the 32 lanes of a warp write in a matrix of {cols} columns. "
        f"{'; '.join(count_texts)}. A box is a sector of 8 floats, and the marks in it are floats that "
        "lanes write.",
    )


def inside_sm(info: DeviceInfo) -> Picture:
    """Draw an SM with its warp schedulers, their warp slots and execution units, and the shared parts."""
    warp_slots = info.max_warps_per_sm // _SCHEDULER_COUNT
    fp32_lanes = info.fp32_lanes_per_sm // _SCHEDULER_COUNT
    figure = Figure(figsize=(7.6, 4.0), dpi=100)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 15.2), ylim=(0, 8.0))
    axes.axis("off")

    def draw_box(
        left: float, bottom: float, width: float, height: float, colour_name: str, text: str
    ) -> None:
        axes.add_patch(
            Rectangle(
                (left, bottom),
                width,
                height,
                facecolor=(find_hex(colour_name), 0.45),
                edgecolor=find_hex("fg"),
            )
        )
        axes.text(left + width / 2, bottom + height / 2, text, ha="center", va="center", fontsize=9)

    for scheduler in range(_SCHEDULER_COUNT):
        left_x = 0.3 + 3.7 * scheduler
        for slot in range(warp_slots):
            row, column = divmod(slot, 8)
            axes.add_patch(
                Rectangle(
                    (left_x + 0.43 * column, 7.0 - 0.4 * row),
                    0.35,
                    0.3,
                    facecolor=find_hex("warn"),
                    edgecolor=find_hex("fg"),
                    linewidth=0.5,
                )
            )
        axes.text(left_x, 7.55, f"{warp_slots} warp slots", fontsize=9)
        draw_box(left_x, 4.9, 3.4, 0.8, "accent-2", f"scheduler {scheduler}")
        axes.annotate(
            "",
            xy=(left_x + 1.7, 5.75),
            xytext=(left_x + 1.7, 7.0 - 0.4 * ((warp_slots - 1) // 8) - 0.05),
            arrowprops={"arrowstyle": "-|>", "color": find_hex("fg")},
        )
        axes.annotate(
            "",
            xy=(left_x + 1.7, 4.25),
            xytext=(left_x + 1.7, 4.85),
            arrowprops={"arrowstyle": "-|>", "color": find_hex("fg")},
        )
        draw_box(left_x, 3.4, 3.4, 0.8, "good", f"{fp32_lanes} FP32 units")
        draw_box(left_x, 2.5, 1.6, 0.8, "good", "SFUs")
        draw_box(left_x + 1.8, 2.5, 1.6, 0.8, "good", "tensor core")
        draw_box(left_x, 1.6, 3.4, 0.8, "purple", f"{info.registers_per_sm // _SCHEDULER_COUNT:,} registers")
    draw_box(
        0.3, 0.4, 14.5, 0.8, "purple", "load/store units, shared memory and L1 cache, for all warps of the SM"
    )
    return Picture.of(
        figure,
        f"An SM of {info.name}: {_SCHEDULER_COUNT} warp schedulers, each with {warp_slots} warp slots, "
        f"{fp32_lanes} FP32 units, special-function units, a tensor core and registers. All of them share "
        "the load/store units, the shared memory and the L1 cache.",
    )


def waiting_warps(warp_counts: Sequence[int], latency: int) -> Picture:
    """Draw a scheduler's warps over time, and mark the cycles in which they issue instructions.

    Parameters
    ----------
    warp_counts
        The numbers of warps, one per panel.
    latency
        The cycles from an instruction of a warp to its next one.
    """
    drawn_cycles = 2 * latency
    figure = Figure(figsize=(7.6, 0.6 + 0.27 * sum(warp_count + 1.4 for warp_count in warp_counts)), dpi=100)
    axes = figure.add_axes((0.11, 0.1, 0.87, 0.89))
    top_y = 0.0
    issue_texts = []
    for warp_count in warp_counts:
        is_issuing = np.zeros(drawn_cycles, bool)
        for warp in range(warp_count):
            y = top_y - warp
            axes.add_patch(
                Rectangle((warp, y), drawn_cycles - warp, 0.8, facecolor=(find_hex("other"), 0.35))
            )
            for cycle in range(warp, drawn_cycles, latency):
                is_issuing[cycle] = True
                axes.add_patch(Rectangle((cycle, y), 1, 0.8, facecolor=find_hex("accent"), edgecolor="white"))
            axes.text(-0.2, y + 0.4, f"warp {warp}", ha="right", va="center", fontsize=9)
        busy_cycles = int(is_issuing[:latency].sum())
        issue_texts.append(
            f"with {counted(warp_count, 'warp')} the scheduler issues in {busy_cycles} of {latency} cycles"
        )
        axes.text(
            0,
            top_y + 1.0,
            f"{counted(warp_count, 'warp')}: the scheduler issues in {busy_cycles} of {latency} cycles",
            fontsize=10,
        )
        top_y -= warp_count + 1.3
    axes.set(xlim=(0, drawn_cycles), ylim=(top_y + 1.1, 1.7))
    axes.set_yticks([])
    axes.set_xticks(range(0, drawn_cycles + 1, 4))
    axes.set_xlabel("cycle (blue: the warp issues an instruction; grey: it waits)", fontsize=9)
    for spine_side in ("left", "right", "top"):
        axes.spines[spine_side].set_visible(False)
    return Picture.of(
        figure,
        f"One scheduler whose warps wait {latency} cycles after each instruction: {'; '.join(issue_texts)}.",
    )


def latency_hiding(
    warps: Sequence[int],
    bandwidth_gbps: Mapping[str, Sequence[float]],
    info: DeviceInfo,
    origin: Provenance,
) -> Picture:
    """Draw the bandwidth of copies against the number of warps per SM.

    Parameters
    ----------
    warps
        The number of warps per SM, one value per point.
    bandwidth_gbps
        The bandwidths of each copy by its name, one per number of warps, in GB/s.
    info
        The device.
    origin
        The provenance of the times.
    """
    figure = Figure(figsize=(7.6, 3.4), dpi=100)
    axes = figure.add_axes((0.1, 0.17, 0.87, 0.74))
    for (name, gbps), colour, marker in zip(
        bandwidth_gbps.items(), _LINE_COLOURS, _LINE_MARKERS, strict=False
    ):
        axes.plot(warps, gbps, marker=marker, color=find_hex(colour), label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(warps), [str(warp_count) for warp_count in warps])
    axes.set_ylim(0, 1.1 * max(max(gbps) for gbps in bandwidth_gbps.values()))
    axes.set_xlabel(f"warps on each SM (of {info.max_warps_per_sm} slots)")
    axes.set_ylabel("GB/s read and written")
    axes.set_title(origin.label, fontsize=10, color=find_hex("muted"))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    peaks_text = ", ".join(f"{name} reaches {max(gbps):,.0f} GB/s" for name, gbps in bandwidth_gbps.items())
    return Picture.of(
        figure,
        f"Bandwidth of a copy for different numbers of warps on each SM, {origin.label}: {peaks_text}.",
    )
