"""CUDA's and CuPy's error types, which the virtual GPU raises.

Class names, ``status`` attributes and the first words of each message are CuPy's, so that code written for
CuPy catches the same errors. The rest of the message names the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TextIO

from virtualgpu.errors import FaultSite, GpulabError


class _PicklableError:
    """Base class of errors that are pickled with their message and attributes, not by their constructor."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_error, (type(self), self.args, self.__dict__)  # type: ignore[attr-defined]


def _rebuild_error(
    error_class: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any]
) -> Exception:
    error = error_class.__new__(error_class, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class CUDARuntimeError(_PicklableError, RuntimeError):
    """Error of the CUDA runtime, which has the same class name as in CuPy. The attribute ``status`` is the
    error code.
    """

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.status = status
        self.error_name = name


class CUDADriverError(_PicklableError, RuntimeError):
    """Error of the CUDA driver, which has the same class name as in CuPy. The attribute ``status`` is the
    error code.
    """

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.status = status
        self.error_name = name


class OutOfMemoryError(_PicklableError, MemoryError):
    """Error raised when a memory pool cannot allocate the requested memory. The argument `message` replaces
    the default message.
    """

    def __init__(self, size_bytes: int, total_bytes: int, limit_bytes: int = 0, message: str = "") -> None:
        default_message = f"Out of memory allocating {size_bytes:,} bytes"
        if limit_bytes or total_bytes != -1:
            default_message += f" (allocated so far: {total_bytes:,} bytes"
            default_message += f", limit set to: {limit_bytes:,} bytes)." if limit_bytes else ")."
        super().__init__(message or default_message)
        self.size_bytes = size_bytes
        self.total_bytes = total_bytes
        self.limit_bytes = limit_bytes


class CompileException(_PicklableError, Exception):
    """Error raised when source code does not compile. The error contains NVRTC's log with the line numbers of
    the program's source.
    """

    def __init__(self, log: str, source: str, name: str, options: tuple[str, ...] = ()) -> None:
        super().__init__(log)
        self.log = log
        self.source = source
        self.name = name
        self.options = options

    def __str__(self) -> str:
        return self.log

    def get_message(self) -> str:
        """Return the compiler's log."""
        return self.log

    def dump(self, f: TextIO) -> None:
        """Write the log, and the source with line numbers, to a file."""
        lines = self.source.split("\n")
        numbered_source = "".join(
            f"{n:0{len(str(len(lines)))}} {source_line.rstrip()}\n" for n, source_line in enumerate(lines, 1)
        )
        f.write(f"NVRTC compilation error: {self.log}\n-----\nName: {self.name}\n")
        f.write(f"Options: {' '.join(self.options)}\nCUDA source:\n{numbered_source}-----\n")


class KernelFault(CUDARuntimeError, GpulabError):
    """Error for a fault in a running kernel. The attribute ``site`` is the location of the fault.

    ``kind`` is a short name of the fault, and ``space`` the state space of an illegal access. ``array`` is
    the array in global memory that the access was meant for, or the nearest array.
    """

    kind = ""
    space = ""
    array = ""

    def __init__(self, status: int, name: str, message: str, site: FaultSite) -> None:
        super().__init__(status, name, message)
        self.site = site


class IllegalAddressError(KernelFault):
    """Error for an access outside every live allocation (cudaErrorIllegalAddress, 700)."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(700, "cudaErrorIllegalAddress", message, site)


class MisalignedAddressError(KernelFault):
    """Error for an address that is not a multiple of the access size (cudaErrorMisalignedAddress, 716)."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(716, "cudaErrorMisalignedAddress", message, site)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a kernel launch at the time when it was stopped.

    The field ``has_recent_finish`` states whether a block or thread finished shortly before the stop. The
    field ``has_recent_output`` states whether new values had been stored or printed shortly before. The field
    ``spent_s`` is the processor time of the launch.
    """

    ended_blocks: int
    block_count: int
    has_recent_finish: bool
    has_recent_output: bool
    spent_s: float

    @property
    def is_endless(self) -> bool:
        """Return whether the stopped launch was making no progress, as in an infinite loop."""
        return not (self.has_recent_finish or self.has_recent_output)


class LaunchTimeoutError(KernelFault):
    """Error for a kernel that the watchdog or the user has stopped (cudaErrorLaunchTimeout, 702)."""

    def __init__(self, message: str, site: FaultSite, progress: Progress | None = None) -> None:
        super().__init__(702, "cudaErrorLaunchTimeout", message, site)
        self.progress = progress


class DeviceAssertError(KernelFault):
    """Error for a failed ``assert`` in device code (cudaErrorAssert, 710)."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(710, "cudaErrorAssert", message, site)


class LaunchFailure(KernelFault):
    """Error for a fault such as a trap, a divergent barrier or a wrong mask (cudaErrorLaunchFailure, 719)."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(719, "cudaErrorLaunchFailure", message, site)


class NanProducedError(KernelFault):
    """Error for a NaN that a kernel computed while the check for NaN was enabled.

    CUDA has no such check, so the error has the error code of a launch failure.
    """

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(719, "cudaErrorLaunchFailure", message, site)
