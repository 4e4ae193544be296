"""What a program takes of a virtual device's memory: from the driver, and as blocks of a pool."""

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
    peak_reserved_bytes, peak_used_bytes : int
        The most that the program held of the device and of its pools, beyond what there was before.
    """

    def __init__(self) -> None:
        self.driver_calls = self.segments = 0
        self.peak_reserved_bytes = self.peak_used_bytes = 0
        self._reserved_bytes = self._used_bytes = 0

    @property
    def wasted_bytes(self) -> int:
        """What was taken of the device at most, beyond what blocks ever needed at once."""
        return self.peak_reserved_bytes - self.peak_used_bytes

    @contextmanager
    def counting(self, cp: Any, device: Any) -> Iterator[None]:
        """Count in a block: the calling thread's blocks, and all segments of the device.

        Where somebody else watches the segments, they are not counted.
        """
        memory = device.memory
        counts = self
        before = memory.watched

        def segment(_address: int, size_bytes: int, taken: bool) -> None:
            counts.driver_calls += 1
            counts.segments += taken
            counts._reserved_bytes += size_bytes if taken else -size_bytes
            counts.peak_reserved_bytes = max(counts.peak_reserved_bytes, counts._reserved_bytes)

        class Hook(cp.cuda.MemoryHook):  # type: ignore[misc]
            name = "counts of the judge"

            def malloc_postprocess(self, *, mem_size: int, mem_ptr: int, **_: Any) -> None:
                counts._used_bytes += mem_size if mem_ptr else 0
                counts.peak_used_bytes = max(counts.peak_used_bytes, counts._used_bytes)

            def free_postprocess(self, *, mem_size: int, **_: Any) -> None:
                counts._used_bytes -= mem_size

        if before is None:
            memory.watched = segment
        try:
            with Hook():
                yield
        finally:
            if before is None:
                memory.watched = None
