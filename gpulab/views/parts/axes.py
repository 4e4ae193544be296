"""Axes of a chart, linear or logarithmic, with ticks, grid, names, and points with sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, Labels, Numbers, Rects, Rules
from gpulab.views.parts.plots import plot, speaking, y_name, y_ticks
from gpulab.words import number

TICKS_PX = 11
NAME_PX = 29
BELOW_PX = 40
# half of a point: its height, and its width as a share of the axis
MARK_PX = 3
MARK_SHARE = 0.004


@dataclass(frozen=True, slots=True)
class Axis:
    """The values along one side of a chart.

    Parameters
    ----------
    low, high
        Those at its ends: left and right, or bottom and top.
    ticks
        Value -> its text.
    name
        What the axis shows.
    base
        Of the logarithm by which values stand, 2 or 10; 0 for values that stand by themselves.
    grid
        Whether lines lead from the ticks across the chart.
    """

    low: float
    high: float
    ticks: Mapping[float, str] = field(default_factory=dict)
    name: str = ""
    base: int = 0
    grid: bool = False

    def places(self, values: Any) -> Any:
        """Return the positions of values: themselves or their logarithms."""
        scales: dict[int, Callable[[Any], Any]] = {0: np.asarray, 2: np.log2, 10: np.log10}
        return scales[self.base](values)

    @property
    def domain(self) -> tuple[float, float]:
        """The two ends of the axis, in positions."""
        return float(self.places(self.low)), float(self.places(self.high))


def log_axis(least: float, most: float, name: str, marks: Sequence[int] = (1, 2, 5)) -> Axis:
    """An axis around an interval: `marks` times powers of ten, at least two of them, with lines."""
    powers = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 2)
    candidates = [m * 10.0**p for p in powers for m in marks]
    first = max(index for index, mark in enumerate(candidates) if mark <= least)
    last = min(index for index, mark in enumerate(candidates) if mark >= most)
    ticks = {index: number(index) for index in candidates[first : max(last, first + 1) + 1]}
    return Axis(min(ticks), max(ticks), ticks, name, 10, grid=True)


@dataclass(frozen=True, slots=True)
class Axes:
    """Two axes around `height` pixels that begin `top` pixels below a plot's upper edge."""

    across: Axis
    up: Axis
    height: float
    top: float

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, values: Any) -> Any:
        """Values in the plot's data units."""
        return self.across.places(values)

    def y(self, values: Any) -> Any:
        """Values in pixels from the plot's upper edge."""
        low, high = self.up.domain
        return self.bottom - self.height * (self.up.places(values) - low) / (high - low)

    def points(
        self,
        x: Numbers,
        y: Numbers,
        sentences: Sequence[str],
        colour: str | Sequence[int] = "accent",
        colours: Sequence[str] = (),
    ) -> Item:
        """Return a mark for each pair of values, with a sentence that is shown when it is selected."""
        low, high = self.across.domain
        places = self.x(x)
        heights = self.y(y)
        half = MARK_SHARE * (high - low)
        return Rects(
            places - half,
            places + half,
            heights - MARK_PX,
            heights + MARK_PX,
            colour,
            colours,
            **speaking(sentences),
        )

    def grid(self) -> list[Item | None]:
        """Return grid lines, which are drawn below everything else."""
        low, high = self.across.domain
        x = self.x([*self.across.ticks])
        y = self.y([*self.up.ticks])
        return [
            Rules(0 * y + low, y, 0 * y + high, y, "grid") if self.up.grid else None,
            Rules(x, 0 * x + self.top, x, 0 * x + self.bottom, "grid") if self.across.grid else None,
        ]

    def sides(self, left: int) -> list[Item]:
        """Return names and texts of the ticks; `left` pixels are reserved for the vertical axis."""
        domain = self.across.domain
        across = self.across
        up = self.up
        x = self.x([*across.ticks])
        y = self.y([*up.ticks])
        # Where no line leads to them they need not stand beside what is above or below the chart.
        y = y if up.grid else np.clip(y, self.top + 2, self.bottom - 4)
        below = self.bottom + TICKS_PX
        centre = [sum(domain) / 2]
        return [
            y_ticks(y, [*up.ticks.values()], domain),
            y_name(up.name, self.top + self.height / 2, domain, left),
            Labels(x, 0 * x + below, [*across.ticks.values()], anchor="middle", spread=True),
            Labels(centre, [self.bottom + NAME_PX], [across.name], anchor="middle", colour="muted"),
        ]

    def plot(self, *items: Item | None, left: int, below: float = BELOW_PX, **more: Any) -> Plot:
        """Return a plot of `items` with a grid and axis texts; `below` pixels are for the horizontal axis."""
        drawn = [*self.grid(), *items, *self.sides(left)]
        return plot(self.bottom + below, self.across.domain, *drawn, left=left, **more)
