"""Base classes of the kernel arguments that refer to device memory, for checks without importing ``cp``."""

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
    """A texture or surface object: the handle that kernels take (``ptr``), and its memory."""

    ptr: int
    device: VirtualDevice
    address: int
    size_bytes: int


def other_machine_error(owner: VirtualDevice) -> ValueError:
    """Return the error for an array of a machine that is no longer used."""
    return ValueError(
        f"The array lives on {owner.info.name}, which is no longer the selected device; create it again."
    )
