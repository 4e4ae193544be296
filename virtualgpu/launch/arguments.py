"""Base classes of kernel arguments in device memory, so that they are recognized without importing ``cp``."""

from __future__ import annotations

from virtualgpu.model.machine import VirtualDevice


class DeviceArray:
    """An array in device memory, such as ``cp.ndarray``."""

    __slots__ = ()


class DevicePointer:
    """A pointer to device memory, such as ``cp.cuda.MemoryPointer``. The attribute ``ptr`` is the address."""

    __slots__ = ()

    ptr: int


class TextureHandle:
    """A texture or surface object with its memory. The attribute ``ptr`` is the handle that kernels
    receive.
    """

    ptr: int
    device: VirtualDevice
    address: int
    size_bytes: int


def make_other_machine_error(owner: VirtualDevice) -> ValueError:
    """Return the error for an array that belongs to an earlier virtual machine."""
    return ValueError(
        f"The array is on {owner.info.name}, which is no longer the selected device. Create it again."
    )
