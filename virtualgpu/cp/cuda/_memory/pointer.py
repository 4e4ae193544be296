"""Device memory as CuPy's classes show it: raw memory and pointers into it, with their copies."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp.cuda._memory.copies import copy, reach, set_memory
from virtualgpu.cp.cuda._memory.places import pointer_attributes
from virtualgpu.cp.cuda._memory.sizes import size_t, whole
from virtualgpu.cp.cuda.device import Device
from virtualgpu.cp.cuda.pinned_memory import host_bytes
from virtualgpu.cp.cuda.stream import Stream, _BaseStream, refuse_in_capture, refuse_unsafe
from virtualgpu.model import machine as _machine
from virtualgpu.model.closures import address_of
from virtualgpu.model.machine import VirtualDevice


class BaseMemory:
    """A range of device memory: `ptr`, `size` in bytes and `device_id`.

    A subclass that a program writes sets these three, as with CuPy.
    """

    ptr: int
    size: int
    device_id: int
    _device: VirtualDevice | None = None

    def __init__(self, ptr: int, size: int, owner: VirtualDevice) -> None:
        self.ptr = ptr
        self.size = size
        self._device = owner
        self.device_id = owner.id

    def __int__(self) -> int:
        return self.ptr

    @property
    def owner(self) -> VirtualDevice:
        """The device whose memory it is."""
        return self._device or _machine.current().device(self.device_id)

    @property
    def device(self) -> Device:
        return Device(self.device_id)


class Memory(BaseMemory):
    """Memory straight from ``cudaMalloc``, freed with the object."""

    def __init__(self, size: int, owner: VirtualDevice | None = None) -> None:
        refuse_unsafe()
        owner = owner or _machine.current().current_device
        size = size_t(size)
        super().__init__(owner.memory.malloc(size), size, owner)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.owner.memory.untrack(self.ptr)
            self.owner.memory.free(self.ptr)
            self.ptr = 0


class UnownedMemory(BaseMemory):
    """Memory that something else owns, for wrapping foreign pointers.

    Parameters
    ----------
    ptr, size : int
        Address, and size in bytes.
    owner : object
        Kept alive as long as this.
    device_id : int
        -1: the device in whose memory `ptr` lies.

    Raises
    ------
    RuntimeError
        For a null pointer without a device.
    """

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        if device_id < 0 and ptr == 0:
            raise RuntimeError("UnownedMemory requires explicit device ID for a null pointer.")
        attributes = pointer_attributes(ptr)
        self.ptr, self.size = ptr, size_t(size)
        self.device_id = attributes.device if device_id < 0 else device_id
        self._owner = owner

    @property
    def owner(self) -> VirtualDevice:
        if self.device_id < 0:
            raise ValueError(
                f"{self.ptr:#x} is pageable host memory, which a kernel of this GPU cannot reach; take it "
                "from cupyx.empty_pinned, lock it with cp.cuda.runtime.hostRegister, or copy it with "
                "cp.asarray."
            )
        return super().owner


class MemoryPointer:
    """A place within a `BaseMemory`; ``ptr`` is the device address."""

    __slots__ = ("mem", "ptr")

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        if not isinstance(mem, BaseMemory):
            raise TypeError(
                f"Argument 'mem' has incorrect type (expected cupy.cuda.memory.BaseMemory, got "
                f"{type(mem).__name__})"
            )
        assert mem.ptr or not offset, "no place lies within an allocation of 0 bytes"
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
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + whole(offset))

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    @property
    def _place(self) -> VirtualDevice | None:
        """The device in whose memory it lies; None for page-locked host memory."""
        owner = self.mem.owner
        return None if owner.memory.is_host_address(self.ptr) else owner

    def _bytes(self, size: int) -> npt.NDArray[np.uint8]:
        return self.mem.owner.memory.view(self.ptr, size)

    def _check(self, size: int) -> None:
        self.mem.owner.memory.check(self.ptr, size)

    def copy_from_device(self, src: MemoryPointer, size: int) -> None:
        """Copy `size` bytes from another place in device memory, in the legacy default stream."""
        refuse_in_capture("synchronous API calls")
        self._from_device(src, size, Stream.null)

    def copy_from_device_async(
        self, src: MemoryPointer, size: int, stream: _BaseStream | None = None
    ) -> None:
        """Like `copy_from_device`, in `stream` (the current one by default)."""
        self._from_device(src, size, stream)

    def _from_device(self, src: MemoryPointer, size: int, stream: _BaseStream | None) -> None:
        self._check(size)
        src._check(size)
        into = self._bytes(size)
        out_of = src._bytes(size)
        if size > 0:
            reach(src.mem.owner, self.mem.owner)

        def move() -> None:
            into[:] = out_of.copy()

        host = next((end._bytes(size) for end in (self, src) if end._place is None), None)
        ends = into, out_of
        copy(move, size, to=self._place, source=src._place, host=host, stream=stream, ends=ends)

    def copy_from_host(self, mem: Any, size: int) -> None:
        """Copy `size` bytes from a host address (int or ctypes pointer) in the legacy default stream, and
        wait for the copy."""
        refuse_in_capture("synchronous API calls")
        self._from_host(mem, size, Stream.null, waits=True)

    def copy_from_host_async(self, mem: Any, size: int, stream: _BaseStream | None = None) -> None:
        """Like `copy_from_host` in `stream`; returns at once if `mem` points to pinned memory."""
        refuse_in_capture("H2D transfers", stream, self.mem.owner)
        self._from_host(mem, size, stream)

    def _from_host(self, mem: Any, size: int, stream: _BaseStream | None, waits: bool = False) -> None:
        self._check(size)
        host = host_bytes(mem, size)
        into = self._bytes(size)

        def move() -> None:
            into[:] = host

        ends = into, host
        copy(move, size, to=self.mem.owner, host=host, stream=stream, waits=waits, ends=ends)

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
        """Copy `size` bytes to a host address in the legacy default stream, and wait for the copy."""
        refuse_in_capture("synchronous API calls")
        self._to_host(mem, size, Stream.null, waits=True)

    def copy_to_host_async(self, mem: Any, size: int, stream: _BaseStream | None = None) -> None:
        """Like `copy_to_host` in `stream`; returns at once if `mem` points to pinned memory."""
        refuse_in_capture("D2H transfers", stream, self.mem.owner)
        self._to_host(mem, size, stream)

    def _to_host(self, mem: Any, size: int, stream: _BaseStream | None, waits: bool = False) -> None:
        self._check(size)
        host = host_bytes(mem, size)
        out_of = self._bytes(size)

        def move() -> None:
            host[:] = out_of

        ends = host, out_of
        copy(move, size, source=self.mem.owner, host=host, stream=stream, waits=waits, ends=ends)

    def memset(self, value: int, size: int) -> None:
        """Set `size` bytes to `value`, in the legacy default stream."""
        refuse_in_capture("synchronous API calls")
        self.memset_async(value, size, Stream.null)

    def memset_async(self, value: int, size: int, stream: _BaseStream | None = None) -> None:
        """Set `size` bytes to `value` in `stream` (the current one by default)."""
        self._check(size)
        if size <= 0:
            return
        into = self._bytes(size)
        memory = self.mem.owner.memory

        def fill() -> None:
            if value:
                into[:] = value & 0xFF
            else:
                memory.zero(address_of(into), size)

        set_memory(fill, into, self.mem.owner, stream)
