"""Dependences of a timeline: each operation's call and predecessors, and the host's waits."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gpulab.analysis.overlap import engine_of
from virtualgpu.records import Activity, HostCall, NvtxRange, SourceLine, Synchronization, Timeline


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of the host on one thread, with the operation that it waited for, if that is known.

    ``asked`` is None for the call of a pageable copy, which is no wait in CUDA's sense.
    """

    start_ns: int
    end_ns: int
    thread: int
    operation: Activity | None
    asked: Synchronization | None
    source: SourceLine | None


class Flow:
    """A timeline with indices for queries.

    Parameters
    ----------
    timeline
        Where operations do not say what they followed, as in files of other tools, it is the one before
        in their stream.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.operations = {a.correlation_id: a for a in timeline.activities}
        self._calls = {call.correlation_id: call for call in timeline.calls if call.correlation_id}
        self._previous: dict[int, Activity] = {}
        streams: dict[tuple[int, int], Activity] = {}
        for activity in timeline.activities:
            key = (activity.device_id, activity.stream_id)
            if key in streams:
                self._previous[activity.correlation_id] = streams[key]
            streams[key] = activity

    def call(self, activity: Activity) -> HostCall | None:
        """Return the call that issued an operation; for a node of a graph, the launch of the graph."""
        call = self._calls.get(activity.correlation_id)
        if call is None and activity.graph_id:
            numbers, calls = self._graph_calls
            at = bisect_right(numbers, activity.correlation_id) - 1
            call = calls[at] if at >= 0 else None
        return call

    @cached_property
    def _graph_calls(self) -> tuple[list[int], list[HostCall]]:
        found = (
            sorted(
                (number, call)
                for number, call in self._calls.items()
                if (operation := self.operations.get(number)) is not None and operation.graph_id
            )
            if self._calls
            else []
        )
        return [number for number, _ in found], [call for _, call in found]

    def before(self, activity: Activity) -> list[Activity]:
        """Return the operations of this timeline that had to end first."""
        known = [self.operations[number] for number in activity.after if number in self.operations]
        previous = self._previous.get(activity.correlation_id)
        return [previous] if not activity.after and previous is not None and not activity.graph_id else known

    def event_wait(self, activity: Activity, awaited: Activity) -> Synchronization | None:
        """Return the call that made an operation's stream wait for another's event, if there was one."""
        for wait in self._event_waits.get((activity.device_id, activity.stream_id), ()):
            if awaited.correlation_id in wait.after:
                return wait
        return None

    @cached_property
    def _event_waits(self) -> dict[tuple[int, int], list[Synchronization]]:
        found: dict[tuple[int, int], list[Synchronization]] = {}
        for wait in self.timeline.synchronizations:
            if wait.type == "STREAM_WAIT_EVENT" and wait.stream_id is not None:
                found.setdefault((wait.device_id, wait.stream_id), []).append(wait)
        return found

    # The host

    @cached_property
    def _calls_of(self) -> dict[int, tuple[list[HostCall], list[int], list[int]]]:
        """Return the outermost calls of each thread in their order, with their starts and ends."""
        found: dict[int, list[HostCall]] = {}
        for call in sorted(self.timeline.calls, key=lambda c: (c.start_ns, -c.end_ns)):
            mine = found.setdefault(call.thread, [])
            if not mine or call.start_ns >= mine[-1].end_ns or call.end_ns > mine[-1].end_ns:
                mine.append(call)
        return {
            thread: (calls, [c.start_ns for c in calls], [c.end_ns for c in calls])
            for thread, calls in found.items()
        }

    @cached_property
    def waits(self) -> dict[int, list[Wait]]:
        """Return the waits of each thread, sorted by end; waits that took no time are left out."""
        threads = {(call.end_ns, call.source): call.thread for call in self.timeline.calls}
        ends = sorted(self.timeline.activities, key=lambda a: a.end_ns)
        times = [activity.end_ns for activity in ends]
        main = self.timeline.calls[0].thread if self.timeline.calls else 0
        found: dict[int, list[Wait]] = {}
        copies = set()
        for asked in self.timeline.synchronizations:
            if asked.type == "STREAM_WAIT_EVENT" or asked.end_ns <= asked.start_ns:
                continue
            thread = threads.get((asked.end_ns, asked.source), main)
            operation = self._ended_by(asked, ends, times)
            is_copy = asked.hidden and operation is not None and operation.copy_kind == "HtoD"
            if is_copy and operation is not None:
                copies.add(operation.correlation_id)
            found.setdefault(thread, []).append(
                Wait(
                    asked.start_ns, asked.end_ns, thread, operation, None if is_copy else asked, asked.source
                )
            )
        for call in self.timeline.calls:
            copy = self.operations.get(call.correlation_id)
            if copy is None or copy.pinned is not False or copy.copy_kind != "HtoD":
                continue
            if copy.start_ns < copy.end_ns <= call.end_ns and copy.correlation_id not in copies:
                begun = max(call.start_ns, copy.start_ns)
                found.setdefault(call.thread, []).append(
                    Wait(begun, call.end_ns, call.thread, copy, None, call.source)
                )
        for waits in found.values():
            waits.sort(key=lambda wait: wait.end_ns)
        return found

    def _ended_by(self, asked: Synchronization, ends: list[Activity], times: list[int]) -> Activity | None:
        """Return the operation whose end ended a wait, or None if all had ended before it began."""
        named = [self.operations[number] for number in asked.after if number in self.operations]
        if named:
            last = max(named, key=lambda a: a.end_ns)
            return last if last.end_ns > asked.start_ns else None
        for at in range(bisect_right(times, asked.end_ns) - 1, -1, -1):
            operation = ends[at]
            if operation.end_ns <= asked.start_ns:
                return None
            if operation.device_id == asked.device_id and asked.stream_id in (None, operation.stream_id):
                return operation
        return None

    def last_wait(self, thread: int, until_ns: int) -> Wait | None:
        """Return the last wait of a thread that ended by a time, or None."""
        waits = self.waits.get(thread, [])
        at = bisect_right(waits, until_ns, key=lambda wait: wait.end_ns) - 1
        return waits[at] if at >= 0 else None

    def waits_within(self, thread: int, start_ns: int, end_ns: int) -> list[Wait]:
        """Return the waits of a thread for known operations that overlap an interval or end at its start."""
        waits = self.waits.get(thread, [])
        found = []
        for at in range(bisect_left(waits, start_ns, key=lambda wait: wait.end_ns), len(waits)):
            if waits[at].start_ns >= end_ns:
                break
            if waits[at].operation is not None:
                found.append(waits[at])
        return found

    def calls_within(self, thread: int, start_ns: int, end_ns: int) -> list[HostCall]:
        """Return the calls of a thread that lie at least partly within an interval."""
        calls, starts, ends = self._calls_of.get(thread, ([], [], []))
        found = calls[bisect_left(ends, start_ns) : bisect_left(starts, end_ns)]
        return [call for call in found if call.end_ns > start_ns or call.start_ns == call.end_ns]

    def running(self, thread: int, start_ns: int, end_ns: int) -> str:
        """Return the innermost range of a profiler's file that covers at least half of a thread's interval.

        Of a stretch with many, it is the one with the most time of its own, and others.
        """
        ranges, starts, outer = self._ranges_of.get(thread, ([], [], []))
        middle_ns = (start_ns + end_ns) // 2
        at = bisect_right(starts, middle_ns) - 1
        while at >= 0:
            here = ranges[at]
            inside_ns = min(here.end_ns, end_ns) - max(here.start_ns, start_ns)
            if here.end_ns > middle_ns and 2 * inside_ns >= end_ns - start_ns:
                return here.name
            at = outer[at]
        own: Counter[str] = Counter()
        for at in range(bisect_left(starts, start_ns), bisect_left(starts, end_ns)):
            length_ns = min(ranges[at].end_ns, end_ns) - ranges[at].start_ns
            own[ranges[at].name] += length_ns
            if outer[at] >= 0 and starts[outer[at]] >= start_ns:
                own[ranges[outer[at]].name] -= length_ns
        return f"{own.most_common(1)[0][0]} and others" if own else ""

    @cached_property
    def _ranges_of(self) -> dict[int, tuple[list[NvtxRange], list[int], list[int]]]:
        """Return the ranges of each thread in another tool's file, with their starts and enclosing ranges."""
        found: dict[int, tuple[list[NvtxRange], list[int], list[int]]] = {}
        ranges = self.timeline.ranges if self.timeline.method == "file" else ()
        for each in sorted(ranges, key=lambda r: (r.start_ns, -r.end_ns)):
            if not each.is_mark:
                mine, starts, outer = found.setdefault(each.thread, ([], [], []))
                around = len(mine) - 1
                while around >= 0 and mine[around].end_ns <= each.start_ns:
                    around = outer[around]
                mine.append(each)
                starts.append(each.start_ns)
                outer.append(around)
        return found

    # The device

    @cached_property
    def _by_engine(self) -> dict[tuple[int, str | None], tuple[list[Activity], list[int]]]:
        found: dict[tuple[int, str | None], list[Activity]] = {}
        for activity in sorted(self.timeline.activities, key=lambda a: a.end_ns):
            found.setdefault((activity.device_id, engine_of(activity)), []).append(activity)
        return {key: (activities, [a.end_ns for a in activities]) for key, activities in found.items()}

    def engine_before(self, activity: Activity) -> Activity | None:
        """Return the operation on the same engine that ended last before this one began."""
        engine = engine_of(activity)
        if engine is None:
            return None
        others, ends = self._by_engine[activity.device_id, engine]
        at = bisect_right(ends, activity.start_ns) - 1
        return others[at] if at >= 0 and others[at] is not activity else None


def idle(activities: list[Activity], start_ns: int, end_ns: int) -> list[tuple[int, int, Activity | None]]:
    """Return the intervals of a span in which no operation ran, with the operation that ended each."""
    found: list[tuple[int, int, Activity | None]] = []
    free_ns = start_ns
    for activity in sorted(activities, key=lambda a: (a.start_ns, a.end_ns)):
        if activity.start_ns > free_ns:
            found.append((free_ns, activity.start_ns, activity))
        free_ns = max(free_ns, activity.end_ns)
    if activities and end_ns > free_ns:
        found.append((free_ns, end_ns, None))
    return found


def within_ns(spans: Sequence[HostCall | Wait], start_ns: int, end_ns: int) -> int:
    """Return the time of an interval that is within a call or a wait."""
    total_ns = 0
    free_ns = start_ns
    for span in spans if len(spans) < 2 else sorted(spans, key=lambda span: span.start_ns):
        begin = max(span.start_ns, free_ns)
        end = min(span.end_ns, end_ns)
        if end > begin:
            total_ns += end - begin
            free_ns = end
    return total_ns
