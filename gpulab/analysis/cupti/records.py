"""Conversion of CUPTI's records to a timeline: operations, calls, waits and ranges in program order."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulab.analysis.cupti import kinds as cupti
from gpulab.analysis.cupti.layout import read
from gpulab.analysis.cupti.names import kernel_name
from gpulab.analysis.cupti.stream_order import StreamKey, StreamOrder
from virtualgpu.records import Activity
from virtualgpu.records.timeline import (
    ActivityKind,
    CopyKind,
    HostCall,
    NvtxRange,
    SourceLine,
    StreamInfo,
    Synchronization,
    SynchronizationType,
)

# CUpti_ActivityMemcpyKind; copies within the host are not work of a device.
_COPIES: dict[int, CopyKind] = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoD",
    4: "DtoH",
    5: "DtoD",
    6: "DtoD",
    7: "DtoD",
    8: "DtoD",
    10: "PtoP",
}
# CUpti_ActivityMemoryKind
_PAGEABLE = 1
_PINNED = 2
_WAITS: dict[int, SynchronizationType] = {
    1: "EVENT_SYNCHRONIZE",
    2: "STREAM_WAIT_EVENT",
    3: "STREAM_SYNCHRONIZE",
    4: "CONTEXT_SYNCHRONIZE",
}
_NONE = 0xFFFFFFFF
_OF_THREAD = 2  # CUPTI_ACTIVITY_OBJECT_THREAD
# CUpti_ActivityFlag of a marker
_MARK = 1
_BEGIN = 2
_END = 4
_ARGB = 2
_NON_BLOCKING = 2  # CUpti_ActivityStreamFlag
# Calls that wait for the device implicitly, because they free memory that work may still use.
_FREEING = frozenset({"cudaFree", "cudaFreeHost", "cudaHostUnregister"})
# A source line with one of these waits explicitly.
_ASKING = ("synchronize", "get_elapsed_time")

LineOf = Callable[[int, int, str], SourceLine | None]


@dataclass(slots=True)
class Seen:
    """Information about a recording that the host has and CUPTI's records lack.

    ``streams`` are the program's by CUPTI's number. ``threads`` gives Python's identifier of a thread from
    the system's.
    """

    streams: Mapping[int, StreamInfo] = field(default_factory=dict)
    threads: Mapping[int, int] = field(default_factory=dict)
    line: LineOf = lambda thread, time_ns, call: None


@dataclass(slots=True)
class Parts:
    """A timeline's contents. ``unfinished`` counts operations without times."""

    activities: list[Activity] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    synchronizations: list[Synchronization] = field(default_factory=list)
    ranges: list[NvtxRange] = field(default_factory=list)
    streams: list[StreamInfo] = field(default_factory=list)
    unfinished: int = 0
    graphs: bool = False


@dataclass(slots=True)
class _Operation:
    """An activity under construction."""

    kind: ActivityKind
    name: str
    device: int
    stream: StreamKey
    correlation: int
    start: int
    end: int
    rest: dict[str, Any]
    number: int = 0


class Records:
    """Collects the records of a recording and makes the parts of a timeline from them."""

    def __init__(self, call_names: Callable[[int], Mapping[int, str]]) -> None:
        self._call_names = call_names
        self._rows: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self._strings: dict[int, str] = {}

    def add(self, data: memoryview, offsets: list[int]) -> None:
        """Add a buffer of CUPTI; its pointers to names must still be valid."""
        for kind, rows in read(data, offsets).items():
            self._rows[kind] += rows

    def take_events(self, count: int) -> list[int]:
        """Remove the last `count` events; return the streams in which they were recorded, in order."""
        events = sorted(self._rows[cupti.CUDA_EVENT])
        kept = len(events) - count
        self._rows[cupti.CUDA_EVENT] = events[:kept]
        return [stream for _, _, stream, _, _ in events[kept:]]

    def parts(self, seen: Seen) -> Parts:
        parts = Parts()
        operations = self._operations(parts)
        calls = self._calls()
        first: dict[int, _Operation] = {}
        by_correlation: dict[int, list[_Operation]] = defaultdict(list)
        for number, operation in enumerate(operations, 1):
            operation.number = number
            first.setdefault(operation.correlation, operation)
            by_correlation[operation.correlation].append(operation)
        for name, start, end, thread, correlation in calls:
            operation_ = first.get(correlation)
            launched = operation_.name if operation_ and operation_.kind == "CONCURRENT_KERNEL" else name
            source = seen.line(thread, start, launched)
            number = operation_.number if operation_ else 0
            parts.calls.append(HostCall(name, start, end, seen.threads.get(thread, thread), number, source))
        by_call = {call[4]: made for call, made in zip(calls, parts.calls, strict=True)}
        self._streams(parts, operations, seen)
        self._follow(parts, by_correlation, by_call, seen)
        self._hidden(parts, operations, by_call)
        parts.synchronizations.sort(key=lambda wait: wait.start_ns)
        parts.ranges = self._ranges(seen)
        return parts

    # One kind after the other

    def _operations(self, parts: Parts) -> list[_Operation]:
        """Return every operation that has times, in the order of the calls."""
        made: list[_Operation] = []
        for row in self._rows[cupti.CONCURRENT_KERNEL]:
            start, end, device, context, stream, correlation, graph, node, name = row[:9]
            grid = row[9:12]
            block = row[12:15]
            static = row[15]
            dynamic = row[16]
            rest = {
                "grid": grid,
                "block": block,
                "shared_bytes": static + dynamic,
                "graph_id": graph,
                "graph_node_id": node,
                "registers_per_thread": row[17],
            }
            made.append(
                _Operation(
                    "CONCURRENT_KERNEL",
                    kernel_name(self._string(name)),
                    device,
                    (context, stream),
                    correlation,
                    start,
                    end,
                    rest,
                )
            )
        copies = [("MEMCPY", row) for row in self._rows[cupti.MEMCPY]]
        copies += [("MEMCPY2", row) for row in self._rows[cupti.MEMCPY2]]
        for activity, row in copies:
            start, end, device, context, stream, correlation, graph, node, how, source, target, size = row
            copy = "PtoP" if activity == "MEMCPY2" else _COPIES.get(how)
            if copy is None:
                continue
            host = {"HtoD": source, "DtoH": target}.get(copy)
            rest = {
                "size_bytes": size,
                "copy_kind": copy,
                "graph_id": graph,
                "graph_node_id": node,
                "pinned": {_PAGEABLE: False, _PINNED: True}.get(host or 0),
            }
            made.append(
                _Operation(
                    "MEMCPY" if activity == "MEMCPY" else "MEMCPY2",
                    f"memcpy {copy}",
                    device,
                    (context, stream),
                    correlation,
                    start,
                    end,
                    rest,
                )
            )
        for row in self._rows[cupti.MEMSET]:
            start, end, device, context, stream, correlation, graph, node, size = row
            rest = {"size_bytes": size, "graph_id": graph, "graph_node_id": node}
            made.append(
                _Operation("MEMSET", "memset", device, (context, stream), correlation, start, end, rest)
            )
        for kind in (cupti.HOST_LAUNCH, cupti.GRAPH_HOST_NODE):
            for start, end, device, context, stream, correlation, *graph in self._rows[kind]:
                rest = dict(zip(("graph_id", "graph_node_id"), graph, strict=False))
                made.append(
                    _Operation(
                        "HOST_LAUNCH",
                        "host function",
                        device,
                        (context, stream),
                        correlation,
                        start,
                        end,
                        rest,
                    )
                )
        known = [operation for operation in made if operation.start and operation.end]
        parts.unfinished = len(made) - len(known)
        return sorted(known, key=lambda operation: (operation.correlation, operation.start))

    def _calls(self) -> list[tuple[str, int, int, int, int]]:
        """Return name, start, end, thread and correlation of each call; of nested calls the outer one."""
        calls: dict[int, tuple[str, int, int, int, int]] = {}
        for domain, kind in ((cupti.DRIVER_API, cupti.DRIVER), (cupti.RUNTIME_API, cupti.RUNTIME)):
            names = self._call_names(domain)
            for cbid, start, end, thread, correlation in self._rows[kind]:
                if start:
                    calls[correlation] = names.get(cbid, f"call {cbid}"), start, end, thread, correlation
        return sorted(calls.values(), key=lambda call: (call[1], call[4]))

    def _streams(self, parts: Parts, operations: Sequence[_Operation], seen: Seen) -> None:
        created = {stream: (flag, priority) for _, stream, priority, flag in self._rows[cupti.STREAM]}
        own = {operation.stream[1] for operation in operations if not operation.rest.get("graph_id")}
        used = dict.fromkeys((operation.device, operation.stream[1]) for operation in operations)
        for device, stream in sorted(used):
            info = seen.streams.get(stream)
            if info is None:
                flag, priority = created.get(stream, (0, 0))
                # CUPTI gives its priority as an unsigned number.
                priority -= (1 << 32) if priority >= 1 << 31 else 0
                # A graph's branches run in streams of the driver.
                name = f"stream {stream} (destroyed)" if stream in own else f"branch of a graph ({stream})"
                info = StreamInfo(device, stream, name, flag == _NON_BLOCKING, priority)
            parts.streams.append(info)

    def _follow(
        self,
        parts: Parts,
        by_correlation: Mapping[int, list[_Operation]],
        by_call: Mapping[int, HostCall],
        seen: Seen,
    ) -> None:
        """Replay operations, events and waits in the order of the calls."""
        contexts = {
            operation.stream[0]: operation.device for group in by_correlation.values() for operation in group
        }
        non_blocking = {info.stream_id for info in parts.streams if info.non_blocking}
        legacy = {number for number, info in seen.streams.items() if info.name == "default stream"}
        order = StreamOrder(
            legacy={(context, stream) for context in contexts for stream in legacy},
            non_blocking={(context, stream) for context in contexts for stream in non_blocking},
        )
        happened: list[tuple[int, int, Any]] = [
            (correlation, 0, group) for correlation, group in by_correlation.items()
        ]
        happened += [(row[0], 1, row) for row in self._rows[cupti.CUDA_EVENT]]
        happened += [(row[3], 2, row) for row in self._rows[cupti.SYNCHRONIZATION]]
        for correlation, what, item in sorted(happened, key=lambda each: each[:2]):
            if what == 0:
                self._ran(parts, order, item)
            elif what == 1:
                _, context, stream, _, sync = item
                order.record((context, stream), sync)
            else:
                self._waited(parts, order, item, by_call.get(correlation), contexts)

    @staticmethod
    def _ran(parts: Parts, order: StreamOrder, group: list[_Operation]) -> None:
        if group[0].rest.get("graph_id"):
            parts.graphs = True
            spans = sorted(((each.number, each.start, each.end) for each in group), key=lambda span: span[1:])
            after = order.graph(group[0].stream, spans)
        else:
            after = {each.number: order.operation(each.stream, each.number) for each in group}
        for each in group:
            parts.activities.append(
                Activity(
                    kind=each.kind,
                    name=each.name,
                    device_id=each.device,
                    stream_id=each.stream[1],
                    correlation_id=each.number,
                    start_ns=each.start,
                    end_ns=each.end,
                    after=after[each.number],
                    **each.rest,
                )
            )

    @staticmethod
    def _waited(
        parts: Parts,
        order: StreamOrder,
        row: tuple[int, ...],
        call: HostCall | None,
        contexts: Mapping[int, int],
    ) -> None:
        kind, start, end, _, context, stream, event, sync, status = row
        name = call.name if call is not None else ""
        if kind not in _WAITS or status or name.endswith("Query"):
            return
        if not start and call is not None:
            start = call.start_ns
            end = call.end_ns
        device = contexts.get(context, 0)
        waiting = None if stream == _NONE else stream
        event_id = 0 if event == _NONE else event
        source = call.source if call is not None else None
        if _WAITS[kind] == "STREAM_WAIT_EVENT":
            of, after = order.wait((context, stream), sync)
            parts.synchronizations.append(
                Synchronization(
                    type="STREAM_WAIT_EVENT",
                    device_id=device,
                    stream_id=waiting,
                    start_ns=start,
                    end_ns=end,
                    name=name,
                    event_id=event_id,
                    event_stream_id=None if of is None else of[1],
                    after=after,
                    source=source,
                )
            )
            return
        hidden = source is not None and not any(word in source.text for word in _ASKING)
        after = order.frontier((context, stream)) if waiting is not None else ()
        parts.synchronizations.append(
            Synchronization(
                type=_WAITS[kind],
                device_id=device,
                stream_id=waiting,
                start_ns=start,
                end_ns=end,
                name=name,
                event_id=event_id,
                after=after,
                hidden=hidden,
                source=source,
            )
        )

    @staticmethod
    def _hidden(parts: Parts, operations: list[_Operation], by_call: Mapping[int, HostCall]) -> None:
        """Add waits that CUPTI does not report: in copies to pageable memory, in calls that free memory."""
        for each in operations:
            call = by_call.get(each.correlation)
            if call is None or each.kind != "MEMCPY":
                continue
            staged = each.rest["copy_kind"] == "DtoH" and each.rest["pinned"] is False
            if (staged or call.name == "cudaMemcpy") and call.end_ns >= each.end:
                parts.synchronizations.append(
                    Synchronization(
                        type="STREAM_SYNCHRONIZE",
                        device_id=each.device,
                        stream_id=each.stream[1],
                        start_ns=call.start_ns,
                        end_ns=call.end_ns,
                        name=call.name,
                        after=(each.number,),
                        hidden=True,
                        source=call.source,
                    )
                )
        freeing = [(correlation, call) for correlation, call in by_call.items() if call.name in _FREEING]
        told = {(wait.name, wait.start_ns) for wait in parts.synchronizations}
        by_end = sorted(operations, key=lambda each: each.end)
        ends = [each.end for each in by_end]
        for correlation, call in freeing:
            waited_for = [
                each
                for each in by_end[bisect_right(ends, call.start_ns) : bisect_right(ends, call.end_ns)]
                if each.correlation < correlation
            ]
            if waited_for and (call.name, call.start_ns) not in told:
                last = waited_for[-1]
                parts.synchronizations.append(
                    Synchronization(
                        type="CONTEXT_SYNCHRONIZE",
                        device_id=last.device,
                        stream_id=None,
                        start_ns=call.start_ns,
                        end_ns=call.end_ns,
                        name=call.name,
                        after=(last.number,),
                        hidden=True,
                        source=call.source,
                    )
                )

    def _ranges(self, seen: Seen) -> list[NvtxRange]:
        """Return NVTX ranges that ended, and marks. The end of a range refers to it by number only."""
        colors = {number: color for flags, number, color in self._rows[cupti.MARKER_DATA] if flags & _ARGB}
        open_: dict[int, tuple[str, int, int, int]] = {}
        depths: dict[int, int] = defaultdict(int)
        made: list[NvtxRange] = []
        for flags, time, number, object_kind, thread, name, _ in sorted(
            self._rows[cupti.MARKER], key=lambda row: row[1]
        ):
            of = seen.threads.get(thread, thread) if object_kind == _OF_THREAD else 0
            if flags & _MARK:
                made.append(
                    NvtxRange(
                        name=self._string(name),
                        color=colors.get(number),
                        start_ns=time,
                        end_ns=time,
                        thread=of,
                        depth=depths[of],
                        is_mark=True,
                    )
                )
            elif flags & _BEGIN:
                open_[number] = self._string(name), time, of, depths[of]
                depths[of] += 1
            elif number in open_:  # the flag of an end is missing in some versions
                label, start, of, depth = open_.pop(number)
                depths[of] -= 1
                made.append(
                    NvtxRange(
                        name=label,
                        color=colors.get(number),
                        start_ns=start,
                        end_ns=time,
                        thread=of,
                        depth=depth,
                    )
                )
        return sorted(made, key=lambda each: (each.start_ns, each.depth))

    def _string(self, address: int) -> str:
        text = self._strings.get(address)
        if text is None:
            text = ctypes.string_at(address).decode(errors="replace") if address else ""
            self._strings[address] = text
        return text
