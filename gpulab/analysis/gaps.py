"""Idle times of streams and engines: each gap with its cause.

A gap is the time between two operations of a stream (or of an engine), or before the first or after the
last. It has up to two parts. Until the operation after it was issued, the host is the cause:

* a ``hidden synchronisation``, a ``synchronisation`` or a ``pageable copy``, if its call blocked the host
  for most of this part, or else at its beginning;
* ``host computing``, if the host was in no call for more than half of the time, or in a call that issues
  nothing;
* otherwise ``launch-bound``: the host was issuing work.

From then on the operation waited

* for an operation of another stream: ``waiting for an event``, or the ``default stream``'s order if there was
  no event; for one of its own stream, ``waiting for its stream``; or for a ``pageable copy`` in either;
* otherwise for its engine, ``engine busy`` with other streams' work for more than half of the time, or only
  for its own ``start-up``.

A part of less than a tenth is added to the other part. After the last operation there was ``nothing to do``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from gpulab.analysis.flow import TimelineLookup, Wait, find_idle_intervals, sum_within_ns
from gpulab.analysis.overlap import (
    find_engine,
    group_by_engine,
    group_by_stream,
    make_intervals,
    make_stream_names,
    merge_intervals,
)
from gpulab.words import count, duration, size
from virtualgpu.records import Activity, Gap, GapCause, SourceLine, Timeline

# Calls that issue work to a stream, and return.
_ISSUING_CALLS = tuple(
    f"{prefix}{function}"
    for prefix in ("cuda", "cu")
    for function in ("Launch", "Memcpy", "Memset", "GraphLaunch", "Event", "StreamWaitEvent", "StreamQuery")
)
# Cause, reason, line.
_ExplainedCause = tuple[GapCause, str, SourceLine | None]


def find_gaps(timeline: Timeline, min_ns: int = 0) -> tuple[Gap, ...]:
    """Return the gaps between operations of a timeline, first for each stream and then for each engine.

    Parameters
    ----------
    timeline
        The timeline.
    min_ns
        Shortest gap to return, in ns.

    Examples
    --------
    >>> [gap.cause for gap in find_gaps(timeline, min_ns=1_000)]
    ['hidden synchronisation', 'nothing to do']
    """
    timeline_lookup = TimelineLookup(timeline)
    return tuple(
        gap
        for operation_groups in (group_by_stream(timeline), group_by_engine(timeline))
        for gap in find_group_gaps(timeline_lookup, operation_groups)
        if gap.duration_ns >= min_ns
    )


def find_group_gaps(
    timeline_lookup: TimelineLookup, operation_groups: Mapping[str, Sequence[Activity]]
) -> list[Gap]:
    """Return the gaps between the operations of each group, with the cause of each gap."""
    timeline = timeline_lookup.timeline
    cause_search = _CauseSearch(timeline_lookup)
    return [
        Gap(
            where=group_name,
            start_ns=gap_part_start_ns,
            end_ns=gap_part_end_ns,
            cause=cause,
            reason=reason,
            source=source_line,
            before=0 if operation is None else operation.correlation_id,
        )
        for group_name, activities in operation_groups.items()
        for gap_start_ns, gap_end_ns, operation in find_idle_intervals(
            list(activities), timeline.start_ns, timeline.end_ns
        )
        for gap_part_start_ns, gap_part_end_ns, (cause, reason, source_line) in cause_search.find_causes(
            gap_start_ns, gap_end_ns, operation
        )
    ]


class _CauseSearch:
    """The analysis of one timeline that determines the cause of each gap."""

    def __init__(self, timeline_lookup: TimelineLookup) -> None:
        self._timeline_lookup = timeline_lookup
        self._stream_names = make_stream_names(timeline_lookup.timeline)
        engines = group_by_engine(timeline_lookup.timeline)
        self._busy_spans = {
            name: merge_intervals(make_intervals(activities)) for name, activities in engines.items()
        }
        self._has_many_devices = (
            len({activity.device_id for activity in timeline_lookup.timeline.activities}) > 1
        )

    def find_causes(
        self, start_ns: int, end_ns: int, operation: Activity | None
    ) -> list[tuple[int, int, _ExplainedCause]]:
        """Divide the gap before an operation into parts. Each part has a cause, a reason and a source
        line.
        """
        if operation is None:
            return [(start_ns, end_ns, ("nothing to do", "no further operation was launched", None))]
        issuing_call = self._timeline_lookup.find_issuing_call(operation)
        issued_ns = start_ns if issuing_call is None else min(max(issuing_call.end_ns, start_ns), end_ns)
        smallest_part_ns = (end_ns - start_ns) / 10
        if issued_ns - start_ns < smallest_part_ns:
            issued_ns = start_ns
        elif end_ns - issued_ns < smallest_part_ns:
            issued_ns = end_ns
        gap_parts = []
        if issuing_call is not None and issued_ns > start_ns:
            gap_parts.append(
                (
                    start_ns,
                    issued_ns,
                    self._find_host_cause(issuing_call.thread, start_ns, issued_ns, issuing_call.source),
                )
            )
        if end_ns > issued_ns:
            gap_parts.append((issued_ns, end_ns, self._find_device_cause(operation, issued_ns, end_ns)))
        return gap_parts

    def _find_device_cause(self, operation: Activity, issued_ns: int, end_ns: int) -> _ExplainedCause:
        """Return why an operation started later than it was issued."""
        awaited_operation = max(
            self._timeline_lookup.find_predecessors(operation),
            key=lambda activity: activity.end_ns,
            default=None,
        )
        if awaited_operation is not None and awaited_operation.end_ns > issued_ns:
            return self._make_predecessor_cause(operation, awaited_operation)
        if self._count_engine_ns(operation, issued_ns, end_ns) * 2 > end_ns - issued_ns:
            engine = find_engine(operation)
            return "engine busy", f"other streams' work kept the engine ({engine}) busy", None
        return "start-up", f"{operation.name} was launched before the gap, and took this long to start", None

    def _make_predecessor_cause(self, operation: Activity, awaited_operation: Activity) -> _ExplainedCause:
        """Return why an operation had to wait for another operation."""
        event_wait = self._timeline_lookup.find_event_wait(operation, awaited_operation)
        wait_line = None if event_wait is None else event_wait.source
        stream_name = self._stream_names[awaited_operation.device_id, awaited_operation.stream_id]
        if awaited_operation.pinned is False:
            issuing_call = self._timeline_lookup.find_issuing_call(awaited_operation)
            copy_text = f"{awaited_operation.name} of {size(awaited_operation.size_bytes)} of pageable memory"
            return (
                "pageable copy",
                f"waited for {copy_text}",
                wait_line or (issuing_call.source if issuing_call else None),
            )
        if (awaited_operation.device_id, awaited_operation.stream_id) == (
            operation.device_id,
            operation.stream_id,
        ):
            origin_text = (
                " of its graph"
                if operation.graph_id and awaited_operation.graph_id
                else " of the same stream"
            )
            return "waiting for its stream", f"waited for {awaited_operation.name}{origin_text}", wait_line
        if event_wait is not None:
            return (
                "waiting for an event",
                f"waited for an event after {awaited_operation.name} of {stream_name}",
                wait_line,
            )
        return (
            "default stream",
            (
                f"it waited for {awaited_operation.name} of {stream_name}, "
                "because of the rule for the default stream"
            ),
            None,
        )

    def _find_host_cause(
        self, thread: int, start_ns: int, issued_ns: int, issuing_line: SourceLine | None
    ) -> _ExplainedCause:
        """Return why the host did not issue an operation earlier."""
        timeline_lookup = self._timeline_lookup
        interval_ns = issued_ns - start_ns
        waits = timeline_lookup.find_waits_within(thread, start_ns, issued_ns)
        calls = timeline_lookup.find_calls_within(thread, start_ns, issued_ns)
        wait_ns: Counter[_ExplainedCause] = Counter()
        for wait in waits:
            wait_ns[_describe_wait(wait)] += max(
                0, min(wait.end_ns, issued_ns) - max(wait.start_ns, start_ns)
            )
        busy_ns = sum_within_ns([*calls, *waits] if waits else calls, start_ns, issued_ns)
        computing_ns = interval_ns - busy_ns
        if computing_ns * 2 > interval_ns:
            range_name = timeline_lookup.find_running_range(thread, start_ns, issued_ns)
            if range_name:
                return "host computing", f"the host ran {range_name}", issuing_line
            return (
                "host computing",
                f"the host computed for {duration(computing_ns)} in between",
                issuing_line,
            )
        if wait_ns and sum(wait_ns.values()) * 2 > interval_ns:
            return wait_ns.most_common(1)[0][0]
        if waits and waits[0].start_ns <= start_ns:
            return _describe_wait(waits[0])
        longest_call = max(calls, key=lambda call: call.end_ns - call.start_ns, default=None)
        if longest_call is not None and not longest_call.name.startswith(_ISSUING_CALLS):
            call_ns = min(longest_call.end_ns, issued_ns) - max(longest_call.start_ns, start_ns)
            if call_ns * 2 > interval_ns:
                return "host computing", f"the host was in {longest_call.name}", longest_call.source
        return "launch-bound", f"the host was launching work ({count(len(calls), 'call')})", issuing_line

    def _count_engine_ns(self, operation: Activity, start_ns: int, end_ns: int) -> int:
        """Return how long an operation's engine was busy in an interval."""
        engine = find_engine(operation)
        if engine is None:
            return 0
        start_times_ns, end_times_ns = self._busy_spans[
            engine + (f" of device {operation.device_id}" if self._has_many_devices else "")
        ]
        first_index = np.searchsorted(end_times_ns, start_ns, "right")
        last_index = np.searchsorted(start_times_ns, end_ns, "left")
        clipped_ns = np.minimum(end_times_ns[first_index:last_index], end_ns) - np.maximum(
            start_times_ns[first_index:last_index], start_ns
        )
        return int(clipped_ns.sum())


def _describe_wait(wait: Wait) -> _ExplainedCause:
    """Return the cause of a gap in which the host waited."""
    if wait.synchronization is None:
        size_text = f"{size(wait.operation.size_bytes)} of " if wait.operation is not None else ""
        return "pageable copy", f"a copy of {size_text}pageable memory blocked the host", wait.source
    if wait.synchronization.hidden:
        return "hidden synchronisation", f"{wait.synchronization.name} made the host wait", wait.source
    return "synchronisation", f"the host waited in {wait.synchronization.name}", wait.source
