"""Why a stream or an engine was idle: each gap with its cause.

A gap lies between two operations of a stream (or of an engine), or before the first or after the last. What
the operation that ended it was waiting for last decides:

* an operation of another stream that ended after the operation was given out: ``waiting for an event``, or
  the ``default stream``'s order where no event was waited for; one of its own stream, ``waiting for its
  stream``; a ``pageable copy`` in either place is called that;
* the host, if it gave the operation out only after the gap had begun: a ``hidden synchronisation`` or a
  ``synchronisation``, if the host was held up until the gap had begun, and a ``pageable copy``, if its call
  did that; else ``launch-bound`` where the host was in calls, and ``host computing`` where for more than
  half of the time it was in none;
* neither: ``engine busy`` with other streams' work for more than half of the time, else its ``start-up``.

After the last operation there was ``nothing to do``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from virtualgpu.records import Activity, Gap, GapCause, SourceLine, Timeline
from virtualgpu.trace.flow import Flow, Wait, idle, within_ns
from virtualgpu.trace.overlap import by_engine, by_stream, engine_of, intervals, stream_names, union
from virtualgpu.trace.words import count, duration, size

# Calls that give a stream something to do, and return.
_GIVING_OUT = tuple(
    f"{prefix}{what}"
    for prefix in ("cuda", "cu")
    for what in ("Launch", "Memcpy", "Memset", "GraphLaunch", "Event", "StreamWaitEvent", "StreamQuery")
)
# Cause, reason, line.
_Told = tuple[GapCause, str, SourceLine | None]


def gaps(timeline: Timeline, min_ns: int = 0) -> tuple[Gap, ...]:
    """The gaps of each stream, then of each engine.

    Parameters
    ----------
    timeline
        The timeline.
    min_ns
        Leave out what is shorter.

    Examples
    --------
    >>> [gap.cause for gap in gaps(timeline, min_ns=1_000)]
    ['hidden synchronisation', 'nothing to do']
    """
    flow = Flow(timeline)
    return tuple(
        gap
        for groups in (by_stream(timeline), by_engine(timeline))
        for gap in gaps_of(flow, groups)
        if gap.duration_ns >= min_ns
    )


def gaps_of(flow: Flow, groups: Mapping[str, Sequence[Activity]]) -> list[Gap]:
    """The gaps of each group of operations."""
    timeline, causes = flow.timeline, _Causes(flow)
    return [
        Gap(where, start, end, *causes.of(start, end, after), 0 if after is None else after.correlation_id)
        for where, activities in groups.items()
        for start, end, after in idle(list(activities), timeline.start_ns, timeline.end_ns)
    ]


class _Causes:
    """Tells the causes of the gaps of one timeline."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._names = stream_names(flow.timeline)
        engines = by_engine(flow.timeline)
        self._busy = {name: union(intervals(activities)) for name, activities in engines.items()}
        self._several = len({a.device_id for a in flow.timeline.activities}) > 1

    def of(self, start_ns: int, end_ns: int, operation: Activity | None) -> _Told:
        """Cause, reason and line of a gap that `operation` ended."""
        if operation is None:
            return "nothing to do", "no further operation was given", None
        call = self._flow.call(operation)
        given_ns = start_ns if call is None else min(call.end_ns, end_ns)
        awaited = max(self._flow.before(operation), key=lambda a: a.end_ns, default=None)
        if awaited is not None and awaited.end_ns > max(start_ns, given_ns):
            return self._awaited(operation, awaited)
        if call is not None and given_ns > start_ns:
            return self._host(call.thread, start_ns, given_ns, call.source)
        if self._engine_ns(operation, start_ns, end_ns) * 2 > end_ns - start_ns:
            engine = engine_of(operation)
            return "engine busy", f"other streams' work kept the engine ({engine}) busy", None
        return "start-up", f"{operation.name} was given in time and took that long to start", None

    def _awaited(self, operation: Activity, awaited: Activity) -> _Told:
        wait = self._flow.event_wait(operation, awaited)
        source = None if wait is None else wait.source
        where = self._names[awaited.device_id, awaited.stream_id]
        if awaited.pinned is False:
            call = self._flow.call(awaited)
            copied = f"{awaited.name} of {size(awaited.size_bytes)} of pageable memory"
            return "pageable copy", f"waited for {copied}", source or (call.source if call else None)
        if (awaited.device_id, awaited.stream_id) == (operation.device_id, operation.stream_id):
            of = " of its graph" if operation.graph_id and awaited.graph_id else " of the same stream"
            return "waiting for its stream", f"waited for {awaited.name}{of}", source
        if wait is not None:
            return "waiting for an event", f"waited for an event behind {awaited.name} of {where}", source
        return "default stream", f"{awaited.name} of {where} comes first, by the default stream's rule", None

    def _host(self, thread: int, start_ns: int, given_ns: int, issued_by: SourceLine | None) -> _Told:
        flow = self._flow
        wait = flow.last_wait(thread, given_ns)
        if wait is not None and (wait.end_ns < start_ns or wait.operation is None):
            wait = None
        free_ns = start_ns if wait is None else max(start_ns, wait.end_ns)
        calls = flow.calls_within(thread, start_ns, given_ns)
        computed_ns = given_ns - free_ns - within_ns(calls, free_ns, given_ns)
        if computed_ns * 2 > given_ns - start_ns:
            return "host computing", f"the host computed for {duration(computed_ns)} in between", issued_by
        if wait is not None:
            return _held_up(wait)
        longest = max(calls, key=lambda call: call.end_ns - call.start_ns, default=None)
        if longest is not None and not longest.name.startswith(_GIVING_OUT):
            in_call_ns = min(longest.end_ns, given_ns) - max(longest.start_ns, start_ns)
            if in_call_ns * 2 > given_ns - start_ns:
                return "host computing", f"the host was in {longest.name}", longest.source
        return "launch-bound", f"the host was giving out work ({count(len(calls), 'call')})", issued_by

    def _engine_ns(self, operation: Activity, start_ns: int, end_ns: int) -> int:
        """How long an operation's engine was busy in a stretch of time."""
        engine = engine_of(operation)
        if engine is None:
            return 0
        starts, ends = self._busy[engine + (f" of device {operation.device_id}" if self._several else "")]
        first, last = np.searchsorted(ends, start_ns, "right"), np.searchsorted(starts, end_ns, "left")
        cut = np.minimum(ends[first:last], end_ns) - np.maximum(starts[first:last], start_ns)
        return int(cut.sum())


def _held_up(wait: Wait) -> _Told:
    if wait.asked is None:
        copied = f"{size(wait.operation.size_bytes)} of " if wait.operation is not None else ""
        return "pageable copy", f"a copy of {copied}pageable memory held the host up", wait.source
    if wait.asked.hidden:
        return "hidden synchronisation", f"{wait.asked.name} made the host wait", wait.source
    return "synchronisation", f"the host waited in {wait.asked.name}", wait.source
