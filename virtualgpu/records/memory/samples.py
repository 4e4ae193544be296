"""Readings of a device's memory: one, and many over time with the allocations that fell between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine

Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """A device's memory at one moment, in bytes. None: not available.

    Parameters
    ----------
    used_bytes
        What the program holds of the pool, each block rounded up.
    reserved_bytes
        What the pool has taken from the device: used, and kept for later (cached).
    limit_bytes
        The pool's limit, 0 for none.
    device_bytes
        What is taken of the device by anyone: the pool, the driver, libraries, other processes.
    others_bytes
        What other processes hold of that.
    """

    used_bytes: int | None
    reserved_bytes: int | None
    limit_bytes: int | None
    device_bytes: int | None
    others_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMarks:
    """Allocations and frees of one line of the program between two readings: columns of equal length.

    Parameters
    ----------
    time_ns
        Of the first of them, since the recording began.
    allocations, allocated_bytes, frees, freed_bytes
        How many, and bytes of their blocks.
    failures
        Requests that failed.
    line
        Number of the line in `MemorySamples.lines`; -1 for none of the program's, or for several lines.
    """

    time_ns: Column
    allocations: Column
    allocated_bytes: Column
    frees: Column
    freed_bytes: Column
    failures: Column
    line: Column

    def __len__(self) -> int:
        return len(self.time_ns)

    @classmethod
    def of(cls, table: npt.NDArray[np.float64]) -> MemoryMarks:
        """From a table with these columns."""
        return cls(**dict(zip(MARKS, table.T.copy(), strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySamples:
    """Readings over time: columns of equal length, NaN where one is not available.

    Parameters
    ----------
    time_ns
        Since the recording began.
    used_bytes, reserved_bytes, limit_bytes, device_bytes, others_bytes
        See `MemoryReading`.
    peak_bytes
        The most that was used since the reading before, by the pool's own calls.
    capacity_bytes
        Memory of the device.
    marks
        Allocations and frees, in order.
    lines
        The lines that they name.
    note
        What could not be seen, in words; empty for nothing.
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
        """From the recording's beginning to the last reading."""
        return float(self.time_ns[-1]) if len(self) else 0.0

    @property
    def peak(self) -> tuple[float, float] | None:
        """The most that was used, in bytes, and when it had been reached, in ns; None without a reading."""
        if not len(self) or np.isnan(self.peak_bytes).all():
            return None
        at = int(np.nanargmax(self.peak_bytes))
        return float(self.peak_bytes[at]), float(self.time_ns[at])

    def latest(self, name: str) -> float | None:
        """The last reading of a column that is available."""
        known = getattr(self, name)
        known = known[~np.isnan(known)]
        return float(known[-1]) if len(known) else None

    def rows(self) -> Iterator[tuple[float, ...]]:
        """The readings one by one: the columns in the order in which they stand in `COLUMNS`."""
        yield from zip(*(getattr(self, name).tolist() for name in COLUMNS), strict=True)


COLUMNS = (
    "time_ns",
    "used_bytes",
    "reserved_bytes",
    "peak_bytes",
    "limit_bytes",
    "device_bytes",
    "others_bytes",
)
"""The columns of readings, time first."""
MARKS = tuple(field.name for field in fields(MemoryMarks))
