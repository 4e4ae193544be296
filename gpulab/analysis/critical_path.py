"""The critical path: the chain of operations and host times that determines a timeline's duration.

It is followed backwards from the end. An operation began when the last of three conditions was met: its
predecessors had ended, its call had issued it, and its engine was free. The host made that call after it had
continued from its last wait, which had ended with the operation that it waited for. Each link begins when the
one before it ends, so the links' times add up to the timeline's duration. To make the program faster, one of
the links has to become shorter.
"""

from __future__ import annotations

from collections import Counter

from gpulab.analysis.flow import TimelineLookup, sum_within_ns
from gpulab.analysis.overlap import make_stream_names
from gpulab.words import listing
from virtualgpu.records import Activity, PathStep, SourceLine, StepKind, Timeline


def find_critical_path(timeline: Timeline) -> tuple[PathStep, ...]:
    """Return the steps of the critical path in chronological order. Together they cover the whole duration of
    the timeline.

    Examples
    --------
    >>> sum(step.duration_ns for step in find_critical_path(timeline)) == timeline.duration_ns
    True
    """
    return _PathSearch(TimelineLookup(timeline)).steps()


class _PathSearch:
    """Search for the critical path, which follows a timeline backwards from its end and collects steps."""

    def __init__(self, timeline_lookup: TimelineLookup) -> None:
        self._timeline_lookup = timeline_lookup
        self._stream_names = make_stream_names(timeline_lookup.timeline)
        self._steps: list[PathStep] = []
        self._path_ids: set[int] = set()

    def steps(self) -> tuple[PathStep, ...]:
        """Return the steps of the critical path in chronological order."""
        timeline = self._timeline_lookup.timeline
        last_operation = max(timeline.activities, key=lambda activity: activity.end_ns, default=None)
        operation: Activity | None
        if last_operation is not None and last_operation.end_ns >= timeline.end_ns:
            operation = last_operation
        else:
            calls = timeline.calls
            thread = max(calls, key=lambda call: call.end_ns).thread if calls else 0
            operation = self._follow_host(thread, timeline.end_ns)
        while operation is not None:
            self._path_ids.add(operation.correlation_id)
            operation = self._follow_operation(operation)
        return tuple(reversed(self._steps))

    def _follow_operation(self, operation: Activity) -> Activity | None:
        """Add an operation to the path, and return the previous operation, or None at the beginning."""
        timeline_lookup = self._timeline_lookup
        timeline_start_ns = self._timeline_lookup.timeline.start_ns
        stream_name = self._stream_names[operation.device_id, operation.stream_id]
        start_ns = max(timeline_start_ns, operation.start_ns)
        issuing_call = timeline_lookup.find_issuing_call(operation)
        self._add_step(
            "operation",
            operation.name,
            start_ns,
            operation.end_ns,
            stream_name,
            operation.correlation_id,
            issuing_call.source if issuing_call else None,
        )
        candidates = [
            *timeline_lookup.find_predecessors(operation),
            timeline_lookup.find_engine_predecessor(operation),
        ]
        predecessors = [
            activity
            for activity in candidates
            if activity is not None
            and activity.end_ns <= start_ns
            and activity.correlation_id not in self._path_ids
        ]
        last_predecessor = max(predecessors, key=lambda activity: activity.end_ns, default=None)
        issued_ns = timeline_start_ns if issuing_call is None else min(issuing_call.end_ns, start_ns)
        ready_ns = max(
            timeline_start_ns, issued_ns, last_predecessor.end_ns if last_predecessor else timeline_start_ns
        )
        self._add_step("start-up", f"start of {operation.name}", ready_ns, start_ns, stream_name)
        if last_predecessor is not None and last_predecessor.end_ns >= issued_ns:
            return last_predecessor
        return None if issuing_call is None else self._follow_host(issuing_call.thread, issued_ns)

    def _follow_host(self, thread: int, interval_end_ns: int) -> Activity | None:
        """Add the time of a host thread up to `interval_end_ns`. Return the operation for which the thread
        had waited before, or None at the beginning.
        """
        timeline_lookup = self._timeline_lookup
        timeline_start_ns = self._timeline_lookup.timeline.start_ns
        wait_limit_ns = interval_end_ns
        while (wait := timeline_lookup.find_last_wait(thread, wait_limit_ns)) is not None:
            operation = wait.operation
            if (
                operation is not None
                and timeline_start_ns < operation.end_ns <= interval_end_ns
                and operation.correlation_id not in self._path_ids
            ):
                self._add_host_step(thread, operation.end_ns, interval_end_ns)
                return operation
            wait_limit_ns = wait.end_ns - 1
        self._add_host_step(thread, timeline_start_ns, interval_end_ns)
        return None

    def _add_host_step(self, thread: int, start_ns: int, end_ns: int) -> None:
        """Add a step of the host, named after its CUDA calls or after the NVTX range around it."""
        calls = self._timeline_lookup.find_calls_within(thread, start_ns, end_ns)
        call_ns = sum_within_ns(calls, start_ns, end_ns)
        line_ns: Counter[SourceLine] = Counter()
        for host_call in calls:
            if host_call.source is not None:
                line_ns[host_call.source] += 1 + host_call.end_ns - host_call.start_ns
        call_counts = Counter(host_call.name for host_call in calls)
        step_name = "the host computes"
        if calls and call_ns * 2 >= end_ns - start_ns:
            call_texts = [
                f"{call_count:,} × {step_name}" if call_count > 1 else step_name
                for step_name, call_count in call_counts.most_common(2)
            ]
            step_name = listing([*call_texts, *(["others"] if len(call_counts) > 2 else [])])
        elif range_name := self._timeline_lookup.find_running_range(thread, start_ns, end_ns):
            step_name = f"the host runs {range_name}"
        longest_line = line_ns.most_common(1)[0][0] if line_ns else None
        self._add_step("host", step_name, start_ns, end_ns, "host", 0, longest_line)

    def _add_step(
        self,
        step_kind: StepKind,
        name: str,
        start_ns: int,
        end_ns: int,
        track: str,
        operation_number: int = 0,
        source: SourceLine | None = None,
    ) -> None:
        if end_ns > start_ns:
            self._steps.append(
                PathStep(
                    kind=step_kind,
                    name=name,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    where=track,
                    correlation_id=operation_number,
                    source=source,
                )
            )
