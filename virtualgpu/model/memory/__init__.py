"""Memory of one virtual device: the segments of cudaMalloc, and the allocations that kernels may access.

Two tables are kept. *Segments* are the ranges of ``cudaMalloc``, in the driver's granularity; the pool
divides them. *Live allocations* are the ranges that a program requested, with exact sizes; the engine checks
every access of a kernel against them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model.memory.arena import Arena
from virtualgpu.model.memory.heap import HEAP_BYTES, DeviceHeap
from virtualgpu.model.memory.host import view_host_memory
from virtualgpu.model.memory.ledger import MemoryTotals
from virtualgpu.model.memory.managed import ManagedPages
from virtualgpu.model.memory.ordered import OrderedPool
from virtualgpu.model.memory.textures import Textures
from virtualgpu.words import count

# cudaMalloc maps physical memory in 2 MiB pages and cuts requests below 1 MiB out of shared pages.
PAGE_BYTES = 2 << 20
MAX_SMALL_BYTES = 1 << 20
SMALL_UNIT_BYTES = 512
# Contents of cp.empty: a signalling NaN as float32, so that arithmetic on it gives another NaN, and a huge or
# strange number in every other type. Arrays beyond the limit are not filled, because that would take too
# long.
UNWRITTEN_WORD = 0xFFB7_5EED
MAX_MARKED_BYTES = 256 << 20
# Number of ended allocations that are remembered to detect a use after free.
MAX_FREED_ALLOCATIONS = 256
_PARAMETER_PREFIX = " (parameter "


@dataclass(frozen=True, slots=True)
class Allocation:
    """A range of memory that the program has allocated, with a label such as ``float32 array of shape
    (1000,)``.
    """

    address: int
    size_bytes: int
    label: str

    @property
    def end(self) -> int:
        """The address after the last byte of the allocation."""
        return self.address + self.size_bytes


class _FreeRanges:
    """An allocator of the first free range that is large enough; adjacent free ranges are merged."""

    def __init__(self, unit_bytes: int) -> None:
        self.unit_bytes = unit_bytes
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def add_range(self, start: int, size: int) -> tuple[int, int]:
        """Add a free range of memory, and return the merged range that now contains it."""
        range_index = bisect_left(self._starts, start)
        if range_index < len(self._starts) and start + size == self._starts[range_index]:
            size += self._sizes[range_index]
            del self._starts[range_index], self._sizes[range_index]
        if range_index > 0 and self._starts[range_index - 1] + self._sizes[range_index - 1] == start:
            range_index -= 1
            start = self._starts[range_index]
            size = self._sizes[range_index] + size
            self._sizes[range_index] = size
        else:
            self._starts.insert(range_index, start)
            self._sizes.insert(range_index, size)
        return start, size

    def take_range(self, size: int) -> int | None:
        """Take `size` bytes from the lowest free range that is large enough. The result is the address, or
        None if no range is large enough.
        """
        for range_index, free_bytes in enumerate(self._sizes):
            if free_bytes >= size:
                start = self._starts[range_index]
                if free_bytes == size:
                    del self._starts[range_index], self._sizes[range_index]
                else:
                    self._starts[range_index] = start + size
                    self._sizes[range_index] = free_bytes - size
                return start
        return None

    def remove_range(self, start: int, size: int) -> None:
        """Remove a range of addresses from the free ranges. The range must be part of a single free range."""
        range_index = bisect_right(self._starts, start) - 1
        range_start = self._starts[range_index]
        range_bytes = self._sizes[range_index]
        del self._starts[range_index], self._sizes[range_index]
        tail_bytes = range_start + range_bytes - (start + size)
        if tail_bytes:
            self._starts.insert(range_index, start + size)
            self._sizes.insert(range_index, tail_bytes)
        if start > range_start:
            self._starts.insert(range_index, range_start)
            self._sizes.insert(range_index, start - range_start)

    def spans(self) -> list[tuple[int, int]]:
        """Return the start and end of each free range of memory."""
        return [(start, start + size) for start, size in zip(self._starts, self._sizes, strict=True)]


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


class DeviceMemory:
    """The memory of one virtual device, with its segments and live allocations.

    Parameters
    ----------
    capacity_bytes : int
        Memory of the device.
    context_bytes : int
        Part of it that the driver's own context uses (0: nothing).
    """

    def __init__(self, capacity_bytes: int, context_bytes: int = 0) -> None:
        self.capacity_bytes = capacity_bytes
        self.context_bytes = min(context_bytes, capacity_bytes)
        self._arena = Arena(capacity_bytes - self.context_bytes)
        self._free_pages = _FreeRanges(PAGE_BYTES)
        self._free_pages.add_range(self._arena.address, self._arena.size_bytes)
        self._small_ranges = _FreeRanges(SMALL_UNIT_BYTES)
        self._segments: dict[int, int] = {}
        self._segment_starts: list[int] = []
        self._page_bytes_used = 0
        self._live_allocations: dict[int, Allocation] = {}
        self.memory_totals = MemoryTotals()
        self._freed_allocations: deque[Allocation] = deque(maxlen=MAX_FREED_ALLOCATIONS)
        self._live_starts: npt.NDArray[np.int64] | None = None
        self._live_ends = np.empty(0, dtype=np.int64)
        self.lock = threading.RLock()
        self.managed_pages: dict[int, ManagedPages] = {}  # by addresses of `cudaMallocManaged`
        self.host_ranges: dict[
            int, int
        ] = {}  # address -> bytes of page-locked host memory that kernels can access
        self.page_faults = 0  # blocks of managed memory that moved because a kernel accessed them
        self.bus_bytes = 0  # bytes that kernels moved over the bus: host memory, and pages of managed memory
        self.pools: list[OrderedPool] = []  # the driver's pools of `cudaMallocAsync`
        self.heap: DeviceHeap | None = None
        self.textures = Textures()
        # Called for every new (True) and freed segment with its address and size in bytes.
        self.segment_callback: Callable[[int, int, bool], None] | None = None
        self._heap_bytes = HEAP_BYTES
        self.peers: list[DeviceMemory] = []  # of other devices, which kernels of this one can access
        self.find_device: Callable[[int], Any] = lambda _address: (
            None
        )  # the device that an address belongs to
        self._merged_ranges: (
            tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64], npt.NDArray[np.int64]] | None
        ) = None

    def open_heap(self) -> DeviceHeap:
        """Return the heap from which kernels allocate with ``malloc``. The heap is created by the first
        call.
        """
        with self.lock:
            if self.heap is None:
                address = self.malloc(self._heap_bytes)
                self.track_allocation(address, self._heap_bytes, "device heap")
                self.heap = DeviceHeap(address, self.view(address, self._heap_bytes))
            return self.heap

    @property
    def heap_bytes(self) -> int:
        """The size in bytes of the heap for ``malloc`` in kernels. The size can only be set before the heap
        is used.

        Raises
        ------
        CUDARuntimeError
            Status 1, ``cudaErrorInvalidValue``, if the heap is in use already.
        """
        return self._heap_bytes

    @heap_bytes.setter
    def heap_bytes(self, size_bytes: int) -> None:
        if self.heap is not None and size_bytes != self._heap_bytes:
            raise CUDARuntimeError(
                1,
                "cudaErrorInvalidValue",
                "invalid argument: the size of the device heap is set before the first kernel that calls "
                "malloc() or free().",
            )
        self._heap_bytes = size_bytes

    @property
    def base_address(self) -> int:
        """The lowest address of the device's memory."""
        return self._arena.address

    @property
    def arena_bytes(self) -> int:
        """Number of addressable bytes. The number is less than `capacity_bytes` if the host has too little
        memory.
        """
        return self._arena.size_bytes

    @property
    def used_bytes(self) -> int:
        """Number of used bytes as in ``nvidia-smi``. The number includes the driver's context and all mapped
        pages.
        """
        for pool in self.pools:
            pool.update_pool()
        return self.context_bytes + self._page_bytes_used

    @property
    def free_bytes(self) -> int:
        """Number of free bytes of device memory, as ``cudaMemGetInfo`` reports it."""
        return max(0, min(self.capacity_bytes - self.used_bytes, self.arena_bytes - self._page_bytes_used))

    # Segments

    def malloc(self, size_bytes: int) -> int:
        """Allocate a segment of device memory like ``cudaMalloc``, and return its address.

        Raises
        ------
        CUDARuntimeError
            Status 2, ``cudaErrorMemoryAllocation``, when no range is large enough.
        """
        if size_bytes <= 0:
            return 0
        with self.lock:
            if size_bytes < MAX_SMALL_BYTES:
                rounded_bytes = _round_up(size_bytes, SMALL_UNIT_BYTES)
                address = self._small_ranges.take_range(rounded_bytes)
                if address is None:
                    page_address = self._take_pages(PAGE_BYTES, size_bytes)
                    self._small_ranges.add_range(page_address, PAGE_BYTES)
                    address = self._small_ranges.take_range(rounded_bytes)
                    assert address is not None
            else:
                rounded_bytes = _round_up(size_bytes, PAGE_BYTES)
                address = self._take_pages(rounded_bytes, size_bytes)
            self._segments[address] = rounded_bytes
            insort(self._segment_starts, address)
            self.memory_totals.add_segment(rounded_bytes)
            if self.segment_callback is not None:
                self.segment_callback(address, rounded_bytes, True)
            return address

    def _take_pages(self, size_bytes: int, requested_bytes: int) -> int:
        for pool in self.pools:
            pool.update_pool()
        address = self._free_pages.take_range(size_bytes)
        if address is None:
            message = (
                f"out of memory: {requested_bytes:,} bytes requested, "
                f"{self.free_bytes:,} bytes free on the device."
            )
            if size_bytes <= self.free_bytes:
                message += " The free memory is fragmented; free_all_blocks() of the pool may help."
            elif self.arena_bytes + self.context_bytes < self.capacity_bytes:
                message += f" The host memory of this computer allows only {self.arena_bytes:,} bytes."
            raise CUDARuntimeError(2, "cudaErrorMemoryAllocation", message)
        self._page_bytes_used += size_bytes
        return address

    def free(self, address: int) -> None:
        """Free a segment of device memory like ``cudaFree``. The address 0 is ignored.

        Raises
        ------
        CUDARuntimeError
            Status 1, ``cudaErrorInvalidValue``, when no segment starts at `address`.
        """
        if address == 0:
            return
        with self.lock:
            for pool in self.pools:
                if pool.owns_block(address):
                    pool.free(address)
                    return
            self.managed_pages.pop(address, None)
            freed_bytes = self._segments.pop(address, None)
            if freed_bytes is None:
                raise CUDARuntimeError(
                    1,
                    "cudaErrorInvalidValue",
                    f"invalid argument: {address:#x} is not the start of a device "
                    "allocation (it was freed twice, or it points into the middle of "
                    "one).",
                )
            del self._segment_starts[bisect_left(self._segment_starts, address)]
            self.memory_totals.remove_segment(freed_bytes)
            if self.segment_callback is not None:
                self.segment_callback(address, freed_bytes, False)
            if freed_bytes >= PAGE_BYTES:
                self._release_pages(address, freed_bytes)
                return
            free_start, merged_bytes = self._small_ranges.add_range(address, freed_bytes)
            base_address = self._arena.address
            first_page = base_address + _round_up(free_start - base_address, PAGE_BYTES)
            last_page = base_address + (free_start + merged_bytes - base_address) // PAGE_BYTES * PAGE_BYTES
            if last_page > first_page:
                self._small_ranges.remove_range(first_page, last_page - first_page)
                self._release_pages(first_page, last_page - first_page)

    def check_range(self, address: int, size_bytes: int) -> None:
        """Check that a copy or memset stays within one segment. A size of 0 bytes is always allowed.

        Raises
        ------
        CUDARuntimeError
            Status 1, ``cudaErrorInvalidValue``.
        """
        if size_bytes <= 0:
            return
        with self.lock:
            segment_start, segment_end = self.find_segment(address)
            if address + size_bytes <= segment_end:
                return
            nearest_allocation = self.find_nearest_allocation(address)
        reason = "that address is not in the memory of this device"
        if nearest_allocation is not None and nearest_allocation.address <= address < nearest_allocation.end:
            reason = (
                f"a {nearest_allocation.label} ends after {count(nearest_allocation.end - address, 'byte')}"
            )
        elif segment_start:
            reason = f"the allocation ends after {count(segment_end - address, 'byte')}"
        message = f"invalid argument: {size_bytes:,} bytes at {address:#x} are accessed, but {reason}."
        raise CUDARuntimeError(1, "cudaErrorInvalidValue", message)

    def find_segment(self, address: int) -> tuple[int, int]:
        """Return the start and end of the segment that contains an address, or (0, 0) if there is none."""
        with self.lock:
            if self.host_ranges and not self.base_address <= address < self.base_address + self.arena_bytes:
                for host_address, size_bytes in self.host_ranges.items():
                    if host_address <= address < host_address + size_bytes:
                        return host_address, host_address + size_bytes
                return 0, 0
            segment_index = bisect_right(self._segment_starts, address) - 1
            segment_start = self._segment_starts[segment_index] if segment_index >= 0 else 0
            segment_end = segment_start + self._segments[segment_start] if segment_start else 0
        return (segment_start, segment_end) if address < segment_end else (0, 0)

    # Host memory

    def map_host_memory(self, address: int, size_bytes: int) -> None:
        """Make pinned host memory accessible to kernels and copies at its own address."""
        with self.lock:
            label = f"page-locked host memory of {size_bytes:,} bytes"
            self.host_ranges[address] = size_bytes
            self._live_allocations[address] = Allocation(address, size_bytes, label)
            self._live_starts = None

    def unmap_host_memory(self, address: int) -> None:
        """Remove host memory that was added with `map_host_memory`. An unknown address is ignored."""
        with self.lock:
            if self.host_ranges.pop(address, None) is not None:
                self._freed_allocations.append(self._live_allocations.pop(address))
                self._live_starts = None

    @property
    def uses_remote_memory(self) -> bool:
        """Return whether kernels can access host memory, managed memory, or the memory of another device."""
        return bool(self.host_ranges or self.managed_pages or self.peers)

    def is_host_address(self, address: int) -> bool:
        """Return whether an address belongs to host memory that kernels can access."""
        if not self.host_ranges or self.base_address <= address < self.base_address + self.arena_bytes:
            return False
        ranges = list(self.host_ranges.items())
        return any(range_start <= address < range_start + size_bytes for range_start, size_bytes in ranges)

    # For stream-ordered pools: whole pages at addresses of their choice, which they divide into blocks

    def free_pages(self) -> list[tuple[int, int]]:
        """Return the start and end of each range of pages that no segment uses."""
        return self._free_pages.spans()

    def take_pages_at(self, address: int, size_bytes: int) -> None:
        """Reserve free pages that begin at the given address."""
        self._free_pages.remove_range(address, size_bytes)
        self._page_bytes_used += size_bytes
        self.memory_totals.add_segment(size_bytes)

    def return_pages(self, address: int, size_bytes: int) -> None:
        """Release pages that were reserved with `take_pages_at`."""
        self.memory_totals.remove_segment(size_bytes)
        self._release_pages(address, size_bytes)

    def open_block(self, address: int, size_bytes: int) -> None:
        """Make a block of memory accessible to copies, as if it were a segment."""
        self._segments[address] = size_bytes
        insort(self._segment_starts, address)

    def close_block(self, address: int) -> None:
        """Make a block of memory inaccessible to copies after a call of `open_block`."""
        del self._segments[address]
        del self._segment_starts[bisect_left(self._segment_starts, address)]

    def _release_pages(self, address: int, size_bytes: int) -> None:
        self._arena.discard(address, size_bytes)
        self._free_pages.add_range(address, size_bytes)
        self._page_bytes_used -= size_bytes

    # Live allocations

    def track_allocation(self, address: int, size_bytes: int, label: str) -> None:
        """Register the addresses from `address` to `address + size_bytes` as an allocation that kernels may
        access.

        A second call with the same address renames or resizes the allocation.
        """
        if size_bytes <= 0:
            return
        with self.lock:
            previous_allocation = self._live_allocations.get(address)
            self._live_allocations[address] = Allocation(address, size_bytes, label)
            if previous_allocation is None or previous_allocation.size_bytes != size_bytes:
                self._live_starts = None
                self.memory_totals.change_array_bytes(
                    size_bytes - (0 if previous_allocation is None else previous_allocation.size_bytes)
                )

    def untrack_allocation(self, address: int) -> None:
        """Remove a live allocation, so that kernels may not access it any more. An unknown address is
        ignored.
        """
        with self.lock:
            allocation = self._live_allocations.pop(address, None)
            if allocation is not None:
                self._live_starts = None
                self.memory_totals.change_array_bytes(-allocation.size_bytes)
                self._freed_allocations.append(allocation)

    def add_parameter_name(self, address: int, parameter: str) -> None:
        """Add the name of a kernel parameter to the label of the allocation that starts at an address."""
        peer = self.peer_of(address)
        if peer is not None:
            peer.add_parameter_name(address, parameter)
            return
        with self.lock:
            allocation = self._live_allocations.get(address)
            if allocation is not None:
                label = f"{allocation.label.split(_PARAMETER_PREFIX)[0]}{_PARAMETER_PREFIX}{parameter})"
                self._live_allocations[address] = Allocation(address, allocation.size_bytes, label)

    def find_allocation(self, address: int) -> Allocation | None:
        """Return the live allocation that starts at the given address."""
        return self._live_allocations.get(address)

    def find_freed_allocation(self, address: int) -> Allocation | None:
        """Return the most recently freed allocation that contained an address, or None."""
        with self.lock:
            for allocation in reversed(self._freed_allocations):
                if allocation.address <= address < allocation.end:
                    return allocation
        return None

    def peer_of(self, address: int) -> DeviceMemory | None:
        """Return the memory of the peer device that contains an address, or None."""
        if not self.peers or self.base_address <= address < self.base_address + self.arena_bytes:
            return None
        for peer in self.peers:
            if peer.base_address <= address < peer.base_address + peer.arena_bytes:
                return peer
        return None

    def find_live_ranges(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the start and end addresses of all live allocations that kernels can access, in sorted
        order.

        The allocations of peer devices are included. Treat both arrays as read-only.
        """
        own_ranges = self._make_live_table()
        if not self.peers:
            return own_ranges
        range_tables = [own_ranges, *(peer._make_live_table() for peer in list(self.peers))]
        merged_ranges = self._merged_ranges
        if merged_ranges is None or [id(starts) for starts in merged_ranges[0]] != [
            id(starts) for starts, _ in range_tables
        ]:
            starts = np.concatenate([table_starts for table_starts, _ in range_tables])
            ends = np.concatenate([table_ends for _, table_ends in range_tables])
            start_order = np.argsort(starts)
            merged_ranges = (
                [table_starts for table_starts, _ in range_tables],
                starts[start_order],
                ends[start_order],
            )
            self._merged_ranges = merged_ranges
        return merged_ranges[1:]

    def _make_live_table(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the sorted starts and ends of the live allocations in this device's own memory."""
        with self.lock:
            if self._live_starts is None:
                range_bounds = [
                    (allocation.address, allocation.end)
                    for allocation in list(self._live_allocations.values())
                ]
                bounds_table = np.array(range_bounds, dtype=np.int64).reshape(-1, 2)
                bounds_table = bounds_table[np.argsort(bounds_table[:, 0])]
                self._live_starts = np.ascontiguousarray(bounds_table[:, 0])
                self._live_ends = np.ascontiguousarray(bounds_table[:, 1])
            return self._live_starts, self._live_ends

    def find_nearest_allocation(self, address: int) -> Allocation | None:
        """Return the live allocation that contains an address, or the nearest one otherwise."""
        peer = self.peer_of(address)
        if peer is not None:
            return peer.find_nearest_allocation(address)
        with self.lock:
            range_starts, range_ends = self._make_live_table()
            if not range_starts.size:
                return None
            next_index = int(np.searchsorted(range_starts, address, side="right"))
            if next_index == 0:
                allocation_index = 0
            elif (
                next_index == range_starts.size
                or address - int(range_ends[next_index - 1]) < int(range_starts[next_index]) - address
            ):
                allocation_index = next_index - 1
            else:
                allocation_index = next_index
            return self._live_allocations[int(range_starts[allocation_index])]

    # Contents

    def view(self, address: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Return a memory range as a NumPy array of bytes without copying it. The array keeps the memory
        mapped.

        Raises
        ------
        ValueError
            If the range leaves the device's address space.
        """
        base_address = self._arena.address
        peer = self.peer_of(address)
        if peer is not None:
            return peer.view(address, size_bytes)
        if (
            self.is_host_address(address)
            and size_bytes >= 0
            and address + size_bytes <= self.find_segment(address)[1]
        ):
            return view_host_memory(address, size_bytes)
        if (
            address < base_address
            or size_bytes < 0
            or address + size_bytes > base_address + self._arena.size_bytes
        ):
            raise ValueError(f"{size_bytes} bytes at {address:#x} are outside this device's memory.")
        return self._arena.view(address, size_bytes)

    def mark_unwritten(self, address: int, size_bytes: int) -> None:
        """Fill a range of memory with a value that marks it as uninitialized for the checks."""
        if size_bytes <= MAX_MARKED_BYTES:
            self.view(address, size_bytes & ~3).view(np.uint32)[:] = UNWRITTEN_WORD

    def find_unwritten_words(self, address: int, size_bytes: int) -> npt.NDArray[np.bool_]:
        """Return which 4-byte words of a range still have the value that `mark_unwritten` stored."""
        memory_words: npt.NDArray[np.uint32] = self.view(address, size_bytes & ~3).view(np.uint32)
        is_unwritten: npt.NDArray[np.bool_] = memory_words == UNWRITTEN_WORD
        return is_unwritten

    def zero(self, address: int, size_bytes: int) -> None:
        """Fill a range of memory with zeros. Whole pages are returned to the host instead if it supports
        this.
        """
        range_bytes = self.view(address, size_bytes)
        if self.peer_of(address) is not None or self.is_host_address(address):
            range_bytes[:] = 0
        else:
            self._arena.zero(address, size_bytes)
