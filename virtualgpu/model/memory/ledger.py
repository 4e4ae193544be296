"""Running totals of a device's memory and driver calls, to check limits that a program must keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MemoryTotals:
    """The amounts of reserved and used memory of one device, with their peak values.

    The field ``segment_count`` counts allocated segments, and ``driver_calls`` counts the calls that allocate
    or free a segment. ``reserved_bytes`` are the bytes that are reserved now, including the driver's own
    pools, ``array_bytes`` the exact bytes that programs own. Peaks are the maxima since the last call of
    `reset_peaks`.
    """

    segment_count: int = 0
    driver_calls: int = 0
    reserved_bytes: int = 0
    peak_reserved_bytes: int = 0
    array_bytes: int = 0
    peak_array_bytes: int = 0

    def reset_peaks(self) -> None:
        """Reset the peak values to the current values."""
        self.peak_reserved_bytes = self.reserved_bytes
        self.peak_array_bytes = self.array_bytes

    def add_segment(self, size_bytes: int) -> None:
        """Record the allocation of a memory segment."""
        self.segment_count += 1
        self.driver_calls += 1
        self.reserved_bytes += size_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def remove_segment(self, size_bytes: int) -> None:
        """Record the release of a memory segment."""
        self.driver_calls += 1
        self.reserved_bytes -= size_bytes

    def change_array_bytes(self, size_bytes: int) -> None:
        """Add a positive or negative number of bytes to the size of the program's arrays."""
        self.array_bytes += size_bytes
        self.peak_array_bytes = max(self.peak_array_bytes, self.array_bytes)
