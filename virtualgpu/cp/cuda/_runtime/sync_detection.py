"""Synchronisations that a program has forbidden itself: behind ``cupyx.allow_synchronize``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from virtualgpu.model import machine as _machine


class DeviceSynchronized(RuntimeError):
    """A synchronisation where the program has forbidden it."""

    def __init__(self, message: str = "Device synchronization was detected while disallowed.") -> None:
        super().__init__(message)


@contextmanager
def allow_synchronize(allow: bool) -> Iterator[None]:
    """Allow or forbid this thread to synchronise with the device, for one block.

    As in CuPy, only ``ndarray.get()``, with all that is built on it such as ``float(x)`` and ``print(x)``,
    and ``Device.synchronize()`` are noticed: an asynchronous ``get(blocking=False)``, too, which does not
    wait, and not ``Stream.synchronize()``, which does.
    """
    warnings.warn(
        "cupyx.allow_synchronize will be removed in future releases as it is not possible to reliably "
        "detect synchronizations.",
        stacklevel=3,
    )
    thread = _machine.current().thread
    before = getattr(thread, "may_synchronize", True)
    thread.may_synchronize = allow
    try:
        yield
    finally:
        thread.may_synchronize = before


def declare_synchronize() -> None:
    """Say that a call is going to synchronise.

    Raises
    ------
    DeviceSynchronized
        If `allow_synchronize` forbids it.
    """
    if not getattr(_machine.current().thread, "may_synchronize", True):
        raise DeviceSynchronized
