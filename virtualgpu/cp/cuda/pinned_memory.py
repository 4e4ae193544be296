"""Pinned (page-locked) host memory, which asynchronous copies need."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.allocators.sizes import round_pinned_size
from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda._memory.sizes import convert_integer, convert_size
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.model.memory.host import check_host_memory, view_host_memory

__all__ = [
    *("PinnedMemory", "PinnedMemoryPointer", "PinnedMemoryPool", "alloc_pinned_memory", "is_memory_pinned"),
    "set_pinned_memory_allocator",
]
__getattr__ = make_module_getattr("cp.cuda.pinned_memory", globals())

_ALIGNMENT_BYTES = 512
_OUT_OF_MEMORY_STATUS = 2
_KNOWN_REGISTER_FLAGS = 1 | 2 | 4 | 8  # cudaHostRegisterPortable, Mapped, IoMemory, ReadOnly
_KNOWN_ALLOC_FLAGS = 1 | 2 | 4  # cudaHostAllocPortable, Mapped, WriteCombined


class PinnedMemory:
    """A host buffer that the time model treats as pinned memory.

    The operating system does not lock the buffer; only modelled copy times depend on pinning.

    Raises
    ------
    CUDARuntimeError
        Status 2, ``cudaErrorMemoryAllocation``, for more than the host's memory.
    """

    def __init__(self, size: int, flags: int = 0) -> None:
        self.size = size = convert_size(size)
        if flags & ~_KNOWN_ALLOC_FLAGS:
            raise _make_invalid_value_error(
                f"invalid flags {flags} for pinned memory: they must be a sum of 1, 2 and 4."
            )
        try:
            check_host_memory(size, "of page-locked memory")
            padded_buffer = np.empty(size + _ALIGNMENT_BYTES, dtype=np.uint8)
            padding_bytes = (
                -int(padded_buffer.ctypes.data) % _ALIGNMENT_BYTES
            )  # aligned, so that neighbouring lanes share sectors, as on a GPU
            self.buffer = padded_buffer[padding_bytes : padding_bytes + size]
        except MemoryError as error:
            raise CUDARuntimeError(
                _OUT_OF_MEMORY_STATUS, "cudaErrorMemoryAllocation", f"out of memory: {error}"
            ) from None
        self.ptr = int(self.buffer.ctypes.data) if size else 0
        self._machine = _machine.current()
        if size:
            _pin_range(self._machine, self.ptr, size)

    def __int__(self) -> int:
        return self.ptr

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            _unpin_range(self._machine, self.ptr)


class PooledPinnedMemory(PinnedMemory):
    """A buffer of pinned memory that the program uses. The buffer returns to its pool when it is
    destroyed.
    """

    def __init__(self, mem: PinnedMemory, pool: weakref.ref[PinnedMemoryPool]) -> None:
        self.mem = mem
        self.pool = pool
        self.ptr = mem.ptr
        self.size = mem.size
        self.buffer = mem.buffer
        self._machine = _machine.current()

    def free(self) -> None:
        pool = self.pool()
        if pool is not None and self.ptr:
            _report_release(self._machine, self.ptr, self.size)
            pool._return_buffer(self.mem)
        self.ptr = self.size = 0

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.free()


class PinnedMemoryPointer:
    """A pointer into pinned memory. The call ``np.frombuffer(pointer, dtype, count)`` returns the memory as
    an array.

    `make_pinned_pointer` adds the buffer that `numpy.frombuffer` needs (before Python 3.12, a class written
    in Python cannot provide one).
    """

    mem: Any
    ptr: int

    def __new__(cls, mem: Any = None, offset: int = 0) -> PinnedMemoryPointer:
        return make_pinned_pointer(mem, offset) if cls is PinnedMemoryPointer else super().__new__(cls)

    def __init__(self, mem: Any = None, offset: int = 0) -> None:
        """Create a pointer `offset` bytes into `mem`, which the pointer keeps alive."""

    def size(self) -> int:
        """Return the number of bytes from this address to the end of the pinned memory."""
        return int(self.mem.size - (self.ptr - self.mem.ptr))

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> PinnedMemoryPointer:
        return make_pinned_pointer(self.mem, self.ptr - self.mem.ptr + convert_integer(offset))

    __radd__ = __add__

    def __sub__(self, offset: int) -> PinnedMemoryPointer:
        return self + -offset


@lru_cache(maxsize=128)
def _make_pointer_class(size: int) -> Any:
    buffer_class: Any = ctypes.c_int8 * size
    return type(buffer_class)("PinnedMemoryPointer", (PinnedMemoryPointer, buffer_class), {})


def make_pinned_pointer(mem: Any, offset: int = 0) -> PinnedMemoryPointer:
    """Return a pointer to `mem` plus `offset`. The pointer keeps `mem` alive and supports the buffer
    protocol.
    """
    address = mem.ptr + offset
    pointer_class = _make_pointer_class(mem.size - offset)
    pointer: PinnedMemoryPointer = pointer_class.from_address(address) if address else pointer_class()
    pointer.mem = mem
    pointer.ptr = address
    return pointer


class PinnedMemoryPool:
    """A pool that keeps freed buffers of pinned memory for reuse. The sizes of the buffers are powers of
    two.
    """

    def __init__(self, allocator: Callable[[int], PinnedMemoryPointer] | None = None) -> None:
        self._allocator = allocator or _allocate_unpooled
        self._free_buffers: dict[int, list[Any]] = {}

    def malloc(self, size: int) -> PinnedMemoryPointer:
        """Allocate `size` bytes of pinned memory, rounded up to a power of two of at least 512."""
        size = convert_size(size)
        if size == 0:
            return make_pinned_pointer(PinnedMemory(0))
        rounded_size = round_pinned_size(size)
        free_buffers = self._free_buffers.get(rounded_size)
        mem = free_buffers.pop() if free_buffers else self._allocate_buffer(rounded_size)
        return make_pinned_pointer(PooledPinnedMemory(mem, weakref.ref(self)))

    def _allocate_buffer(self, size: int) -> Any:
        try:
            return self._allocator(size).mem
        except CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY_STATUS:
                raise
        self.free_all_blocks()
        return self._allocator(size).mem

    def _return_buffer(self, mem: Any) -> None:
        self._free_buffers.setdefault(mem.size, []).append(mem)

    def free_all_blocks(self) -> None:
        """Unpin and free all buffers of the pool that are not in use."""
        self._free_buffers.clear()

    def n_free_blocks(self) -> int:
        return sum(len(buffers) for buffers in self._free_buffers.values())


def _allocate_unpooled(size: int) -> PinnedMemoryPointer:
    return make_pinned_pointer(PinnedMemory(size))


def get_default_pinned_pool() -> PinnedMemoryPool:
    """Return the default pool of pinned memory."""
    return _machine.current().get_component(PinnedMemoryPool)


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    """Allocate pinned host memory with the current allocator, which is a pool by default."""
    machine = _machine.current()
    pointer = (machine.pinned_allocator or get_default_pinned_pool().malloc)(size)
    if not isinstance(pointer, PinnedMemoryPointer | None):
        raise TypeError(
            f"Cannot convert {type(pointer).__name__} to cupy.cuda.pinned_memory.PinnedMemoryPointer: an "
            "allocator must return the result of the malloc of a PinnedMemoryPool."
        )
    return pointer  # type: ignore[return-value]  # None fails where the pointer is used, as in CuPy


def set_pinned_memory_allocator(allocator: Callable[[int], Any] | None = None) -> None:
    """Set the allocator of pinned memory. If the allocator is None, no pool is used."""
    _machine.current().pinned_allocator = allocator or _allocate_unpooled


def _report_release(machine: _machine.Machine, address: int, size: int) -> None:
    """Report the release of pinned memory to the check of streams that is in progress, if there is one."""
    if machine.clock.watch is not None and size:
        machine.clock.watch.note_host_release(address, size)


def _pin_range(machine: _machine.Machine, address: int, size: int) -> None:
    """Mark host memory as pinned, so that every device can access it at its host address."""
    machine.pinned_ranges[address] = size
    for device in machine.devices:
        device.memory.map_host_memory(address, size)


def _unpin_range(machine: _machine.Machine, address: int) -> None:
    _report_release(machine, address, machine.pinned_ranges.get(address, 0))
    machine.pinned_ranges.pop(address, None)
    for device in machine.devices:
        device.memory.unmap_host_memory(address)


def hostRegister(ptr: int, size: int, flags: int = 0) -> None:  # noqa: N802
    """Pin existing host memory, such as the memory of a NumPy array. The function `hostUnregister` unpins the
    memory.

    Raises
    ------
    CUDARuntimeError
        Status 1 for address 0, for memory of `hostAlloc`, and for unknown flags; 712,
        ``cudaErrorHostMemoryAlreadyRegistered``, if a part is registered already.
    """
    if not ptr or size <= 0:
        raise _make_invalid_value_error(f"{size} bytes at {ptr:#x} cannot be pinned (page-locked).")
    if flags & ~_KNOWN_REGISTER_FLAGS:
        raise _make_invalid_value_error(
            f"invalid flags {flags} for hostRegister: they must be a sum of 1, 2, 4 and 8."
        )
    machine = _machine.current()
    if machine.device_at(ptr) is not None:
        raise _make_invalid_value_error(f"{ptr:#x} is device memory, but hostRegister pins host memory.")
    pinned_ranges = machine.pinned_ranges
    for pinned_start, pinned_bytes in list(pinned_ranges.items()):
        if pinned_start < ptr + size and ptr < pinned_start + pinned_bytes:
            if pinned_start not in machine.registered_addresses:
                raise _make_invalid_value_error(
                    f"{pinned_bytes:,} bytes at {pinned_start:#x} have been pinned since they were allocated."
                )
            raise CUDARuntimeError(
                712,
                "cudaErrorHostMemoryAlreadyRegistered",
                "part or all of the requested memory range is already mapped: "
                f"{pinned_bytes:,} bytes at {pinned_start:#x} are already pinned. Call "
                "hostUnregister first, or register them only once.",
            )
    _pin_range(machine, ptr, size)
    machine.registered_addresses.add(ptr)


def hostUnregister(ptr: int) -> None:  # noqa: N802
    """Unpin memory that `hostRegister` pinned.

    Raises
    ------
    CUDARuntimeError
        Status 1 for an address within pinned memory; 713, ``cudaErrorHostMemoryNotRegistered``, for others.
    """
    machine = _machine.current()
    if ptr not in machine.registered_addresses:
        if is_memory_pinned(ptr):
            raise _make_invalid_value_error(f"{ptr:#x} is not an address that was passed to hostRegister.")
        raise CUDARuntimeError(
            713,
            "cudaErrorHostMemoryNotRegistered",
            f"pointer does not correspond to a registered memory region: {ptr:#x}. Pass "
            "the address that was passed to hostRegister, and unregister it only once.",
        )
    machine.registered_addresses.discard(ptr)
    _unpin_range(machine, ptr)


def _make_invalid_value_error(reason: str) -> CUDARuntimeError:
    return CUDARuntimeError(1, "cudaErrorInvalidValue", f"invalid argument: {reason}")


def is_pinned(array: np.ndarray[Any, Any]) -> bool:
    """Return whether all elements of a NumPy array are in pinned memory."""
    pinned_ranges = _machine.current().pinned_ranges
    if not pinned_ranges or not array.size:
        return False
    low_address, high_address = np.lib.array_utils.byte_bounds(array)
    return any(
        pinned_start <= low_address and high_address <= pinned_start + size
        for pinned_start, size in list(pinned_ranges.items())
    )


def is_memory_pinned(address: int) -> bool:
    """Return whether a host address is in pinned memory."""
    pinned_ranges = _machine.current().pinned_ranges
    return any(
        pinned_start <= address < pinned_start + size for pinned_start, size in list(pinned_ranges.items())
    )


def view_host_bytes(mem: Any, size: int) -> npt.NDArray[np.uint8]:
    """Return a byte array of `size` bytes at the host address `mem`, an integer or an object with a
    ``value``.
    """
    if isinstance(mem, np.ndarray):
        raise TypeError(
            "A copy needs the address of the host memory, but got a NumPy array. Pass x.ctypes.data of a "
            "contiguous array x."
        )
    address = mem if isinstance(mem, int) else int(getattr(mem, "value", None) or int(mem))
    return view_host_memory(address, size)
