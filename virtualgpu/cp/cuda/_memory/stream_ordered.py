"""Stream-ordered allocation as CuPy shows it: `MemoryAsync` and `MemoryAsyncPool`."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence

from virtualgpu.allocators.sizes import limit_bytes, round_size
from virtualgpu.cp.cuda._memory.driver_pools import driver_pools, give_ordered, take_ordered
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, MemoryPointer
from virtualgpu.cp.cuda._memory.pool import limit_of_environment
from virtualgpu.cp.cuda._memory.sizes import size_t
from virtualgpu.cp.cuda.stream import _BaseStream, get_current_stream
from virtualgpu.cuda_errors import CUDARuntimeError, OutOfMemoryError
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.ordered import RELEASE_THRESHOLD, RESERVED, USED, OrderedPool

NO_LIMIT = 2**64 - 1
_OUT_OF_MEMORY = 2


class MemoryAsync(BaseMemory):
    """Memory from ``cudaMallocAsync``, freed with the object in the stream that it was allocated for.

    Notes
    -----
    A block that is freed serves its own stream again at once, other streams when the work before the free
    is done. That another stream has waited for an event behind the free is not looked at.
    """

    def __init__(self, size: int, stream: _BaseStream) -> None:
        device = _machine.current().current_device
        size = size_t(size)
        super().__init__(take_ordered(size, stream), size, device)
        self.stream_ref = weakref.ref(stream)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            give_ordered(self.ptr, self.stream_ref() or get_current_stream(self.device_id), self.owner)
            self.ptr = 0


def malloc_async(size: int) -> MemoryPointer:
    """Allocate with ``cudaMallocAsync``, in the order of the current stream."""
    return MemoryPointer(MemoryAsync(size, get_current_stream()), 0)


class MemoryAsyncPool:
    """CuPy's face of the driver's pools, one of each device; memory hooks do not see it.

    Parameters
    ----------
    pool_handles : str, int or sequence of them
        ``"current"``, ``"default"``, or the handle of a pool; a sequence has one for each device.

    Raises
    ------
    ValueError
        For anything else.

    Notes
    -----
    The virtual pool grows by 32 MiB and, as on an H200, gives memory back when the host waits for the
    device, as far as its limit allows. The limit is soft: it is the driver's release threshold.

    Examples
    --------
    >>> pool = cp.cuda.MemoryAsyncPool()
    >>> cp.cuda.set_allocator(pool.malloc)
    """

    memoryAsyncHasStat = True  # noqa: N815 - drivers before 11.3 count nothing

    def __init__(self, pool_handles: str | int | Sequence[str | int] = "current") -> None:
        machine = _machine.current()
        self._pools: list[int] = []
        for device in machine.devices:
            handle = pool_handles
            if isinstance(handle, Sequence) and not isinstance(handle, str):
                handle = handle[device.id]
            self._pools.append(_chosen(handle, device))
            self._limit(device, **limit_of_environment())

    def _pool(self) -> OrderedPool:
        return driver_pools().get(self._pools[_machine.current().current_device_id])

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes, rounded up to 512, for the current stream.

        Raises
        ------
        OutOfMemoryError
            Where the limit or the device's memory is exceeded.
        """
        size = size_t(size)
        rounded = round_size(size)
        total = self.total_bytes()
        limit = 0
        if total - self.used_bytes() < rounded:
            limit = self.get_limit()
            if max(limit, total) < total + rounded:
                raise OutOfMemoryError(size, total, limit)
        try:
            return malloc_async(rounded)
        except CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
        get_current_stream().synchronize()
        try:
            return malloc_async(rounded)
        except CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
        raise OutOfMemoryError(size, total, limit)

    def free_all_blocks(self, stream: _BaseStream | None = None) -> None:
        """Wait for a stream (the current one by default), then give the device what is not in use."""
        (stream or get_current_stream()).synchronize()
        self._pool().trim(0)

    def n_free_blocks(self) -> int:
        """Not there in CuPy either.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError("This function is not supported in MemoryAsyncPool")

    def used_bytes(self) -> int:
        """Bytes of the blocks in use."""
        return self._pool().attribute(USED)

    def free_bytes(self) -> int:
        """Bytes that the pool holds but nobody uses."""
        return self.total_bytes() - self.used_bytes()

    def total_bytes(self) -> int:
        """Bytes that the pool has taken from the device."""
        return self._pool().attribute(RESERVED)

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit what the current device's pool may take: in bytes, or as part of the device's memory.

        Neither argument, or 0, removes the limit.
        """
        self._limit(_machine.current().current_device, size, fraction)

    def _limit(self, device: VirtualDevice, size: int | None, fraction: float | None) -> None:
        limit = limit_bytes(size, fraction, device.memory.capacity_bytes) or NO_LIMIT
        driver_pools().get(self._pools[device.id]).set_attribute(RELEASE_THRESHOLD, limit)

    def get_limit(self) -> int:
        """The limit in bytes, 2**64 - 1 for none."""
        return self._pool().attribute(RELEASE_THRESHOLD)


def _chosen(handle: str | int, device: VirtualDevice) -> int:
    """Make a pool the device's current one and return its handle."""
    pools = driver_pools()
    if handle == "default":
        pool = pools.default(device).handle
    elif handle == "current":
        pool = pools.current(device).handle
    elif handle == "create":
        raise NotImplementedError("cudaMemPoolCreate is not yet supported")
    elif isinstance(handle, int):
        pool = handle
    else:
        raise ValueError(
            "handle must be 'default' (for the device's default pool), 'current' (for the device's current "
            "pool), or int (a pointer to cudaMemPool_t)"
        )
    pools.choose(device, pool)
    return pool
