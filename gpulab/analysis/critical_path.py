"""The critical path: the chain of operations and host times that determines a timeline's duration.

It is followed from the end backwards: an operation began when the last of these was there: what it had to
follow, the call that gave it out, or its engine. A call was made when the host came to it, which
had gone on from the last wait that held it up; and that ended with the operation it was waiting
for. Each link begins when the one before it ends, so the links' times add up to the whole. To make the
program faster, one of them has to become shorter.
"""

from __future__ import annotations

from collections import Counter

from gpulab.analysis.flow import Flow, within_ns
from gpulab.analysis.overlap import stream_names
from gpulab.words import listing
from virtualgpu.records import Activity, PathStep, SourceLine, StepKind, Timeline


def critical_path(timeline: Timeline) -> tuple[PathStep, ...]:
    """Return the critical path in the order of time; its durations add up to the timeline's.

    Examples
    --------
    >>> sum(step.duration_ns for step in critical_path(timeline)) == timeline.duration_ns
    True
    """
    return _Walk(Flow(timeline)).steps()


class _Walk:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._names = stream_names(flow.timeline)
        self._steps: list[PathStep] = []
        self._seen: set[int] = set()

    def steps(self) -> tuple[PathStep, ...]:
        timeline = self._flow.timeline
        last = max(timeline.activities, key=lambda a: a.end_ns, default=None)
        operation: Activity | None
        if last is not None and last.end_ns >= timeline.end_ns:
            operation = last
        else:
            calls = timeline.calls
            thread = max(calls, key=lambda call: call.end_ns).thread if calls else 0
            operation = self._host(thread, timeline.end_ns)
        while operation is not None:
            self._seen.add(operation.correlation_id)
            operation = self._operation(operation)
        return tuple(reversed(self._steps))

    def _operation(self, operation: Activity) -> Activity | None:
        """Add an operation to the path; return the operation before it, or None at the beginning."""
        flow = self._flow
        begin_ns = self._flow.timeline.start_ns
        where = self._names[operation.device_id, operation.stream_id]
        start_ns = max(begin_ns, operation.start_ns)
        call = flow.call(operation)
        self._add(
            "operation",
            operation.name,
            start_ns,
            operation.end_ns,
            where,
            operation.correlation_id,
            call.source if call else None,
        )
        candidates = [*flow.before(operation), flow.engine_before(operation)]
        possible = [
            a
            for a in candidates
            if a is not None and a.end_ns <= start_ns and a.correlation_id not in self._seen
        ]
        awaited = max(possible, key=lambda a: a.end_ns, default=None)
        given_ns = begin_ns if call is None else min(call.end_ns, start_ns)
        ready_ns = max(begin_ns, given_ns, awaited.end_ns if awaited else begin_ns)
        self._add("start-up", f"start of {operation.name}", ready_ns, start_ns, where)
        if awaited is not None and awaited.end_ns >= given_ns:
            return awaited
        return None if call is None else self._host(call.thread, given_ns)

    def _host(self, thread: int, until_ns: int) -> Activity | None:
        """Add the host's time up to `until_ns`; return the operation that the host had waited for."""
        flow = self._flow
        begin_ns = self._flow.timeline.start_ns
        at_ns = until_ns
        while (wait := flow.last_wait(thread, at_ns)) is not None:
            operation = wait.operation
            if (
                operation is not None
                and begin_ns < operation.end_ns <= until_ns
                and operation.correlation_id not in self._seen
            ):
                self._add_host(thread, operation.end_ns, until_ns)
                return operation
            at_ns = wait.end_ns - 1
        self._add_host(thread, begin_ns, until_ns)
        return None

    def _add_host(self, thread: int, start_ns: int, end_ns: int) -> None:
        calls = self._flow.calls_within(thread, start_ns, end_ns)
        issuing = within_ns(calls, start_ns, end_ns)
        lines: Counter[SourceLine] = Counter()
        for call in calls:
            if call.source is not None:
                lines[call.source] += 1 + call.end_ns - call.start_ns
        names = Counter(call.name for call in calls)
        name = "the host computes"
        if calls and issuing * 2 >= end_ns - start_ns:
            told = [f"{times:,} × {name}" if times > 1 else name for name, times in names.most_common(2)]
            name = listing([*told, *(["others"] if len(names) > 2 else [])])
        elif running := self._flow.running(thread, start_ns, end_ns):
            name = f"the host runs {running}"
        source = lines.most_common(1)[0][0] if lines else None
        self._add("host", name, start_ns, end_ns, "host", 0, source)

    def _add(
        self,
        kind: StepKind,
        name: str,
        start_ns: int,
        end_ns: int,
        where: str,
        number: int = 0,
        source: SourceLine | None = None,
    ) -> None:
        if end_ns > start_ns:
            self._steps.append(
                PathStep(
                    kind=kind,
                    name=name,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    where=where,
                    correlation_id=number,
                    source=source,
                )
            )
