"""Where an address lies, as ``cudaPointerGetAttributes`` tells it, and ranges of managed memory."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.cp.cuda._memory.copies import device_at
from virtualgpu.cp.cuda.pinned_memory import is_memory_pinned
from virtualgpu.cp.cuda.stream import refuse_unsafe
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice

# cudaMemoryType (driver_types.h).
UNREGISTERED, HOST, DEVICE, MANAGED = 0, 1, 2, 3
INVALID_DEVICE = -2
_ADVICE = range(1, 7)
_LOCATED_ADVICE = (3, 5, 6)  # those that mean a device: preferred location, accessed by


@dataclass
class PointerAttributes:
    """Where an address lies: `type` of memory, `device`, and the address for kernels and for the host."""

    device: int
    devicePointer: int  # noqa: N815
    hostPointer: int  # noqa: N815
    type: int = -1


def pointer_attributes(address: int) -> PointerAttributes:
    """What CUDA says of an address; of memory that it does not know, type 0 and device -2."""
    device = device_at(address)
    start = device.memory.segment(address)[0] if device else 0
    if device and start:
        if start in device.memory.managed:
            return PointerAttributes(device.id, address, address, MANAGED)
        return PointerAttributes(device.id, address, 0, DEVICE)
    if address and is_memory_pinned(address):
        return PointerAttributes(_machine.current().current_device_id, address, address, HOST)
    return PointerAttributes(INVALID_DEVICE, 0, address, UNREGISTERED)


def is_managed(address: int) -> bool:
    """Whether host and device may both use an address."""
    return pointer_attributes(address).type == MANAGED


def take_managed(size: int, owner: VirtualDevice) -> int:
    """Address of `size` bytes of managed memory of a device.

    Raises
    ------
    CUDARuntimeError
        Status 2, ``cudaErrorMemoryAllocation``, for more than the device has free: a GPU would take it and
        may hang once it is touched.
    """
    refuse_unsafe()
    free = owner.memory.free_bytes
    if size > free:
        raise CUDARuntimeError(
            2,
            "cudaErrorMemoryAllocation",
            f"out of memory: {size:,} bytes of managed memory asked, {free:,} bytes free on the device; more "
            "than is free is refused here, since it can hang a GPU.",
        )
    address = owner.memory.malloc(size)
    if address:
        owner.memory.managed.add(address)
        owner.memory.track(address, size, f"managed memory of {size:,} bytes")
    return address


def check_prefetch(address: int, size_bytes: int, device_id: int) -> None:
    """Make sure that ``cudaMemPrefetchAsync`` would take these.

    Raises
    ------
    CUDARuntimeError
        Status 1 unless the range is managed; 101 for a number of no device, the host's -1 included.
    """
    _check_managed(address, size_bytes)
    _machine.current().device(device_id)


def check_advice(address: int, size_bytes: int, advice: int, device_id: int) -> None:
    """Make sure that ``cudaMemAdvise`` would take these.

    Raises
    ------
    CUDARuntimeError
        Status 1 unless the range is managed, `advice` is one of the six and the device is there.
    """
    _check_managed(address, size_bytes)
    if advice not in _ADVICE:
        raise _invalid(f"{advice} is no advice about memory; cudaMemAdvise... are 1 to 6.")
    if advice in _LOCATED_ADVICE and not 0 <= device_id < len(_machine.current().devices):
        raise _invalid(f"advice {advice} names a device, and {device_id} is none.")


def _check_managed(address: int, size_bytes: int) -> None:
    if size_bytes <= 0:
        raise _invalid(f"{size_bytes} bytes: a range of managed memory has at least one.")
    if not is_managed(address):
        raise _invalid(f"{address:#x} is not in managed memory; cp.cuda.malloc_managed allocates it.")
    device = device_at(address)
    assert device is not None
    device.memory.check(address, size_bytes)


def _invalid(why: str) -> CUDARuntimeError:
    return CUDARuntimeError(1, "cudaErrorInvalidValue", f"invalid argument: {why}")
