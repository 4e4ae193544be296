"""The occupancy chart: theoretical occupancy by block size, with the limiting resources."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from gpulab.views._figure import SMALL_FONT_POINTS, FigureView, Painter, colour
from gpulab.views._waves import describe_limiters, describe_occupancy, make_limit_bars
from gpulab.views.tables import Column, Table
from gpulab.words import count, listing, number, percent, size
from virtualgpu.records import Occupancy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Each limit has one colour. A point that several limits determine has the colour of the first one.
LIMIT_COLOURS = {"warps": "accent", "blocks": "good", "registers": "warn", "shared memory": "purple"}
OTHER_MARKERS = ("o", "D", "^")
TICK_STEP_THREADS = 128


class OccupancyChart(FigureView):
    """A chart of the occupancy for every block size. The chart marks the selected block size and shows its
    limits.

    Parameters
    ----------
    points
        One `Occupancy` per block size.
    chosen
        The block size to mark, in threads, or its `Occupancy`, which is added to the points if necessary.
    points_of_other_devices
        The occupancies on up to three other devices, each shown as a faint mark at its block size.

    Raises
    ------
    ValueError
        If there are no points, or no point has the chosen size.
    """

    height_in = 3.3
    panel_widths = (2.2, 1.0)

    def __init__(
        self,
        points: Sequence[Occupancy],
        chosen: int | Occupancy,
        points_of_other_devices: Sequence[Sequence[Occupancy]] = (),
    ) -> None:
        if len(points_of_other_devices) > len(OTHER_MARKERS):
            raise ValueError(
                f"A chart shows up to {len(OTHER_MARKERS)} other devices, not {len(points_of_other_devices)}."
            )
        self.points_of_other_devices = tuple(
            tuple(points_of_other) for points_of_other in points_of_other_devices
        )
        point_by_size = {point.block_threads: point for point in points}
        if isinstance(chosen, Occupancy) and point_by_size:
            point_by_size.setdefault(chosen.block_threads, chosen)
        self.points = tuple(point_by_size[threads] for threads in sorted(point_by_size))
        threads = chosen.block_threads if isinstance(chosen, Occupancy) else int(chosen)
        if not self.points:
            raise ValueError("There are no points to draw. Pass one Occupancy per block size.")
        if threads not in point_by_size:
            raise ValueError(
                f"There is no point for {threads} threads per block. Choose one of the "
                f"block sizes of this chart, from {self.points[0].block_threads} to "
                f"{self.points[-1].block_threads}."
            )
        provenance = self.points[0].provenance
        other_text = ""
        if self.points_of_other_devices:
            device_names = listing(
                [_format_device(other_points) for other_points in self.points_of_other_devices]
            )
            other_text = (
                f"Marks: {device_names} with the same registers and shared memory, by the same rules. "
            )
        super().__init__(
            title="Theoretical occupancy against block size",
            caption="Theoretical occupancy: the warps that fit on an SM over those it can hold, "
            f"{provenance.label}. {other_text}gl.launch shows the achieved occupancy of a launch.",
            source=provenance.source,
        )
        self.chosen = threads

    @property
    def record(self) -> tuple[Occupancy, ...]:
        """The occupancy records. There is one record per block size."""
        return self.points

    @property
    def chosen(self) -> int:
        """The marked block size in threads. An assigned value is changed to the nearest block size in the
        chart.
        """
        return self._chosen

    @chosen.setter
    def chosen(self, threads: int) -> None:
        self._chosen = min(
            (point.block_threads for point in self.points), key=lambda size: abs(size - threads)
        )

    @property
    def point(self) -> Occupancy:
        """The occupancy record of the marked block size."""
        return next(chart_point for chart_point in self.points if chart_point.block_threads == self.chosen)

    def sentence(self) -> str:
        best_fraction = max(point.fraction for point in self.points)
        return (
            f"Occupancy against block size from {self.points[0].block_threads} to "
            f"{count(self.points[-1].block_threads, 'thread')}: {_describe_point(self.point)}, "
            f"best {percent(best_fraction)}; {self.point.provenance.label}."
        )

    def describe(self) -> str:
        lines = [self.sentence(), *(f"{_describe_point(point)}." for point in self.points)]
        for other_points in self.points_of_other_devices:
            lines += [
                f"On {_format_device(other_points)}: {_describe_point(point)}." for point in other_points
            ]
        return "\n".join(lines)

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row for each block size."""
        resources = [*self.points[0].blocks_by_limit]
        size_rows = tuple(
            (
                point.block_threads,
                point.fraction,
                point.warps_per_sm,
                point.blocks_per_sm,
                ", ".join(point.limiters),
                *(point.blocks_by_limit.get(resource) for resource in resources),
            )
            for point in self.points
        )
        columns = (
            Column("threads per block", "block_threads", number),
            Column("occupancy", "occupancy", percent),
            Column("warps per SM", "warps_per_sm", number),
            Column("blocks per SM", "blocks_per_sm", number),
            Column("limited by", "limiters"),
            *(
                Column(f"blocks by {resource}", f"blocks_by_{resource.replace(' ', '_')}", number)
                for resource in resources
            ),
        )
        other_device_rows = tuple(
            (_format_device(other_points), point.block_threads, point.fraction, ", ".join(point.limiters))
            for other_points in self.points_of_other_devices
            for point in other_points
        )
        other_columns = ("device", columns[0], columns[1], columns[4])
        other_tables = (
            (Table("Other devices", other_columns, other_device_rows),) if other_device_rows else ()
        )
        return Table("Each block size", columns, size_rows), *other_tables

    def painters(self) -> tuple[Painter, ...]:
        return self._paint_sizes, self._paint_limits

    def _paint_sizes(self, ax: Axes) -> None:
        """Draw the theoretical occupancy over the block size."""
        points = self.points
        limiters = [_find_first_limiter(point) for point in points]
        for limiter in [*LIMIT_COLOURS, ""]:
            point_indices = [index for index, name in enumerate(limiters) if name == limiter]
            occupancies = [points[index].fraction for index in point_indices]
            if point_indices:
                name = f"limited by {limiter}" if limiter else "no single limit"
                ax.bar(
                    point_indices,
                    occupancies,
                    0.86,
                    color=colour(LIMIT_COLOURS.get(limiter, "other")),
                    label=name,
                )
        index_of_size = {point.block_threads: index for index, point in enumerate(points)}
        for other_index, (other_points, marker) in enumerate(
            zip(self.points_of_other_devices, OTHER_MARKERS, strict=False)
        ):
            charted_points = [point for point in other_points if point.block_threads in index_of_size]
            marker_offset = 0.3 * (
                other_index - (len(self.points_of_other_devices) - 1) / 2
            )  # marks of equal height are all visible
            ax.plot(
                [index_of_size[point.block_threads] + marker_offset for point in charted_points],
                [point.fraction for point in charted_points],
                marker,
                color=colour("bg"),
                markersize=3.6,
                markeredgecolor=colour("fg"),
                markeredgewidth=0.7,
                label=_format_device(other_points),
            )
        chosen_index = index_of_size[self.chosen]
        ax.bar(
            [chosen_index],
            [points[chosen_index].fraction],
            0.98,
            fill=False,
            edgecolor=colour("fg"),
            linewidth=1.6,
        )
        ax.annotate(
            f"{number(self.chosen)}\n▼",
            (chosen_index, points[chosen_index].fraction),
            (0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            weight="bold",
            linespacing=0.95,
        )
        tick_indices = [
            index for index, point in enumerate(points) if point.block_threads % TICK_STEP_THREADS == 0
        ]
        tick_indices = tick_indices or [*range(len(points))]
        ax.set_xticks(tick_indices, [number(points[index].block_threads) for index in tick_indices])
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        ax.set_ylim(0, 1.16)
        ax.grid(axis="y")
        ax.set_xlabel("threads per block")
        ax.set_ylabel("theoretical occupancy")
        ax.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=5, handlelength=1, columnspacing=1.2)

    def _paint_limits(self, ax: Axes) -> None:
        """Draw the blocks per SM that each limit alone allows, below a text about the marked block size."""
        chosen_point = self.point
        bars = make_limit_bars(chosen_point, LIMIT_COLOURS)
        bar_rows = range(len(bars))
        shares = [min(1.0, bar["share"]) for bar in bars]
        ax.barh(bar_rows, [1.0] * len(bars), 0.55, color=colour("grid"))
        ax.barh(bar_rows, shares, 0.55, color=[colour(bar.get("colour", "other")) for bar in bars])
        for row, bar in zip(bar_rows, bars, strict=True):
            font_weight = "bold" if bar.get("strong") else "normal"
            ax.text(
                1.03, row, f"{bar['value']} {bar.get('mark', '')}".strip(), va="center", weight=font_weight
            )
        ax.set_yticks(bar_rows, [bar["label"] for bar in bars])
        ax.set_ylim(len(bars) - 0.4, -0.6)
        ax.set_xlim(0, 1.6)
        ax.set_xticks([])
        ax.spines[:].set_visible(False)
        ax.tick_params(left=False)
        fit_text = f"{describe_occupancy(chosen_point)}, {describe_limiters(chosen_point)}"
        heading = f"{count(chosen_point.block_threads, 'thread')} per block: {percent(chosen_point.fraction)}"
        ax.set_title(f"{heading}\n{fill(fit_text, 32)}", loc="left")
        resources_text = (
            f"{count(chosen_point.registers_per_thread, 'register')} per thread, "
            f"{size(chosen_point.shared_bytes)} of shared memory per block. "
            "Bars: blocks per SM that each limit alone allows."
        )
        ax.set_xlabel(fill(resources_text, 42), loc="left", fontsize=SMALL_FONT_POINTS)


def _format_device(points: Sequence[Occupancy]) -> str:
    return points[0].provenance.device.removeprefix("virtual ")


def _find_first_limiter(point: Occupancy) -> str:
    return point.limiters[0] if point.limiters else ""


def _describe_point(point: Occupancy) -> str:
    threads = count(point.block_threads, "thread")
    return f"{threads} per block give {percent(point.fraction)}, {describe_limiters(point)}"
