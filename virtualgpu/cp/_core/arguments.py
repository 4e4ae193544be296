"""Checks of function arguments: whether an array is on the right device, and tracing by `cp.fuse`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from virtualgpu.launch.arguments import make_other_machine_error
from virtualgpu.model.machine import VirtualDevice, current

if TYPE_CHECKING:
    from virtualgpu.cp._core.host_access import HostAccess


class Traceable:
    """Base class of the placeholders that record a function's operations for `cp.fuse`.

    A function of ``cp`` that receives a placeholder lets the placeholder record the call.
    """

    __slots__ = ()

    def fused_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of the function ``cp.<name>`` in a fused function."""
        raise NotImplementedError(name)


def check_device(array: HostAccess, device: VirtualDevice | None = None) -> None:
    """Check that kernels on `device` can access the memory of an array. The default device is the current
    one.

    If a link joins the array's device to `device`, peer access is enabled, with a ``PerformanceWarning``.

    Raises
    ------
    ValueError
        If no link joins the devices (CuPy's error), or the array belongs to a machine that is no longer
        used.
    """
    owner_device = array._mem.owner
    device = device or current().current_device
    if owner_device is device or not array._mem.ptr:
        return
    if owner_device.machine is not device.machine:
        raise make_other_machine_error(owner_device)
    location_sentence = (
        f"The device where the array resides ({owner_device.id}) is different from the current device "
        f"({device.id})."
    )
    links = device.machine.links
    if not links.can_access(device.id, owner_device.id):
        raise ValueError(
            f"{location_sentence} Peer access is unavailable between these devices. Use the array "
            f"inside `with cp.cuda.Device({owner_device.id}):`, or copy the array with "
            "cp.asarray."
        )
    links.enable_access(device.id, owner_device.id)
    warnings.warn(
        f"{location_sentence} Peer access has been activated automatically.", PerformanceWarning, stacklevel=4
    )


class PerformanceWarning(RuntimeWarning):
    """Warning about an operation that works but is slow, with CuPy's class name."""


def make_type_error(value: object) -> TypeError:
    """Return CuPy's ``TypeError`` for an argument that is not a device array. The message suggests how to
    convert it.
    """
    message = f"Unsupported type {type(value)}"
    if isinstance(value, np.ndarray):
        message += ": a NumPy array is in host memory; cp.asarray(x) copies it to the device."
    elif isinstance(value, (list, tuple, range)):
        message += f": convert the {type(value).__name__} to a device array with cp.asarray(x)."
    return TypeError(message)
