"""Location of the pages of managed memory, and their migration between host and device.

A page of ``cudaMallocManaged`` has no memory until the host or the device touches it; it is then stored
there, and migrates when the other side touches it (CUDA C++ Programming Guide, "Unified Memory Programming").
After ``cudaMemAdviseSetReadMostly`` it is copied instead, so that host and device have one each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PAGE_BYTES = 64 << 10  # smallest unit that the driver moves
BLOCK_BYTES = 2 << 20  # unit in which it handles faults
_PAGES_PER_BLOCK = BLOCK_BYTES // PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Migration:
    """The result of moving managed memory: copied bytes, new bytes, and blocks with a page fault."""

    copied_bytes: int = 0
    new_bytes: int = 0
    faulted_blocks: int = 0


class ManagedPages:
    """The pages of one allocation of managed memory.

    Attributes
    ----------
    is_on_device, is_on_host : arrays of bool
        Whether each page is on the device and on the host; both only while the memory is read mostly.
    read_mostly : bool
        Whether a page that the other side touches is copied instead of moved.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        page_count = -(-size_bytes // PAGE_BYTES)
        self.is_on_device: npt.NDArray[np.bool_] = np.zeros(page_count, np.bool_)
        self.is_on_host: npt.NDArray[np.bool_] = np.zeros(page_count, np.bool_)
        self.read_mostly = False

    def advise(self, read_mostly: bool) -> None:
        """Set or clear the advice "read mostly". Clearing the advice removes duplicate pages from the
        host.
        """
        self.read_mostly = read_mostly
        if not read_mostly:
            self.is_on_host &= ~self.is_on_device

    def move_to_device(self, start: int, size_bytes: int, max_pages: int | None = None) -> Migration:
        """Move the pages of a range of managed memory to the device. The range begins at the address `start`.

        Parameters
        ----------
        max_pages : int, optional
            Number of pages that are touched, spread evenly; all by default.
        """
        return self._migrate(start, size_bytes, max_pages, self.is_on_device, self.is_on_host)

    def move_to_host(self, start: int, size_bytes: int) -> Migration:
        """Move the pages of a range of managed memory to the host. The range begins at the address
        `start`.
        """
        return self._migrate(start, size_bytes, None, self.is_on_host, self.is_on_device)

    def _migrate(
        self,
        start: int,
        size_bytes: int,
        max_pages: int | None,
        is_on_target: npt.NDArray[np.bool_],
        is_on_source: npt.NDArray[np.bool_],
    ) -> Migration:
        first_page = start // PAGE_BYTES
        last_page = -(-(start + size_bytes) // PAGE_BYTES)
        page_count = (
            last_page - first_page if max_pages is None else min(last_page - first_page, max(max_pages, 1))
        )
        touched_pages = first_page + np.arange(page_count) * (last_page - first_page) // max(page_count, 1)
        missing_pages = touched_pages[~is_on_target[touched_pages]]
        if not missing_pages.size:
            return Migration()
        copied_pages = missing_pages[is_on_source[missing_pages]]
        is_on_target[missing_pages] = True
        if not self.read_mostly:
            is_on_source[missing_pages] = False
        blocks = int(np.unique(missing_pages // _PAGES_PER_BLOCK).size)
        return Migration(
            self._count_bytes(copied_pages),
            self._count_bytes(missing_pages) - self._count_bytes(copied_pages),
            blocks,
        )

    def _count_bytes(self, pages: npt.NDArray[np.int64]) -> int:
        """Return the number of bytes in some pages; the last page of an allocation may be shorter."""
        if not pages.size:
            return 0
        total_bytes = int(pages.size) * PAGE_BYTES
        if pages[-1] == self.is_on_device.size - 1:
            total_bytes -= self.is_on_device.size * PAGE_BYTES - self.size_bytes
        return total_bytes
