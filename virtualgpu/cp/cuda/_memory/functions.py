"""Allocators that a program brings along: Python functions, or addresses of C functions."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from virtualgpu.cp.cuda._memory.copies import device_at
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, MemoryPointer
from virtualgpu.cp.cuda._memory.sizes import size_t, whole
from virtualgpu.model import machine as _machine

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_BEYOND = 1 << 63  # of addresses as CuPy keeps them


class _FunctionMemory(BaseMemory):
    """Memory from a program's own function, which is given back to another with the object.

    Kernels may touch exactly these bytes; what was there before, such as the buffer that the function cuts
    up, is there again afterwards.
    """

    def _take(self, size: int, malloc: Callable[[int, int], Any]) -> None:
        self._device = device = _machine.current().current_device
        self.ptr, self.size, self.device_id = 0, size_t(size), device.id
        if not self.size:
            return
        address = malloc(self.size, self.device_id)
        if not isinstance(address, int):
            raise TypeError(f"an integer is required for the address of memory, not {type(address).__name__}")
        if not -_BEYOND <= address < _BEYOND:
            raise OverflowError(f"Python int too large to convert to C ssize_t: an address of {address:#x}")
        self.ptr = int(address)
        self._before = device.memory.allocation(self.ptr)
        if device_at(self.ptr) is device:
            device.memory.track(self.ptr, self.size, f"{self.size:,}-byte allocation")

    def _give(self) -> int:
        """The address to give back, 0 for none."""
        address = getattr(self, "ptr", 0)
        if not address or sys.is_finalizing():
            return 0
        self.ptr = 0
        memory = self.owner.memory
        before = self._before
        memory.untrack(address)
        if before is not None:
            memory.track(address, before.size_bytes, before.label)
        return int(address)


class PythonFunctionAllocatorMemory(_FunctionMemory):
    """What a `PythonFunctionAllocator` gives out."""

    def __init__(
        self, size: int, malloc_func: Callable[[int, int], int], free_func: Callable[[int, int], object]
    ) -> None:
        self._free_func = free_func
        self._take(size, malloc_func)

    def __del__(self) -> None:
        address = self._give()
        if address:
            self._free_func(address, self.device_id)


class PythonFunctionAllocator:
    """An allocator made of two Python functions; its `malloc` goes to `set_allocator` or a pool.

    Parameters
    ----------
    malloc_func : callable
        ``malloc_func(size_bytes, device_id)`` returns an address; it is not called for 0 bytes.
    free_func : callable
        ``free_func(address, device_id)``. What it raises is printed, not passed on, since it is called when
        an array dies.

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
    """What a `CFunctionAllocator` gives out."""

    def __init__(self, size: int, param: int, malloc_func: int, free_func: int, owner: object) -> None:
        self._param = param
        self._owner = owner
        self._free_func = free_func
        self._take(size, lambda size, device_id: _MALLOC(malloc_func)(param, size, device_id) or 0)

    def __del__(self) -> None:
        address = self._give()
        if address:
            _FREE(self._free_func)(self._param, address, self.device_id)


class CFunctionAllocator:
    """An allocator made of two C functions, given by their addresses.

    Parameters
    ----------
    param : int
        First argument of both functions.
    malloc_func : int
        Address of ``void *malloc(void *param, size_t size_bytes, int device_id)``.
    free_func : int
        Address of ``void free(void *param, void *address, int device_id)``.
    owner : object
        Kept alive as long as the allocator.
    """

    def __init__(self, param: int, malloc_func: int, free_func: int, owner: object) -> None:
        self._param = whole(param)
        self._malloc_func = whole(malloc_func)
        self._free_func = whole(free_func)
        self._owner = owner

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate `size` bytes on the current device."""
        memory = CFunctionAllocatorMemory(size, self._param, self._malloc_func, self._free_func, self._owner)
        return MemoryPointer(memory, 0)
