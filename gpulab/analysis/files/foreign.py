"""Chrome trace events of other tools: the PyTorch profiler's (Kineto), and any other program's.

Kineto's categories become operations, calls and waits. All other slices become ranges of the host, as NVTX
would mark them. Kineto numbers calls, and an operation has the number of its call; nodes of a graph launch
share one, so operations are numbered anew here, in the order in which they were given.
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

_OPERATIONS: dict[str, ActivityKind] = {
    "kernel": "CONCURRENT_KERNEL",
    "gpu_memcpy": "MEMCPY",
    "gpu_memset": "MEMSET",
}
_CALLS = ("cuda_runtime", "cuda_driver", "runtime", "driver")
# Categories as PyTorch 1.8 to 1.11 wrote them.
_OLD = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
}
_NO_GPU = (
    "It holds no activity of a GPU: record it with torch.profiler.profile(activities=[ProfilerActivity.CPU, "
    "ProfilerActivity.CUDA])."
)
_WAITS: dict[str, SynchronizationType] = {
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
_LEFT_OUT = ("gpu_user_annotation", "cuda_sync", "Trace", "overhead", "python_function", "ac2g", "fwdbwd")
# Functions of Python, as the profiler names them with_stack: `train.py(12): main`; and those that are not the
# user's.
_FUNCTION = re.compile(r"(.+)\((\d{1,9})\): (.+)")
_NOT_THE_USERS = re.compile(r"(?:^|/)(?:torch|site-packages|dist-packages|lib/python\d[^/]*)/|^<")
_WAYS: tuple[CopyKind, ...] = ("HtoD", "DtoH", "DtoD", "PtoP")
_MAX_NS = 1 << 61
_YEAR_2015_NS = 1_420_070_400 * 10**9
_YEAR_2100_NS = 4_102_444_800 * 10**9
# Slices begun and not ended yet, on a track and in all; tracks with a name.
_MAX_DEPTH_OF_B = 10_000
_MAX_OPEN = 200_000
_MAX_TRACKS = 100_000
_MOST_LETTERS = 20
_MOST_LOST = 1_000_000
_FACTS = (
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
    name: str
    category: str
    start_ns: int
    end_ns: int
    pid: Any
    tid: Any
    args: dict[str, Any]
    is_mark: bool = False


@dataclass(slots=True)
class Found:
    """Contents of a file: slices, the names of tracks, and the numbers of events that were left out.

    ``later``: they begin later than the first `most`. ``lost``: they have no time or name.
    ``timeless``: their duration is negative, or it is zero and that of an operation.
    """

    most: int
    slices: list[_Slice] = field(default_factory=list)
    tracks: dict[tuple[Any, Any], str] = field(default_factory=dict)
    met: int = 0
    later: int = 0
    lost: int = 0
    timeless: int = 0
    until_ns: float = math.inf

    def cut(self) -> None:
        """Remove all slices except the first ones."""
        if len(self.slices) > self.most:
            self.slices.sort(key=lambda each: each.start_ns)
            self.later += len(self.slices) - self.most
            del self.slices[self.most :]
            self.until_ns = self.slices[-1].start_ns


def timeline(found: Found, about: dict[str, Any], name: str) -> Timeline:
    """Build the timeline of a file's events and its other contents.

    Raises
    ------
    TraceFormatError
        If no event has a time.
    """
    if not found.slices and found.timeless:
        raise TraceFormatError(f"{name} holds no timeline: {_timeless(found)}")
    if not found.slices:
        raise TraceFormatError(
            f"{name} holds no timeline: none of its {count(found.met, 'event')} has a time."
        )
    base = min(each.start_ns for each in found.slices)
    found.slices.sort(key=lambda each: (each.start_ns, -each.end_ns))
    operations = _operations(found.slices)
    calls, threads = _calls(found.slices, operations)
    waits = (*_host_waits(calls, operations), *_event_waits(found.slices, operations))
    activities = _ordered(operations, waits)
    end = max(each.end_ns for each in found.slices)
    return Timeline(
        provenance=_origin(about, name, base),
        method="file",
        start_ns=base,
        end_ns=end,
        activities=activities,
        calls=tuple(calls),
        synchronizations=tuple(wait for wait, _ in waits),
        ranges=tuple(_ranges(found.slices, threads)),
        streams=_streams(activities, found.tracks),
        note=_note(found, name, bool(activities)),
    )


def _timeless(found: Found) -> str:
    events = f"{count(found.timeless, 'event')} with a duration of zero or less"
    return f"{events} {noun(found.timeless, 'was', 'were')} left out."


def _note(found: Found, name: str, has_operations: bool) -> str:
    """Return a note about the parts of the file that are not in the timeline."""
    words = []
    of_torch = any(each.category in (*_CALLS, "cpu_op") for each in found.slices)
    if not has_operations and of_torch:
        words.append(_NO_GPU)
    if found.timeless:
        words.append(_timeless(found))
    if found.later:
        first = len(found.slices)
        words.append(
            f"The first {first:,} of {count(first + found.later, 'event')}; "
            f"gl.open_timeline({name!r}, most_events={first + found.later}) reads all, and takes long."
        )
    if found.lost:
        lost = f"{count(found.lost, 'event')} without a time or name {noun(found.lost, 'was', 'were')}"
        words.append(f"{lost} left out.")
    return " ".join(words)


# Events


def read(events: Iterable[Any], most: int, name: str) -> Found:
    """Read events, and keep the first `most` of them by time.

    Raises
    ------
    TraceFormatError
        If a million of them have no time or name.
    """
    found = Found(most)
    opened: dict[tuple[Any, Any], list[tuple[Any, ...]]] = defaultdict(list)
    open_now = 0
    for event in events:
        found.met += 1
        phase = event.get("ph") if isinstance(event, dict) else None
        if phase == "M":
            _track_name(event, found)
        elif phase in ("X", "B", "E", "i", "I", "R"):
            key = _key(event)
            time_ns = _ns(event.get("ts"))
            if time_ns is None or key is None:
                found.lost += 1
            elif phase == "B":
                if len(opened[key]) < _MAX_DEPTH_OF_B and open_now < _MAX_OPEN:
                    opened[key].append((event.get("name"), event.get("cat"), time_ns, _facts(event)))
                    open_now += 1
            elif phase == "E":
                if opened[key]:
                    name, category, begun_ns, args = opened[key].pop()
                    open_now -= 1
                    _add(found, name, category, key, begun_ns, time_ns, {**args, **_facts(event)})
                else:
                    found.lost += 1
            else:
                length_ns = _ns(event.get("dur", 0)) if phase == "X" else 0
                end_ns = None if length_ns is None else time_ns + length_ns
                args = _facts(event)
                _add(found, event.get("name"), event.get("cat"), key, time_ns, end_ns, args, phase != "X")
        elif phase is None:
            found.lost += 1
        if found.lost > _MOST_LOST:
            raise TraceFormatError(f"{name} holds more than {_MOST_LOST:,} events without a time or name.")
    found.lost += sum(map(len, opened.values()))
    found.cut()
    return found


def _facts(event: dict[str, Any]) -> dict[str, Any]:
    """Return the needed arguments of an event; others are dropped because they may be large."""
    args = event.get("args")
    if not isinstance(args, dict):
        return {}
    return {key: args[key] for key in _FACTS if key in args and _is_small(args[key])}


def _is_small(value: Any) -> bool:
    """Return whether a value is a number, perhaps as text, or a list of three integers."""
    if isinstance(value, list):
        return len(value) == 3 and all(isinstance(each, int) for each in value)
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= _MOST_LETTERS)


def _add(
    found: Found,
    name: Any,
    category: Any,
    key: tuple[Any, Any],
    start_ns: int,
    end_ns: int | None,
    args: dict[str, Any],
    is_mark: bool = False,
) -> None:
    category = _OLD.get(category, category) if isinstance(category, str) else ""
    if end_ns is None or not isinstance(name, str):
        found.lost += 1
    elif end_ns < start_ns or (end_ns == start_ns and category in _OPERATIONS):
        found.timeless += 1
    elif start_ns > found.until_ns:
        found.later += 1
    else:
        found.slices.append(_Slice(name, category, start_ns, end_ns, *key, args, is_mark))
        if len(found.slices) >= 2 * found.most:
            found.cut()


def _key(event: dict[str, Any]) -> tuple[Any, Any] | None:
    pid = event.get("pid", 0)
    tid = event.get("tid", 0)
    return (pid, tid) if isinstance(pid, (int, str)) and isinstance(tid, (int, str)) else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _ns(time_us: Any) -> int | None:
    """Return a time in ns of one in µs, which some tools write as text; None if it is not a time."""
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


def _int(value: Any, otherwise: int = 0) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NS
    return value if fits else otherwise


def _track_name(event: dict[str, Any], found: Found) -> None:
    key = _key(event)
    named = _dict(event.get("args")).get("name")
    room = len(found.tracks) < _MAX_TRACKS
    if event.get("name") == "thread_name" and key is not None and isinstance(named, str) and room:
        found.tracks[key] = named.strip()


# Operations, calls and waits

# Each wait with the number of its call, by which it is ordered among the operations.
_Wait = tuple[Synchronization, int]


@dataclass(slots=True)
class _Operations:
    """Operations in the order in which they were issued, numbered from 1, with their calls' numbers."""

    activities: list[Activity] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def first_of(self) -> dict[int, Activity]:
        """Return the first operation of each call."""
        found: dict[int, Activity] = {}
        for activity, call in zip(self.activities, self.calls, strict=True):
            if call:
                found.setdefault(call, activity)
        return found


def _operations(slices: list[_Slice]) -> _Operations:
    ran = [(_int(each.args.get("correlation")), each) for each in slices if each.category in _OPERATIONS]
    ran.sort(key=lambda pair: (pair[0], pair[1].start_ns))
    return _Operations(
        [_activity(each, number) for number, (_, each) in enumerate(ran, 1)], [call for call, _ in ran]
    )


def _activity(each: _Slice, number: int) -> Activity:
    args = each.args
    kind = _OPERATIONS[each.category]
    copied = next((way for way in _WAYS if way in each.name), None) if kind == "MEMCPY" else None
    # Kineto names both ends of a copy: Memcpy HtoD (Pageable -> Device).
    pinned = False if "Pageable" in each.name else True if "Pinned" in each.name else None
    return Activity(
        kind="MEMCPY2" if copied == "PtoP" else kind,
        name=each.name,
        device_id=_int(args.get("device"), _int(each.pid)),
        stream_id=_int(args.get("stream"), _int(each.tid)),
        correlation_id=number,
        start_ns=each.start_ns,
        end_ns=each.end_ns,
        size_bytes=_int(args.get("bytes")),
        copy_kind=copied,
        pinned=pinned if copied in ("HtoD", "DtoH") else None,
        grid=_dim3(args.get("grid")),
        block=_dim3(args.get("block")),
        shared_bytes=_int(args.get("shared memory")),
        graph_id=_int(args.get("graph id")),
        graph_node_id=_int(args.get("graph node id")),
        registers_per_thread=_int(args.get("registers per thread")),
    )


def _dim3(value: Any) -> Dim3 | None:
    if isinstance(value, list) and len(value) == 3 and all(isinstance(n, int) and n > 0 for n in value):
        return (value[0], value[1], value[2])
    return None


def _calls(
    slices: list[_Slice], operations: _Operations
) -> tuple[list[HostCall], dict[tuple[Any, Any], int]]:
    """Return the calls, each with the number of the first operation it issued, and the thread numbers."""
    first = operations.first_of()
    calls = []
    threads: dict[tuple[Any, Any], int] = {}
    frames: dict[tuple[Any, Any], list[_Slice]] = defaultdict(list)
    for each in slices:
        stack = frames[each.pid, each.tid]
        while stack and stack[-1].end_ns <= each.start_ns:
            stack.pop()
        if each.category == "python_function":
            stack.append(each)
        elif each.category in _CALLS:
            given = first.get(_int(each.args.get("correlation")))
            number = 0 if given is None else given.correlation_id
            thread = _thread(each, threads)
            source = _source(stack)
            calls.append(HostCall(each.name, each.start_ns, each.end_ns, thread, number, source))
    return calls, threads


def _source(stack: list[_Slice]) -> SourceLine | None:
    """Return the innermost function of the user, with the line where it begins."""
    for each in reversed(stack):
        name = each.name.replace("\\", "/")
        parts = None if _NOT_THE_USERS.search(name) else _FUNCTION.fullmatch(name)
        if parts is not None:
            return SourceLine(parts[1], int(parts[2]), f"in {parts[3]}")
    return None


def _thread(each: _Slice, threads: dict[tuple[Any, Any], int]) -> int:
    """Return the thread's number, or a new number if the file identifies the thread by a name."""
    return threads.setdefault((each.pid, each.tid), _int(each.tid) or len(threads) + 1)


def _host_waits(calls: list[HostCall], operations: _Operations) -> Iterator[_Wait]:
    """Yield the host's waits, from calls that wait and from copies to pageable memory."""
    for call in calls:
        copy = operations.activities[call.correlation_id - 1] if call.correlation_id else None
        pageable = copy is not None and copy.pinned is False and copy.copy_kind == "DtoH"
        if call.name not in _WAITS and not (copy is not None and pageable and copy.end_ns <= call.end_ns):
            continue
        yield (
            Synchronization(
                type=_WAITS.get(call.name, "STREAM_SYNCHRONIZE"),
                device_id=0 if copy is None else copy.device_id,
                stream_id=None if copy is None else copy.stream_id,
                start_ns=call.start_ns,
                end_ns=call.end_ns,
                name=call.name,
                after=() if copy is None else (copy.correlation_id,),
                hidden=pageable or call.name == "cudaMemcpy",
                source=call.source,
            ),
            0,
        )


def _event_waits(slices: list[_Slice], operations: _Operations) -> Iterator[_Wait]:
    """Yield the streams' waits for events, which newer versions of Kineto write."""
    by_stream: dict[int, tuple[list[int], list[int]]] = {}
    for activity, call in zip(operations.activities, operations.calls, strict=True):
        calls, numbers = by_stream.setdefault(activity.stream_id, ([], []))
        calls.append(call)
        numbers.append(activity.correlation_id)
    for each in slices:
        if each.category == "cuda_sync" and "Stream Wait Event" in each.name:
            args = each.args
            awaited = _int(args.get("wait_on_stream"), -1)
            calls, numbers = by_stream.get(awaited, ([], []))
            before = bisect_left(calls, _int(args.get("wait_on_cuda_event_record_corr_id")))
            yield (
                Synchronization(
                    type="STREAM_WAIT_EVENT",
                    device_id=_int(args.get("device"), _int(each.pid)),
                    stream_id=_int(args.get("stream"), -1),
                    start_ns=each.start_ns,
                    end_ns=each.start_ns,
                    name="cudaStreamWaitEvent",
                    event_id=_int(args.get("wait_on_cuda_event_id")),
                    event_stream_id=awaited,
                    after=tuple(numbers[:before][-1:]),
                ),
                _int(args.get("correlation")),
            )


def _ordered(operations: _Operations, waits: tuple[_Wait, ...]) -> tuple[Activity, ...]:
    """Return the operations, each with the numbers of the operations that it must follow."""
    pending: dict[tuple[int, int | None], list[_Wait]] = defaultdict(list)
    for wait, call in sorted(waits, key=lambda pair: -pair[1]):
        if wait.type == "STREAM_WAIT_EVENT":
            pending[wait.device_id, wait.stream_id].append((wait, call))
    last: dict[tuple[int, int], Activity] = {}
    found = []
    for activity, call in zip(operations.activities, operations.calls, strict=True):
        key = (activity.device_id, activity.stream_id)
        previous = last.get(key)
        after = [] if previous is None or previous.end_ns > activity.start_ns else [previous.correlation_id]
        while pending[key] and pending[key][-1][1] < call:
            after += pending[key].pop()[0].after
        last[key] = activity
        found.append(replace(activity, after=tuple(dict.fromkeys(after))))
    return tuple(sorted(found, key=lambda activity: (activity.start_ns, activity.correlation_id)))


# Other contents


def _ranges(slices: list[_Slice], threads: dict[tuple[Any, Any], int]) -> Iterator[NvtxRange]:
    """Yield all other slices as ranges, with their nesting depth on their track."""
    open_until: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for each in slices:
        if each.category in _OPERATIONS or each.category in _CALLS or each.category in _LEFT_OUT:
            continue
        stack = open_until[each.pid, each.tid]
        while stack and stack[-1] <= each.start_ns:
            stack.pop()
        thread = _thread(each, threads)
        yield NvtxRange(
            name=each.name,
            color=None,
            start_ns=each.start_ns,
            end_ns=each.end_ns,
            thread=thread,
            depth=len(stack),
            is_mark=each.is_mark,
        )
        if not each.is_mark:
            stack.append(each.end_ns)


def _streams(activities: tuple[Activity, ...], tracks: dict[tuple[Any, Any], str]) -> tuple[StreamInfo, ...]:
    keys = dict.fromkeys((a.device_id, a.stream_id) for a in activities)
    return tuple(StreamInfo(*key, tracks.get(key) or f"stream {key[1]}") for key in keys)


def _origin(about: dict[str, Any], name: str, start_ns: int) -> Provenance:
    """Return the device that the file names, and the time of the recording if it is known."""
    devices = about.get("deviceProperties")
    names = [_dict(device).get("name") for device in devices] if isinstance(devices, list) else []
    known = list(dict.fromkeys(device for device in names if isinstance(device, str) and device))
    details = ["PyTorch profiler"] if known or "schemaVersion" in about else []
    recorded_ns = max(_int(about.get("baseTimeNanoseconds")) + start_ns, start_ns)
    if _YEAR_2015_NS < recorded_ns < _YEAR_2100_NS:
        details.append(datetime.fromtimestamp(recorded_ns // 10**9, UTC).date().isoformat())
    details.append(f"from {name}")
    return Provenance("recorded", " and ".join(known[:2]) or "a device it does not name", ", ".join(details))
