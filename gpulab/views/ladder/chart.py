"""The chart of the memory hierarchy: latency by working set, and bandwidth by level, of several devices."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import NullLocator

from gpulab.views._figure import SMALL_FONT_POINTS, FigureView, Painter, colour, number_ticks
from gpulab.views.tables import Column, Table
from gpulab.words import duration, listing, number, size
from virtualgpu.records.memory import LevelBandwidth, MemoryLadder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("accent", "tail", "good")
# Lines and marks of the devices: curves on top of each other are all visible.
LINE_STYLES = (("-", "o", 3.0), ("-", "s", 4.5), ((0, (3, 3)), "D", 4.5))
MARGIN_FACTOR = 2**0.3  # of the working sets, on both sides


class LadderChart(FigureView):
    """A chart of the memory hierarchies of up to three devices.

    Parameters
    ----------
    ladders
        The memory hierarchies; capacities and published rates are those of the first device.
    find_ladder
        A function that returns the recorded memory hierarchy of a GPU by its name, for `beside`.

    Raises
    ------
    ValueError
        If there is no record, or more than three.
    """

    height_in = 3.9
    panel_widths = (1.15, 1.0)

    def __init__(
        self, ladders: Sequence[MemoryLadder], find_ladder: Callable[[str], MemoryLadder] | None = None
    ) -> None:
        if not 1 <= len(ladders) <= len(COLOURS):
            raise ValueError(
                f"A chart can show one to {len(COLOURS)} memory hierarchies, not {len(ladders)}."
            )
        self.ladders = tuple(ladders)
        self._find_ladder = find_ladder
        first_ladder = self.ladders[0]
        origins = listing([ladder.provenance.label for ladder in self.ladders])
        super().__init__(
            title="Memory hierarchy: latency and bandwidth",
            caption=f"{origins[0].upper()}{origins[1:]}. "
            f"Dashed: published capacities and rates of {_format_device(first_ladder)}; the bars are in the "
            "order of the names.",
            source=first_ladder.provenance.source,
        )

    @property
    def record(self) -> MemoryLadder:
        """The memory hierarchy of the first device."""
        return self.ladders[0]

    def beside(self, other: str | MemoryLadder) -> LadderChart:
        """Return the chart with an additional device. The device is given as a record or as the name of a
        recorded GPU.
        """
        if isinstance(other, str):
            if self._find_ladder is None:
                raise ValueError("This chart has no recorded memory hierarchies. Pass a MemoryLadder.")
            other = self._find_ladder(other)
        return LadderChart([*self.ladders, other], find_ladder=self._find_ladder)

    def sentence(self) -> str:
        first_ladder = self.ladders[0]
        latency_text = listing(
            [
                f"{duration(time_ns)} {level_text}"
                for level_text, time_ns in _find_level_latencies(first_ladder)
            ]
        )
        level_names = {"L2": "L2", "memory, read": "memory"}
        rate_texts = [
            f"{number(bandwidth.gbps)} GB/s from {level_names[bandwidth.level]}"
            for bandwidth in first_ladder.bandwidths
            if bandwidth.level in level_names and bandwidth.gbps
        ]
        rates_text = f"all SMs together read {listing(rate_texts)}"
        return f"One load takes {latency_text}; {rates_text}; {first_ladder.provenance.label}."

    def describe(self) -> str:
        lines = [self.sentence()]
        for ladder in self.ladders:
            lines.append(f"{ladder.provenance.label}:")
            lines += [
                f"{size(working_set)}: {duration(time_ns)} per load."
                for working_set, time_ns in _list_points(ladder)
            ]
            lines += [f"{_format_rate(bandwidth)}. {bandwidth.method}" for bandwidth in ladder.bandwidths]
        return "\n".join(lines)

    def tables(self) -> tuple[Table, ...]:
        """Return tables of all latencies and bandwidths, and of the measurement methods for the first
        device.
        """
        latency_rows = tuple(
            (ladder.provenance.label, working_set, time_ns)
            for ladder in self.ladders
            for working_set, time_ns in _list_points(ladder)
        )
        bandwidth_rows = tuple(
            (
                ladder.provenance.label,
                bandwidth.level,
                bandwidth.gbps,
                bandwidth.published_gbps,
                bandwidth.why or bandwidth.method,
            )
            for ladder in self.ladders
            for bandwidth in ladder.bandwidths
        )
        first_ladder = self.ladders[0]
        method_rows = (
            ("latency", first_ladder.latency_method),
            *(
                (bandwidth.level, bandwidth.method + _find_document(bandwidth))
                for bandwidth in first_ladder.bandwidths
            ),
        )
        return (
            Table(
                "Latency",
                (
                    "device",
                    Column("working set", "working_set_bytes", size),
                    Column("a load", "latency_ns", duration),
                ),
                latency_rows,
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
                bandwidth_rows,
            ),
            Table("How each number was obtained", ("quantity", "method"), method_rows),
        )

    def painters(self) -> tuple[Painter, ...]:
        return self._paint_latency, self._paint_bandwidth

    def _paint_latency(self, ax: Axes) -> None:
        """Draw the latency over the working set, with dashed lines at the capacities of the first device."""
        min_bytes = min(int(ladder.working_set_bytes[0]) for ladder in self.ladders) / MARGIN_FACTOR
        max_bytes = max(int(ladder.working_set_bytes[-1]) for ladder in self.ladders) * MARGIN_FACTOR
        for index, ladder in enumerate(self.ladders):
            line_style, marker, marker_points = LINE_STYLES[index]
            ax.plot(
                ladder.working_set_bytes,
                ladder.latency_ns,
                color=colour(COLOURS[index]),
                linewidth=1.3,
                linestyle=line_style,
                marker=marker,
                markersize=marker_points,
                markerfacecolor=colour(COLOURS[index]) if index == 0 else "none",
                markeredgewidth=0.9,
                markevery=(3 * (index - 1), 6) if index else None,
                label=f"{_format_device(ladder)}, {ladder.provenance.source}",
            )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        tick_exponents = [
            exponent
            for exponent in range(math.ceil(math.log2(min_bytes)), int(math.log2(max_bytes)) + 1)
            if exponent % 4 == 2
        ]
        ax.set_xticks(
            [2.0**exponent for exponent in tick_exponents],
            [size(2.0**exponent) for exponent in tick_exponents],
        )
        ax.set_xlim(min_bytes, max_bytes)
        number_ticks(ax, "y", (1, 2, 5))
        for level_capacity in self.ladders[0].capacities:
            if min_bytes < level_capacity.size_bytes < max_bytes:
                ax.axvline(level_capacity.size_bytes, color=colour("muted"), linewidth=0.9, linestyle="--")
                ax.annotate(
                    f"{level_capacity.level}: {size(level_capacity.size_bytes)}",
                    (level_capacity.size_bytes, 1),
                    (-3, -2),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    ha="right",
                    va="top",
                    color=colour("muted"),
                )
        ax.grid()
        ax.set_xlabel("working set (bytes, logarithmic)")
        ax.set_ylabel("ns per load")
        ax.legend(
            loc="lower right",
            handlelength=2,
            borderaxespad=0.2,
            fontsize=SMALL_FONT_POINTS,
            frameon=True,
            framealpha=1,
            facecolor=colour("bg"),
            edgecolor=colour("bg"),
        )

    def _paint_bandwidth(self, ax: Axes) -> None:
        """Draw the bandwidth by level, with dashed lines at the published rates of the first device."""
        first_ladder = self.ladders[0]
        levels = [bandwidth.level for bandwidth in first_ladder.bandwidths]
        rates_gbps = [
            rate_gbps
            for ladder in self.ladders
            for level_bandwidth in ladder.bandwidths
            for rate_gbps in (level_bandwidth.gbps, level_bandwidth.published_gbps)
            if rate_gbps
        ]
        lowest_gbps = min(rates_gbps) / 2
        bar_height = 0.8 / len(self.ladders)
        ax.set_xscale("log")
        for index, ladder in enumerate(self.ladders):
            for bandwidth in ladder.bandwidths:
                if bandwidth.gbps and bandwidth.level in levels:
                    bar_y = levels.index(bandwidth.level) - 0.4 + bar_height * (index + 0.5)
                    ax.barh(
                        bar_y,
                        bandwidth.gbps - lowest_gbps,
                        bar_height * 0.9,
                        left=lowest_gbps,
                        color=colour(COLOURS[index]),
                    )
        for level_y, bandwidth in enumerate(first_ladder.bandwidths):
            if bandwidth.published_gbps:
                ax.vlines(
                    bandwidth.published_gbps,
                    level_y - 0.46,
                    level_y + 0.46,
                    colour("fg"),
                    "--",
                    linewidth=1.2,
                )
            if len(self.ladders) == 1 or not bandwidth.gbps:
                ax.annotate(
                    number(bandwidth.gbps) if bandwidth.gbps else bandwidth.why,
                    (max(bandwidth.gbps or lowest_gbps, bandwidth.published_gbps or lowest_gbps), level_y),
                    (4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=SMALL_FONT_POINTS,
                )
        ax.set_yticks(range(len(levels)), levels)
        ax.set_ylim(len(levels) - 0.4, -0.6)
        ax.set_xlim(lowest_gbps, max(rates_gbps) * 4)
        tick_exponents = range(math.ceil(math.log10(lowest_gbps)), math.ceil(math.log10(max(rates_gbps) * 4)))
        ax.set_xticks([10.0**exponent for exponent in tick_exponents if exponent % 2])
        ax.xaxis.set_major_formatter(lambda gbps, _: number(gbps))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.grid(axis="x")
        ax.tick_params(left=False)
        ax.set_xlabel("GB/s, logarithmic; dashed: published")


def _format_device(ladder: MemoryLadder) -> str:
    """Return the name of the device without maker and memory size."""
    return re.sub(r"^NVIDIA |[ -]\d+GB.*", "", ladder.provenance.device)


def _list_points(ladder: MemoryLadder) -> list[tuple[int, float]]:
    return list(zip(ladder.working_set_bytes.tolist(), ladder.latency_ns.tolist(), strict=True))


def _find_level_latencies(ladder: MemoryLadder) -> list[tuple[str, float]]:
    """Return a text with the latency at half of each cache's capacity and at the largest working set."""
    latency_rows = [
        (f"from {level_capacity.level}", ladder.latency_at(level_capacity.size_bytes / 2))
        for level_capacity in ladder.capacities
        if level_capacity.size_bytes / 2 < ladder.working_set_bytes[-1]
    ]
    largest_set_bytes = int(ladder.working_set_bytes[-1])
    return [*latency_rows, (f"within {size(largest_set_bytes)}", ladder.latency_at(largest_set_bytes))]


def _format_rate(bandwidth: LevelBandwidth) -> str:
    return (
        f"{bandwidth.level}: {number(bandwidth.gbps)} GB/s{_find_document(bandwidth)}"
        if bandwidth.gbps
        else f"{bandwidth.level}: not measured, {bandwidth.why}"
    )


def _find_document(bandwidth: LevelBandwidth) -> str:
    return (
        f" (published: {number(bandwidth.published_gbps)} GB/s, {bandwidth.document})"
        if bandwidth.published_gbps
        else ""
    )
