"""Record a timeline without CUPTI, by pairs of CUDA events around NVTX ranges and `gl.launch`.

The time between two events of a stream is recorded as one interval. Single operations, copies, calls and
waits of the host are not recorded. A pair of events takes some microseconds of the host's time and about one
microsecond of the stream's time. Its resolution is half a microsecond (CUDA C++ Programming Guide, "Elapsed
Time").
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy
from cupy.cuda import nvtx

from virtualgpu.records import Activity, Provenance, Timeline
from virtualgpu.records.timeline import NvtxRange, StreamInfo

FALLBACK_NOTE = (
    "measured with pairs of events around NVTX ranges and gl.launch, which show when a range began and ended "
    "on its stream; single operations, copies, calls and waits are not recorded"
)
_PATCHED_FUNCTIONS = ("RangePush", "RangePushC", "RangePop")


def is_recording() -> bool:
    """Return whether a recorder is active. An active recorder has replaced the NVTX functions with its own
    functions.
    """
    return getattr(nvtx.RangePush, "__module__", "") == __name__


class _OpenRange:
    """An open range: its name, the host's time at its start, and the event at its start in a stream."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.host_ns = time.time_ns()
        self.stream = cupy.cuda.get_current_stream()
        self.start_event = _record_event(self.stream)


class EventRecorder:
    """A recorder of NVTX ranges and kernel launches for systems without CUPTI. Ranges and launches are
    measured with pairs of CUDA events.

    Parameters
    ----------
    provenance
        The device in use.
    reason
        The reason why CUPTI cannot be used, in a few words.
    """

    def __init__(self, provenance: Provenance, reason: str) -> None:
        self._provenance = provenance
        self._reason = reason
        self._open_ranges: dict[int, list[_OpenRange]] = {}
        self._ended_ranges: list[tuple[_OpenRange, Any, int, int, int]] = []
        self._original_functions: dict[str, Callable[..., Any]] = {}

    def start(self) -> None:
        """Start the recording. Until `stop` is called, the functions of NVTX also record events in the
        current stream.
        """
        self._base_event = cupy.cuda.Event()
        self._base_event.record(cupy.cuda.Stream.null)
        self._base_event.synchronize()
        self._start_ns = time.time_ns()
        self._original_functions = {name: getattr(nvtx, name) for name in _PATCHED_FUNCTIONS}
        original_push, original_push_c, original_pop = self._original_functions.values()

        def range_push(message: str, id_color: int = -1) -> None:
            original_push(message, id_color)
            self._push_range(message)

        def range_push_c(message: str, color: int = 0) -> None:
            original_push_c(message, color)
            self._push_range(message)

        def range_pop() -> None:
            original_pop()
            self._pop_range()

        nvtx.RangePush = range_push
        nvtx.RangePushC = range_push_c
        nvtx.RangePop = range_pop

    def stop(self) -> Timeline:
        """Wait for the device, end the recording, and return the timeline."""
        for name, original_function in self._original_functions.items():
            setattr(nvtx, name, original_function)
        end_ns = time.time_ns()
        cupy.cuda.runtime.deviceSynchronize()
        activities = []
        nvtx_ranges = []
        streams: dict[int, StreamInfo] = {}
        for range_number, (open_range, end_event, host_end_ns, thread, depth) in enumerate(
            self._ended_ranges, 1
        ):
            device_id = int(cupy.cuda.Device().id)
            stream_info = _make_stream_info(open_range.stream, device_id, len(streams))
            stream_info = streams.setdefault(stream_info.stream_id, stream_info)
            start_ns, range_end_ns = (
                self._start_ns + self._measure_ns_since(event)
                for event in (open_range.start_event, end_event)
            )
            activities.append(
                Activity(
                    kind="RANGE",
                    name=open_range.name,
                    device_id=device_id,
                    stream_id=stream_info.stream_id,
                    correlation_id=range_number,
                    start_ns=start_ns,
                    end_ns=range_end_ns,
                )
            )
            nvtx_ranges.append(
                NvtxRange(
                    name=open_range.name,
                    color=None,
                    start_ns=open_range.host_ns,
                    end_ns=host_end_ns,
                    thread=thread,
                    depth=depth,
                )
            )
        return Timeline(
            provenance=self._provenance,
            method="events",
            start_ns=self._start_ns,
            end_ns=max([end_ns, *(record.end_ns for record in activities)]),
            activities=tuple(sorted(activities, key=lambda entry: entry.start_ns)),
            ranges=tuple(sorted(nvtx_ranges, key=lambda entry: (entry.start_ns, entry.depth))),
            streams=tuple(streams.values()),
            note=f"{self._reason}: {FALLBACK_NOTE}",
        )

    @contextmanager
    def record_range(self, name: str) -> Iterator[None]:
        """Return a context manager that records a launch by `gl.launch` as a range."""
        self._push_range(name)
        try:
            yield
        finally:
            self._pop_range()

    def _push_range(self, name: str) -> None:
        self._open_ranges.setdefault(threading.get_ident(), []).append(_OpenRange(name))

    def _pop_range(self) -> None:
        open_ranges = self._open_ranges.get(threading.get_ident())
        if open_ranges:
            open_range = open_ranges.pop()
            end_event = _record_event(open_range.stream)
            self._ended_ranges.append(
                (open_range, end_event, time.time_ns(), threading.get_ident(), len(open_ranges))
            )

    def _measure_ns_since(self, event: Any) -> int:
        return round(float(cupy.cuda.get_elapsed_time(self._base_event, event)) * 1e6)


def _record_event(stream: Any) -> Any:
    event = cupy.cuda.Event()
    event.record(stream)
    return event


def _make_stream_info(stream: Any, device: int, stream_number: int) -> StreamInfo:
    handle = int(stream.ptr)
    stream_names = {0: "default stream", 1: "default stream", 2: "per-thread default stream"}
    return StreamInfo(device, handle, stream_names.get(handle, f"stream {stream_number + 1}"))
