"""CUDA runtime functions for devices: current device, properties, limits, PCI addresses, peer access."""

from __future__ import annotations

import re
from typing import Any

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.records.device.attributes import ATTRIBUTES

# The CUDA version whose rules the virtual GPU follows; the compiler's is in cp.cuda.nvrtc.
VIRTUAL_CUDA_VERSION = 13000

# Properties that consist of several sizes, and the suffixes of their attributes.
_TEXTURE_EXTENT_NAMES = {
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
_PCI_ADDRESS_PATTERN = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.0)?", re.I)

# cudaLimit (driver_types.h).
_STACK_SIZE_LIMIT = 0
_PRINTF_FIFO_SIZE_LIMIT = 1
_MALLOC_HEAP_SIZE_LIMIT = 2


def getDeviceCount() -> int:  # noqa: N802
    """Return the number of virtual GPUs."""
    return len(_machine.current().devices)


def getDevice() -> int:  # noqa: N802
    """Return the number of the calling thread's current device."""
    return _machine.current().current_device_id


def setDevice(device: int) -> None:  # noqa: N802
    """Set the calling thread's current device. An unknown device number raises error 101."""
    _machine.current().current_device_id = device


def runtimeGetVersion() -> int:  # noqa: N802
    """Return the CUDA version that the virtual GPU emulates, as 1000 x major + 10 x minor."""
    return VIRTUAL_CUDA_VERSION


def driverGetVersion() -> int:  # noqa: N802
    """Return the driver version of the virtual GPU, as 1000 x major + 10 x minor."""
    return VIRTUAL_CUDA_VERSION


def deviceGetLimit(limit: int) -> int:  # noqa: N802
    """Return a limit of the current device in bytes. The limit 0 is the stack size, 1 the ``printf`` buffer
    size and 2 the heap size.
    """
    memory = _machine.current().current_device.memory
    limits = {
        _STACK_SIZE_LIMIT: 1024,
        _PRINTF_FIFO_SIZE_LIMIT: 1 << 20,
        _MALLOC_HEAP_SIZE_LIMIT: memory.heap_bytes,
    }
    if limit not in limits:
        raise _make_unsupported_limit_error(limit)
    return limits[limit]


def deviceSetLimit(limit: int, value: int) -> None:  # noqa: N802
    """Set a limit of the current device. Only the heap size (limit 2) has an effect.

    The stack and the ``printf`` buffer grow automatically on the virtual GPU.

    Raises
    ------
    CUDARuntimeError
        Status 1 after a kernel has used the heap; 215 for an unknown limit.
    """
    if limit not in (_STACK_SIZE_LIMIT, _PRINTF_FIFO_SIZE_LIMIT, _MALLOC_HEAP_SIZE_LIMIT):
        raise _make_unsupported_limit_error(limit)
    if limit == _MALLOC_HEAP_SIZE_LIMIT:
        _machine.current().current_device.memory.heap_bytes = int(value)


def _make_unsupported_limit_error(limit: int) -> CUDARuntimeError:
    return CUDARuntimeError(
        215,
        "cudaErrorUnsupportedLimit",
        f"limit is not supported on this architecture: {limit}; 0 is the stack, 1 the printf buffer, 2 the "
        "device heap.",
    )


def memGetInfo() -> tuple[int, int]:  # noqa: N802
    """Return the free and total memory of the current device in bytes."""
    memory = _machine.current().current_device.memory
    return memory.free_bytes, memory.capacity_bytes


def getDeviceProperties(device: int) -> dict[str, Any]:  # noqa: N802
    """Return the properties of a device in a dictionary with CuPy's keys.

    Clock rates are in kHz and sizes are in bytes. Properties without a specification, such as the identity of
    a chip, are left out.
    """
    info = _machine.current().device(device).info
    attribute_values = {attribute.name: attribute.find_value(info) for attribute in ATTRIBUTES}
    texture_sizes = {
        f"max{texture_kind}": tuple(
            attribute_values[f"Max{texture_kind}{axis_name}"] for axis_name in axis_names
        )
        for texture_kind, axis_names in _TEXTURE_EXTENT_NAMES.items()
    }
    return {
        "name": info.name.encode(),
        "totalGlobalMem": info.memory_bytes,
        "maxThreadsDim": info.max_block_dim,
        "maxGridSize": info.max_grid_dim,
        "deviceOverlap": int(bool(info.copy_engines)),
        **texture_sizes,
        **_find_pci_address(device),
        **{attribute.property: attribute.find_value(info) for attribute in ATTRIBUTES if attribute.property},
    }


def deviceGetAttribute(attrib: int, device: int) -> int:  # noqa: N802
    """Return a device attribute by its CUDA number. An unknown attribute raises error 1."""
    info = _machine.current().device(device).info
    pci_values = dict(zip(_PCI_ATTRIBUTES, _find_pci_address(device).values(), strict=True))
    attribute_value = next(
        (attribute.find_value(info) for attribute in ATTRIBUTES if attribute.number == attrib),
        pci_values.get(attrib),
    )
    if attribute_value is None:
        raise CUDARuntimeError(
            1,
            "cudaErrorInvalidValue",
            f"invalid argument: the virtual GPU does not model device attribute {attrib}; "
            "cp.cuda.Device().attributes lists the supported attributes.",
        )
    return attribute_value


# PCI addresses: each virtual GPU has its own bus, in the order of the device numbers.


def _find_pci_address(device: int) -> dict[str, int]:
    _machine.current().device(device)
    return {"pciBusID": device + 1, "pciDeviceID": 0, "pciDomainID": 0}


def deviceGetPCIBusId(device: int) -> str:  # noqa: N802
    """Return the PCI address of a device. Each virtual GPU has its own bus number."""
    bus_number, slot_number, domain_number = _find_pci_address(device).values()
    return f"{domain_number:04X}:{bus_number:02X}:{slot_number:02X}.0"


def deviceGetByPCIBusId(pciBusId: str) -> int:  # noqa: N802, N803
    """Return the number of the device with a PCI address, such as ``"0000:01:00.0"``.

    Raises
    ------
    CUDARuntimeError
        Status 1 for a text that is not an address; 101 if no device has it.
    """
    match = _PCI_ADDRESS_PATTERN.fullmatch(pciBusId)
    if match is None:
        raise CUDARuntimeError(
            1,
            "cudaErrorInvalidValue",
            f"invalid argument: {pciBusId!r} is not a PCI address of the form domain:bus:device.function, "
            "each in hexadecimal.",
        )
    domain_number, bus_number, slot_number = (int(number_text or "0", 16) for number_text in match.groups())
    for device_id in range(getDeviceCount()):
        if tuple(_find_pci_address(device_id).values()) == (bus_number, slot_number, domain_number):
            return device_id
    addresses = ", ".join(map(deviceGetPCIBusId, range(getDeviceCount())))
    raise CUDARuntimeError(
        101, "cudaErrorInvalidDevice", f"invalid device ordinal: {pciBusId} is not one of {addresses}."
    )


# Peers


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:  # noqa: N802, N803
    """Return 1 if kernels on one device can access another device's memory over a link, and else 0."""
    machine = _machine.current()
    return int(machine.links.can_access(machine.device(device).id, machine.device(peerDevice).id))


def deviceEnablePeerAccess(peerDevice: int) -> None:  # noqa: N802, N803
    """Allow the current device to access the memory of another device over a link.

    Raises
    ------
    CUDARuntimeError
        Status 704 if it is enabled already, 217 if no link joins the devices, 101 for the device itself.
    """
    machine = _machine.current()
    device = machine.current_device_id
    peer = machine.device(peerDevice).id
    if not machine.links.enable_access(device, peer):
        raise CUDARuntimeError(
            704,
            "cudaErrorPeerAccessAlreadyEnabled",
            f"peer access is already enabled: from device {device} to {peer}.",
        )


def deviceDisablePeerAccess(peerDevice: int) -> None:  # noqa: N802, N803
    """Disable access from the current device to another device. If access is not enabled, error 705 is
    raised.
    """
    machine = _machine.current()
    device = machine.current_device_id
    peer = machine.device(peerDevice).id
    if not machine.links.disable_access(device, peer):
        raise CUDARuntimeError(
            705,
            "cudaErrorPeerAccessNotEnabled",
            f"peer access has not been enabled: from device {device} to {peer}.",
        )
