"""Where the pages of managed memory are, and what brings them elsewhere.

A page of ``cudaMallocManaged`` is nowhere until something touches it, then where it was touched, and goes to
whoever touches it next (CUDA C++ Programming Guide, "Unified Memory Programming"). After
``cudaMemAdviseSetReadMostly`` it is copied instead, so that host and device have one each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PAGE_BYTES = 64 << 10  # what the driver moves at least
BLOCK_BYTES = 2 << 20  # and what it serves faults in
_PAGES_PER_BLOCK = BLOCK_BYTES // PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Moved:
    """Pages that had to come: bytes that were copied, those that were new, and blocks with a fault."""

    copied_bytes: int = 0
    new_bytes: int = 0
    blocks: int = 0


class ManagedPages:
    """The pages of one allocation.

    Attributes
    ----------
    on_device, on_host : arrays of bool
        Whether the device, the host has each page; both only while the memory is read mostly.
    read_mostly : bool
        Whether a page that is asked for elsewhere stays where it was, too.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        pages = -(-size_bytes // PAGE_BYTES)
        self.on_device: npt.NDArray[np.bool_] = np.zeros(pages, np.bool_)
        self.on_host: npt.NDArray[np.bool_] = np.zeros(pages, np.bool_)
        self.read_mostly = False

    def advise(self, read_mostly: bool) -> None:
        """Set or end "read mostly"; at its end the device keeps what both have."""
        self.read_mostly = read_mostly
        if not read_mostly:
            self.on_host &= ~self.on_device

    def to_device(self, start: int, size_bytes: int, most_pages: int | None = None) -> Moved:
        """Let the device have the pages of ``[start, start + size_bytes)``.

        Parameters
        ----------
        most_pages : int, optional
            How many of them are touched, spread evenly; all by default.
        """
        return self._bring(start, size_bytes, most_pages, self.on_device, self.on_host)

    def to_host(self, start: int, size_bytes: int) -> Moved:
        """Let the host have the pages of ``[start, start + size_bytes)``."""
        return self._bring(start, size_bytes, None, self.on_host, self.on_device)

    def _bring(
        self,
        start: int,
        size_bytes: int,
        most_pages: int | None,
        here: npt.NDArray[np.bool_],
        there: npt.NDArray[np.bool_],
    ) -> Moved:
        first = start // PAGE_BYTES
        last = -(-(start + size_bytes) // PAGE_BYTES)
        count = last - first if most_pages is None else min(last - first, max(most_pages, 1))
        touched = first + np.arange(count) * (last - first) // max(count, 1)
        missing = touched[~here[touched]]
        if not missing.size:
            return Moved()
        copied = missing[there[missing]]
        here[missing] = True
        if not self.read_mostly:
            there[missing] = False
        blocks = int(np.unique(missing // _PAGES_PER_BLOCK).size)
        return Moved(self._bytes(copied), self._bytes(missing) - self._bytes(copied), blocks)

    def _bytes(self, pages: npt.NDArray[np.int64]) -> int:
        """Bytes of pages; the last one may be short."""
        if not pages.size:
            return 0
        short = (
            self.on_device.size * PAGE_BYTES - self.size_bytes if pages[-1] == self.on_device.size - 1 else 0
        )
        return int(pages.size) * PAGE_BYTES - short
