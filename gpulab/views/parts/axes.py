"""The axes of a chart, linear or logarithmic, with ticks, grid, names, and points with sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, Labels, LineSegments, Numbers, Rects
from gpulab.views.parts.plots import make_sentence_args, make_y_name, make_y_ticks, plot
from gpulab.words import number

TICKS_HEIGHT_PX = 11
NAME_OFFSET_PX = 29
AXIS_HEIGHT_PX = 40
# Half the size of a point's mark: its height, and its width as a share of the axis.
MARK_RADIUS_PX = 3
MARK_WIDTH_SHARE = 0.004


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a chart, with its range, ticks, name and scale.

    Parameters
    ----------
    low, high
        The values at its ends: left and right, or bottom and top.
    ticks
        The text of each tick, by its value.
    name
        The name of the axis.
    log_base
        Base of the logarithm of a logarithmic axis, 2 or 10; 0 for a linear axis.
    has_grid
        Whether lines lead from the ticks across the chart.
    """

    low: float
    high: float
    ticks: Mapping[float, str] = field(default_factory=dict)
    name: str = ""
    log_base: int = 0
    has_grid: bool = False

    def positions(self, values: Any) -> Any:
        """Return the positions of values on the axis. On a logarithmic axis, these are the logarithms of the
        values.
        """
        scale_by_base: dict[int, Callable[[Any], Any]] = {0: np.asarray, 2: np.log2, 10: np.log10}
        return scale_by_base[self.log_base](values)

    @property
    def domain(self) -> tuple[float, float]:
        """The positions at the two ends of the axis."""
        return float(self.positions(self.low)), float(self.positions(self.high))


def make_log_axis(low: float, high: float, name: str, multiples: Sequence[int] = (1, 2, 5)) -> Axis:
    """Return a logarithmic axis that covers the range from `low` to `high`. The values of its ticks are
    powers of ten times the numbers in `multiples`.
    """
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    tick_candidates = [multiple * 10.0**power for power in powers for multiple in multiples]
    first_index = max(
        candidate_index for candidate_index, candidate in enumerate(tick_candidates) if candidate <= low
    )
    last_index = min(
        candidate_index for candidate_index, candidate in enumerate(tick_candidates) if candidate >= high
    )
    tick_texts = {
        value: number(value) for value in tick_candidates[first_index : max(last_index, first_index + 1) + 1]
    }
    return Axis(min(tick_texts), max(tick_texts), tick_texts, name, 10, has_grid=True)


@dataclass(frozen=True, slots=True)
class Axes:
    """The horizontal and the vertical axis of a chart that is `height` pixels high.

    The chart begins `top` pixels below the upper edge of the plot.
    """

    horizontal: Axis
    vertical: Axis
    height: float
    top: float

    @property
    def bottom(self) -> float:
        """The distance in pixels from the upper edge of the plot to the horizontal axis."""
        return self.top + self.height

    def x(self, values: Any) -> Any:
        """Return the positions of values on the horizontal axis, in data units of the plot."""
        return self.horizontal.positions(values)

    def y(self, values: Any) -> Any:
        """Return the positions of values on the vertical axis, in pixels from the upper edge of the plot."""
        lowest, highest = self.vertical.domain
        return self.bottom - self.height * (self.vertical.positions(values) - lowest) / (highest - lowest)

    def draw_points(
        self,
        x: Numbers,
        y: Numbers,
        sentences: Sequence[str],
        colour: str | Sequence[int] = "accent",
        colours: Sequence[str] = (),
    ) -> Item:
        """Return a mark for each pair of values. Selecting a mark shows its sentence."""
        lowest_x, highest_x = self.horizontal.domain
        centres_x = self.x(x)
        centres_y = self.y(y)
        half_width = MARK_WIDTH_SHARE * (highest_x - lowest_x)
        return Rects(
            centres_x - half_width,
            centres_x + half_width,
            centres_y - MARK_RADIUS_PX,
            centres_y + MARK_RADIUS_PX,
            colour,
            colours,
            **make_sentence_args(sentences),
        )

    def draw_grid(self) -> list[Item | None]:
        """Return the grid lines of the chart, which are drawn below everything else."""
        lowest_x, highest_x = self.horizontal.domain
        x = self.x([*self.horizontal.ticks])
        y = self.y([*self.vertical.ticks])
        return [
            LineSegments(0 * y + lowest_x, y, 0 * y + highest_x, y, "grid")
            if self.vertical.has_grid
            else None,
            LineSegments(x, 0 * x + self.top, x, 0 * x + self.bottom, "grid")
            if self.horizontal.has_grid
            else None,
        ]

    def draw_sides(self, left_margin_px: int) -> list[Item]:
        """Return the names of the axes and the texts of the ticks. The width of the left margin
        is `left_margin_px`.
        """
        x_range = self.horizontal.domain
        horizontal = self.horizontal
        vertical = self.vertical
        x = self.x([*horizontal.ticks])
        y = self.y([*vertical.ticks])
        # Without grid lines, the texts can move away from items above or below the chart.
        y = y if vertical.has_grid else np.clip(y, self.top + 2, self.bottom - 4)
        text_y = self.bottom + TICKS_HEIGHT_PX
        centre_x = [sum(x_range) / 2]
        return [
            make_y_ticks(y, [*vertical.ticks.values()], x_range),
            make_y_name(vertical.name, self.top + self.height / 2, x_range, left_margin_px),
            Labels(x, 0 * x + text_y, [*horizontal.ticks.values()], anchor="middle", spread=True),
            Labels(
                centre_x, [self.bottom + NAME_OFFSET_PX], [horizontal.name], anchor="middle", colour="muted"
            ),
        ]

    def draw_plot(
        self, *items: Item | None, left: int, below_px: float = AXIS_HEIGHT_PX, **options: Any
    ) -> Plot:
        """Return a plot of `items` with axes. The labels below the horizontal axis occupy `below_px`
        pixels.
        """
        all_items = [*self.draw_grid(), *items, *self.draw_sides(left)]
        return plot(self.bottom + below_px, self.horizontal.domain, *all_items, left=left, **options)
