"""Model of the device that an allocator uses: its memory, and the addresses that the driver returns."""

from __future__ import annotations

from bisect import bisect_left, insort

TOP_ADDRESS = 0x7F00_0000_0000
"""Address below which the regions of ``cudaMalloc`` are placed, from top to bottom."""
_FIRST_RESERVED_ADDRESS = 0x0A00_0000_0000
_PAGE_BYTES = 2 << 20
_REGION_ALIGN_BYTES = 32 << 20
_CONTEXT_BYTES = 10 << 20
"""Part of the first region that the CUDA context takes; a program gets the remaining part first."""


class _Region:
    """A range of addresses, a multiple of 32 MiB long, in which the driver places allocations."""

    __slots__ = ("address", "end", "used_ranges")

    def __init__(self, address: int, end: int) -> None:
        self.address = address
        self.end = end
        self.used_ranges: list[tuple[int, int]] = []

    def find_gap(self, size: int) -> int | None:
        """Return the lowest address in the region that is followed by `size` free bytes, or None if there is
        no such address.
        """
        gap_address = self.address
        for used_start, used_end in self.used_ranges:
            if used_start - gap_address >= size:
                return gap_address
            gap_address = used_end
        return gap_address if self.end - gap_address >= size else None


class Device:
    """A model of a device with `capacity_bytes` of memory. It also models the addresses that the driver
    assigns.

    ``cudaMalloc`` allocates both, ``cuMemAddressReserve`` only addresses and ``cuMemCreate`` only memory. The
    addresses matter if a pool has two free blocks of the same size. In recordings of an H200 (driver of
    CUDA 13), ``cudaMalloc`` uses the lowest gap in the newest region that has a gap, or else a new region at
    the highest free addresses.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._regions_newest_first: list[_Region] = []
        self._region_ranges: list[tuple[int, int]] = []
        context_region = self._new_region(_REGION_ALIGN_BYTES)
        context_region.used_ranges.append((context_region.address, context_region.address + _CONTEXT_BYTES))
        self._reserved_ranges: list[tuple[int, int]] = []

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - self.used_bytes

    def malloc(self, size_bytes: int) -> int | None:
        """Allocate physical memory together with an address range. Return the first address, or None if there
        is not enough memory.
        """
        if not self.create_memory(size_bytes):
            return None
        rounded_bytes = -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES
        for region in self._regions_newest_first:
            address = region.find_gap(rounded_bytes)
            if address is not None:
                break
        else:
            region = self._new_region(-(-rounded_bytes // _REGION_ALIGN_BYTES) * _REGION_ALIGN_BYTES)
            address = region.address
        insort(region.used_ranges, (address, address + rounded_bytes))
        return address

    def free(self, address: int, size_bytes: int) -> None:
        """Free memory that the method `malloc` allocated."""
        self.release_memory(size_bytes)
        region = next(
            candidate
            for candidate in self._regions_newest_first
            if candidate.address <= address < candidate.end
        )
        del region.used_ranges[bisect_left(region.used_ranges, (address, 0))]
        if not region.used_ranges:
            self._regions_newest_first.remove(region)
            self._region_ranges.remove((region.address, region.end))

    def _new_region(self, size: int) -> _Region:
        end_address = TOP_ADDRESS
        for region_start, region_end in reversed(self._region_ranges):
            if end_address - region_end >= size:
                break
            end_address = region_start
        region = _Region(end_address - size, end_address)
        insort(self._region_ranges, (region.address, region.end))
        self._regions_newest_first.insert(0, region)
        return region

    def create_memory(self, size_bytes: int) -> bool:
        """Allocate physical memory without an address range, as ``cuMemCreate`` does."""
        if size_bytes > self.free_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def release_memory(self, size_bytes: int) -> None:
        """Release physical memory that `create_memory` allocated."""
        self.used_bytes -= size_bytes

    def reserve_addresses(self, size_bytes: int) -> int:
        """Reserve the lowest free address range without memory, as ``cuMemAddressReserve`` does. Return its
        first address.
        """
        rounded_bytes = -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES
        address = _FIRST_RESERVED_ADDRESS
        for range_start, range_end in self._reserved_ranges:
            if range_start - address >= rounded_bytes:
                break
            address = range_end
        insort(self._reserved_ranges, (address, address + rounded_bytes))
        return address

    def release_addresses(self, address: int) -> None:
        """Release an address range that `reserve_addresses` reserved."""
        del self._reserved_ranges[bisect_left(self._reserved_ranges, (address, 0))]
