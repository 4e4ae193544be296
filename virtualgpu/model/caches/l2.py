"""What of a device's arrays is in its L2 cache, as far as the operations so far tell."""

from __future__ import annotations

from collections.abc import Mapping

KEPT_ARRAYS = 256


class L2Contents:
    """The arrays that were used last, up to the bytes that the cache keeps.

    Parameters
    ----------
    usable_bytes : float
        How much of the cache arrays can count on.

    Notes
    -----
    Only arrays are told apart, by their addresses. One that no operation has named counts as there: it has
    just been made.
    """

    def __init__(self, usable_bytes: float) -> None:
        self._usable = int(usable_bytes)
        self._there: dict[int, int] = {}  # bytes by address, last used last
        self._gone: dict[int, None] = {}

    def resident(self, arrays: Mapping[int, int]) -> dict[int, int]:
        """How many bytes of each of some arrays are there; all of a larger one, if it was used last."""
        there = {address: size for address, size in self._there.items() if address in arrays}
        found = {address: size for address, size in arrays.items() if address not in self._gone}
        cut = {a: size for a, size in there.items() if size < min(arrays[a], self._usable) // 2}
        return found | cut

    def touch(self, arrays: Mapping[int, int]) -> int:
        """Use arrays (address -> bytes); how many bytes of them had to come from memory."""
        cold = 0
        for address, size_bytes in arrays.items():
            there = self._there.pop(address, 0)
            if address in self._gone:
                del self._gone[address]
                cold += size_bytes
            elif there:
                cold += max(min(size_bytes, self._usable) - there, 0)
            self._there[address] = min(size_bytes, self._usable)
        excess = sum(self._there.values()) - self._usable
        while excess > 0:
            address = next(iter(self._there))
            size_bytes = self._there[address]
            if size_bytes > excess:
                self._there[address] -= excess
                break
            del self._there[address]
            self._gone[address] = None
            excess -= size_bytes
        for kept in (self._there, self._gone):
            while len(kept) > KEPT_ARRAYS:
                del kept[next(iter(kept))]
        return cold
