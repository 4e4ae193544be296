"""``gl.timeline``: the operations of the devices and the host over time in a ``with`` block."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gpulab import session, views
from gpulab._deprecated import make_old_method
from gpulab.analysis import advice, critical_path, gaps, overlap, sentences
from gpulab.lab._base import PicturedResult, RecordedResult
from gpulab.views._saving import Writers
from gpulab.views.tables import timeline as tables
from gpulab.words import percent
from virtualgpu.protocol import TimelineRecorder
from virtualgpu.records import Advice, Gap, Overlap, PathStep, Timeline

# Advice about more operations than these takes longer than the picture.
MAX_ADVISED_ACTIVITIES = 5_000


def timeline() -> TimelineReport:
    """Record the kernels, copies, waits and NVTX ranges of the devices and the host in a ``with`` block.

    Returns
    -------
    TimelineReport
        Its text is one sentence. Its picture shows the streams over time. ``.record`` has the data
        (`virtualgpu.records.Timeline`). Times are measured on a real GPU and modelled on a virtual one.

    Raises
    ------
    GpulabError
        On entering the block, if a timeline is already being recorded, or while a stream captures a graph.

    Examples
    --------
    >>> with gl.timeline() as t:
    ...     kernel((4,), (256,), (x, y, n))
    ...     result = y.get()
    >>> t
    """
    return TimelineReport()


def open_timeline(path: str | Path, *, most_events: int = 100_000) -> TimelineReport:
    """Open a file of Chrome trace events, or a database that Nsight Systems exported.

    Parameters
    ----------
    path
        A ``.json`` or ``.json.gz`` file from ``t.save``, the PyTorch profiler or another tool, or an
        ``.sqlite`` file from ``nsys export -t sqlite``. Nothing in it is executed.
    most_events
        The maximum number of events. From a larger file, only the earliest events are read, and a note
        reports it. A file from ``t.save`` is always read completely.

    Returns
    -------
    TimelineReport
        A file from ``t.save`` is restored without loss; its measured times are marked *recorded*, with the
        date. Events of other tools that do not belong to a stream become ranges of the host.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TraceFormatError
        If the file is not a timeline, is damaged, or is too large; the message has the reason.

    Examples
    --------
    >>> with gl.timeline() as one:
    ...     kernel((4,), (256,), (x, y, n))
    >>> gl.open_timeline(one.save("one.json"))
    """
    from gpulab.analysis.files.read import open_file

    return TimelineReport(open_file(path, most_events))


def timelines(
    *timelines: TimelineReport | Timeline, **named_timelines: TimelineReport | Timeline
) -> views.TimelineView:
    """Show several timelines below each other on one time axis. Each timeline begins at time zero.

    Parameters
    ----------
    timelines
        Results of `timeline`, `open_timeline` or ``gl.recorded``, or records.
    named_timelines
        Further timelines, whose names are shown above them, such as ``gl.timelines(eager=a, graph=b)``.

    Raises
    ------
    TypeError
        If no timeline is passed.

    Examples
    --------
    >>> with gl.timeline() as one:
    ...     kernel((4,), (256,), (x, y, n))
    >>> gl.timelines(before=one, after=one)
    """
    all_timelines = (*timelines, *named_timelines.values())
    if not all_timelines:
        raise TypeError("Pass the timelines to show: gl.timelines(t1, t2).")
    names = [""] * len(timelines) + [*named_timelines]
    return views.TimelineView(*(_get_record(timeline) for timeline in all_timelines), names=names)


def _get_record(timeline: TimelineReport | Timeline) -> Timeline:
    record = timeline.record if isinstance(timeline, TimelineReport) else timeline
    if not isinstance(record, Timeline):
        raise TypeError(f"Expected a timeline, the result of gl.timeline(), not {type(timeline).__name__}.")
    return record


def busy_ns(record: Timeline) -> int:
    """Return the total time in ns during which at least one operation was running. Overlapping operations are
    counted once.
    """
    return overlap.sum_interval_ns(overlap.make_intervals(record.activities))


class TimelineReport(
    RecordedResult[Timeline], recording_name="timeline", start_code="with gl.timeline() as t:"
):
    """A timeline of a ``with`` block, which can be displayed, analysed and saved.

    Parameters
    ----------
    record
        An earlier timeline.
    """

    def _make_recorder(self) -> TimelineRecorder:
        return session.backend().timeline_recorder()

    def overlap(self) -> tables.AnalysisTable[Overlap]:
        """Return how long each pair of engines and each pair of streams worked at the same time.

        Each value is the overlap as a percentage of the shorter busy time (see `gpulab.analysis.overlap`).

        Examples
        --------
        >>> t.overlap()
        >>> t.overlap()[0].percent
        """
        return tables.make_overlap_table(overlap.find_overlaps(self.record), self.record)

    def gaps(self, min_ns: int = 0) -> tables.AnalysisTable[Gap]:
        """Return the idle intervals of each stream and engine with their causes. Intervals shorter than
        `min_ns` are left out.
        """
        return tables.make_gap_table(gaps.find_gaps(self.record, min_ns), self.record)

    def critical_path(self) -> tables.AnalysisTable[PathStep]:
        """Return the critical path, which is the chain of operations and host intervals that determines the
        duration.
        """
        return tables.make_path_table(critical_path.find_critical_path(self.record), self.record)

    def advice(self) -> tables.AnalysisTable[Advice]:
        """Return at most four suggestions for a faster program, each with the time that it would save."""
        return tables.make_advice_list(advice.make_advice(self.record), self.record)

    def describe(self) -> str:
        """Return a text description of the timeline with its operations, overlap, critical path and
        advice.
        """
        paragraphs = [
            sentences.describe_timeline(self.record),
            *([self.record.note] if self.record.note else []),
        ]
        for analysis in (self.overlap(), self.critical_path(), self.advice()):
            paragraphs.append(repr(analysis))
        return "\n\n".join(paragraphs)

    def _make_sentence(self) -> str:
        return sentences.describe_timeline(self.record)

    def _make_writers(self) -> Writers:
        from gpulab.analysis.files.write import save_timeline

        save_record = partial(save_timeline, self.record)
        return {".json": save_record, ".json.gz": save_record, **PicturedResult._make_writers(self)}

    beside = make_old_method("beside", "compare")

    def compare(self, *others: TimelineReport | Timeline) -> views.TimelineView:
        """Show this timeline and others below each other on one time axis, for example modelled and measured
        ones.

        See `timelines`.
        """
        return timelines(self, *others)

    def _make_picture(self) -> views.TimelineView:
        has_advice = len(self.record.activities) <= MAX_ADVISED_ACTIVITIES
        return views.TimelineView(
            self.record,
            summary=self._describe_overlap()
            if has_advice
            else f"{self._describe_overlap()} Call .advice() for advice.".strip(),
            advice=advice.make_advice(self.record) if has_advice else (),
        )

    def _describe_overlap(self) -> str:
        """Return a sentence about overlapping work, which appears above the picture."""
        overlaps = overlap.find_pair_overlaps(overlap.group_by_engine(self.record))
        overlap_texts = [
            f"{engine_overlap.first} with {engine_overlap.second} {percent(engine_overlap.fraction)}"
            for engine_overlap in overlaps
        ]
        return (
            f"Overlap as a share of the shorter busy time: {', '.join(overlap_texts)}."
            if overlap_texts
            else ""
        )
