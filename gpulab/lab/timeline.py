"""``gl.timeline``: what devices and host did while a block of the program ran, and when."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpulab import session
from virtualgpu.errors import GpulabError
from virtualgpu.records import Timeline
from virtualgpu.trace import words

if TYPE_CHECKING:
    from gpulab.session.choose import DeviceChoice
    from gpulab.views.tables import Table
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
        if self._recorder is not None:
            raise GpulabError("This timeline is being recorded already; timelines do not nest.")
        if self._record is not None:
            raise GpulabError("This timeline holds a recording; make a new one with gl.timeline().")
        device = session.which_device()
        recorder = session.timeline_recorder()
        recorder.start()
        self._recorder, self._device = recorder, device
        return self

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

    def describe(self) -> str:
        """The timeline in words."""
        return "\n".join([words.sentence(self.record), *([self.record.note] if self.record.note else [])])

    def __repr__(self) -> str:
        if self._record is not None:
            return words.sentence(self._record)
        if self._recorder is not None:
            return "Timeline that is being recorded."
        return "Timeline that has not begun: write `with gl.timeline() as t:`."

    def _table(self) -> Table:
        from gpulab.views.tables import Table

        record = self.record
        names = {(s.device_id, s.stream_id): s.name for s in record.streams}
        times: dict[tuple[str, str], list[int]] = defaultdict(list)
        for activity in record.activities:
            stream = names.get((activity.device_id, activity.stream_id), f"stream {activity.stream_id}")
            times[stream, activity.name].append(activity.duration_ns)
        rows = tuple(
            (stream, name, f"{len(found):,}", words.duration(sum(found)), words.duration(max(found)))
            for (stream, name), found in times.items()
        )
        return Table(repr(self), ("stream", "operation", "times", "together", "longest"), rows)

    def _repr_html_(self) -> str | None:
        return None if self._record is None else self._table().html()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))
