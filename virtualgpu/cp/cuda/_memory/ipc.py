"""Functions that share memory and events between processes, which virtual GPUs do not support."""

from __future__ import annotations

from virtualgpu.cuda_errors import CUDARuntimeError


def _make_unsupported_error(shared_object: str) -> CUDARuntimeError:
    return CUDARuntimeError(
        801,
        "cudaErrorNotSupported",
        f"operation not supported: {shared_object} of a virtual GPU cannot be shared with other processes. "
        "Pass x.get() between processes, or use multiprocessing.shared_memory.",
    )


def ipcGetMemHandle(devPtr: int) -> bytes:  # noqa: N802, N803
    """Raise error 801, because no other process can access the memory of a virtual GPU."""
    raise _make_unsupported_error("memory")


def ipcOpenMemHandle(handle: bytes, flags: int = 1) -> int:  # noqa: N802
    """Raise error 801, as `ipcGetMemHandle` does."""
    raise _make_unsupported_error("memory")


def ipcCloseMemHandle(devPtr: int) -> None:  # noqa: N802, N803
    """Raise error 801, as `ipcGetMemHandle` does."""
    raise _make_unsupported_error("memory")


def ipcGetEventHandle(event: int) -> bytes:  # noqa: N802
    """Raise error 801, because no other process can wait for an event of a virtual GPU."""
    raise _make_unsupported_error("an event")


def ipcOpenEventHandle(handle: bytes) -> int:  # noqa: N802
    """Raise error 801, as `ipcGetEventHandle` does."""
    raise _make_unsupported_error("an event")
