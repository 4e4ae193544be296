"""Ladder chart: latency over the working set and bandwidth by level, one device or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpulab.views._figure import SMALL_POINTS, FigureView, Painter, colour, number_ticks
from gpulab.views.tables import Column, Table
from gpulab.words import duration, listing, number, size
from virtualgpu.records.memory import LevelBandwidth, MemoryLadder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("accent", "tail", "good")
MARGIN = 2**0.3  # of the working sets, on both sides


class LadderChart(FigureView):
    """Memory hierarchies of up to three devices, with capacities and published rates of the first one.

    Parameters
    ----------
    ladders
        The device that is shown, and those beside it.
    find
        Gives the recorded ladder of a GPU by its name, for `beside`.

    Raises
    ------
    ValueError
        For no ladder, or more than three.
    """

    height_in = 3.9
    widths = (1.15, 1.0)

    def __init__(
        self, ladders: Sequence[MemoryLadder], find: Callable[[str], MemoryLadder] | None = None
    ) -> None:
        if not 1 <= len(ladders) <= len(COLOURS):
            raise ValueError(f"A chart takes one to {len(COLOURS)} ladders, not {len(ladders)}.")
        self.ladders = tuple(ladders)
        self._find = find
        first = self.ladders[0]
        super().__init__(
            title="Memory hierarchy: latency and bandwidth",
            caption=f"{listing([each.provenance.label for each in self.ladders])}. "
            "Dashed: published capacities and rates; bars stand in the order of the names above.",
            source=first.provenance.source,
        )

    @property
    def record(self) -> MemoryLadder:
        """The memory hierarchy of the first device."""
        return self.ladders[0]

    def beside(self, other: str | MemoryLadder) -> LadderChart:
        """Return the same chart with one more device in it: a GPU's name, or a record."""
        if isinstance(other, str):
            if self._find is None:
                raise ValueError("This chart knows no recorded ladders; pass a MemoryLadder.")
            other = self._find(other)
        return LadderChart([*self.ladders, other], find=self._find)

    def sentence(self) -> str:
        first = self.ladders[0]
        steps = listing([f"{duration(ns)} {place}" for place, ns in _steps(first)])
        names = {"L2": "L2", "memory, read": "memory"}
        rates = [
            f"{number(b.gbps)} GB/s from {names[b.level]}"
            for b in first.bandwidths
            if b.level in names and b.gbps
        ]
        return f"A load takes {steps}; all SMs together read {listing(rates)}; {first.provenance.label}."

    def describe(self) -> str:
        lines = [self.sentence()]
        for ladder in self.ladders:
            lines.append(f"{ladder.provenance.label}:")
            lines += [f"{size(w)}: {duration(ns)} a load." for w, ns in _points(ladder)]
            lines += [f"{_rate(b)}. {b.method}" for b in ladder.bandwidths]
        return "\n".join(lines)

    def tables(self) -> tuple[Table, ...]:
        """Latencies and bandwidths of all devices, and the methods of the first one."""
        latencies = tuple(
            (ladder.provenance.label, working_set, time_ns)
            for ladder in self.ladders
            for working_set, time_ns in _points(ladder)
        )
        bandwidths = tuple(
            (ladder.provenance.label, each.level, each.gbps, each.published_gbps, each.why or each.method)
            for ladder in self.ladders
            for each in ladder.bandwidths
        )
        first = self.ladders[0]
        methods = (
            ("latency", first.latency_method),
            *((b.level, b.method + _document(b)) for b in first.bandwidths),
        )
        return (
            Table(
                "Latency",
                (
                    "device",
                    Column("working set", "working_set_bytes", size),
                    Column("a load", "latency_ns", duration),
                ),
                latencies,
            ),
            Table(
                "Bandwidth",
                (
                    "device",
                    "level",
                    Column("GB/s", "gb_per_s", number),
                    Column("published GB/s", "published_gb_per_s", number),
                    "method",
                ),
                bandwidths,
            ),
            Table("How each number was found", ("quantity", "method"), methods),
        )

    def painters(self) -> tuple[Painter, ...]:
        return self._paint_latency, self._paint_bandwidth

    def _paint_latency(self, ax: Axes) -> None:
        """Latency over the working set; dashed lines are the capacities of the first device."""
        least = min(int(ladder.working_set_bytes[0]) for ladder in self.ladders) / MARGIN
        most = max(int(ladder.working_set_bytes[-1]) for ladder in self.ladders) * MARGIN
        # The later curves are broader and lie below, so that a curve on top of another hides none.
        for index, ladder in reversed([*enumerate(self.ladders)]):
            ax.plot(
                ladder.working_set_bytes,
                ladder.latency_ns,
                color=colour(COLOURS[index]),
                linewidth=1.5 + 1.5 * index,
                marker="o",
                markersize=3 + index,
                label=ladder.provenance.label,
            )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        octaves = [n for n in range(math.ceil(math.log2(least)), int(math.log2(most)) + 1) if n % 4 == 2]
        ax.set_xticks([2.0**n for n in octaves], [size(2.0**n) for n in octaves])
        ax.set_xlim(least, most)
        number_ticks(ax, "y", (1, 2, 5))
        for capacity in self.ladders[0].capacities:
            if least < capacity.size_bytes < most:
                ax.axvline(capacity.size_bytes, color=colour("muted"), linewidth=0.9, linestyle="--")
                ax.annotate(
                    f"{capacity.level}: {size(capacity.size_bytes)}",
                    (capacity.size_bytes, 1),
                    (-3, -2),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    ha="right",
                    va="top",
                    color=colour("muted"),
                )
        ax.grid()
        ax.set_xlabel("working set (bytes, logarithmic)")
        ax.set_ylabel("ns a load")
        handles, labels = ax.get_legend_handles_labels()
        ax.legend(
            handles[::-1], labels[::-1], loc="lower left", bbox_to_anchor=(-0.02, 1.0), handlelength=1.2
        )

    def _paint_bandwidth(self, ax: Axes) -> None:
        """Bandwidth by level, a bar for each device; dashed lines are published rates of the first one."""
        first = self.ladders[0]
        levels = [each.level for each in first.bandwidths]
        rates = [
            v for ladder in self.ladders for b in ladder.bandwidths for v in (b.gbps, b.published_gbps) if v
        ]
        low = min(rates) / 2
        high = 0.8 / len(self.ladders)
        ax.set_xscale("log")
        for index, ladder in enumerate(self.ladders):
            for each in ladder.bandwidths:
                if each.gbps and each.level in levels:
                    row = levels.index(each.level) - 0.4 + high * (index + 0.5)
                    ax.barh(row, each.gbps - low, high * 0.9, left=low, color=colour(COLOURS[index]))
        for row, each in enumerate(first.bandwidths):
            if each.published_gbps:
                ax.vlines(each.published_gbps, row - 0.46, row + 0.46, colour("fg"), "--", linewidth=1.2)
            if len(self.ladders) == 1 or not each.gbps:
                ax.annotate(
                    number(each.gbps) if each.gbps else each.why,
                    (max(each.gbps or low, each.published_gbps or low), row),
                    (4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=SMALL_POINTS,
                )
        ax.set_yticks(range(len(levels)), levels)
        ax.set_ylim(len(levels) - 0.4, -0.6)
        ax.set_xlim(low, max(rates) * 4)
        number_ticks(ax, "x", (1,))
        ax.grid(axis="x")
        ax.tick_params(left=False)
        ax.set_xlabel("GB/s, logarithmic; dashed: published")


def _points(ladder: MemoryLadder) -> list[tuple[int, float]]:
    return list(zip(ladder.working_set_bytes.tolist(), ladder.latency_ns.tolist(), strict=True))


def _steps(ladder: MemoryLadder) -> list[tuple[str, float]]:
    """Return the latency in the middle of each level: at half of a cache, and of the largest working set."""
    steps = [
        (f"from {c.level}", ladder.latency_at(c.size_bytes / 2))
        for c in ladder.capacities
        if c.size_bytes / 2 < ladder.working_set_bytes[-1]
    ]
    last = int(ladder.working_set_bytes[-1])
    return [*steps, (f"within {size(last)}", ladder.latency_at(last))]


def _rate(b: LevelBandwidth) -> str:
    return (
        f"{b.level}: {number(b.gbps)} GB/s{_document(b)}" if b.gbps else f"{b.level}: not measured, {b.why}"
    )


def _document(b: LevelBandwidth) -> str:
    return f" (published: {number(b.published_gbps)} GB/s, {b.document})" if b.published_gbps else ""
