"""CuPy's memory pool and the choice of allocator.

The pool follows CuPy's documented rules: requests are rounded up to 512 bytes; each stream has its
own arena of free chunks; the smallest free chunk that fits is taken and, if larger, split; a freed
chunk merges with free neighbours of its segment; only whole segments go back to the device.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

from virtualgpu.cp.cuda._memory.pointer import BaseMemory, Memory, MemoryPointer
from virtualgpu.cp.cuda._memory.sizes import size_t
from virtualgpu.cp.cuda.memory_hook import get_memory_hooks
from virtualgpu.cp.cuda.stream import _BaseStream, get_current_stream
from virtualgpu.cuda_errors import CUDARuntimeError, OutOfMemoryError
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import Machine, VirtualDevice
from virtualgpu.model.memory.host import check_host_memory
from virtualgpu.records.memory import Block, BlockMap, Segment

ALLOCATION_UNIT_BYTES = 512
_OUT_OF_MEMORY = 2
_OWN_MODULES = "virtualgpu.cp.cuda._memory."


class _Chunk:
    """A piece of a segment; `prev` and `next` are its neighbours in address order.

    A segment's first chunk stays the same object: splitting and joining keep the lower one.
    """

    __slots__ = ("arena", "is_free", "mem", "next", "offset", "prev", "size")

    def __init__(self, mem: BaseMemory, offset: int, size: int, arena: _Arena) -> None:
        self.mem = mem
        self.offset = offset
        self.size = size
        self.arena = arena
        self.is_free = False
        self.prev: _Chunk | None = None
        self.next: _Chunk | None = None

    @property
    def address(self) -> int:
        return self.mem.ptr + self.offset

    def and_after(self) -> Iterator[_Chunk]:
        """The chunk and those behind it in the segment."""
        chunk: _Chunk | None = self
        while chunk is not None:
            yield chunk
            chunk = chunk.next

    def split(self, size: int) -> _Chunk | None:
        """Keep the first `size` bytes and return the rest, None if there is none."""
        if self.size == size:
            return None
        rest = _Chunk(self.mem, self.offset + size, self.size - size, self.arena)
        rest.prev, rest.next = self, self.next
        if self.next is not None:
            self.next.prev = rest
        self.next = rest
        self.size = size
        return rest

    def absorb_next(self) -> None:
        """Join with the next chunk of the segment."""
        gone = self.next
        assert gone is not None
        self.size += gone.size
        self.next = gone.next
        if gone.next is not None:
            gone.next.prev = self


class _Arena:
    """Free chunks of the stream with handle `stream`, sorted by size and then by address."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.keys: list[tuple[int, int]] = []
        self.chunks: dict[int, _Chunk] = {}

    def add(self, chunk: _Chunk) -> None:
        chunk.is_free = True
        insort(self.keys, (chunk.size, chunk.address))
        self.chunks[chunk.address] = chunk

    def remove(self, chunk: _Chunk) -> None:
        chunk.is_free = False
        del self.keys[bisect_left(self.keys, (chunk.size, chunk.address))]
        del self.chunks[chunk.address]

    def take(self, size: int) -> _Chunk | None:
        """The smallest free chunk of at least `size` bytes, cut to that size."""
        i = bisect_left(self.keys, (size, 0))
        if i == len(self.keys):
            return None
        chunk = self.chunks[self.keys[i][1]]
        self.remove(chunk)
        rest = chunk.split(size)
        if rest is not None:
            self.add(rest)
        return chunk

    def give(self, chunk: _Chunk) -> None:
        """Add a chunk after joining it with its free neighbours."""
        while chunk.next is not None and chunk.next.is_free:
            self.remove(chunk.next)
            chunk.absorb_next()
        while chunk.prev is not None and chunk.prev.is_free:
            chunk = chunk.prev
            self.remove(chunk)
            chunk.absorb_next()
        self.add(chunk)

    def release_whole_segments(self) -> list[_Chunk]:
        """Drop the chunks that are whole segments, and return them."""
        released = [c for c in self.chunks.values() if c.prev is None and c.next is None]
        for chunk in released:
            self.remove(chunk)
        return released


def plain_malloc(size: int) -> MemoryPointer:
    """Allocate without a pool: one ``cudaMalloc``."""
    return MemoryPointer(Memory(size), 0)


class PooledMemory(BaseMemory):
    """A pool's chunk in use; it goes back to the pool with the object or by `free`."""

    def __init__(self, chunk: _Chunk, pool: SingleDeviceMemoryPool) -> None:
        super().__init__(chunk.address, chunk.size, chunk.mem.owner)
        self.chunk = chunk
        self.pool = pool

    @property
    def identity(self) -> str:
        """What the chunk was cut from: ``"Memory"``, ``"ManagedMemory"`` and so on."""
        kind = type(self.chunk.mem)
        return kind.__name__ if kind.__module__.startswith(_OWN_MODULES) else "<unknown>"

    def __getattr__(self, name: str) -> Any:
        # Managed memory is prefetched and advised about as a whole segment, as in CuPy.
        if name in ("prefetch", "advise") and "chunk" in self.__dict__:
            return getattr(self.chunk.mem, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)

    def free(self) -> None:
        """Give the memory back to the pool; a second call does nothing."""
        if not self.ptr:
            return
        ptr, self.ptr = self.ptr, 0
        hooks = tuple(get_memory_hooks().values())
        told = {"device_id": self.device_id, "mem_size": self.size, "mem_ptr": ptr, "pmem_id": id(self)}
        for hook in hooks:
            hook.free_preprocess(**told)
        try:
            watch = self.owner.clock.watch
            if watch is not None:
                watch.released(self.owner.id, ptr, self.size, self.chunk.arena.stream)
            self.owner.memory.untrack(ptr)
            # No weak reference: the garbage collector clears those of objects it is about to finalise.
            self.pool._give_back(self.chunk)
        finally:
            for hook in hooks:
                hook.free_postprocess(**told)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.free()


def round_size(size: int) -> int:
    """`size` rounded up to the pool's unit of 512 bytes."""
    return -(-size // ALLOCATION_UNIT_BYTES) * ALLOCATION_UNIT_BYTES


class _Limit(TypedDict):
    size: int | None
    fraction: float | None


def limit_of_environment() -> _Limit:
    """What ``CUPY_GPU_MEMORY_LIMIT`` says: bytes, or a percentage of the device's memory."""
    limit = os.environ.get("CUPY_GPU_MEMORY_LIMIT")
    if limit and limit.endswith("%"):
        return {"size": None, "fraction": float(limit[:-1]) / 100.0}
    return {"size": int(limit) if limit else None, "fraction": None}


def limit_bytes(size: int | None, fraction: float | None, device: VirtualDevice) -> int:
    """A pool's limit in bytes, given so or as part of the device's memory; 0 for none.

    Raises
    ------
    ValueError
        For both at a time, a negative size, or a fraction outside 0 to 1.
    """
    if size is None:
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"memory limit fraction out of range: {fraction}")
        size = int((fraction or 0) * device.memory.capacity_bytes)
    elif fraction is not None:
        raise ValueError("size and fraction cannot be specified at one time")
    if size < 0:
        raise ValueError(f"memory limit size out of range: {size}")
    return int(size)


class SingleDeviceMemoryPool:
    """The pool of one device. Sizes are in bytes."""

    def __init__(
        self, allocator: Callable[[int], MemoryPointer] | None = None, owner: VirtualDevice | None = None
    ) -> None:
        self._owner = owner or _machine.current().current_device
        self._allocator = allocator
        self._arenas: dict[int, _Arena] = {}
        self._used = 0
        self._total = 0
        self._limit = 0
        self._pending: list[_Chunk] = []
        # An array may die together with its chunk, in a cycle with the frames of an exception. The
        # chunk comes back to the pool then, and its segment must not be finalised with the rest.
        self._segments: set[_Chunk] = set()  # their first chunks
        self._mutex = threading.RLock()
        self._changing = False
        self.set_limit(**limit_of_environment())

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate, from a free chunk of the current stream's arena if one fits.

        Raises
        ------
        OutOfMemoryError
            When the limit or the device's memory is exceeded even after free blocks were released.
        """
        size = size_t(size)
        rounded = round_size(size)
        hooks = tuple(get_memory_hooks().values())
        told = {"device_id": self._owner.id, "size": size, "mem_size": rounded}
        for hook in hooks:
            hook.malloc_preprocess(**told)
        found = {"mem_ptr": 0, "pmem_id": 0}
        try:
            pointer = self._malloc(size, rounded)
            found = {"mem_ptr": pointer.ptr, "pmem_id": id(pointer.mem)}
        finally:
            for hook in hooks:
                hook.malloc_postprocess(**told, **found)
        return pointer

    def _malloc(self, size: int, rounded: int) -> MemoryPointer:
        if rounded == 0:
            return MemoryPointer(Memory(0, self._owner), 0)
        handle = get_current_stream(self._owner.id).ptr
        with self._alone() as alone:
            arena = self._arenas.get(handle)
            if arena is None:
                arena = self._arenas[handle] = _Arena(handle)
            chunk = arena.take(rounded) if alone else None
            self._used += rounded if chunk else 0
        if chunk is None:
            chunk = _Chunk(self._new_segment(rounded), 0, rounded, arena)
            with self._mutex:
                self._segments.add(chunk)
                self._used += rounded
        memory = PooledMemory(chunk, self)
        if self._owner.clock.watch is not None:
            machine = self._owner.machine
            used = getattr(getattr(machine.thread, "allocator", None), "__self__", None)
            private = used is not None and used is not machine.own(MemoryPool, machine=machine)
            self._owner.clock.watch.allocated(self._owner.id, memory.ptr, rounded, private=private)
        self._owner.memory.track(memory.ptr, size, f"{size:,}-byte allocation")
        return MemoryPointer(memory, 0)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Hold the pool; True if its chunks may be changed.

        False within another call of the same thread: the garbage collector may run at any place of it and
        free an array, whose hooks may call the pool.
        """
        with self._mutex:
            alone = not self._changing
            if alone:
                self._take_in_pending()
            self._changing = True
            try:
                yield alone
            finally:
                self._changing = not alone

    def _give_back(self, chunk: _Chunk) -> None:
        if not chunk.mem.ptr:
            return  # the whole pool is garbage, and its segment happened to be finalised first
        self._pending.append(chunk)
        if self._mutex.acquire(blocking=False):
            try:
                if not self._changing:
                    self._take_in_pending()
            finally:
                self._mutex.release()

    def _take_in_pending(self) -> None:
        self._changing = True
        try:
            while self._pending:
                chunk = self._pending.pop()
                self._used -= chunk.size
                chunk.arena.give(chunk)
        finally:
            self._changing = False

    def _new_segment(self, size: int) -> BaseMemory:
        """Memory from the device, counted in the total; free blocks in the way go back to it."""
        if 0 < self._limit < size or not any(self._reserve(size) for _ in self._make_room()):
            raise OutOfMemoryError(size, self._total, self._limit)
        memory = None
        try:
            for _ in self._make_room():
                memory = self._try_allocate(size)
                if memory is not None:
                    return memory
        finally:
            if memory is None:
                with self._mutex:
                    self._total -= size
        raise OutOfMemoryError(size, self._total, self._limit)

    def _make_room(self) -> Iterator[None]:
        """Three states to try in: as it is; without free blocks; without those that only cycles hold."""
        yield
        self.free_all_blocks()
        yield
        gc.collect()
        self.free_all_blocks()
        yield

    def _reserve(self, size: int) -> bool:
        with self._mutex:
            fits = not self._limit or self._total + size <= self._limit
            self._total += size if fits else 0
        return fits

    def _try_allocate(self, size: int) -> BaseMemory | None:
        hooks = tuple(get_memory_hooks().values())
        told = {"device_id": self._owner.id, "mem_size": size}
        for hook in hooks:
            hook.alloc_preprocess(**told)
        memory: BaseMemory | None = None
        try:
            memory = self._allocator(size).mem if self._allocator else Memory(size, self._owner)
        except CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
        finally:
            for hook in hooks:
                hook.alloc_postprocess(**told, mem_ptr=memory.ptr if memory else 0)
        return memory

    def free_all_blocks(self, stream: _BaseStream | None = None) -> None:
        """Give free blocks that are whole segments back to the device (of one stream's arena only
        if `stream` is given). A segment with a part in use stays."""
        with self._alone() as alone:
            arenas = self._arenas.values() if stream is None else [self._arenas.get(stream.ptr)]
            for arena in list(arenas) if alone else ():
                for chunk in arena.release_whole_segments() if arena else ():
                    self._total -= chunk.size
                    self._segments.discard(chunk)

    def free_all_free(self) -> None:
        """Deprecated; see `free_all_blocks`."""
        warnings.warn(
            "free_all_free is deprecated. Use free_all_blocks instead.", DeprecationWarning, stacklevel=2
        )
        self.free_all_blocks()

    def block_map(self) -> BlockMap:
        """The pool's segments and their blocks, in use and free, as they are now.

        CuPy's pools cannot say this; with them a `MemoryHook` has to keep the books.
        """
        with self._alone():
            segments = tuple(
                Segment(
                    first.mem.ptr,
                    first.mem.size,
                    first.arena.stream,
                    tuple(map(self._block, first.and_after())),
                )
                for first in sorted(self._segments, key=lambda chunk: chunk.address)
            )
        owner = self._owner
        return BlockMap(owner.info.as_virtual, owner.id, owner.clock.now_ns, self._limit, segments)

    def _block(self, chunk: _Chunk) -> Block:
        owned = None if chunk.is_free else self._owner.memory.allocation(chunk.address)
        if owned is None:
            return Block(chunk.address, chunk.size, chunk.is_free)
        return Block(chunk.address, chunk.size, False, owned.size_bytes, owned.label)

    def n_free_blocks(self) -> int:
        """Number of free blocks over all arenas."""
        with self._alone():
            return sum(len(arena.keys) for arena in list(self._arenas.values()))

    def used_bytes(self) -> int:
        """Bytes of all blocks in use, each rounded up to 512."""
        with self._alone():
            return self._used - sum(chunk.size for chunk in self._pending)

    def free_bytes(self) -> int:
        """Bytes the pool holds but nobody uses."""
        return self._total - self.used_bytes()

    def total_bytes(self) -> int:
        """Bytes the pool has taken from the device."""
        return self._total

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit what the pool may take from the device: in bytes, or as part of its memory.

        Neither argument, or 0, removes the limit.
        """
        self._limit = limit_bytes(size, fraction, self._owner)

    def get_limit(self) -> int:
        """The limit in bytes, 0 for none."""
        return self._limit


class MemoryPool:
    """A memory pool for all devices; every method works on the current device's part.

    Parameters
    ----------
    allocator : callable, optional
        What the pool takes its segments from; ``cudaMalloc`` by default.
    """

    def __init__(
        self, allocator: Callable[[int], MemoryPointer] | None = None, machine: Machine | None = None
    ) -> None:
        self._allocator = allocator
        self._machine = machine
        self._pools: dict[VirtualDevice, SingleDeviceMemoryPool] = {}

    def device_pool(self, device_id: int | None = None) -> SingleDeviceMemoryPool:
        """The part for one device (the current one by default)."""
        machine = self._machine or _machine.current()
        device = machine.current_device if device_id is None else machine.device(device_id)
        with device.clock.lock:
            if device not in self._pools:
                self._pools[device] = SingleDeviceMemoryPool(self._allocator, device)
            return self._pools[device]

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes; see `SingleDeviceMemoryPool.malloc`."""
        return self.device_pool().malloc(size)

    def free_all_blocks(self, stream: _BaseStream | None = None) -> None:
        """Give free blocks that are whole segments back to the device."""
        self.device_pool().free_all_blocks(stream)

    def free_all_free(self) -> None:
        """Deprecated; see `free_all_blocks`."""
        self.device_pool().free_all_free()

    def block_map(self) -> BlockMap:
        """The segments and blocks of the current device's part."""
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


def default_memory_pool() -> MemoryPool:
    """The pool that new arrays come from unless the allocator was changed."""
    machine = _machine.current()
    return machine.own(MemoryPool, machine=machine)


def alloc(size: int) -> MemoryPointer:
    """Allocate with the current allocator (the default memory pool's unless `set_allocator` changed it)."""
    allocator = get_allocator()
    pointer: MemoryPointer = allocator(size)
    if not isinstance(pointer, MemoryPointer | None):
        raise TypeError(
            f"Cannot convert {type(pointer).__name__} to cupy.cuda.memory.MemoryPointer: an allocator "
            "returns what cp.cuda.alloc or the malloc of a pool returned."
        )
    return pointer


def check_room(size: int) -> None:
    """Make sure that the device, then the host, has room for an array, before its contents are computed.

    Raises
    ------
    OutOfMemoryError
        If one of them has not.
    """
    pool, free = default_memory_pool(), _machine.current().current_device.memory.free_bytes
    limit = pool.get_limit()
    if size > free + pool.free_bytes() or 0 < limit < pool.used_bytes() + size:
        alloc(size)  # refuses, but for an allocator with rules of its own
    check_host_memory(size)


def get_allocator() -> Callable[[int], Any]:
    """The allocator that new arrays use."""
    machine = _machine.current()
    using: Callable[[int], Any] | None = getattr(machine.thread, "allocator", None)
    return using or machine.allocator or default_memory_pool().malloc


def set_allocator(allocator: Callable[[int], Any] | None = None) -> None:
    """Let new arrays use another allocator; None means ``cudaMalloc`` without a pool."""
    machine = _machine.current()
    if getattr(machine.thread, "allocator", None) is not None:
        raise ValueError("Can't change the global allocator inside `using_allocator` context manager")
    machine.allocator = allocator or plain_malloc


@contextmanager
def using_allocator(allocator: Callable[[int], Any] | None = None) -> Iterator[None]:
    """Use another allocator within a ``with`` block of this thread."""
    thread = _machine.current().thread
    previous = getattr(thread, "allocator", None)
    thread.allocator = allocator or plain_malloc
    try:
        yield
    finally:
        thread.allocator = previous
