"""The roofline chart: launches by operations per byte and per second, below the ceilings of their device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpulab._deprecated import make_old_method
from gpulab.views._figure import SMALL_FONT_POINTS, FigureView, Painter, colour, number_ticks
from gpulab.views.parts.mma_sync import describe_mma_sync
from gpulab.views.tables import Column, Table
from gpulab.words import count, duration, listing, number, percent, size
from virtualgpu.records.counters import INTEGER_FORMATS
from virtualgpu.records.launch.roofline import LEVELS, TENSOR_PREFIX, Level, Limit, Roofline, RooflinePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"DRAM": "tail", "L2": "accent", "shared": "good"}
LEVEL_MARKERS = {"DRAM": "s", "L2": "o", "shared": "^"}
MODELLED_COLOUR = "purple"
INTEGER_TYPES = [f"{TENSOR_PREFIX}{name}" for name in INTEGER_FORMATS]
LIMIT_NAMES: dict[Limit, str] = {
    "DRAM": "DRAM",
    "L2": "L2",
    "shared": "shared memory",
    "CUDA cores": "arithmetic",
    "tensor cores": "tensor core",
}
WAIT_NAMES: dict[Limit, str] = {
    "DRAM": "memory",
    "L2": "L2",
    "shared": "shared memory",
    "CUDA cores": "CUDA cores",
}
"""Names of the units for which tensor cores wait."""
MIN_WAIT_SHARE = 0.5
"""Share of a ceiling from which tensor cores are said to wait for it."""
LABEL_HEIGHT_SHARE = 0.058
"""Height of a line of text, as a share of the height of the axes."""
AXIS_MARGIN_FACTOR = 1.8
"""Factor from the smallest and to the largest value to the ends of an axis."""
SHORT_RANGE_FACTOR = 400
"""Ratio of the ends of an axis below which it has ticks at 1, 2 and 5 times powers of ten."""
SAME_POSITION_DECADES = 0.05
"""Distance in powers of ten below which points have no arrow; half of it for a common label."""


class RooflineChart(FigureView):
    """A roofline chart of launches. The chart shows each launch as one point per memory level, and the
    ceilings of bandwidth and arithmetic.

    Parameters
    ----------
    roofline
        The launches and the ceilings.
    """

    height_in = 4.2
    told = make_old_method("told", "point_sentence")

    def __init__(self, roofline: Roofline) -> None:
        self.roofline = roofline
        # Launches without operations, without traffic or without a time cannot be drawn.
        self._points = [point for point in roofline.points if point.gflops and point.intensities]
        provenance_source = roofline.points[0].provenance.source
        super().__init__(title="Roofline", source=provenance_source, caption=self._describe_origins())

    @property
    def record(self) -> Roofline:
        """The record of the launches and the ceilings."""
        return self.roofline

    def _describe_origins(self) -> str:
        time_labels = listing([*dict.fromkeys(point.provenance.label for point in self.roofline.points)])
        return (
            f"Times {time_labels}; operations and bytes moved counted on the virtual GPU, caches "
            f"modelled. Ceilings for {self.roofline.ceilings.device}: DRAM and arithmetic published, shared "
            "memory 128 bytes per clock and SM, L2 modelled."
        )

    def sentence(self) -> str:
        count_text = count(len(self._points), "kernel")
        achieved_text = f": {self.point_sentence(self._points[-1])}" if self._points else ""
        origins_text = listing([*dict.fromkeys(point.provenance.label for point in self.roofline.points)])
        return f"Roofline of {count_text}{achieved_text}; {origins_text}."

    def point_sentence(self, point: RooflinePoint) -> str:
        """Return a sentence about one launch in the roofline chart."""
        level, ceiling_gflops = self.roofline.find_ceiling(point)
        share_of_roof = point.gflops / ceiling_gflops
        share_text = (
            f"{percent(share_of_roof)} of the {LIMIT_NAMES[level]} ceiling ({_format_rate(ceiling_gflops)})"
        )
        uses_tensor_cores = any(arithmetic_type.startswith(TENSOR_PREFIX) for arithmetic_type in point.flops)
        is_waiting = uses_tensor_cores and level in WAIT_NAMES and share_of_roof >= MIN_WAIT_SHARE
        wait_text = f"; its tensor cores wait for {WAIT_NAMES[level]}" if is_waiting else ""
        return f"{point.name} reaches {_format_rate(point.gflops)}, {share_text}{wait_text}"

    def describe(self) -> str:
        ceilings = self.roofline.ceilings
        ceiling_texts = [f"{LIMIT_NAMES[level]}: {number(ceilings.gbps[level], 4)} GB/s." for level in LEVELS]
        ceiling_texts += [
            f"{arithmetic_type}: {_format_kind_rate(arithmetic_type, ceilings.gflops[arithmetic_type])}."
            for arithmetic_type in self._list_arithmetic_types()
        ]
        point_texts = [
            f"{self.point_sentence(point)}; {_format_intensities(point)}." for point in self._points
        ]
        return "\n".join([self.sentence(), *point_texts, *self.notes(), *ceiling_texts])

    def _list_arithmetic_types(self) -> list[str]:
        """Return the types of arithmetic that the launches use and for which the device has a rate."""
        arithmetic_types = dict.fromkeys(
            arithmetic_type for point in self._points for arithmetic_type in point.flops
        )
        return [
            arithmetic_type
            for arithmetic_type in arithmetic_types
            if arithmetic_type in self.roofline.ceilings.gflops
        ] or ["f32"]

    def _describe_changes(self) -> list[str]:
        level = self._find_arrow_level()
        sentences = []
        for first_point, second_point in self._pair_successive_points():
            speedup = number(first_point.time_ns / second_point.time_ns)
            sentences.append(f"{first_point.name} → {second_point.name}: {speedup} × as fast.")
        if level:
            sentences.append(f"The arrows join the points of {LIMIT_NAMES[level]}.")
        return sentences

    def _find_arrow_level(self) -> Level | None:
        """Return the memory level between whose points the arrows are drawn. It is the level of all launches
        whose operations per byte change most, or None if there is no such level.
        """
        arrow_points = self._points if self._pair_successive_points() else []
        common_levels = [
            level
            for level in LEVELS
            if arrow_points and all(level in point.intensities for point in arrow_points)
        ]

        def compute_change(level: Level) -> float:
            level_intensities = [point.intensities[level] for point in arrow_points]
            return max(level_intensities) / min(level_intensities)

        return max(common_levels, key=compute_change, default=None)

    def _pair_successive_points(self) -> list[tuple[RooflinePoint, RooflinePoint]]:
        return [*zip(self._points, self._points[1:], strict=False)] if self.roofline.path else []

    def _explain_omissions(self) -> list[str]:
        sentences = []
        for point in self.roofline.points:
            if point in self._points:
                continue
            omission_reason = "" if point.operations else "it performs no floating-point operations; "
            largest_bytes = max(point.size_bytes.values())
            bytes_text = size(largest_bytes) if largest_bytes else "no bytes"
            moved_text = f"it moved {bytes_text} in {duration(point.time_ns)}"
            if not point.time_ns:
                omission_reason = "too short to time; "
            sentences.append(f"{point.name} is not in the chart: {omission_reason}{moved_text}.")
        return sentences

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row for each launch."""
        point_rows = []
        for point in self._points:
            level, ceiling_gflops = self.roofline.find_ceiling(point)
            point_rows.append(
                (
                    point.name,
                    point.gflops,
                    point.gflops / ceiling_gflops,
                    LIMIT_NAMES[level],
                    point.time_ns,
                    *(point.intensities.get(level_name) for level_name in LEVELS),
                )
            )
        columns: tuple[Column | str, ...] = (
            "kernel",
            Column("achieved", "gflop_per_s", _format_rate),
            Column("of its ceiling", "share_of_roof", percent),
            Column("roof", "roof"),
            Column("time", "time_ns", duration),
            *(
                Column(
                    f"operations per byte of {LIMIT_NAMES[level_name]}",
                    f"flop_per_byte_{level_name.lower()}",
                    number,
                )
                for level_name in LEVELS
            ),
        )
        return (Table("Each kernel", columns, tuple(point_rows), hide_empty=True),) if point_rows else ()

    def notes(self) -> list[str]:
        """Return sentences about changes between launches, and about launches that the chart does not
        show.
        """
        return [
            *self._describe_changes(),
            *self._explain_omissions(),
            *filter(None, [self._describe_mma_sync()]),
        ]

    def _describe_mma_sync(self) -> str:
        """Return a sentence about the share of the tensor-core ceilings that ``mma.sync`` reaches. If no
        share is known, return an empty string.
        """
        rate_shares = self.roofline.ceilings.mma_sync_shares
        tensor_formats = [
            arithmetic_type.removeprefix(TENSOR_PREFIX)
            for arithmetic_type in self._list_arithmetic_types()
            if arithmetic_type.startswith(TENSOR_PREFIX)
        ]
        return describe_mma_sync({name: rate_shares[name] for name in tensor_formats if name in rate_shares})

    def painters(self) -> tuple[Painter, ...]:
        return (self._paint,)

    def _paint(self, ax: Axes) -> None:
        """Draw the launches as points below the ceilings, with logarithmic axes."""
        ceilings = self.roofline.ceilings
        peaks_gflops = {
            arithmetic_type: ceilings.gflops[arithmetic_type]
            for arithmetic_type in self._list_arithmetic_types()
        }
        highest_gflops = max(peaks_gflops.values())
        ridge_intensities = [highest_gflops / gbps for gbps in ceilings.gbps.values()]
        intensities = [x for point in self._points for x in point.intensities.values()]
        rates_gflops = [
            rate_gflops
            for point in self._points
            for rate_gflops in (point.gflops, _compute_modelled_gflops(point))
            if rate_gflops
        ]
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(
            min([*intensities, *ridge_intensities]) / AXIS_MARGIN_FACTOR,
            max([*intensities, *ridge_intensities]) * AXIS_MARGIN_FACTOR,
        )
        ax.set_ylim(
            min([*rates_gflops, highest_gflops / 10]) / AXIS_MARGIN_FACTOR,
            highest_gflops * AXIS_MARGIN_FACTOR,
        )
        number_ticks(ax, "x", _choose_multiples(ax.get_xlim()))
        number_ticks(ax, "y", _choose_multiples(ax.get_ylim()))
        ax.grid()
        ax.set_xlabel("operations per byte moved, logarithmic")
        ax.set_ylabel("GFLOP/s, logarithmic")
        self._paint_ceilings(ax, peaks_gflops)
        self._paint_points(ax)
        self._paint_labels(ax, peaks_gflops)
        self._paint_arrows(ax)
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=5,
            handlelength=1.8,
            columnspacing=1.4,
        )

    def _paint_ceilings(self, ax: Axes, peaks_gflops: dict[str, float]) -> None:
        """Draw a slope for each memory level, and a flat line for each type of arithmetic."""
        gbps_of_level = self.roofline.ceilings.gbps
        lowest_x, highest_x = ax.get_xlim()
        lowest_y, _ = ax.get_ylim()
        highest_gflops = max(peaks_gflops.values())
        for level in LEVELS:
            first_x = max(lowest_x, lowest_y / gbps_of_level[level])
            ridge_x = min(highest_x, highest_gflops / gbps_of_level[level])
            line_xs = [first_x, ridge_x] if first_x < ridge_x else []
            ax.plot(
                line_xs,
                [gbps_of_level[level] * x for x in line_xs],
                color=colour(COLOURS[level]),
                linewidth=1.8,
                marker=LEVEL_MARKERS[level],
                markevery=[],  # the mark is only in the legend
                label=f"{LIMIT_NAMES[level]}: {number(gbps_of_level[level], 4)} GB/s",
            )
        ridge_intensity = highest_gflops / max(gbps_of_level.values())
        for peak in peaks_gflops.values():
            ax.plot(
                [max(lowest_x, ridge_intensity * peak / highest_gflops), highest_x],
                [peak, peak],
                color=colour("fg"),
                linewidth=1.8,
            )

    def _paint_points(self, ax: Axes) -> None:
        """Draw each launch as a mark per memory level, a line through its marks, and its name."""
        highest_x = ax.get_xlim()[1]
        for point in self._points:
            for level, x in point.intensities.items():
                marker_style: dict[str, Any] = {
                    "marker": LEVEL_MARKERS[level],
                    "markersize": 6,
                    "linestyle": "none",
                    "zorder": 3,
                }
                if modelled_gflops := _compute_modelled_gflops(point):
                    ax.plot(
                        x,
                        modelled_gflops,
                        color=colour(MODELLED_COLOUR),
                        markerfacecolor="none",
                        **marker_style,
                    )
                ax.plot(x, point.gflops, color=colour(COLOURS[level]), **marker_style)
            first_x = min(point.intensities.values())
            ax.plot([first_x, highest_x], [point.gflops] * 2, color=colour("muted"), linewidth=0.7)
        if any(map(_compute_modelled_gflops, self._points)):
            ax.plot(
                [],
                [],
                "s",
                color=colour(MODELLED_COLOUR),
                markerfacecolor="none",
                label="in the modelled time",
            )

    def _paint_labels(self, ax: Axes, peaks_gflops: dict[str, float]) -> None:
        """Write the names of the launches and of the ceilings of arithmetic right of the axes."""
        lowest_y, highest_y = ax.get_ylim()
        rate_labels = [(rate, name, "fg") for rate, name in _make_point_labels(self._points).items()]
        rate_labels += [(peak, label, "muted") for label, peak in _make_peak_labels(peaks_gflops).items()]
        height_shares = [
            math.log(rate / lowest_y) / math.log(highest_y / lowest_y) for rate, _, _ in rate_labels
        ]
        for (rate, label, colour_name), height_share in zip(
            rate_labels, _separate_label_heights(height_shares), strict=True
        ):
            ax.annotate(
                label,
                (ax.get_xlim()[1], rate),
                (1.03, height_share),
                textcoords="axes fraction",
                va="center",
                color=colour(colour_name),
                fontsize=SMALL_FONT_POINTS if colour_name == "muted" else None,
                arrowprops={
                    "arrowstyle": "-",
                    "color": colour("muted"),
                    "linewidth": 0.7,
                    "shrinkA": 2,
                    "shrinkB": 0,
                    "relpos": (0, 0.5),
                },
            )

    def _paint_arrows(self, ax: Axes) -> None:
        """Draw an arrow from each launch to the next, between the points of one level."""
        level = self._find_arrow_level()
        if level is None:
            return
        for point_pair in self._pair_successive_points():
            start_point, end_point = ((point.intensities[level], point.gflops) for point in point_pair)
            if math.dist(np.log10(start_point), np.log10(end_point)) > SAME_POSITION_DECADES:
                arrow_style = {
                    "arrowstyle": "->",
                    "color": colour("fg"),
                    "linewidth": 1.2,
                    "mutation_scale": 8,
                    "shrinkA": 4,
                    "shrinkB": 4,
                }
                ax.annotate("", end_point, start_point, arrowprops=arrow_style)


def _choose_multiples(axis_limits: tuple[float, float]) -> tuple[int, ...]:
    """Return the multiples of powers of ten at which an axis with these ends has ticks."""
    return (1, 2, 5) if axis_limits[1] / axis_limits[0] < SHORT_RANGE_FACTOR else (1,)


def _format_rate(gflops: float) -> str:
    return f"{number(gflops / 1e3)} TFLOP/s" if gflops >= 1e4 else f"{number(gflops)} GFLOP/s"


def _format_kind_rate(arithmetic_type: str, gflops: float) -> str:
    """Return a rate of a type of arithmetic with its unit; integers have operations, not FLOP."""
    return (
        _format_rate(gflops).replace("FLOP", "OP")
        if arithmetic_type in INTEGER_TYPES
        else _format_rate(gflops)
    )


def _make_peak_labels(peaks_gflops: dict[str, float]) -> dict[str, float]:
    """Return the labels of the ceilings of arithmetic; types with the same rate share a label."""
    types_by_rate: dict[str, list[str]] = {}
    for arithmetic_type, peak in peaks_gflops.items():
        types_by_rate.setdefault(_format_kind_rate(arithmetic_type, peak), []).append(arithmetic_type)
    return {
        f"{', '.join(same_rate_types)}: {rate}": peaks_gflops[same_rate_types[0]]
        for rate, same_rate_types in types_by_rate.items()
    }


def _format_intensities(point: RooflinePoint) -> str:
    intensity_texts = [
        f"{number(value)} of {LIMIT_NAMES[level]}" for level, value in point.intensities.items()
    ]
    return f"operations per byte: {listing(intensity_texts)}"


def _compute_modelled_gflops(point: RooflinePoint) -> float:
    """Return the rate of a launch in GFLOP/s by its modelled time, or 0 if there is no modelled time."""
    return point.operations / point.modelled_ns if point.modelled_ns else 0.0


def _make_point_labels(points: Sequence[RooflinePoint]) -> dict[float, str]:
    """Return the labels by GFLOP/s. Launches with nearly the same rate share a label of at most two names."""
    names_by_rate = dict[float, list[str]]()
    for point in points:
        close_rates = (
            rate for rate in names_by_rate if abs(math.log10(rate / point.gflops)) < SAME_POSITION_DECADES / 2
        )
        names_by_rate.setdefault(next(close_rates, point.gflops), []).append(point.name)
    label_of_rate = dict[float, str]()
    for rate, names in names_by_rate.items():
        distinct_names = list(dict.fromkeys(names))
        omitted_names_text = f" and {len(distinct_names) - 2} more" if len(distinct_names) > 2 else ""
        label_of_rate[rate] = ", ".join(distinct_names[:2]) + omitted_names_text
    return label_of_rate


def _separate_label_heights(heights: Sequence[float]) -> list[float]:
    """Return label heights (0 to 1) that are at least a line apart, each near its original value."""
    spaced_heights = [*heights]
    previous_height = math.inf
    height_order = sorted(range(len(heights)), key=heights.__getitem__)
    for index in reversed(height_order):
        spaced_heights[index] = previous_height = min(heights[index], previous_height - LABEL_HEIGHT_SHARE)
    lower_bound = LABEL_HEIGHT_SHARE / 2
    for index in height_order:
        spaced_heights[index] = lower_bound = max(spaced_heights[index], lower_bound)
        lower_bound += LABEL_HEIGHT_SHARE
    return spaced_heights
