"""The history of writes to one element of an array, on the virtual device in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpulab.session import current
from virtualgpu.errors import NotSupportedError
from virtualgpu.records.faults.history import ElementHistory


def record_element_history(element: Any, name: str, function: Callable[[], Any]) -> ElementHistory:
    """Call a function, and return all writes to one array element during the call.

    Raises
    ------
    NotSupportedError
        On a real GPU, whose kernels cannot be watched.
    """
    if current.real_cp() is not None:
        raise NotSupportedError(
            "A real GPU does not record the writes to an element. Select a virtual GPU with "
            'gl.use_device("virtual"), create the arrays there, and call gl.who_wrote '
            "again."
        )
    from virtualgpu.sanitizer.history import record_history

    backend = current.virtual_side()
    device = backend.machine.devices[element.device.id]
    history, error = record_history(device, element.data.ptr, element.dtype, function)
    return ElementHistory(
        provenance=backend.provenance,
        element=name,
        writes=tuple(history.writes),
        launches=history.launch_count,
        left_out=history.write_count + 1 - len(history.writes),
        error="" if error is None else f"{type(error).__name__}: {error}",
    )
