"""Roofline: launches by what they compute a byte and a second, under what their device can do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from gpulab.views._base import View
from gpulab.views.parts.axes import Axes, log_axis
from gpulab.views.parts.boxes import Box, column, fold, legend, table, words
from gpulab.views.parts.items import Item, Labels, Line, Rules
from gpulab.views.parts.pen import text_width
from gpulab.words import count, duration, listing, number, percent, size
from virtualgpu.records.launch.roofline import LEVELS, Level, Roofline, RooflinePoint

COLOURS = {"DRAM": "tail", "L2": "accent", "shared": "good"}
MODELLED = "purple"
NAMES: dict[Level | None, str] = {"DRAM": "DRAM", "L2": "L2", "shared": "shared memory", None: "arithmetic"}
HEIGHT_PX = 260
TOP_PX = 14
LEFT_PX = 64
LINE_PX = 13
MOST_ROWS = 6  # below the chart; with more, a projector would not show both
# Places that are one to the eye: so far apart, in powers of ten.
_ONE = 0.05


class RooflineChart(View):
    """Launches as points, one a level of memory, under slopes of memory and flat lines of arithmetic.

    Parameters
    ----------
    roofline
        The launches and the ceilings.
    """

    def __init__(self, roofline: Roofline) -> None:
        self.roofline = roofline
        # What computes nothing, or moved or took nothing, has no place under a roof.
        self._drawn = [each for each in roofline.points if each.gflops and each.intensities]
        source = roofline.points[0].provenance.source
        super().__init__(title="Roofline", source=source, caption=self._origins())
        self.redraw()

    @property
    def record(self) -> Roofline:
        """Launches and ceilings."""
        return self.roofline

    def _origins(self) -> str:
        times = listing([*dict.fromkeys(each.provenance.label for each in self.roofline.points)])
        return (
            f"Times {times}; operations and bytes moved counted on the virtual GPU, caches "
            f"modelled. Ceilings for {self.roofline.ceilings.device}: DRAM and arithmetic published, shared "
            "memory 128 bytes a clock and SM, L2 modelled."
        )

    def sentence(self) -> str:
        many = count(len(self._drawn), "kernel")
        told = f": {self.told(self._drawn[-1])}" if self._drawn else ""
        where = listing([*dict.fromkeys(each.provenance.label for each in self.roofline.points)])
        return f"Roofline of {many}{told}; {where}."

    def told(self, point: RooflinePoint) -> str:
        """One launch in a sentence."""
        level, roof = self.roofline.roof(point)
        share = percent(point.gflops / roof)
        allows = f"{share} of what {NAMES[level]} allows ({_rate(roof)})"
        return f"{point.name} reaches {_rate(point.gflops)}, {allows}"

    def describe(self) -> str:
        kept = self.roofline.ceilings
        ceilings = [f"{NAMES[level]}: {number(kept.gbps[level], 4)} GB/s." for level in LEVELS]
        ceilings += [f"{kind}: {_rate(kept.gflops[kind])}." for kind in self._kinds()]
        points = [f"{self.told(each)}; {_intensities(each)}." for each in self._drawn]
        return "\n".join([self.sentence(), *points, *self._changes(), *self._left_out(), *ceilings])

    def _kinds(self) -> list[str]:
        """Types of arithmetic that the launches use."""
        return [*dict.fromkeys(kind for each in self._drawn for kind in each.flops)] or ["f32"]

    def _changes(self) -> list[str]:
        level = self._path_level()
        where = [f"The arrows join the points of {NAMES[level]}."] if level else []
        return [
            f"{before.name} → {after.name}: {number(before.time_ns / after.time_ns)} × as fast."
            for before, after in self._pairs()
        ] + where

    def _path_level(self) -> Level | None:
        """The level of all arrows: of those that every launch uses, the one whose traffic changes most."""
        drawn = self._drawn if self._pairs() else []
        common = [level for level in LEVELS if drawn and all(level in each.intensities for each in drawn)]

        def change(level: Level) -> float:
            values = [each.intensities[level] for each in drawn]
            return max(values) / min(values)

        return max(common, key=change, default=None)

    def _pairs(self) -> list[tuple[RooflinePoint, RooflinePoint]]:
        return [*zip(self._drawn, self._drawn[1:], strict=False)] if self.roofline.path else []

    def _left_out(self) -> list[str]:
        found = []
        for each in self.roofline.points:
            if each in self._drawn:
                continue
            why = "" if each.operations else "it computes no floating-point number; "
            most = max(each.size_bytes.values())
            moved = f"it moved {size(most) if most else 'no bytes'} in {duration(each.time_ns)}"
            if not each.time_ns:
                why = "too short to time; "
            found.append(f"{each.name} is not in the chart: {why}{moved}.")
        return found

    def draw(self) -> Box:
        kept = self.roofline.ceilings
        drawn = self._drawn
        kinds = self._kinds()
        peaks = {kind: kept.gflops[kind] for kind in kinds}
        highest = max(peaks.values())
        xs = [each for point in drawn for each in point.intensities.values()]
        ys = [rate for point in drawn for rate in (point.gflops, _modelled(point)) if rate]
        ridge = highest / kept.gbps["DRAM"]
        across = log_axis(
            min([*xs, ridge / 8]) / 1.3, max([*xs, ridge * 4]) * 1.3, "operations a byte moved", (1,)
        )
        up = log_axis(min([*ys, highest / 100]) / 1.3, highest * 1.3, "GFLOP/s", (1,))
        axes = Axes(across, up, HEIGHT_PX, TOP_PX)
        chart = axes.plot(
            *_ceilings(axes, self.roofline, peaks),
            *_points(axes, drawn, self.told),
            *[_arrow(axes, self._path_level(), *pair) for pair in self._pairs()],
            label=self.sentence(),
            left=LEFT_PX,
            hint="Point at a kernel, or use the arrow keys.",
            right=16 + round(max([text_width(name, 11) for name in _named(drawn).values()], default=0)),
        )
        entries = [
            (COLOURS[level], f"{NAMES[level]}: {number(kept.gbps[level], 4)} GB/s") for level in LEVELS
        ]
        if any(_modelled(point) for point in drawn):
            entries.append((MODELLED, "where the model has them"))
        rows = []
        for each in drawn:
            level, roof = self.roofline.roof(each)
            share = percent(each.gflops / roof)
            rows.append([each.name, _rate(each.gflops), share, NAMES[level], duration(each.time_ns)])
        below = table(rows, ["kernel", "achieved", "of its roof", "roof", "time"]) if rows else None
        if below and len(rows) > MOST_ROWS:
            below = fold("Each kernel", below, opened=False)
        said = [words(text, "note") for text in [*self._changes(), *self._left_out()]]
        return column(legend(entries), chart, below, *said)


def _rate(gflops: float) -> str:
    return f"{number(gflops / 1e3)} TFLOP/s" if gflops >= 1e4 else f"{number(gflops)} GFLOP/s"


def _intensities(point: RooflinePoint) -> str:
    each = [f"{number(value)} of {NAMES[level]}" for level, value in point.intensities.items()]
    return f"operations a byte: {listing(each)}"


def _modelled(point: RooflinePoint) -> float:
    """GFLOP/s by the model's time, where it stands beside a measured one."""
    return point.operations / point.modelled_ns if point.modelled_ns else 0.0


def _ceilings(axes: Axes, roofline: Roofline, peaks: dict[str, float]) -> list[Item]:
    """A slope a level up to the highest peak, a flat line a type, each with its figure."""
    low = axes.across.low
    high = axes.across.high
    bottom = axes.up.low
    highest = max(peaks.values())
    items: list[Item] = []
    lowest = min(LEVELS, key=lambda level: roofline.ceilings.gbps[level])
    for level in LEVELS:
        gbps = roofline.ceilings.gbps[level]
        begin = max(low, bottom / gbps)
        bend = min(high, highest / gbps)
        if begin >= bend:
            continue
        ends = [begin, bend]
        items.append(Line(axes.x(ends), axes.y([gbps * x for x in ends]), COLOURS[level], width=2))
        at = begin * (bend / begin) ** 0.5
        # The lowest slope has its name below it, where no other one runs.
        side, dx = ("start", 6) if level == lowest else ("end", -5)
        place = axes.y([gbps * at]) + (6 if level == lowest else -3)
        items.append(Labels(axes.x([at]), place, [level], anchor=side, dx=dx, size=10, colour="muted"))
    first = highest / max(roofline.ceilings.gbps.values())
    for kind, peak in peaks.items():
        ends = [max(low, first * peak / highest), high]
        items.append(Line(axes.x(ends), axes.y([peak, peak]), "fg", width=2))
        said = [f"{kind} {_rate(peak)}"]
        items.append(
            Labels(axes.x([high]), axes.y([peak]) - 8, said, anchor="end", dx=-2, size=10, colour="muted")
        )
    return items


def _points(axes: Axes, drawn: Sequence[RooflinePoint], told: Callable[[RooflinePoint], str]) -> list[Item]:
    """A mark a level for each launch, a thin line through them, its name; where it is modelled to stand."""
    marks = [
        (x, point.gflops, f"{told(point)}; {number(x)} operations a byte of {NAMES[level]}", COLOURS[level])
        for point in drawn
        for level, x in point.intensities.items()
    ]
    for point in drawn:
        if rate := _modelled(point):
            said = f"{point.name}: {_rate(rate)} as modelled"
            marks += [(x, rate, f"{said}; {level}", MODELLED) for level, x in point.intensities.items()]
    if not marks:
        return []
    x, y, sentences, colours = zip(*marks, strict=True)
    ends = [(min(each), max(each), point.gflops) for point in drawn for each in [point.intensities.values()]]
    left, right, heights = zip(*ends, strict=True)
    rows = axes.y(heights)
    named = _named(drawn)
    places = [*named]
    names = [*named.values()]
    palette = [*dict.fromkeys(colours)]
    return [
        Rules(axes.x(left), rows, axes.x(right), rows, "muted"),
        axes.points(x, y, sentences, [palette.index(each) for each in colours], palette),
        Labels(axes.x([x for x, _ in places]), _apart(axes.y([y for _, y in places]).tolist()), names, dx=7),
    ]


def _named(drawn: Sequence[RooflinePoint]) -> dict[tuple[float, float], str]:
    """What stands at each place; of several launches at one, two names and how many more kinds."""
    names = dict[tuple[float, float], list[str]]()
    for point in drawn:
        x = max(point.intensities.values())
        y = point.gflops
        place = next((each for each in names if math.dist(np.log10(each), np.log10((x, y))) < _ONE), (x, y))
        names.setdefault(place, []).append(point.name)
    told = dict[tuple[float, float], str]()
    for place, found in names.items():
        kinds = list(dict.fromkeys(found))
        told[place] = ", ".join(kinds[:2]) + (f" and {len(kinds) - 2} more" if len(kinds) > 2 else "")
    return told


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights of texts a line apart at least, each as near its own as others and the foot allow."""
    found = [*heights]
    last = -math.inf
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for at in order:
        found[at] = last = max(heights[at], last + LINE_PX)
    least = TOP_PX + HEIGHT_PX - LINE_PX / 2
    for at in reversed(order):
        found[at] = least = min(found[at], least)
        least -= LINE_PX
    return found


def _arrow(axes: Axes, level: Level | None, before: RooflinePoint, after: RooflinePoint) -> Item:
    """From a launch to what became of it, at one level; where they share none, from name to name."""
    x = [point.intensities[level] if level else max(point.intensities.values()) for point in (before, after)]
    (x0, x1), (y0, y1) = axes.x(x), axes.y([before.gflops, after.gflops])
    return Rules([x0], [y0], [x1], [y1], "fg", width=1.5, arrow=True)
