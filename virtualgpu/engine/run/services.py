"""What generated code asks Python for: the device heap."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# cudaLimitMallocHeapSize's default.
HEAP_BYTES = 8 << 20
_UNIT = 16


class Heap:
    """Device ``malloc`` and ``free`` within one range of memory; lives as long as its module."""

    def __init__(self, address: int) -> None:
        self.free = [(address, HEAP_BYTES)]
        self.used: dict[int, int] = {}

    def take(self, size: int) -> int:
        """An address, or 0 when the heap is exhausted, as on a GPU."""
        size = -(-max(size, 1) // _UNIT) * _UNIT
        for n, (start, room) in enumerate(self.free):
            if room >= size:
                self.free[n : n + 1] = [(start + size, room - size)] if room > size else []
                self.used[start] = size
                return start
        return 0

    def give(self, address: int) -> None:
        """Free a block; NULL is ignored, anything else that is no block is an error."""
        if address == 0:
            return
        size = self.used.pop(address, None)
        if size is None:
            raise ValueError(f"free() of {address:#x}, which malloc() did not give or which is free already")
        merged = sorted([*self.free, (address, size)])
        self.free = merged[:1]
        for start, room in merged[1:]:
            last, length = self.free[-1]
            if last + length == start:
                self.free[-1] = (last, length + room)
            else:
                self.free.append((start, room))


def answer(heap: Heap | None, what: Any, inputs: npt.NDArray[np.uint64], mask: int) -> npt.NDArray[np.uint64]:
    """Serve one request of a warp; rows of 32 lanes in, rows of 32 lanes out."""
    assert heap is not None
    out = np.zeros((1, 32), np.uint64)
    for lane in range(32):
        if mask >> lane & 1:
            value = int(inputs[0, lane])
            if what[0] == "malloc":
                out[0, lane] = heap.take(value)
            else:
                heap.give(value)
    return out
