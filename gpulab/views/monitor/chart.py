"""Load chart: the load of a GPU over time, with a strip for each kind of reading."""

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
LIMIT_BAR_PX = 14
AXIS_PX = 34
WINDOWS_S = (10, 60, 600)
MAX_POINTS = 600


class _Strip(NamedTuple):
    """Strip of the chart: a group of readings on one vertical axis."""

    title: str
    unit: str
    lines: Sequence[tuple[str, str, str]]  # reading, colour, name
    is_percentage: bool  # axis from 0 to 100

    @property
    def height_px(self) -> int:
        """Height of the strip in pixels; all strips together fit a projector."""
        return 42 if self.is_percentage else 22


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
# Colours by bits of the reasons that limit the clocks: idle, heat and power.
_REASON_COLOURS = ((0x01, "other"), (0x68, "error"), (0x84, "warn"))
_OTHER_REASON_COLOUR = "purple"


class LoadChart(Steered):
    """View of the load of a GPU over time.

    Parameters
    ----------
    samples
        Function that returns all readings so far.
    state
        ``"live"``, ``"paused"``, ``"stopped"`` or ``"recorded"``.
    pause
        Function that pauses the readings or continues them.
    """

    paused = traitlets.Int(0).tag(sync=True, echo_update=False)
    span_s = traitlets.Int(WINDOWS_S[1]).tag(sync=True, echo_update=False)

    def __init__(
        self,
        samples: Callable[[], LoadSamples],
        state: str = "stopped",
        pause: Callable[[bool], object] = lambda is_paused: None,
    ) -> None:
        self._samples = samples
        self._state = state
        self._pause = pause
        record = samples()
        super().__init__(title=f"Load of {record.provenance.device}", source=record.provenance.source)
        if state in ("live", "paused"):
            self.paused = int(state == "paused")
            self.controls = [
                slider(
                    "In sight", "span_s", WINDOWS_S, [duration(seconds * 1e9) for seconds in WINDOWS_S]
                ).wire(),
                slider("Paused", "paused", (0, 1), ("reading", "paused")).wire(),
            ]
        self.pictured = self._settings()
        self.show(state)
        self.observe(self._on_slider, ["paused", "span_s"])

    @property
    def record(self) -> LoadSamples:
        return self._samples()

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the means of each phase, and a table of the readings."""
        record = self.record
        units = {"%": "_percent", "MiB/s": "_mib_per_s", "W": "_w", "J": "_j", "°C": "_c", "MHz": "_mhz"}
        names = [
            load_reading.name + units.get(load_reading.unit, "_mib" if load_reading.unit else "")
            for load_reading in LOAD_READINGS
        ]
        values = [
            record.time_ns.tolist(),
            *(record[load_reading.name].tolist() for load_reading in LOAD_READINGS),
        ]
        readings = Table("Readings", ("time_ns", *names), tuple(zip(*values, strict=True)))
        return monitor_text.phases(record), readings

    def _settings(self) -> dict[str, int]:
        """Return the values of the sliders' traits."""
        return {"paused": self.paused, "span_s": self.span_s}

    def show(self, state: str) -> None:
        """Show all readings so far, and the state of the recording: live, paused, stopped or recorded."""
        with self._lock, self.hold_sync():
            self._state = state
            self.paused = int(state == "paused")
            self.caption = self._caption()
            self.pictured = self._settings()
            self.redraw()

    def tick(self) -> None:
        """Show new readings; can be called in any thread."""
        if self.comm is not None and self._state == "live":
            with self._lock, self.hold_sync():
                self.caption = self._caption()
                self.redraw()

    def _on_slider(self, change: Any) -> None:
        with self._lock, self.hold_sync(), self._reporting("Changing the chart"):
            if change["name"] == "paused" and bool(self.paused) != (self._state == "paused"):
                self._pause(bool(self.paused))
            self.redraw()
        self.answer(self._settings())

    def _caption(self) -> str:
        record = self.record
        label = self.record.provenance.label
        origin = f"{label[0].upper()}{label[1:]}; {self._state}."
        sentences = [origin, monitor_text.UTILIZATION_NOTE, record.note]
        return " ".join(filter(None, sentences))

    def sentence(self) -> str:
        return monitor_text.sentence(self.record, self._state)

    def describe(self) -> str:
        record = self.record
        table = [monitor_text.phases(record).text()] if record.phases else []
        sentences = [
            self.sentence(),
            monitor_text.UTILIZATION_NOTE,
            *table,
            *monitor_text.missing(record),
            monitor_text.state_of(record),
        ]
        return "\n".join(filter(None, [*sentences, record.note]))

    def draw(self) -> Box:
        record = self.record
        names = {
            (colour, name) for strip in STRIPS for _, colour, name in strip.lines if len(strip.lines) > 1
        }
        legend_items = [
            (colour, name)
            for strip in STRIPS
            for key, colour, name in strip.lines
            if (colour, name) in names and record.latest(key) is not None
        ]
        missing_text = " ".join(monitor_text.missing(record))
        return column(
            numbers(_latest_readings(record), least=140),
            legend(legend_items),
            self._plot(record),
            paragraph(f"{monitor_text.state_of(record)} {missing_text}".strip(), "note"),
        )

    def _plot(self, record: LoadSamples) -> Box:
        is_live = self._state in ("live", "paused")
        end_ns = max(record.duration_ns, 1e9)
        window_start_ns = max(0.0, end_ns - self.span_s * 1e9) if is_live else 0.0
        horizontal = Axis(window_start_ns, end_ns)
        strips = [
            strip for strip in STRIPS if any(record.latest(name) is not None for name, *_ in strip.lines)
        ]
        items: list[Item | None] = [*_phase_names(record, window_start_ns, end_ns)]
        top = float(PHASES_PX)
        ticks = list[tuple[float, str]]()
        for strip in strips:
            highest = 100.0 if strip.is_percentage else _axis_top(record, strip)
            tick_values = [0.0, 50.0, 100.0] if strip.is_percentage else [0.0, nice_ticks(highest, 3)[-1]]
            axes = Axes(
                horizontal,
                Axis(0, highest, {value: number(value) for value in tick_values}, grid=True),
                strip.height_px,
                top,
            )
            items += [*axes.grid(), *_lines(record, strip, axes, window_start_ns)]
            strip_name = f"{strip.title} ({strip.unit})"
            items.append(Labels([window_start_ns], [top - 8], [strip_name], colour="muted", dx=2, pin=True))
            heights = axes.y(tick_values)
            ticks += [(float(y), number(value)) for y, value in zip(heights, tick_values, strict=True)]
            top += strip.height_px + GAP_PX
        limit_items, bottom = _clock_limits(record, window_start_ns, top, has_sentences=not is_live)
        items += [
            *limit_items,
            y_ticks([y for y, _ in ticks], [text for _, text in ticks], (window_start_ns, end_ns)),
            Time(bottom),
        ]
        return plot(
            bottom + AXIS_PX,
            (window_start_ns, end_ns),
            *items,
            left=LEFT_PX,
            right=RIGHT_PX,
            zoom=not is_live,
            label=self.sentence(),
        )


def _latest_readings(record: LoadSamples) -> list[tuple[str, str, str]]:
    """Return name, value and detail of the last readings."""
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


def _axis_top(record: LoadSamples, strip: _Strip) -> float:
    """Return the upper end of a strip's axis: slightly above all readings."""
    largest = max(float(np.nanmax(record[name], initial=0.0)) for name, *_ in strip.lines)
    return max(1.0, 1.08 * largest)


def _lines(record: LoadSamples, strip: _Strip, axes: Axes, window_start_ns: float) -> list[Item]:
    """Return the curves of a strip as steps: a reading is valid for the time since the previous one."""
    time = record.time_ns
    interval_starts = np.concatenate(([0.0], time[:-1]))
    visible = np.flatnonzero(time >= window_start_ns)[
        :: max(1, int(np.count_nonzero(time >= window_start_ns) / MAX_POINTS))
    ]
    lines: list[Item] = []
    for name, colour, _ in strip.lines:
        values = record[name][visible]
        valid = np.flatnonzero(~np.isnan(values))
        for segment in np.split(valid, np.flatnonzero(np.diff(valid) > 1) + 1):
            if len(segment):
                x = np.append(
                    np.maximum(interval_starts[visible[segment]], window_start_ns), time[visible[segment[-1]]]
                )
                y = axes.y(np.append(values[segment], values[segment[-1]]))
                lines.append(Line(x, y, colour, width=2 if strip.is_percentage else 1.5, step=True))
    return lines


def _phase_names(record: LoadSamples, window_start_ns: float, window_end_ns: float) -> list[Item]:
    """Return lines at the beginnings of phases, and the phases' names where there is space."""
    if not record.phases:
        return []
    x = np.array([index for _, index in record.phases])
    bottom = PHASES_PX + sum(strip.height_px + GAP_PX for strip in STRIPS)
    widths = np.diff(np.append(x, window_end_ns))
    visible = np.flatnonzero((x >= window_start_ns) & (x <= window_end_ns))
    names = []
    for index in visible.tolist():
        name = record.phases[index][0]
        # The full name, or its distinctive part, or its number.
        names.append("\n".join((name, name.rpartition(": ")[2], str(index + 1))))
    return [
        Rules(x[visible], 0 * x[visible] + 2, x[visible], 0 * x[visible] + bottom, "rule"),
        Labels(x[visible], 0 * x[visible] + 8, names, room=widths[visible], dx=3, weight="bold"),
    ]


def _clock_limits(
    record: LoadSamples, window_start_ns: float, top: float, has_sentences: bool
) -> tuple[list[Item], float]:
    """Return bars for the intervals in which the clocks were limited, and the y of the chart's end."""
    reason_bits = record["clock_reasons"]
    time = record.time_ns
    interval_starts = np.concatenate(([0.0], time[:-1]))
    readings = np.flatnonzero(
        ~np.isnan(reason_bits) & (time >= window_start_ns) & (np.nan_to_num(reason_bits) > 0)
    )
    if not len(readings):
        return [], top - GAP_PX
    runs = np.split(
        readings, np.flatnonzero((np.diff(readings) > 1) | (np.diff(reason_bits[readings]) != 0)) + 1
    )
    x0 = np.array([max(interval_starts[run[0]], window_start_ns) for run in runs])
    x1 = np.array([time[run[-1]] for run in runs])
    reasons = [clock_reasons(reason_bits[run[0]]) for run in runs]
    colours = [
        next(
            (name for mask, name in _REASON_COLOURS if int(reason_bits[run[0]]) & mask), _OTHER_REASON_COLOUR
        )
        for run in runs
    ]
    labels = list(dict.fromkeys(colours))
    sentences = [
        f"{text}: {duration(float(end_ns - start_ns))} from {duration(float(start_ns))}"
        for text, start_ns, end_ns in zip(reasons, x0, x1, strict=True)
    ]
    y = np.full(len(runs), top)
    shades = [labels.index(colour) for colour in colours]
    bars = Rects(
        x0, x1, y, y + LIMIT_BAR_PX, shades, labels, **(speaking(sentences) if has_sentences else {})
    )
    return [
        Labels([window_start_ns], [top - 8], ["clocks held back by"], colour="muted", dx=2, pin=True),
        bars,
        Labels(x0, y + LIMIT_BAR_PX + 9, reasons, room=x1 - x0, size=10),
    ], top + LIMIT_BAR_PX + 20
