"""Figures of notebook 02: the bandwidth of copies over the number of warps on each SM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from gpulab.views.parts.palette import light
from gpulab_course.teach.picture import Picture
from virtualgpu.records import DeviceInfo, Provenance

_COLOURS = ("accent", "warn", "good")
_MARKS = ("o", "s", "^")


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
