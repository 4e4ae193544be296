"""Painters of tracks and their time axis on the static picture; ``tracks.js`` paints the same on a canvas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from gpulab.views.parts import palette
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import TimeAxis, Tracks
from gpulab.views.parts.pen import SHARPNESS, Pen, shorten, text_width
from gpulab.views.parts.plots import make_time_ticks

MIN_NAMED_HEIGHT_PX = 11
MIN_NAME_WIDTH_PX = 26
TICK_SPACING_PX = 72


class PlotScale:
    """The conversion of x values of a plot into positions in the static picture."""

    def __init__(self, box: Plot, left: float, top: float, width: float) -> None:
        self.left = left + box.left
        self.top = top
        self.box = box
        self.width = width - box.left - box.right
        self.low, self.high = map(float, box.domain)
        self.px_per_unit: float = self.width / (self.high - self.low)

    def x(self, value: float) -> float:
        """Return the position of a value in nominal pixels from the left edge of the picture."""
        return float(self.left + (value - self.low) * self.px_per_unit)


def paint_tracks(pen: Pen, item: Tracks, scale: PlotScale) -> None:
    """Paint the intervals of each row pixel by pixel, and the names that fit into them."""
    width_px = max(1, round(scale.width * SHARPNESS))
    starts_px, ends_px = (
        np.clip(
            (np.asarray(item.column(name), np.float64) - scale.low) * scale.px_per_unit * SHARPNESS,
            0,
            width_px,
        )
        for name in ("x0", "x1")
    )
    colour_of_interval = np.asarray(item.colour, np.int64)
    first_lanes = np.concatenate([[0], np.cumsum(item.lanes)])
    lane_of_interval = first_lanes[np.asarray(item.row, np.int64)] + np.asarray(item.lane, np.int64)
    palette_names = [item.ground, *(f"{name}{suffix}" for name in item.colours for suffix in ("", "-pale"))]
    left_px = round(scale.left * SHARPNESS)
    top_px = round(scale.top * SHARPNESS)
    name_labels: list[tuple[int, float]] = []
    for row, (track_top, height, lane_count) in enumerate(
        zip(item.tops, item.heights, item.lanes, strict=True)
    ):
        for lane in range(lane_count):
            interval_indices = np.flatnonzero(lane_of_interval == first_lanes[row] + lane)
            y0, y1 = (
                round((track_top + lane_edge * height / lane_count) * SHARPNESS + 1e-6)
                for lane_edge in (lane, lane + 1)
            )
            y1 -= lane_count > 1 and y1 - y0 > 4 * SHARPNESS
            row_image = Image.fromarray(
                _compute_shades(
                    starts_px[interval_indices],
                    ends_px[interval_indices],
                    colour_of_interval[interval_indices],
                    width_px,
                )[np.newaxis]
            )
            row_image.putpalette(
                b"".join(bytes.fromhex(palette.find_hex(name)[1:]) for name in palette_names)
            )
            pen.image.paste(row_image.convert("RGB").resize((width_px, y1 - y0)), (left_px, top_px + y0))
            if height / lane_count >= MIN_NAMED_HEIGHT_PX:
                named_intervals = interval_indices[
                    (ends_px - starts_px)[interval_indices] > MIN_NAME_WIDTH_PX * SHARPNESS
                ].tolist()
                name_labels += [
                    (interval_index, (y0 + y1) / 2 / SHARPNESS) for interval_index in named_intervals
                ]
    for interval_index, middle_y in name_labels:
        x0 = max(scale.left, scale.x(item.x0[interval_index]))
        x1 = scale.x(item.x1[interval_index])
        short_name = shorten(item.column("shorts")[item.column("name")[interval_index]], x1 - x0 - 7, 11)
        if len(short_name) > 3 or "…" not in short_name:
            text_colour = palette.choose_ink(item.colours[int(colour_of_interval[interval_index])])
            pen.text(x0 + 3, scale.top + middle_y, short_name, colour=text_colour)


def _compute_shades(
    starts: npt.NDArray[Any], ends: npt.NDArray[Any], colour_of_interval: npt.NDArray[Any], width: int
) -> npt.NDArray[Any]:
    """Return the palette index of each pixel. The background has the index 0. Colour c has the index 1 + 2c,
    or 2 + 2c in its pale shade.
    """
    ends = np.maximum(ends - ((ends - starts) > 5), starts + 1e-3)  # intervals of length 0 are visible, too
    coverage = np.zeros((int(colour_of_interval.max(initial=0)) + 1, width))
    for colour_index in np.unique(colour_of_interval).tolist():
        has_colour = colour_of_interval == colour_index
        # Total length of the intervals left of each pixel's edge.
        interval_edges = np.maximum.accumulate(
            np.column_stack((starts[has_colour], ends[has_colour])).ravel()
        )
        covered_px = np.concatenate(
            [[0], np.cumsum(np.diff(interval_edges) * (np.arange(interval_edges.size - 1) % 2 == 0))]
        )
        coverage[colour_index] = np.diff(np.interp(np.arange(width + 1), interval_edges, covered_px))
    total_coverage = coverage.sum(axis=0)
    return np.where(total_coverage > 0, 1 + 2 * coverage.argmax(axis=0) + (total_coverage < 0.5), 0).astype(
        np.uint8
    )


def paint_time_axis(pen: Pen, item: TimeAxis, scale: PlotScale) -> None:
    """Paint a time axis with its ticks and its name."""
    axis_title, ticks = make_time_ticks(scale.low, scale.high, scale.width / TICK_SPACING_PX, item.since)
    y = scale.top + item.y
    right_px = scale.left + scale.width
    pen.rect(scale.left, y, right_px, y + 1, "muted")
    for tick_ns, text in ticks:
        x = scale.x(tick_ns)
        pen.rect(x, y, x + 1, y + 4, "muted")
        text_x = min(x, right_px + scale.box.right - text_width(text, 11) / 2)
        pen.text(text_x, y + 12, text, anchor="middle")
    pen.text(scale.left, y + 26, axis_title, colour="muted")
