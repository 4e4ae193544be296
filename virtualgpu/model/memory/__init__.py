"""Memory of one virtual device: cudaMalloc segments and the allocations kernels may touch.

Two books are kept. *Segments* are what ``cudaMalloc`` hands out, in the driver's granularity; the
pool cuts them up. *Live allocations* are what a program asked for, with exact sizes; the engine
checks every access of a kernel against them.
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
from virtualgpu.model.memory.host import host_view
from virtualgpu.model.memory.ledger import Ledger
from virtualgpu.model.memory.managed import ManagedPages
from virtualgpu.model.memory.ordered import OrderedPool
from virtualgpu.model.memory.textures import Textures
from virtualgpu.words import count

# cudaMalloc maps physical memory in 2 MiB pages and cuts requests below 1 MiB out of shared pages.
PAGE_BYTES = 2 << 20
SMALL_LIMIT_BYTES = 1 << 20
SMALL_UNIT_BYTES = 512
# What cp.empty leaves in memory: a signalling NaN as float32, so that arithmetic on it gives another
# NaN, and a huge or strange number in every other type. Arrays beyond the limit are left alone, since
# filling them would take longer than a learner waits.
UNWRITTEN = 0xFFB7_5EED
UNWRITTEN_LIMIT_BYTES = 256 << 20
# Ended allocations that are remembered to tell a use after free.
REMEMBERED = 256
_PARAMETER = " (parameter "


@dataclass(frozen=True, slots=True)
class Allocation:
    """A range a program owns; `label` names it, such as ``float32 array of shape (1000,)``."""

    address: int
    size_bytes: int
    label: str

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


class _Ranges:
    """First-fit allocator over free ranges that merge with their neighbours."""

    def __init__(self, unit_bytes: int) -> None:
        self.unit_bytes = unit_bytes
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def give(self, start: int, size: int) -> tuple[int, int]:
        """Add a free range and return the merged range that now contains it."""
        i = bisect_left(self._starts, start)
        if i < len(self._starts) and start + size == self._starts[i]:
            size += self._sizes[i]
            del self._starts[i], self._sizes[i]
        if i > 0 and self._starts[i - 1] + self._sizes[i - 1] == start:
            i -= 1
            start = self._starts[i]
            size = self._sizes[i] + size
            self._sizes[i] = size
        else:
            self._starts.insert(i, start)
            self._sizes.insert(i, size)
        return start, size

    def take(self, size: int) -> int | None:
        """Cut `size` bytes from the lowest range that fits; None if none does."""
        for i, free in enumerate(self._sizes):
            if free >= size:
                start = self._starts[i]
                if free == size:
                    del self._starts[i], self._sizes[i]
                else:
                    self._starts[i], self._sizes[i] = start + size, free - size
                return start
        return None

    def remove(self, start: int, size: int) -> None:
        """Take one range out again; it must lie within a single free range."""
        i = bisect_right(self._starts, start) - 1
        low = self._starts[i]
        free = self._sizes[i]
        del self._starts[i], self._sizes[i]
        tail = low + free - (start + size)
        if tail:
            self._starts.insert(i, start + size)
            self._sizes.insert(i, tail)
        if start > low:
            self._starts.insert(i, low)
            self._sizes.insert(i, start - low)

    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each free range."""
        return [(start, start + size) for start, size in zip(self._starts, self._sizes, strict=True)]


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


class DeviceMemory:
    """Address space, segments and live allocations of one virtual device.

    Parameters
    ----------
    capacity_bytes : int
        Memory of the device.
    context_bytes : int
        What the driver's own context takes of it (0: nothing).
    """

    def __init__(self, capacity_bytes: int, context_bytes: int = 0) -> None:
        self.capacity_bytes = capacity_bytes
        self.context_bytes = min(context_bytes, capacity_bytes)
        self._arena = Arena(capacity_bytes - self.context_bytes)
        self._pages = _Ranges(PAGE_BYTES)
        self._pages.give(self._arena.address, self._arena.size_bytes)
        self._small = _Ranges(SMALL_UNIT_BYTES)
        self._segments: dict[int, int] = {}
        self._segment_starts: list[int] = []
        self._page_bytes_used = 0
        self._tracked: dict[int, Allocation] = {}
        self.ledger = Ledger()
        self._ended: deque[Allocation] = deque(maxlen=REMEMBERED)
        self._starts: npt.NDArray[np.int64] | None = None
        self._ends = np.empty(0, dtype=np.int64)
        self.lock = threading.RLock()
        self.managed: dict[int, ManagedPages] = {}  # by the addresses that `cudaMallocManaged` gave
        self.lent: dict[int, int] = {}  # address -> bytes of page-locked host memory that kernels may touch
        self.page_faults = 0  # blocks of managed memory that came because a kernel touched them
        self.bus_bytes = 0  # what kernels moved over the bus: host memory, and pages of managed memory
        self.pools: list[OrderedPool] = []  # the driver's, behind `cudaMallocAsync`
        self.heap: DeviceHeap | None = None
        self.textures = Textures()
        # Is told of segments that come (True) and go: address, size in bytes.
        self.watched: Callable[[int, int, bool], None] | None = None
        self._heap_bytes = HEAP_BYTES
        self.peers: list[DeviceMemory] = []  # of other devices, which kernels of this one may touch
        self.whose: Callable[[int], Any] = lambda _address: None  # the device that an address belongs to
        self._merged: (
            tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64], npt.NDArray[np.int64]] | None
        ) = None

    def open_heap(self) -> DeviceHeap:
        """What kernels' own ``malloc`` takes from; made when the first of them is launched."""
        with self.lock:
            if self.heap is None:
                address = self.malloc(self._heap_bytes)
                self.track(address, self._heap_bytes, "device heap")
                self.heap = DeviceHeap(address, self.view(address, self._heap_bytes))
            return self.heap

    @property
    def heap_bytes(self) -> int:
        """``cudaLimitMallocHeapSize``; to be set before the first kernel that uses the heap.

        Raises
        ------
        CUDARuntimeError
            Status 1, ``cudaErrorInvalidValue``, where the heap is in use already.
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
        """Lowest device address."""
        return self._arena.address

    @property
    def arena_bytes(self) -> int:
        """Addressable bytes; below `capacity_bytes` where the host refuses that much."""
        return self._arena.size_bytes

    @property
    def used_bytes(self) -> int:
        """What ``nvidia-smi`` would call used: the context and all mapped pages."""
        for pool in self.pools:
            pool.settle()
        return self.context_bytes + self._page_bytes_used

    @property
    def free_bytes(self) -> int:
        """Free device memory, as ``cudaMemGetInfo`` reports it."""
        return max(0, min(self.capacity_bytes - self.used_bytes, self.arena_bytes - self._page_bytes_used))

    # Segments

    def malloc(self, size_bytes: int) -> int:
        """Allocate one segment as ``cudaMalloc`` does and return its address.

        Raises
        ------
        CUDARuntimeError
            Status 2, ``cudaErrorMemoryAllocation``, when no range is large enough.
        """
        if size_bytes <= 0:
            return 0
        with self.lock:
            if size_bytes < SMALL_LIMIT_BYTES:
                size = _round_up(size_bytes, SMALL_UNIT_BYTES)
                address = self._small.take(size)
                if address is None:
                    page = self._take_pages(PAGE_BYTES, size_bytes)
                    self._small.give(page, PAGE_BYTES)
                    address = self._small.take(size)
                    assert address is not None
            else:
                size = _round_up(size_bytes, PAGE_BYTES)
                address = self._take_pages(size, size_bytes)
            self._segments[address] = size
            insort(self._segment_starts, address)
            self.ledger.taken(size)
            if self.watched is not None:
                self.watched(address, size, True)
            return address

    def _take_pages(self, size: int, asked_bytes: int) -> int:
        for pool in self.pools:
            pool.settle()
        address = self._pages.take(size)
        if address is None:
            why = f"out of memory: {asked_bytes:,} bytes asked, {self.free_bytes:,} bytes free on the device."
            if size <= self.free_bytes:
                why += " The free memory is in pieces; free_all_blocks() on the pool may join them."
            elif self.arena_bytes + self.context_bytes < self.capacity_bytes:
                why += f" This computer lends the virtual device only {self.arena_bytes:,} bytes."
            raise CUDARuntimeError(2, "cudaErrorMemoryAllocation", why)
        self._page_bytes_used += size
        return address

    def free(self, address: int) -> None:
        """Free a segment as ``cudaFree`` does; 0 is ignored.

        Raises
        ------
        CUDARuntimeError
            Status 1, ``cudaErrorInvalidValue``, when `address` starts no segment.
        """
        if address == 0:
            return
        with self.lock:
            for pool in self.pools:
                if pool.owns(address):
                    pool.free(address)
                    return
            self.managed.pop(address, None)
            size = self._segments.pop(address, None)
            if size is None:
                raise CUDARuntimeError(
                    1,
                    "cudaErrorInvalidValue",
                    f"invalid argument: {address:#x} starts no device allocation (freed twice, or a pointer "
                    "into the middle of one).",
                )
            del self._segment_starts[bisect_left(self._segment_starts, address)]
            self.ledger.given_back(size)
            if self.watched is not None:
                self.watched(address, size, False)
            if size >= PAGE_BYTES:
                self._release_pages(address, size)
                return
            start, merged = self._small.give(address, size)
            base = self._arena.address
            first = base + _round_up(start - base, PAGE_BYTES)
            last = base + (start + merged - base) // PAGE_BYTES * PAGE_BYTES
            if last > first:
                self._small.remove(first, last - first)
                self._release_pages(first, last - first)

    def check(self, address: int, size_bytes: int) -> None:
        """Make sure that a copy or memset stays within one segment, as CUDA does; 0 bytes are none.

        Raises
        ------
        CUDARuntimeError
            Status 1, ``cudaErrorInvalidValue``.
        """
        if size_bytes <= 0:
            return
        with self.lock:
            start, end = self.segment(address)
            if address + size_bytes <= end:
                return
            near = self.nearest(address)
        there = "no memory of this device starts there"
        if near is not None and near.address <= address < near.end:
            there = f"a {near.label} ends after {count(near.end - address, 'byte')}"
        elif start:
            there = f"the allocation ends after {count(end - address, 'byte')}"
        why = f"invalid argument: {size_bytes:,} bytes at {address:#x}, but {there}."
        raise CUDARuntimeError(1, "cudaErrorInvalidValue", why)

    def segment(self, address: int) -> tuple[int, int]:
        """Start and end of the segment that contains `address`; twice 0 if none does."""
        with self.lock:
            if self.lent and not self.base_address <= address < self.base_address + self.arena_bytes:
                return next(((at, at + n) for at, n in self.lent.items() if at <= address < at + n), (0, 0))
            at = bisect_right(self._segment_starts, address) - 1
            start = self._segment_starts[at] if at >= 0 else 0
            end = start + self._segments[start] if start else 0
        return (start, end) if address < end else (0, 0)

    # Host memory

    def lend(self, address: int, size_bytes: int) -> None:
        """Let kernels and copies touch page-locked host memory at its own address."""
        with self.lock:
            label = f"page-locked host memory of {size_bytes:,} bytes"
            self.lent[address] = size_bytes
            self._tracked[address] = Allocation(address, size_bytes, label)
            self._starts = None

    def take_back(self, address: int) -> None:
        """End what `lend` began; unknown addresses are ignored."""
        with self.lock:
            if self.lent.pop(address, None) is not None:
                self._ended.append(self._tracked.pop(address))
                self._starts = None

    @property
    def reaches_out(self) -> bool:
        """Whether kernels may touch anything that is not, or not always, in this memory."""
        return bool(self.lent or self.managed or self.peers)

    def is_lent(self, address: int) -> bool:
        """Whether an address lies in host memory that kernels may touch."""
        if not self.lent or self.base_address <= address < self.base_address + self.arena_bytes:
            return False
        return any(at <= address < at + n for at, n in list(self.lent.items()))

    # What a stream-ordered pool takes: whole pages at places of its choice, which it cuts into blocks

    def free_pages(self) -> list[tuple[int, int]]:
        """Start and end of each range of pages that nobody has."""
        return self._pages.spans()

    def take_pages_at(self, address: int, size_bytes: int) -> None:
        """Take free pages at a given place."""
        self._pages.remove(address, size_bytes)
        self._page_bytes_used += size_bytes
        self.ledger.taken(size_bytes)

    def return_pages(self, address: int, size_bytes: int) -> None:
        """Give back what `take_pages_at` took."""
        self.ledger.given_back(size_bytes)
        self._release_pages(address, size_bytes)

    def open_block(self, address: int, size_bytes: int) -> None:
        """Let copies touch a block as they may touch a segment."""
        self._segments[address] = size_bytes
        insort(self._segment_starts, address)

    def close_block(self, address: int) -> None:
        """End what `open_block` began."""
        del self._segments[address]
        del self._segment_starts[bisect_left(self._segment_starts, address)]

    def _release_pages(self, address: int, size: int) -> None:
        self._arena.discard(address, size)
        self._pages.give(address, size)
        self._page_bytes_used -= size

    # Live allocations

    def track(self, address: int, size_bytes: int, label: str) -> None:
        """Let kernels touch ``[address, address + size_bytes)``; a second call renames or resizes it."""
        if size_bytes <= 0:
            return
        with self.lock:
            old = self._tracked.get(address)
            self._tracked[address] = Allocation(address, size_bytes, label)
            if old is None or old.size_bytes != size_bytes:
                self._starts = None
                self.ledger.owned(size_bytes - (0 if old is None else old.size_bytes))

    def untrack(self, address: int) -> None:
        """End a live allocation; unknown addresses are ignored."""
        with self.lock:
            ended = self._tracked.pop(address, None)
            if ended is not None:
                self._starts = None
                self.ledger.owned(-ended.size_bytes)
                self._ended.append(ended)

    def name(self, address: int, parameter: str) -> None:
        """Note by which parameter a kernel knows the allocation that starts at an address."""
        peer = self.peer_of(address)
        if peer is not None:
            peer.name(address, parameter)
            return
        with self.lock:
            found = self._tracked.get(address)
            if found is not None:
                label = f"{found.label.split(_PARAMETER)[0]}{_PARAMETER}{parameter})"
                self._tracked[address] = Allocation(address, found.size_bytes, label)

    def allocation(self, address: int) -> Allocation | None:
        """The live allocation that starts at an address."""
        return self._tracked.get(address)

    def ended(self, address: int) -> Allocation | None:
        """The allocation that ended last of those that contained `address`."""
        with self.lock:
            return next((a for a in reversed(self._ended) if a.address <= address < a.end), None)

    def peer_of(self, address: int) -> DeviceMemory | None:
        """The peer's memory that an address lies in, which kernels may touch; None for any other address."""
        if not self.peers or self.base_address <= address < self.base_address + self.arena_bytes:
            return None
        within = (p for p in self.peers if p.base_address <= address < p.base_address + p.arena_bytes)
        return next(within, None)

    def live(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Sorted starts and (exclusive) ends of all live allocations that kernels may touch, those of peers
        among them; treat both as read-only."""
        own = self._live()
        if not self.peers:
            return own
        all_of = [own, *(peer._live() for peer in list(self.peers))]
        merged = self._merged
        if merged is None or [id(starts) for starts in merged[0]] != [id(starts) for starts, _ in all_of]:
            starts, ends = (np.concatenate([each[side] for each in all_of]) for side in (0, 1))
            order = np.argsort(starts)
            merged = self._merged = [each[0] for each in all_of], starts[order], ends[order]
        return merged[1:]

    def _live(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The same of this memory alone."""
        with self.lock:
            if self._starts is None:
                table = np.array(
                    [(a.address, a.end) for a in list(self._tracked.values())], dtype=np.int64
                ).reshape(-1, 2)
                table = table[np.argsort(table[:, 0])]
                self._starts = np.ascontiguousarray(table[:, 0])
                self._ends = np.ascontiguousarray(table[:, 1])
            return self._starts, self._ends

    def nearest(self, address: int) -> Allocation | None:
        """The live allocation that contains `address`, else the one with the smallest gap to it."""
        peer = self.peer_of(address)
        if peer is not None:
            return peer.nearest(address)
        with self.lock:
            starts, ends = self._live()
            if not starts.size:
                return None
            after = int(np.searchsorted(starts, address, side="right"))
            if after == 0:
                best = 0
            elif after == starts.size or address - int(ends[after - 1]) < int(starts[after]) - address:
                best = after - 1
            else:
                best = after
            return self._tracked[int(starts[best])]

    # Contents

    def view(self, address: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """The bytes of a range as a NumPy view that keeps the memory mapped.

        Raises
        ------
        ValueError
            If the range leaves the device's address space.
        """
        base = self._arena.address
        peer = self.peer_of(address)
        if peer is not None:
            return peer.view(address, size_bytes)
        if self.is_lent(address) and size_bytes >= 0 and address + size_bytes <= self.segment(address)[1]:
            return host_view(address, size_bytes)
        if address < base or size_bytes < 0 or address + size_bytes > base + self._arena.size_bytes:
            raise ValueError(f"{size_bytes} bytes at {address:#x} are outside this device's memory.")
        return self._arena.view(address, size_bytes)

    def mark_unwritten(self, address: int, size_bytes: int) -> None:
        """Fill a range with the value that tells a checking tool that nothing has written there."""
        if size_bytes <= UNWRITTEN_LIMIT_BYTES:
            self.view(address, size_bytes & ~3).view(np.uint32)[:] = UNWRITTEN

    def unwritten(self, address: int, size_bytes: int) -> npt.NDArray[np.bool_]:
        """Which whole 4-byte words of a range still hold what `mark_unwritten` put there."""
        words: npt.NDArray[np.uint32] = self.view(address, size_bytes & ~3).view(np.uint32)
        found: npt.NDArray[np.bool_] = words == UNWRITTEN
        return found

    def zero(self, address: int, size_bytes: int) -> None:
        """Set a range to zero without writing to whole pages where the host allows that."""
        there = self.view(address, size_bytes)
        if self.peer_of(address) is not None or self.is_lent(address):
            there[:] = 0
        else:
            self._arena.zero(address, size_bytes)
