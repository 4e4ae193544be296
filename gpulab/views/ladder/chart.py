"""Ladder chart: latency over the working set and bandwidth by level, one device or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from gpulab.views._base import View
from gpulab.views.parts.axes import Axes, Axis, log_axis
from gpulab.views.parts.boxes import Box, column, fold, legend, row, table, words
from gpulab.views.parts.items import Labels, Line, Rects, Rules
from gpulab.views.parts.plots import speaking
from gpulab.words import duration, listing, number, size
from virtualgpu.records.memory import LevelBandwidth, MemoryLadder

COLOURS = ("accent", "tail", "good")
TOP_PX = 24
HEIGHT_PX = 250
BAR_PX = 9
GAP_PX = 9
LEFT_PX = 52
LEVELS_LEFT_PX = 104
MARGIN = 2**0.3  # of the working sets, on both sides


class LadderChart(View):
    """Ladders of up to three devices: the first one's capacities and published figures are drawn.

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
        self.redraw()

    @property
    def record(self) -> MemoryLadder:
        """The ladder of the first device."""
        return self.ladders[0]

    def beside(self, other: str | MemoryLadder) -> LadderChart:
        """The same chart with one more ladder in it: a GPU's name, or a record."""
        if isinstance(other, str):
            if self._find is None:
                raise ValueError("This chart knows no recorded ladders; pass a MemoryLadder.")
            other = self._find(other)
        return LadderChart([*self.ladders, other], find=self._find)

    def sentence(self) -> str:
        first = self.ladders[0]
        steps = listing([f"{duration(ns)} {where}" for where, ns in _steps(first)])
        told = {"L2": "L2", "memory, read": "memory"}
        rates = [
            f"{number(b.gbps)} GB/s from {told[b.level]}"
            for b in first.bandwidths
            if b.level in told and b.gbps
        ]
        return f"A load takes {steps}; all SMs together read {listing(rates)}; {first.provenance.label}."

    def describe(self) -> str:
        lines = [self.sentence()]
        for each in self.ladders:
            lines.append(f"{each.provenance.label}:")
            lines += [f"{size(w)}: {duration(ns)} a load." for w, ns in _points(each)]
            lines += [f"{_rate(b)}. {b.method}" for b in each.bandwidths]
        return "\n".join(lines)

    def draw(self) -> Box:
        first = self.ladders[0]
        return column(
            legend(zip(COLOURS, [each.provenance.label for each in self.ladders], strict=False)),
            row(self._latency(), self._bandwidth(), weights=[1.15, 1], least=[340, 320]),
            words("Focus a chart and use the arrow keys.", "note", only="page"),
            fold(
                "How each figure was found",
                table(
                    [
                        ["latency", first.latency_method],
                        *[[b.level, f"{b.method}{_document(b)}"] for b in first.bandwidths],
                    ]
                ),
                opened=False,
                only="page",
            ),
        )

    # --- latency over the working set ---------------------------------------------------------------
    def _latency(self) -> Box:
        first = self.ladders[0]
        sizes = np.concatenate([each.working_set_bytes for each in self.ladders])
        times = np.concatenate([each.latency_ns for each in self.ladders])
        least = float(sizes.min()) / MARGIN
        most = float(sizes.max()) * MARGIN
        octaves = [at for at in range(math.ceil(math.log2(least)), int(math.log2(most)) + 1) if at % 4 == 2]
        axes = Axes(
            Axis(
                least, most, {2.0**at: size(2.0**at) for at in octaves}, "working set (bytes, logarithmic)", 2
            ),
            log_axis(float(times.min()), float(times.max()), "ns a load"),
            HEIGHT_PX,
            TOP_PX,
        )
        inside = [c for c in first.capacities if least < c.size_bytes < most]
        capacity = axes.x([c.size_bytes for c in inside])
        points = [(each, w, ns, at) for at, each in enumerate(self.ladders) for w, ns in _points(each)]
        # The later ones are broader and lie below, so that a curve on top of another hides none.
        curves = [
            Line(axes.x(each.working_set_bytes), axes.y(each.latency_ns), COLOURS[at], width=2 + 2 * at)
            for at, each in reversed([*enumerate(self.ladders)])
        ]
        return axes.plot(
            Rules(capacity, 0 * capacity + TOP_PX - 8, capacity, 0 * capacity + axes.bottom, dash=True),
            Labels(
                capacity,
                0 * capacity + 10,
                [f"{c.level}: {size(c.size_bytes)}" for c in inside],
                anchor="end",
                dx=-3,
                colour="muted",
            ),
            *curves,
            axes.points(
                [w for _, w, _, _ in points],
                [ns for _, _, ns, _ in points],
                [f"{size(w)}: {duration(ns)} a load, {each.provenance.label}" for each, w, ns, _ in points],
                [at for *_, at in points],
                COLOURS,
            ),
            label="Latency over the working set, both logarithmic",
            left=LEFT_PX,
            right=18,
        )

    # --- bandwidth by level -------------------------------------------------------------------------
    def _bandwidth(self) -> Box:
        first = self.ladders[0]
        high = len(self.ladders) * BAR_PX
        given = [v for each in self.ladders for b in each.bandwidths for v in (b.gbps, b.published_gbps) if v]
        levels = [b.level for b in first.bandwidths]
        pitch = max(high + GAP_PX, HEIGHT_PX / len(levels))
        axes = Axes(
            log_axis(min(given), max(given), "GB/s, logarithmic; dashed: published", (1,)),
            Axis(len(levels), 0, {at + 0.5: level for at, level in enumerate(levels)}),
            pitch * len(levels),
            TOP_PX,
        )
        top = dict(zip(levels, axes.y(range(len(levels))).tolist(), strict=True))
        bars = [
            (
                top[b.level] + (pitch - high) / 2 + at * BAR_PX,
                b.gbps,
                at,
                f"{b.level}: {number(b.gbps)} GB/s, {each.provenance.label}"
                + (f"; published: {number(b.published_gbps)} GB/s" if b.published_gbps else ""),
            )
            for at, each in enumerate(self.ladders)
            for b in each.bandwidths
            if b.gbps and b.level in top
        ]
        bars.sort(key=lambda bar: bar[0])
        y = np.array([bar[0] for bar in bars])
        ends = axes.x([bar[1] for bar in bars])
        published = axes.x([b.published_gbps for b in first.bandwidths if b.published_gbps])
        tops = np.array([top[b.level] for b in first.bandwidths if b.published_gbps])
        said = [b for b in first.bandwidths if len(self.ladders) == 1 or not b.gbps]
        return axes.plot(
            Rects(
                0 * ends + axes.across.domain[0],
                ends,
                y,
                y + BAR_PX - 1,
                [bar[2] for bar in bars],
                COLOURS,
                **speaking([bar[3] for bar in bars]),
            ),
            Rules(published, tops + 1, published, tops + pitch - 1, "fg", width=1.5, dash=True),
            Labels(
                axes.x([max(b.gbps or 0, b.published_gbps or 0, axes.across.low) for b in said]),
                [top[b.level] + pitch / 2 for b in said],
                [number(b.gbps) if b.gbps else b.why for b in said],
                dx=5,
                size=10,
            )
            if said
            else None,
            label="Bandwidth by level, logarithmic",
            left=LEVELS_LEFT_PX,
            right=36,
        )


def _points(each: MemoryLadder) -> list[tuple[int, float]]:
    return list(zip(each.working_set_bytes.tolist(), each.latency_ns.tolist(), strict=True))


def _steps(each: MemoryLadder) -> list[tuple[str, float]]:
    """Latency in the middle of each level: at half of a cache, and of all that was read."""
    found = [
        (f"from {c.level}", each.latency_at(c.size_bytes / 2))
        for c in each.capacities
        if c.size_bytes / 2 < each.working_set_bytes[-1]
    ]
    last = int(each.working_set_bytes[-1])
    return [*found, (f"within {size(last)}", each.latency_at(last))]


def _rate(b: LevelBandwidth) -> str:
    return (
        f"{b.level}: {number(b.gbps)} GB/s{_document(b)}" if b.gbps else f"{b.level}: not measured, {b.why}"
    )


def _document(b: LevelBandwidth) -> str:
    return f" (published: {number(b.published_gbps)} GB/s, {b.document})" if b.published_gbps else ""
