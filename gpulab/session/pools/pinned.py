"""Recording of pinned (page-locked) host memory, by a pool that replaces CuPy's pool.

CuPy's pool of pinned memory calls no hooks. The pool of this module follows the same rules: buffer sizes are
powers of two from 512 bytes, and free buffers are kept.
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

_PORTABLE_FLAG = 1  # cudaHostAllocPortable, as CuPy's own pool asks for it


class PinnedRecorder:
    """A recorder of pinned memory allocations from `start` to `stop`.

    If a buffer is in use at `stop`, its later release is still recorded.
    """

    def __init__(self) -> None:
        self._cp = current.cp()
        provenance = current.backend().provenance
        log_title = f"CuPy's pinned memory for {provenance.device}"
        is_measured = provenance.source == "measured"
        self._provenance = (
            replace(provenance, device="this computer", detail=log_title) if is_measured else provenance
        )
        self._event_log = EventLog()
        # What waits for a buffer's end must not keep this object, and with it the pool, alive.
        self._emit_event = partial(_record_event, self._event_log, time.perf_counter_ns())
        self.pool: Any = self._cp.cuda.PinnedMemoryPool(self._allocate_page_locked)

    def start(self) -> None:
        """Use the memory pool of the recorder for the program's pinned memory."""
        self._cp.cuda.set_pinned_memory_allocator(self._malloc)

    def stop(self) -> AllocatorTrace:
        """Use the default memory pool of CuPy for pinned memory again."""
        self._cp.cuda.set_pinned_memory_allocator(self._cp.get_default_pinned_memory_pool().malloc)
        return self.record()

    def record(self) -> AllocatorTrace:
        """Return all recorded events of pinned memory so far."""
        return AllocatorTrace(
            provenance=self._provenance,
            device_id=0,
            allocator="CuPy's pool of pinned memory",
            first=BlockMap(self._provenance, 0, 0, 0, ()),
            events=self._event_log.events(),
        )

    def _allocate_page_locked(self, size: int) -> Any:
        """Allocate a pinned buffer from the driver, for the pool."""
        cuda = self._cp.cuda
        emit_event = self._emit_event
        pinned_memory = cuda.PinnedMemory(size, _PORTABLE_FLAG)
        emit_event("segment_alloc", pinned_memory.ptr, size, 0)
        weakref.finalize(pinned_memory, emit_event, "segment_free", pinned_memory.ptr, size, 0).atexit = False
        return cuda.PinnedMemoryPointer(pinned_memory, 0)

    def _malloc(self, size: int) -> Any:
        pointer = self.pool.malloc(size)
        emit_event = self._emit_event
        address = pointer.ptr
        block_bytes = pointer.mem.size
        if block_bytes:
            emit_event("alloc", address, block_bytes, int(size))
            weakref.finalize(
                pointer.mem, emit_event, "free_completed", address, block_bytes, int(size)
            ).atexit = False
        return pointer


def _record_event(
    event_log: EventLog, since_ns: int, action: Action, address: int, size: int, requested: int
) -> None:
    event_log.time_ns = time.perf_counter_ns() - since_ns
    event_log.append_event(action, address, size, requested, 0)
