"""Occupancy chart: theoretical occupancy against block size, with what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views._waves import limit_bars, limiter_words, occupancy_words
from gpulab.views.parts.axes import Axes, Axis
from gpulab.views.parts.boxes import Box, bars, column, legend, row, switch, words
from gpulab.views.parts.items import Rects
from gpulab.views.parts.plots import speaking
from gpulab.words import count, number, percent, size
from virtualgpu.records import Occupancy

# Each limit has one colour in every point; where several limit at once the first one gives it.
LIMIT_COLOURS = {"warps": "accent", "blocks": "good", "registers": "warn", "shared memory": "purple"}
TOP_PX = 22
BARS_PX = 190
BELOW_PX = 38


class OccupancyChart(View):
    """Occupancy for every block size, the chosen one marked and its limiter named.

    Parameters
    ----------
    points
        One `Occupancy` a block size.
    chosen
        The block size to mark, in threads, or its `Occupancy`, which joins the points if it is not one.

    Raises
    ------
    ValueError
        If there are no points, or none of the chosen size.
    """

    chosen = traitlets.Int().tag(sync=True, echo_update=False)

    def __init__(self, points: Sequence[Occupancy], chosen: int | Occupancy) -> None:
        by_size = {p.block_threads: p for p in points}
        if isinstance(chosen, Occupancy) and by_size:
            by_size.setdefault(chosen.block_threads, chosen)
        self.points = tuple(by_size[threads] for threads in sorted(by_size))
        threads = chosen.block_threads if isinstance(chosen, Occupancy) else int(chosen)
        if not self.points:
            raise ValueError("There is no point to draw; pass one Occupancy a block size.")
        if threads not in by_size:
            raise ValueError(
                f"No point has {threads} threads a block; choose one of those given, "
                f"{self.points[0].block_threads} to {self.points[-1].block_threads}."
            )
        provenance = self.points[0].provenance
        super().__init__(
            title="Theoretical occupancy against block size",
            caption="Theoretical occupancy: the warps that fit on an SM over those it can hold, "
            f"{provenance.label}. What a launch achieves of it, gl.launch shows.",
            source=provenance.source,
            chosen=threads,
        )
        self.redraw()

    @property
    def record(self) -> tuple[Occupancy, ...]:
        """One record a block size."""
        return self.points

    @property
    def point(self) -> Occupancy:
        """The point of the chosen block size."""
        return next(p for p in self.points if p.block_threads == self.chosen)

    @traitlets.validate("chosen")
    def _among_points(self, proposal: Any) -> int:
        wanted = int(proposal["value"])
        return min((p.block_threads for p in self.points), key=lambda threads: abs(threads - wanted))

    def sentence(self) -> str:
        best = max(p.fraction for p in self.points)
        return (
            f"Occupancy against block size from {self.points[0].block_threads} to "
            f"{count(self.points[-1].block_threads, 'thread')}: {_words(self.point)}, best {percent(best)}; "
            f"{self.point.provenance.label}."
        )

    def describe(self) -> str:
        return "\n".join([self.sentence(), *(f"{_words(p)}." for p in self.points)])

    def draw(self) -> Box:
        used = [limit for limit in LIMIT_COLOURS if any(_first_limiter(p) == limit for p in self.points)]
        return row(
            column(
                legend((LIMIT_COLOURS[limit], f"limited by {limit}") for limit in used),
                self._chart(),
                words("Click a bar, or focus the chart and use the arrow keys.", "note", only="page"),
            ),
            switch("chosen", self.chosen, {p.block_threads: _detail(p) for p in self.points}),
            weights=[2.2, 1],
            least=[420, 230],
        )

    def _chart(self) -> Box:
        points = self.points
        here = np.arange(len(points))
        sizes = [number(p.block_threads) for p in points]
        shown = [i for i in here.tolist() if points[i].block_threads % 128 == 0] or here.tolist()
        axes = Axes(
            Axis(0, len(points), {i + 0.5: sizes[i] for i in shown}, "threads a block"),
            Axis(0, 1, {share / 4: f"{25 * share} %" for share in range(5)}, grid=True),
            BARS_PX,
            TOP_PX,
        )
        kinds = [*LIMIT_COLOURS]
        kind = [kinds.index(name) if (name := _first_limiter(p)) in kinds else len(kinds) for p in points]
        return axes.plot(
            Rects(
                here,
                here + 1,
                axes.y([p.fraction for p in points]),
                0.0 * here + axes.bottom,
                kind,
                [*LIMIT_COLOURS.values(), "other"],
                inset=1,
                **speaking([_words(p) for p in points]),
            ),
            label="Threads a block",
            left=46,
            below=BELOW_PX,
            trait="chosen",
            values=[p.block_threads for p in points],
            marks=sizes,
            mark_y=10,
            chosen=points.index(self.point),
        )


def _detail(point: Occupancy) -> Box:
    """One block size in words and bars."""
    used = f"{count(point.registers_per_thread, 'register')} a thread, {size(point.shared_bytes)} of shared"
    return column(
        words(f"{count(point.block_threads, 'thread')} a block", "heading"),
        words(f"{percent(point.fraction)}: {occupancy_words(point)}, {limiter_words(point)}"),
        words(f"{used} memory a block. Blocks per SM that each limit alone would allow:", "note"),
        bars(limit_bars(point, LIMIT_COLOURS)),
    )


def _first_limiter(point: Occupancy) -> str:
    return point.limiters[0] if point.limiters else ""


def _words(point: Occupancy) -> str:
    threads = count(point.block_threads, "thread")
    return f"{threads} a block give {percent(point.fraction)}, {limiter_words(point)}"
