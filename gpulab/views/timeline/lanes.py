"""The rows of a timeline, with the bars on each row and their names and details."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpulab.views.parts import palette
from gpulab.words import duration, shape
from virtualgpu.records import Dim3, SourceLine, Synchronization, Timeline

RowKey = tuple[str, int, int]
"""The key of a row: ``stream`` with device and stream, ``range`` with thread and depth, ..."""

# Colour and legend text of the bars of each engine; of kernels, one entry per colour.
ENGINES: dict[str, tuple[str, str]] = {
    **{
        "kernel" if index == 0 else f"kernel {index + 1}": (colour, "kernel")
        for index, colour in enumerate(palette.KERNEL_COLOURS)
    },
    "HtoD": ("good", "copy to device (H2D)"),
    "DtoH": ("warn", "copy to host (D2H)"),
    "DtoD": ("purple", "copy on or between devices, memset"),
    "host": ("tail", "host function"),
    "events": ("other", "between a pair of events"),
    "call": ("other", "CUDA call of the host"),
    "wait": ("muted", "host waits"),
    "hidden": ("error", "hidden wait (!)"),
    "range": ("range", "NVTX range"),
}
DEVICE_ENGINES, WAIT_ENGINE, HIDDEN_WAIT_ENGINE = (
    [*ENGINES].index(name) for name in ("call", "wait", "hidden")
)
MAX_THREAD_ROWS = 2
MAX_LANES = 8
NO_OPERATION = -1
ROW_KINDS = ("range", "call", "wait", "stream")
NVTX_MARK_DETAIL = ", NVTX mark"
SHARED_ROW_KEY: RowKey = ("stream", 1 << 30, 0)


_ACTIVITY_FIELDS = (
    "start_ns",
    "end_ns",
    "kind",
    "copy_kind",
    "name",
    "size_bytes",
    "correlation_id",
    "device_id",
    "stream_id",
    "grid",
    "block",
    "pinned",
    "graph_id",
    "graph_node_id",
)
get_stream_key = attrgetter("device_id", "stream_id")
_ENGINE_OF_KIND = {"CONCURRENT_KERNEL": "kernel", "HOST_LAUNCH": "host", "RANGE": "events"}


class TimelineBar(NamedTuple):
    """An interval on a row of a timeline. The attribute ``operation`` is the correlation ID of its
    operation.
    """

    start: int
    end: int
    row_key: RowKey
    engine: str
    name: str
    detail: str
    line: SourceLine | None = None
    size_bytes: int = 0
    operation: int = NO_OPERATION
    node: int = NO_OPERATION


class TimelinePanel:
    """The bars of one timeline as arrays that are sorted by start, and the rows on which they are drawn.

    Columns that represent texts contain indices into ``names``, ``details``, ``lines`` (the texts of
    ``sources``) or `ENGINES`. `fold_streams` assigns the rows. NVTX ranges deeper than `max_depth` share the
    last row of their thread.
    """

    def __init__(self, record: Timeline, max_depth: int, name: str = "") -> None:
        self.record = record
        self.timeline_name = name
        # Pairs of indices of operations: the second must wait for the first but did not. Shown as red arrows.
        self.faults: list[tuple[int, int]] = []
        duration_text = duration(record.duration_ns)
        origin_label = record.provenance.label
        self.heading = (
            f"{name}: {duration_text}, {origin_label}"
            if name
            else f"{origin_label[:1].upper()}{origin_label[1:]}: {duration_text}"
        )
        self._max_depth = max_depth
        host_bars = [*self._make_range_bars(), *self._make_call_bars(), *self._make_wait_bars()]
        (
            start,
            end,
            keys_of_bars,
            engines_of_bars,
            names_of_bars,
            detail,
            lines_of_bars,
            size,
            operation,
            node,
        ) = (
            [*(bar[index] for bar in host_bars), *column]
            for index, column in enumerate(self._make_operation_columns())
        )
        start_ns = np.array(start, np.int64)
        start_order = np.argsort(start_ns, kind="stable")
        self.start = start_ns[start_order]
        self.end = np.maximum(self.start, np.array(end, np.int64)[start_order])
        self._row_key, self._row_keys = _index_distinct_values(keys_of_bars)
        self.name, self.names = _index_distinct_values(names_of_bars)
        self.detail, self.details = _index_distinct_values(detail)
        self.line, self.sources = _index_distinct_values(lines_of_bars)
        self.lines = [
            f"; {line}{f': {line.text.strip()}' if line.text else ''}" if line else ""
            for line in self.sources
        ]
        engine_index = {name: index for index, name in enumerate(ENGINES)}
        self.engine = np.array([engine_index[engine_name] for engine_name in engines_of_bars], np.int64)
        self.size, self.operation, self.node = (
            np.array(column_values, np.int64) for column_values in (size, operation, node)
        )
        for column in ("_row_key", "name", "detail", "line", "engine", "size", "operation", "node"):
            setattr(self, column, getattr(self, column)[start_order])
        self.small_row_count = sum(row_key[0] != "stream" for row_key in self._row_keys)

    def fold_streams(self, max_streams: int) -> None:
        """Assign the bars of each stream to a row. If there are too many streams, those with few operations
        share a row.
        """
        stream_row_indices = [index for index, row_key in enumerate(self._row_keys) if row_key[0] == "stream"]
        bar_counts = np.bincount(self._row_key, minlength=len(self._row_keys))
        stream_row_indices.sort(key=lambda index: -int(bar_counts[index]))
        shared_row_indices = set(
            stream_row_indices[max(0, max_streams - 1) :] if len(stream_row_indices) > max_streams else ()
        )
        self.folded_row_keys = tuple(sorted(self._row_keys[index] for index in shared_row_indices))
        shown_key_of_row = {
            index: SHARED_ROW_KEY if index in shared_row_indices else row_key
            for index, row_key in enumerate(self._row_keys)
        }
        self.row_keys = sorted(
            set(shown_key_of_row.values()), key=lambda row_key: (ROW_KINDS.index(row_key[0]), row_key[1:])
        )
        row_index = np.array(
            [self.row_keys.index(shown_key_of_row[index]) for index in range(len(self._row_keys))], np.int64
        )
        self.row = row_index[self._row_key] if self._row_key.size else self._row_key
        self.lane = np.zeros(self.row.size, np.int64)
        self.lane_counts = [
            self._assign_lanes(np.flatnonzero(self.row == index)) for index in range(len(self.row_keys))
        ]

    def _assign_lanes(self, bars: npt.NDArray[Any]) -> int:
        """Assign the bars of a row to lanes, so that bars do not overlap; return the number of lanes."""
        start = self.start[bars]
        end = self.end[bars]
        if not (start[1:] < np.maximum.accumulate(end)[:-1]).any():
            return 1
        lane_ends: list[tuple[int, int]] = []
        lane_count = 0
        lanes = []
        for start_ns, finish_ns in zip(start.tolist(), end.tolist(), strict=True):
            if (lane_ends and lane_ends[0][0] <= start_ns) or lane_count >= MAX_LANES:
                lane_number = heapq.heappop(lane_ends)[1]
            else:
                lane_number = lane_count
                lane_count = lane_count + 1
            heapq.heappush(lane_ends, (finish_ns, lane_number))
            lanes.append(lane_number)
        self.lane[bars] = lanes
        return lane_count

    # Bars on the rows

    def _make_range_bars(self) -> Iterator[TimelineBar]:
        """Yield the bars of NVTX ranges."""
        threads = _number_threads(span.thread for span in self.record.ranges)
        for span in self.record.ranges:
            thread = min(threads[span.thread], MAX_THREAD_ROWS - 1)
            depth = min(span.depth, self._max_depth - 1)
            detail_text = NVTX_MARK_DETAIL if span.is_mark else f", NVTX range of depth {span.depth}"
            yield TimelineBar(
                span.start_ns, span.end_ns, ("range", thread, depth), "range", span.name, detail_text
            )

    def _make_call_bars(self) -> Iterator[TimelineBar]:
        """Yield the bars of the host's CUDA calls."""
        threads = _number_threads(call.thread for call in self.record.calls)
        for call in self.record.calls:
            row_key = ("call", min(threads[call.thread], MAX_THREAD_ROWS - 1), 0)
            yield TimelineBar(
                call.start_ns,
                call.end_ns,
                row_key,
                "call",
                call.name,
                ", call of the host",
                call.source,
                operation=call.correlation_id or NO_OPERATION,
            )

    def _make_wait_bars(self) -> Iterator[TimelineBar]:
        """Yield the bars of the host's waits."""
        for wait in self.waits:
            wait_reason = "hidden: the program has no explicit wait" if wait.hidden else "asked for"
            yield TimelineBar(
                wait.start_ns,
                wait.end_ns,
                ("wait", 0, 0),
                "hidden" if wait.hidden else "wait",
                wait.name or wait.type.lower(),
                f", wait of the host, {wait_reason}",
                wait.source,
            )

    def _make_operation_columns(self) -> list[Sequence[Any]]:
        """Return the operations as columns of `TimelineBar` (lists, because there may be very many
        operations).
        """
        source_of_call = {
            call.correlation_id: call.source for call in self.record.calls if call.correlation_id
        }
        attribute_columns = ([*map(attrgetter(name), self.record.activities)] for name in _ACTIVITY_FIELDS)
        start, end, activity_kinds, copy_kinds, name, size, correlation_ids, *detail_columns = (
            attribute_columns
        )
        device, stream, *_, graph, node = detail_columns
        row_keys = {key: ("stream", *key) for key in self.streams}
        # The engine of a copy to or from the host is its direction; other copies and memsets are the
        # device's.
        engines = [
            copy_kind if copy_kind in ("HtoD", "DtoH") else _ENGINE_OF_KIND.get(activity_kind, "DtoD")
            for activity_kind, copy_kind in zip(activity_kinds, copy_kinds, strict=True)
        ]
        detail_keys = list(zip(*detail_columns, strict=True))
        details = {key: self._describe_operation(*key) for key in set(detail_keys)}
        return [
            start,
            end,
            [row_keys[key] for key in zip(device, stream, strict=True)],
            engines,
            name,
            [details[key] for key in detail_keys],
            list(map(source_of_call.get, correlation_ids)),
            size,
            correlation_ids,
            [node_id if graph_id else NO_OPERATION for graph_id, node_id in zip(graph, node, strict=True)],
        ]

    def _describe_operation(
        self,
        device: int,
        stream: int,
        grid: Dim3 | None,
        block: Dim3 | None,
        pinned: bool | None,
        graph: int,
        node: int,
    ) -> str:
        """Return a text with an operation's row, launch configuration, memory and graph."""
        phrases = ["", f"on {self.row_name(('stream', device, stream))}"]
        if grid and block:
            phrases.append(f"grid {shape(grid)}, block {shape(block)}")
        if pinned is not None:
            phrases.append(f"{'pinned' if pinned else 'pageable'} memory")
        if graph:
            phrases.append(f"node {node} of graph {graph}")
        return ", ".join(phrases)

    # Names

    @cached_property
    def _stream_names(self) -> dict[tuple[int, int], str]:
        return {(stream.device_id, stream.stream_id): stream.name for stream in self.record.streams}

    @cached_property
    def streams(self) -> set[tuple[int, int]]:
        """The device and the stream number of each stream that ran an operation."""
        return set(map(get_stream_key, self.record.activities))

    @cached_property
    def devices(self) -> set[int]:
        """The devices that ran at least one operation."""
        return {device for device, _ in self.streams}

    def row_name(self, row_key: RowKey) -> str:
        """Return the name of a row in the timeline chart."""
        row_kind, device, stream = row_key
        if row_kind == "stream":
            if (row_kind, device, stream) == SHARED_ROW_KEY:
                return f"{len(self.folded_row_keys)} more streams"
            stream_name = self._stream_names.get((device, stream)) or f"stream {stream}"
            return f"GPU {device} {stream_name}" if len(self.devices) > 1 else stream_name
        thread_text = f" {device + 1}" if device else ""
        if row_kind == "range" and stream:
            return ""
        name_of_kind = {"range": "NVTX", "call": "host calls", "wait": "host waits"}
        return f"{name_of_kind[row_kind]}{thread_text}"

    @cached_property
    def kernels(self) -> list[str]:
        """The names of the kernels in the timeline, in the order of their colours."""
        return [self.names[index] for index in np.unique(self.name[self.engine == 0]).tolist()]

    # Findings

    @cached_property
    def waits(self) -> list[Synchronization]:
        """The waits of the host in the timeline."""
        return [wait for wait in self.record.synchronizations if wait.type != "STREAM_WAIT_EVENT"]

    @cached_property
    def arrows(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The index pairs of operations in different streams whose order is defined.

        Returns
        -------
        waits, implicit
            The pairs that an event orders, and the pairs ordered without an event, as by the legacy default
            stream.
        """
        activities = self.record.activities
        activity_streams: list[tuple[int, int | None]] = list(map(get_stream_key, activities))
        index_of_operation = {activity.correlation_id: index for index, activity in enumerate(activities)}
        stream_waits = [
            stream_wait
            for stream_wait in self.record.synchronizations
            if stream_wait.type == "STREAM_WAIT_EVENT"
        ]
        event_ordered_pairs = {
            (stream_wait.device_id, stream_wait.stream_id, predecessor)
            for stream_wait in stream_waits
            for predecessor in stream_wait.after
        }
        operation_pairs: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        linked_pairs: set[tuple[int, int | None, int]] = set()
        for index, activity in enumerate(activities):
            for predecessor in activity.after:
                predecessor_index = index_of_operation.get(predecessor)
                if (
                    predecessor_index is not None
                    and activity_streams[predecessor_index] != activity_streams[index]
                ):
                    stream_and_predecessor = (*activity_streams[index], predecessor)
                    operation_pairs[stream_and_predecessor in event_ordered_pairs].append(
                        (predecessor_index, index)
                    )
                    linked_pairs.add(stream_and_predecessor)
        # CUPTI does not report predecessors: the stream's first operation issued after the wait is used.
        start_of_call = (
            {call.correlation_id: call.start_ns for call in self.record.calls} if stream_waits else {}
        )
        operations_of_stream: dict[tuple[int, int | None], list[int]] = {}
        for index, stream in enumerate(activity_streams if stream_waits else ()):
            operations_of_stream.setdefault(stream, []).append(index)
        for wait in stream_waits:
            stream_key = (wait.device_id, wait.stream_id)
            stream_operations = operations_of_stream.get(stream_key, [])
            for predecessor in wait.after:
                predecessor_index = index_of_operation.get(predecessor)
                if (
                    predecessor_index is None
                    or (*stream_key, predecessor) in linked_pairs
                    or activity_streams[predecessor_index] == stream_key
                ):
                    continue
                first_candidate_index = bisect_left(
                    stream_operations,
                    activities[predecessor_index].end_ns,
                    key=lambda index: activities[index].start_ns,
                )
                for index in islice(stream_operations, first_candidate_index, None):
                    if (
                        start_of_call.get(activities[index].correlation_id, activities[index].start_ns)
                        >= wait.start_ns
                    ):
                        operation_pairs[True].append((predecessor_index, index))
                        break
        return operation_pairs[True], operation_pairs[False]

    @cached_property
    def graph_launches(self) -> dict[tuple[RowKey, int, int], tuple[int, int]]:
        """The start and end times of each graph launch, by row, graph number and launch number.

        The n-th run of a graph node counts as part of the n-th launch.
        """
        run_counts: Counter[tuple[RowKey, int, int]] = Counter()
        launch_spans_ns: dict[tuple[RowKey, int, int], tuple[int, int]] = {}
        for activity in self.record.activities if (self.node != NO_OPERATION).any() else ():
            if activity.graph_id:
                row_key = ("stream", activity.device_id, activity.stream_id)
                node = (row_key, activity.graph_id, activity.graph_node_id)
                launch_key = (row_key, activity.graph_id, run_counts[node])
                start_ns, end_ns = launch_spans_ns.get(launch_key, (activity.start_ns, activity.end_ns))
                launch_spans_ns[launch_key] = (start_ns, max(end_ns, activity.end_ns))
                run_counts[node] += 1
        return launch_spans_ns


def _index_distinct_values(values: Sequence[Any]) -> tuple[npt.NDArray[Any], list[Any]]:
    """Return the index of each value among the distinct values, and the distinct values."""
    index_of_value = {value: index for index, value in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(index_of_value.__getitem__, values), np.int64, len(values)), list(index_of_value)


def _number_threads(threads: Iterable[int]) -> dict[int, int]:
    """Return the index of each thread, in order of appearance."""
    return {thread: index for index, thread in enumerate(dict.fromkeys(threads))}
