"""Idle times of streams and engines: each gap with its cause.

A gap lies between two operations of a stream (or of an engine), or before the first or after the last. It
has up to two parts. Until the operation that ended it was given out, the host is to blame:

* a ``hidden synchronisation``, a ``synchronisation`` or a ``pageable copy``, if its call held the host up
  for most of it, or else when the gap began;
* ``host computing``, where it was in no call for more than half of the time, or in one that gives out
  nothing;
* else ``launch-bound``: the host was giving out work.

From then on the operation waited

* for one of another stream: ``waiting for an event``, or the ``default stream``'s order where none was
  waited for; for one of its own stream, ``waiting for its stream``; or for a ``pageable copy`` in either;
* else for its engine, ``engine busy`` with other streams' work for more than half of the time, or for nothing
  but its own ``start-up``.

A part of less than a tenth counts with the other. After the last operation there was ``nothing to do``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from gpulab.analysis.flow import Flow, Wait, idle, within_ns
from gpulab.analysis.overlap import by_engine, by_stream, engine_of, intervals, stream_names, union
from gpulab.words import count, duration, size
from virtualgpu.records import Activity, Gap, GapCause, SourceLine, Timeline

# Calls that issue work to a stream, and return.
_GIVING_OUT = tuple(
    f"{prefix}{what}"
    for prefix in ("cuda", "cu")
    for what in ("Launch", "Memcpy", "Memset", "GraphLaunch", "Event", "StreamWaitEvent", "StreamQuery")
)
# Cause, reason, line.
_Told = tuple[GapCause, str, SourceLine | None]


def gaps(timeline: Timeline, min_ns: int = 0) -> tuple[Gap, ...]:
    """Return the gaps of each stream, then of each engine.

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
    """Return the gaps of each group of operations."""
    timeline = flow.timeline
    causes = _Causes(flow)
    return [
        Gap(
            where=where,
            start_ns=begin,
            end_ns=until,
            cause=cause,
            reason=reason,
            source=source,
            before=0 if after is None else after.correlation_id,
        )
        for where, activities in groups.items()
        for start, end, after in idle(list(activities), timeline.start_ns, timeline.end_ns)
        for begin, until, (cause, reason, source) in causes.of(start, end, after)
    ]


class _Causes:
    """Determines the causes of the gaps of one timeline."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._names = stream_names(flow.timeline)
        engines = by_engine(flow.timeline)
        self._busy = {name: union(intervals(activities)) for name, activities in engines.items()}
        self._several = len({a.device_id for a in flow.timeline.activities}) > 1

    def of(self, start_ns: int, end_ns: int, operation: Activity | None) -> list[tuple[int, int, _Told]]:
        """Return the parts of a gap that `operation` ended, each with cause, reason and line."""
        if operation is None:
            return [(start_ns, end_ns, ("nothing to do", "no further operation was given", None))]
        call = self._flow.call(operation)
        given_ns = start_ns if call is None else min(max(call.end_ns, start_ns), end_ns)
        least_ns = (end_ns - start_ns) / 10
        if given_ns - start_ns < least_ns:
            given_ns = start_ns
        elif end_ns - given_ns < least_ns:
            given_ns = end_ns
        parts = []
        if call is not None and given_ns > start_ns:
            parts.append((start_ns, given_ns, self._host(call.thread, start_ns, given_ns, call.source)))
        if end_ns > given_ns:
            parts.append((given_ns, end_ns, self._device(operation, given_ns, end_ns)))
        return parts

    def _device(self, operation: Activity, given_ns: int, end_ns: int) -> _Told:
        """Return the cause of an operation's delay on the device."""
        awaited = max(self._flow.before(operation), key=lambda a: a.end_ns, default=None)
        if awaited is not None and awaited.end_ns > given_ns:
            return self._awaited(operation, awaited)
        if self._engine_ns(operation, given_ns, end_ns) * 2 > end_ns - given_ns:
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
        """Return the reason why the host did not issue an operation earlier."""
        flow = self._flow
        length_ns = given_ns - start_ns
        waits = flow.waits_within(thread, start_ns, given_ns)
        calls = flow.calls_within(thread, start_ns, given_ns)
        held_up: Counter[_Told] = Counter()
        for wait in waits:
            held_up[_held_up(wait)] += max(0, min(wait.end_ns, given_ns) - max(wait.start_ns, start_ns))
        busy_ns = within_ns([*calls, *waits] if waits else calls, start_ns, given_ns)
        computed_ns = length_ns - busy_ns
        if computed_ns * 2 > length_ns:
            running = flow.running(thread, start_ns, given_ns)
            if running:
                return "host computing", f"the host ran {running}", issued_by
            return "host computing", f"the host computed for {duration(computed_ns)} in between", issued_by
        if held_up and sum(held_up.values()) * 2 > length_ns:
            return held_up.most_common(1)[0][0]
        if waits and waits[0].start_ns <= start_ns:
            return _held_up(waits[0])
        longest = max(calls, key=lambda call: call.end_ns - call.start_ns, default=None)
        if longest is not None and not longest.name.startswith(_GIVING_OUT):
            in_call_ns = min(longest.end_ns, given_ns) - max(longest.start_ns, start_ns)
            if in_call_ns * 2 > length_ns:
                return "host computing", f"the host was in {longest.name}", longest.source
        return "launch-bound", f"the host was giving out work ({count(len(calls), 'call')})", issued_by

    def _engine_ns(self, operation: Activity, start_ns: int, end_ns: int) -> int:
        """Return how long an operation's engine was busy in an interval."""
        engine = engine_of(operation)
        if engine is None:
            return 0
        starts, ends = self._busy[engine + (f" of device {operation.device_id}" if self._several else "")]
        first = np.searchsorted(ends, start_ns, "right")
        last = np.searchsorted(starts, end_ns, "left")
        cut = np.minimum(ends[first:last], end_ns) - np.maximum(starts[first:last], start_ns)
        return int(cut.sum())


def _held_up(wait: Wait) -> _Told:
    if wait.asked is None:
        copied = f"{size(wait.operation.size_bytes)} of " if wait.operation is not None else ""
        return "pageable copy", f"a copy of {copied}pageable memory held the host up", wait.source
    if wait.asked.hidden:
        return "hidden synchronisation", f"{wait.asked.name} made the host wait", wait.source
    return "synchronisation", f"the host waited in {wait.asked.name}", wait.source
