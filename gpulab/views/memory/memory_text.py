"""Sentences about a device's memory."""

from __future__ import annotations

from gpulab.words import count, duration, size
from virtualgpu.records.memory import MemorySamples

NOT_AVAILABLE = "not available"
FIGURE_TERMS = ("Used", "Cached", "Driver and others", "Limit of the pool", "Peak used")
NO_LINE_TEXT = "not from a line of the program"
NO_LIMIT_TEXT = "none"
MARK_ROW_NAMES = ("allocated", "freed")
REFUSED_TEXT = "refused"
AXIS_NAMES = {"time": "By time", "event": "By event"}
EVENT_TITLE = "events: allocations, frees, and memory returned to the device"
BEYOND_TEXT = "+{size} beyond this edge: driver and others"
PAGE_TEXTS = {
    "terms": FIGURE_TERMS,
    "not_available": NOT_AVAILABLE,
    "no_limit": NO_LIMIT_TEXT,
    "mark": "At {time}: {what}; {where}",
    "allocated": "{times} <times allocation|allocations>, {size}",
    "failed": "{failures} <failures request|requests> failed, out of memory",
    "freed": "{times} <times free|frees>, {size}",
    "no_line": NO_LINE_TEXT,
    "others": "{where} and {others} <others other line|other lines>",
    "reading": "At {time}: {used} used, {cached} cached, {outside} driver and others, at most {peak} used "
    "until the next reading{limit}.",
    "step": "After event {step}, at {time}: {used} used, {cached} cached, "
    "{outside} driver and others{limit}.",
    "limit": ", limit {limit}",
    "returned": "At {time}: {size} returned to the device",
    "axes": AXIS_NAMES,
    "event_title": EVENT_TITLE,
    "failure": "not available: {failure}",
    "rows": MARK_ROW_NAMES,
    "refused": REFUSED_TEXT,
    "beyond": BEYOND_TEXT,
    "busy": "waits until the cell that runs has ended",
    "lost": "Run this cell again: its kernel has ended.",
}
"""Templates that ``chart.js`` fills."""


def describe_memory(record: MemorySamples, state: str) -> str:
    """Return a sentence about the used and cached memory, its peak, the memory of other processes, and the
    origin of the numbers.
    """
    peak = record.peak
    return (
        f"Memory of {record.provenance.device} over {duration(record.duration_ns)} ({state}): "
        f"{format_size(record.latest('used_bytes'))} used"
        f"{f' (peak {size(peak[0])} at {duration(peak[1])})' if peak else ''}, "
        f"{format_size(compute_cached_bytes(record))} cached, "
        f"{format_size(compute_outside_bytes(record))} driver and others, "
        f"of {size(record.capacity_bytes)}; {record.provenance.label}."
    )


def format_size(size_bytes: float | None) -> str:
    """Return a size as text. For None, return "not available"."""
    return NOT_AVAILABLE if size_bytes is None else size(size_bytes)


def compute_cached_bytes(record: MemorySamples) -> float | None:
    """Return the number of bytes that the memory pool keeps although the program does not use them."""
    return _subtract_bytes(record.latest("reserved_bytes"), record.latest("used_bytes"))


def compute_outside_bytes(record: MemorySamples) -> float | None:
    """Return the number of used bytes outside the memory pool, which belong to the driver, libraries and
    other processes.
    """
    return _subtract_bytes(record.latest("device_bytes"), record.latest("reserved_bytes"))


def _subtract_bytes(total_bytes: float | None, part_bytes: float | None) -> float | None:
    return None if total_bytes is None or part_bytes is None else max(0.0, total_bytes - part_bytes)


def describe_lines(record: MemorySamples, max_lines: int = 5) -> list[str]:
    """Return a sentence for each of the source lines that allocated the most memory."""
    event_marks = record.marks
    sums_by_line = dict[int, list[float]]()
    for line, allocation_count, total_bytes in zip(
        event_marks.line.tolist(),
        event_marks.allocations.tolist(),
        event_marks.allocated_bytes.tolist(),
        strict=True,
    ):
        if allocation_count:
            line_sums = sums_by_line.setdefault(int(line), [0, 0])
            line_sums[0] += allocation_count
            line_sums[1] += total_bytes
    largest_sums = sorted(sums_by_line.items(), key=lambda item: -item[1][1])[:max_lines]
    return [
        f"{format_line(record, line)}: {count(int(allocation_count), 'allocation')}, {size(total_bytes)}."
        for line, (allocation_count, total_bytes) in largest_sums
    ]


def format_line(record: MemorySamples, line: int) -> str:
    """Return the location and the text of a source line for the marks in the memory chart."""
    if line < 0:
        return f"{NO_LINE_TEXT}, or several"
    source_line = record.lines[line]
    return f"{source_line}: {source_line.text}" if source_line.text else str(source_line)
