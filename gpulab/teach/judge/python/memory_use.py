"""What a program takes of a virtual device's memory: from the driver, and for its arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class MemoryUse:
    """Counts while a program runs.

    Attributes
    ----------
    driver_calls : int
        Segments taken from the device and given back: cudaMalloc and cudaFree.
    segments : int
        Segments taken.
    peak_reserved_bytes : int
        The most that the program held of the device, beyond what was taken before.
    peak_used_bytes : int
        The most bytes of its arrays at once, whichever pool they are from.
    """

    def __init__(self) -> None:
        self.driver_calls = self.segments = 0
        self.peak_reserved_bytes = self.peak_used_bytes = 0
        self._reserved_bytes = 0

    @property
    def wasted_bytes(self) -> int:
        """What was taken of the device at most, beyond what arrays ever needed at once."""
        return self.peak_reserved_bytes - self.peak_used_bytes

    @contextmanager
    def counting(self, device: Any) -> Iterator[None]:
        """Count in a block. Where somebody else watches the segments, they are not counted."""
        memory = device.memory
        alone = memory.watched is None
        before_bytes = memory.peak_tracked_bytes = memory.tracked_bytes
        if alone:
            memory.watched = self._segment
        try:
            yield
        finally:
            if alone:
                memory.watched = None
            self.peak_used_bytes = memory.peak_tracked_bytes - before_bytes

    def _segment(self, _address: int, size_bytes: int, taken: bool) -> None:
        self.driver_calls += 1
        self.segments += taken
        self._reserved_bytes += size_bytes if taken else -size_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self._reserved_bytes)
