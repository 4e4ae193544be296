"""Roofline: launches by operations per byte and per second, under the ceilings of their device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpulab.views._figure import SMALL_POINTS, FigureView, Painter, colour, number_ticks
from gpulab.views.tables import Column, Table
from gpulab.words import count, duration, listing, number, percent, size
from virtualgpu.records.launch.roofline import LEVELS, Level, Roofline, RooflinePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"DRAM": "tail", "L2": "accent", "shared": "good"}
MODELLED = "purple"
NAMES: dict[Level | None, str] = {"DRAM": "DRAM", "L2": "L2", "shared": "shared memory", None: "arithmetic"}
LINE = 0.052
"""The height of a line of text, as a share of the height of the axes."""
SAME_PLACE = 0.05
"""Points closer than this, in powers of ten, share a label."""


class RooflineChart(FigureView):
    """Launches as points, one per memory level, under slopes of memory and flat lines of arithmetic.

    Parameters
    ----------
    roofline
        The launches and the ceilings.
    """

    height_in = 4.2

    def __init__(self, roofline: Roofline) -> None:
        self.roofline = roofline
        # A launch that computes nothing, or moved or took nothing, has no place under a ceiling.
        self._drawn = [point for point in roofline.points if point.gflops and point.intensities]
        source = roofline.points[0].provenance.source
        super().__init__(title="Roofline", source=source, caption=self._origins())

    @property
    def record(self) -> Roofline:
        """Launches and ceilings."""
        return self.roofline

    def _origins(self) -> str:
        times = listing([*dict.fromkeys(point.provenance.label for point in self.roofline.points)])
        return (
            f"Times {times}; operations and bytes moved counted on the virtual GPU, caches "
            f"modelled. Ceilings for {self.roofline.ceilings.device}: DRAM and arithmetic published, shared "
            "memory 128 bytes a clock and SM, L2 modelled."
        )

    def sentence(self) -> str:
        many = count(len(self._drawn), "kernel")
        achieved = f": {self.told(self._drawn[-1])}" if self._drawn else ""
        origins = listing([*dict.fromkeys(point.provenance.label for point in self.roofline.points)])
        return f"Roofline of {many}{achieved}; {origins}."

    def told(self, point: RooflinePoint) -> str:
        """Return a sentence about one launch."""
        level, roof = self.roofline.roof(point)
        share = percent(point.gflops / roof)
        allows = f"{share} of what {NAMES[level]} allows ({_rate(roof)})"
        return f"{point.name} reaches {_rate(point.gflops)}, {allows}"

    def describe(self) -> str:
        limits = self.roofline.ceilings
        ceilings = [f"{NAMES[level]}: {number(limits.gbps[level], 4)} GB/s." for level in LEVELS]
        ceilings += [f"{kind}: {_rate(limits.gflops[kind])}." for kind in self._kinds()]
        points = [f"{self.told(point)}; {_intensities(point)}." for point in self._drawn]
        return "\n".join([self.sentence(), *points, *self.notes(), *ceilings])

    def _kinds(self) -> list[str]:
        """Types of arithmetic that the launches use."""
        return [*dict.fromkeys(kind for point in self._drawn for kind in point.flops)] or ["f32"]

    def _changes(self) -> list[str]:
        level = self._path_level()
        where = [f"The arrows join the points of {NAMES[level]}."] if level else []
        return [
            f"{before.name} → {after.name}: {number(before.time_ns / after.time_ns)} × as fast."
            for before, after in self._pairs()
        ] + where

    def _path_level(self) -> Level | None:
        """Return the level of all arrows: the level, used by all launches, whose traffic changes most."""
        drawn = self._drawn if self._pairs() else []
        common = [level for level in LEVELS if drawn and all(level in each.intensities for each in drawn)]

        def change(level: Level) -> float:
            values = [each.intensities[level] for each in drawn]
            return max(values) / min(values)

        return max(common, key=change, default=None)

    def _pairs(self) -> list[tuple[RooflinePoint, RooflinePoint]]:
        return [*zip(self._drawn, self._drawn[1:], strict=False)] if self.roofline.path else []

    def _left_out(self) -> list[str]:
        sentences = []
        for point in self.roofline.points:
            if point in self._drawn:
                continue
            why = "" if point.operations else "it computes no floating-point number; "
            most = max(point.size_bytes.values())
            moved = f"it moved {size(most) if most else 'no bytes'} in {duration(point.time_ns)}"
            if not point.time_ns:
                why = "too short to time; "
            sentences.append(f"{point.name} is not in the chart: {why}{moved}.")
        return sentences

    def tables(self) -> tuple[Table, ...]:
        """Return one row for each launch."""
        rows = []
        for point in self._drawn:
            level, ceiling = self.roofline.roof(point)
            rows.append(
                (
                    point.name,
                    point.gflops,
                    point.gflops / ceiling,
                    NAMES[level],
                    point.time_ns,
                    *(point.intensities.get(each) for each in LEVELS),
                )
            )
        columns: tuple[Column | str, ...] = (
            "kernel",
            Column("achieved", "gflop_per_s", _rate),
            Column("of its roof", "share_of_roof", percent),
            Column("roof", "roof"),
            Column("time", "time_ns", duration),
            *(
                Column(f"operations a byte of {NAMES[each]}", f"flop_per_byte_{each.lower()}", number)
                for each in LEVELS
            ),
        )
        return (Table("Each kernel", columns, tuple(rows), hide_empty=True),) if rows else ()

    def notes(self) -> list[str]:
        """Sentences about changes between launches, and about launches that are not in the chart."""
        return [*self._changes(), *self._left_out()]

    def painters(self) -> tuple[Painter, ...]:
        return (self._paint,)

    def _paint(self, ax: Axes) -> None:
        """Launches as points under the ceilings, both axes logarithmic."""
        ceilings = self.roofline.ceilings
        drawn = self._drawn
        peaks = {kind: ceilings.gflops[kind] for kind in self._kinds()}
        highest = max(peaks.values())
        ridge = highest / ceilings.gbps["DRAM"]
        intensities = [x for point in drawn for x in point.intensities.values()]
        rates = [rate for point in drawn for rate in (point.gflops, _modelled(point)) if rate]
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(_decades([*intensities, ridge / 8, ridge * 4]))
        ax.set_ylim(_decades([*rates, highest / 100, highest]))
        number_ticks(ax, "x", (1,))
        number_ticks(ax, "y", (1,))
        ax.grid()
        ax.set_xlabel("operations a byte moved")
        ax.set_ylabel("GFLOP/s")
        self._paint_ceilings(ax, peaks)
        self._paint_points(ax)
        for before, after in self._pairs():
            level = self._path_level()
            ends = [
                (p.intensities[level] if level else max(p.intensities.values()), p.gflops)
                for p in (before, after)
            ]
            arrow = {"arrowstyle": "->", "color": colour("fg"), "linewidth": 1.3, "shrinkA": 4, "shrinkB": 4}
            ax.annotate("", ends[1], ends[0], arrowprops=arrow)
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=5,
            handlelength=1.2,
            columnspacing=1.4,
        )

    def _paint_ceilings(self, ax: Axes, peaks: dict[str, float]) -> None:
        """A slope for each level of memory up to the highest peak, and a flat line for each type."""
        gbps = self.roofline.ceilings.gbps
        low, high = ax.get_xlim()
        bottom, _ = ax.get_ylim()
        highest = max(peaks.values())
        for level in LEVELS:
            begin = max(low, bottom / gbps[level])
            bend = min(high, highest / gbps[level])
            label = f"{NAMES[level]}: {number(gbps[level], 4)} GB/s"
            ends = [begin, bend] if begin < bend else []
            ax.plot(
                ends,
                [gbps[level] * x for x in ends],
                color=colour(COLOURS[level]),
                linewidth=1.8,
                label=label,
            )
        first = highest / max(gbps.values())
        for kind, peak in peaks.items():
            ax.plot([max(low, first * peak / highest), high], [peak, peak], color=colour("fg"), linewidth=1.8)
            ax.annotate(
                f"{kind} {_rate(peak)}",
                (high, peak),
                (-3, 3),
                textcoords="offset points",
                ha="right",
                fontsize=SMALL_POINTS,
                color=colour("muted"),
            )

    def _paint_points(self, ax: Axes) -> None:
        """A mark per level for each launch, a thin line through its marks, and its name."""
        for point in self._drawn:
            if rate := _modelled(point):
                xs = [*point.intensities.values()]
                ax.plot(xs, [rate] * len(xs), "s", color=colour(MODELLED), markersize=5)
        for point in self._drawn:
            marks = point.intensities
            ax.plot(
                [min(marks.values()), max(marks.values())],
                [point.gflops] * 2,
                color=colour("muted"),
                linewidth=0.9,
            )
            for level, x in marks.items():
                ax.plot(x, point.gflops, "s", color=colour(COLOURS[level]), markersize=5)
        if any(map(_modelled, self._drawn)):
            ax.plot([], [], "s", color=colour(MODELLED), label="where the model has them")
        names = _names(self._drawn)
        low, high = np.log10(ax.get_ylim())
        heights = [(math.log10(y) - low) / (high - low) for _, y in names]
        for (x, _), name, height in zip(names, names.values(), _apart(heights), strict=True):
            ax.annotate(
                name,
                (x, height),
                (6, 0),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                va="center",
            )


def _rate(gflops: float) -> str:
    return f"{number(gflops / 1e3)} TFLOP/s" if gflops >= 1e4 else f"{number(gflops)} GFLOP/s"


def _intensities(point: RooflinePoint) -> str:
    each = [f"{number(value)} of {NAMES[level]}" for level, value in point.intensities.items()]
    return f"operations a byte: {listing(each)}"


def _modelled(point: RooflinePoint) -> float:
    """Return GFLOP/s by the modelled time, or 0 if there is no modelled time."""
    return point.operations / point.modelled_ns if point.modelled_ns else 0.0


def _decades(values: Iterable[float]) -> tuple[float, float]:
    """The powers of ten around values, with some room on both sides."""
    numbers = [*values]
    return 10.0 ** math.floor(math.log10(min(numbers) / 1.3)), 10.0 ** math.ceil(
        math.log10(max(numbers) * 1.3)
    )


def _names(points: Sequence[RooflinePoint]) -> dict[tuple[float, float], str]:
    """Return the label at each point: two names and the number of others where launches coincide."""
    places = dict[tuple[float, float], list[str]]()
    for point in points:
        here = (max(point.intensities.values()), point.gflops)
        near = (each for each in places if math.dist(np.log10(each), np.log10(here)) < SAME_PLACE)
        places.setdefault(next(near, here), []).append(point.name)
    labels = dict[tuple[float, float], str]()
    for place, names in places.items():
        kinds = list(dict.fromkeys(names))
        more = f" and {len(kinds) - 2} more" if len(kinds) > 2 else ""
        labels[place] = ", ".join(kinds[:2]) + more
    return labels


def _apart(heights: Sequence[float]) -> list[float]:
    """Return heights (0 at the foot, 1 at the top) at least a `LINE` apart, each near its own value."""
    moved = [*heights]
    last = math.inf
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for index in reversed(order):
        moved[index] = last = min(heights[index], last - LINE)
    least = LINE / 2
    for index in order:
        moved[index] = least = max(moved[index], least)
        least += LINE
    return moved
