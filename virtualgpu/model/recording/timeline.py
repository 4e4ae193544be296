"""Recording of one timeline of a virtual machine, from its start to its end."""

from __future__ import annotations

from virtualgpu.errors import GpulabError
from virtualgpu.model.clock import LEGACY_ALIAS, LEGACY_QUEUE, PER_THREAD_QUEUE
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.ranges import MAX_RANGES, RangeLog
from virtualgpu.model.recording.recorder import Recorder
from virtualgpu.records import StreamInfo, Timeline

_DEFAULT_STREAM_NAMES = {
    LEGACY_QUEUE: "default stream",
    LEGACY_ALIAS: "default stream",
    PER_THREAD_QUEUE: "per-thread default stream",
}


class Recording:
    """A recorder of the timeline of all devices of a virtual machine.

    Parameters
    ----------
    machine
        The machine.
    """

    blind_reason = ""  # no operation is missed

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._recorder: Recorder | None = None
        self._range_count_before = 0

    def start(self) -> None:
        """Begin to record the timeline.

        Raises
        ------
        GpulabError
            If a timeline of this machine is open already, or a stream captures a graph.
        """
        clock = self._machine.clock
        with clock.lock:
            if clock.recorder is not None:
                begin_text = f" (begun in {clock.recorder.begin_line})" if clock.recorder.begin_line else ""
                raise GpulabError(
                    f"A timeline is already being recorded{begin_text}, and timelines "
                    "cannot be nested. End that block first, or call .stop() on the "
                    "timeline that it returned."
                )
            if any(
                device.work_queue.find_active_captures()
                for device in self._machine.devices
                if device.work_queue.captures
            ):
                raise GpulabError(
                    "A stream is capturing a graph, so no work runs that a timeline "
                    "could record. Start the timeline before begin_capture(), or around "
                    "the graph's launch."
                )
            self._range_count_before = self._machine.get_component(RangeLog, clock=clock).ended_count
            self._recorder = Recorder(lambda: clock.now_ns)
            clock.recorder = self._recorder

    def stop(self) -> Timeline:
        """End the recording and return the timeline. The host does not have to wait, because all times are
        already known.
        """
        machine = self._machine
        clock = self._machine.clock
        recorder = self._recorder
        if recorder is None:
            raise GpulabError("This timeline has not started. Call start() first.")
        with clock.lock:
            for device in machine.devices:
                device.work_queue.schedule.plan_pending()
            if clock.recorder is recorder:
                clock.recorder = None
            now_ns = clock.now_ns
        log = machine.get_component(RangeLog, clock=clock)
        removed_ranges = max(0, log.ended_count - self._range_count_before - MAX_RANGES)
        return Timeline(
            provenance=machine.devices[0].info.as_virtual,
            method="model",
            start_ns=recorder.start_ns,
            end_ns=max([now_ns, *(activity.end_ns for activity in recorder.activities)]),
            activities=tuple(
                sorted(recorder.activities, key=lambda activity: (activity.start_ns, activity.correlation_id))
            ),
            calls=recorder.calls,
            synchronizations=tuple(recorder.waits),
            ranges=log.find_ranges(recorder.start_ns, now_ns),
            streams=_make_stream_infos(recorder),
            lost=recorder.lost_records + removed_ranges,
        )


def _make_stream_infos(recorder: Recorder) -> tuple[StreamInfo, ...]:
    """Return the streams of a timeline, numbered on each device in the order of their first use."""
    streams: list[StreamInfo] = []
    for (device_id, stream_id), stream_facts in recorder.streams.items():
        earlier_streams = sum(
            stream.device_id == device_id and stream.stream_id not in _DEFAULT_STREAM_NAMES
            for stream in streams
        )
        name = _DEFAULT_STREAM_NAMES.get(stream_id, f"stream {earlier_streams + 1}")
        streams.append(
            StreamInfo(device_id, stream_id, name, not stream_facts.blocking, stream_facts.priority)
        )
    return tuple(streams)
