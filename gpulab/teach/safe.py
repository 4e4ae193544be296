"""Another device for a moment: the virtual GPU for programs that are meant to crash, or a named one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpulab import session


def virtual_cp() -> Any:
    """The virtual GPU's array module, on a real GPU too.

    One illegal access on a real GPU makes the whole CUDA context unusable. The virtual GPU stops the
    kernel, says where, and lives. On a real device the virtual one takes over that device's limits.
    """
    twin = session.twin()
    return session.cp() if twin is None else twin.cp


@contextmanager
def on_device(device: str, count: int = 1) -> Iterator[Any]:
    """Use another device for a moment: ``with on_device("virtual:T4", count=2) as cp: ...``.

    The device before, with its arrays, is back in use at the end. Make new arrays inside.

    Raises
    ------
    UnknownDeviceError
        If no GPU has that name; the message suggests the nearest.
    """
    with session.on_device(device, count) as module:
        yield module
