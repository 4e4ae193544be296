"""Base classes of kernel arguments in device memory, so that they are recognized without importing ``cp``."""

from __future__ import annotations

from virtualgpu.model.machine import VirtualDevice


class DeviceArray:
    """An array in device memory, such as ``cp.ndarray``."""

    __slots__ = ()


class DevicePointer:
    """A pointer such as ``cp.cuda.MemoryPointer``; ``ptr`` is the device address."""

    __slots__ = ()

    ptr: int


class TextureHandle:
    """A texture or surface object: the handle that kernels receive (``ptr``), and the object's memory."""

    ptr: int
    device: VirtualDevice
    address: int
    size_bytes: int


def other_machine_error(owner: VirtualDevice) -> ValueError:
    """Return the error for an array whose virtual machine is no longer the current one."""
    return ValueError(
        f"The array is on {owner.info.name}, which is no longer the selected device. Create it again."
    )
