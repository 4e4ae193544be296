"""Dependencies in a timeline: each operation's call and predecessors, and the waits of the host."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gpulab.analysis.overlap import find_engine
from virtualgpu.records import Activity, HostCall, NvtxRange, SourceLine, Synchronization, Timeline


@dataclass(frozen=True, slots=True)
class Wait:
    """A time interval in which a host thread waited for the device. The object includes the operation for
    which the thread waited, if this operation is known.

    ``synchronization`` is None for the call of a pageable copy, which CUDA does not record as a wait.
    """

    start_ns: int
    end_ns: int
    thread: int
    operation: Activity | None
    synchronization: Synchronization | None
    source: SourceLine | None


class TimelineLookup:
    """A timeline with indices for queries about CUDA calls, waits, ranges and predecessors of operations.

    Parameters
    ----------
    timeline
        If its operations do not list their predecessors, as in files of other tools, each operation follows
        the previous one in its stream.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.operations = {activity.correlation_id: activity for activity in timeline.activities}
        self._call_of_correlation = {
            call.correlation_id: call for call in timeline.calls if call.correlation_id
        }
        self._stream_predecessor: dict[int, Activity] = {}
        last_in_stream: dict[tuple[int, int], Activity] = {}
        for activity in timeline.activities:
            key = (activity.device_id, activity.stream_id)
            if key in last_in_stream:
                self._stream_predecessor[activity.correlation_id] = last_in_stream[key]
            last_in_stream[key] = activity

    def find_issuing_call(self, activity: Activity) -> HostCall | None:
        """Return the CUDA call that submitted an operation. For a graph node, return the call that launched
        the graph.
        """
        issuing_call = self._call_of_correlation.get(activity.correlation_id)
        if issuing_call is None and activity.graph_id:
            call_numbers, calls = self._graph_calls
            call_index = bisect_right(call_numbers, activity.correlation_id) - 1
            issuing_call = calls[call_index] if call_index >= 0 else None
        return issuing_call

    @cached_property
    def _graph_calls(self) -> tuple[list[int], list[HostCall]]:
        """Return two lists: the numbers of the calls that launched graphs, in ascending order, and these
        calls.
        """
        graph_calls = []
        for call_number, graph_call in sorted(self._call_of_correlation.items(), key=lambda item: item[0]):
            operation = self.operations.get(call_number)
            if operation is not None and operation.graph_id:
                graph_calls.append((call_number, graph_call))
        return [call_number for call_number, _ in graph_calls], [graph_call for _, graph_call in graph_calls]

    def find_predecessors(self, activity: Activity) -> list[Activity]:
        """Return the operations of this timeline that had to end before `activity` could begin."""
        predecessors = [
            self.operations[operation_number]
            for operation_number in activity.after
            if operation_number in self.operations
        ]
        stream_predecessor = self._stream_predecessor.get(activity.correlation_id)
        return (
            [stream_predecessor]
            if not activity.after and stream_predecessor is not None and not activity.graph_id
            else predecessors
        )

    def find_event_wait(self, activity: Activity, awaited_operation: Activity) -> Synchronization | None:
        """Return the CUDA call that made the stream of `activity` wait for an event after
        `awaited_operation`, or None if there is none.
        """
        for wait in self._event_waits.get((activity.device_id, activity.stream_id), ()):
            if awaited_operation.correlation_id in wait.after:
                return wait
        return None

    @cached_property
    def _event_waits(self) -> dict[tuple[int, int], list[Synchronization]]:
        """Return each stream's waits for events, by device and stream."""
        waits_of_stream: dict[tuple[int, int], list[Synchronization]] = {}
        for wait in self.timeline.synchronizations:
            if wait.type == "STREAM_WAIT_EVENT" and wait.stream_id is not None:
                waits_of_stream.setdefault((wait.device_id, wait.stream_id), []).append(wait)
        return waits_of_stream

    # The host

    @cached_property
    def _outermost_calls_of_thread(self) -> dict[int, tuple[list[HostCall], list[int], list[int]]]:
        """Return the outermost calls of each thread in their order, with their starts and ends."""
        calls_of_thread: dict[int, list[HostCall]] = {}
        for call in sorted(self.timeline.calls, key=lambda call: (call.start_ns, -call.end_ns)):
            outermost_calls = calls_of_thread.setdefault(call.thread, [])
            if (
                not outermost_calls
                or call.start_ns >= outermost_calls[-1].end_ns
                or call.end_ns > outermost_calls[-1].end_ns
            ):
                outermost_calls.append(call)
        return {
            thread: (calls, [call.start_ns for call in calls], [call.end_ns for call in calls])
            for thread, calls in calls_of_thread.items()
        }

    @cached_property
    def waits(self) -> dict[int, list[Wait]]:
        """Return the waits of each host thread, sorted by end time. Waits that took no time are left out."""
        thread_of_call = {(call.end_ns, call.source): call.thread for call in self.timeline.calls}
        operations_by_end = sorted(self.timeline.activities, key=lambda activity: activity.end_ns)
        end_times = [activity.end_ns for activity in operations_by_end]
        main_thread = self.timeline.calls[0].thread if self.timeline.calls else 0
        waits_of_thread: dict[int, list[Wait]] = {}
        copies_with_wait = set()
        for synchronization in self.timeline.synchronizations:
            if (
                synchronization.type == "STREAM_WAIT_EVENT"
                or synchronization.end_ns <= synchronization.start_ns
            ):
                continue
            thread = thread_of_call.get((synchronization.end_ns, synchronization.source), main_thread)
            operation = self._find_ending_operation(synchronization, operations_by_end, end_times)
            is_copy = synchronization.hidden and operation is not None and operation.copy_kind == "HtoD"
            if is_copy and operation is not None:
                copies_with_wait.add(operation.correlation_id)
            waits_of_thread.setdefault(thread, []).append(
                Wait(
                    synchronization.start_ns,
                    synchronization.end_ns,
                    thread,
                    operation,
                    None if is_copy else synchronization,
                    synchronization.source,
                )
            )
        for call in self.timeline.calls:
            copy_operation = self.operations.get(call.correlation_id)
            if (
                copy_operation is None
                or copy_operation.pinned is not False
                or copy_operation.copy_kind != "HtoD"
            ):
                continue
            if (
                copy_operation.start_ns < copy_operation.end_ns <= call.end_ns
                and copy_operation.correlation_id not in copies_with_wait
            ):
                start_ns = max(call.start_ns, copy_operation.start_ns)
                waits_of_thread.setdefault(call.thread, []).append(
                    Wait(start_ns, call.end_ns, call.thread, copy_operation, None, call.source)
                )
        for thread_waits in waits_of_thread.values():
            thread_waits.sort(key=lambda wait: wait.end_ns)
        return waits_of_thread

    def _find_ending_operation(
        self, synchronization: Synchronization, operations_by_end: list[Activity], end_times: list[int]
    ) -> Activity | None:
        """Return the operation that ended a wait, or None if all operations had ended before it began."""
        predecessors = [
            self.operations[operation_number]
            for operation_number in synchronization.after
            if operation_number in self.operations
        ]
        if predecessors:
            last_predecessor = max(predecessors, key=lambda activity: activity.end_ns)
            return last_predecessor if last_predecessor.end_ns > synchronization.start_ns else None
        for index in range(bisect_right(end_times, synchronization.end_ns) - 1, -1, -1):
            operation = operations_by_end[index]
            if operation.end_ns <= synchronization.start_ns:
                return None
            if operation.device_id == synchronization.device_id and synchronization.stream_id in (
                None,
                operation.stream_id,
            ):
                return operation
        return None

    def find_last_wait(self, thread: int, time_ns: int) -> Wait | None:
        """Return the last wait of a host thread that ended at or before a given time, or None."""
        waits = self.waits.get(thread, [])
        index = bisect_right(waits, time_ns, key=lambda wait: wait.end_ns) - 1
        return waits[index] if index >= 0 else None

    def find_waits_within(self, thread: int, start_ns: int, end_ns: int) -> list[Wait]:
        """Return the waits of a host thread that overlap a time interval or end at its start. Waits for
        unknown operations are left out.
        """
        waits = self.waits.get(thread, [])
        overlapping_waits = []
        for index in range(bisect_left(waits, start_ns, key=lambda wait: wait.end_ns), len(waits)):
            if waits[index].start_ns >= end_ns:
                break
            if waits[index].operation is not None:
                overlapping_waits.append(waits[index])
        return overlapping_waits

    def find_calls_within(self, thread: int, start_ns: int, end_ns: int) -> list[HostCall]:
        """Return the CUDA calls of a host thread that overlap a time interval."""
        calls, start_times_ns, end_times_ns = self._outermost_calls_of_thread.get(thread, ([], [], []))
        candidates = calls[bisect_left(end_times_ns, start_ns) : bisect_left(start_times_ns, end_ns)]
        return [call for call in candidates if call.end_ns > start_ns or call.start_ns == call.end_ns]

    def find_running_range(self, thread: int, start_ns: int, end_ns: int) -> str:
        """Return the name of the innermost NVTX range of a thread that covers at least half of a time
        interval.

        For a timeline that is not from a file of another profiler, the result is empty. If no range covers
        half, it is the range with the most time of its own, with the words "and others".
        """
        thread_ranges, range_starts, parent_indices = self._ranges_of_thread.get(thread, ([], [], []))
        middle_ns = (start_ns + end_ns) // 2
        index = bisect_right(range_starts, middle_ns) - 1
        while index >= 0:
            candidate_range = thread_ranges[index]
            covered_ns = min(candidate_range.end_ns, end_ns) - max(candidate_range.start_ns, start_ns)
            if candidate_range.end_ns > middle_ns and 2 * covered_ns >= end_ns - start_ns:
                return candidate_range.name
            index = parent_indices[index]
        ns_by_range: Counter[str] = Counter()
        for index in range(bisect_left(range_starts, start_ns), bisect_left(range_starts, end_ns)):
            length_ns = min(thread_ranges[index].end_ns, end_ns) - thread_ranges[index].start_ns
            ns_by_range[thread_ranges[index].name] += length_ns
            if parent_indices[index] >= 0 and range_starts[parent_indices[index]] >= start_ns:
                ns_by_range[thread_ranges[parent_indices[index]].name] -= length_ns
        return f"{ns_by_range.most_common(1)[0][0]} and others" if ns_by_range else ""

    @cached_property
    def _ranges_of_thread(self) -> dict[int, tuple[list[NvtxRange], list[int], list[int]]]:
        """Return the ranges of each thread in another tool's file, with their starts and enclosing ranges."""
        ranges_of_thread: dict[int, tuple[list[NvtxRange], list[int], list[int]]] = {}
        ranges = self.timeline.ranges if self.timeline.method == "file" else ()
        for nvtx_range in sorted(ranges, key=lambda nvtx_range: (nvtx_range.start_ns, -nvtx_range.end_ns)):
            if not nvtx_range.is_mark:
                thread_ranges, range_starts_ns, parent_indices = ranges_of_thread.setdefault(
                    nvtx_range.thread, ([], [], [])
                )
                parent_index = len(thread_ranges) - 1
                while parent_index >= 0 and thread_ranges[parent_index].end_ns <= nvtx_range.start_ns:
                    parent_index = parent_indices[parent_index]
                thread_ranges.append(nvtx_range)
                range_starts_ns.append(nvtx_range.start_ns)
                parent_indices.append(parent_index)
        return ranges_of_thread

    # The device

    @cached_property
    def _operations_by_engine(self) -> dict[tuple[int, str | None], tuple[list[Activity], list[int]]]:
        """Return the operations of each device and engine, sorted by end, and their ends."""
        operations_by_engine: dict[tuple[int, str | None], list[Activity]] = {}
        for activity in sorted(self.timeline.activities, key=lambda activity: activity.end_ns):
            operations_by_engine.setdefault((activity.device_id, find_engine(activity)), []).append(activity)
        return {
            key: (activities, [activity.end_ns for activity in activities])
            for key, activities in operations_by_engine.items()
        }

    def find_engine_predecessor(self, activity: Activity) -> Activity | None:
        """Return the last operation on the same engine that ended before this operation began."""
        engine = find_engine(activity)
        if engine is None:
            return None
        operations, end_times_ns = self._operations_by_engine[activity.device_id, engine]
        index = bisect_right(end_times_ns, activity.start_ns) - 1
        return operations[index] if index >= 0 and operations[index] is not activity else None


def find_idle_intervals(
    activities: list[Activity], start_ns: int, end_ns: int
) -> list[tuple[int, int, Activity | None]]:
    """Return the time intervals in which no operation ran. Each interval includes the operation that started
    at its end.
    """
    intervals: list[tuple[int, int, Activity | None]] = []
    idle_start_ns = start_ns
    for activity in sorted(activities, key=lambda activity: (activity.start_ns, activity.end_ns)):
        if activity.start_ns > idle_start_ns:
            intervals.append((idle_start_ns, activity.start_ns, activity))
        idle_start_ns = max(idle_start_ns, activity.end_ns)
    if activities and end_ns > idle_start_ns:
        intervals.append((idle_start_ns, end_ns, None))
    return intervals


def sum_within_ns(spans: Sequence[HostCall | Wait], start_ns: int, end_ns: int) -> int:
    """Return the length in ns of the part of a time interval that the given calls or waits cover."""
    total_ns = 0
    free_ns = start_ns
    for span in spans if len(spans) < 2 else sorted(spans, key=lambda span: span.start_ns):
        covered_start_ns = max(span.start_ns, free_ns)
        covered_end_ns = min(span.end_ns, end_ns)
        if covered_end_ns > covered_start_ns:
            total_ns += covered_end_ns - covered_start_ns
            free_ns = covered_end_ns
    return total_ns
