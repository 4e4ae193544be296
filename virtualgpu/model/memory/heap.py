"""The heap of ``malloc`` and ``free`` in kernels: one per device, for all modules."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

# cudaLimitMallocHeapSize's default (CUDA C++ Programming Guide, "Heap Memory Allocation").
HEAP_BYTES = 8 << 20
_UNIT_BYTES = 16


class DeviceHeap:
    """The heap from which kernels allocate memory with ``malloc``.

    Parameters
    ----------
    address
        Start of the range.
    contents
        Its bytes on the host.
    """

    def __init__(self, address: int, contents: npt.NDArray[np.uint8]) -> None:
        self.address = address
        self.size_bytes = contents.size
        self._contents = contents
        self._free_ranges = [(address, contents.size)]
        self.used_blocks: dict[int, int] = {}
        self.freed_blocks: dict[int, int] | None = (
            None  # while memory is checked: blocks that are not used again
        )
        self._lock = threading.Lock()

    def allocate_block(self, size_bytes: int) -> int:
        """Allocate a block of the heap and return its address, or 0 if the heap is full."""
        rounded_bytes = -(-max(size_bytes, 1) // _UNIT_BYTES) * _UNIT_BYTES
        if self.freed_blocks is not None:
            rounded_bytes += _UNIT_BYTES  # a gap after each block detects accesses beyond its end
        with self._lock:
            for range_index, (free_start, free_bytes) in enumerate(self._free_ranges):
                if free_bytes < rounded_bytes:
                    continue
                if free_bytes > rounded_bytes:
                    self._free_ranges[range_index] = (free_start + rounded_bytes, free_bytes - rounded_bytes)
                else:
                    del self._free_ranges[range_index]
                self.used_blocks[free_start] = max(size_bytes, 1)
                return free_start
        return 0

    def free_block(self, address: int) -> None:
        """Free the block that begins at the given address. A null pointer is ignored.

        Raises
        ------
        ValueError
            If no block begins at `address`.
        """
        if address == 0:
            return
        with self._lock:
            freed_bytes = self.used_blocks.pop(address, None)
            if freed_bytes is None:
                raise ValueError(
                    f"free() received the address {address:#x}, which malloc() did not return or which has "
                    "already been freed"
                )
            if self.freed_blocks is not None:
                self.freed_blocks[address] = freed_bytes
                return
            free_ranges = sorted(
                [*self._free_ranges, (address, -(-freed_bytes // _UNIT_BYTES) * _UNIT_BYTES)]
            )
            self._free_ranges = free_ranges[:1]
            for range_start, range_bytes in free_ranges[1:]:
                last_start, last_bytes = self._free_ranges[-1]
                if last_start + last_bytes == range_start:
                    self._free_ranges[-1] = (last_start, last_bytes + range_bytes)
                else:
                    self._free_ranges.append((range_start, range_bytes))

    def execute_calls(
        self, function: str, values: npt.NDArray[np.uint64], mask: int
    ) -> npt.NDArray[np.uint64]:
        """Execute a call of ``malloc`` or ``free`` for each active lane of a warp.

        The argument `values` contains a size or an address for each lane, and `mask` has a bit for each
        active lane.

        Returns
        -------
        numpy.ndarray
            32 addresses; 0 for lanes without a block.
        """
        returned_addresses = np.zeros(32, np.uint64)
        for lane in range(32):
            if mask >> lane & 1:
                if function == "malloc":
                    returned_addresses[lane] = self.allocate_block(int(values[lane]))
                else:
                    self.free_block(int(values[lane]))
        return returned_addresses

    @contextmanager
    def keep_freed_blocks(self) -> Iterator[None]:
        """Context manager in which freed blocks are not reused. The heap is restored at the end of the
        context.
        """
        saved_free_ranges = list(self._free_ranges)
        saved_used_blocks = dict(self.used_blocks)
        saved_contents = self._contents.copy()
        self.freed_blocks = {}
        try:
            yield
        finally:
            self._free_ranges = saved_free_ranges
            self.used_blocks = saved_used_blocks
            self.freed_blocks = None
            self._contents[:] = saved_contents
