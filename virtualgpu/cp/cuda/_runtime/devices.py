"""What the CUDA runtime tells of the virtual machine's devices, and which of them is current."""

from __future__ import annotations

import re
from typing import Any

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.records.device.attributes import ATTRIBUTES

# The CUDA version whose rules the virtual GPU follows; the compiler's is in cp.cuda.nvrtc.
VIRTUAL_CUDA_VERSION = 13000

# Properties of several sizes, and the attributes that give them.
_SIZES = {
    "Texture2D": ("Width", "Height"),
    "Texture3D": ("Width", "Height", "Depth"),
    "Texture1DLayered": ("Width", "Layers"),
    "Texture2DLayered": ("Width", "Height", "Layers"),
    "Texture2DLinear": ("Width", "Height", "Pitch"),
    "Surface2D": ("Width", "Height"),
    "Surface3D": ("Width", "Height", "Depth"),
    "Surface1DLayered": ("Width", "Layers"),
    "Surface2DLayered": ("Width", "Height", "Layers"),
}
_PCI_ATTRIBUTES = (33, 34, 50)  # bus, device, domain
_PCI_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.0)?", re.I)

# cudaLimit (driver_types.h).
_STACK_SIZE = 0
_PRINTF_FIFO_SIZE = 1
_MALLOC_HEAP_SIZE = 2


def getDeviceCount() -> int:  # noqa: N802
    """Number of virtual GPUs."""
    return len(_machine.current().devices)


def getDevice() -> int:  # noqa: N802
    """Number of the calling thread's current device."""
    return _machine.current().current_device_id


def setDevice(device: int) -> None:  # noqa: N802
    """Choose the calling thread's current device; an unknown number is error 101."""
    _machine.current().current_device_id = device


def runtimeGetVersion() -> int:  # noqa: N802
    """CUDA version that the virtual GPU follows, as 1000 x major + 10 x minor."""
    return VIRTUAL_CUDA_VERSION


def driverGetVersion() -> int:  # noqa: N802
    """Driver version of the virtual GPU, as 1000 x major + 10 x minor."""
    return VIRTUAL_CUDA_VERSION


def deviceGetLimit(limit: int) -> int:  # noqa: N802
    """A ``cudaLimit`` of the current device: 0 stack, 1 ``printf`` buffer, 2 device heap, each in bytes."""
    memory = _machine.current().current_device.memory
    limits = {_STACK_SIZE: 1024, _PRINTF_FIFO_SIZE: 1 << 20, _MALLOC_HEAP_SIZE: memory.heap_bytes}
    if limit not in limits:
        raise _unsupported_limit(limit)
    return limits[limit]


def deviceSetLimit(limit: int, value: int) -> None:  # noqa: N802
    """Set the size of the device heap (2). Stack and ``printf`` buffer grow by themselves here.

    Raises
    ------
    CUDARuntimeError
        Status 1 once a kernel has used the heap; 215 for a limit that there is not.
    """
    if limit not in (_STACK_SIZE, _PRINTF_FIFO_SIZE, _MALLOC_HEAP_SIZE):
        raise _unsupported_limit(limit)
    if limit == _MALLOC_HEAP_SIZE:
        _machine.current().current_device.memory.heap_bytes = int(value)


def _unsupported_limit(limit: int) -> CUDARuntimeError:
    return CUDARuntimeError(
        215,
        "cudaErrorUnsupportedLimit",
        f"limit is not supported on this architecture: {limit}; 0 is the stack, 1 the printf buffer, 2 the "
        "device heap.",
    )


def memGetInfo() -> tuple[int, int]:  # noqa: N802
    """Free and total memory of the current device in bytes."""
    memory = _machine.current().current_device.memory
    return memory.free_bytes, memory.capacity_bytes


def getDeviceProperties(device: int) -> dict[str, Any]:  # noqa: N802
    """Properties of a device under CuPy's keys. Clocks are in kHz, sizes in bytes; what no specification
    gives, such as the identity of a chip, is left out."""
    info = _machine.current().device(device).info
    facts = {known.name: known.of(info) for known in ATTRIBUTES}
    sizes = {
        f"max{kind}": tuple(facts[f"Max{kind}{side}"] for side in sides) for kind, sides in _SIZES.items()
    }
    return {
        "name": info.name.encode(),
        "totalGlobalMem": info.memory_bytes,
        "maxThreadsDim": info.max_block_dim,
        "maxGridSize": info.max_grid_dim,
        "deviceOverlap": int(bool(info.copy_engines)),
        **sizes,
        **_pci(device),
        **{known.property: known.of(info) for known in ATTRIBUTES if known.property},
    }


def deviceGetAttribute(attrib: int, device: int) -> int:  # noqa: N802
    """One attribute of a device by CUDA's number; unknown numbers are error 1."""
    info = _machine.current().device(device).info
    place = dict(zip(_PCI_ATTRIBUTES, _pci(device).values(), strict=True))
    found = next((known.of(info) for known in ATTRIBUTES if known.number == attrib), place.get(attrib))
    if found is None:
        raise CUDARuntimeError(
            1,
            "cudaErrorInvalidValue",
            f"invalid argument: the virtual GPU does not model device attribute {attrib}; "
            "cp.cuda.Device().attributes lists those it does.",
        )
    return found


# PCI addresses: the virtual GPUs have a bus each, in the order of their numbers


def _pci(device: int) -> dict[str, int]:
    _machine.current().device(device)
    return {"pciBusID": device + 1, "pciDeviceID": 0, "pciDomainID": 0}


def deviceGetPCIBusId(device: int) -> str:  # noqa: N802
    """The device's PCI address; virtual GPUs are made up to sit on a bus each."""
    bus, slot, domain = _pci(device).values()
    return f"{domain:04X}:{bus:02X}:{slot:02X}.0"


def deviceGetByPCIBusId(pciBusId: str) -> int:  # noqa: N802, N803
    """Number of the device with a PCI address, such as ``"0000:01:00.0"``.

    Raises
    ------
    CUDARuntimeError
        Status 1 for what is no such address; 101 where no device has it.
    """
    found = _PCI_ADDRESS.fullmatch(pciBusId)
    if found is None:
        raise CUDARuntimeError(
            1,
            "cudaErrorInvalidValue",
            f"invalid argument: {pciBusId!r} is no PCI address of the form domain:bus:device.function, each "
            "in hexadecimal.",
        )
    domain, bus, slot = (int(part or "0", 16) for part in found.groups())
    for number in range(getDeviceCount()):
        if tuple(_pci(number).values()) == (bus, slot, domain):
            return number
    there = ", ".join(map(deviceGetPCIBusId, range(getDeviceCount())))
    raise CUDARuntimeError(
        101, "cudaErrorInvalidDevice", f"invalid device ordinal: {pciBusId} is none of {there}."
    )


# Peers


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:  # noqa: N802, N803
    """1 if a link lets kernels of a device reach the other's memory, else 0; 0 also for itself."""
    machine = _machine.current()
    return int(machine.links.can_access(machine.device(device).id, machine.device(peerDevice).id))


def deviceEnablePeerAccess(peerDevice: int) -> None:  # noqa: N802, N803
    """Let kernels of the current device reach a peer's memory, and copies between the two take the link.

    Raises
    ------
    CUDARuntimeError
        Status 704 if it is enabled already, 217 where no link joins them, 101 for the device itself.
    """
    machine = _machine.current()
    here = machine.current_device_id
    peer = machine.device(peerDevice).id
    if not machine.links.enable(here, peer):
        raise CUDARuntimeError(
            704,
            "cudaErrorPeerAccessAlreadyEnabled",
            f"peer access is already enabled: from device {here} to {peer}.",
        )


def deviceDisablePeerAccess(peerDevice: int) -> None:  # noqa: N802, N803
    """End what `deviceEnablePeerAccess` began for the current device; error 705 if nothing did."""
    machine = _machine.current()
    here = machine.current_device_id
    peer = machine.device(peerDevice).id
    if not machine.links.disable(here, peer):
        raise CUDARuntimeError(
            705,
            "cudaErrorPeerAccessNotEnabled",
            f"peer access has not been enabled: from device {here} to {peer}.",
        )
