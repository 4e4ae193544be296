"""Allocators that call functions of the program: Python functions, or C functions by their addresses."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from virtualgpu.cp.cuda._memory.copies import find_device_at
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, MemoryPointer
from virtualgpu.cp.cuda._memory.sizes import convert_integer, convert_size
from virtualgpu.model import machine as _machine

_MALLOC_FUNCTION_TYPE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FREE_FUNCTION_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_ADDRESS_LIMIT = 1 << 63  # CuPy's addresses are below it


class _FunctionMemory(BaseMemory):
    """Memory from an allocation function of the program, with a function that frees it.

    The memory is freed when the object is destroyed.

    Kernels can access exactly these bytes. An enclosing allocation, such as a buffer that the function
    divides, is registered again afterwards.
    """

    def _allocate(self, size: int, malloc: Callable[[int, int], Any]) -> None:
        self._device = device = _machine.current().current_device
        self.ptr, self.size, self.device_id = 0, convert_size(size), device.id
        if not self.size:
            return
        address = malloc(self.size, self.device_id)
        if not isinstance(address, int):
            raise TypeError(f"an integer is required for the address of memory, not {type(address).__name__}")
        if not -_ADDRESS_LIMIT <= address < _ADDRESS_LIMIT:
            raise OverflowError(f"Python int too large to convert to C ssize_t: an address of {address:#x}")
        self.ptr = int(address)
        self._enclosing_allocation = device.memory.find_allocation(self.ptr)
        if find_device_at(self.ptr) is device:
            device.memory.track_allocation(self.ptr, self.size, f"{self.size:,}-byte allocation")

    def _unregister(self) -> int:
        """Unregister the memory, and return the address that must be freed, or 0."""
        address = getattr(self, "ptr", 0)
        if not address or sys.is_finalizing():
            return 0
        self.ptr = 0
        memory = self.owner.memory
        enclosing_allocation = self._enclosing_allocation
        memory.untrack_allocation(address)
        if enclosing_allocation is not None:
            memory.track_allocation(address, enclosing_allocation.size_bytes, enclosing_allocation.label)
        return int(address)


class PythonFunctionAllocatorMemory(_FunctionMemory):
    """Memory allocated by a `PythonFunctionAllocator`."""

    def __init__(
        self, size: int, malloc_func: Callable[[int, int], int], free_func: Callable[[int, int], object]
    ) -> None:
        self._free_func = free_func
        self._allocate(size, malloc_func)

    def __del__(self) -> None:
        address = self._unregister()
        if address:
            self._free_func(address, self.device_id)


class PythonFunctionAllocator:
    """An allocator that calls two Python functions to allocate and free memory. Pass its method `malloc` to
    `set_allocator` or to a memory pool.

    Parameters
    ----------
    malloc_func : callable
        ``malloc_func(size_bytes, device_id)`` returns an address; it is not called for 0 bytes.
    free_func : callable
        ``free_func(address, device_id)``. Its exceptions are printed, not raised, since it is called when
        an array is destroyed.

    Examples
    --------
    >>> runtime = cp.cuda.runtime
    >>> def take(size_bytes, device_id):
    ...     return runtime.malloc(size_bytes)
    >>> def give(address, device_id):
    ...     runtime.free(address)
    >>> own = cp.cuda.PythonFunctionAllocator(take, give)
    >>> with cp.cuda.using_allocator(own.malloc):
    ...     x = cp.zeros(10)
    """

    def __init__(
        self, malloc_func: Callable[[int, int], int], free_func: Callable[[int, int], object]
    ) -> None:
        self._malloc_func = malloc_func
        self._free_func = free_func

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes on the current device."""
        return MemoryPointer(PythonFunctionAllocatorMemory(size, self._malloc_func, self._free_func), 0)


class CFunctionAllocatorMemory(_FunctionMemory):
    """Memory allocated by a `CFunctionAllocator`."""

    def __init__(self, size: int, param: int, malloc_func: int, free_func: int, owner: object) -> None:
        self._param = param
        self._owner = owner
        self._free_func = free_func
        self._allocate(
            size, lambda size, device_id: _MALLOC_FUNCTION_TYPE(malloc_func)(param, size, device_id) or 0
        )

    def __del__(self) -> None:
        address = self._unregister()
        if address:
            _FREE_FUNCTION_TYPE(self._free_func)(self._param, address, self.device_id)


class CFunctionAllocator:
    """An allocator that calls two C functions, which are given by their addresses.

    Parameters
    ----------
    param : int
        First argument of both functions.
    malloc_func : int
        Address of ``void *malloc(void *param, size_t size_bytes, int device_id)``.
    free_func : int
        Address of ``void free(void *param, void *address, int device_id)``.
    owner : object
        Object that is kept alive as long as the allocator.
    """

    def __init__(self, param: int, malloc_func: int, free_func: int, owner: object) -> None:
        self._param = convert_integer(param)
        self._malloc_func = convert_integer(malloc_func)
        self._free_func = convert_integer(free_func)
        self._owner = owner

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes on the current device."""
        memory = CFunctionAllocatorMemory(size, self._param, self._malloc_func, self._free_func, self._owner)
        return MemoryPointer(memory, 0)
