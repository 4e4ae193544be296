"""Read Chrome trace events of other tools: the PyTorch profiler (Kineto), and any other program.

`nsys` makes such events from a database of Nsight Systems.

Slices of Kineto's categories become operations, calls and waits. All other slices become ranges of the host,
like those of NVTX. Kineto numbers calls, and an operation has the number of its call. The nodes of a graph
launch share one number, so operations get new numbers here, in the order in which they were issued.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gpulab.words import count, noun
from virtualgpu.records import (
    Activity,
    ActivityKind,
    CopyKind,
    Dim3,
    HostCall,
    NvtxRange,
    Provenance,
    SourceLine,
    StreamInfo,
    Synchronization,
    SynchronizationType,
    Timeline,
)
from virtualgpu.records.io import TraceFormatError

_ACTIVITY_KINDS: dict[str, ActivityKind] = {
    "kernel": "CONCURRENT_KERNEL",
    "gpu_memcpy": "MEMCPY",
    "gpu_memset": "MEMSET",
}
_TORCH_TOOL = "PyTorch profiler"
_CALL_CATEGORIES = ("cuda_runtime", "cuda_driver", "runtime", "driver")
# Categories as PyTorch 1.8 to 1.11 wrote them.
_OLD_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
}
_NO_GPU_NOTE = (
    "It contains no GPU activity. Record it with torch.profiler.profile(activities=[ProfilerActivity.CPU, "
    "ProfilerActivity.CUDA])."
)
_WAIT_TYPES: dict[str, SynchronizationType] = {
    "cudaStreamSynchronize": "STREAM_SYNCHRONIZE",
    "cuStreamSynchronize": "STREAM_SYNCHRONIZE",
    "cudaEventSynchronize": "EVENT_SYNCHRONIZE",
    "cuEventSynchronize": "EVENT_SYNCHRONIZE",
    "cudaDeviceSynchronize": "CONTEXT_SYNCHRONIZE",
    "cuCtxSynchronize": "CONTEXT_SYNCHRONIZE",
    "cudaMemcpy": "STREAM_SYNCHRONIZE",
    "hipStreamSynchronize": "STREAM_SYNCHRONIZE",
    "hipEventSynchronize": "EVENT_SYNCHRONIZE",
    "hipDeviceSynchronize": "CONTEXT_SYNCHRONIZE",
    "hipMemcpy": "STREAM_SYNCHRONIZE",
}
# Slices that repeat information of other slices.
_OMITTED_CATEGORIES = (
    "gpu_user_annotation",
    "cuda_sync",
    "Trace",
    "overhead",
    "python_function",
    "ac2g",
    "fwdbwd",
)
# Names of Python functions in a profile with_stack=True, such as `train.py(12): main`; files of libraries.
_FUNCTION_PATTERN = re.compile(r"(.+)\((\d{1,9})\): (.+)")
_LIBRARY_FILE_PATTERN = re.compile(r"(?:^|/)(?:torch|site-packages|dist-packages|lib/python\d[^/]*)/|^<")
_COPY_KINDS: tuple[CopyKind, ...] = ("HtoD", "DtoH", "DtoD", "PtoP")
_MAX_NS = 1 << 61
_YEAR_2015_NS = 1_420_070_400 * 10**9
_YEAR_2100_NS = 4_102_444_800 * 10**9
# Largest numbers of open slices on a track and in total, and of tracks with a name.
_MAX_DEPTH = 10_000
_MAX_OPEN_SLICES = 200_000
_MAX_TRACKS = 100_000
_MAX_ARG_LENGTH = 20
_MAX_LOST = 1_000_000
_USED_ARGS = (
    "correlation",
    "device",
    "stream",
    "bytes",
    "grid",
    "block",
    "shared memory",
    "registers per thread",
    "graph id",
    "graph node id",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
    "wait_on_cuda_event_id",
)


@dataclass(frozen=True, slots=True)
class _Slice:
    """One slice of a file: its name, category, interval, track and arguments."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    pid: Any
    tid: Any
    args: dict[str, Any]
    is_mark: bool = False


@dataclass(slots=True)
class TraceContents:
    """The contents of a trace file, with its slices, the names of its tracks, and the number of events that
    were left out.

    The attribute ``later_event_count`` is the number of events that were left out because they begin after
    the first `max_slices` slices. The events in ``lost_event_count`` have no time or name. Those in
    ``timeless_event_count`` have a negative duration, or are operations with a duration of zero.
    """

    max_slices: int
    slices: list[_Slice] = field(default_factory=list)
    track_names: dict[tuple[Any, Any], str] = field(default_factory=dict)
    event_count: int = 0
    later_event_count: int = 0
    lost_event_count: int = 0
    timeless_event_count: int = 0
    latest_start_ns: float = math.inf

    def drop_later_slices(self) -> None:
        """Keep only the first `max_slices` slices of the trace file."""
        if len(self.slices) > self.max_slices:
            self.slices.sort(key=lambda trace_slice: trace_slice.start_ns)
            self.later_event_count += len(self.slices) - self.max_slices
            del self.slices[self.max_slices :]
            self.latest_start_ns = self.slices[-1].start_ns


def make_timeline(
    contents: TraceContents, header: dict[str, Any], name: str, tool: str = _TORCH_TOOL
) -> Timeline:
    """Build a timeline from the contents of a trace file that another tool wrote.

    Raises
    ------
    TraceFormatError
        If no event has a time.
    """
    if not contents.slices and contents.timeless_event_count:
        raise TraceFormatError(f"{name} has no timeline: {_describe_timeless_events(contents)}")
    if not contents.slices:
        raise TraceFormatError(
            f"{name} has no timeline: none of its {count(contents.event_count, 'event')} has a time."
        )
    start_ns = min(trace_slice.start_ns for trace_slice in contents.slices)
    contents.slices.sort(key=lambda trace_slice: (trace_slice.start_ns, -trace_slice.end_ns))
    operations = _make_operations(contents.slices)
    calls, threads = _make_calls(contents.slices, operations)
    waits = (*_make_host_waits(calls, operations), *_make_event_waits(contents.slices, operations))
    activities = _sort_operations(operations, waits)
    end_ns = max(trace_slice.end_ns for trace_slice in contents.slices)
    return Timeline(
        provenance=_make_provenance(header, name, start_ns, tool),
        method="file",
        start_ns=start_ns,
        end_ns=end_ns,
        activities=activities,
        calls=tuple(calls),
        synchronizations=tuple(wait for wait, _ in waits),
        ranges=tuple(_make_ranges(contents.slices, threads)),
        streams=_make_streams(activities, contents.track_names),
        note=_make_note(contents, name, bool(activities) or tool != _TORCH_TOOL),
    )


def _describe_timeless_events(file_contents: TraceContents) -> str:
    events_text = f"{count(file_contents.timeless_event_count, 'event')} with a duration of zero or less"
    return f"{events_text} {noun(file_contents.timeless_event_count, 'was', 'were')} left out."


def _make_note(file_contents: TraceContents, name: str, has_operations: bool) -> str:
    """Return sentences about the events of the file that are missing in the timeline."""
    note_sentences = []
    is_torch = any(
        trace_slice.category in (*_CALL_CATEGORIES, "cpu_op") for trace_slice in file_contents.slices
    )
    if not has_operations and is_torch:
        note_sentences.append(_NO_GPU_NOTE)
    if file_contents.timeless_event_count:
        note_sentences.append(_describe_timeless_events(file_contents))
    if file_contents.later_event_count:
        read_count = len(file_contents.slices)
        note_sentences.append(
            f"Only the first {read_count:,} of "
            f"{count(read_count + file_contents.later_event_count, 'event')} are shown; "
            f"gl.open_timeline({name!r}, most_events={read_count + file_contents.later_event_count}) "
            "reads all of them, which takes long."
        )
    if file_contents.lost_event_count:
        lost_count = file_contents.lost_event_count
        lost_text = f"{count(lost_count, 'event')} without a time or name {noun(lost_count, 'was', 'were')}"
        note_sentences.append(f"{lost_text} left out.")
    return " ".join(note_sentences)


# Events


def read_slices(events: Iterable[Any], max_slices: int, name: str) -> TraceContents:
    """Read trace events from a file. Only the first `max_slices` slices by start time are kept.

    Raises
    ------
    TraceFormatError
        If a million of them have no time or name.
    """
    file_contents = TraceContents(max_slices)
    open_slices: dict[tuple[Any, Any], list[tuple[Any, ...]]] = defaultdict(list)
    open_slice_count = 0
    for event in events:
        file_contents.event_count += 1
        event_phase = event.get("ph") if isinstance(event, dict) else None
        if event_phase == "M":
            _store_track_name(event, file_contents)
        elif event_phase in ("X", "B", "E", "i", "I", "R"):
            track_key = _find_track_key(event)
            time_ns = _parse_ns(event.get("ts"))
            if time_ns is None or track_key is None:
                file_contents.lost_event_count += 1
            elif event_phase == "B":
                if len(open_slices[track_key]) < _MAX_DEPTH and open_slice_count < _MAX_OPEN_SLICES:
                    open_slices[track_key].append(
                        (event.get("name"), event.get("cat"), time_ns, _select_args(event))
                    )
                    open_slice_count += 1
            elif event_phase == "E":
                if open_slices[track_key]:
                    slice_name, category, start_ns, args = open_slices[track_key].pop()
                    open_slice_count -= 1
                    _add_slice(
                        file_contents,
                        slice_name,
                        category,
                        track_key,
                        start_ns,
                        time_ns,
                        {**args, **_select_args(event)},
                    )
                else:
                    file_contents.lost_event_count += 1
            else:
                duration_ns = _parse_ns(event.get("dur", 0)) if event_phase == "X" else 0
                end_ns = None if duration_ns is None else time_ns + duration_ns
                args = _select_args(event)
                _add_slice(
                    file_contents,
                    event.get("name"),
                    event.get("cat"),
                    track_key,
                    time_ns,
                    end_ns,
                    args,
                    event_phase != "X",
                )
        elif event_phase is None:
            file_contents.lost_event_count += 1
        if file_contents.lost_event_count > _MAX_LOST:
            raise TraceFormatError(f"{name} has more than {_MAX_LOST:,} events without a time or name.")
    file_contents.lost_event_count += sum(map(len, open_slices.values()))
    file_contents.drop_later_slices()
    return file_contents


def _select_args(event: dict[str, Any]) -> dict[str, Any]:
    """Return only the arguments of an event that gpulab uses; others may be large."""
    args = event.get("args")
    if not isinstance(args, dict):
        return {}
    return {key: args[key] for key in _USED_ARGS if key in args and _is_small(args[key])}


def _is_small(value: Any) -> bool:
    """Return whether a value is a number, perhaps as text, or a list of three integers."""
    if isinstance(value, list):
        return len(value) == 3 and all(isinstance(element, int) for element in value)
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= _MAX_ARG_LENGTH)


def _add_slice(
    file_contents: TraceContents,
    name: Any,
    category: Any,
    key: tuple[Any, Any],
    start_ns: int,
    end_ns: int | None,
    args: dict[str, Any],
    is_mark: bool = False,
) -> None:
    category = _OLD_CATEGORIES.get(category, category) if isinstance(category, str) else ""
    if end_ns is None or not isinstance(name, str):
        file_contents.lost_event_count += 1
    elif end_ns < start_ns or (end_ns == start_ns and category in _ACTIVITY_KINDS):
        file_contents.timeless_event_count += 1
    elif start_ns > file_contents.latest_start_ns:
        file_contents.later_event_count += 1
    else:
        file_contents.slices.append(_Slice(name, category, start_ns, end_ns, *key, args, is_mark))
        if len(file_contents.slices) >= 2 * file_contents.max_slices:
            file_contents.drop_later_slices()


def _find_track_key(event: dict[str, Any]) -> tuple[Any, Any] | None:
    pid = event.get("pid", 0)
    tid = event.get("tid", 0)
    return (pid, tid) if isinstance(pid, (int, str)) and isinstance(tid, (int, str)) else None


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _parse_ns(time_us: Any) -> int | None:
    """Convert a time in µs, which may be text, to ns; return None if it is not a time."""
    if isinstance(time_us, str):
        try:
            time_us = float(time_us)
        except ValueError:
            return None
    if isinstance(time_us, bool) or not isinstance(time_us, (int, float)):
        return None
    if not math.isfinite(time_us) or abs(time_us) > _MAX_NS / 1_000:
        return None
    return time_us * 1_000 if isinstance(time_us, int) else round(time_us * 1_000)


def _parse_int(value: Any, default: int = 0) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    is_valid = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NS
    return value if is_valid else default


def _store_track_name(event: dict[str, Any], file_contents: TraceContents) -> None:
    track_key = _find_track_key(event)
    track_name = _as_dict(event.get("args")).get("name")
    has_room = len(file_contents.track_names) < _MAX_TRACKS
    if (
        event.get("name") == "thread_name"
        and track_key is not None
        and isinstance(track_name, str)
        and has_room
    ):
        file_contents.track_names[track_key] = track_name.strip()


# Operations, calls and waits

# A wait with the number of its call, which determines its order among the operations.
_Wait = tuple[Synchronization, int]


@dataclass(slots=True)
class _Operations:
    """Operations in the order in which they were issued, each with the number of the CUDA call that issued
    it.
    """

    activities: list[Activity] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def first_operation_by_call(self) -> dict[int, Activity]:
        """Return the first operation of each CUDA call, by the correlation ID of the call."""
        first_operations: dict[int, Activity] = {}
        for activity, correlation in zip(self.activities, self.calls, strict=True):
            if correlation:
                first_operations.setdefault(correlation, activity)
        return first_operations


def _make_operations(slices: list[_Slice]) -> _Operations:
    issued_slices = [
        (_parse_int(trace_slice.args.get("correlation")), trace_slice)
        for trace_slice in slices
        if trace_slice.category in _ACTIVITY_KINDS
    ]
    issued_slices.sort(key=lambda pair: (pair[0], pair[1].start_ns))
    return _Operations(
        [
            _make_activity(trace_slice, operation_number)
            for operation_number, (_, trace_slice) in enumerate(issued_slices, 1)
        ],
        [correlation for correlation, _ in issued_slices],
    )


def _make_activity(trace_slice: _Slice, operation_number: int) -> Activity:
    args = trace_slice.args
    activity_kind = _ACTIVITY_KINDS[trace_slice.category]
    copy_kind = None
    if activity_kind == "MEMCPY":
        copy_kind = next((direction for direction in _COPY_KINDS if direction in trace_slice.name), None)
    # Kineto names both ends of a copy: Memcpy HtoD (Pageable -> Device).
    pinned = None
    if "Pageable" in trace_slice.name:
        pinned = False
    elif "Pinned" in trace_slice.name:
        pinned = True
    return Activity(
        kind="MEMCPY2" if copy_kind == "PtoP" else activity_kind,
        name=trace_slice.name,
        device_id=_parse_int(args.get("device"), _parse_int(trace_slice.pid)),
        stream_id=_parse_int(args.get("stream"), _parse_int(trace_slice.tid)),
        correlation_id=operation_number,
        start_ns=trace_slice.start_ns,
        end_ns=trace_slice.end_ns,
        size_bytes=_parse_int(args.get("bytes")),
        copy_kind=copy_kind,
        pinned=pinned if copy_kind in ("HtoD", "DtoH") else None,
        grid=_parse_dim3(args.get("grid")),
        block=_parse_dim3(args.get("block")),
        shared_bytes=_parse_int(args.get("shared memory")),
        graph_id=_parse_int(args.get("graph id")),
        graph_node_id=_parse_int(args.get("graph node id")),
        registers_per_thread=_parse_int(args.get("registers per thread")),
    )


def _parse_dim3(value: Any) -> Dim3 | None:
    if isinstance(value, list) and len(value) == 3 and all(isinstance(n, int) and n > 0 for n in value):
        return (value[0], value[1], value[2])
    return None


def _make_calls(
    slices: list[_Slice], operations: _Operations
) -> tuple[list[HostCall], dict[tuple[Any, Any], int]]:
    """Return the calls, with the number of the first operation that each issued, and the thread numbers."""
    first_operations = operations.first_operation_by_call()
    calls = []
    threads: dict[tuple[Any, Any], int] = {}
    open_slices: dict[tuple[Any, Any], list[_Slice]] = defaultdict(list)
    for trace_slice in slices:
        slice_stack = open_slices[trace_slice.pid, trace_slice.tid]
        while slice_stack and slice_stack[-1].end_ns <= trace_slice.start_ns:
            slice_stack.pop()
        if trace_slice.category == "python_function":
            slice_stack.append(trace_slice)
        elif trace_slice.category in _CALL_CATEGORIES:
            operation = first_operations.get(_parse_int(trace_slice.args.get("correlation")))
            operation_number = 0 if operation is None else operation.correlation_id
            thread = _number_thread(trace_slice, threads)
            source_line = _find_source_line(slice_stack)
            calls.append(
                HostCall(
                    trace_slice.name,
                    trace_slice.start_ns,
                    trace_slice.end_ns,
                    thread,
                    operation_number,
                    source_line,
                )
            )
    return calls, threads


def _find_source_line(stack: list[_Slice]) -> SourceLine | None:
    """Return the innermost function of the user's code in a stack with its first line, or None."""
    for frame in reversed(stack):
        name = frame.name.replace("\\", "/")
        function_match = None if _LIBRARY_FILE_PATTERN.search(name) else _FUNCTION_PATTERN.fullmatch(name)
        if function_match is not None:
            return SourceLine(function_match[1], int(function_match[2]), f"in {function_match[3]}")
    return None


def _number_thread(trace_slice: _Slice, threads: dict[tuple[Any, Any], int]) -> int:
    """Return the number of the thread of a slice. If the file identifies the thread by a name, return a new
    number.
    """
    return threads.setdefault(
        (trace_slice.pid, trace_slice.tid), _parse_int(trace_slice.tid) or len(threads) + 1
    )


def _make_host_waits(calls: list[HostCall], operations: _Operations) -> Iterator[_Wait]:
    """Yield the host's waits: calls that wait, and copies to pageable memory."""
    for call in calls:
        copy_operation = operations.activities[call.correlation_id - 1] if call.correlation_id else None
        is_pageable_copy = (
            copy_operation is not None
            and copy_operation.pinned is False
            and copy_operation.copy_kind == "DtoH"
        )
        if call.name not in _WAIT_TYPES and not (
            copy_operation is not None and is_pageable_copy and copy_operation.end_ns <= call.end_ns
        ):
            continue
        yield (
            Synchronization(
                type=_WAIT_TYPES.get(call.name, "STREAM_SYNCHRONIZE"),
                device_id=0 if copy_operation is None else copy_operation.device_id,
                stream_id=None if copy_operation is None else copy_operation.stream_id,
                start_ns=call.start_ns,
                end_ns=call.end_ns,
                name=call.name,
                after=() if copy_operation is None else (copy_operation.correlation_id,),
                hidden=is_pageable_copy or call.name == "cudaMemcpy",
                source=call.source,
            ),
            0,
        )


def _make_event_waits(slices: list[_Slice], operations: _Operations) -> Iterator[_Wait]:
    """Yield the waits of streams for events, which newer versions of Kineto write."""
    operations_by_stream: dict[int, tuple[list[int], list[int]]] = {}
    for activity, correlation in zip(operations.activities, operations.calls, strict=True):
        correlations, operation_numbers = operations_by_stream.setdefault(activity.stream_id, ([], []))
        correlations.append(correlation)
        operation_numbers.append(activity.correlation_id)
    for trace_slice in slices:
        if trace_slice.category == "cuda_sync" and "Stream Wait Event" in trace_slice.name:
            args = trace_slice.args
            awaited_stream = _parse_int(args.get("wait_on_stream"), -1)
            correlations, operation_numbers = operations_by_stream.get(awaited_stream, ([], []))
            record_index = bisect_left(
                correlations, _parse_int(args.get("wait_on_cuda_event_record_corr_id"))
            )
            yield (
                Synchronization(
                    type="STREAM_WAIT_EVENT",
                    device_id=_parse_int(args.get("device"), _parse_int(trace_slice.pid)),
                    stream_id=_parse_int(args.get("stream"), -1),
                    start_ns=trace_slice.start_ns,
                    end_ns=trace_slice.start_ns,
                    name="cudaStreamWaitEvent",
                    event_id=_parse_int(args.get("wait_on_cuda_event_id")),
                    event_stream_id=awaited_stream,
                    after=tuple(operation_numbers[:record_index][-1:]),
                ),
                _parse_int(args.get("correlation")),
            )


def _sort_operations(operations: _Operations, waits: tuple[_Wait, ...]) -> tuple[Activity, ...]:
    """Return the operations, each with the numbers of the operations that it must follow."""
    pending_waits: dict[tuple[int, int | None], list[_Wait]] = defaultdict(list)
    for wait, correlation in sorted(waits, key=lambda pair: -pair[1]):
        if wait.type == "STREAM_WAIT_EVENT":
            pending_waits[wait.device_id, wait.stream_id].append((wait, correlation))
    last_in_stream: dict[tuple[int, int], Activity] = {}
    sorted_operations = []
    for activity, correlation in zip(operations.activities, operations.calls, strict=True):
        stream_key = (activity.device_id, activity.stream_id)
        previous_operation = last_in_stream.get(stream_key)
        predecessors = (
            []
            if previous_operation is None or previous_operation.end_ns > activity.start_ns
            else [previous_operation.correlation_id]
        )
        while pending_waits[stream_key] and pending_waits[stream_key][-1][1] < correlation:
            predecessors += pending_waits[stream_key].pop()[0].after
        last_in_stream[stream_key] = activity
        sorted_operations.append(replace(activity, after=tuple(dict.fromkeys(predecessors))))
    return tuple(sorted(sorted_operations, key=lambda activity: (activity.start_ns, activity.correlation_id)))


# Other contents


def _make_ranges(slices: list[_Slice], threads: dict[tuple[Any, Any], int]) -> Iterator[NvtxRange]:
    """Yield the slices that are not operations, calls or waits as ranges, with their nesting depth."""
    open_end_times: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for trace_slice in slices:
        if (
            trace_slice.category in _ACTIVITY_KINDS
            or trace_slice.category in _CALL_CATEGORIES
            or trace_slice.category in _OMITTED_CATEGORIES
        ):
            continue
        end_time_stack = open_end_times[trace_slice.pid, trace_slice.tid]
        while end_time_stack and end_time_stack[-1] <= trace_slice.start_ns:
            end_time_stack.pop()
        thread = _number_thread(trace_slice, threads)
        yield NvtxRange(
            name=trace_slice.name,
            color=None,
            start_ns=trace_slice.start_ns,
            end_ns=trace_slice.end_ns,
            thread=thread,
            depth=len(end_time_stack),
            is_mark=trace_slice.is_mark,
        )
        if not trace_slice.is_mark:
            end_time_stack.append(trace_slice.end_ns)


def _make_streams(
    activities: tuple[Activity, ...], tracks: dict[tuple[Any, Any], str]
) -> tuple[StreamInfo, ...]:
    stream_keys = dict.fromkeys((activity.device_id, activity.stream_id) for activity in activities)
    return tuple(StreamInfo(*key, tracks.get(key) or f"stream {key[1]}") for key in stream_keys)


def _make_provenance(header: dict[str, Any], name: str, start_ns: int, tool: str) -> Provenance:
    """Return the provenance: the device that the file names, and the date of the recording if known."""
    devices = header.get("deviceProperties")
    device_names = [_as_dict(device).get("name") for device in devices] if isinstance(devices, list) else []
    distinct_names = list(
        dict.fromkeys(device for device in device_names if isinstance(device, str) and device)
    )
    details = [tool] if distinct_names or "schemaVersion" in header else []
    recorded_ns = max(_parse_int(header.get("baseTimeNanoseconds")) + start_ns, start_ns)
    if _YEAR_2015_NS < recorded_ns < _YEAR_2100_NS:
        details.append(datetime.fromtimestamp(recorded_ns // 10**9, UTC).date().isoformat())
    details.append(f"from {name}")
    return Provenance("recorded", " and ".join(distinct_names[:2]) or "an unnamed device", ", ".join(details))
