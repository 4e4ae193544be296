"""Load chart: the load of a GPU, over time and live, one strip for each kind of reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import traitlets

from gpulab.views._steered import Steered
from gpulab.views.monitor import monitor_text
from gpulab.views.monitor.monitor_text import reading, share
from gpulab.views.parts.axes import Axes, Axis
from gpulab.views.parts.boxes import Box, column, legend, numbers, slider
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Labels, Line, Rects, Rules, Time
from gpulab.views.parts.plots import nice_ticks, plot, speaking, y_ticks
from gpulab.views.tables import Table
from gpulab.words import duration, number, size
from virtualgpu.records.device.load import LOAD_READINGS, LoadSamples, clock_reasons

LEFT_PX = 76
RIGHT_PX = 14
PHASES_PX = 34
GAP_PX = 19
HELD_PX = 14
AXIS_PX = 34
SPANS_S = (10, 60, 600)
POINTS = 600


class _Strip(NamedTuple):
    title: str
    unit: str
    lines: Sequence[tuple[str, str, str]]  # reading, colour, name
    whole: bool  # from 0 to 100

    @property
    def height_px(self) -> int:
        """Return the height of a strip, so that all strips together fit a projector."""
        return 42 if self.whole else 22


STRIPS = (
    _Strip(
        "busy",
        "%",
        (
            ("utilization", "muted", monitor_text.UTILIZATION),
            ("sm_active", "accent", "SMs active"),
            ("sm_occupancy", "tail", "occupancy"),
        ),
        True,
    ),
    _Strip(
        "share of each peak",
        "%",
        (
            ("tensor", "purple", "tensor cores"),
            ("fp16", "warn", "FP16"),
            ("fp32", "good", "FP32"),
            ("fp64", "accent-2", "FP64"),
            ("dram", "error", "DRAM"),
        ),
        True,
    ),
    _Strip("power", "W", (("power", "fg", "power"),), False),
    _Strip("SM clock", "MHz", (("sm_clock", "fg", "SM clock"),), False),
    _Strip("temperature", "°C", (("temperature", "fg", "temperature"),), False),
    _Strip("memory used", "MiB", (("memory_used", "fg", "memory used"),), False),
)
# Bits of the reasons that limit the clocks: the program, heat, power, and others.
_HELD = ((0x01, "other"), (0x68, "error"), (0x84, "warn"))
_HELD_OTHERS = "purple"


class LoadChart(Steered):
    """The load of a GPU over time.

    Parameters
    ----------
    samples
        Gives everything that was read up to now.
    state
        ``"live"``, ``"paused"``, ``"stopped"`` or ``"recorded"``.
    pause
        Pauses the readings, or lets them go on.
    """

    paused = traitlets.Int(0).tag(sync=True, echo_update=False)
    span_s = traitlets.Int(SPANS_S[1]).tag(sync=True, echo_update=False)

    def __init__(
        self,
        samples: Callable[[], LoadSamples],
        state: str = "stopped",
        pause: Callable[[bool], object] = lambda on: None,
    ) -> None:
        self._samples = samples
        self._state = state
        self._pause = pause
        first = samples()
        super().__init__(title=f"What {first.provenance.device} does", source=first.provenance.source)
        if state in ("live", "paused"):
            self.paused = int(state == "paused")
            self.controls = [
                slider("In sight", "span_s", SPANS_S, [duration(s * 1e9) for s in SPANS_S]).wire(),
                slider("Paused", "paused", (0, 1), ("reading", "paused")).wire(),
            ]
        self.pictured = self._set()
        self.show(state)
        self.observe(self._on_slider, ["paused", "span_s"])

    @property
    def record(self) -> LoadSamples:
        return self._samples()

    def tables(self) -> tuple[Table, ...]:
        """The means of each phase, then the readings, a row each."""
        record = self.record
        units = {"%": "_percent", "MiB/s": "_mib_per_s", "W": "_w", "J": "_j", "°C": "_c", "MHz": "_mhz"}
        names = [each.name + units.get(each.unit, "_mib" if each.unit else "") for each in LOAD_READINGS]
        values = [record.time_ns.tolist(), *(record[each.name].tolist() for each in LOAD_READINGS)]
        readings = Table("Readings", ("time_ns", *names), tuple(zip(*values, strict=True)))
        return monitor_text.phases(record), readings

    def _set(self) -> dict[str, int]:
        return {"paused": self.paused, "span_s": self.span_s}

    def show(self, state: str) -> None:
        """Show everything up to now, and the state of the recording: live, paused or ended."""
        with self._lock, self.hold_sync():
            self._state = state
            self.paused = int(state == "paused")
            self.caption = self._caption()
            self.pictured = self._set()
            self.redraw()

    def tick(self) -> None:
        """Show new readings; works in any thread."""
        if self.comm is not None and self._state == "live":
            with self._lock, self.hold_sync():
                self.caption = self._caption()
                self.redraw()

    def _on_slider(self, change: Any) -> None:
        with self._lock, self.hold_sync(), self._reporting("Changing the chart"):
            if change["name"] == "paused" and bool(self.paused) != (self._state == "paused"):
                self._pause(bool(self.paused))
            self.redraw()
        self.answer(self._set())

    def _caption(self) -> str:
        record = self.record
        label = self.record.provenance.label
        first = f"{label[0].upper()}{label[1:]}; {self._state}."
        sentences = [first, monitor_text.MEANS, record.note]
        return " ".join(filter(None, sentences))

    def sentence(self) -> str:
        return monitor_text.sentence(self.record, self._state)

    def describe(self) -> str:
        record = self.record
        table = [monitor_text.phases(record).text()] if record.phases else []
        sentences = [
            self.sentence(),
            monitor_text.MEANS,
            *table,
            *monitor_text.missing(record),
            monitor_text.state_of(record),
        ]
        return "\n".join(filter(None, [*sentences, record.note]))

    def draw(self) -> Box:
        record = self.record
        names = {(colour, name) for each in STRIPS for _, colour, name in each.lines if len(each.lines) > 1}
        used = [
            (colour, name)
            for each in STRIPS
            for key, colour, name in each.lines
            if (colour, name) in names and record.latest(key) is not None
        ]
        absent = " ".join(monitor_text.missing(record))
        return column(
            numbers(_figures(record), least=140),
            legend(used),
            self._plot(record),
            paragraph(f"{monitor_text.state_of(record)} {absent}".strip(), "note"),
        )

    def _plot(self, record: LoadSamples) -> Box:
        live = self._state in ("live", "paused")
        end = max(record.duration_ns, 1e9)
        begin = max(0.0, end - self.span_s * 1e9) if live else 0.0
        across = Axis(begin, end)
        shown = [each for each in STRIPS if any(record.latest(name) is not None for name, *_ in each.lines)]
        items: list[Item | None] = [*_phase_names(record, begin, end)]
        top = float(PHASES_PX)
        ticks = list[tuple[float, str]]()
        for strip in shown:
            high = 100.0 if strip.whole else _high(record, strip)
            at = [0.0, 50.0, 100.0] if strip.whole else [0.0, nice_ticks(high, 3)[-1]]
            axes = Axes(
                across, Axis(0, high, {value: number(value) for value in at}, grid=True), strip.height_px, top
            )
            items += [*axes.grid(), *_lines(record, strip, axes, begin)]
            named = f"{strip.title} ({strip.unit})"
            items.append(Labels([begin], [top - 8], [named], colour="muted", dx=2, pin=True))
            heights = axes.y(at)
            ticks += [(float(y), number(value)) for y, value in zip(heights, at, strict=True)]
            top += strip.height_px + GAP_PX
        held, bottom = _held(record, begin, top, speak=not live)
        items += [
            *held,
            y_ticks([y for y, _ in ticks], [text for _, text in ticks], (begin, end)),
            Time(bottom),
        ]
        return plot(
            bottom + AXIS_PX,
            (begin, end),
            *items,
            left=LEFT_PX,
            right=RIGHT_PX,
            zoom=not live,
            label=self.sentence(),
        )


def _figures(record: LoadSamples) -> list[tuple[str, str, str]]:
    """Return the last readings, each with a short detail."""
    last = record.latest
    limit = record.power_limit_w
    memory = record.memory_mib
    joules = record.energy_j
    return [
        (monitor_text.UTILIZATION, share(last("utilization")), "some kernel ran"),
        ("SMs active", share(last("sm_active")), monitor_text.sms(record, last("sm_active"))),
        ("Occupancy", share(last("sm_occupancy")), ""),
        ("Tensor cores", share(last("tensor")), ""),
        ("DRAM", share(last("dram")), "of its peak"),
        ("Power", reading(last("power"), "W"), f"limit {number(limit)} W" if limit else ""),
        ("Energy", reading(joules, "J"), "since it began"),
        ("SM clock", reading(last("sm_clock"), "MHz"), ""),
        ("Temperature", reading(last("temperature"), "°C"), ""),
        ("Memory", reading(last("memory_used"), "MiB"), f"of {size(memory * 2**20)}" if memory else ""),
    ]


def _high(record: LoadSamples, strip: _Strip) -> float:
    """A round value above all readings."""
    most = max(float(np.nanmax(record[name], initial=0.0)) for name, *_ in strip.lines)
    return max(1.0, 1.08 * most)


def _lines(record: LoadSamples, strip: _Strip, axes: Axes, begin: float) -> list[Item]:
    """Draw the readings as steps: each is valid for the time since the previous one."""
    time = record.time_ns
    since = np.concatenate(([0.0], time[:-1]))
    seen = np.flatnonzero(time >= begin)[:: max(1, int(np.count_nonzero(time >= begin) / POINTS))]
    found: list[Item] = []
    for name, colour, _ in strip.lines:
        values = record[name][seen]
        there = np.flatnonzero(~np.isnan(values))
        for run in np.split(there, np.flatnonzero(np.diff(there) > 1) + 1):
            if len(run):
                x = np.append(np.maximum(since[seen[run]], begin), time[seen[run[-1]]])
                y = axes.y(np.append(values[run], values[run[-1]]))
                found.append(Line(x, y, colour, width=2 if strip.whole else 1.5, step=True))
    return found


def _phase_names(record: LoadSamples, begin: float, end: float) -> list[Item]:
    """Draw the beginnings of phases, and their names where there is room."""
    if not record.phases:
        return []
    x = np.array([at for _, at in record.phases])
    bottom = PHASES_PX + sum(strip.height_px + GAP_PX for strip in STRIPS)
    room = np.diff(np.append(x, end))
    inside = np.flatnonzero((x >= begin) & (x <= end))
    # The full name, or its distinctive part, or its number.
    names = [
        "\n".join((name, name.rpartition(": ")[2], str(at + 1)))
        for at in inside.tolist()
        for name in [record.phases[at][0]]
    ]
    return [
        Rules(x[inside], 0 * x[inside] + 2, x[inside], 0 * x[inside] + bottom, "rule"),
        Labels(x[inside], 0 * x[inside] + 8, names, room=room[inside], dx=3, weight="bold"),
    ]


def _held(record: LoadSamples, begin: float, top: float, speak: bool) -> tuple[list[Item], float]:
    """Draw a bar for each interval in which the clocks were limited, and the end of the chart."""
    bits = record["clock_reasons"]
    time = record.time_ns
    since = np.concatenate(([0.0], time[:-1]))
    readings = np.flatnonzero(~np.isnan(bits) & (time >= begin) & (np.nan_to_num(bits) > 0))
    if not len(readings):
        return [], top - GAP_PX
    runs = np.split(readings, np.flatnonzero((np.diff(readings) > 1) | (np.diff(bits[readings]) != 0)) + 1)
    x0 = np.array([max(since[run[0]], begin) for run in runs])
    x1 = np.array([time[run[-1]] for run in runs])
    words = [clock_reasons(bits[run[0]]) for run in runs]
    colours = [next((name for mask, name in _HELD if int(bits[run[0]]) & mask), _HELD_OTHERS) for run in runs]
    labels = list(dict.fromkeys(colours))
    sentences = [
        f"{text}: {duration(float(high - low))} from {duration(float(low))}"
        for text, low, high in zip(words, x0, x1, strict=True)
    ]
    y = np.full(len(runs), top)
    shades = [labels.index(colour) for colour in colours]
    bars = Rects(x0, x1, y, y + HELD_PX, shades, labels, **(speaking(sentences) if speak else {}))
    return [
        Labels([begin], [top - 8], ["clocks held back by"], colour="muted", dx=2, pin=True),
        bars,
        Labels(x0, y + HELD_PX + 9, words, room=x1 - x0, size=10),
    ], top + HELD_PX + 20
