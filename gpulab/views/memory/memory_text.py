"""A device's memory in words."""

from __future__ import annotations

from gpulab.words import count, duration, size
from virtualgpu.records.memory import MemorySamples

NOT_AVAILABLE = "not available"
TERMS = ("Used", "Cached", "Driver and others", "Limit of the pool", "Peak used")
NO_LINE = "no line of the program"
NO_LIMIT = "none"
ROWS = ("allocated", "freed")
REFUSED = "refused"
BEYOND = "+{size} beyond this edge: driver and others"
PAGE = {
    "terms": TERMS,
    "not_available": NOT_AVAILABLE,
    "no_limit": NO_LIMIT,
    "mark": "At {time}: {what}; {where}",
    "allocated": "{times} <times allocation|allocations>, {size}",
    "failed": "{failures} <failures request|requests> failed, out of memory",
    "freed": "{times} <times free|frees>, {size}",
    "no_line": NO_LINE,
    "others": "{where} and {others} <others other line|other lines>",
    "reading": "At {time}: {used} used, {cached} cached, {outside} driver and others, at most {peak} used "
    "until the next reading{limit}.",
    "limit": ", limit {limit}",
    "failure": "not available: {failure}",
    "rows": ROWS,
    "refused": REFUSED,
    "beyond": BEYOND,
    "busy": "waits until the cell that runs has ended",
}
"""Templates that ``chart.js`` fills."""


def sentence(record: MemorySamples, state: str) -> str:
    """Return the memory used, cached and taken by others, the peak, and the origin in a sentence."""
    peak = record.peak
    return (
        f"Memory of {record.provenance.device} over {duration(record.duration_ns)} ({state}): "
        f"{told(record.latest('used_bytes'))} used"
        f"{f' (peak {size(peak[0])} at {duration(peak[1])})' if peak else ''}, "
        f"{told(cached(record))} cached, {told(outside(record))} driver and others, "
        f"of {size(record.capacity_bytes)}; {record.provenance.label}."
    )


def told(size_bytes: float | None) -> str:
    """Return a size in words, or that there is none."""
    return NOT_AVAILABLE if size_bytes is None else size(size_bytes)


def cached(record: MemorySamples) -> float | None:
    """Return the bytes that the pool keeps but the program does not use."""
    return _less(record.latest("reserved_bytes"), record.latest("used_bytes"))


def outside(record: MemorySamples) -> float | None:
    """Return the device's bytes outside the pool: the driver, libraries, other processes."""
    return _less(record.latest("device_bytes"), record.latest("reserved_bytes"))


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else max(0.0, whole - part)


def by_line(record: MemorySamples, most: int = 5) -> list[str]:
    """Return a sentence for each of the lines that allocated most."""
    marks = record.marks
    sums = dict[int, list[float]]()
    for line, times, total in zip(
        marks.line.tolist(), marks.allocations.tolist(), marks.allocated_bytes.tolist(), strict=True
    ):
        if times:
            known = sums.setdefault(int(line), [0, 0])
            known[0] += times
            known[1] += total
    largest = sorted(sums.items(), key=lambda item: -item[1][1])[:most]
    return [
        f"{line_text(record, line)}: {count(int(times), 'allocation')}, {size(total)}."
        for line, (times, total) in largest
    ]


def line_text(record: MemorySamples, line: int) -> str:
    """Return a source line as it appears in a mark."""
    if line < 0:
        return f"{NO_LINE}, or several"
    source = record.lines[line]
    return f"{source}: {source.text}" if source.text else str(source)
