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
    make_legend_entries,
    make_panels,
)
from gpulab.views.timeline.lanes import (
    DEVICE_ENGINES,
    ENGINES,
    HIDDEN_WAIT_ENGINE,
    NO_OPERATION,
    WAIT_ENGINE,
    TimelinePanel,
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
KEYS_TEXT = (
    "Arrow keys go from bar to bar, Enter selects; M measures from this bar to another, M again ends that; "
    "+ - 0 zoom, Shift and arrows move, / searches."
)
HINT_TEXT = (
    "Point at a bar, or use the arrow keys. Drag to measure a span, or press M at its first and last bar. "
    "+ and - zoom; Shift with a drag or arrows moves."
)


class TimelineView(View):
    """A view of streams over time, with host calls, waits and NVTX ranges. Several timelines are shown below
    each other.

    Parameters
    ----------
    record, *other_records
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
        *other_records: Timeline,
        selected: int = NO_OPERATION,
        node: int = NO_OPERATION,
        panel: int = NO_OPERATION,
        summary: str = "",
        names: Sequence[str] = (),
        advice: Sequence[Advice] = (),
    ) -> None:
        self.advice = advice
        self.records = (record, *other_records)
        self.summary = summary
        self.panels = make_panels(self.records, names)
        super().__init__(
            title="Timeline: streams over time" if not other_records else "Timelines on one axis",
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
        tracks = find_tracks(draw_chart(self.panels, ""))
        for index, panel in enumerate(self.panels):
            lines += _list_panel_sentences(panel, tracks, index)
        return "\n".join([*lines, self.caption])

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row for each operation of all timelines."""
        activity_rows = tuple(
            (
                panel.heading,
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
            for panel in self.panels
            for activity in panel.record.activities
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
        folded_stream_count = sum(len(panel.folded_row_keys) for panel in self.panels)
        note_texts = [
            describe_arrows(self.panels),
            f"{number(folded_stream_count)} streams with the least work share the last row."
            if folded_stream_count
            else "",
            "No operation was recorded." if not any(panel.record.activities for panel in self.panels) else "",
        ]
        has_bars = any(panel.start.size for panel in self.panels)
        plot = draw_chart(
            self.panels,
            f"{self.sentence()} {KEYS_TEXT}",
            hint=HINT_TEXT if has_bars else "",
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


def _make_counts_text(panel: TimelinePanel) -> str:
    engine_counts = dict(
        zip(ENGINES, np.bincount(panel.engine, minlength=len(ENGINES)).tolist(), strict=True)
    )
    return listing(
        [count(engine_counts[name], *nouns) for name, nouns in COUNT_NOUNS.items() if engine_counts[name]]
    )


def _make_sentence(panel: TimelinePanel) -> str:
    record = panel.record
    stream_count = len(panel.streams)
    counts_text = f" ({_make_counts_text(panel)})" if record.activities else ""
    devices_text = f" of {count(len(panel.devices), 'device')}" if len(panel.devices) > 1 else ""
    return (
        f"{count(len(record.activities), 'operation')}{counts_text} on {count(stream_count, 'stream')}"
        f"{devices_text} in {duration(record.duration_ns)}, {record.provenance.label}"
    )


def _list_panel_sentences(panel: TimelinePanel, tracks: Tracks, panel_index: int) -> list[str]:
    """Return sentences about the bars of a panel: hidden waits first, then other waits, then other bars."""
    is_in_panel = tracks.columns["panel"] == panel_index
    bar_engines = tracks.colour
    engine_masks = [
        bar_engines == HIDDEN_WAIT_ENGINE,
        bar_engines == WAIT_ENGINE,
        (bar_engines < DEVICE_ENGINES) | (bar_engines > HIDDEN_WAIT_ENGINE),
    ]
    bar_order = np.concatenate(
        [np.flatnonzero(is_in_panel & engine_mask) for engine_mask in engine_masks]
    ).tolist()
    wait_count = len({end_index for _, end_index in panel.arrows[0]})
    return [
        f"{panel.heading}.",
        *([f"{count(wait_count, 'operation')} waited for an event of another stream."] if wait_count else []),
        *(make_element_sentence(tracks, bar, tracks.say) for bar in bar_order[:MAX_SENTENCES]),
        *([f"And {number(len(bar_order) - MAX_SENTENCES)} more."] if len(bar_order) > MAX_SENTENCES else []),
    ]


def _make_caption(record: Timeline) -> str:
    lost_records_text = (
        f" {count(record.lost, 'record')} lost, because the recorder's buffer was full."
        if record.lost
        else ""
    )
    note_text = f" {record.note[0].upper()}{record.note[1:].rstrip('.')}." if record.note else ""
    return (
        f"Times {record.provenance.label}, from {METHOD_TEXTS[record.method]}.{lost_records_text}{note_text}"
    )
