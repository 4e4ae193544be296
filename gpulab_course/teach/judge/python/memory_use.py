"""Memory of a virtual device that a program uses: from the driver, and for its arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class MemoryUse:
    """Counts while a program runs, whichever pools it uses.

    Attributes
    ----------
    driver_calls : int
        Segments taken from the device and given back: cudaMalloc and cudaFree.
    segments : int
        Segments taken.
    peak_reserved_bytes : int
        The most that the program held of the device, beyond what was taken before.
    peak_used_bytes : int
        The most bytes of its arrays at once.
    kept_bytes : int
        Bytes of arrays that still live when it is done, its result among them.
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
        """Count in a block."""
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
