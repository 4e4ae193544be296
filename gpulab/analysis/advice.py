"""Advice on how to make a program faster, from its timeline, with the expected gain.

Each gain is the time that this change alone saves. The gains of several changes do not add up.

* *Pin*: the time of pageable copies on the critical path, less the time that they would take at the speed of
  the timeline's own pinned copies, or at `PINNED_GB_S`.
* *Wait*: the device's idle times that a waiting line of the program causes, and the small copies for which it
  waits, which are not needed if the value stays on the device.
* *Graph*: the launch-bound idle times; the nodes of a graph start at least `GRAPH_NODE_NS` apart.
* *Host*: the idle times during which the host computed.
* *Overlap*: the operations on the critical path that do not run on the engine that is busiest there, if the
  work came in `OVERLAP_PIECES` pieces, each of which may overlap the next; nothing if they overlap already.
* *Stream*: gaps of streams that the default stream's rule causes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from gpulab.analysis.critical_path import find_critical_path
from gpulab.analysis.flow import TimelineLookup
from gpulab.analysis.gaps import find_group_gaps
from gpulab.analysis.overlap import find_engine, find_pair_overlaps, group_by_engine, group_by_stream
from gpulab.analysis.sentences import format_lines
from gpulab.words import count, duration, listing, percent
from virtualgpu.records import Activity, Advice, CopyKind, Gap, GapCause, PathStep, SourceLine, Timeline

MAX_ADVICE = 4
# Smallest gains that are worth a sentence.
_MIN_GAIN_FRACTION = 0.02
# Copies from a pinned buffer in one direction over PCIe 5.0 x16 (measured on an H200), and on older GPUs.
PINNED_GB_S = 55.0
_PINNED_GB_S_OF_DEVICE = {
    "T4": 13.0,
    "V100": 13.0,
    "A100": 26.0,
    "A10": 26.0,
    "A30": 26.0,
    "L4": 26.0,
    "RTX": 26.0,
}
# Measured on an H200: 1.03 µs per node in a graph of 1,000 nodes.
GRAPH_NODE_NS = 1_030
_MIN_LAUNCHES = 10
OVERLAP_PIECES = 4
_GOOD_OVERLAP_FRACTION = 0.5
# Smaller copies take only the fixed time of a copy.
_MIN_COPY_BYTES = 64 << 10
_WAIT_CAUSES: tuple[GapCause, ...] = ("hidden synchronisation", "synchronisation")


def make_advice(timeline: Timeline) -> tuple[Advice, ...]:
    """Return at most four pieces of advice on a timeline, sorted by the expected gain.

    Advice to use a graph comes after advice to remove waits, because a program with waits cannot be captured.

    Examples
    --------
    >>> print(make_advice(timeline)[0].text)
    Remove the wait in cell [3], line 4 (`float(y)`), behind which ...: up to about 412 µs of 1.05 ms (39 %).
    """
    timeline_lookup = TimelineLookup(timeline)
    critical_path = find_critical_path(timeline)
    device_operations = [activity for activity in timeline.activities if find_engine(activity) is not None]
    idle_gaps = [gap for gap in find_group_gaps(timeline_lookup, {"device": device_operations}) if gap.before]
    candidates = [
        *_make_pinning_advice(timeline_lookup, critical_path),
        *_make_wait_advice(timeline_lookup, idle_gaps),
        *_make_graph_advice(timeline_lookup, idle_gaps),
        *_make_host_advice(idle_gaps),
        *_make_overlap_advice(timeline_lookup, critical_path),
        *_make_stream_advice(timeline_lookup, find_group_gaps(timeline_lookup, group_by_stream(timeline))),
    ]
    total_ns = timeline.duration_ns
    candidates = [
        candidate for candidate in candidates if candidate.gain_ns >= max(1, _MIN_GAIN_FRACTION * total_ns)
    ]
    # A wait cannot be captured, so waits must be removed first.
    has_wait = any(candidate.topic == "wait" for candidate in candidates)
    candidates.sort(key=lambda candidate: (has_wait and candidate.topic == "graph", -candidate.gain_ns))
    return tuple(
        Advice(
            candidate.topic,
            f"{candidate.text}: {_format_gain(candidate.gain_ns, total_ns)}.",
            candidate.gain_ns,
            candidate.sources,
        )
        for candidate in candidates[:MAX_ADVICE]
    )


def _format_gain(gain_ns: int, total_ns: int) -> str:
    return f"up to about {duration(gain_ns)} of {duration(total_ns)} ({percent(gain_ns / total_ns)})"


def _find_path_operations(
    timeline_lookup: TimelineLookup, critical_path: Sequence[PathStep]
) -> list[Activity]:
    return [
        timeline_lookup.operations[step.correlation_id] for step in critical_path if step.kind == "operation"
    ]


def _make_pinning_advice(
    timeline_lookup: TimelineLookup, critical_path: Sequence[PathStep]
) -> Iterable[Advice]:
    copies = [
        activity
        for activity in _find_path_operations(timeline_lookup, critical_path)
        if activity.pinned is False and activity.size_bytes >= _MIN_COPY_BYTES
    ]
    speeds_gb_s = {
        copy_kind: _find_pinned_speed(timeline_lookup, copy_kind)
        for copy_kind in {copy.copy_kind for copy in copies}
    }
    saved_ns = 0.0
    copy_lines = []
    for copy in copies:
        pinned_ns = copy.size_bytes / speeds_gb_s[copy.copy_kind]
        if pinned_ns < copy.duration_ns:
            saved_ns += copy.duration_ns - pinned_ns
            copy_lines.append(_find_issuing_line(timeline_lookup, copy))
    if saved_ns:
        copies_text = count(len(copy_lines), "copy", "copies")
        advice_text = (
            f"Pin the host's buffer of {copies_text} on the critical path{format_lines(copy_lines)}, for "
        )
        advice_text += (
            "example with cupyx.empty_pinned: the copy is then faster, and the host does not have to "
        )
        advice_text += "wait for it"
        yield Advice("pin", advice_text, round(saved_ns), _find_distinct_lines(copy_lines))


def _find_pinned_speed(timeline_lookup: TimelineLookup, copy_kind: CopyKind | None) -> float:
    """Return the speed of the timeline's pinned copies in one direction, in bytes per ns. If there are no
    such copies, return a typical speed for the device.
    """
    copies = [
        activity
        for activity in timeline_lookup.timeline.activities
        if activity.copy_kind == copy_kind and activity.size_bytes >= _MIN_COPY_BYTES
    ]
    total_ns = sum(activity.duration_ns for activity in copies if activity.pinned)
    if total_ns:
        return sum(activity.size_bytes for activity in copies if activity.pinned) / total_ns
    device = timeline_lookup.timeline.provenance.device
    return next((speed for name, speed in _PINNED_GB_S_OF_DEVICE.items() if name in device), PINNED_GB_S)


def _make_wait_advice(timeline_lookup: TimelineLookup, idle_gaps: Sequence[Gap]) -> Iterable[Advice]:
    gaps_by_line: dict[SourceLine | None, list[Gap]] = defaultdict(list)
    for gap in idle_gaps:
        if gap.cause in _WAIT_CAUSES:
            gaps_by_line[gap.source].append(gap)
    # A value that stays on the device needs no copy, nor the idle time before it.
    copies_by_line: dict[SourceLine | None, dict[int, Activity]] = defaultdict(dict)
    for waits in timeline_lookup.waits.values():
        for wait in waits:
            copy = wait.operation
            is_hidden = wait.synchronization is not None and wait.synchronization.hidden
            if copy is not None and is_hidden and copy.size_bytes < _MIN_COPY_BYTES:
                copies_by_line[wait.source][copy.correlation_id] = copy
    idle_before_ns = {gap.before: gap.duration_ns for gap in idle_gaps}
    for line, gaps in gaps_by_line.items():
        removable_copies = copies_by_line[line] if copies_by_line[line] and line is not None else {}
        saved_ns = _sum_gaps_ns(gaps) + sum(
            copy.duration_ns + idle_before_ns.get(copy_number, 0)
            for copy_number, copy in removable_copies.items()
        )
        advice_text = (
            f"Remove the wait{format_lines([line])}, after which the device was idle {_format_gap_time(gaps)}"
        )
        if any(gap.cause == "hidden synchronisation" for gap in gaps):
            advice_text += "; keep the value on the device, or copy it once at the end"
        yield Advice("wait", advice_text, saved_ns, _find_distinct_lines([line]))


def _make_graph_advice(timeline_lookup: TimelineLookup, idle_gaps: Sequence[Gap]) -> Iterable[Advice]:
    launch_bound_gaps = [gap for gap in idle_gaps if gap.cause == "launch-bound"]
    launch_gaps = [gap for gap in launch_bound_gaps if not timeline_lookup.operations[gap.before].graph_id]
    if len(launch_gaps) >= _MIN_LAUNCHES:
        launch_lines = [gap.source for gap in launch_gaps]
        remedy = "Capture the launches in a CUDA Graph"
        if any(gap.cause in _WAIT_CAUSES for gap in idle_gaps):
            remedy = "If the host does not have to wait between the launches, capture them in a CUDA Graph"
        advice_text = f"{remedy}{format_lines(launch_lines)}: {_format_gap_time(launch_gaps)} the device "
        advice_text += "was idle because the host launches work more slowly than it runs"
        node_spacing_ns = sum(
            max(0, GRAPH_NODE_NS - timeline_lookup.operations[gap.before].duration_ns) for gap in launch_gaps
        )
        yield Advice(
            "graph",
            advice_text,
            _sum_gaps_ns(launch_gaps) - node_spacing_ns,
            _find_distinct_lines(launch_lines),
        )


def _make_host_advice(idle_gaps: Sequence[Gap]) -> Iterable[Advice]:
    host_gaps = [gap for gap in idle_gaps if gap.cause == "host computing"]
    if host_gaps:
        host_lines = [gap.source for gap in host_gaps]
        advice_text = (
            f"Launch work before the host computes{format_lines(host_lines)}: "
            f"{_format_gap_time(host_gaps)} the device "
        )
        advice_text += "was idle in the meantime"
        yield Advice("host", advice_text, _sum_gaps_ns(host_gaps), _find_distinct_lines(host_lines))


def _make_overlap_advice(
    timeline_lookup: TimelineLookup, critical_path: Sequence[PathStep]
) -> Iterable[Advice]:
    busy_ns: Counter[str] = Counter()
    for operation in _find_path_operations(timeline_lookup, critical_path):
        engine = find_engine(operation)
        if engine == "compute" or (engine in ("H2D", "D2H") and operation.size_bytes >= _MIN_COPY_BYTES):
            busy_ns[engine] += operation.duration_ns
    if len(busy_ns) < 2 or "compute" not in busy_ns:
        return
    operations_by_engine = {
        name: operations
        for name, operations in group_by_engine(timeline_lookup.timeline).items()
        if name.split()[0] in busy_ns
    }
    overlaps = find_pair_overlaps(operations_by_engine)
    if all(overlap.fraction >= _GOOD_OVERLAP_FRACTION for overlap in overlaps):
        return
    (longest_engine, _), *other_engines = busy_ns.most_common()
    saved_ns = sum(time_ns for _, time_ns in other_engines) * (OVERLAP_PIECES - 1) / OVERLAP_PIECES
    # Even with perfect overlap, a run is not shorter than the work of its busiest engine.
    shortest_ns = max(max(overlap.first_ns, overlap.second_ns) for overlap in overlaps)
    engine_names = listing([longest_engine, *(name for name, _ in other_engines)])
    advice_text = (
        f"Let {engine_names} overlap: divide the work into pieces, and launch them in several streams in turn"
    )
    if any(activity.pinned is False for activity in _find_path_operations(timeline_lookup, critical_path)):
        advice_text += ", with pinned buffers"
    yield Advice(
        "overlap", advice_text, round(min(saved_ns, timeline_lookup.timeline.duration_ns - shortest_ns))
    )


def _make_stream_advice(timeline_lookup: TimelineLookup, gaps: Sequence[Gap]) -> Iterable[Advice]:
    default_stream_gaps = [gap for gap in gaps if gap.cause == "default stream"]
    if default_stream_gaps:
        stream_list = listing(list(dict.fromkeys(gap.where for gap in default_stream_gaps)))
        advice_text = (
            f"Use streams of cp.cuda.Stream(non_blocking=True) instead of the default stream: {stream_list} "
        )
        advice_text += (
            f"waited {_format_gap_time(default_stream_gaps)} because of its implicit synchronization"
        )
        issuing_calls = [
            timeline_lookup.find_issuing_call(timeline_lookup.operations[gap.before])
            for gap in default_stream_gaps
        ]
        issue_times = [
            gap.start_ns if issuing_call is None else issuing_call.end_ns
            for gap, issuing_call in zip(default_stream_gaps, issuing_calls, strict=True)
        ]
        saved_ns = sum(
            gap.end_ns - max(gap.start_ns, issued_ns)
            for gap, issued_ns in zip(default_stream_gaps, issue_times, strict=True)
        )
        yield Advice("stream", advice_text, saved_ns)


def _find_issuing_line(timeline_lookup: TimelineLookup, operation: Activity) -> SourceLine | None:
    issuing_call = timeline_lookup.find_issuing_call(operation)
    return None if issuing_call is None else issuing_call.source


def _find_distinct_lines(lines: Iterable[SourceLine | None]) -> tuple[SourceLine, ...]:
    return tuple(dict.fromkeys(line for line in lines if line is not None))


def _sum_gaps_ns(gaps: Sequence[Gap]) -> int:
    return sum(gap.duration_ns for gap in gaps)


def _format_gap_time(gaps: Sequence[Gap]) -> str:
    return count(len(gaps), "time")
