"""CuPy's stream-ordered allocation: `MemoryAsync` and `MemoryAsyncPool`."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence

from virtualgpu.allocators.sizes import compute_limit_bytes, round_size
from virtualgpu.cp.cuda._memory.driver_pools import (
    allocate_in_stream_order,
    free_in_stream_order,
    get_driver_pools,
)
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, MemoryPointer
from virtualgpu.cp.cuda._memory.pool import read_environment_limit
from virtualgpu.cp.cuda._memory.sizes import convert_size
from virtualgpu.cp.cuda.stream import _BaseStream, get_current_stream
from virtualgpu.cuda_errors import CUDARuntimeError, OutOfMemoryError
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.ordered import RELEASE_THRESHOLD, RESERVED_BYTES, USED_BYTES, OrderedPool

NO_LIMIT = 2**64 - 1
_OUT_OF_MEMORY_STATUS = 2


class MemoryAsync(BaseMemory):
    """Memory from ``cudaMallocAsync``. Destroying the object frees the memory in the stream that allocated
    it.

    Notes
    -----
    A freed block is available to its own stream at once, and to other streams when the work before the free
    is done. Events after the free, for which another stream has waited, are not considered.
    """

    def __init__(self, size: int, stream: _BaseStream) -> None:
        device = _machine.current().current_device
        size = convert_size(size)
        super().__init__(allocate_in_stream_order(size, stream), size, device)
        self.stream_ref = weakref.ref(stream)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            free_in_stream_order(
                self.ptr, self.stream_ref() or get_current_stream(self.device_id), self.owner
            )
            self.ptr = 0


def malloc_async(size: int) -> MemoryPointer:
    """Allocate `size` bytes with ``cudaMallocAsync`` in the current stream."""
    return MemoryPointer(MemoryAsync(size, get_current_stream()), 0)


class MemoryAsyncPool:
    """A memory pool that allocates from the driver's pools in stream order. The pool does not call memory
    hooks.

    Parameters
    ----------
    pool_handles : str, int or sequence of them
        ``"current"``, ``"default"``, or the handle of a pool; a sequence has one item per device.

    Raises
    ------
    ValueError
        For any other value.

    Notes
    -----
    The virtual pool grows by 32 MiB. As on an H200, it releases memory above its limit when the host waits
    for the device. The limit is soft: it is the driver's release threshold.

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
            pool_handle = pool_handles
            if isinstance(pool_handle, Sequence) and not isinstance(pool_handle, str):
                pool_handle = pool_handle[device.id]
            self._pools.append(_select_pool(pool_handle, device))
            self._set_device_limit(device, **read_environment_limit())

    def _get_current_pool(self) -> OrderedPool:
        return get_driver_pools().find_pool(self._pools[_machine.current().current_device_id])

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes, rounded up to a multiple of 512, in the current stream.

        Raises
        ------
        OutOfMemoryError
            Where the limit or the device's memory is exceeded.
        """
        size = convert_size(size)
        rounded_size = round_size(size)
        total_size = self.total_bytes()
        pool_limit_bytes = 0
        if total_size - self.used_bytes() < rounded_size:
            pool_limit_bytes = self.get_limit()
            if max(pool_limit_bytes, total_size) < total_size + rounded_size:
                raise OutOfMemoryError(size, total_size, pool_limit_bytes)
        try:
            return malloc_async(rounded_size)
        except CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY_STATUS:
                raise
        get_current_stream().synchronize()
        try:
            return malloc_async(rounded_size)
        except CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY_STATUS:
                raise
        raise OutOfMemoryError(size, total_size, pool_limit_bytes)

    def free_all_blocks(self, stream: _BaseStream | None = None) -> None:
        """Wait until the work of a stream is done, and then release unused memory to the device. The default
        stream is the current one.
        """
        (stream or get_current_stream()).synchronize()
        self._get_current_pool().trim(0)

    def n_free_blocks(self) -> int:
        """Raise an error, because CuPy does not support this method either.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError("This function is not supported in MemoryAsyncPool")

    def used_bytes(self) -> int:
        """Return the total size of the blocks in use, in bytes."""
        return self._get_current_pool().get_attribute(USED_BYTES)

    def free_bytes(self) -> int:
        """Return the number of bytes in the pool that are not in use."""
        return self.total_bytes() - self.used_bytes()

    def total_bytes(self) -> int:
        """Return the number of bytes that the pool has allocated on the device."""
        return self._get_current_pool().get_attribute(RESERVED_BYTES)

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit the memory of the current device's pool, in bytes or as a fraction of the device's memory.

        A call without a limit, or with a limit of 0, removes the limit.
        """
        self._set_device_limit(_machine.current().current_device, size, fraction)

    def _set_device_limit(self, device: VirtualDevice, size: int | None, fraction: float | None) -> None:
        pool_limit_bytes = compute_limit_bytes(size, fraction, device.memory.capacity_bytes) or NO_LIMIT
        get_driver_pools().find_pool(self._pools[device.id]).set_attribute(
            RELEASE_THRESHOLD, pool_limit_bytes
        )

    def get_limit(self) -> int:
        """Return the memory limit of the pool in bytes, or 2**64 - 1 if there is no limit."""
        return self._get_current_pool().get_attribute(RELEASE_THRESHOLD)


def _select_pool(handle: str | int, device: VirtualDevice) -> int:
    """Make a pool the device's current one and return its handle."""
    pools = get_driver_pools()
    if handle == "default":
        pool_handle = pools.get_default_pool(device).handle
    elif handle == "current":
        pool_handle = pools.get_current_pool(device).handle
    elif handle == "create":
        raise NotImplementedError("cudaMemPoolCreate is not yet supported")
    elif isinstance(handle, int):
        pool_handle = handle
    else:
        raise ValueError(
            "handle must be 'default' (for the device's default pool), 'current' (for the device's current "
            "pool), or int (a pointer to cudaMemPool_t)"
        )
    pools.set_current_pool(device, pool_handle)
    return pool_handle
