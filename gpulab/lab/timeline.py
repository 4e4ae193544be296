"""``gl.timeline``: what devices and host did while a block of the program ran, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpulab import session
from virtualgpu.errors import GpulabError
from virtualgpu.records import Advice, Gap, Overlap, PathStep, Timeline
from virtualgpu.trace import advice, critical_path, gaps, overlap, words

if TYPE_CHECKING:
    from gpulab.session.choose import DeviceChoice
    from gpulab.views import TimelineView
    from gpulab.views.tables.timeline import Answers
    from virtualgpu.protocol import TimelineRecorder


def timeline() -> TimelineReport:
    """Record what the device and the host do while a block runs: kernels, copies, waits, NVTX ranges.

    Returns
    -------
    TimelineReport
        Its text is one sentence, its picture streams against time. ``.record`` holds the data
        (`virtualgpu.records.Timeline`). Measured on a real GPU, modelled on a virtual one.

    Raises
    ------
    GpulabError
        On entering the block, if a timeline is being recorded already, or while a stream captures a graph.

    Examples
    --------
    >>> with gl.timeline() as t:
    ...     kernel((4,), (256,), (x, y, n))
    ...     result = y.get()
    >>> t
    """
    return TimelineReport()


def open_timeline(path: str | Path) -> TimelineReport:
    """Open Chrome trace events: a file that ``t.save`` wrote, the PyTorch profiler's, or another tool's.

    Parameters
    ----------
    path
        The file, ``.json`` or ``.json.gz``. Nothing in it is executed.

    Returns
    -------
    TimelineReport
        What ``t.save`` wrote comes back without loss; what was measured then is *recorded* now, with the day.
        Other tools' slices that belong to no stream become ranges of the host.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TraceFormatError
        If it holds no timeline, or is damaged or too large; the message says which.

    Examples
    --------
    >>> with gl.timeline() as one:
    ...     kernel((4,), (256,), (x, y, n))
    >>> gl.open_timeline(one.save("one.json"))
    """
    from virtualgpu.trace.files.read import open_file

    return TimelineReport(open_file(path))


def timelines(*timelines: TimelineReport | Timeline) -> TimelineView:
    """Show several timelines one below the other on one axis, each from its own beginning.

    Parameters
    ----------
    timelines
        What `timeline`, `open_timeline` and ``gl.recorded`` give, or records: modelled above measured, eager
        above graph, before above after.

    Raises
    ------
    TypeError
        Without a timeline.

    Examples
    --------
    >>> with gl.timeline() as one:
    ...     kernel((4,), (256,), (x, y, n))
    >>> gl.timelines(one, one)
    """
    from gpulab.views import TimelineView

    if not timelines:
        raise TypeError("Give the timelines to show: gl.timelines(t1, t2).")
    return TimelineView(*(_record_of(each) for each in timelines))


def _record_of(given: TimelineReport | Timeline) -> Timeline:
    record = given.record if isinstance(given, TimelineReport) else given
    if not isinstance(record, Timeline):
        raise TypeError(f"A timeline is what gl.timeline() gives, not {type(given).__name__}.")
    return record


def busy_ns(record: Timeline) -> int:
    """How long any operation ran: the length of the union of their intervals."""
    return overlap.length_ns(overlap.intervals(record.activities))


class TimelineReport:
    """A timeline and what it says. ``with`` records it; afterwards it is displayed, asked and saved.

    Parameters
    ----------
    record
        A timeline that has been recorded before.
    """

    def __init__(self, record: Timeline | None = None) -> None:
        self._record = record
        self._recorder: TimelineRecorder | None = None
        self._device: DeviceChoice | None = None
        self._view: TimelineView | None = None

    @property
    def record(self) -> Timeline:
        """The timeline as data.

        Raises
        ------
        GpulabError
            While its block has not ended.
        """
        if self._record is None:
            raise GpulabError(f"{self!r} What it shows is there when the block has ended.")
        return self._record

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Begin the recording, as ``with`` does."""
        if self._recorder is not None:
            raise GpulabError("This timeline is being recorded already; timelines do not nest.")
        if self._record is not None:
            raise GpulabError("This timeline holds a recording; make a new one with gl.timeline().")
        device = session.which_device()
        recorder = session.timeline_recorder()
        recorder.start()
        self._recorder, self._device = recorder, device

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the recording, as the end of the ``with`` block does."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        record = recorder.stop()
        moved = session.which_device() is not self._device
        if moved and self._device is not None:
            said = f"The session moved to another device within the block; this is the {self._device.device}."
            record = replace(record, note=" ".join(part for part in (record.note, said) if part))
        self._record = record

    def __del__(self) -> None:
        # Entered without `with` and forgotten: the device must not go on recording.
        if getattr(self, "_recorder", None) is not None:
            self.stop()

    def overlap(self) -> Answers[Overlap]:
        """How much of the work of each two engines, and of each two streams, ran at the same time.

        In percent of the shorter of the two busy times; see `virtualgpu.trace.overlap`.

        Examples
        --------
        >>> t.overlap()
        >>> t.overlap()[0].percent
        """
        from gpulab.views.tables import timeline as tables

        return tables.overlaps(overlap.overlap(self.record), self.record)

    def gaps(self, min_ns: int = 0) -> Answers[Gap]:
        """When each stream and each engine was idle (for `min_ns` or longer), and why."""
        from gpulab.views.tables import timeline as tables

        return tables.gaps(gaps.gaps(self.record, min_ns), self.record)

    def critical_path(self) -> Answers[PathStep]:
        """The chain of operations and host stretches that determines the duration."""
        from gpulab.views.tables import timeline as tables

        return tables.path(critical_path.critical_path(self.record), self.record)

    def advice(self) -> Answers[Advice]:
        """What would help, at most four sentences, each with the gain to expect."""
        from gpulab.views.tables import timeline as tables

        return tables.advice(advice.advice(self.record), self.record)

    def describe(self) -> str:
        """The timeline in words: what ran, what overlapped, what determined the duration, what would help."""
        said = [words.sentence(self.record), *([self.record.note] if self.record.note else [])]
        for answers in (self.overlap(), self.critical_path(), self.advice()):
            said.append(repr(answers))
        return "\n\n".join(said)

    def __repr__(self) -> str:
        if self._record is not None:
            return words.sentence(self._record)
        if self._recorder is not None:
            return "Timeline that is being recorded."
        return "Timeline that has not begun: write `with gl.timeline() as t:`."

    def save(self, path: str | Path) -> Path:
        """Write the timeline to a file.

        Parameters
        ----------
        path
            ``x.json`` or ``x.json.gz``: Chrome trace events, which Perfetto and `open_timeline` open;
            ``x.html``: a page that works alone; ``x.png``: the picture.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ValueError
            For another ending.
        """
        path = Path(path)
        record, ending = self.record, path.name.lower()
        if ending.endswith((".json", ".json.gz")):
            from virtualgpu.trace.files.write import save

            return save(record, path)
        if not ending.endswith((".html", ".htm", ".png")):
            raise ValueError(f"A timeline is saved as .json, .json.gz, .html or .png, not as {path.name!r}.")
        self._view_of_it().save(path)
        return path

    def beside(self, *others: TimelineReport | Timeline) -> TimelineView:
        """Show it above others on one axis, such as modelled above measured; see `timelines`."""
        return timelines(self, *others)

    def _view_of_it(self) -> TimelineView:
        if self._view is None:
            from gpulab.views import TimelineView

            self._view = TimelineView(self.record, summary=self._summary())
        return self._view

    def _summary(self) -> str:
        """What overlapped, for above the picture."""
        found = overlap.pairs(overlap.by_engine(self.record))
        shares = [f"{o.first} with {o.second} {words.percent(o.fraction)}" for o in found]
        return f"Overlap, of the shorter one's time: {', '.join(shares)}." if shares else ""

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        if self._record is None:
            return None
        data, metadata = self._view_of_it()._repr_mimebundle_(**kwargs)
        return {**data, "text/plain": repr(self)}, metadata

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))
