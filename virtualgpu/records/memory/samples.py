"""Readings of a device's memory over time, and the allocations between the readings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine

Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The memory of a device at one moment in bytes. A value is None if it is not available.

    Parameters
    ----------
    used_bytes
        Bytes of the pool that the program uses, each block rounded up.
    reserved_bytes
        Bytes that the pool has reserved from the device: used, and cached.
    limit_bytes
        The pool's limit, 0 for none.
    device_bytes
        Bytes of the device in use by the pool, the driver, libraries and other processes.
    others_bytes
        The part of `device_bytes` that other processes use.
    """

    used_bytes: int | None
    reserved_bytes: int | None
    limit_bytes: int | None
    device_bytes: int | None
    others_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMarks:
    """The allocations and frees of each source line between two readings, as columns of equal length.

    At the beginning of a recording, each row contains a single event. A row without allocations and frees is
    memory that the pool returned to the device.

    Parameters
    ----------
    time_ns
        Time of the first allocation or free since the recording began.
    allocations, allocated_bytes, frees, freed_bytes
        Numbers of allocations and frees, and bytes of their blocks.
    failures
        Number of requests that failed.
    line
        Number of the line in `MemorySamples.lines`; -1 for none of the program's, or for several lines.
    reserved_bytes
        Bytes that the pool took from the device for them, less the bytes that it returned.
    """

    time_ns: Column
    allocations: Column
    allocated_bytes: Column
    frees: Column
    freed_bytes: Column
    failures: Column
    line: Column
    reserved_bytes: Column = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if len(self.reserved_bytes) != len(self.time_ns):  # a file of an earlier version
            object.__setattr__(self, "reserved_bytes", np.zeros(len(self.time_ns)))

    def __len__(self) -> int:
        return len(self.time_ns)

    @classmethod
    def of(cls, table: npt.NDArray[np.float64]) -> MemoryMarks:
        """Create `MemoryMarks` from a table with one column per field."""
        field_columns = table.T.copy()
        return cls(**dict(zip(MARK_COLUMNS, field_columns, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySamples:
    """Readings of memory use over time. The columns have equal length, and missing readings are NaN.

    Parameters
    ----------
    time_ns
        Time since the recording began.
    used_bytes, reserved_bytes, limit_bytes, device_bytes, others_bytes
        See `MemoryReading`.
    peak_bytes
        Largest number of used bytes since the previous reading, from the pool's own calls.
    capacity_bytes
        Memory of the device.
    marks
        Allocations and frees, in order.
    lines
        Source lines of the marks.
    note
        Description of events that could not be observed, or an empty string.
    """

    provenance: Provenance
    device_id: int
    capacity_bytes: int
    time_ns: Column
    used_bytes: Column
    reserved_bytes: Column
    peak_bytes: Column
    limit_bytes: Column
    device_bytes: Column
    others_bytes: Column
    marks: MemoryMarks
    lines: tuple[SourceLine, ...] = ()
    note: str = ""

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def duration_ns(self) -> float:
        """The time from the beginning of the recording to the last reading in ns."""
        return float(self.time_ns[-1]) if len(self) else 0.0

    @property
    def peak(self) -> tuple[float, float] | None:
        """The largest number of used bytes and its time in ns, or None without a reading."""
        if not len(self) or np.isnan(self.peak_bytes).all():
            return None
        index = int(np.nanargmax(self.peak_bytes))
        return float(self.peak_bytes[index]), float(self.time_ns[index])

    def latest(self, name: str) -> float | None:
        """Return the last available reading of a column."""
        column = getattr(self, name)
        readings = column[~np.isnan(column)]
        return float(readings[-1]) if len(readings) else None

    def rows(self) -> Iterator[tuple[float, ...]]:
        """Yield the readings one by one. The values of each reading are in the order of `SAMPLE_COLUMNS`."""
        columns = [getattr(self, name).tolist() for name in SAMPLE_COLUMNS]
        yield from zip(*columns, strict=True)


SAMPLE_COLUMNS = (
    "time_ns",
    "used_bytes",
    "reserved_bytes",
    "peak_bytes",
    "limit_bytes",
    "device_bytes",
    "others_bytes",
)
"""The columns of readings, time first."""
MARK_COLUMNS = tuple(mark_field.name for mark_field in fields(MemoryMarks))
