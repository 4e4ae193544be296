"""Conversion of CUPTI's records to a timeline: operations, calls, waits and ranges in program order."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulab.analysis.cupti import kinds as cupti
from gpulab.analysis.cupti.layout import read_records
from gpulab.analysis.cupti.names import shorten_kernel_name
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
_COPY_KINDS: dict[int, CopyKind] = {
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
_PAGEABLE_MEMORY = 1
_PINNED_MEMORY = 2
_WAIT_TYPES: dict[int, SynchronizationType] = {
    1: "EVENT_SYNCHRONIZE",
    2: "STREAM_WAIT_EVENT",
    3: "STREAM_SYNCHRONIZE",
    4: "CONTEXT_SYNCHRONIZE",
}
_NO_ID = 0xFFFFFFFF
_THREAD_OBJECT_KIND = 2  # CUPTI_ACTIVITY_OBJECT_THREAD
# CUpti_ActivityFlag of a marker
_INSTANT_FLAG = 1
_START_FLAG = 2
_END_FLAG = 4
_ARGB_FORMAT = 2
_NON_BLOCKING_FLAG = 2  # CUpti_ActivityStreamFlag
# Calls that wait for the device implicitly, because they free memory that work may still use.
_FREEING_CALLS = frozenset({"cudaFree", "cudaFreeHost", "cudaHostUnregister"})
# A source line with one of these waits explicitly.
_WAITING_WORDS = ("synchronize", "get_elapsed_time")

FindLine = Callable[[int, int, str], SourceLine | None]


@dataclass(slots=True)
class HostInfo:
    """Information about a recording that the host collects because CUPTI does not provide it.

    The attribute ``streams`` contains the program's streams by CUPTI number. ``threads`` maps the system's
    identifier of a thread to Python's. ``find_line`` returns the source line of a call of a thread at a time.
    """

    streams: Mapping[int, StreamInfo] = field(default_factory=dict)
    threads: Mapping[int, int] = field(default_factory=dict)
    find_line: FindLine = lambda thread, time_ns, call: None


@dataclass(slots=True)
class TimelineParts:
    """The parts of a timeline that is built from CUPTI records. The attribute ``unfinished_count`` is the
    number of operations without times.
    """

    activities: list[Activity] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    synchronizations: list[Synchronization] = field(default_factory=list)
    ranges: list[NvtxRange] = field(default_factory=list)
    streams: list[StreamInfo] = field(default_factory=list)
    unfinished_count: int = 0
    has_graphs: bool = False


@dataclass(slots=True)
class _Operation:
    """An operation of a timeline before its predecessors are known."""

    kind: ActivityKind
    name: str
    device_id: int
    stream: StreamKey
    correlation: int
    start_ns: int
    end_ns: int
    activity_fields: dict[str, Any]
    number: int = 0


class Records:
    """A collection of the CUPTI records of a recording, from which a timeline is built."""

    def __init__(self, call_names: Callable[[int], Mapping[int, str]]) -> None:
        self._call_names = call_names
        self._rows_of_kind: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self._strings: dict[int, str] = {}

    def add_buffer(self, data: memoryview, offsets: list[int]) -> None:
        """Add the records of one CUPTI buffer. The pointers to names in this buffer must still be valid."""
        for record_kind, rows in read_records(data, offsets).items():
            self._rows_of_kind[record_kind] += rows

    def take_events(self, count: int) -> list[int]:
        """Remove the last `count` CUDA events from the records, and return the streams in which they were
        recorded.
        """
        event_records = sorted(self._rows_of_kind[cupti.CUDA_EVENT])
        remaining_count = len(event_records) - count
        self._rows_of_kind[cupti.CUDA_EVENT] = event_records[:remaining_count]
        return [stream for _, _, stream, _, _ in event_records[remaining_count:]]

    def make_timeline_parts(self, host_info: HostInfo) -> TimelineParts:
        """Build the parts of a timeline from all CUPTI records."""
        timeline_parts = TimelineParts()
        operations = self._read_operations(timeline_parts)
        calls = self._read_calls()
        first_operation_of_call: dict[int, _Operation] = {}
        operations_by_call: dict[int, list[_Operation]] = defaultdict(list)
        for operation_number, operation in enumerate(operations, 1):
            operation.number = operation_number
            first_operation_of_call.setdefault(operation.correlation, operation)
            operations_by_call[operation.correlation].append(operation)
        for name, start_ns, end_ns, thread, correlation in calls:
            first_operation = first_operation_of_call.get(correlation)
            display_name = (
                first_operation.name
                if first_operation and first_operation.kind == "CONCURRENT_KERNEL"
                else name
            )
            source_line = host_info.find_line(thread, start_ns, display_name)
            operation_number = first_operation.number if first_operation else 0
            timeline_parts.calls.append(
                HostCall(
                    name,
                    start_ns,
                    end_ns,
                    host_info.threads.get(thread, thread),
                    operation_number,
                    source_line,
                )
            )
        host_call_of = {
            call_row[4]: host_call for call_row, host_call in zip(calls, timeline_parts.calls, strict=True)
        }
        self._add_streams(timeline_parts, operations, host_info)
        self._replay_calls(timeline_parts, operations_by_call, host_call_of, host_info)
        self._add_hidden_waits(timeline_parts, operations, host_call_of)
        timeline_parts.synchronizations.sort(key=lambda wait: wait.start_ns)
        timeline_parts.ranges = self._read_ranges(host_info)
        return timeline_parts

    # One kind after the other

    def _read_operations(self, timeline_parts: TimelineParts) -> list[_Operation]:
        """Return the operations that have times, in the order of the calls."""
        operations: list[_Operation] = []
        for row in self._rows_of_kind[cupti.CONCURRENT_KERNEL]:
            start_ns, end_ns, device, context_id, stream, correlation, graph_id, node_id, name = row[:9]
            grid = row[9:12]
            block = row[12:15]
            static_shared = row[15]
            dynamic_shared = row[16]
            activity_fields = {
                "grid": grid,
                "block": block,
                "shared_bytes": static_shared + dynamic_shared,
                "graph_id": graph_id,
                "graph_node_id": node_id,
                "registers_per_thread": row[17],
            }
            operations.append(
                _Operation(
                    "CONCURRENT_KERNEL",
                    shorten_kernel_name(self._read_string(name)),
                    device,
                    (context_id, stream),
                    correlation,
                    start_ns,
                    end_ns,
                    activity_fields,
                )
            )
        copies = [("MEMCPY", row) for row in self._rows_of_kind[cupti.MEMCPY]]
        copies += [("MEMCPY2", row) for row in self._rows_of_kind[cupti.MEMCPY2]]
        for kind_name, row in copies:
            (
                start_ns,
                end_ns,
                device,
                context_id,
                stream,
                correlation,
                graph_id,
                node_id,
                direction,
                source_memory,
                target_memory,
                size_bytes,
            ) = row
            copy_kind = "PtoP" if kind_name == "MEMCPY2" else _COPY_KINDS.get(direction)
            if copy_kind is None:
                continue
            host_memory = {"HtoD": source_memory, "DtoH": target_memory}.get(copy_kind)
            activity_fields = {
                "size_bytes": size_bytes,
                "copy_kind": copy_kind,
                "graph_id": graph_id,
                "graph_node_id": node_id,
                "pinned": {_PAGEABLE_MEMORY: False, _PINNED_MEMORY: True}.get(host_memory or 0),
            }
            operations.append(
                _Operation(
                    "MEMCPY" if kind_name == "MEMCPY" else "MEMCPY2",
                    f"memcpy {copy_kind}",
                    device,
                    (context_id, stream),
                    correlation,
                    start_ns,
                    end_ns,
                    activity_fields,
                )
            )
        for row in self._rows_of_kind[cupti.MEMSET]:
            start_ns, end_ns, device, context_id, stream, correlation, graph_id, node_id, size_bytes = row
            activity_fields = {"size_bytes": size_bytes, "graph_id": graph_id, "graph_node_id": node_id}
            operations.append(
                _Operation(
                    "MEMSET",
                    "memset",
                    device,
                    (context_id, stream),
                    correlation,
                    start_ns,
                    end_ns,
                    activity_fields,
                )
            )
        for record_kind in (cupti.HOST_LAUNCH, cupti.GRAPH_HOST_NODE):
            for start_ns, end_ns, device, context_id, stream, correlation, *graph_ids in self._rows_of_kind[
                record_kind
            ]:
                activity_fields = dict(zip(("graph_id", "graph_node_id"), graph_ids, strict=False))
                operations.append(
                    _Operation(
                        "HOST_LAUNCH",
                        "host function",
                        device,
                        (context_id, stream),
                        correlation,
                        start_ns,
                        end_ns,
                        activity_fields,
                    )
                )
        complete_operations = [
            operation for operation in operations if operation.start_ns and operation.end_ns
        ]
        timeline_parts.unfinished_count = len(operations) - len(complete_operations)
        return sorted(complete_operations, key=lambda operation: (operation.correlation, operation.start_ns))

    def _read_calls(self) -> list[tuple[str, int, int, int, int]]:
        """Return name, start, end, thread and correlation of each call, without calls nested in others."""
        calls: dict[int, tuple[str, int, int, int, int]] = {}
        for api_domain, record_kind in ((cupti.DRIVER_API, cupti.DRIVER), (cupti.RUNTIME_API, cupti.RUNTIME)):
            names = self._call_names(api_domain)
            for cbid, start_ns, end_ns, thread, correlation in self._rows_of_kind[record_kind]:
                if start_ns:
                    calls[correlation] = (
                        names.get(cbid, f"call {cbid}"),
                        start_ns,
                        end_ns,
                        thread,
                        correlation,
                    )
        return sorted(calls.values(), key=lambda call: (call[1], call[4]))

    def _add_streams(
        self, timeline_parts: TimelineParts, operations: Sequence[_Operation], host_info: HostInfo
    ) -> None:
        """Add the streams that operations used. A stream that the driver created is named as a branch of a
        graph.
        """
        created_streams = {
            stream: (flag, priority) for _, stream, priority, flag in self._rows_of_kind[cupti.STREAM]
        }
        program_streams = {
            operation.stream[1] for operation in operations if not operation.activity_fields.get("graph_id")
        }
        used_streams = dict.fromkeys((operation.device_id, operation.stream[1]) for operation in operations)
        for device, stream in sorted(used_streams):
            stream_info = host_info.streams.get(stream)
            if stream_info is None:
                flag, priority = created_streams.get(stream, (0, 0))
                # CUPTI stores the priority as an unsigned number.
                priority -= (1 << 32) if priority >= 1 << 31 else 0
                # A graph's branches run in streams of the driver.
                stream_name = (
                    f"stream {stream} (destroyed)"
                    if stream in program_streams
                    else f"branch of a graph ({stream})"
                )
                stream_info = StreamInfo(device, stream, stream_name, flag == _NON_BLOCKING_FLAG, priority)
            timeline_parts.streams.append(stream_info)

    def _replay_calls(
        self,
        timeline_parts: TimelineParts,
        operations_by_call: Mapping[int, list[_Operation]],
        host_call_of: Mapping[int, HostCall],
        host_info: HostInfo,
    ) -> None:
        """Replay the calls in order, and add operations and waits with their predecessors."""
        contexts = {
            operation.stream[0]: operation.device_id
            for operations in operations_by_call.values()
            for operation in operations
        }
        non_blocking_numbers = {
            stream_info.stream_id for stream_info in timeline_parts.streams if stream_info.non_blocking
        }
        legacy_numbers = {
            stream_number
            for stream_number, stream_info in host_info.streams.items()
            if stream_info.name == "default stream"
        }
        stream_order = StreamOrder(
            legacy_streams={(context, stream) for context in contexts for stream in legacy_numbers},
            non_blocking_streams={
                (context, stream) for context in contexts for stream in non_blocking_numbers
            },
        )
        ordered_acts: list[tuple[int, int, Any]] = [
            (correlation, 0, operations) for correlation, operations in operations_by_call.items()
        ]
        ordered_acts += [(row[0], 1, row) for row in self._rows_of_kind[cupti.CUDA_EVENT]]
        ordered_acts += [(row[3], 2, row) for row in self._rows_of_kind[cupti.SYNCHRONIZATION]]
        for correlation, act_type, act_record in sorted(ordered_acts, key=lambda act: act[:2]):
            if act_type == 0:
                self._add_operations(timeline_parts, stream_order, act_record)
            elif act_type == 1:
                _, context, stream, _, sync_id = act_record
                stream_order.record_event((context, stream), sync_id)
            else:
                self._add_wait(
                    timeline_parts, stream_order, act_record, host_call_of.get(correlation), contexts
                )

    @staticmethod
    def _add_operations(
        timeline_parts: TimelineParts, stream_order: StreamOrder, call_operations: list[_Operation]
    ) -> None:
        if call_operations[0].activity_fields.get("graph_id"):
            timeline_parts.has_graphs = True
            node_spans = sorted(
                ((operation.number, operation.start_ns, operation.end_ns) for operation in call_operations),
                key=lambda span: span[1:],
            )
            predecessors = stream_order.add_graph(call_operations[0].stream, node_spans)
        else:
            predecessors = {
                operation.number: stream_order.add_operation(operation.stream, operation.number)
                for operation in call_operations
            }
        for operation in call_operations:
            timeline_parts.activities.append(
                Activity(
                    kind=operation.kind,
                    name=operation.name,
                    device_id=operation.device_id,
                    stream_id=operation.stream[1],
                    correlation_id=operation.number,
                    start_ns=operation.start_ns,
                    end_ns=operation.end_ns,
                    after=predecessors[operation.number],
                    **operation.activity_fields,
                )
            )

    @staticmethod
    def _add_wait(
        timeline_parts: TimelineParts,
        stream_order: StreamOrder,
        row: tuple[int, ...],
        call: HostCall | None,
        contexts: Mapping[int, int],
    ) -> None:
        wait_kind, start_ns, end_ns, _, context, stream, event, sync_id, error_status = row
        call_name = call.name if call is not None else ""
        if wait_kind not in _WAIT_TYPES or error_status or call_name.endswith("Query"):
            return
        if not start_ns and call is not None:
            start_ns = call.start_ns
            end_ns = call.end_ns
        device = contexts.get(context, 0)
        waiting_stream = None if stream == _NO_ID else stream
        event_id = 0 if event == _NO_ID else event
        source_line = call.source if call is not None else None
        if _WAIT_TYPES[wait_kind] == "STREAM_WAIT_EVENT":
            event_stream, predecessors = stream_order.add_event_wait((context, stream), sync_id)
            timeline_parts.synchronizations.append(
                Synchronization(
                    type="STREAM_WAIT_EVENT",
                    device_id=device,
                    stream_id=waiting_stream,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    name=call_name,
                    event_id=event_id,
                    event_stream_id=None if event_stream is None else event_stream[1],
                    after=predecessors,
                    source=source_line,
                )
            )
            return
        is_hidden = source_line is not None and not any(
            waiting_word in source_line.text for waiting_word in _WAITING_WORDS
        )
        predecessors = stream_order.find_frontier((context, stream)) if waiting_stream is not None else ()
        timeline_parts.synchronizations.append(
            Synchronization(
                type=_WAIT_TYPES[wait_kind],
                device_id=device,
                stream_id=waiting_stream,
                start_ns=start_ns,
                end_ns=end_ns,
                name=call_name,
                event_id=event_id,
                after=predecessors,
                hidden=is_hidden,
                source=source_line,
            )
        )

    @staticmethod
    def _add_hidden_waits(
        timeline_parts: TimelineParts, operations: list[_Operation], host_call_of: Mapping[int, HostCall]
    ) -> None:
        """Add waits that CUPTI does not report: copies to pageable memory, and calls that free memory."""
        for operation in operations:
            call = host_call_of.get(operation.correlation)
            if call is None or operation.kind != "MEMCPY":
                continue
            is_staged = (
                operation.activity_fields["copy_kind"] == "DtoH"
                and operation.activity_fields["pinned"] is False
            )
            if (is_staged or call.name == "cudaMemcpy") and call.end_ns >= operation.end_ns:
                timeline_parts.synchronizations.append(
                    Synchronization(
                        type="STREAM_SYNCHRONIZE",
                        device_id=operation.device_id,
                        stream_id=operation.stream[1],
                        start_ns=call.start_ns,
                        end_ns=call.end_ns,
                        name=call.name,
                        after=(operation.number,),
                        hidden=True,
                        source=call.source,
                    )
                )
        freeing_calls = [
            (correlation, call) for correlation, call in host_call_of.items() if call.name in _FREEING_CALLS
        ]
        reported_waits = {(wait.name, wait.start_ns) for wait in timeline_parts.synchronizations}
        operations_by_end = sorted(operations, key=lambda operation: operation.end_ns)
        end_times = [operation.end_ns for operation in operations_by_end]
        for correlation, call in freeing_calls:
            awaited_operations = [
                operation
                for operation in operations_by_end[
                    bisect_right(end_times, call.start_ns) : bisect_right(end_times, call.end_ns)
                ]
                if operation.correlation < correlation
            ]
            if awaited_operations and (call.name, call.start_ns) not in reported_waits:
                last_operation = awaited_operations[-1]
                timeline_parts.synchronizations.append(
                    Synchronization(
                        type="CONTEXT_SYNCHRONIZE",
                        device_id=last_operation.device_id,
                        stream_id=None,
                        start_ns=call.start_ns,
                        end_ns=call.end_ns,
                        name=call.name,
                        after=(last_operation.number,),
                        hidden=True,
                        source=call.source,
                    )
                )

    def _read_ranges(self, host_info: HostInfo) -> list[NvtxRange]:
        """Return the finished NVTX ranges and the NVTX marks. The record of the end of a range contains only
        the number of the range.
        """
        color_of_range = {
            range_number: color
            for flags, range_number, color in self._rows_of_kind[cupti.MARKER_DATA]
            if flags & _ARGB_FORMAT
        }
        open_ranges: dict[int, tuple[str, int, int, int]] = {}
        depth_of_thread: dict[int, int] = defaultdict(int)
        nvtx_ranges: list[NvtxRange] = []
        for flags, time_ns, range_number, object_kind, thread, name, _ in sorted(
            self._rows_of_kind[cupti.MARKER], key=lambda row: row[1]
        ):
            owner_thread = host_info.threads.get(thread, thread) if object_kind == _THREAD_OBJECT_KIND else 0
            if flags & _INSTANT_FLAG:
                nvtx_ranges.append(
                    NvtxRange(
                        name=self._read_string(name),
                        color=color_of_range.get(range_number),
                        start_ns=time_ns,
                        end_ns=time_ns,
                        thread=owner_thread,
                        depth=depth_of_thread[owner_thread],
                        is_mark=True,
                    )
                )
            elif flags & _START_FLAG:
                open_ranges[range_number] = (
                    self._read_string(name),
                    time_ns,
                    owner_thread,
                    depth_of_thread[owner_thread],
                )
                depth_of_thread[owner_thread] += 1
            elif range_number in open_ranges:  # the flag of an end is missing in some versions
                range_name, start_ns, owner_thread, depth = open_ranges.pop(range_number)
                depth_of_thread[owner_thread] -= 1
                nvtx_ranges.append(
                    NvtxRange(
                        name=range_name,
                        color=color_of_range.get(range_number),
                        start_ns=start_ns,
                        end_ns=time_ns,
                        thread=owner_thread,
                        depth=depth,
                    )
                )
        return sorted(nvtx_ranges, key=lambda marker: (marker.start_ns, marker.depth))

    def _read_string(self, address: int) -> str:
        """Return the C string at an address; an empty string for address 0."""
        text = self._strings.get(address)
        if text is None:
            text = ctypes.string_at(address).decode(errors="replace") if address else ""
            self._strings[address] = text
        return text
