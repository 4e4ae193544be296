"""Background readings of a device's memory, combined with the allocation events between two readings."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import numpy as np

from gpulab.sampler import RingBuffer, Sampler
from gpulab.session import current
from gpulab.session.pools.hook import ALLOC, FREE_REQUESTED, OOM, SEGMENT_ALLOC, AllocationRecorder
from gpulab.session.pools.pool import SEGMENT_FREE, SegmentRecorder
from virtualgpu.records.memory import AllocatorEvents, MemoryMarks, MemoryReading, MemorySamples
from virtualgpu.records.memory.samples import MARK_COLUMNS, SAMPLE_COLUMNS
from virtualgpu.records.timeline import SourceLine

MAX_KEPT_EVENTS = 50_000
MAX_KEPT_MARKS = 20_000
MAX_MARKS_PER_READING = 8
MAX_DETAILED_MARKS = 1000
"""Largest number of marks of a recording for which each event has its own mark."""

Row = Sequence[float | None]
ReadingCallback = Callable[[int, Row, Sequence[Sequence[float]], Sequence[SourceLine], str], None]
"""Takes a reading's number and row, the marks and the lines that are new, and why it failed."""


class MemoryRecorder:
    """A recorder of a device's memory use from `start` to `stop`."""

    def __init__(self, rate_hz: float) -> None:
        backend = current.backend()
        self._provenance = backend.provenance
        self._capacity_bytes = backend.device_info().memory_bytes
        self._device_id = int(current.cp().cuda.Device().id)
        self.allocation_recorder = SegmentRecorder(MAX_KEPT_EVENTS)
        self._marks = RingBuffer(len(MARK_COLUMNS), MAX_KEPT_MARKS)
        # Of the events and lines: what the next reading begins with.
        self._next_event_number = self._line_count = 0
        self._reading_callback: ReadingCallback | None = None
        recorder_reference = weakref.ref(self)  # the thread of readings must not keep it alive

        def on_reading(number: int, row: Row) -> None:
            if (recorder := recorder_reference()) is not None:
                recorder._on_reading(number, row)

        row_reader = _MemoryRowReader(backend.memory_reader(), self.allocation_recorder, self._capacity_bytes)
        self.sampler = Sampler(row_reader, len(SAMPLE_COLUMNS) - 1, rate_hz, on_reading=on_reading)

    def start(self) -> None:
        """Start to read the memory use, and record the allocations of the calling thread."""
        self.allocation_recorder.start()
        self.sampler.start()

    def stop(self) -> MemorySamples:
        """Take a last reading of the memory use, and stop the recording."""
        self.sampler.stop()
        self.allocation_recorder.record_released_segments()
        self.sampler.take_reading()
        self.allocation_recorder.stop()
        return self.record()

    def call_on_reading(self, reading_callback: ReadingCallback, line_count: int) -> None:
        """Call `reading_callback` for each later reading. The calls leave out the first `line_count` source
        lines, and each call receives only new lines.
        """
        self._line_count = line_count
        self._reading_callback = reading_callback

    def record(self) -> MemorySamples:
        """Return the recorded memory use so far."""
        sample_columns = dict(zip(SAMPLE_COLUMNS, self.sampler.rows().T.copy(), strict=True))
        notes = (
            self.allocation_recorder.note,
            self.sampler.failure and f"The last reading failed: {self.sampler.failure}.",
        )
        return MemorySamples(
            provenance=self._provenance,
            device_id=self._device_id,
            capacity_bytes=self._capacity_bytes,
            **sample_columns,
            marks=MemoryMarks.of(self._marks.rows_since()),
            lines=tuple(self.allocation_recorder.source_lines),
            note=" ".join(filter(None, notes)),
        )

    def _on_reading(self, reading_number: int, row: Row) -> None:
        """Process the allocations since the previous reading; runs in the sampler's thread."""
        events, self._next_event_number = self.allocation_recorder.events_and_next(
            self._next_event_number, self._device_id
        )
        has_space = self._marks.added_rows + len(events) <= MAX_DETAILED_MARKS
        marks = summarize_events(events, self.sampler.start_ns, is_detailed=has_space)
        for mark in marks:
            self._marks.add(mark)
        if self._reading_callback is not None:
            new_lines = self.allocation_recorder.source_lines[self._line_count :]
            self._line_count += len(new_lines)
            self._reading_callback(reading_number, row, marks, new_lines, self.sampler.failure)


class _MemoryRowReader:
    """A callable that reads one row of memory values, including the pool's peak since the previous row."""

    def __init__(
        self, read_memory: Callable[[], MemoryReading], recorder: AllocationRecorder, capacity_bytes: int
    ) -> None:
        self._read_memory = read_memory
        self._recorder = recorder
        self._capacity_bytes = capacity_bytes
        self._reserved_bytes: int | None = None
        self._base_bytes: int | None = None  # what was used when the recorder had seen nothing

    def __call__(self) -> Row:
        recorder = self._recorder
        event_count = len(recorder)
        peak_bytes = recorder.most_held_bytes
        recorder.most_held_bytes = recorder.held_bytes
        reading = self._read_memory()
        peak_bytes_now = reading.used_bytes
        # A pool counts a segment while it asks the device for it, which may refuse: more than there is
        # was never reserved.
        if reading.reserved_bytes is None or reading.reserved_bytes <= self._capacity_bytes:
            self._reserved_bytes = reading.reserved_bytes
        if reading.used_bytes is not None:
            if self._base_bytes is None or event_count == len(recorder):
                self._base_bytes = reading.used_bytes - recorder.held_bytes
            peak_bytes_now = max(reading.used_bytes, self._base_bytes + peak_bytes)
        return (
            reading.used_bytes,
            self._reserved_bytes,
            peak_bytes_now,
            reading.limit_bytes,
            reading.device_bytes,
            reading.others_bytes,
        )


def summarize_events(
    events: AllocatorEvents, since_ns: int, is_detailed: bool = False
) -> list[tuple[float, ...]]:
    """Summarize allocator events as rows of `MemoryMarks`. The result has one row per event if `is_detailed`
    is true, and otherwise one row per source line.

    The lines with the fewest bytes share one row.
    """
    action_masks = [events.actions == action for action in (ALLOC, FREE_REQUESTED, OOM)]
    is_shown = np.logical_or.reduce([*action_masks, events.actions == SEGMENT_FREE])
    if not is_shown.any():
        return []
    # A segment that is returned is noticed at the next event, so that event's line is not its cause.
    event_stacks = np.where(events.actions == SEGMENT_FREE, -1, events.stacks)[is_shown]
    row_stacks, row_of_event = np.unique(event_stacks, return_inverse=True)
    if is_detailed:
        row_stacks = event_stacks
        row_of_event = np.arange(len(row_stacks))
    shown_bytes = events.size_bytes[is_shown]
    # A segment is taken for the event that follows.
    reserved_signs = np.select([events.actions == SEGMENT_ALLOC, events.actions == SEGMENT_FREE], [1, -1], 0)
    reserved_bytes = np.diff((reserved_signs * events.size_bytes).cumsum()[is_shown], prepend=0)
    time_ns = events.time_ns[is_shown] - since_ns
    sums_by_action = []
    for action_mask in action_masks:
        is_of_action = action_mask[is_shown].astype(np.float64)
        sums_by_action += [
            np.bincount(row_of_event, is_of_action),
            np.bincount(row_of_event, is_of_action * shown_bytes),
        ]
    first_ns = np.full(len(row_stacks), np.inf)
    np.minimum.at(first_ns, row_of_event, time_ns)
    mark_table = np.column_stack(
        (
            first_ns,
            *sums_by_action[:4],
            sums_by_action[4],
            row_stacks,
            np.bincount(row_of_event, reserved_bytes),
        )
    )
    if not is_detailed and len(mark_table) > MAX_MARKS_PER_READING:
        row_weights = np.where(mark_table[:, 5] > 0, np.inf, mark_table[:, 2] + mark_table[:, 4])
        weight_order = np.argsort(-row_weights, kind="stable")
        merged_rows = mark_table[weight_order[MAX_MARKS_PER_READING - 1 :]]
        merged_row = [merged_rows[:, 0].min(), *merged_rows[:, 1:6].sum(axis=0), -1, merged_rows[:, 7].sum()]
        mark_table = np.vstack((mark_table[weight_order[: MAX_MARKS_PER_READING - 1]], merged_row))
    return [tuple(row) for row in mark_table[np.argsort(mark_table[:, 0], kind="stable")].tolist()]
