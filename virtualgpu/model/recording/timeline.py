"""One timeline of a virtual machine, from its start to its end."""

from __future__ import annotations

from virtualgpu.errors import GpulabError
from virtualgpu.model.clock import LEGACY_ALIAS, LEGACY_QUEUE, PER_THREAD_QUEUE
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.ranges import KEPT_RANGES, RangeLog
from virtualgpu.model.recording.recorder import Recorder
from virtualgpu.records import StreamInfo, Timeline

_DEFAULT_STREAMS = {
    LEGACY_QUEUE: "default stream",
    LEGACY_ALIAS: "default stream",
    PER_THREAD_QUEUE: "per-thread default stream",
}


class Recording:
    """`virtualgpu.protocol.TimelineRecorder` of a machine: all its devices are recorded.

    Parameters
    ----------
    machine
        The machine.
    """

    blind = ""  # all that runs is seen

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._recorder: Recorder | None = None
        self._ranges_before = 0

    def start(self) -> None:
        """Begin.

        Raises
        ------
        GpulabError
            If a timeline of this machine is open already, or a stream captures a graph.
        """
        clock = self._machine.clock
        with clock.lock:
            if clock.recorder is not None:
                begun = f" (begun in {clock.recorder.begun})" if clock.recorder.begun else ""
                raise GpulabError(
                    f"A timeline is being recorded already{begun}, and timelines do not nest: end that block "
                    "first, or call .stop() of what it gave."
                )
            if any(device.work.active() for device in self._machine.devices if device.work.captures):
                raise GpulabError(
                    "A stream captures a graph, so nothing runs that a timeline could show: begin the "
                    "timeline before begin_capture(), or around the graph's launch."
                )
            self._ranges_before = self._machine.own(RangeLog, clock=clock).count
            self._recorder = clock.recorder = Recorder(lambda: clock.now_ns)

    def stop(self) -> Timeline:
        """End, and return what was recorded. The host waits for nothing: modelled ends are known."""
        machine = self._machine
        clock = self._machine.clock
        recorder = self._recorder
        if recorder is None:
            raise GpulabError("This timeline has not begun: start() it first.")
        with clock.lock:
            for device in machine.devices:
                device.work.schedule.settle()
            if clock.recorder is recorder:
                clock.recorder = None
            now_ns = clock.now_ns
        log = machine.own(RangeLog, clock=clock)
        forgotten = max(0, log.count - self._ranges_before - KEPT_RANGES)
        return Timeline(
            provenance=machine.devices[0].info.as_virtual,
            method="model",
            start_ns=recorder.start_ns,
            end_ns=max([now_ns, *(activity.end_ns for activity in recorder.activities)]),
            activities=tuple(sorted(recorder.activities, key=lambda a: (a.start_ns, a.correlation_id))),
            calls=recorder.calls,
            synchronizations=tuple(recorder.waits),
            ranges=log.within(recorder.start_ns, now_ns),
            streams=_streams(recorder),
            lost=recorder.lost + forgotten,
        )


def _streams(recorder: Recorder) -> tuple[StreamInfo, ...]:
    """The streams of a timeline, numbered on each device in the order in which they were used."""
    found: list[StreamInfo] = []
    for (device_id, stream_id), facts in recorder.streams.items():
        others = sum(s.device_id == device_id and s.stream_id not in _DEFAULT_STREAMS for s in found)
        name = _DEFAULT_STREAMS.get(stream_id, f"stream {others + 1}")
        found.append(StreamInfo(device_id, stream_id, name, not facts.blocking, facts.priority))
    return tuple(found)
