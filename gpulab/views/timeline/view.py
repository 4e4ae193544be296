"""The timeline view: one timeline, or several timelines on one time axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, legend, remarks, row, words
from gpulab.views.parts.items import Tracks
from gpulab.views.parts.plot_picture import make_element_sentence
from gpulab.views.tables import Column, Table
from gpulab.views.timeline.chart import (
    describe_arrows,
    draw_chart,
    find_tracks,
    make_lanes,
    make_legend_entries,
)
from gpulab.views.timeline.lanes import (
    DEVICE_ENGINES,
    ENGINES,
    HIDDEN_ENGINE,
    NO_OPERATION,
    WAIT_ENGINE,
    Lanes,
)
from gpulab.words import count, duration, listing, number, size
from virtualgpu.records import Advice, Timeline

METHOD_TEXTS = {
    "CUPTI": "CUPTI activity records",
    "events": "event pairs: a bar shows everything that ran between the two events, not one operation",
    "model": "the modelled clock",
    "file": "a trace file",
}
COUNT_NOUNS = {
    "kernel": ("kernel", "kernels"),
    "HtoD": ("copy H2D", "copies H2D"),
    "DtoH": ("copy D2H", "copies D2H"),
    "DtoD": ("copy on the device or memset", "copies on the device or memsets"),
    "host": ("host function", "host functions"),
    "events": ("event pair", "event pairs"),
}
MAX_SENTENCES = 40
KEYS = (
    "Arrow keys go from bar to bar, Enter selects; M measures from this bar to another, M again ends that; "
    "+ - 0 zoom, Shift and arrows move, / searches."
)
HINT = (
    "Point at a bar, or use the arrow keys. Drag to measure a span, or press M at its first and last bar. "
    "+ and - zoom; Shift with a drag or arrows moves."
)


class TimelineView(View):
    """A view of streams over time, with host calls, waits and NVTX ranges. Several timelines are shown below
    each other.

    Parameters
    ----------
    record, *others
        Timelines; each begins at 0 on the common axis.
    selected, node, panel
        The correlation id, the graph node and the timeline (0 is the first) of the outlined operations. -1
        means no restriction. A click on a bar sets all three.
    summary
        A sentence above the picture, such as the overlap of copies and kernels.
    names
        Names of several timelines, such as ``("eager", "graph")``.
    advice
        Advice next to the picture. ``advised`` is the index of the piece whose bars are in colour, or -1.
    """

    selected = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)
    node = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)
    panel = traitlets.Int(NO_OPERATION).tag(sync=True, echo_update=False)
    advised = traitlets.Int(-1).tag(sync=True, echo_update=False)

    def __init__(
        self,
        record: Timeline,
        *others: Timeline,
        selected: int = NO_OPERATION,
        node: int = NO_OPERATION,
        panel: int = NO_OPERATION,
        summary: str = "",
        names: Sequence[str] = (),
        advice: Sequence[Advice] = (),
    ) -> None:
        self.advice = advice
        self.records = (record, *others)
        self.summary = summary
        self.panels = make_lanes(self.records, names)
        super().__init__(
            title="Timeline: streams over time" if not others else "Timelines on one axis",
            source=record.provenance.source,
            caption=" ".join(dict.fromkeys(map(_make_caption, self.records))),
            selected=selected,
            node=node,
            panel=panel,
        )
        self.redraw()

    @property
    def record(self) -> Timeline | tuple[Timeline, ...]:
        """The timeline that the view displays, or a tuple of timelines."""
        return self.records[0] if len(self.records) == 1 else self.records

    def sentence(self) -> str:
        first_sentence, *other_sentences = map(_make_sentence, self.panels)
        return f"Timeline of {'; below it: '.join([first_sentence, *other_sentences])}."

    def describe(self) -> str:
        lines = [self.sentence(), *([self.summary] if self.summary else [])]
        lines += [f"Advice {index}: {advice.text}" for index, advice in enumerate(self.advice, 1)]
        track = find_tracks(draw_chart(self.panels, ""))
        for index, lanes in enumerate(self.panels):
            lines += _list_panel_sentences(lanes, track, index)
        return "\n".join([*lines, self.caption])

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row for each operation of all timelines."""
        activity_rows = tuple(
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
        return (Table("Operations", columns, activity_rows),)

    def draw(self) -> Box:
        folded_count = sum(len(lanes.folded) for lanes in self.panels)
        note_texts = [
            describe_arrows(self.panels),
            f"{number(folded_count)} streams with the least work share the last row." if folded_count else "",
            "No operation was recorded." if not any(lanes.record.activities for lanes in self.panels) else "",
        ]
        has_bars = any(lanes.start.size for lanes in self.panels)
        plot = draw_chart(
            self.panels,
            f"{self.sentence()} {KEYS}",
            hint=HINT if has_bars else "",
            advice=self.advice,
        )
        picture = column(
            words(self.summary) if self.summary else None,
            legend(make_legend_entries(plot)) if has_bars else None,
            plot,
            words(text, "note") if (text := " ".join(filter(None, note_texts))) else None,
            gap=4,
        )
        if not self.advice:
            return picture
        advice_box = remarks("Advice", "advised", [advice.text for advice in self.advice])
        return row(picture, advice_box, weights=[3, 1], least=[440, 200])


def _make_counts_text(lanes: Lanes) -> str:
    engine_counts = dict(
        zip(ENGINES, np.bincount(lanes.engine, minlength=len(ENGINES)).tolist(), strict=True)
    )
    return listing(
        [count(engine_counts[name], *nouns) for name, nouns in COUNT_NOUNS.items() if engine_counts[name]]
    )


def _make_sentence(lanes: Lanes) -> str:
    record = lanes.record
    streams = len(lanes.streams)
    counts_text = f" ({_make_counts_text(lanes)})" if record.activities else ""
    devices_text = f" of {count(len(lanes.devices), 'device')}" if len(lanes.devices) > 1 else ""
    return (
        f"{count(len(record.activities), 'operation')}{counts_text} on {count(streams, 'stream')}"
        f"{devices_text} in {duration(record.duration_ns)}, {record.provenance.label}"
    )


def _list_panel_sentences(lanes: Lanes, track: Tracks, panel: int) -> list[str]:
    """Return sentences about the bars of a panel: hidden waits first, then other waits, then other bars."""
    is_in_panel = track.columns["panel"] == panel
    engine = track.colour
    engine_masks = [
        engine == HIDDEN_ENGINE,
        engine == WAIT_ENGINE,
        (engine < DEVICE_ENGINES) | (engine > HIDDEN_ENGINE),
    ]
    bar_order = np.concatenate(
        [np.flatnonzero(is_in_panel & engine_mask) for engine_mask in engine_masks]
    ).tolist()
    wait_count = len({end_index for _, end_index in lanes.arrows[0]})
    return [
        f"{lanes.heading}.",
        *([f"{count(wait_count, 'operation')} waited for an event of another stream."] if wait_count else []),
        *(make_element_sentence(track, bar, track.say) for bar in bar_order[:MAX_SENTENCES]),
        *([f"And {number(len(bar_order) - MAX_SENTENCES)} more."] if len(bar_order) > MAX_SENTENCES else []),
    ]


def _make_caption(record: Timeline) -> str:
    lost_text = (
        f" {count(record.lost, 'record')} lost, because the recorder's buffer was full."
        if record.lost
        else ""
    )
    note_text = f" {record.note[0].upper()}{record.note[1:].rstrip('.')}." if record.note else ""
    return f"Times {record.provenance.label}, from {METHOD_TEXTS[record.method]}.{lost_text}{note_text}"
