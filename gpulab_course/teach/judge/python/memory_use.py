"""Counting of the device memory that a program allocates from the driver and uses for arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class MemoryUse:
    """The device memory that a program uses, which is counted independently of its memory pools.

    Attributes
    ----------
    driver_calls : int
        The number of calls of cudaMalloc and cudaFree.
    segments : int
        The number of segments that were allocated from the driver.
    peak_reserved_bytes : int
        The peak of the memory that the program allocated from the driver.
    peak_used_bytes : int
        The peak of the size of all arrays that exist at the same time.
    kept_bytes : int
        The size of the arrays that exist when the program ends, including its result.
    """

    def __init__(self) -> None:
        self.driver_calls = self.segments = 0
        self.peak_reserved_bytes = self.peak_used_bytes = self.kept_bytes = 0

    @property
    def wasted_bytes(self) -> int:
        """The peak of the memory that was allocated from the driver, minus the peak of the memory that arrays
        used.
        """
        return self.peak_reserved_bytes - self.peak_used_bytes

    @contextmanager
    def count_memory(self, device: Any) -> Iterator[None]:
        """Count the device memory that a program uses in a `with` block."""
        ledger = device.memory.memory_totals
        ledger.reset_peaks()
        earlier_calls = ledger.driver_calls
        earlier_segments = ledger.segment_count
        earlier_reserved_bytes = ledger.reserved_bytes
        earlier_array_bytes = ledger.array_bytes
        try:
            yield
        finally:
            self.driver_calls = ledger.driver_calls - earlier_calls
            self.segments = ledger.segment_count - earlier_segments
            self.peak_reserved_bytes = ledger.peak_reserved_bytes - earlier_reserved_bytes
            self.peak_used_bytes = ledger.peak_array_bytes - earlier_array_bytes
            self.kept_bytes = ledger.array_bytes - earlier_array_bytes
