"""``gl.host_memory``: page-locked host memory, which CuPy's pool of it does not count."""

from __future__ import annotations

import time
import weakref
from functools import partial
from types import TracebackType
from typing import Any, Self

from gpulab import session
from virtualgpu.allocators.log import EventLog
from virtualgpu.allocators.statistics import host_statistics
from virtualgpu.records import Provenance
from virtualgpu.records.memory import Action, AllocatorStatistics, AllocatorTrace, BlockMap

_PORTABLE = 1  # cudaHostAllocPortable, as CuPy's own pool asks for it


def host_memory() -> HostMemoryReport:
    """Count the page-locked (pinned) host memory of a ``with`` block: now, at most, and in all.

    Returns
    -------
    HostMemoryReport
        Its text is one sentence; `statistics` has the figures and `summary` a table of them, both as
        PyTorch's ``torch.cuda.host_memory_stats`` names them. ``.record`` holds the data
        (`virtualgpu.records.memory.AllocatorTrace`).

    Notes
    -----
    CuPy's pool of page-locked memory calls no hooks. So the block allocates from a pool of its own, with the
    rules of CuPy's: buffers of powers of two from 512 bytes up, kept when they are free. Afterwards CuPy's
    default pool serves again, and buffers still in use are counted on.

    Examples
    --------
    >>> with gl.host_memory() as h:
    ...     x = gl.cupyx.empty_pinned(1000)
    >>> h.statistics().nested()["active_bytes"]["current"]
    8192
    >>> print(h.summary())
    """
    return HostMemoryReport()


class HostMemoryReport:
    """What was page-locked, given out and taken back since its ``with`` block began."""

    def __init__(self) -> None:
        self._cp = session.cp()
        info = session.backend().device_info()
        is_real = session.which_device().kind == "cuda"
        self._provenance = (
            Provenance("measured", "this computer", f"CuPy's pinned memory for {info.name}")
            if is_real
            else info.as_virtual
        )
        self._log = EventLog()
        # What waits for a buffer's end must not keep this object, and with it the pool, alive.
        self._emit = partial(_emit, self._log, time.perf_counter_ns())
        self._pool: Any = self._cp.cuda.PinnedMemoryPool(self._lock)

    def __enter__(self) -> Self:
        self._cp.cuda.set_pinned_memory_allocator(self._malloc)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cp.cuda.set_pinned_memory_allocator(self._cp.get_default_pinned_memory_pool().malloc)

    def _lock(self, size: int) -> Any:
        """A buffer for the pool, from the driver."""
        cuda, emit = self._cp.cuda, self._emit
        memory = cuda.PinnedMemory(size, _PORTABLE)
        emit("segment_alloc", memory.ptr, size, 0)
        weakref.finalize(memory, emit, "segment_free", memory.ptr, size, 0).atexit = False
        return cuda.PinnedMemoryPointer(memory, 0)

    def _malloc(self, size: int) -> Any:
        pointer, emit = self._pool.malloc(size), self._emit
        address, taken = pointer.ptr, pointer.mem.size
        if taken:
            emit("alloc", address, taken, int(size))
            weakref.finalize(pointer.mem, emit, "free_completed", address, taken, int(size)).atexit = False
        return pointer

    def free_all_blocks(self) -> None:
        """Unlock the buffers of the block's pool that nobody uses."""
        self._pool.free_all_blocks()

    @property
    def record(self) -> AllocatorTrace:
        """All events so far."""
        return AllocatorTrace(
            provenance=self._provenance,
            device_id=0,
            allocator="CuPy's pool of pinned memory",
            first=BlockMap(self._provenance, 0, 0, 0, ()),
            events=self._log.events(),
        )

    def statistics(self) -> AllocatorStatistics:
        """Figures so far: ``.nested()``, ``.flat()``, ``.summary()``."""
        return host_statistics(self.record)

    def summary(self) -> str:
        """The figures so far as a table."""
        return self.statistics().summary()

    def __repr__(self) -> str:
        return repr(self.statistics())


def _emit(log: EventLog, since_ns: int, action: Action, address: int, size: int, requested: int) -> None:
    log.time_ns = time.perf_counter_ns() - since_ns
    log.emit(action, address, size, requested, 0)
