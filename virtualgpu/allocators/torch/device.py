"""The device below an allocator: its memory, and the addresses that the driver gives."""

from __future__ import annotations

from bisect import bisect_left, insort

FIRST_ADDRESS = 0x7F00_0000_0000
_GRAIN = 2 << 20


class Device:
    """Memory of `capacity_bytes` and a range of addresses; gives the lowest addresses that are free.

    ``cudaMalloc`` takes both, ``cuMemAddressReserve`` addresses only and ``cuMemCreate`` memory only.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._ranges: list[tuple[int, int]] = []

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - self.used_bytes

    def malloc(self, size_bytes: int) -> int | None:
        """Memory with addresses, or None where there is too little."""
        if not self.create(size_bytes):
            return None
        return self.reserve(size_bytes)

    def free(self, address: int, size_bytes: int) -> None:
        self.release(size_bytes)
        self.unreserve(address)

    def create(self, size_bytes: int) -> bool:
        """Memory without addresses."""
        if size_bytes > self.free_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes

    def reserve(self, size_bytes: int) -> int:
        """Addresses without memory."""
        size = -(-size_bytes // _GRAIN) * _GRAIN
        at = FIRST_ADDRESS
        for start, end in self._ranges:
            if start - at >= size:
                break
            at = end
        insort(self._ranges, (at, at + size))
        return at

    def unreserve(self, address: int) -> None:
        del self._ranges[bisect_left(self._ranges, (address, 0))]
