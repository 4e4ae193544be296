"""Write a timeline as Chrome trace events: a process per device, one for the host, a track per stream.

Times are in µs with three decimals, counted from the timeline's start, which ``otherData`` contains in ns. No
digit is lost in this way, although CUPTI's own times have more digits than a double. The other fields of a
record are the ``args`` of its event. Arrows (flow events) lead from a call to its operation, and from an
operation to operations of other streams that had to wait for it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpulab.analysis.overlap import make_stream_names
from virtualgpu.records import Activity, HostCall, SourceLine, Timeline

FORMAT = "gpulab-timeline"
VERSION = 1
HOST_PID = 1_000
CATEGORY_OF_KIND = {
    "CONCURRENT_KERNEL": "kernel",
    "MEMCPY": "gpu_memcpy",
    "MEMCPY2": "gpu_memcpy",
    "MEMSET": "gpu_memset",
    "HOST_LAUNCH": "host_function",
    "RANGE": "event_range",
}
# Categories (`cat`) of the host's events.
RUNTIME_CATEGORY = "cuda_runtime"
DRIVER_CATEGORY = "cuda_driver"
SYNC_CATEGORY = "cuda_sync"
NVTX_CATEGORY = "user_annotation"
_LAUNCH_ARROW = "ac2g"
_WAIT_ARROW = "after"
_EVENT_FIELDS = frozenset({"name", "start_ns", "end_ns"})

Event = dict[str, Any]


def save_timeline(timeline: Timeline, path: str | Path) -> Path:
    """Save a timeline to a file. The file is compressed if its name ends in ``.gz``.

    Returns
    -------
    Path
        The file.
    """
    path = Path(path)
    json_bytes = json.dumps(make_document(timeline), separators=(",", ":"), ensure_ascii=False).encode()
    path.write_bytes(gzip.compress(json_bytes, 6) if path.suffix.lower() == ".gz" else json_bytes)
    return path


def make_document(timeline: Timeline) -> dict[str, Any]:
    """Return the contents of a timeline file, which are a header and the events."""
    provenance = timeline.provenance
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "format": FORMAT,
            "version": VERSION,
            "saved": datetime.now(UTC).date().isoformat(),
            "origin": provenance.label,
            "provenance": _make_args(provenance),
            "method": timeline.method,
            "start_ns": timeline.start_ns,
            "end_ns": timeline.end_ns,
            "streams": [_make_args(stream) for stream in timeline.streams],
            "lost": timeline.lost,
            "note": timeline.note,
        },
        "traceEvents": list(_make_events(timeline)),
    }


def _make_events(timeline: Timeline) -> Iterator[Event]:
    """Yield the names of tracks, then the slices, then the arrows."""
    timeline_start_ns = timeline.start_ns
    tracks = _Tracks(timeline)
    slice_of_operation: dict[int, tuple[int, int, Activity]] = {}
    events: list[Event] = []
    for activity in timeline.activities:
        pid, tid = tracks.find_stream_track(activity)
        slice_of_operation[activity.correlation_id] = pid, tid, activity
        events.append(_make_slice(activity, CATEGORY_OF_KIND[activity.kind], pid, tid, timeline_start_ns))
    calls_and_tids: list[tuple[HostCall, int]] = []
    for call in timeline.calls:
        tid = tracks.find_host_track("CUDA calls", call.thread, call.start_ns, call.end_ns)
        is_driver = call.name.startswith("cu") and call.name[2:3].isupper()
        events.append(
            _make_slice(
                call, DRIVER_CATEGORY if is_driver else RUNTIME_CATEGORY, HOST_PID, tid, timeline_start_ns
            )
        )
        if call.correlation_id:
            calls_and_tids.append((call, tid))
    for wait in timeline.synchronizations:
        tid = tracks.find_host_track("waits", 0, wait.start_ns, wait.end_ns)
        events.append(_make_slice(wait, SYNC_CATEGORY, HOST_PID, tid, timeline_start_ns))
    for nvtx_range in timeline.ranges:
        tid = tracks.find_host_track(
            "NVTX", nvtx_range.thread, nvtx_range.start_ns, nvtx_range.end_ns, can_nest=True
        )
        events.append(_make_slice(nvtx_range, NVTX_CATEGORY, HOST_PID, tid, timeline_start_ns))
        if nvtx_range.is_mark:
            del events[-1]["dur"]
            events[-1].update(ph="i", s="t")
    yield from tracks.make_track_names()
    yield from events
    for call, tid in calls_and_tids:
        if call.correlation_id in slice_of_operation:
            pid, track, operation = slice_of_operation[call.correlation_id]
            operation_start = (pid, track, operation.start_ns - timeline_start_ns)
            call_start = (HOST_PID, tid, call.start_ns - timeline_start_ns)
            yield from _make_arrow(_LAUNCH_ARROW, call.correlation_id, call_start, operation_start)
    arrow_count = 0
    for pid, tid, activity in slice_of_operation.values():
        for predecessor_number in activity.after:
            predecessor = slice_of_operation.get(predecessor_number)
            if predecessor is not None and predecessor[:2] != (pid, tid):
                arrow_count += 1
                predecessor_end = (
                    max(predecessor[2].start_ns, predecessor[2].end_ns - 1) - timeline_start_ns
                )  # within the slice
                operation_start = (pid, tid, activity.start_ns - timeline_start_ns)
                yield from _make_arrow(
                    _WAIT_ARROW, arrow_count, (*predecessor[:2], predecessor_end), operation_start
                )


def _make_slice(record: Any, category: str, pid: int, tid: int, timeline_start_ns: int) -> Event:
    start_ns = record.start_ns
    args = _make_args(record, _EVENT_FIELDS)
    if not record.name:
        args["name"] = ""
    return {
        "ph": "X",
        "cat": category,
        "name": record.name or getattr(record, "type", category),
        "pid": pid,
        "tid": tid,
        "ts": _convert_to_us(start_ns - timeline_start_ns),
        "dur": _convert_to_us(record.end_ns - start_ns),
        "args": args,
    }


def _make_arrow(
    category: str, arrow_number: int, source_end: tuple[int, int, int], target_end: tuple[int, int, int]
) -> Iterator[Event]:
    """Yield the two events of an arrow between slices. Each end of the arrow is given by a process, a track
    and a time.
    """
    common_fields = {"cat": category, "name": category, "id": arrow_number}
    yield {
        "ph": "s",
        "pid": source_end[0],
        "tid": source_end[1],
        "ts": _convert_to_us(source_end[2]),
        **common_fields,
    }
    yield {
        "ph": "f",
        "bp": "e",
        "pid": target_end[0],
        "tid": target_end[1],
        "ts": _convert_to_us(target_end[2]),
        **common_fields,
    }


def _convert_to_us(time_ns: int) -> float:
    return time_ns / 1_000


def _make_args(record: Any, excluded: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults, except those in `excluded`."""
    args = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in excluded and value != field.default:
            args[field.name] = (
                [value.file, value.line, value.text] if isinstance(value, SourceLine) else value
            )
    return args


class _Tracks:
    """Assignment of slices to tracks: slices that overlap but are not nested get different tracks."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._stream_names = make_stream_names(timeline)
        self._open_ends: dict[tuple[int, str, int], list[list[int]]] = {}
        self._track_ids: dict[tuple[int, str, int, int], int] = {}

    def find_stream_track(self, activity: Activity) -> tuple[int, int]:
        pid = activity.device_id + 1
        name = self._stream_names[activity.device_id, activity.stream_id]
        return pid, self._find_track(pid, name, 0, activity.start_ns, activity.end_ns, False)

    def find_host_track(
        self, track_name: str, thread: int, start_ns: int, end_ns: int, can_nest: bool = False
    ) -> int:
        return self._find_track(HOST_PID, track_name, thread, start_ns, end_ns, can_nest)

    def _find_track(
        self, pid: int, name: str, thread: int, start_ns: int, end_ns: int, can_nest: bool
    ) -> int:
        open_ends_of_tracks = self._open_ends.setdefault((pid, name, thread), [])
        track_index = next(
            (
                track_index
                for track_index, open_ends in enumerate(open_ends_of_tracks)
                if _fits_into_track(open_ends, start_ns, end_ns, can_nest)
            ),
            len(open_ends_of_tracks),
        )
        if track_index == len(open_ends_of_tracks):
            open_ends_of_tracks.append([])
        open_ends_of_tracks[track_index].append(end_ns)
        return self._track_ids.setdefault((pid, name, thread, track_index), len(self._track_ids) + 1)

    def make_track_names(self) -> Iterable[Event]:
        device = self._timeline.provenance.device
        processes = {pid: f"device {pid - 1}: {device}" for pid, *_ in self._track_ids if pid != HOST_PID}
        threads = list(
            dict.fromkeys(thread for pid, _, thread, _ in self._track_ids if pid == HOST_PID and thread)
        )
        for pid, process_name in {**processes, HOST_PID: "host"}.items():
            yield _make_metadata(pid, 0, "process_name", name=process_name)
            yield _make_metadata(pid, 0, "process_labels", labels=self._timeline.provenance.label)
            yield _make_metadata(pid, 0, "process_sort_index", sort_index=0 if pid == HOST_PID else pid)
        for (pid, track_name, thread, track_index), tid in self._track_ids.items():
            thread_text = f" of thread {threads.index(thread) + 1}" if thread and len(threads) > 1 else ""
            track_text = f" ({track_index + 1})" if track_index else ""
            yield _make_metadata(pid, tid, "thread_name", name=f"{track_name}{thread_text}{track_text}")
            yield _make_metadata(pid, tid, "thread_sort_index", sort_index=tid)


def _fits_into_track(open_ends: list[int], start_ns: int, end_ns: int, can_nest: bool) -> bool:
    """Return whether a slice fits on a track. It fits if all other slices have ended, or if it is nested in
    an open slice and nesting is allowed.
    """
    while open_ends and open_ends[-1] <= start_ns:
        open_ends.pop()
    return not open_ends or (can_nest and end_ns <= open_ends[-1])


def _make_metadata(pid: int, tid: int, event_name: str, **args: Any) -> Event:
    return {"ph": "M", "name": event_name, "pid": pid, "tid": tid, "args": args}
