"""Advice on how to make a program faster, from its timeline, with the expected gain.

Each gain is what the one change saves if the rest stays as it is; those of several do not add up.

* *Pin*: pageable copies on the critical path, less what they would take at the speed of the timeline's own
  pinned copies, or at `PINNED_GB_S`.
* *Wait*: the device's idle times for which a line of the program that waits is to blame, and the small copies
  that it waits for, which nobody needs if the value stays on the device.
* *Graph*: its launch-bound idle times; the nodes of a graph follow each other by `GRAPH_NODE_NS` at least.
* *Host*: its idle times while the host computed.
* *Overlap*: of the operations on the critical path, all that do not belong to the engine that is busiest
  there, if the work came in `PIECES` pieces of which each may overlap the next; nothing where they do.
* *Stream*: gaps of streams that the default stream's rule made.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from gpulab.analysis.critical_path import critical_path
from gpulab.analysis.flow import Flow
from gpulab.analysis.gaps import gaps_of
from gpulab.analysis.overlap import by_engine, by_stream, engine_of, pairs
from gpulab.analysis.sentences import at_lines
from gpulab.words import count, duration, listing, percent
from virtualgpu.records import Activity, Advice, CopyKind, Gap, GapCause, PathStep, SourceLine, Timeline

MOST = 4
# Smallest gains that are worth a sentence.
_LEAST_FRACTION = 0.02
# A pinned buffer one way over PCIe 5.0 x16 (measured on an H200), and over what older GPUs have.
PINNED_GB_S = 55.0
_PINNED_GB_S_OF = {"T4": 13.0, "V100": 13.0, "A100": 26.0, "A10": 26.0, "A30": 26.0, "L4": 26.0, "RTX": 26.0}
# Measured on an H200: 1.03 µs a node in a graph of 1,000.
GRAPH_NODE_NS = 1_030
_FEWEST_LAUNCHES = 10
PIECES = 4
_OVERLAPS_WELL = 0.5
# Smaller copies take only the fixed time of a copy.
_SMALLEST_COPY = 64 << 10
_WAITS: tuple[GapCause, ...] = ("hidden synchronisation", "synchronisation")


def advice(timeline: Timeline) -> tuple[Advice, ...]:
    """Return at most four pieces of advice, the one with the largest gain first; none if none apply.

    A graph comes behind the waits that keep it from being captured.

    Examples
    --------
    >>> print(advice(timeline)[0].text)
    Remove the wait in cell [3], line 4 (`float(y)`), behind which ...: up to about 412 µs of 1.05 ms (39 %).
    """
    flow = Flow(timeline)
    path = critical_path(timeline)
    device = [a for a in timeline.activities if engine_of(a) is not None]
    idle = [gap for gap in gaps_of(flow, {"device": device}) if gap.before]
    found = [
        *_pin(flow, path),
        *_waits(flow, idle),
        *_graph(flow, idle),
        *_host(idle),
        *_overlap(flow, path),
        *_stream(flow, gaps_of(flow, by_stream(timeline))),
    ]
    whole = timeline.duration_ns
    found = [each for each in found if each.gain_ns >= max(1, _LEAST_FRACTION * whole)]
    # A wait cannot be captured, so waits must be removed first.
    waits = any(each.topic == "wait" for each in found)
    found.sort(key=lambda each: (waits and each.topic == "graph", -each.gain_ns))
    return tuple(
        Advice(each.topic, f"{each.text}: {_gain(each.gain_ns, whole)}.", each.gain_ns, each.sources)
        for each in found[:MOST]
    )


def _gain(gain_ns: int, whole_ns: int) -> str:
    return f"up to about {duration(gain_ns)} of {duration(whole_ns)} ({percent(gain_ns / whole_ns)})"


def _on_path(flow: Flow, path: Sequence[PathStep]) -> list[Activity]:
    return [flow.operations[step.correlation_id] for step in path if step.kind == "operation"]


def _pin(flow: Flow, path: Sequence[PathStep]) -> Iterable[Advice]:
    copies = [a for a in _on_path(flow, path) if a.pinned is False and a.size_bytes >= _SMALLEST_COPY]
    speeds = {kind: _pinned_gb_s(flow, kind) for kind in {copy.copy_kind for copy in copies}}
    saved = 0.0
    lines = []
    for copy in copies:
        likely_ns = copy.size_bytes / speeds[copy.copy_kind]
        if likely_ns < copy.duration_ns:
            saved += copy.duration_ns - likely_ns
            lines.append(_line(flow, copy))
    if saved:
        copied = count(len(lines), "copy", "copies")
        text = f"Pin the host's buffer of {copied} on the critical path{at_lines(lines)}, as "
        text += "cupyx.empty_pinned makes one: then the copy is faster and the host need not wait for it"
        yield Advice("pin", text, round(saved), _distinct(lines))


def _pinned_gb_s(flow: Flow, kind: CopyKind | None) -> float:
    """The speed of pinned copies of one direction in this timeline, in bytes per ns."""
    known = [a for a in flow.timeline.activities if a.copy_kind == kind and a.size_bytes >= _SMALLEST_COPY]
    total_ns = sum(a.duration_ns for a in known if a.pinned)
    if total_ns:
        return sum(a.size_bytes for a in known if a.pinned) / total_ns
    device = flow.timeline.provenance.device
    return next((speed for name, speed in _PINNED_GB_S_OF.items() if name in device), PINNED_GB_S)


def _waits(flow: Flow, idle: Sequence[Gap]) -> Iterable[Advice]:
    by_line: dict[SourceLine | None, list[Gap]] = defaultdict(list)
    for gap in idle:
        if gap.cause in _WAITS:
            by_line[gap.source].append(gap)
    # A value that stays on the device needs no copy, nor the idle time before it.
    copies: dict[SourceLine | None, dict[int, Activity]] = defaultdict(dict)
    for wait in (wait for waits in flow.waits.values() for wait in waits):
        copy = wait.operation
        if copy is not None and wait.asked and wait.asked.hidden and copy.size_bytes < _SMALLEST_COPY:
            copies[wait.source][copy.correlation_id] = copy
    before = {gap.before: gap.duration_ns for gap in idle}
    for line, found in by_line.items():
        gone = copies[line] if copies[line] and line is not None else {}
        saved = _total(found) + sum(copy.duration_ns + before.get(n, 0) for n, copy in gone.items())
        text = f"Remove the wait{at_lines([line])}, behind which the device stood idle {_times(found)}"
        if any(gap.cause == "hidden synchronisation" for gap in found):
            text += "; leave the value on the device, or fetch it once at the end"
        yield Advice("wait", text, saved, _distinct([line]))


def _graph(flow: Flow, idle: Sequence[Gap]) -> Iterable[Advice]:
    late = [gap for gap in idle if gap.cause == "launch-bound"]
    launches = [gap for gap in late if not flow.operations[gap.before].graph_id]
    if len(launches) >= _FEWEST_LAUNCHES:
        lines = [gap.source for gap in launches]
        what = "Capture the launches in a CUDA Graph"
        if any(gap.cause in _WAITS for gap in idle):
            what = "Once nothing waits between the launches, capture them in a CUDA Graph"
        text = f"{what}{at_lines(lines)}: {_times(launches)} the device "
        text += "stood idle because the host gives out work more slowly than it runs"
        spaced = sum(max(0, GRAPH_NODE_NS - flow.operations[gap.before].duration_ns) for gap in launches)
        yield Advice("graph", text, _total(launches) - spaced, _distinct(lines))


def _host(idle: Sequence[Gap]) -> Iterable[Advice]:
    found = [gap for gap in idle if gap.cause == "host computing"]
    if found:
        lines = [gap.source for gap in found]
        text = f"Give out work before the host computes{at_lines(lines)}: {_times(found)} the device stood "
        text += "idle meanwhile"
        yield Advice("host", text, _total(found), _distinct(lines))


def _overlap(flow: Flow, path: Sequence[PathStep]) -> Iterable[Advice]:
    busy: Counter[str] = Counter()
    for operation in _on_path(flow, path):
        engine = engine_of(operation)
        if engine == "compute" or (engine in ("H2D", "D2H") and operation.size_bytes >= _SMALLEST_COPY):
            busy[engine] += operation.duration_ns
    if len(busy) < 2 or "compute" not in busy:
        return
    engines = {name: found for name, found in by_engine(flow.timeline).items() if name.split()[0] in busy}
    together = pairs(engines)
    if all(pair.fraction >= _OVERLAPS_WELL for pair in together):
        return
    (longest, _), *others = busy.most_common()
    saved = sum(time_ns for _, time_ns in others) * (PIECES - 1) / PIECES
    # Even with perfect overlap, a run is not shorter than the work of its busiest engine.
    least_ns = max(max(pair.first_ns, pair.second_ns) for pair in together)
    names = listing([longest, *(name for name, _ in others)])
    text = f"Let {names} overlap: cut the work into pieces, and give them to several streams in turn"
    if any(a.pinned is False for a in _on_path(flow, path)):
        text += ", with pinned buffers"
    yield Advice("overlap", text, round(min(saved, flow.timeline.duration_ns - least_ns)))


def _stream(flow: Flow, gaps: Sequence[Gap]) -> Iterable[Advice]:
    found = [gap for gap in gaps if gap.cause == "default stream"]
    if found:
        where = listing(list(dict.fromkeys(gap.where for gap in found)))
        text = f"Make streams with cp.cuda.Stream(non_blocking=True), and leave the default stream: {where} "
        text += f"waited {_times(found)} by its rule"
        calls = [flow.call(flow.operations[gap.before]) for gap in found]
        given = [
            gap.start_ns if call is None else call.end_ns for gap, call in zip(found, calls, strict=True)
        ]
        saved = sum(gap.end_ns - max(gap.start_ns, ns) for gap, ns in zip(found, given, strict=True))
        yield Advice("stream", text, saved)


def _line(flow: Flow, operation: Activity) -> SourceLine | None:
    call = flow.call(operation)
    return None if call is None else call.source


def _distinct(lines: Iterable[SourceLine | None]) -> tuple[SourceLine, ...]:
    return tuple(dict.fromkeys(line for line in lines if line is not None))


def _total(gaps: Sequence[Gap]) -> int:
    return sum(gap.duration_ns for gap in gaps)


def _times(gaps: Sequence[Gap]) -> str:
    return count(len(gaps), "time")
