"""Device memory as CuPy's classes show it: raw memory and pointers into it, with their copies."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp.cuda.device import Device
from virtualgpu.cp.cuda.streams import _BaseStream, get_current_stream
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice


class BaseMemory:
    """A range of device memory: `ptr`, `size` in bytes and `device_id`."""

    def __init__(self, ptr: int, size: int, owner: VirtualDevice) -> None:
        self.ptr = ptr
        self.size = size
        self.owner = owner
        self.device_id = owner.id

    @property
    def device(self) -> Device:
        return Device(self.device_id)


class Memory(BaseMemory):
    """Memory straight from ``cudaMalloc``, freed with the object."""

    def __init__(self, size: int, owner: VirtualDevice | None = None) -> None:
        owner = owner or _machine.current().current_device
        super().__init__(owner.memory.malloc(size), size, owner)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.owner.memory.untrack(self.ptr)
            self.owner.memory.free(self.ptr)
            self.ptr = 0


class UnownedMemory(BaseMemory):
    """Memory that something else owns, for wrapping foreign pointers."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        machine = _machine.current()
        device = machine.current_device if device_id < 0 else machine.device(device_id)
        super().__init__(ptr, size, device)
        self._keep = owner


class MemoryPointer:
    """A place within a `BaseMemory`; ``ptr`` is the device address."""

    __slots__ = ("mem", "ptr")

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset

    @property
    def device_id(self) -> int:
        return self.mem.device_id

    @property
    def device(self) -> Device:
        return self.mem.device

    def __int__(self) -> int:
        return self.ptr

    def __repr__(self) -> str:
        return f"<MemoryPointer 0x{self.ptr:x} device={self.device_id} mem={self.mem!r}>"

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    def _bytes(self, size: int) -> npt.NDArray[np.uint8]:
        return self.mem.owner.memory.view(self.ptr, size)

    def _submit(self, kind: Any, size: int, stream: _BaseStream | None, wait: bool) -> None:
        device = self.mem.owner
        duration = device.copy_ns(kind, size, pinned=not wait)
        stream = stream or get_current_stream()
        _, end = stream.submit(kind, f"memcpy {kind}", duration, size_bytes=size, device=device)
        if wait:
            device.clock.wait_until(end)

    def copy_from_device(self, src: MemoryPointer, size: int) -> None:
        """Copy `size` bytes from another place in device memory."""
        self.copy_from_device_async(src, size)

    def copy_from_device_async(
        self, src: MemoryPointer, size: int, stream: _BaseStream | None = None
    ) -> None:
        if size > 0:
            self._bytes(size)[:] = src._bytes(size).copy()
            self._submit("d2d", size, stream, wait=False)

    def copy_from_host(self, mem: Any, size: int) -> None:
        """Copy `size` bytes from a host address (int or ctypes pointer); waits for the copy."""
        self._from_host(mem, size, None, wait=True)

    def copy_from_host_async(self, mem: Any, size: int, stream: _BaseStream | None = None) -> None:
        """Like `copy_from_host` without waiting; `mem` must point to pinned memory."""
        self._from_host(mem, size, stream, wait=False)

    def _from_host(self, mem: Any, size: int, stream: _BaseStream | None, wait: bool) -> None:
        if size > 0:
            self._bytes(size)[:] = _host_bytes(mem, size)
            self._submit("h2d", size, stream, wait)

    def copy_from(self, mem: Any, size: int) -> None:
        """Copy from a `MemoryPointer` or a host address, whichever `mem` is."""
        if isinstance(mem, MemoryPointer):
            self.copy_from_device(mem, size)
        else:
            self.copy_from_host(mem, size)

    def copy_from_async(self, mem: Any, size: int, stream: _BaseStream | None = None) -> None:
        if isinstance(mem, MemoryPointer):
            self.copy_from_device_async(mem, size, stream)
        else:
            self.copy_from_host_async(mem, size, stream)

    def copy_to_host(self, mem: Any, size: int) -> None:
        """Copy `size` bytes to a host address; waits for the copy."""
        self._to_host(mem, size, None, wait=True)

    def copy_to_host_async(self, mem: Any, size: int, stream: _BaseStream | None = None) -> None:
        """Like `copy_to_host` without waiting; `mem` must point to pinned memory."""
        self._to_host(mem, size, stream, wait=False)

    def _to_host(self, mem: Any, size: int, stream: _BaseStream | None, wait: bool) -> None:
        if size > 0:
            _host_bytes(mem, size)[:] = self._bytes(size)
            self._submit("d2h", size, stream, wait)

    def memset(self, value: int, size: int) -> None:
        """Set `size` bytes to `value`."""
        self.memset_async(value, size)

    def memset_async(self, value: int, size: int, stream: _BaseStream | None = None) -> None:
        if size > 0:
            if value:
                self._bytes(size)[:] = value & 0xFF
            else:
                self.mem.owner.memory.zero(self.ptr, size)
            self._submit("memset", size, stream, wait=False)


def _host_bytes(mem: Any, size: int) -> npt.NDArray[np.uint8]:
    if isinstance(mem, np.ndarray):
        raise TypeError(
            "Copies take an address: pass x.ctypes.data of a contiguous NumPy array, not the array."
        )
    address = mem if isinstance(mem, int) else int(getattr(mem, "value", None) or int(mem))
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
