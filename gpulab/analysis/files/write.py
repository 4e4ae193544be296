"""A timeline as Chrome trace events: a process for each device and one for the host, a track for each stream.

Times are in µs with three decimals, counted from the timeline's start, which ``otherData`` has in ns: so
nothing is lost, though CUPTI's own times have more digits than a double. What else a record holds stands in
the ``args`` of its event. Arrows (flow events) lead from a call to its operation and from an operation to
those of other streams that had to wait for it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpulab.analysis.overlap import stream_names
from virtualgpu.records import Activity, HostCall, SourceLine, Timeline

FORMAT = "gpulab-timeline"
VERSION = 1
HOST_PID = 1_000
CATEGORIES = {
    "CONCURRENT_KERNEL": "kernel",
    "MEMCPY": "gpu_memcpy",
    "MEMCPY2": "gpu_memcpy",
    "MEMSET": "gpu_memset",
    "HOST_LAUNCH": "host_function",
    "RANGE": "event_range",
}
# The cat of the host's events.
RUNTIME = "cuda_runtime"
DRIVER = "cuda_driver"
SYNC = "cuda_sync"
NVTX = "user_annotation"
_LAUNCH_ARROW = "ac2g"
_WAIT_ARROW = "after"
_IN_THE_EVENT = frozenset({"name", "start_ns", "end_ns"})

Event = dict[str, Any]


def save(timeline: Timeline, path: str | Path) -> Path:
    """Write a timeline; compressed if the name ends in ``.gz``.

    Returns
    -------
    Path
        The file.
    """
    path = Path(path)
    content = json.dumps(document(timeline), separators=(",", ":"), ensure_ascii=False).encode()
    path.write_bytes(gzip.compress(content, 6) if path.suffix.lower() == ".gz" else content)
    return path


def document(timeline: Timeline) -> dict[str, Any]:
    """Return the contents of the file."""
    origin = timeline.provenance
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "format": FORMAT,
            "version": VERSION,
            "saved": datetime.now(UTC).date().isoformat(),
            "origin": origin.label,
            "provenance": _args(origin),
            "method": timeline.method,
            "start_ns": timeline.start_ns,
            "end_ns": timeline.end_ns,
            "streams": [_args(stream) for stream in timeline.streams],
            "lost": timeline.lost,
            "note": timeline.note,
        },
        "traceEvents": list(_events(timeline)),
    }


def _events(timeline: Timeline) -> Iterator[Event]:
    base = timeline.start_ns
    tracks = _Tracks(timeline)
    places: dict[int, tuple[int, int, Activity]] = {}
    body: list[Event] = []
    for activity in timeline.activities:
        pid, tid = tracks.of_stream(activity)
        places[activity.correlation_id] = pid, tid, activity
        body.append(_slice(activity, CATEGORIES[activity.kind], pid, tid, base))
    calls: list[tuple[HostCall, int]] = []
    for call in timeline.calls:
        tid = tracks.of_host("CUDA calls", call.thread, call.start_ns, call.end_ns)
        is_driver = call.name.startswith("cu") and call.name[2:3].isupper()
        body.append(_slice(call, DRIVER if is_driver else RUNTIME, HOST_PID, tid, base))
        if call.correlation_id:
            calls.append((call, tid))
    for wait in timeline.synchronizations:
        tid = tracks.of_host("waits", 0, wait.start_ns, wait.end_ns)
        body.append(_slice(wait, SYNC, HOST_PID, tid, base))
    for marked in timeline.ranges:
        tid = tracks.of_host("NVTX", marked.thread, marked.start_ns, marked.end_ns, nests=True)
        body.append(_slice(marked, NVTX, HOST_PID, tid, base))
        if marked.is_mark:
            del body[-1]["dur"]
            body[-1].update(ph="i", s="t")
    yield from tracks.names()
    yield from body
    for call, tid in calls:
        if call.correlation_id in places:
            pid, track, operation = places[call.correlation_id]
            begins = (pid, track, operation.start_ns - base)
            given = (HOST_PID, tid, call.start_ns - base)
            yield from _arrow(_LAUNCH_ARROW, call.correlation_id, given, begins)
    arrows = 0
    for pid, tid, activity in places.values():
        for number in activity.after:
            before = places.get(number)
            if before is not None and before[:2] != (pid, tid):
                arrows += 1
                ends = max(before[2].start_ns, before[2].end_ns - 1) - base  # within the slice
                begins = (pid, tid, activity.start_ns - base)
                yield from _arrow(_WAIT_ARROW, arrows, (*before[:2], ends), begins)


def _slice(record: Any, category: str, pid: int, tid: int, base: int) -> Event:
    start = record.start_ns
    args = _args(record, _IN_THE_EVENT)
    if not record.name:
        args["name"] = ""
    return {
        "ph": "X",
        "cat": category,
        "name": record.name or getattr(record, "type", category),
        "pid": pid,
        "tid": tid,
        "ts": _us(start - base),
        "dur": _us(record.end_ns - start),
        "args": args,
    }


def _arrow(
    category: str, number: int, source: tuple[int, int, int], target: tuple[int, int, int]
) -> Iterator[Event]:
    """Yield the events of an arrow between slices; each end is a process, a track and a time."""
    common = {"cat": category, "name": category, "id": number}
    yield {"ph": "s", "pid": source[0], "tid": source[1], "ts": _us(source[2]), **common}
    yield {"ph": "f", "bp": "e", "pid": target[0], "tid": target[1], "ts": _us(target[2]), **common}


def _us(time_ns: int) -> float:
    return time_ns / 1_000


def _args(record: Any, but: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults, without those in `but`."""
    found = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in but and value != field.default:
            found[field.name] = (
                [value.file, value.line, value.text] if isinstance(value, SourceLine) else value
            )
    return found


class _Tracks:
    """Assigns tracks: slices of one track must nest, so slices that overlap otherwise get another track."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._names = stream_names(timeline)
        self._ends: dict[tuple[int, str, int], list[list[int]]] = {}
        self._tids: dict[tuple[int, str, int, int], int] = {}

    def of_stream(self, activity: Activity) -> tuple[int, int]:
        pid = activity.device_id + 1
        name = self._names[activity.device_id, activity.stream_id]
        return pid, self._track(pid, name, 0, activity.start_ns, activity.end_ns, False)

    def of_host(self, what: str, thread: int, start_ns: int, end_ns: int, nests: bool = False) -> int:
        return self._track(HOST_PID, what, thread, start_ns, end_ns, nests)

    def _track(self, pid: int, name: str, thread: int, start_ns: int, end_ns: int, nests: bool) -> int:
        lanes = self._ends.setdefault((pid, name, thread), [])
        at = next((at for at, ends in enumerate(lanes) if _fits(ends, start_ns, end_ns, nests)), len(lanes))
        if at == len(lanes):
            lanes.append([])
        lanes[at].append(end_ns)
        return self._tids.setdefault((pid, name, thread, at), len(self._tids) + 1)

    def names(self) -> Iterable[Event]:
        device = self._timeline.provenance.device
        processes = {pid: f"device {pid - 1}: {device}" for pid, *_ in self._tids if pid != HOST_PID}
        threads = list(
            dict.fromkeys(thread for pid, _, thread, _ in self._tids if pid == HOST_PID and thread)
        )
        for pid, name in {**processes, HOST_PID: "host"}.items():
            yield _named(pid, 0, "process_name", name=name)
            yield _named(pid, 0, "process_labels", labels=self._timeline.provenance.label)
            yield _named(pid, 0, "process_sort_index", sort_index=0 if pid == HOST_PID else pid)
        for (pid, name, thread, lane), tid in self._tids.items():
            number = f" of thread {threads.index(thread) + 1}" if thread and len(threads) > 1 else ""
            more = f" ({lane + 1})" if lane else ""
            yield _named(pid, tid, "thread_name", name=f"{name}{number}{more}")
            yield _named(pid, tid, "thread_sort_index", sort_index=tid)


def _fits(ends: list[int], start_ns: int, end_ns: int, nests: bool) -> bool:
    """Return whether a slice fits on a track; if it may nest, also within slices that have not ended."""
    while ends and ends[-1] <= start_ns:
        ends.pop()
    return not ends or (nests and end_ns <= ends[-1])


def _named(pid: int, tid: int, what: str, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}
