"""The load chart: the load of a GPU over time, with one strip per kind of reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import traitlets

from gpulab.views._steered import Steered
from gpulab.views.monitor import monitor_text
from gpulab.views.monitor.monitor_text import format_reading, format_share
from gpulab.views.parts.axes import Axes, Axis
from gpulab.views.parts.boxes import Box, column, legend, numbers, slider
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Labels, LineSegments, Polyline, ReadingMarks, Rects, TimeAxis
from gpulab.views.parts.plots import make_y_ticks, nice_ticks, plot
from gpulab.views.tables import Table
from gpulab.words import duration, number, size
from virtualgpu.records.device.load import LOAD_READINGS, LoadSamples, clock_reasons

LEFT_PX = 48
RIGHT_PX = 14
MAX_NAME_LINES = 4
PHASE_NAME_PX = 10
MAX_SHORT_NAME_LENGTH = 12  # letters
GAP_PX = 19
LIMIT_BAR_PX = 14
AXIS_PX = 34
WINDOW_CHOICES_S = (10, 60, 600)
MAX_POINTS = 600
MIN_DRAWN_PERCENT = 1.0
"""Smaller percentages are not drawn in a strip with several curves, which would cover each other there."""
HINT_TEXT = "Point at the chart, or press the arrow keys, to see the values at a time."


class _ChartStrip(NamedTuple):
    """A strip of the chart: a group of readings with one vertical axis."""

    title: str
    unit: str
    curves: Sequence[tuple[str, str, str]]  # reading, colour, name
    is_percentage: bool  # axis from 0 to 100

    @property
    def height_px(self) -> int:
        """The height of this strip of the chart in pixels. The heights are so small that all strips fit on
        the screen of a projector.
        """
        return 42 if self.is_percentage else 22


CHART_STRIPS = (
    _ChartStrip(
        "busy",
        "%",
        (
            ("utilization", "muted", monitor_text.UTILIZATION_NAME),
            ("sm_active", "accent", "SMs active"),
            ("sm_occupancy", "tail", "occupancy"),
        ),
        True,
    ),
    _ChartStrip(
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
    _ChartStrip("power", "W", (("power", "fg", "power"),), False),
    _ChartStrip("SM clock", "MHz", (("sm_clock", "fg", "SM clock"),), False),
    _ChartStrip("temperature", "°C", (("temperature", "fg", "temperature"),), False),
    _ChartStrip("memory used", "MiB", (("memory_used", "fg", "memory used"),), False),
)
# Colours by bits of the reasons that limit the clocks: idle, heat and power.
_REASON_COLOURS = ((0x01, "other"), (0x68, "error"), (0x84, "warn"))
_OTHER_REASON_COLOUR = "purple"


class LoadChart(Steered):
    """A view of the load of a GPU over time.

    Parameters
    ----------
    samples
        A function that returns all readings so far.
    state
        ``"live"``, ``"paused"``, ``"stopped"`` or ``"recorded"``.
    set_paused
        A function that pauses or resumes the readings.
    """

    paused = traitlets.Int(0).tag(sync=True, echo_update=False)
    span_s = traitlets.Int(WINDOW_CHOICES_S[1]).tag(sync=True, echo_update=False)

    def __init__(
        self,
        samples: Callable[[], LoadSamples],
        state: str = "stopped",
        set_paused: Callable[[bool], object] = lambda is_paused: None,
    ) -> None:
        self._samples = samples
        self._state = state
        self._set_paused = set_paused
        record = samples()
        super().__init__(title=f"Load of {record.provenance.device}", source=record.provenance.source)
        if state in ("live", "paused"):
            self.paused = int(state == "paused")
            self.controls = [
                slider(
                    "In sight",
                    "span_s",
                    WINDOW_CHOICES_S,
                    [duration(seconds * 1e9) for seconds in WINDOW_CHOICES_S],
                ).wire(),
                slider("Paused", "paused", (0, 1), ("reading", "paused")).wire(),
            ]
        self.pictured = self._read_settings()
        self.show_state(state)
        self.observe(self._on_slider, ["paused", "span_s"])

    @property
    def record(self) -> LoadSamples:
        return self._samples()

    def tables(self) -> tuple[Table, ...]:
        """Return a table with the mean readings of each phase, and a table of all readings."""
        record = self.record
        unit_suffixes = {
            "%": "_percent",
            "MiB/s": "_mib_per_s",
            "W": "_w",
            "J": "_j",
            "°C": "_c",
            "MHz": "_mhz",
        }
        column_names = [
            load_reading.name + unit_suffixes.get(load_reading.unit, "_mib" if load_reading.unit else "")
            for load_reading in LOAD_READINGS
        ]
        column_values = [
            record.time_ns.tolist(),
            *(record[load_reading.name].tolist() for load_reading in LOAD_READINGS),
        ]
        readings = Table("Readings", ("time_ns", *column_names), tuple(zip(*column_values, strict=True)))
        return monitor_text.make_phase_table(record), readings

    def _read_settings(self) -> dict[str, int]:
        """Return the values of the sliders' traits."""
        return {"paused": self.paused, "span_s": self.span_s}

    def show_state(self, state: str) -> None:
        """Show all readings so far, and the state of the recording (live, paused, stopped or recorded)."""
        with self._lock, self.hold_sync():
            self._state = state
            self.paused = int(state == "paused")
            self.caption = self._make_caption()
            self.pictured = self._read_settings()
            self.redraw()

    def show_new_readings(self) -> None:
        """Show the new readings in the chart. Any thread can call this method."""
        if self.comm is not None and self._state == "live":
            with self._lock, self.hold_sync():
                self.caption = self._make_caption()
                self.redraw()

    def _on_slider(self, change: Any) -> None:
        with self._lock, self.hold_sync(), self._show_errors("Changing the chart"):
            if change["name"] == "paused" and bool(self.paused) != (self._state == "paused"):
                self._set_paused(bool(self.paused))
            self.redraw()
        self.confirm_picture(self._read_settings())

    def _make_caption(self) -> str:
        record = self.record
        provenance_label = self.record.provenance.label
        state_text = "" if self._state == "recorded" else f"; {self._state}"
        origin_text = f"{provenance_label[0].upper()}{provenance_label[1:]}{state_text}."
        sentences = [origin_text, monitor_text.UTILIZATION_NOTE, record.note]
        return " ".join(filter(None, sentences))

    def sentence(self) -> str:
        return monitor_text.describe_load(self.record, self._state)

    def describe(self) -> str:
        record = self.record
        table_texts = [monitor_text.make_phase_table(record).text()] if record.phases else []
        sentences = [
            self.sentence(),
            monitor_text.UTILIZATION_NOTE,
            *table_texts,
            *monitor_text.explain_missing(record),
            monitor_text.describe_state(record),
        ]
        return "\n".join(filter(None, [*sentences, record.note]))

    def draw(self) -> Box:
        record = self.record
        legend_items = [
            (colour, f"{name}: below {MIN_DRAWN_PERCENT:g} %" if _is_low(record[reading_name]) else name)
            for strip in CHART_STRIPS
            for reading_name, colour, name in strip.curves
            if len(strip.curves) > 1 and record.latest(reading_name) is not None
        ]
        missing_note = " ".join(monitor_text.explain_missing(record))
        phases_text = monitor_text.format_phases(record)
        return column(
            paragraph(monitor_text.format_latest_time(record, self._state == "live"), "heading"),
            numbers(_list_latest_readings(record), least=122),
            legend(legend_items),
            self._draw_plot(record),
            paragraph(phases_text, "note") if phases_text else None,
            paragraph(f"{monitor_text.describe_state(record)} {missing_note}".strip(), "note"),
        )

    def _draw_plot(self, record: LoadSamples) -> Box:
        is_live = self._state in ("live", "paused")
        end_ns = max(record.duration_ns, 1e9)
        window_start_ns = max(0.0, end_ns - self.span_s * 1e9) if is_live else 0.0
        time_axis = Axis(window_start_ns, end_ns)
        shown_strips = [
            strip
            for strip in CHART_STRIPS
            if any(record.latest(name) is not None for name, *_ in strip.curves)
        ]
        plot_items: list[Item | None] = []
        strip_top = _compute_phases_px(record)
        y_tick_texts = list[tuple[float, str]]()
        strip_positions = list[tuple[float, _ChartStrip]]()
        for strip in shown_strips:
            axis_top = 100.0 if strip.is_percentage else _find_axis_top(record, strip)
            tick_values = [0.0, 50.0, 100.0] if strip.is_percentage else [0.0, nice_ticks(axis_top, 3)[-1]]
            axes = Axes(
                time_axis,
                Axis(0, axis_top, {value: number(value) for value in tick_values}, has_grid=True),
                strip.height_px,
                strip_top,
            )
            plot_items += [*axes.draw_grid(), *_draw_lines(record, strip, axes, window_start_ns)]
            hidden_text = f"; below {MIN_DRAWN_PERCENT:g} is not drawn" if len(strip.curves) > 1 else ""
            strip_name = f"{strip.title} ({strip.unit}{hidden_text})"
            strip_positions.append((strip_top - 8, strip))
            plot_items.append(
                Labels([window_start_ns], [strip_top - 8], [strip_name], colour="muted", dx=2, pin=True)
            )
            tick_heights = axes.y(tick_values)
            y_tick_texts += [
                (float(y), number(value)) for y, value in zip(tick_heights, tick_values, strict=True)
            ]
            strip_top += strip.height_px + GAP_PX
        limit_items, chart_bottom = _draw_clock_limits(record, window_start_ns, strip_top)
        phase_items = _draw_phase_names(record, window_start_ns, end_ns, strip_top - GAP_PX)
        plot_items = [
            *phase_items,
            *plot_items,
            *limit_items,
            _make_readings(record, strip_positions, window_start_ns, chart_bottom),
            make_y_ticks(
                [y for y, _ in y_tick_texts], [text for _, text in y_tick_texts], (window_start_ns, end_ns)
            ),
            TimeAxis(chart_bottom),
        ]
        return plot(
            chart_bottom + AXIS_PX,
            (window_start_ns, end_ns),
            *plot_items,
            left=LEFT_PX,
            right=RIGHT_PX,
            zoom=not is_live,
            label=self.sentence(),
            hint=HINT_TEXT,
        )


def _list_latest_readings(record: LoadSamples) -> list[tuple[str, str, str]]:
    """Return the name, the value and a detail of each of the latest readings."""
    read_latest = record.latest
    power_limit_w = record.power_limit_w
    used_mib = read_latest("memory_used")
    memory_mib = record.memory_mib
    energy_j = record.energy_j
    return [
        (monitor_text.UTILIZATION_NAME, format_share(read_latest("utilization")), "some kernel ran"),
        (
            "SMs active",
            format_share(read_latest("sm_active")),
            monitor_text.format_sms(record, read_latest("sm_active")),
        ),
        ("Occupancy", format_share(read_latest("sm_occupancy")), ""),
        ("Tensor cores", format_share(read_latest("tensor")), ""),
        ("DRAM", format_share(read_latest("dram")), "of peak"),
        (
            "Power",
            format_reading(read_latest("power"), "W"),
            f"limit {number(power_limit_w)} W" if power_limit_w else "",
        ),
        ("Energy", format_reading(energy_j, "J"), "so far" if energy_j is not None else ""),
        ("SM clock", format_reading(read_latest("sm_clock"), "MHz"), ""),
        ("Temperature", format_reading(read_latest("temperature"), "°C"), ""),
        (
            "Memory",
            monitor_text.NOT_AVAILABLE if used_mib is None else size(used_mib * 2**20),
            f"of {size(memory_mib * 2**20)}" if memory_mib else "",
        ),
    ]


def _find_axis_top(record: LoadSamples, strip: _ChartStrip) -> float:
    """Return the upper end of a strip's axis: slightly above all readings."""
    largest_value = max(
        float(np.nanmax(record[reading_name], initial=0.0)) for reading_name, *_ in strip.curves
    )
    return max(1.0, 1.08 * largest_value)


def _find_visible_indices(record: LoadSamples, window_start_ns: float) -> Any:
    """Return the indices of the readings in the window. If there are very many, only every n-th reading is
    returned.
    """
    indices = np.flatnonzero(record.time_ns >= window_start_ns)
    return indices[:: max(1, len(indices) // MAX_POINTS)]


def _draw_lines(record: LoadSamples, strip: _ChartStrip, axes: Axes, window_start_ns: float) -> list[Item]:
    """Return the curves of a strip; each reading is constant over the time since the previous reading."""
    reading_times_ns = record.time_ns
    interval_starts = np.concatenate(([0.0], reading_times_ns[:-1]))
    visible_indices = _find_visible_indices(record, window_start_ns)
    line_items: list[Item] = []
    for reading_name, colour, _ in strip.curves:
        reading_values = record[reading_name][visible_indices]
        valid_indices = np.flatnonzero(~np.isnan(reading_values))
        if len(strip.curves) > 1:
            # A reading above the limit, and the ones next to it, so that its edges are drawn.
            is_drawn = reading_values >= MIN_DRAWN_PERCENT
            is_drawn |= np.append(is_drawn[1:], False) | np.append(False, is_drawn[:-1])
            valid_indices = valid_indices[is_drawn[valid_indices]]
        for curve_indices in np.split(valid_indices, np.flatnonzero(np.diff(valid_indices) > 1) + 1):
            if len(curve_indices):
                x = np.append(
                    np.maximum(interval_starts[visible_indices[curve_indices]], window_start_ns),
                    reading_times_ns[visible_indices[curve_indices[-1]]],
                )
                y = axes.y(np.append(reading_values[curve_indices], reading_values[curve_indices[-1]]))
                line_items.append(Polyline(x, y, colour, width=2 if strip.is_percentage else 1.5, step=True))
    return line_items


def _is_low(percentages: Any) -> bool:
    """Return whether all values of a curve are too low to be drawn."""
    return bool(np.nanmax(percentages, initial=0.0) < MIN_DRAWN_PERCENT)


def _make_readings(
    record: LoadSamples, strips: Sequence[tuple[float, _ChartStrip]], window_start_ns: float, bottom: float
) -> Item:
    """Return a plot item that shows the values of a selected reading next to a vertical line, and in a
    sentence.
    """
    visible_indices = _find_visible_indices(record, window_start_ns)
    time_ns = record.time_ns[visible_indices]
    phase_starts = [start_ns for _, start_ns in record.phases]
    reading_columns: dict[str, Any] = {
        "time_ns": time_ns,
        "phase": np.searchsorted(phase_starts, time_ns, side="right"),
        "phases": ["", *(f", in {name}" for name, _ in record.phases)],
    }
    value_labels = []
    texts_by_strip = [
        (
            y,
            [
                monitor_text.format_values(record, index, strip.curves, strip.unit)
                for index in visible_indices.tolist()
            ],
        )
        for y, strip in strips
    ]
    reason_texts = [
        monitor_text.format_limits(bits) for bits in record["clock_reasons"][visible_indices].tolist()
    ]
    sentence_pieces: list[Any] = ["At ", ["time_ns", "time"], ["phase", "phases"]]
    for strip_number, (y, texts_of_strip) in enumerate([*texts_by_strip, (None, reason_texts)]):
        distinct_texts = list(dict.fromkeys(["", *texts_of_strip]))
        text_indices = {text: index for index, text in enumerate(distinct_texts)}
        name = f"text{strip_number}"
        reading_columns[name] = np.array([text_indices[text] for text in texts_of_strip], np.uint16)
        reading_columns[f"{name}s"] = distinct_texts
        sentence_pieces += [": " if not strip_number else "; ", [name, f"{name}s"]]
        if y is not None:
            value_labels.append((y, name, f"{name}s"))
    return ReadingMarks(
        np.append(window_start_ns, time_ns[:-1])[: len(time_ns)],
        time_ns,
        np.zeros(len(visible_indices)),
        np.full(len(visible_indices), bottom),
        value_labels,
        columns=reading_columns,
        say=[*sentence_pieces, "."],
    )


def _compute_phases_px(record: LoadSamples) -> float:
    """Return the height in pixels above the first strip: its title, and the names of the phases."""
    has_long_name = any(len(name) > MAX_SHORT_NAME_LENGTH for name, _ in record.phases)
    line_count = MAX_NAME_LINES if has_long_name else bool(record.phases)
    return 20.0 + 12 * line_count


def _draw_phase_names(
    record: LoadSamples, window_start_ns: float, window_end_ns: float, bottom: float
) -> list[Item]:
    """Return vertical lines at the starts of phases, and the phases' names if there is space."""
    if not record.phases:
        return []
    phase_starts_ns = np.array([start_ns for _, start_ns in record.phases])
    widths_ns = np.diff(np.append(phase_starts_ns, window_end_ns))
    visible_indices = np.flatnonzero(
        (phase_starts_ns >= window_start_ns) & (phase_starts_ns <= window_end_ns)
    )
    name_forms = []
    for index in visible_indices.tolist():
        name = record.phases[index][0]
        # The full name in several lines, or its distinctive part, or its number in the list below the chart.
        name_forms.append("\n".join((name, name.rpartition(": ")[2], str(index + 1))))
    return [
        LineSegments(
            phase_starts_ns[visible_indices],
            0 * phase_starts_ns[visible_indices] + 2,
            phase_starts_ns[visible_indices],
            0 * phase_starts_ns[visible_indices] + bottom,
            "rule",
        ),
        Labels(
            phase_starts_ns[visible_indices],
            0 * phase_starts_ns[visible_indices] + 7,
            name_forms,
            room=widths_ns[visible_indices],
            lines=MAX_NAME_LINES,
            dx=3,
            size=PHASE_NAME_PX,
        ),
    ]


def _draw_clock_limits(
    record: LoadSamples, window_start_ns: float, top_px: float
) -> tuple[list[Item], float]:
    """Return bars for the intervals in which the clocks were limited, and the y of the chart's lower end."""
    reason_bits = record["clock_reasons"]
    reading_times_ns = record.time_ns
    interval_starts = np.concatenate(([0.0], reading_times_ns[:-1]))
    limited_readings = np.flatnonzero(
        ~np.isnan(reason_bits) & (reading_times_ns >= window_start_ns) & (np.nan_to_num(reason_bits) > 0)
    )
    if not len(limited_readings):
        return [], top_px - GAP_PX
    limit_runs = np.split(
        limited_readings,
        np.flatnonzero((np.diff(limited_readings) > 1) | (np.diff(reason_bits[limited_readings]) != 0)) + 1,
    )
    x0 = np.array([max(interval_starts[run[0]], window_start_ns) for run in limit_runs])
    x1 = np.array([reading_times_ns[run[-1]] for run in limit_runs])
    reason_texts = [clock_reasons(reason_bits[run[0]]) for run in limit_runs]
    run_colours = [
        next(
            (colour_name for mask, colour_name in _REASON_COLOURS if int(reason_bits[run[0]]) & mask),
            _OTHER_REASON_COLOUR,
        )
        for run in limit_runs
    ]
    limit_colours = list(dict.fromkeys(run_colours))
    y = np.full(len(limit_runs), top_px)
    shade_indices = [limit_colours.index(colour) for colour in run_colours]
    limit_bars = Rects(x0, x1, y, y + LIMIT_BAR_PX, shade_indices, limit_colours)
    return [
        Labels([window_start_ns], [top_px - 8], ["clocks held back by"], colour="muted", dx=2, pin=True),
        limit_bars,
        Labels(x0, y + LIMIT_BAR_PX + 9, reason_texts, room=x1 - x0, size=10),
    ], top_px + LIMIT_BAR_PX + 20
