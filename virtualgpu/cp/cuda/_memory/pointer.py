"""CuPy's classes for ranges of device memory and for pointers into them, which can copy data."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp.cuda._memory.addresses import read_pointer_attributes
from virtualgpu.cp.cuda._memory.copies import enable_peer_access, enqueue_copy, enqueue_memset
from virtualgpu.cp.cuda._memory.sizes import convert_integer, convert_size
from virtualgpu.cp.cuda.device import Device
from virtualgpu.cp.cuda.pinned_memory import view_host_bytes
from virtualgpu.cp.cuda.stream import Stream, _BaseStream, refuse_in_capture, refuse_unsafe_in_capture
from virtualgpu.launch.arguments import DevicePointer
from virtualgpu.model import machine as _machine
from virtualgpu.model.closures import address_of
from virtualgpu.model.machine import VirtualDevice


class BaseMemory:
    """A range of device memory, described by the attributes `ptr`, `size` (in bytes) and `device_id`.

    A subclass in the learner's program sets these three attributes, as in CuPy.
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
        """The device to which the memory belongs."""
        return self._device or _machine.current().device(self.device_id)

    @property
    def device(self) -> Device:
        return Device(self.device_id)


class Memory(BaseMemory):
    """Memory from one call of ``cudaMalloc``. The memory is freed when the object is destroyed."""

    def __init__(self, size: int, owner: VirtualDevice | None = None) -> None:
        refuse_unsafe_in_capture()
        owner = owner or _machine.current().current_device
        size = convert_size(size)
        super().__init__(owner.memory.malloc(size), size, owner)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.owner.memory.untrack_allocation(self.ptr)
            self.owner.memory.free(self.ptr)
            self.ptr = 0


class UnownedMemory(BaseMemory):
    """Memory that another object owns. This class can wrap a pointer from another library.

    Parameters
    ----------
    ptr, size : int
        Address, and size in bytes.
    owner : object
        Object that is kept alive as long as this one.
    device_id : int
        Number of the device; -1 for the device whose memory contains `ptr`.

    Raises
    ------
    RuntimeError
        For a null pointer without a device.
    """

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        if device_id < 0 and ptr == 0:
            raise RuntimeError("UnownedMemory requires explicit device ID for a null pointer.")
        attributes = read_pointer_attributes(ptr)
        self.ptr, self.size = ptr, convert_size(size)
        self.device_id = attributes.device if device_id < 0 else device_id
        self._owner = owner

    @property
    def owner(self) -> VirtualDevice:
        if self.device_id < 0:
            raise ValueError(
                f"{self.ptr:#x} is pageable host memory, which a kernel of this GPU "
                "cannot access. Allocate it with cupyx.empty_pinned, pin it with "
                "cp.cuda.runtime.hostRegister, or copy it with cp.asarray."
            )
        return super().owner


class MemoryPointer(DevicePointer):
    """A pointer to an address within a `BaseMemory` object. The attribute ``ptr`` is the device address."""

    __slots__ = ("mem", "ptr")

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        if not isinstance(mem, BaseMemory):
            raise TypeError(
                f"Argument 'mem' has incorrect type (expected cupy.cuda.memory.BaseMemory, got "
                f"{type(mem).__name__})"
            )
        assert mem.ptr or not offset, "an allocation of 0 bytes contains no address"
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
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + convert_integer(offset))

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    @property
    def _memory_device(self) -> VirtualDevice | None:
        """The device whose memory contains the address; None for pinned host memory."""
        owner = self.mem.owner
        return None if owner.memory.is_host_address(self.ptr) else owner

    def _view_bytes(self, size: int) -> npt.NDArray[np.uint8]:
        return self.mem.owner.memory.view(self.ptr, size)

    def _check_range(self, size: int) -> None:
        self.mem.owner.memory.check_range(self.ptr, size)

    def copy_from_device(self, src: MemoryPointer, size: int) -> None:
        """Copy `size` bytes from another device address, in the legacy default stream."""
        refuse_in_capture("synchronous API calls")
        self._copy_from_device(src, size, Stream.null)

    def copy_from_device_async(
        self, src: MemoryPointer, size: int, stream: _BaseStream | None = None
    ) -> None:
        """Copy `size` bytes from another device address in `stream` (default: the current stream)."""
        self._copy_from_device(src, size, stream)

    def _copy_from_device(self, src: MemoryPointer, size: int, stream: _BaseStream | None) -> None:
        self._check_range(size)
        src._check_range(size)
        target_bytes = self._view_bytes(size)
        source_bytes = src._view_bytes(size)
        if size > 0:
            enable_peer_access(src.mem.owner, self.mem.owner)

        def move_bytes() -> None:
            target_bytes[:] = source_bytes.copy()

        host_bytes = next(
            (pointer._view_bytes(size) for pointer in (self, src) if pointer._memory_device is None), None
        )
        arrays = target_bytes, source_bytes
        enqueue_copy(
            move_bytes,
            size,
            target=self._memory_device,
            source=src._memory_device,
            host_array=host_bytes,
            stream=stream,
            arrays=arrays,
        )

    def copy_from_host(self, mem: Any, size: int) -> None:
        """Copy `size` bytes from a host address in the legacy default stream, and wait for the copy.

        The host address is an integer or a ctypes pointer.
        """
        refuse_in_capture("synchronous API calls")
        self._copy_from_host(mem, size, Stream.null, is_blocking=True)

    def copy_from_host_async(self, mem: Any, size: int, stream: _BaseStream | None = None) -> None:
        """Copy `size` bytes from a host address in `stream`. If `mem` is pinned, the host does not wait for
        the copy.
        """
        refuse_in_capture("H2D transfers", stream, self.mem.owner)
        self._copy_from_host(mem, size, stream)

    def _copy_from_host(
        self, mem: Any, size: int, stream: _BaseStream | None, is_blocking: bool = False
    ) -> None:
        self._check_range(size)
        host_bytes = view_host_bytes(mem, size)
        target_bytes = self._view_bytes(size)

        def move_bytes() -> None:
            target_bytes[:] = host_bytes

        arrays = target_bytes, host_bytes
        enqueue_copy(
            move_bytes,
            size,
            target=self.mem.owner,
            host_array=host_bytes,
            stream=stream,
            is_blocking=is_blocking,
            arrays=arrays,
        )

    def copy_from(self, mem: Any, size: int) -> None:
        """Copy `size` bytes from a `MemoryPointer` or a host address."""
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
        self._copy_to_host(mem, size, Stream.null, is_blocking=True)

    def copy_to_host_async(self, mem: Any, size: int, stream: _BaseStream | None = None) -> None:
        """Copy `size` bytes to a host address in `stream`. If `mem` is pinned, the host does not wait for the
        copy.
        """
        refuse_in_capture("D2H transfers", stream, self.mem.owner)
        self._copy_to_host(mem, size, stream)

    def _copy_to_host(
        self, mem: Any, size: int, stream: _BaseStream | None, is_blocking: bool = False
    ) -> None:
        self._check_range(size)
        host_bytes = view_host_bytes(mem, size)
        source_bytes = self._view_bytes(size)

        def move_bytes() -> None:
            host_bytes[:] = source_bytes

        arrays = host_bytes, source_bytes
        enqueue_copy(
            move_bytes,
            size,
            source=self.mem.owner,
            host_array=host_bytes,
            stream=stream,
            is_blocking=is_blocking,
            arrays=arrays,
        )

    def memset(self, value: int, size: int) -> None:
        """Set each of `size` bytes to `value`, in the legacy default stream."""
        refuse_in_capture("synchronous API calls")
        self.memset_async(value, size, Stream.null)

    def memset_async(self, value: int, size: int, stream: _BaseStream | None = None) -> None:
        """Set each of `size` bytes to `value` in `stream` (default: the current stream)."""
        self._check_range(size)
        if size <= 0:
            return
        target_bytes = self._view_bytes(size)
        memory = self.mem.owner.memory

        def fill_bytes() -> None:
            if value:
                target_bytes[:] = value & 0xFF
            else:
                memory.zero(address_of(target_bytes), size)

        enqueue_memset(fill_bytes, target_bytes, self.mem.owner, stream)
