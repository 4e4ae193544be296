"""Memory chart: used, cached and other memory of a device, over time and live."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.memory import memory_text
from gpulab.views.parts.axes import Axes, Axis
from gpulab.views.parts.boxes import Box, column, legend, numbers
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Labels, Line, Rects, Rules, Time
from gpulab.views.parts.pack import pack
from gpulab.views.parts.plots import y_ticks
from gpulab.views.tables import Table
from gpulab.words import size
from virtualgpu.records import SourceLine
from virtualgpu.records.memory import MemorySamples
from virtualgpu.records.memory.samples import COLUMNS, MARKS

HEIGHT_PX = 220
AXIS_PX = 34
MARKS_PX = 36
LEFT_PX = 76
AREAS = (("used", "accent"), ("cached", "accent-pale"), ("driver and others", "other-pale"))
LEGEND = [*((colour, name) for name, colour in AREAS), ("tail", "peak"), ("error", "limit, failed requests")]
PICTURE_POINTS = 800
TEETH = 40
# The driver's and other processes' memory is shown whole as long as it leaves room for the pool's.
MOST_OUTSIDE = 3.0


class MemoryChart(View, module="memory/chart"):
    """A device's memory over time.

    Parameters
    ----------
    samples
        Gives everything that was read up to now.
    state
        ``"live"``, ``"paused"`` or ``"stopped"``.
    act
        What a button does: its name and the text of the size beside it; gives the words to show. None:
        there are no buttons.
    """

    state = traitlets.Unicode("stopped").tag(sync=True)
    has_buttons = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        samples: Callable[[], MemorySamples],
        state: str = "stopped",
        act: Callable[[str, str], str] | None = None,
    ) -> None:
        self._samples = samples
        self._act = act
        first = samples()
        super().__init__(
            title=f"Memory of {first.provenance.device}",
            source=first.provenance.source,
            state=state,
            has_buttons=act is not None,
        )
        self.redraw()
        self.on_msg(self._on_message)

    @property
    def record(self) -> MemorySamples:
        return self._samples()

    def tables(self) -> tuple[Table, ...]:
        """The readings, a row each."""
        return (Table("Readings", COLUMNS, tuple(self.record.rows())),)

    def redraw(self, **traits: Any) -> None:
        """Send the browser all readings again; between these calls `tick` sends only new ones."""
        record = self.record
        tree = {
            "columns": {name: getattr(record, name) for name in COLUMNS},
            "marks": {name: getattr(record.marks, name) for name in MARKS},
            "lines": [memory_text.line_text(record, at) for at in range(len(record.lines))],
            "capacity": record.capacity_bytes,
            "said": memory_text.PAGE | {"legend": LEGEND},
        }
        scene, data = pack(tree)
        with self.hold_sync():
            self.caption = _caption(record)
            self.scene = scene
            self.data = data
            for name, value in traits.items():
                setattr(self, name, value)

    def tick(
        self,
        number: int,
        row: Sequence[float | None],
        marks: Sequence[Sequence[float]],
        lines: Sequence[SourceLine],
        failure: str = "",
    ) -> None:
        """Send the browser one reading with its new marks and lines; works in any thread."""
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
        """Tell the browser that the recording goes on, pauses, or has ended."""
        if state == "stopped":
            self.redraw(state=state)
        else:
            self.state = state

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if content.get("kind") == "all":
            self.redraw()
        elif self._act is not None and content.get("kind") == "act":
            what = str(content.get("what"))
            told = ""
            with self._lock, self._reporting(what.capitalize()):
                told = self._act(what, str(content.get("size", "")))
            self.send({"kind": "answer", "text": told})

    def html(self) -> str:
        with self._lock:
            self.redraw()
            return super().html()

    def sentence(self) -> str:
        return memory_text.sentence(self.record, self.state)

    def describe(self) -> str:
        record = self.record
        lines = memory_text.by_line(record)
        sentences = [self.sentence(), *(["Allocated most:", *lines] if lines else []), record.note]
        return "\n".join(filter(None, sentences))

    def draw(self) -> Box:
        record = self.record
        peak = record.peak
        limit = record.latest("limit_bytes")
        used = record.latest("used_bytes")
        shown = (used, memory_text.cached(record), memory_text.outside(record))
        told = [*map(memory_text.told, shown), size(limit) if limit else memory_text.NO_LIMIT]
        told.append(size(peak[0]) if peak else memory_text.NOT_AVAILABLE)
        details = ("", "kept by the pool", "", "", "")
        figures = list(zip(memory_text.TERMS, told, details, strict=True))
        return column(
            legend(LEGEND),
            numbers(figures, least=140),
            _plot(record, self.sentence()),
            paragraph(record.note, "note") if record.note else None,
        )


def _caption(record: MemorySamples) -> str:
    label = record.provenance.label
    text = f"{label[0].upper()}{label[1:]}; wall time."
    if record.provenance.source == "modelled":
        text += " The pool is CuPy's to the byte, the driver's share is modelled."
    return f"{text} {record.note}".strip()


def _plot(record: MemorySamples, label: str) -> Box:
    """Draw the whole recording, as ``build`` in the script: the highest readings of each interval."""
    end = max(record.duration_ns, 1.0)
    stacks = [record.used_bytes, record.reserved_bytes, record.device_bytes]
    bounds = np.unique(np.linspace(0, len(record), PICTURE_POINTS, endpoint=False).astype(np.int64))
    time, peak, limit, *tops = (
        _highest(each, bounds) for each in (record.time_ns, record.peak_bytes, record.limit_bytes, *stacks)
    )
    high = scale(tops[1], tops[2], peak, limit, record.capacity_bytes)
    up = Axis(0, high, {tick: size(tick) for tick in size_ticks(high)}, grid=True)
    axes = Axes(Axis(0, end), up, HEIGHT_PX, MARKS_PX)
    bottom = axes.bottom

    def heights(sizes: Any) -> Any:
        return axes.y(np.minimum(sizes, high))

    items: list[Item] = []
    # A reading's peak is that of the time before it: the most that was used from one reading to the next.
    after = np.append(peak[1:], np.nan)
    tops = [np.fmax(tops[0], after), np.fmax(tops[1], np.fmax(tops[0], after)), tops[2]]
    for part in _runs(np.isnan([*tops, peak]).all(axis=0)):
        x = np.append(time[part], time[min(part.stop, len(time) - 1)])  # valid until the next reading
        for top, (_, colour) in zip(reversed(tops), reversed(AREAS), strict=True):
            y = _known(heights(top[part]), bottom)
            items.append(Line(x, y, colour, width=0, fill=colour, base=bottom, step=True))
        there = limit[part] > 0
        y = heights(limit[part])[there]
        items.append(Rules(x[:-1][there], y, x[1:][there], y, "error", width=2))
    if record.peak is not None:
        y = [float(heights(record.peak[0]))]
        items.append(Rules([0.0], y, [end], y, "tail", dash=True, width=2))
    beyond = float(np.nanmax(tops[2], initial=0)) - high
    if beyond > 0:
        items.append(_torn(end))
        text = memory_text.BEYOND.format(size=size(beyond))
        items.append(Labels([0.0], [MARKS_PX + 16.0], [text], dx=6))
    items += [y_ticks([7, 20], memory_text.ROWS, (0.0, end)), *_marks(record, end), Time(bottom)]
    return axes.plot(*items, label=label, left=LEFT_PX, right=14, below_px=AXIS_PX)


def _highest(values: Any, bounds: Any) -> Any:
    """Return the highest value of each interval, NaN if it has a gap."""
    return np.maximum.reduceat(values, bounds) if len(values) else values


def _runs(gap: Any) -> list[slice]:
    """Return the intervals between gaps."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], gap, [True])).astype(np.int8)))
    return [slice(int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _known(y: Any, base: float) -> Any:
    """Return heights with NaN replaced by `base`, and the last one repeated."""
    return np.append(heights := np.where(np.isnan(y), base, y), heights[-1])


def _torn(end: float) -> Item:
    """Return the torn upper edge of areas that exceed the chart, as a zigzag line."""
    x = np.linspace(0, end, 2 * TEETH + 1)
    return Line(x, MARKS_PX + 5.0 * (np.arange(x.size) % 2), "bg", width=3)


def _marks(record: MemorySamples, end: float) -> list[Item]:
    """Return allocations (upper row) and frees (lower row) as small bars, with sizes if there is space.

    Failures have a separate colour.
    """
    marks = record.marks
    wide = end / 250
    x = []
    rows = []
    colours = []
    sizes = []
    for at in range(len(marks)):
        for row, there in ((0, marks.allocations[at] or marks.failures[at]), (1, marks.frees[at])):
            if there:
                x.append(marks.time_ns[at])
                rows.append(row)
                bytes_ = (marks.freed_bytes if row else marks.allocated_bytes)[at]
                told = f"{'−' if row else '+'}{size(bytes_)}"
                sizes.append(memory_text.REFUSED if marks.failures[at] and not row else told)
                colours.append(2 if marks.failures[at] and not row else row)
    left = np.asarray(x)
    top = 2 + 13 * np.asarray(rows, np.float64)
    room = np.full(left.size, end, np.float64) - left
    for row in (0, 1):
        mine = np.flatnonzero(np.asarray(rows) == row)
        room[mine[:-1]] = np.diff(left[mine])
    return [
        Labels(left + wide, top + 5, sizes, room=room - wide, dx=2),
        Rects(left, left + wide, top, top + 11, np.asarray(colours, np.int64), ["accent", "muted", "error"]),
    ]


def scale(reserved: Any, device: Any, peak: Any, limit: Any, capacity: float) -> float:
    """Return the memory at the chart's full height: the pool's maximum and limit, and the rest if it fits."""
    pool = max(np.nanmax(reserved, initial=0), np.nanmax(peak, initial=0), 1 << 20)
    most_limit = np.nanmax(limit, initial=0)
    high = max(pool, most_limit if most_limit <= MOST_OUTSIDE * pool else 0)
    whole = np.nanmax(device, initial=0)
    margin = 1.2  # room for words at a torn edge
    if whole <= MOST_OUTSIDE * high:
        margin = 1.08
        high = max(high, whole)
    return float(min(margin * high, max(capacity, high)))


def size_ticks(high: float) -> list[float]:
    """Round sizes from 0 to `high`, three to six of them."""
    step = 2.0 ** math.floor(math.log2(high / 3))
    return [at * step for at in range(int(high / step) + 1)]
