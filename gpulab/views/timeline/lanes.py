"""The rows of a timeline, and the bars on each with their names and details."""

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

from gpulab.words import duration, shape
from virtualgpu.records import Dim3, SourceLine, Synchronization, Timeline

Place = tuple[str, int, int]
"""The key of a row: ``stream`` with device and stream, ``range`` with thread and depth, ..."""

# Engine -> colour of its bars and text in the legend.
ENGINES: dict[str, tuple[str, str]] = {
    "kernel": ("accent", "kernel"),
    "other kernel": ("accent-2", "kernel of another name"),
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
OF_DEVICE, WAIT, HIDDEN = ([*ENGINES].index(name) for name in ("call", "wait", "hidden"))
MOST_THREADS = 2
MOST_LANES = 8
NOBODY = -1
KINDS = ("range", "call", "wait", "stream")
MARK = ", NVTX mark"
REST: Place = ("stream", 1 << 30, 0)


_COLUMNS = (
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
STREAM_OF = attrgetter("device_id", "stream_id")
_OF_KIND = {"CONCURRENT_KERNEL": "kernel", "HOST_LAUNCH": "host", "RANGE": "events"}


class Bar(NamedTuple):
    """An interval on a row; ``operation`` is its correlation id."""

    start: int
    end: int
    place: Place
    engine: str
    name: str
    detail: str
    line: SourceLine | None = None
    size: int = 0
    operation: int = NOBODY
    node: int = NOBODY


class Lanes:
    """One timeline: its bars, as arrays in order of their start, and the rows on which they are drawn.

    Columns that are texts hold indices into ``names``, ``details``, ``lines`` and `ENGINES`. `fold` gives
    the rows; NVTX ranges deeper than `most_depth` share the last row of their thread.
    """

    def __init__(self, record: Timeline, most_depth: int, name: str = "") -> None:
        self.record = record
        # Pairs of operations, by place: the second was to wait for the first and did not. Red arrows.
        self.faults: list[tuple[int, int]] = []
        whole = duration(record.duration_ns)
        label = record.provenance.label
        self.heading = f"{name}: {whole}, {label}" if name else f"{label[:1].upper()}{label[1:]}: {whole}"
        self._most_depth = most_depth
        few = [*self._ranges(), *self._calls(), *self._waits()]
        start, end, place, engine, called, detail, line, size, operation, node = (
            [*(bar[at] for bar in few), *column] for at, column in enumerate(self._operations())
        )
        begin = np.array(start, np.int64)
        order = np.argsort(begin, kind="stable")
        self.start = begin[order]
        self.end = np.maximum(self.start, np.array(end, np.int64)[order])
        self._place, self._places = _indexed(place)
        self.name, self.names = _indexed(called)
        self.detail, self.details = _indexed(detail)
        self.line, lines = _indexed(line)
        self.lines = [f"; {at}{f': {at.text.strip()}' if at.text else ''}" if at else "" for at in lines]
        engines = {name: at for at, name in enumerate(ENGINES)}
        self.engine = np.array([engines[each] for each in engine], np.int64)
        self.size, self.operation, self.node = (np.array(c, np.int64) for c in (size, operation, node))
        for column in ("_place", "name", "detail", "line", "engine", "size", "operation", "node"):
            setattr(self, column, getattr(self, column)[order])
        self.small_rows = sum(place[0] != "stream" for place in self._places)

    def fold(self, most_streams: int) -> None:
        """Assign the bars to rows, one per stream; the streams with the least work share the last row."""
        streams = [index for index, place in enumerate(self._places) if place[0] == "stream"]
        work = np.bincount(self._place, minlength=len(self._places))
        streams.sort(key=lambda index: -int(work[index]))
        shared = set(streams[max(0, most_streams - 1) :] if len(streams) > most_streams else ())
        self.folded = tuple(sorted(self._places[index] for index in shared))
        row_of = {index: REST if index in shared else place for index, place in enumerate(self._places)}
        self.places = sorted(set(row_of.values()), key=lambda place: (KINDS.index(place[0]), place[1:]))
        row_index = np.array(
            [self.places.index(row_of[index]) for index in range(len(self._places))], np.int64
        )
        self.row = row_index[self._place] if self._place.size else self._place
        self.lane = np.zeros(self.row.size, np.int64)
        self.lanes = [self._share(np.flatnonzero(self.row == index)) for index in range(len(self.places))]

    def _share(self, bars: npt.NDArray[Any]) -> int:
        """Put overlapping bars of a row into lanes; return the number of lanes."""
        start = self.start[bars]
        end = self.end[bars]
        if not (start[1:] < np.maximum.accumulate(end)[:-1]).any():
            return 1
        free: list[tuple[int, int]] = []
        used = 0
        lanes = []
        for begin, finish in zip(start.tolist(), end.tolist(), strict=True):
            if (free and free[0][0] <= begin) or used >= MOST_LANES:
                lane = heapq.heappop(free)[1]
            else:
                lane = used
                used = used + 1
            heapq.heappush(free, (finish, lane))
            lanes.append(lane)
        self.lane[bars] = lanes
        return used

    # Bars on the rows

    def _ranges(self) -> Iterator[Bar]:
        threads = _numbered(span.thread for span in self.record.ranges)
        for span in self.record.ranges:
            thread = min(threads[span.thread], MOST_THREADS - 1)
            depth = min(span.depth, self._most_depth - 1)
            detail = MARK if span.is_mark else f", NVTX range of depth {span.depth}"
            yield Bar(span.start_ns, span.end_ns, ("range", thread, depth), "range", span.name, detail)

    def _calls(self) -> Iterator[Bar]:
        threads = _numbered(call.thread for call in self.record.calls)
        for call in self.record.calls:
            place = ("call", min(threads[call.thread], MOST_THREADS - 1), 0)
            yield Bar(
                call.start_ns,
                call.end_ns,
                place,
                "call",
                call.name,
                ", call of the host",
                call.source,
                operation=call.correlation_id or NOBODY,
            )

    def _waits(self) -> Iterator[Bar]:
        for wait in self.waits:
            reason = "hidden: the program asked for none" if wait.hidden else "asked for"
            yield Bar(
                wait.start_ns,
                wait.end_ns,
                ("wait", 0, 0),
                "hidden" if wait.hidden else "wait",
                wait.name or wait.type.lower(),
                f", wait of the host, {reason}",
                wait.source,
            )

    def _operations(self) -> list[Sequence[Any]]:
        """Return the columns of `Bar` for the operations, as arrays because there may be very many."""
        sources = {call.correlation_id: call.source for call in self.record.calls if call.correlation_id}
        columns = ([*map(attrgetter(name), self.record.activities)] for name in _COLUMNS)
        start, end, kind, copy_kinds, name, size, correlation_ids, *details_of = columns
        device, stream, *_, graph, node = details_of
        places = {key: ("stream", *key) for key in self.streams}
        # A copy to or from the host is its direction's; other copies and memsets are the device's own.
        engines = [
            copy_kind if copy_kind in ("HtoD", "DtoH") else _OF_KIND.get(value, "DtoD")
            for value, copy_kind in zip(kind, copy_kinds, strict=True)
        ]
        keys = list(zip(*details_of, strict=True))
        details = {key: self._detail(*key) for key in set(keys)}
        return [
            start,
            end,
            [places[key] for key in zip(device, stream, strict=True)],
            engines,
            name,
            [details[key] for key in keys],
            list(map(sources.get, correlation_ids)),
            size,
            correlation_ids,
            [n if g else NOBODY for g, n in zip(graph, node, strict=True)],
        ]

    def _detail(
        self,
        device: int,
        stream: int,
        grid: Dim3 | None,
        block: Dim3 | None,
        pinned: bool | None,
        graph: int,
        node: int,
    ) -> str:
        parts = ["", f"on {self.row_name(('stream', device, stream))}"]
        if grid and block:
            parts.append(f"grid {shape(grid)}, block {shape(block)}")
        if pinned is not None:
            parts.append(f"{'pinned' if pinned else 'pageable'} memory")
        if graph:
            parts.append(f"node {node} of graph {graph}")
        return ", ".join(parts)

    # Names

    @cached_property
    def _stream_names(self) -> dict[tuple[int, int], str]:
        return {(stream.device_id, stream.stream_id): stream.name for stream in self.record.streams}

    @cached_property
    def streams(self) -> set[tuple[int, int]]:
        """Return device and stream of all streams that ran an operation."""
        return set(map(STREAM_OF, self.record.activities))

    @cached_property
    def devices(self) -> set[int]:
        """The devices that ran something."""
        return {device for device, _ in self.streams}

    def row_name(self, place: Place) -> str:
        """Return the name of a row."""
        kind, first, second = place
        if kind == "stream":
            if (kind, first, second) == REST:
                return f"{len(self.folded)} more streams"
            name = self._stream_names.get((first, second)) or f"stream {second}"
            return f"GPU {first} {name}" if len(self.devices) > 1 else name
        several = f" {first + 1}" if first else ""
        if kind == "range" and second:
            return ""
        names = {"range": "NVTX", "call": "host calls", "wait": "host waits"}
        return f"{names[kind]}{several}"

    @cached_property
    def kernels(self) -> list[str]:
        """Return the names of the kernels, in the order of their colours."""
        return [self.names[index] for index in np.unique(self.name[self.engine == 0]).tolist()]

    # Findings

    @cached_property
    def waits(self) -> list[Synchronization]:
        """The host's waits."""
        return [wait for wait in self.record.synchronizations if wait.type != "STREAM_WAIT_EVENT"]

    @cached_property
    def arrows(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Pairs of operations of different streams that are ordered, as indices of `activities`.

        Returns
        -------
        waits, implicit
            Pairs that an event orders, and those ordered without one, as by the legacy default stream.
        """
        activities = self.record.activities
        streams: list[tuple[int, int | None]] = list(map(STREAM_OF, activities))
        index_of = {activity.correlation_id: index for index, activity in enumerate(activities)}
        waits = [sync for sync in self.record.synchronizations if sync.type == "STREAM_WAIT_EVENT"]
        requested = {(sync.device_id, sync.stream_id, before) for sync in waits for before in sync.after}
        pairs: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        source_known: set[tuple[int, int | None, int]] = set()
        for index, activity in enumerate(activities):
            for before in activity.after:
                source = index_of.get(before)
                if source is not None and streams[source] != streams[index]:
                    edge = (*streams[index], before)
                    pairs[edge in requested].append((source, index))
                    source_known.add(edge)
        # CUPTI does not say what an operation followed: the stream's first that was given after the wait.
        call_start = {call.correlation_id: call.start_ns for call in self.record.calls} if waits else {}
        of_stream: dict[tuple[int, int | None], list[int]] = {}
        for index, stream in enumerate(streams if waits else ()):
            of_stream.setdefault(stream, []).append(index)
        for wait in waits:
            stream_key = (wait.device_id, wait.stream_id)
            candidates = of_stream.get(stream_key, [])
            for before in wait.after:
                source = index_of.get(before)
                if source is None or (*stream_key, before) in source_known or streams[source] == stream_key:
                    continue
                begin = bisect_left(
                    candidates, activities[source].end_ns, key=lambda index: activities[index].start_ns
                )
                for index in islice(candidates, begin, None):
                    if (
                        call_start.get(activities[index].correlation_id, activities[index].start_ns)
                        >= wait.start_ns
                    ):
                        pairs[True].append((source, index))
                        break
        return pairs[True], pairs[False]

    @cached_property
    def launches(self) -> dict[tuple[Place, int, int], tuple[int, int]]:
        """Return launches of graphs: row, graph number and launch number, with start and end.

        The n-th run of a node belongs to the n-th launch.
        """
        runs: Counter[tuple[Place, int, int]] = Counter()
        spans: dict[tuple[Place, int, int], tuple[int, int]] = {}
        for activity in self.record.activities if (self.node != NOBODY).any() else ():
            if activity.graph_id:
                place = ("stream", activity.device_id, activity.stream_id)
                node = (place, activity.graph_id, activity.graph_node_id)
                launch = (place, activity.graph_id, runs[node])
                begin, end = spans.get(launch, (activity.start_ns, activity.end_ns))
                spans[launch] = (begin, max(end, activity.end_ns))
                runs[node] += 1
        return spans


def _indexed(values: Sequence[Any]) -> tuple[npt.NDArray[Any], list[Any]]:
    """Return indices into the distinct values, and the distinct values."""
    index_of = {value: index for index, value in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(index_of.__getitem__, values), np.int64, len(values)), list(index_of)


def _numbered(threads: Iterable[int]) -> dict[int, int]:
    return {thread: index for index, thread in enumerate(dict.fromkeys(threads))}
