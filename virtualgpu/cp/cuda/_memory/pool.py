"""CuPy's memory pool on a virtual device, and the functions that choose the allocator of new arrays.

The algorithm of the pool is in `virtualgpu.allocators.pool`. This module adds devices, hooks and streams.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

from virtualgpu.allocators.chunks import Chunk
from virtualgpu.allocators.pool import ChunkPool
from virtualgpu.allocators.sizes import compute_limit_bytes, round_size
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, Memory, MemoryPointer
from virtualgpu.cp.cuda._memory.sizes import convert_size
from virtualgpu.cp.cuda.memory_hook import get_memory_hooks
from virtualgpu.cp.cuda.stream import _BaseStream, get_current_stream
from virtualgpu.cuda_errors import CUDARuntimeError, OutOfMemoryError
from virtualgpu.model import machine as _machine
from virtualgpu.model.clock import PER_THREAD_QUEUE
from virtualgpu.model.machine import Machine, VirtualDevice
from virtualgpu.model.memory.host import check_host_memory
from virtualgpu.records.memory import Block, BlockMap, Segment

_OUT_OF_MEMORY_STATUS = 2
_MEMORY_MODULE_PREFIX = "virtualgpu.cp.cuda._memory."


def allocate_unpooled(size: int) -> MemoryPointer:
    """Allocate `size` bytes without a pool, by one call of ``cudaMalloc``."""
    return MemoryPointer(Memory(size), 0)


class PooledMemory(BaseMemory):
    """A chunk of a memory pool that the program uses. The chunk returns to its pool when it is freed or
    destroyed.
    """

    def __init__(self, chunk: Chunk[BaseMemory], pool: weakref.ref[SingleDeviceMemoryPool]) -> None:
        super().__init__(chunk.address, chunk.size, chunk.mem.owner)
        self.chunk = chunk
        self.pool = pool

    @property
    def identity(self) -> str:
        """Class name of the segment's memory object, such as ``"Memory"`` or ``"ManagedMemory"``."""
        memory_class = type(self.chunk.mem)
        is_own_class = (
            memory_class.__module__.startswith(_MEMORY_MODULE_PREFIX) and memory_class is not PooledMemory
        )
        return memory_class.__name__ if is_own_class else "<unknown>"

    def __getattr__(self, name: str) -> Any:
        # Prefetches and advice apply to a whole segment of managed memory, as in CuPy.
        if name in ("prefetch", "advise") and "chunk" in self.__dict__:
            return getattr(self.chunk.mem, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)

    def free(self) -> None:
        """Return the memory to the pool. A second call has no effect."""
        if not self.ptr:
            return
        ptr = self.ptr
        self.ptr = 0
        pool = self.pool()
        if pool is None:  # the segment returns to the device with its last block
            self._untrack(ptr)
            return
        hooks = tuple(get_memory_hooks().values())
        hook_details = {
            "device_id": self.device_id,
            "mem_size": self.size,
            "mem_ptr": ptr,
            "pmem_id": id(self),
        }
        for hook in hooks:
            hook.free_preprocess(**hook_details)
        try:
            self._untrack(ptr)
            # Not by a weak reference, since the garbage collector clears those of objects that it finalizes.
            pool._chunks.return_chunk(self.chunk)
        finally:
            for hook in hooks:
                hook.free_postprocess(**hook_details)

    def _untrack(self, ptr: int) -> None:
        stream_watch = self.owner.clock.watch
        deferral = self.owner.clock.deferral
        if deferral is not None:
            deferral.run_before_free()
        if stream_watch is not None:
            stream_watch.note_release(self.owner.id, ptr, self.size, self.chunk.arena.stream)
        self.owner.memory.untrack_allocation(ptr)

    def __del__(
        self, is_finalizing: Callable[[], bool] = sys.is_finalizing
    ) -> None:  # `sys` is no longer available then
        if getattr(self, "ptr", 0) and not is_finalizing():
            self.free()


class _MemoryLimit(TypedDict):
    size: int | None
    fraction: float | None


def read_environment_limit() -> _MemoryLimit:
    """Return the memory limit from ``CUPY_GPU_MEMORY_LIMIT``, in bytes or as a fraction of the device's
    memory.
    """
    limit_text = os.environ.get("CUPY_GPU_MEMORY_LIMIT")
    if limit_text is not None and limit_text.endswith("%"):
        return {"size": None, "fraction": float(limit_text[:-1]) / 100.0}
    return {"size": None if limit_text is None else int(limit_text), "fraction": None}


class SingleDeviceMemoryPool:
    """The memory pool of one device. All sizes are in bytes."""

    def __init__(
        self, allocator: Callable[[int], MemoryPointer] | None = None, owner: VirtualDevice | None = None
    ) -> None:
        self._owner = owner or _machine.current().current_device
        self._allocator = allocator
        self._chunks: ChunkPool[BaseMemory] = ChunkPool(self._release_unreachable_memory)
        self._self_reference = weakref.ref(self)
        self.set_limit(**read_environment_limit())

    def _release_unreachable_memory(self) -> None:
        """Run deferred work and collect reference cycles, because both can keep unused memory allocated."""
        deferral = self._owner.clock.deferral
        if deferral is not None:
            deferral.run_required()
        gc.collect()

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes, if possible from a free chunk of the current stream.

        Raises
        ------
        OutOfMemoryError
            If the limit or the device's memory is exceeded even after free blocks were released.
        """
        size = convert_size(size)
        rounded_size = round_size(size)
        hooks = tuple(get_memory_hooks().values())
        request_details = {"device_id": self._owner.id, "size": size, "mem_size": rounded_size}
        for hook in hooks:
            hook.malloc_preprocess(**request_details)
        result_details = {"mem_ptr": 0, "pmem_id": 0}
        try:
            pointer = self._malloc(size, rounded_size)
            result_details = {"mem_ptr": pointer.ptr, "pmem_id": id(pointer.mem)}
        finally:
            for hook in hooks:
                hook.malloc_postprocess(**request_details, **result_details)
        return pointer

    def _malloc(self, size: int, rounded_size: int) -> MemoryPointer:
        if rounded_size == 0:
            return MemoryPointer(Memory(0, self._owner), 0)
        arena_number = self._find_arena_number(get_current_stream(self._owner.id))
        chunks = self._chunks
        chunk = chunks.take_chunk(rounded_size, arena_number, self._try_allocate_segment)
        if chunk is None:
            raise OutOfMemoryError(rounded_size, chunks.total_bytes(), chunks.limit_bytes)
        memory = PooledMemory(chunk, self._self_reference)
        if self._owner.clock.watch is not None:
            machine = self._owner.machine
            thread_pool = getattr(getattr(machine.thread_state, "allocator", None), "__self__", None)
            is_private = thread_pool is not None and thread_pool is not machine.get_component(
                MemoryPool, machine=machine
            )
            self._owner.clock.watch.note_allocation(
                self._owner.id, memory.ptr, rounded_size, is_private=is_private
            )
        self._owner.memory.track_allocation(memory.ptr, size, f"{size:,}-byte allocation")
        return MemoryPointer(memory, 0)

    def _find_arena_number(self, stream: _BaseStream) -> int:
        """Return the number of a stream's arena, in which the pool keeps the stream's free chunks.

        It is the stream's handle; the per-thread default stream has one arena per thread.
        """
        handle = stream.ptr
        return self._owner.work_queue.schedule.select_queue(handle) if handle == PER_THREAD_QUEUE else handle

    def _try_allocate_segment(self, size: int) -> BaseMemory | None:
        hooks = tuple(get_memory_hooks().values())
        size = ctypes.c_ssize_t(size).value  # as in CuPy, sizes of 2**63 and more become negative
        hook_details = {"device_id": self._owner.id, "mem_size": size}
        for hook in hooks:
            hook.alloc_preprocess(**hook_details)
        memory: BaseMemory | None = None
        try:
            memory = (
                _check_pointer(self._allocator(size)).mem if self._allocator else Memory(size, self._owner)
            )
        except CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY_STATUS:
                raise
        finally:
            for hook in hooks:
                hook.alloc_postprocess(**hook_details, mem_ptr=memory.ptr if memory else 0)
        return memory

    def free_all_blocks(self, stream: _BaseStream | None = None) -> None:
        """Return the memory of unused segments to the device.

        If `stream` is given, only the segments of that stream are returned. A segment with a part in use
        stays.
        """
        self._chunks.free_all_blocks(None if stream is None else self._find_arena_number(stream))

    def free_all_free(self) -> None:
        """Deprecated name for the method `free_all_blocks`."""
        warnings.warn(
            "free_all_free is deprecated. Use free_all_blocks instead.", DeprecationWarning, stacklevel=2
        )
        self.free_all_blocks()

    def block_map(self) -> BlockMap:
        """Return the segments of the pool with all of their blocks, both used and free.

        CuPy's pools do not have this method.
        """
        with self._chunks.lock_pool():
            segments = tuple(
                Segment(
                    first_chunk.mem.ptr,
                    first_chunk.mem.size,
                    first_chunk.arena.stream,
                    tuple(map(self._make_block_record, first_chunk.iterate_to_end())),
                )
                for first_chunk in self._chunks.segments()
            )
        owner = self._owner
        return BlockMap(
            owner.info.as_virtual, owner.id, owner.clock.now_ns, self._chunks.limit_bytes, segments
        )

    def _make_block_record(self, chunk: Chunk[BaseMemory]) -> Block:
        allocation = None if chunk.is_free else self._owner.memory.find_allocation(chunk.address)
        if allocation is None:
            return Block(address=chunk.address, size_bytes=chunk.size, is_free=chunk.is_free)
        return Block(
            address=chunk.address,
            size_bytes=chunk.size,
            is_free=False,
            requested_bytes=allocation.size_bytes,
            label=allocation.label,
        )

    def n_free_blocks(self) -> int:
        """Return the number of free blocks in the pool."""
        return self._chunks.n_free_blocks()

    def used_bytes(self) -> int:
        """Return the total size of the blocks in use. The size of each block is rounded up to a multiple of
        512 bytes.
        """
        return self._chunks.used_bytes()

    def free_bytes(self) -> int:
        """Return the total size of the free blocks, in bytes."""
        return self._chunks.free_bytes()

    def total_bytes(self) -> int:
        """Return the number of bytes that the pool has allocated on the device."""
        return self._chunks.total_bytes()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit the memory that the pool can allocate, in bytes or as a fraction of the device's memory.

        A call without a limit, or with a limit of 0, removes the limit.
        """
        self._chunks.limit_bytes = convert_size(
            compute_limit_bytes(size, fraction, self._owner.memory.capacity_bytes)
        )

    def get_limit(self) -> int:
        """Return the memory limit of the pool in bytes, or 0 if there is no limit."""
        return self._chunks.limit_bytes


class MemoryPool:
    """A memory pool for all devices. Each method works on the pool of the current device.

    Parameters
    ----------
    allocator : callable, optional
        Function that allocates the pool's segments; ``cudaMalloc`` by default.
    """

    def __init__(
        self, allocator: Callable[[int], MemoryPointer] | None = None, machine: Machine | None = None
    ) -> None:
        self._allocator = allocator
        self._machine = machine
        self._pools: dict[VirtualDevice, SingleDeviceMemoryPool] = {}

    def device_pool(self, device_id: int | None = None) -> SingleDeviceMemoryPool:
        """Return the memory pool of one device. The default device is the current one."""
        machine = self._machine or _machine.current()
        device = machine.current_device if device_id is None else machine.device(device_id)
        with device.clock.lock:
            if device not in self._pools:
                self._pools[device] = SingleDeviceMemoryPool(self._allocator, device)
            return self._pools[device]

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes from the pool of the current device, like `SingleDeviceMemoryPool.malloc`."""
        return self.device_pool().malloc(size)

    def free_all_blocks(self, stream: _BaseStream | None = None) -> None:
        """Return the memory of unused segments to the current device."""
        self.device_pool().free_all_blocks(stream)

    def free_all_free(self) -> None:
        """Deprecated name for the method `free_all_blocks`."""
        self.device_pool().free_all_free()

    def block_map(self) -> BlockMap:
        """Return the segments of the current device's pool with all of their blocks."""
        return self.device_pool().block_map()

    def n_free_blocks(self) -> int:
        return self.device_pool().n_free_blocks()

    def used_bytes(self) -> int:
        return self.device_pool().used_bytes()

    def free_bytes(self) -> int:
        return self.device_pool().free_bytes()

    def total_bytes(self) -> int:
        return self.device_pool().total_bytes()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self.device_pool().set_limit(size, fraction)

    def get_limit(self) -> int:
        return self.device_pool().get_limit()


def get_default_pool() -> MemoryPool:
    """Return the default memory pool. New arrays use this pool unless the allocator was changed."""
    machine = _machine.current()
    return machine.get_component(MemoryPool, machine=machine)


def alloc(size: int) -> MemoryPointer:
    """Allocate `size` bytes with the current allocator, which is by default the default memory pool."""
    return _check_pointer(get_allocator()(size))


def _check_pointer(pointer: Any) -> MemoryPointer:
    """Check that an allocator of the program has returned a pointer or None, and return this value.

    Raises
    ------
    TypeError
        Unless it is a pointer or None.
    """
    if not isinstance(pointer, MemoryPointer | None):
        raise TypeError(
            f"Cannot convert {type(pointer).__name__} to cupy.cuda.memory.MemoryPointer: an allocator must "
            "return the result of cp.cuda.alloc or of the malloc of a pool."
        )
    return pointer  # type: ignore[return-value]  # None fails where the pointer is used, as in CuPy


def check_free_memory(size: int) -> None:
    """Check that the device and the host have enough free memory for an array that NumPy will compute.

    Raises
    ------
    OutOfMemoryError
        If one of them does not have enough.
    """
    pool = get_default_pool()
    free_bytes = _machine.current().current_device.memory.free_bytes
    pool_limit_bytes = pool.get_limit()
    if size > free_bytes + pool.free_bytes() or 0 < pool_limit_bytes < pool.used_bytes() + size:
        alloc(size)  # raises, unless the program's allocator has other rules
    check_host_memory(size)


def get_allocator() -> Callable[[int], Any]:
    """Return the function that allocates memory for new arrays."""
    machine = _machine.current()
    thread_allocator: Callable[[int], Any] | None = getattr(machine.thread_state, "allocator", None)
    return thread_allocator or machine.allocator or get_default_pool().malloc


def set_allocator(allocator: Callable[[int], Any] | None = None) -> None:
    """Set the function that allocates memory for new arrays. With None, memory is allocated with
    ``cudaMalloc``.
    """
    machine = _machine.current()
    if getattr(machine.thread_state, "allocator", None) is not None:
        raise ValueError("Can't change the global allocator inside `using_allocator` context manager")
    machine.allocator = allocator or allocate_unpooled


@contextmanager
def using_allocator(allocator: Callable[[int], Any] | None = None) -> Iterator[None]:
    """Use another memory allocator in this thread within a ``with`` block."""
    thread = _machine.current().thread_state
    previous_allocator = getattr(thread, "allocator", None)
    thread.allocator = allocator or allocate_unpooled
    try:
        yield
    finally:
        thread.allocator = previous_allocator
