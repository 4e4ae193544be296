"""Detection of synchronizations that a program has forbidden (``cupyx.allow_synchronize``)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from virtualgpu.model import machine as _machine


class DeviceSynchronized(RuntimeError):
    """Error raised if the program synchronizes where it has forbidden synchronization."""

    def __init__(self, message: str = "Device synchronization was detected while disallowed.") -> None:
        super().__init__(message)


@contextmanager
def allow_synchronize(allow: bool) -> Iterator[None]:
    """Allow or forbid synchronization of this thread with the device in a ``with`` block.

    As in CuPy, only ``ndarray.get()`` and ``Device.synchronize()`` are detected, also in indirect calls such
    as ``float(x)``. An asynchronous ``get(blocking=False)`` is detected although it does not wait, and
    ``Stream.synchronize()`` is not although it waits.
    """
    warnings.warn(
        "cupyx.allow_synchronize will be removed in future releases as it is not possible to reliably "
        "detect synchronizations.",
        stacklevel=3,
    )
    thread = _machine.current().thread_state
    previous_setting = getattr(thread, "may_synchronize", True)
    thread.may_synchronize = allow
    try:
        yield
    finally:
        thread.may_synchronize = previous_setting


def declare_synchronize() -> None:
    """Raise an error if the program has forbidden synchronization. Every blocking call starts with this
    check.

    Raises
    ------
    DeviceSynchronized
        If `allow_synchronize` does not allow it.
    """
    if not getattr(_machine.current().thread_state, "may_synchronize", True):
        raise DeviceSynchronized
