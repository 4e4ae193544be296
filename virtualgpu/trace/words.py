"""What a timeline holds, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from virtualgpu.records import Activity, SourceLine, Timeline

_KINDS = {
    "CONCURRENT_KERNEL": ("kernel", "kernels"),
    "MEMSET": ("memset", "memsets"),
    "HOST_LAUNCH": ("host function", "host functions"),
    "RANGE": ("range between events", "ranges between events"),
}
_COPIES = {"HtoD": "H2D", "DtoH": "D2H", "DtoD": "D2D", "PtoP": "P2P"}


def duration(time_ns: float) -> str:
    """A time in the unit that suits it: ``640 ns``, ``12.3 µs``, ``4.10 ms``."""
    unit, scale = next((u for u in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if time_ns >= u[1]), ("ns", 1.0))
    return f"{_three(time_ns / scale)} {unit}" if scale > 1 else f"{time_ns:,.0f} ns"


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def size(size_bytes: float) -> str:
    """A byte count in binary units: ``227 KiB``, ``1.5 GiB``."""
    unit, scale = next(
        (u for u in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)) if size_bytes >= u[1]), ("B", 1)
    )
    return f"{_three(size_bytes / scale)} {unit}" if scale > 1 else f"{size_bytes:,.0f} B"


def percent(fraction: float) -> str:
    """``0.5`` as ``50 %``, a small part with one digit."""
    share = 100 * fraction
    return f"{share:.0f} %" if share == 0 or share >= 1 else f"{share:.1g} %"


def count(number: int, one: str, many: str = "") -> str:
    """``1 copy``, ``2 copies``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def listing(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def what_ran(activities: Sequence[Activity]) -> str:
    """``3 kernels, 2 copies (1 H2D, 1 D2H) and 1 memset``; ``nothing``."""
    kinds = Counter("COPY" if a.kind in ("MEMCPY", "MEMCPY2") else a.kind for a in activities)
    directions = Counter(_COPIES.get(a.copy_kind, "other") for a in activities if a.copy_kind)
    parts = [count(kinds[kind], *words) for kind, words in _KINDS.items() if kinds[kind]]
    if kinds["COPY"]:
        told = ", ".join(f"{number:,} {way}" for way, number in sorted(directions.items()))
        parts.insert(min(1, kinds["CONCURRENT_KERNEL"]), f"{count(kinds['COPY'], 'copy', 'copies')} ({told})")
    return listing(parts) if parts else "nothing"


def sentence(timeline: Timeline) -> str:
    """One sentence: how long, what ran, and where the times come from.

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
        ran += f" of {len(devices)} devices"
    told = [ran, *([f"{count(waits, 'wait')} of the host"] if waits else [])]
    if timeline.lost:
        told.append(f"{count(timeline.lost, 'record')} lost")
    origin = timeline.provenance.label
    return f"Timeline of {duration(timeline.duration_ns)}, {origin}: {'; '.join(told)}."


def at_lines(lines: Sequence[SourceLine | None]) -> str:
    """`` in cell [3], line 2 (`x = y`)``, `` in cell [3], lines 2 and 5``; nothing where none is known."""
    known = list(dict.fromkeys(line for line in lines if line is not None))
    if not known:
        return ""
    if len(known) == 1:
        return f" in {known[0]}" + (f" (`{known[0].text}`)" if known[0].text else "")
    named = [str(line) for line in known[:3]]
    return f" in {listing([*named, *(['others'] if len(known) > 3 else [])])}"
