"""Timeline view: one timeline, or several on one axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, legend, words
from gpulab.views.parts.items import Tracks
from gpulab.views.parts.plot_picture import element_sentence
from gpulab.views.tables import Column, Table
from gpulab.views.timeline.chart import arrow_words, chart, lanes_of, legend_entries, tracks_of
from gpulab.views.timeline.lanes import ENGINES, HIDDEN, NOBODY, OF_DEVICE, WAIT, Lanes
from gpulab.words import count, duration, listing, number, size
from virtualgpu.records import Timeline

METHODS = {
    "CUPTI": "CUPTI activity records",
    "events": "event pairs: a bar is what ran between the two, not one operation",
    "model": "the modelled clock",
    "file": "a trace file",
}
COUNTED = {
    "kernel": ("kernel", "kernels"),
    "HtoD": ("copy H2D", "copies H2D"),
    "DtoH": ("copy D2H", "copies D2H"),
    "DtoD": ("copy on the device or memset", "copies on the device or memsets"),
    "host": ("host function", "host functions"),
    "events": ("event pair", "event pairs"),
}
MOST_TOLD = 40
KEYS = "Arrow keys go from bar to bar, Enter selects; + - 0 zoom, Shift and arrows move, / searches."
HINT = "Point at a bar, or focus the chart and use the arrow keys. + and - zoom, drag to move."


class TimelineView(View):
    """Streams × time, with host calls, waits and NVTX ranges; several timelines one below the other.

    Parameters
    ----------
    record, *more
        Timelines; each begins at 0 on the common axis.
    selected, node, panel
        Outline the operation with this correlation id, those that are this node of a graph, those of one
        timeline (0 is the first); -1 leaves the choice open. Clicking a bar sets all three.
    summary
        A sentence above the picture, such as the overlap of copies and kernels.
    names
        What several timelines are called: ``("eager", "graph")``.
    """

    selected = traitlets.Int(NOBODY).tag(sync=True, echo_update=False)
    node = traitlets.Int(NOBODY).tag(sync=True, echo_update=False)
    panel = traitlets.Int(NOBODY).tag(sync=True, echo_update=False)

    def __init__(
        self,
        record: Timeline,
        *more: Timeline,
        selected: int = NOBODY,
        node: int = NOBODY,
        panel: int = NOBODY,
        summary: str = "",
        names: Sequence[str] = (),
    ) -> None:
        self.records = (record, *more)
        self.summary = summary
        self.panels = lanes_of(self.records, names)
        super().__init__(
            title="Timeline: streams over time" if not more else "Timelines on one axis",
            source=record.provenance.source,
            caption=" ".join(dict.fromkeys(map(_caption, self.records))),
            selected=selected,
            node=node,
            panel=panel,
        )
        self.redraw()

    @property
    def record(self) -> Timeline | tuple[Timeline, ...]:
        """The timeline, or all of them."""
        return self.records[0] if len(self.records) == 1 else self.records

    def sentence(self) -> str:
        first, *rest = map(_sentence, self.panels)
        return f"Timeline of {'; above one of '.join([first, *rest])}."

    def describe(self) -> str:
        lines = [self.sentence(), *([self.summary] if self.summary else [])]
        track = tracks_of(chart(self.panels, ""))
        for index, lanes in enumerate(self.panels):
            lines += _described(lanes, track, index)
        return "\n".join([*lines, self.caption])

    def tables(self) -> tuple[Table, ...]:
        """The operations of all timelines, a row each."""
        rows = tuple(
            (
                lanes.heading,
                activity.name,
                activity.kind,
                activity.device_id,
                activity.stream_id,
                activity.start_ns,
                activity.end_ns,
                activity.duration_ns,
                activity.size_bytes,
                activity.correlation_id,
            )
            for lanes in self.panels
            for activity in lanes.record.activities
        )
        columns = (
            "timeline",
            "name",
            "kind",
            Column("device", "device_id"),
            Column("stream", "stream_id"),
            Column("start", "start_ns", duration),
            Column("end", "end_ns", duration),
            Column("duration", "duration_ns", duration),
            Column("bytes", "size_bytes", size),
            Column("order", "correlation_id"),
        )
        return (Table("Operations", columns, rows),)

    def draw(self) -> Box:
        folded = sum(len(lanes.folded) for lanes in self.panels)
        notes = [
            arrow_words(self.panels),
            f"{number(folded)} streams with the least work share the last row." if folded else "",
            "No operation was seen." if not any(lanes.record.activities for lanes in self.panels) else "",
        ]
        some = any(lanes.start.size for lanes in self.panels)
        plot = chart(self.panels, f"{self.sentence()} {KEYS}", hint=HINT if some else "")
        return column(
            words(self.summary) if self.summary else None,
            legend(legend_entries(plot)) if some else None,
            plot,
            words(text, "note") if (text := " ".join(filter(None, notes))) else None,
            gap=4,
        )


def _counts(lanes: Lanes) -> str:
    counts = dict(zip(ENGINES, np.bincount(lanes.engine, minlength=len(ENGINES)).tolist(), strict=True))
    return listing([count(counts[name], *words) for name, words in COUNTED.items() if counts[name]])


def _sentence(lanes: Lanes) -> str:
    record = lanes.record
    streams = len(lanes.streams)
    what = f" ({_counts(lanes)})" if record.activities else ""
    where = f" of {count(len(lanes.devices), 'device')}" if len(lanes.devices) > 1 else ""
    return (
        f"{count(len(record.activities), 'operation')}{what} on {count(streams, 'stream')}{where} in "
        f"{duration(record.duration_ns)}, {record.provenance.label}"
    )


def _described(lanes: Lanes, track: Tracks, panel: int) -> list[str]:
    """Return the bars of a panel in words: hidden waits first, then other waits, then the rest."""
    in_panel = track.columns["panel"] == panel
    engine = track.colour
    kinds = [engine == HIDDEN, engine == WAIT, (engine < OF_DEVICE) | (engine > HIDDEN)]
    order = np.concatenate([np.flatnonzero(in_panel & kind) for kind in kinds]).tolist()
    waited = len({target for _, target in lanes.arrows[0]})
    return [
        f"{lanes.heading}.",
        *([f"{count(waited, 'operation')} waited for an event of another stream."] if waited else []),
        *(element_sentence(track, bar, track.say) for bar in order[:MOST_TOLD]),
        *([f"And {number(len(order) - MOST_TOLD)} more."] if len(order) > MOST_TOLD else []),
    ]


def _caption(record: Timeline) -> str:
    lost = f" {count(record.lost, 'record')} lost: the recorder had no room." if record.lost else ""
    note = f" {record.note[0].upper()}{record.note[1:].rstrip('.')}." if record.note else ""
    return f"Times {record.provenance.label}, from {METHODS[record.method]}.{lost}{note}"
