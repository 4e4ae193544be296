"""The memory chart: used, cached and other memory of a device over time, also live."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.memory import memory_text
from gpulab.views.parts.axes import Axes, Axis
from gpulab.views.parts.boxes import Box, column, legend, numbers
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Labels, LineSegments, Polyline, Rects, TimeAxis
from gpulab.views.parts.pack import pack
from gpulab.views.parts.plots import make_x_axis, make_y_ticks
from gpulab.views.tables import Table
from gpulab.words import number, size
from virtualgpu.records import SourceLine
from virtualgpu.records.memory import MemorySamples
from virtualgpu.records.memory.samples import MARK_COLUMNS, SAMPLE_COLUMNS

HEIGHT_PX = 220
AXIS_HEIGHT_PX = 34
MARKS_HEIGHT_PX = 36
LEFT_PX = 76
AREA_COLOURS = (("used", "accent"), ("cached", "accent-pale"), ("driver and others", "other-pale"))
LEGEND = [
    *((colour, name) for name, colour in AREA_COLOURS),
    ("tail", "peak"),
    ("error", "limit, failed requests"),
    ("good", "returned"),
]
MARK_COLOURS = ("accent", "muted", "good", "error")  # allocated, freed, returned, failed
MAX_PICTURE_POINTS = 800
ZIGZAG_TEETH = 40
# A shorter recording is shown by event: it has a reading before and after its events, and few others.
MIN_READINGS = 5
# Largest ratio of the whole device's memory to the pool's at which the chart shows all of it.
MAX_OUTSIDE_FACTOR = 3.0


class MemoryChart(View, module="memory/chart"):
    """A view of a device's memory over time.

    Parameters
    ----------
    samples
        A function that returns all readings so far.
    state
        ``"live"``, ``"paused"`` or ``"stopped"``.
    perform_action
        A function that a button calls with its name and the size that the learner has entered. It returns the
        text to show. Without it, there are no buttons.

    Attributes
    ----------
    axis
        ``"time"``, or ``"event"`` with one step for each allocation, free, or return of memory to the device.
        It is ``"event"`` at first if the recording has ended after few readings.
    """

    state = traitlets.Unicode("stopped").tag(sync=True)
    has_buttons = traitlets.Bool(False).tag(sync=True)
    axis = traitlets.Enum([*memory_text.AXIS_NAMES], "time").tag(sync=True, echo_update=False)

    def __init__(
        self,
        samples: Callable[[], MemorySamples],
        state: str = "stopped",
        perform_action: Callable[[str, str], str] | None = None,
    ) -> None:
        self._samples = samples
        self._perform_action = perform_action
        record = samples()
        super().__init__(
            title=f"Memory of {record.provenance.device}",
            source=record.provenance.source,
            state=state,
            has_buttons=perform_action is not None,
            axis=_choose_axis(record, state),
        )
        self.redraw()
        self.on_msg(self._on_message)

    @property
    def record(self) -> MemorySamples:
        return self._samples()

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row for each reading of the memory use."""
        return (Table("Readings", SAMPLE_COLUMNS, tuple(self.record.rows())),)

    def redraw(self, **traits: Any) -> None:
        """Send all readings to the browser. Between two calls of this method, the method `send_reading` sends
        only new readings.
        """
        record = self.record
        page_data = {
            "columns": {name: getattr(record, name) for name in SAMPLE_COLUMNS},
            "marks": {name: getattr(record.marks, name) for name in MARK_COLUMNS},
            "lines": [memory_text.format_line(record, index) for index in range(len(record.lines))],
            "capacity": record.capacity_bytes,
            "said": memory_text.PAGE_TEXTS | {"legend": LEGEND},
        }
        page_scene, packed_data = pack(page_data)
        with self.hold_sync():
            self.caption = _make_caption(record)
            self.scene = page_scene
            self.data = packed_data
            for name, value in traits.items():
                setattr(self, name, value)

    def send_reading(
        self,
        number: int,
        row: Sequence[float | None],
        marks: Sequence[Sequence[float]],
        lines: Sequence[SourceLine],
        failure: str = "",
    ) -> None:
        """Send one reading to the browser, together with new marks and source lines. Any thread can call this
        method.
        """
        if self.comm is None:
            return
        line_texts = [f"{line}: {line.text}" if line.text else str(line) for line in lines]
        self.send(
            {
                "kind": "tick",
                "number": number,
                "row": row,
                "marks": marks,
                "lines": line_texts,
                "failure": failure,
            }
        )

    def show_state(self, state: str) -> None:
        """Show whether the recording continues, is paused, or has ended."""
        if state == "stopped":
            self.redraw(state=state, axis=_choose_axis(self.record, state, self.axis))
        else:
            self.state = state

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if content.get("kind") == "all":
            self.redraw()
        elif self._perform_action is not None and content.get("kind") == "act":
            message_action = str(content.get("what"))
            status_text = ""
            with self._lock, self._show_errors(message_action.capitalize()):
                status_text = self._perform_action(message_action, str(content.get("size", "")))
            self.send({"kind": "answer", "text": status_text})

    def html(self) -> str:
        with self._lock:
            self.redraw()
            return super().html()

    def sentence(self) -> str:
        return memory_text.describe_memory(self.record, self.state)

    def describe(self) -> str:
        record = self.record
        line_sentences = memory_text.describe_lines(record)
        sentences = [
            self.sentence(),
            *(["Allocated most:", *line_sentences] if line_sentences else []),
            record.note,
        ]
        return "\n".join(filter(None, sentences))

    def draw(self) -> Box:
        record = self.record
        peak = record.peak
        limit_bytes = record.latest("limit_bytes")
        used_bytes = record.latest("used_bytes")
        sizes_bytes = (
            used_bytes,
            memory_text.compute_cached_bytes(record),
            memory_text.compute_outside_bytes(record),
        )
        figure_values = [
            *map(memory_text.format_size, sizes_bytes),
            size(limit_bytes) if limit_bytes else memory_text.NO_LIMIT_TEXT,
        ]
        figure_values.append(size(peak[0]) if peak else memory_text.NOT_AVAILABLE)
        figure_details = ("", "kept by the pool", "", "", "")
        figure_rows = list(zip(memory_text.FIGURE_TERMS, figure_values, figure_details, strict=True))
        return column(
            legend(LEGEND),
            numbers(figure_rows, least=140),
            _draw_plot(record, self.axis, self.sentence()),
            paragraph(record.note, "note") if record.note else None,
        )


def _make_caption(record: MemorySamples) -> str:
    provenance_label = record.provenance.label
    caption_text = f"{provenance_label[0].upper()}{provenance_label[1:]}; wall time."
    if record.provenance.source == "modelled":
        caption_text += " The sizes of the pool equal CuPy's to the byte, and the driver's share is modelled."
    return f"{caption_text} {record.note}".strip()


def _choose_axis(record: MemorySamples, state: str, axis: str = "time") -> str:
    """Return the axis that suits an ended recording; a recording in progress keeps its axis."""
    return "event" if state == "stopped" and len(record) <= MIN_READINGS and len(record.marks) else axis


def order_by_event(record: MemorySamples) -> MemorySamples:
    """Return the memory use before the first event and after each event. In the result, the column
    ``time_ns`` contains event numbers instead of times.

    The pool's bytes follow from the last reading and the events before it; other memory is that of the
    reading before the event. ``byEvent`` in ``chart.js`` computes the same.
    """
    event_marks = record.marks

    def compute_levels(readings: Any, changes: Any) -> Any:
        later_changes = np.append(np.cumsum(changes[::-1])[::-1], 0.0)
        last_reading = readings[~np.isnan(readings)][-1:]
        return np.maximum(0.0, (last_reading if len(last_reading) else np.nan) - later_changes)

    used_bytes = compute_levels(record.used_bytes, event_marks.allocated_bytes - event_marks.freed_bytes)
    reserved_bytes = compute_levels(record.reserved_bytes, event_marks.reserved_bytes)
    reading_index = np.searchsorted(record.time_ns, np.append(0.0, event_marks.time_ns), side="right") - 1
    reading_index = np.maximum(reading_index, 0)
    outside_bytes = np.maximum(0.0, record.device_bytes - record.reserved_bytes)[reading_index]
    event_numbers = np.arange(len(event_marks) + 2.0)
    event_columns = {
        "time_ns": event_numbers,
        "used_bytes": used_bytes,
        "reserved_bytes": reserved_bytes,
        "peak_bytes": np.zeros(len(event_marks) + 1),
        "limit_bytes": record.limit_bytes[reading_index],
        "device_bytes": reserved_bytes + outside_bytes,
        "others_bytes": record.others_bytes[reading_index],
    }
    # The last step ends at a reading of its own, which repeats it.
    repeated_columns: dict[str, Any] = {
        name: np.append(column, column[-1:]) for name, column in event_columns.items() if name != "time_ns"
    }
    return replace(
        record,
        time_ns=event_numbers,
        marks=replace(event_marks, time_ns=event_numbers[1:-1]),
        **repeated_columns,
    )


def _draw_plot(record: MemorySamples, axis: str, label: str) -> Box:
    """Return a chart of the whole recording that shows the highest reading of each interval.

    ``build`` in ``chart.js`` draws the same.
    """
    peak = record.peak
    is_by_event = axis == "event"
    if is_by_event:
        record = order_by_event(record)
    end_ns = max(record.duration_ns, 1.0)
    stacked_curves = [record.used_bytes, record.reserved_bytes, record.device_bytes]
    interval_starts = np.unique(
        np.linspace(0, len(record), MAX_PICTURE_POINTS, endpoint=False).astype(np.int64)
    )
    time_ns, peak_bytes, limit_bytes, *top_curves = (
        _find_interval_maxima(sample_column, interval_starts)
        for sample_column in (record.time_ns, record.peak_bytes, record.limit_bytes, *stacked_curves)
    )
    axis_top = compute_top_bytes(top_curves[1], top_curves[2], peak_bytes, limit_bytes, record.capacity_bytes)
    vertical_axis = Axis(0, axis_top, {tick: size(tick) for tick in make_size_ticks(axis_top)}, has_grid=True)
    axes = Axes(Axis(0, end_ns), vertical_axis, HEIGHT_PX, MARKS_HEIGHT_PX)
    axis_bottom = axes.bottom

    def compute_heights(sizes: Any) -> Any:
        return axes.y(np.minimum(sizes, axis_top))

    plot_items: list[Item] = []
    # A reading's peak is the largest use since the previous reading.
    next_peak = np.append(peak_bytes[1:], np.nan)
    top_curves = [
        np.fmax(top_curves[0], next_peak),
        np.fmax(top_curves[1], np.fmax(top_curves[0], next_peak)),
        top_curves[2],
    ]
    for gap_free_range in _find_runs(np.isnan([*top_curves, peak_bytes]).all(axis=0)):
        x = np.append(
            time_ns[gap_free_range], time_ns[min(gap_free_range.stop, len(time_ns) - 1)]
        )  # valid until the next reading
        for area_top, (_, colour) in zip(reversed(top_curves), reversed(AREA_COLOURS), strict=True):
            y = _make_area_points(compute_heights(area_top[gap_free_range]), axis_bottom)
            plot_items.append(Polyline(x, y, colour, width=0, fill=colour, base=axis_bottom, step=True))
        has_limit = limit_bytes[gap_free_range] > 0
        y = compute_heights(limit_bytes[gap_free_range])[has_limit]
        plot_items.append(LineSegments(x[:-1][has_limit], y, x[1:][has_limit], y, "error", width=2))
    if peak is not None:
        y = [float(compute_heights(peak[0]))]
        plot_items.append(LineSegments([0.0], y, [end_ns], y, "tail", dash=True, width=2))
    excess_bytes = float(np.nanmax(top_curves[2], initial=0)) - axis_top
    if excess_bytes > 0:
        plot_items.append(_draw_torn_edge(end_ns))
        excess_text = memory_text.BEYOND_TEXT.format(size=size(excess_bytes))
        plot_items.append(Labels([0.0], [MARKS_HEIGHT_PX + 16.0], [excess_text], dx=6))
    horizontal_axis = (
        make_x_axis(axis_bottom, end_ns - 1, number, memory_text.EVENT_TITLE, integers_only=True)
        if is_by_event
        else TimeAxis(axis_bottom)
    )
    plot_items += [
        make_y_ticks([7, 20], memory_text.MARK_ROW_NAMES, (0.0, end_ns)),
        *_draw_marks(record, end_ns),
        horizontal_axis,
    ]
    return axes.draw_plot(*plot_items, label=label, left=LEFT_PX, right=14, below_px=AXIS_HEIGHT_PX)


def _find_interval_maxima(values: Any, bounds: Any) -> Any:
    """Return the highest value of each interval, or NaN for an interval with a gap."""
    return np.maximum.reduceat(values, bounds) if len(values) else values


def _find_runs(is_gap: Any) -> list[slice]:
    """Return the ranges of readings between two gaps."""
    gap_edges = np.flatnonzero(np.diff(np.concatenate(([True], is_gap, [True])).astype(np.int8)))
    return [
        slice(int(start_reading), int(end_reading))
        for start_reading, end_reading in zip(gap_edges[::2], gap_edges[1::2], strict=True)
    ]


def _make_area_points(y: Any, base_y: float) -> Any:
    """Return the heights with `base_y` instead of NaN. The last height is repeated."""
    heights = np.where(np.isnan(y), base_y, y)
    return np.append(heights, heights[-1])


def _draw_torn_edge(x_end: float) -> Item:
    """Return a zigzag line at the upper edge, which marks areas that exceed the chart."""
    x = np.linspace(0, x_end, 2 * ZIGZAG_TEETH + 1)
    return Polyline(x, MARKS_HEIGHT_PX + 5.0 * (np.arange(x.size) % 2), "bg", width=3)


def _draw_marks(record: MemorySamples, x_end: float) -> list[Item]:
    """Return small bars for allocations (upper row) and frees (lower row), with sizes if there is space.

    Memory that was returned to the device is in the lower row. Failures have a separate colour. Marks at the
    same position are drawn as one.
    """
    event_marks = record.marks
    bar_width = x_end / 250
    bytes_by_bar: dict[tuple[int, int], float] = {}
    failed_bars = set()
    for index, bar_index in enumerate((event_marks.time_ns // bar_width).astype(int).tolist()):
        for bar_row, has_mark, size_bytes in (
            (
                0,
                event_marks.allocations[index] or event_marks.failures[index],
                event_marks.allocated_bytes[index],
            ),
            (1, event_marks.frees[index], event_marks.freed_bytes[index]),
            (
                2,
                not event_marks.allocations[index] + event_marks.failures[index] + event_marks.frees[index],
                -event_marks.reserved_bytes[index],
            ),
        ):
            if has_mark:
                bytes_by_bar[bar_index, bar_row] = bytes_by_bar.get((bar_index, bar_row), 0.0) + size_bytes
        if event_marks.failures[index]:
            failed_bars.add((bar_index, 0))
    bar_rows = [bar_row for _, bar_row in bytes_by_bar]
    size_texts = [
        memory_text.REFUSED_TEXT if bar in failed_bars else f"{'−' if bar[1] else '+'}{size(size_bytes)}"
        for bar, size_bytes in bytes_by_bar.items()
    ]
    colour_indices = [len(MARK_COLOURS) - 1 if bar in failed_bars else bar[1] for bar in bytes_by_bar]
    bar_left = bar_width * np.array([bar_index for bar_index, _ in bytes_by_bar], np.float64)
    label_lines = np.minimum(bar_rows, 1)
    bar_top = 2 + 13.0 * label_lines
    label_room = np.full(bar_left.size, x_end, np.float64) - bar_left
    for bar_row in (0, 1):
        label_indices = np.flatnonzero(label_lines == bar_row)
        label_room[label_indices[:-1]] = np.diff(bar_left[label_indices])
    return [
        Labels(bar_left + bar_width, bar_top + 5, size_texts, room=label_room - bar_width, dx=2),
        Rects(
            bar_left,
            bar_left + bar_width,
            bar_top,
            bar_top + 11,
            np.asarray(colour_indices, np.int64),
            MARK_COLOURS,
        ),
    ]


def compute_top_bytes(reserved: Any, device: Any, peak: Any, limit: Any, capacity: float) -> float:
    """Return the number of bytes at the upper edge of the memory chart."""
    pool_bytes = max(np.nanmax(reserved, initial=0), np.nanmax(peak, initial=0), 1 << 20)
    largest_limit = np.nanmax(limit, initial=0)
    top_bytes = max(pool_bytes, largest_limit if largest_limit <= MAX_OUTSIDE_FACTOR * pool_bytes else 0)
    device_bytes = np.nanmax(device, initial=0)
    margin_factor = 1.2  # room for words at a torn edge
    if device_bytes <= MAX_OUTSIDE_FACTOR * top_bytes:
        margin_factor = 1.08
        top_bytes = max(top_bytes, device_bytes)
    return float(min(margin_factor * top_bytes, max(capacity, top_bytes)))


def make_size_ticks(top_bytes: float) -> list[float]:
    """Return three to six round tick values in bytes. The values start at 0 and do not exceed `top_bytes`."""
    step_bytes = 2.0 ** math.floor(math.log2(top_bytes / 3))
    return [index * step_bytes for index in range(int(top_bytes / step_bytes) + 1)]
