"""Record a timeline of a real GPU with CUPTI."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cupy
from cupy.cuda import runtime

from gpulab.analysis.cupti import kinds
from gpulab.analysis.cupti.records import HostInfo, Records, TimelineParts
from gpulab.real.cupti import library as cupti
from gpulab.real.driver import read_data_rows
from gpulab.words import count
from virtualgpu.errors import GpulabError
from virtualgpu.model.recording.line_watch import LineWatch
from virtualgpu.records import Provenance, Timeline
from virtualgpu.records.timeline import HostCall, StreamInfo, Synchronization

_ACTIVITY_KINDS = (
    kinds.CONCURRENT_KERNEL,
    kinds.MEMCPY,
    kinds.MEMCPY2,
    kinds.MEMSET,
    kinds.SYNCHRONIZATION,
    kinds.CUDA_EVENT,
    kinds.STREAM,
    kinds.MARKER,
    kinds.MARKER_DATA,
    kinds.GRAPH_HOST_NODE,
    kinds.HOST_LAUNCH,
)
# What gives work to a stream, waits, or takes long. CuPy asks for much more, such as the current device.
_RECORDED_CALLS = cupti.group_by_api([name for (name,) in read_data_rows("timeline_calls.tsv")])
_LEGACY_HANDLE = 1  # cudaStreamLegacy, another handle of the default stream
_DEFAULT_NAMES = {0: "default stream", _LEGACY_HANDLE: "default stream", 2: "per-thread default stream"}


class CuptiRecorder:
    """A recorder of the operations of all devices, and of the CUDA calls and NVTX ranges of this process.

    Parameters
    ----------
    library
        The CUPTI object of the process.
    provenance
        The device in use.
    """

    def __init__(self, library: cupti.Cupti, provenance: Provenance) -> None:
        self._cupti = library
        self._provenance = provenance
        self._line_watch = LineWatch()
        self._start_ns = 0
        self._clock_offset_ns = 0  # CUPTI's clock is this much ahead of Python's

    def start(self) -> None:
        """Start the recording of a timeline.

        Raises
        ------
        CuptiError
            If CUPTI returns an error, such as `library.ERROR_SUBSCRIBER_EXISTS` if another
            tool uses it.
        """
        self._cupti.start(_ACTIVITY_KINDS, _RECORDED_CALLS)
        self._clock_offset_ns = self._measure_offset_ns()
        self._line_watch.start()
        self._start_ns = self._cupti.read_timestamp_ns()

    def stop(self) -> Timeline:
        """Wait for the device, end the recording, and return the timeline."""
        self._line_watch.stop()
        end_ns = self._cupti.read_timestamp_ns()
        stream_infos: list[StreamInfo] = []
        try:
            stream_infos = _record_stream_marks()
            runtime.deviceSynchronize()
        finally:
            self._cupti.stop()
        with _pause_collector():
            records = Records(self._cupti.list_call_names)
            for buffer, offsets in self._cupti.take_buffers():
                records.add_buffer(buffer, offsets)
            stream_ids = records.take_events(len(stream_infos))
            streams = {
                n: replace(info, stream_id=n) for n, info in zip(stream_ids, stream_infos, strict=False)
            }
            timeline_parts = records.make_timeline_parts(self._make_host_info(streams))
        lost_records = self._cupti.count_dropped() + timeline_parts.unfinished_count

        def is_recorded(entry: HostCall | Synchronization) -> bool:
            # The synchronization that ends the recording is none of the program's.
            return self._start_ns <= entry.start_ns < end_ns

        return Timeline(
            provenance=self._provenance,
            method="CUPTI",
            start_ns=self._start_ns,
            end_ns=max([end_ns, *(activity.end_ns for activity in timeline_parts.activities)]),
            activities=tuple(
                sorted(timeline_parts.activities, key=lambda entry: (entry.start_ns, entry.correlation_id))
            ),
            calls=tuple(filter(is_recorded, timeline_parts.calls)),
            synchronizations=tuple(filter(is_recorded, timeline_parts.synchronizations)),
            ranges=tuple(record for record in timeline_parts.ranges if self._start_ns <= record.end_ns),
            streams=tuple(timeline_parts.streams),
            lost=lost_records,
            note=_make_note(timeline_parts, lost_records),
        )

    def _measure_offset_ns(self) -> int:
        """Return how far CUPTI's clock is ahead of `time.time_ns`: the most precise of 16 readings."""
        clock_offsets = []
        for _ in range(16):
            start_ns = time.time_ns()
            cupti_ns = self._cupti.read_timestamp_ns()
            end_ns = time.time_ns()
            clock_offsets.append((end_ns - start_ns, cupti_ns - (start_ns + end_ns) // 2))
        return min(clock_offsets)[1]

    def _make_host_info(self, streams: dict[int, StreamInfo]) -> HostInfo:
        offset_ns = self._clock_offset_ns
        find_line = self._line_watch.line
        threads = {
            live_thread.native_id: live_thread.ident
            for live_thread in threading.enumerate()
            if live_thread.native_id and live_thread.ident
        }
        return HostInfo(
            streams, threads, lambda thread, time_ns, call: find_line(thread, time_ns - offset_ns, call)
        )


@contextlib.contextmanager
def _pause_collector() -> Iterator[None]:
    """Disable the garbage collector in a ``with`` block; it would double the time for many records."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _record_stream_marks() -> list[StreamInfo]:
    """Record an event in every stream of the program, so that CUPTI's records show the streams' numbers.

    The function ``cuptiGetStreamIdEx`` cannot be used, because it does not accept the default stream.
    """
    device_id = int(cupy.cuda.Device().id)
    # Not isinstance: what imitates another class would be asked for it, and some warn.
    streams: list[Any] = [
        stream_object
        for stream_object in gc.get_objects()
        if issubclass(type(stream_object), cupy.cuda.Stream)
    ]
    # One that could not be made has no handle.
    streams_by_handle = {
        (int(stream_object.device_id), int(stream_object.ptr)): stream_object
        for stream_object in streams
        if hasattr(stream_object, "ptr")
    }
    streams_by_handle = {
        key: stream_object for key, stream_object in streams_by_handle.items() if key[1] not in _DEFAULT_NAMES
    }
    stream_infos: list[StreamInfo] = []
    for default_stream in (cupy.cuda.Stream.null, cupy.cuda.Stream.ptds):
        with contextlib.suppress(runtime.CUDARuntimeError):
            cupy.cuda.Event(disable_timing=True).record(default_stream)
            stream_infos.append(
                StreamInfo(device_id, int(default_stream.ptr), _DEFAULT_NAMES[int(default_stream.ptr)])
            )
    for (context, handle), stream in sorted(streams_by_handle.items(), key=lambda entry: entry[0]):
        with (
            contextlib.suppress(runtime.CUDARuntimeError),
            cupy.cuda.Device(device_id if context < 0 else context),
        ):
            flags = runtime.streamGetFlags(handle)
            priority = runtime.streamGetPriority(handle)
            cupy.cuda.Event(disable_timing=True).record(stream)
            non_blocking = bool(flags & runtime.streamNonBlocking)
            stream_number = (
                sum(
                    info.device_id == context and info.stream_id not in _DEFAULT_NAMES
                    for info in stream_infos
                )
                + 1
            )
            stream_infos.append(
                StreamInfo(context, handle, f"stream {stream_number}", non_blocking, int(priority))
            )
    return stream_infos


def refuse_capture() -> None:
    """Wait for earlier work of the device. Raise an error if a stream is currently capturing a graph.

    Raises
    ------
    GpulabError
        While a stream captures a graph.
    """
    try:
        runtime.deviceSynchronize()
    except runtime.CUDARuntimeError as error:
        if error.status not in (900, 901, 906):
            raise
        raise GpulabError(
            "A stream is capturing a graph, so no work runs that can be recorded. Start "
            "the timeline before begin_capture(), or around the graph's launch."
        ) from error


def _make_note(timeline_parts: TimelineParts, lost_records: int) -> str:
    clauses = []
    if lost_records:
        clauses.append(f"CUPTI reported no times for {count(lost_records, 'record')}")
    if timeline_parts.has_graphs:
        clauses.append(
            "a graph takes longer while its nodes are recorded, and the order of the "
            "nodes is the observed order, not that of the edges"
        )
    if timeline_parts.activities and not timeline_parts.calls:
        clauses.append("CUPTI reported no calls of the host")
    return "; ".join(clauses)
