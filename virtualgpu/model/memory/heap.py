"""The heap that kernels' own ``malloc`` and ``free`` share: one a device, whichever module asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

# cudaLimitMallocHeapSize's default (CUDA C++ Programming Guide, "Heap Memory Allocation").
HEAP_BYTES = 8 << 20
_UNIT = 16


class DeviceHeap:
    """Blocks within one range of device memory. They live until a kernel frees them.

    Parameters
    ----------
    address
        Where the range begins.
    contents
        Its bytes on the host.
    """

    def __init__(self, address: int, contents: npt.NDArray[np.uint8]) -> None:
        self.address = address
        self.size_bytes = contents.size
        self._contents = contents
        self._free = [(address, contents.size)]
        self.used: dict[int, int] = {}
        self.freed: dict[int, int] | None = None  # under checks: blocks that are not given out again
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> int:
        """An address, or 0 when the heap is exhausted, as on a GPU."""
        size = -(-max(size_bytes, 1) // _UNIT) * _UNIT
        if self.freed is not None:
            size += _UNIT  # room that belongs to nobody shows who runs over the end
        with self._lock:
            for n, (start, room) in enumerate(self._free):
                if room >= size:
                    self._free[n : n + 1] = [(start + size, room - size)] if room > size else []
                    self.used[start] = max(size_bytes, 1)
                    return start
        return 0

    def give(self, address: int) -> None:
        """Free a block; NULL is ignored.

        Raises
        ------
        ValueError
            If no block begins there.
        """
        if address == 0:
            return
        with self._lock:
            size = self.used.pop(address, None)
            if size is None:
                raise ValueError(
                    f"free() of {address:#x}, which malloc() did not give or which is free already"
                )
            if self.freed is not None:
                self.freed[address] = size
                return
            merged = sorted([*self._free, (address, -(-size // _UNIT) * _UNIT)])
            self._free = merged[:1]
            for start, room in merged[1:]:
                last, length = self._free[-1]
                if last + length == start:
                    self._free[-1] = (last, length + room)
                else:
                    self._free.append((start, room))

    def serve(self, what: str, values: npt.NDArray[np.uint64], mask: int) -> npt.NDArray[np.uint64]:
        """Serve the lanes in `mask` of a warp, each with a size (``malloc``) or an address (``free``).

        Returns
        -------
        numpy.ndarray
            32 addresses; 0 for lanes that got none.
        """
        out = np.zeros(32, np.uint64)
        for lane in range(32):
            if mask >> lane & 1:
                if what == "malloc":
                    out[lane] = self.take(int(values[lane]))
                else:
                    self.give(int(values[lane]))
        return out

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Keep freed blocks from being used again for a while, then put everything back as it was."""
        before = list(self._free), dict(self.used)
        contents = self._contents.copy()
        self.freed = {}
        try:
            yield
        finally:
            self._free, self.used = before
            self.freed = None
            self._contents[:] = contents
