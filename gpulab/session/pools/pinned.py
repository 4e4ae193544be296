"""Pinned (page-locked) host memory: allocations and frees of a pool that replaces CuPy's own.

CuPy's pool of it calls no hooks. The one here has its rules: buffers of powers of two from 512 bytes up, kept
when they are free.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import replace
from functools import partial
from typing import Any

from gpulab.allocators.log import EventLog
from gpulab.session import current
from virtualgpu.records.memory import Action, AllocatorTrace, BlockMap

_PORTABLE = 1  # cudaHostAllocPortable, as CuPy's own pool asks for it


class PinnedRecorder:
    """Counts allocations from `start` to `stop`; buffers that are still in use then are counted further."""

    def __init__(self) -> None:
        self._cp = current.cp()
        provenance = current.backend().provenance
        detail = f"CuPy's pinned memory for {provenance.device}"
        is_measured = provenance.source == "measured"
        self._provenance = (
            replace(provenance, device="this computer", detail=detail) if is_measured else provenance
        )
        self._log = EventLog()
        # What waits for a buffer's end must not keep this object, and with it the pool, alive.
        self._emit = partial(_emit, self._log, time.perf_counter_ns())
        self.pool: Any = self._cp.cuda.PinnedMemoryPool(self._lock)

    def start(self) -> None:
        """Make the pool serve the program's requests."""
        self._cp.cuda.set_pinned_memory_allocator(self._malloc)

    def stop(self) -> AllocatorTrace:
        """Make CuPy's default pool serve the requests again."""
        self._cp.cuda.set_pinned_memory_allocator(self._cp.get_default_pinned_memory_pool().malloc)
        return self.record()

    def record(self) -> AllocatorTrace:
        """All events so far."""
        return AllocatorTrace(
            provenance=self._provenance,
            device_id=0,
            allocator="CuPy's pool of pinned memory",
            first=BlockMap(self._provenance, 0, 0, 0, ()),
            events=self._log.events(),
        )

    def _lock(self, size: int) -> Any:
        """Allocate a buffer for the pool from the driver."""
        cuda = self._cp.cuda
        emit = self._emit
        memory = cuda.PinnedMemory(size, _PORTABLE)
        emit("segment_alloc", memory.ptr, size, 0)
        weakref.finalize(memory, emit, "segment_free", memory.ptr, size, 0).atexit = False
        return cuda.PinnedMemoryPointer(memory, 0)

    def _malloc(self, size: int) -> Any:
        pointer = self.pool.malloc(size)
        emit = self._emit
        address = pointer.ptr
        block_bytes = pointer.mem.size
        if block_bytes:
            emit("alloc", address, block_bytes, int(size))
            weakref.finalize(
                pointer.mem, emit, "free_completed", address, block_bytes, int(size)
            ).atexit = False
        return pointer


def _emit(log: EventLog, since_ns: int, action: Action, address: int, size: int, requested: int) -> None:
    log.time_ns = time.perf_counter_ns() - since_ns
    log.emit(action, address, size, requested, 0)
