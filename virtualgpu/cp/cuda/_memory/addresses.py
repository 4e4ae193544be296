"""Attributes of memory addresses (``cudaPointerGetAttributes``), and operations on managed memory."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.cp.cuda._memory.copies import find_device_at
from virtualgpu.cp.cuda.pinned_memory import is_memory_pinned
from virtualgpu.cp.cuda.stream import _BaseStream, refuse_unsafe_in_capture
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import bus
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.managed import ManagedPages

# cudaMemoryType (driver_types.h).
UNREGISTERED_MEMORY = 0
HOST_MEMORY = 1
DEVICE_MEMORY = 2
MANAGED_MEMORY = 3
INVALID_DEVICE = -2
_ADVICE_CODES = range(1, 7)
_READ_MOSTLY = 1
_NOT_READ_MOSTLY = 2
_DEVICE_ADVICE = (3, 5, 6)  # advice that names a device: preferred location, accessed by


@dataclass
class PointerAttributes:
    """The attributes of a pointer, such as its memory type, its device and its addresses."""

    device: int
    devicePointer: int  # noqa: N815
    hostPointer: int  # noqa: N815
    type: int = -1


def read_pointer_attributes(address: int) -> PointerAttributes:
    """Return the attributes of a memory address. For an address that CUDA does not know, the memory type is 0
    and the device is -2.
    """
    device = find_device_at(address)
    allocation_start = device.memory.find_segment(address)[0] if device else 0
    if device and allocation_start:
        if allocation_start in device.memory.managed_pages:
            return PointerAttributes(device.id, address, address, MANAGED_MEMORY)
        return PointerAttributes(device.id, address, 0, DEVICE_MEMORY)
    if address and is_memory_pinned(address):
        return PointerAttributes(_machine.current().current_device_id, address, address, HOST_MEMORY)
    return PointerAttributes(INVALID_DEVICE, 0, address, UNREGISTERED_MEMORY)


def is_managed(address: int) -> bool:
    """Return whether an address is in managed memory, which host and device can both access."""
    return read_pointer_attributes(address).type == MANAGED_MEMORY


def allocate_managed(size: int, owner: VirtualDevice) -> int:
    """Allocate `size` bytes of managed memory for a device, and return the address.

    Raises
    ------
    CUDARuntimeError
        Status 2, ``cudaErrorMemoryAllocation``, for more than the free memory of the device. A GPU would
        allocate it, and can hang when it is accessed.
    """
    refuse_unsafe_in_capture()
    free_bytes = owner.memory.free_bytes
    if size > free_bytes:
        raise CUDARuntimeError(
            2,
            "cudaErrorMemoryAllocation",
            f"out of memory: {size:,} bytes of managed memory requested, {free_bytes:,} bytes "
            "free on the device. The virtual GPU does not allocate more than the free "
            "memory, because a kernel that accesses all of it can hang a real GPU.",
        )
    address = owner.memory.malloc(size)
    if address:
        owner.memory.managed_pages[address] = ManagedPages(size)
        owner.memory.track_allocation(address, size, f"managed memory of {size:,} bytes")
    return address


def prefetch_managed(address: int, size_bytes: int, device_id: int, stream: _BaseStream) -> None:
    """Move a range of managed memory to a device, in stream order, like ``cudaMemPrefetchAsync``.

    Raises
    ------
    CUDARuntimeError
        Status 1 unless the range is managed; 101 for an invalid device number, including -1 (the host).
    """
    device, allocation_start, managed_pages = _find_managed_range(address, size_bytes)
    _machine.current().device(device_id)

    moved_pages = managed_pages.move_to_device(address - allocation_start, size_bytes)
    duration_ns = bus.prefetch_ns(device.info, "HtoD", moved_pages)
    stream.enqueue(
        "MEMCPY",
        "Memprefetch HtoD",
        lambda: duration_ns,
        device=device,
        size_bytes=moved_pages.copied_bytes,
        copy_kind="HtoD",
    )


def advise_managed(address: int, size_bytes: int, advice: int, device_id: int) -> None:
    """Advise the driver about the use of managed memory, like ``cudaMemAdvise``. Only the advice "read
    mostly" has an effect on the virtual GPU.

    Raises
    ------
    CUDARuntimeError
        Status 1 unless the range is managed, `advice` is valid and the device exists.
    """
    managed_pages = _find_managed_range(address, size_bytes)[2]
    if advice not in _ADVICE_CODES:
        raise _make_invalid_value_error(
            f"{advice} is not a valid memory advice. The values of cudaMemAdvise... are 1 to 6."
        )
    if advice in _DEVICE_ADVICE and not 0 <= device_id < len(_machine.current().devices):
        raise _make_invalid_value_error(
            f"advice {advice} needs the number of a device, but no device has the number {device_id}."
        )
    if advice in (_READ_MOSTLY, _NOT_READ_MOSTLY):
        managed_pages.advise(advice == _READ_MOSTLY)


def move_to_host(address: int, size_bytes: int) -> None:
    """Move a range of managed memory to the host, and wait for the transfer."""
    device, allocation_start, managed_pages = _find_managed_range(address, size_bytes)
    bus.migrate_to_host(device, managed_pages, address - allocation_start, size_bytes)


def _find_managed_range(address: int, size_bytes: int) -> tuple[VirtualDevice, int, ManagedPages]:
    """Return the device, the start of the allocation and its pages for a range of managed memory."""
    if size_bytes <= 0:
        raise _make_invalid_value_error(
            f"the size of the range is {size_bytes} bytes, but it must be at least 1 byte."
        )
    if not is_managed(address):
        raise _make_invalid_value_error(
            f"{address:#x} is not in managed memory. Allocate the memory with cp.cuda.malloc_managed."
        )
    device = find_device_at(address)
    assert device is not None
    device.memory.check_range(address, size_bytes)
    allocation_start = device.memory.find_segment(address)[0]
    return device, allocation_start, device.memory.managed_pages[allocation_start]


def _make_invalid_value_error(reason: str) -> CUDARuntimeError:
    return CUDARuntimeError(1, "cudaErrorInvalidValue", f"invalid argument: {reason}")
