"""Occupancy chart: theoretical occupancy against block size, with what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpulab.views import _figure as f
from gpulab.views._base import View
from gpulab.views._limit_figure import limit_bars
from gpulab.views._text import count, percent, size
from gpulab.views._waves import limit_rows, limit_scale, limiter_words, occupancy_words
from virtualgpu.records import Occupancy

# Each limit has one colour in every point; where several limit at once the first one gives it.
LIMIT_COLOURS = {"warps": f.BLUE, "blocks": f.GREEN, "registers": f.ORANGE, "shared memory": f.PURPLE}
OTHER_COLOUR = "#b6bfc8"


class OccupancyChart(View, module="static/occupancy_chart"):
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

    facts = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Int().tag(sync=True, echo_update=False)

    def __init__(self, points: Sequence[Occupancy], chosen: int | Occupancy) -> None:
        self.points = tuple(sorted(points, key=lambda p: p.block_threads))
        if isinstance(chosen, Occupancy):
            threads = chosen.block_threads
            if self.points and threads not in {p.block_threads for p in self.points}:
                self.points = tuple(sorted((*self.points, chosen), key=lambda p: p.block_threads))
        else:
            threads = int(chosen)
        if not self.points:
            raise ValueError("There is no point to draw; pass one Occupancy a block size.")
        if threads not in {p.block_threads for p in self.points}:
            raise ValueError(
                f"No point has {threads} threads a block; choose one of those given, "
                f"{self.points[0].block_threads} to {self.points[-1].block_threads}."
            )
        provenance = self.points[0].provenance
        super().__init__(
            title="Theoretical occupancy against block size",
            caption=f"Occupancy {provenance.label}.",
            source=provenance.source,
            facts={
                "points": [_point(p) for p in self.points],
                "colours": LIMIT_COLOURS,
                "other_colour": OTHER_COLOUR,
            },
            chosen=threads,
        )

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

    def draw(self) -> Figure:
        point = self.point
        fig = f.figure(360, self.title, f.wrapped(self.caption))
        ax = f.axes(fig, 62, 66, 556, 220)
        step = min(
            (b.block_threads - a.block_threads for a, b in zip(self.points, self.points[1:], strict=False)),
            default=32,
        )
        for each in self.points:
            ax.bar(
                each.block_threads,
                100 * each.fraction,
                0.84 * step,
                color=_colour(each),
                edgecolor=f.INK if each is point else "none",
                linewidth=1.8,
            )
        ax.set_ylim(0, 116)
        ax.set_yticks([0, 25, 50, 75, 100])
        ax.set_xlabel("threads a block", size=8.5, color=f.INK)
        ax.set_ylabel("occupancy (%)", size=8.5, color=f.INK)
        ax.set_xticks(
            [p.block_threads for p in self.points if p.block_threads % 128 == 0] or [point.block_threads]
        )
        ax.set_xlim(self.points[0].block_threads - step, self.points[-1].block_threads + step)
        # Above all bars: beside a taller one the number could not be read.
        right = point.block_threads > self.points[len(self.points) // 2].block_threads
        ax.text(
            point.block_threads + (0.4 if right else -0.4) * step,
            104,
            f"{point.block_threads} ▼" if right else f"▼ {point.block_threads}",
            size=8,
            ha="right" if right else "left",
            color=f.INK,
            weight="bold",
        )
        used = [limit for limit in LIMIT_COLOURS if any(_first_limiter(p) == limit for p in self.points)]
        ax.legend(
            handles=[Patch(facecolor=LIMIT_COLOURS[limit], label=f"limited by {limit}") for limit in used],
            loc="lower left",
            bbox_to_anchor=(-0.008, 0.98),
            ncols=4,
            fontsize=8,
            frameon=False,
            handlelength=1,
            handleheight=1,
        )
        _limits(fig, point)
        return fig


def _limits(fig: Figure, point: Occupancy) -> None:
    ax = f.bare(f.axes(fig, 648, 62, 240, 240))
    ax.set_xlim(0, 240)
    ax.set_ylim(240, 0)
    ax.text(
        0,
        6,
        f"{count(point.block_threads, 'thread')} a block",
        size=11,
        weight="bold",
        color=f.INK,
        va="center",
    )
    ax.text(0, 26, f"{percent(point.fraction)}: {occupancy_words(point)}", size=8.5, color=f.INK, va="center")
    ax.text(
        0,
        44,
        f"{point.registers_per_thread} registers a thread, {size(point.shared_bytes)} shared a block",
        size=7.8,
        color=f.MUTED,
        va="center",
    )
    limit_bars(ax, 70, 20, point, LIMIT_COLOURS)


def _first_limiter(point: Occupancy) -> str:
    return point.limiters[0] if point.limiters else ""


def _colour(point: Occupancy) -> str:
    return LIMIT_COLOURS.get(_first_limiter(point), OTHER_COLOUR)


def _words(point: Occupancy) -> str:
    threads = count(point.block_threads, "thread")
    return f"{threads} a block give {percent(point.fraction)}, {limiter_words(point)}"


def _point(point: Occupancy) -> dict[str, Any]:
    return {
        "threads": point.block_threads,
        "fraction": point.fraction,
        "limiter": _first_limiter(point),
        "words": _words(point),
        "detail": f"{percent(point.fraction)}: {occupancy_words(point)}, {limiter_words(point)}",
        "limits": limit_rows(point),
        "limit_scale": limit_scale(point),
        "registers": point.registers_per_thread,
        "shared_bytes": point.shared_bytes,
    }
