"""Estimate of which arrays are in a device's L2 cache, from the operations that have run so far."""

from __future__ import annotations

from collections.abc import Mapping

MAX_TRACKED_ARRAYS = 256


class L2Contents:
    """The estimated contents of the L2 cache. The contents are the most recently used arrays that fit into
    the cache.

    Parameters
    ----------
    usable_bytes : float
        Part of the cache that arrays can occupy.

    Notes
    -----
    Arrays are identified by their addresses. An array that no operation has used yet counts as cached,
    because it has just been created.
    """

    def __init__(self, usable_bytes: float) -> None:
        self._usable_bytes = int(usable_bytes)
        self._cached_bytes: dict[int, int] = {}  # bytes by address, most recent last
        self._evicted_addresses: dict[int, None] = {}

    def find_resident_bytes(self, arrays: Mapping[int, int]) -> dict[int, int]:
        """Return the number of bytes of each array that are in the L2 cache.

        An array that is larger than the cache counts with its full size if it was used last.
        """
        cached_bytes = {address: size for address, size in self._cached_bytes.items() if address in arrays}
        never_evicted_arrays = {
            address: size for address, size in arrays.items() if address not in self._evicted_addresses
        }
        partly_cached_arrays = {
            address: size
            for address, size in cached_bytes.items()
            if size < min(arrays[address], self._usable_bytes) // 2
        }
        return never_evicted_arrays | partly_cached_arrays

    def mark_used(self, arrays: Mapping[int, int]) -> int:
        """Mark the arrays as most recently used, and return how many of their bytes were not in L2. The keys
        of the dictionary `arrays` are addresses.
        """
        missed_bytes = 0
        for address, size_bytes in arrays.items():
            cached_bytes = self._cached_bytes.pop(address, 0)
            if address in self._evicted_addresses:
                del self._evicted_addresses[address]
                missed_bytes += size_bytes
            elif cached_bytes:
                missed_bytes += max(min(size_bytes, self._usable_bytes) - cached_bytes, 0)
            self._cached_bytes[address] = min(size_bytes, self._usable_bytes)
        excess_bytes = sum(self._cached_bytes.values()) - self._usable_bytes
        while excess_bytes > 0:
            address = next(iter(self._cached_bytes))
            size_bytes = self._cached_bytes[address]
            if size_bytes > excess_bytes:
                self._cached_bytes[address] -= excess_bytes
                break
            del self._cached_bytes[address]
            self._evicted_addresses[address] = None
            excess_bytes -= size_bytes
        for table in (self._cached_bytes, self._evicted_addresses):
            while len(table) > MAX_TRACKED_ARRAYS:
                del table[next(iter(table))]
        return missed_bytes
