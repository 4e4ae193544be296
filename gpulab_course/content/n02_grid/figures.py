"""Figures of notebook 02: the warps of a block, and the bandwidth of copies over the number of warps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpulab.views.parts.palette import light
from gpulab_course.teach.picture import Picture
from virtualgpu.records import DeviceInfo, Provenance

_COLOURS = ("accent", "warn", "good")
_MARKS = ("o", "s", "^")
_WARP_COLOURS = ("accent", "warn", "good", "purple", "accent-2")


def warps_of_block(warp_numbers: Any) -> Picture:
    """Draw the threads of a two-dimensional block as cells, in the colours of their warps.

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
            number = int(warp_numbers[y, x])
            name = _WARP_COLOURS[number % len(_WARP_COLOURS)]
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=light(name), edgecolor="white"))
            colour = light(f"on-{name}")
            axes.text(x + 0.5, y + 0.5, str(number), ha="center", va="center", fontsize=9, color=colour)
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
    threads_of_warps = [int((warp_numbers == number).sum()) for number in range(int(warp_numbers.max()) + 1)]
    warps_text = ", ".join(f"{count} in warp {number}" for number, count in enumerate(threads_of_warps))
    return Picture.of(
        figure,
        f"The threads of a block of {columns} × {rows}, row by row, in the colours of their warps: "
        f"{warps_text}.",
    )


def latency_hiding(
    warps: Sequence[int],
    bandwidth_gbps: Mapping[str, Sequence[float]],
    info: DeviceInfo,
    origin: Provenance,
) -> Picture:
    """Draw the bandwidth of copies over the warps on each SM.

    Parameters
    ----------
    warps
        The number of warps on each SM, one per point.
    bandwidth_gbps
        The bandwidths of each copy by its name, one per number of warps, in GB/s.
    info
        The device.
    origin
        The provenance of the times.
    """
    figure = Figure(figsize=(7.6, 3.4), dpi=100)
    axes = figure.add_axes((0.1, 0.17, 0.87, 0.74))
    for (name, gbps), colour, mark in zip(bandwidth_gbps.items(), _COLOURS, _MARKS, strict=False):
        axes.plot(warps, gbps, marker=mark, color=light(colour), label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(warps), [str(warp_count) for warp_count in warps])
    axes.set_ylim(0, 1.1 * max(max(gbps) for gbps in bandwidth_gbps.values()))
    axes.set_xlabel(f"warps on each SM (of {info.max_warps_per_sm} slots)")
    axes.set_ylabel("GB/s read and written")
    axes.set_title(origin.label, fontsize=10, color=light("muted"))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    peaks_text = ", ".join(f"{name} reaches {max(gbps):,.0f} GB/s" for name, gbps in bandwidth_gbps.items())
    return Picture.of(figure, f"Bandwidth of a copy over the warps on each SM, {origin.label}: {peaks_text}.")
