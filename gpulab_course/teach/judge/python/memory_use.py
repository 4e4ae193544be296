"""Memory of a virtual device that a program uses: memory from the driver, and memory of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class MemoryUse:
    """Memory counts of a running program, independent of the pools that it uses.

    Attributes
    ----------
    driver_calls : int
        Number of calls of cudaMalloc and cudaFree.
    segments : int
        Number of segments that were allocated.
    peak_reserved_bytes : int
        Peak of the device memory of the program, without memory that was allocated before.
    peak_used_bytes : int
        Peak of the bytes of its arrays.
    kept_bytes : int
        Bytes of arrays that are alive at its end, including its result.
    """

    def __init__(self) -> None:
        self.driver_calls = self.segments = 0
        self.peak_reserved_bytes = self.peak_used_bytes = self.kept_bytes = 0

    @property
    def wasted_bytes(self) -> int:
        """Return the peak of the device's memory less the peak that arrays needed at once."""
        return self.peak_reserved_bytes - self.peak_used_bytes

    @contextmanager
    def counting(self, device: Any) -> Iterator[None]:
        """Count the memory of the program that runs in the block."""
        ledger = device.memory.ledger
        ledger.mark()
        calls = ledger.driver_calls
        segments = ledger.segments
        reserved_bytes = ledger.reserved_bytes
        array_bytes = ledger.array_bytes
        try:
            yield
        finally:
            self.driver_calls = ledger.driver_calls - calls
            self.segments = ledger.segments - segments
            self.peak_reserved_bytes = ledger.peak_reserved_bytes - reserved_bytes
            self.peak_used_bytes = ledger.peak_array_bytes - array_bytes
            self.kept_bytes = ledger.array_bytes - array_bytes
