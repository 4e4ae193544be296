"""Descriptions of a timeline in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpulab.words import count, duration, listing
from virtualgpu.records import Activity, SourceLine, Timeline

_NOUNS_OF_KIND = {
    "CONCURRENT_KERNEL": ("kernel", "kernels"),
    "MEMSET": ("memset", "memsets"),
    "HOST_LAUNCH": ("host function", "host functions"),
    "RANGE": ("range between events", "ranges between events"),
}
_DIRECTIONS = {"HtoD": "H2D", "DtoH": "D2H", "DtoD": "D2D", "PtoP": "P2P"}


def describe_operations(activities: Sequence[Activity]) -> str:
    """Return a phrase with the numbers of operations, such as ``3 kernels, 2 copies (1 H2D, 1 D2H)``, or
    ``nothing``.
    """
    kind_counts = Counter(
        "COPY" if activity.kind in ("MEMCPY", "MEMCPY2") else activity.kind for activity in activities
    )
    direction_counts = Counter(
        _DIRECTIONS.get(activity.copy_kind, "other") for activity in activities if activity.copy_kind
    )
    count_texts = [
        count(kind_counts[kind], *nouns) for kind, nouns in _NOUNS_OF_KIND.items() if kind_counts[kind]
    ]
    if kind_counts["COPY"]:
        directions_text = ", ".join(
            f"{copy_count:,} {direction}" for direction, copy_count in sorted(direction_counts.items())
        )
        count_texts.insert(
            min(1, kind_counts["CONCURRENT_KERNEL"]),
            f"{count(kind_counts['COPY'], 'copy', 'copies')} ({directions_text})",
        )
    return listing(count_texts) if count_texts else "nothing"


def describe_timeline(timeline: Timeline) -> str:
    """Return a sentence with the duration of a timeline, its operations, and the origin of its times.

    Examples
    --------
    >>> sentence(timeline)
    'Timeline of 1.25 ms, modelled on virtual A100: 1 kernel and 1 copy (1 D2H) in 1 stream.'
    """
    streams = {(activity.device_id, activity.stream_id) for activity in timeline.activities}
    devices = {device for device, _ in streams}
    wait_count = sum(wait.type != "STREAM_WAIT_EVENT" for wait in timeline.synchronizations)
    operations_text = describe_operations(timeline.activities)
    if streams:
        operations_text += f" in {count(len(streams), 'stream')}"
    if len(devices) > 1:
        operations_text += f" of {count(len(devices), 'device')}"
    if not streams and timeline.method == "file":
        operations_text = "no GPU work"
    clauses = [operations_text, *([f"{count(wait_count, 'wait')} of the host"] if wait_count else [])]
    if not streams and timeline.ranges:
        clauses.append(f"{count(len(timeline.ranges), 'range')} of the host")
    if timeline.lost:
        clauses.append(f"{count(timeline.lost, 'record')} lost")
    origin = timeline.provenance.label
    note_text = f" {timeline.note}" if not streams and timeline.note else ""
    return f"Timeline of {duration(timeline.duration_ns)}, {origin}: {'; '.join(clauses)}.{note_text}"


def format_lines(lines: Sequence[SourceLine | None]) -> str:
    """Return a phrase for source lines, such as `` in cell [3], line 2 (`x = y`)``, or an empty string if no
    line is known.
    """
    known_lines = list(dict.fromkeys(line for line in lines if line is not None))
    if not known_lines:
        return ""
    if len(known_lines) == 1:
        return f" in {known_lines[0]}" + (f" (`{known_lines[0].text}`)" if known_lines[0].text else "")
    line_names = [str(line) for line in known_lines[:3]]
    return f" in {listing([*line_names, *(['others'] if len(known_lines) > 3 else [])])}"
