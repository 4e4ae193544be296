"""Ladder chart: latency over the working set and bandwidth by level, one device or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpulab.views._base import View
from gpulab.views._text import duration, listing, number, size
from gpulab.views.parts.boxes import Box, Item, column, fold, legend, row, table, words
from gpulab.views.parts.plots import labels, line, plot, rects, rules, y_name, y_ticks
from virtualgpu.records.memory import LevelBandwidth, MemoryLadder

COLOURS = ("accent", "tail", "good")
TOP_PX, LATENCY_PX = 24, 250
BAR_PX, GAP_PX = 9, 9
LEFT_PX, LEVELS_LEFT_PX = 52, 104
MARK_PX = 3


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
        self.ladders, self._find = tuple(ladders), find
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
            row(self._latency(), self._bandwidth(), weights=[1.15, 1], least=[430, 400]),
            words("Focus a chart and use the arrow keys.", "note", only="page"),
            fold(
                "How each figure was found",
                table([["latency", first.latency_method],
                       *[[b.level, f"{b.method}{_document(b)}"] for b in first.bandwidths]]),
                opened=False, only="page",
            ),
        )  # fmt: skip

    # --- latency over the working set ---------------------------------------------------------------
    def _latency(self) -> Box:
        first = self.ladders[0]
        sizes = np.concatenate([each.working_set_bytes for each in self.ladders])
        times = np.concatenate([each.latency_ns for each in self.ladders])
        domain = (math.log2(sizes.min()) - 0.3, math.log2(sizes.max()) + 0.3)
        ticks = _ticks(times.min(), times.max())
        low, high = math.log10(ticks[0]), math.log10(ticks[-1])
        bottom = TOP_PX + LATENCY_PX

        def y(ns: Any) -> Any:
            return bottom - LATENCY_PX * (np.log10(ns) - low) / (high - low)

        octaves = [at for at in range(math.ceil(domain[0]), int(domain[1]) + 1) if at % 4 == 2]
        levels = [float(y(tick)) for tick in ticks]
        capacity = [math.log2(c.size_bytes) for c in first.capacities]
        inside = [at for at in range(len(capacity)) if domain[0] < capacity[at] < domain[1]]
        points = [(each, w, ns, at) for at, each in enumerate(self.ladders) for w, ns in _points(each)]
        at_x, at_y = np.log2([w for _, w, _, _ in points]), y([ns for _, _, ns, _ in points])
        half = 0.004 * (domain[1] - domain[0])
        said = [f"{size(w)}: {duration(ns)} a load, {each.provenance.label}" for each, w, ns, _ in points]
        # The later ones are broader and lie below, so that a curve on top of another hides none.
        curves: list[Item] = [
            line(np.log2(each.working_set_bytes), y(each.latency_ns), COLOURS[at], width=2 + 2 * at)
            for at, each in reversed([*enumerate(self.ladders)])
        ]
        return plot(
            bottom + 40,
            domain,
            rules([domain[0]] * len(levels), levels, [domain[1]] * len(levels), levels, "grid"),
            rules([capacity[i] for i in inside], [TOP_PX - 8] * len(inside), [capacity[i] for i in inside],
                  [bottom] * len(inside), "muted", dash=True),
            labels([capacity[i] for i in inside], [10] * len(inside),
                   [f"{first.capacities[i].level}: {size(first.capacities[i].size_bytes)}" for i in inside],
                   anchor="end", dx=-3, colour="muted"),
            *curves,
            rects(at_x - half, at_x + half, at_y - MARK_PX, at_y + MARK_PX, [at for *_, at in points],
                  list(COLOURS), which=[*range(len(points))], say=[["which", said]]),
            y_ticks(levels, [number(tick) for tick in ticks], domain),
            y_name("ns a load", TOP_PX + LATENCY_PX / 2, domain, LEFT_PX),
            labels(octaves, [bottom + 11] * len(octaves), [size(2.0**at) for at in octaves], anchor="middle",
                   spread=True),
            labels([sum(domain) / 2], [bottom + 29], ["working set (bytes, logarithmic)"], anchor="middle",
                   colour="muted"),
            label="Latency over the working set, both logarithmic",
            left=LEFT_PX,
        )  # fmt: skip

    # --- bandwidth by level -------------------------------------------------------------------------
    def _bandwidth(self) -> Box:
        first, high = self.ladders[0], len(self.ladders) * BAR_PX
        given = [v for each in self.ladders for b in each.bandwidths for v in (b.gbps, b.published_gbps) if v]
        ticks = [
            10.0**p for p in range(math.floor(math.log10(min(given))), math.ceil(math.log10(max(given))) + 1)
        ]
        domain = (math.log10(ticks[0]), math.log10(ticks[-1]))
        pitch = max(high + GAP_PX, LATENCY_PX / len(first.bandwidths))
        top = {b.level: TOP_PX + at * pitch for at, b in enumerate(first.bandwidths)}
        bottom = TOP_PX + pitch * len(first.bandwidths)
        bars = [
            (top[b.level] + (pitch - high) / 2 + at * BAR_PX, b.gbps, at,
             f"{b.level}: {number(b.gbps)} GB/s, {each.provenance.label}"
             + (f"; published: {number(b.published_gbps)} GB/s" if b.published_gbps else ""))
            for at, each in enumerate(self.ladders) for b in each.bandwidths if b.gbps and b.level in top
        ]  # fmt: skip
        bars.sort(key=lambda bar: bar[0])
        ys, ends = [bar[0] for bar in bars], [math.log10(bar[1]) for bar in bars]
        published = [
            (top[b.level], math.log10(b.published_gbps)) for b in first.bandwidths if b.published_gbps
        ]
        alone = len(self.ladders) == 1
        said = [
            (math.log10(max(b.gbps or 0, b.published_gbps or 0, ticks[0])), top[b.level] + pitch / 2,
             number(b.gbps) if b.gbps else b.why)
            for b in first.bandwidths if alone or not b.gbps
        ]  # fmt: skip
        at_ticks = [math.log10(tick) for tick in ticks]
        return plot(
            bottom + 40,
            domain,
            rules(at_ticks, [TOP_PX] * len(ticks), at_ticks, [bottom] * len(ticks), "grid"),
            rects([domain[0]] * len(bars), ends, ys, [y + BAR_PX - 1 for y in ys], [bar[2] for bar in bars],
                  list(COLOURS), which=[*range(len(bars))], say=[["which", [bar[3] for bar in bars]]]),
            rules([x for _, x in published], [y + 1 for y, _ in published], [x for _, x in published],
                  [y + pitch - 1 for y, _ in published], "fg", width=1.5, dash=True),
            labels(*map(list, zip(*said, strict=True)), dx=5, size=10) if said else None,
            y_ticks([y + pitch / 2 for y in top.values()], list(top), domain),
            labels(at_ticks, [bottom + 11] * len(ticks), [number(tick) for tick in ticks], anchor="middle",
                   spread=True),
            labels([sum(domain) / 2], [bottom + 29], ["GB/s, logarithmic; dashed: published"],
                   anchor="middle", colour="muted"),
            label="Bandwidth by level, logarithmic",
            left=LEVELS_LEFT_PX,
            right=36,
        )  # fmt: skip


def _points(each: MemoryLadder) -> list[tuple[int, float]]:
    return list(zip(each.working_set_bytes.tolist(), each.latency_ns.tolist(), strict=True))


def _steps(each: MemoryLadder) -> list[tuple[str, float]]:
    """Latency in the middle of each level: at half of a cache, and of all that was read."""
    found = [(f"from {c.level}", each.latency_at(c.size_bytes / 2)) for c in each.capacities
             if c.size_bytes / 2 < each.working_set_bytes[-1]]  # fmt: skip
    last = int(each.working_set_bytes[-1])
    return [*found, (f"within {size(last)}", each.latency_at(last))]


def _rate(b: LevelBandwidth) -> str:
    return (
        f"{b.level}: {number(b.gbps)} GB/s{_document(b)}" if b.gbps else f"{b.level}: not measured, {b.why}"
    )


def _document(b: LevelBandwidth) -> str:
    return f" (published: {number(b.published_gbps)} GB/s, {b.document})" if b.published_gbps else ""


def _ticks(least: float, most: float) -> list[float]:
    """1, 2 and 5 times powers of ten around an interval."""
    powers = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 2)
    marks = [m * 10.0**p for p in powers for m in (1, 2, 5)]
    first = max(at for at, mark in enumerate(marks) if mark <= least)
    last = min(at for at, mark in enumerate(marks) if mark >= most)
    return marks[first : max(last, first + 1) + 1]
