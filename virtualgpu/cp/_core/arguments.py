"""What functions of device arrays accept: arrays of the right device, and values of a fused function."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from virtualgpu.model.machine import VirtualDevice, current

if TYPE_CHECKING:
    from virtualgpu.cp._core.host_access import HostAccess


class Traceable:
    """A value without contents that a fused function computes with; functions hand it their arguments."""

    __slots__ = ()

    def fused_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note a call of the function ``cp.<name>``."""
        raise NotImplementedError(name)


def check_device(array: HostAccess, device: VirtualDevice | None = None) -> None:
    """Let a kernel of `device` (the current one by default) have an array, wherever it lies, as CuPy does.

    On another device that a link joins, peer access is turned on, with a ``PerformanceWarning``.

    Raises
    ------
    ValueError
        CuPy's, where no link joins the devices; or for an array of a machine that is gone.
    """
    owner = array._mem.owner
    device = device or current().current_device
    if owner is device or not array._mem.ptr:
        return
    if owner.machine is not device.machine:
        raise ValueError(
            f"The array lives on {owner.info.name}, which is no longer the selected device; create it again."
        )
    where = (
        f"The device where the array resides ({owner.id}) is different from the current device ({device.id})."
    )
    links = device.machine.links
    if not links.can_access(device.id, owner.id):
        raise ValueError(
            f"{where} Peer access is unavailable between these devices. "
            f"Work inside `with cp.cuda.Device({owner.id}):`, or copy the array with cp.asarray."
        )
    links.enable(device.id, owner.id)
    warnings.warn(f"{where} Peer access has been activated automatically.", PerformanceWarning, stacklevel=4)


class PerformanceWarning(RuntimeWarning):
    """CuPy's: what works, but slowly."""


def unsupported(value: object) -> TypeError:
    """CuPy's error for an operand that is not on the device, with the remedy."""
    text = f"Unsupported type {type(value)}"
    if isinstance(value, np.ndarray):
        text += ": a NumPy array lies in host memory; cp.asarray(x) copies it to the device."
    elif isinstance(value, (list, tuple, range)):
        text += f": make a device array of the {type(value).__name__} first, with cp.asarray(x)."
    return TypeError(text)
