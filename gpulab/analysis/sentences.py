"""Descriptions of a timeline in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpulab.words import count, duration, listing
from virtualgpu.records import Activity, SourceLine, Timeline

_KINDS = {
    "CONCURRENT_KERNEL": ("kernel", "kernels"),
    "MEMSET": ("memset", "memsets"),
    "HOST_LAUNCH": ("host function", "host functions"),
    "RANGE": ("range between events", "ranges between events"),
}
_COPIES = {"HtoD": "H2D", "DtoH": "D2H", "DtoD": "D2D", "PtoP": "P2P"}


def what_ran(activities: Sequence[Activity]) -> str:
    """Return the number of operations in words: ``3 kernels, 2 copies (1 H2D, 1 D2H)``, or ``nothing``."""
    kinds = Counter("COPY" if a.kind in ("MEMCPY", "MEMCPY2") else a.kind for a in activities)
    directions = Counter(_COPIES.get(a.copy_kind, "other") for a in activities if a.copy_kind)
    parts = [count(kinds[kind], *words) for kind, words in _KINDS.items() if kinds[kind]]
    if kinds["COPY"]:
        told = ", ".join(f"{number:,} {way}" for way, number in sorted(directions.items()))
        parts.insert(min(1, kinds["CONCURRENT_KERNEL"]), f"{count(kinds['COPY'], 'copy', 'copies')} ({told})")
    return listing(parts) if parts else "nothing"


def sentence(timeline: Timeline) -> str:
    """Return one sentence with the duration, the operations, and the origin of the times.

    Examples
    --------
    >>> sentence(timeline)
    'Timeline of 1.25 ms, modelled on virtual A100: 1 kernel and 1 copy (1 D2H) in 1 stream.'
    """
    streams = {(a.device_id, a.stream_id) for a in timeline.activities}
    devices = {device for device, _ in streams}
    waits = sum(s.type != "STREAM_WAIT_EVENT" for s in timeline.synchronizations)
    ran = what_ran(timeline.activities)
    if streams:
        ran += f" in {count(len(streams), 'stream')}"
    if len(devices) > 1:
        ran += f" of {count(len(devices), 'device')}"
    if not streams and timeline.method == "file":
        ran = "no work of a GPU"
    told = [ran, *([f"{count(waits, 'wait')} of the host"] if waits else [])]
    if not streams and timeline.ranges:
        told.append(f"{count(len(timeline.ranges), 'range')} of the host")
    if timeline.lost:
        told.append(f"{count(timeline.lost, 'record')} lost")
    origin = timeline.provenance.label
    note = f" {timeline.note}" if not streams and timeline.note else ""
    return f"Timeline of {duration(timeline.duration_ns)}, {origin}: {'; '.join(told)}.{note}"


def at_lines(lines: Sequence[SourceLine | None]) -> str:
    """Return `` in cell [3], line 2 (`x = y`)`` or `` in cell [3], lines 2 and 5``; empty if not known."""
    known = list(dict.fromkeys(line for line in lines if line is not None))
    if not known:
        return ""
    if len(known) == 1:
        return f" in {known[0]}" + (f" (`{known[0].text}`)" if known[0].text else "")
    named = [str(line) for line in known[:3]]
    return f" in {listing([*named, *(['others'] if len(known) > 3 else [])])}"
