"""CUDA's and CuPy's error types, as the virtual GPU raises them.

Class names, ``status`` attributes and the first words of each message are CuPy's, so that code
written against CuPy catches the same things. The rest of the message says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TextIO

from virtualgpu.errors import FaultSite, GpulabError


class _Sent:
    """An error that another process can be sent: with its message and what it knows, not made anew."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args, self.__dict__)  # type: ignore[attr-defined]


def _made_again(kind: type[Exception], args: tuple[Any, ...], known: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(known)
    return error


class CUDARuntimeError(_Sent, RuntimeError):
    """Like ``cupy.cuda.runtime.CUDARuntimeError``: ``status`` is the CUDA runtime's code."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.status = status
        self.error_name = name


class CUDADriverError(_Sent, RuntimeError):
    """Like ``cupy.cuda.driver.CUDADriverError``: ``status`` is the driver's code."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.status = status
        self.error_name = name


class OutOfMemoryError(_Sent, MemoryError):
    """Like ``cupy.cuda.memory.OutOfMemoryError``; `why` takes the place of its message."""

    def __init__(self, size_bytes: int, total_bytes: int, limit_bytes: int = 0, why: str = "") -> None:
        message = f"Out of memory allocating {size_bytes:,} bytes"
        if limit_bytes or total_bytes != -1:
            message += f" (allocated so far: {total_bytes:,} bytes"
            message += f", limit set to: {limit_bytes:,} bytes)." if limit_bytes else ")."
        super().__init__(why or message)
        self.size_bytes = size_bytes
        self.total_bytes = total_bytes
        self.limit_bytes = limit_bytes


class CompileException(_Sent, Exception):
    """Like ``cupy.cuda.compiler.CompileException``: NVRTC's log with the learner's line numbers."""

    def __init__(self, log: str, source: str, name: str, options: tuple[str, ...] = ()) -> None:
        super().__init__(log)
        self.log = log
        self.source = source
        self.name = name
        self.options = options

    def __str__(self) -> str:
        return self.log

    def get_message(self) -> str:
        """The compiler's log."""
        return self.log

    def dump(self, f: TextIO) -> None:
        """Write the log and the source, its lines numbered, to a file."""
        lines = self.source.split("\n")
        numbered = "".join(
            f"{n:0{len(str(len(lines)))}} {line.rstrip()}\n" for n, line in enumerate(lines, 1)
        )
        f.write(f"NVRTC compilation error: {self.log}\n-----\nName: {self.name}\n")
        f.write(f"Options: {' '.join(self.options)}\nCUDA source:\n{numbered}-----\n")


class KernelFault(CUDARuntimeError, GpulabError):
    """A fault found while a kernel ran; ``site`` says where. The process lives on.

    ``kind`` names it in a word or two, ``space`` is the state space of an illegal access, ``array``
    the array in global memory that it meant or is nearest to.
    """

    kind = ""
    space = ""
    array = ""

    def __init__(self, status: int, name: str, message: str, site: FaultSite) -> None:
        super().__init__(status, name, message)
        self.site = site


class IllegalAddressError(KernelFault):
    """cudaErrorIllegalAddress (700): an access outside every live allocation."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(700, "cudaErrorIllegalAddress", message, site)


class MisalignedAddressError(KernelFault):
    """cudaErrorMisalignedAddress (716): an address that its access size does not divide."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(716, "cudaErrorMisalignedAddress", message, site)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a launch had come that was stopped.

    ``moving``: not long before, blocks or threads were still coming to their end. ``writing``: something new
    was stored or printed not long before. ``spent_s``: processor time that it had taken.
    """

    ended: int
    blocks: int
    moving: bool
    writing: bool
    spent_s: float

    @property
    def endless(self) -> bool:
        """Whether nothing came of it any more."""
        return not (self.moving or self.writing)


class LaunchTimeoutError(KernelFault):
    """cudaErrorLaunchTimeout (702): the watchdog or the user stopped a kernel."""

    def __init__(self, message: str, site: FaultSite, progress: Progress | None = None) -> None:
        super().__init__(702, "cudaErrorLaunchTimeout", message, site)
        self.progress = progress


class DeviceAssertError(KernelFault):
    """cudaErrorAssert (710): a device-side ``assert`` failed."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(710, "cudaErrorAssert", message, site)


class LaunchFailure(KernelFault):
    """cudaErrorLaunchFailure (719): trap, divergent barrier, wrong mask and the like."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(719, "cudaErrorLaunchFailure", message, site)


class NanProducedError(KernelFault):
    """The NaN trap was on and a kernel made one. CUDA has no such trap; it counts as a launch failure."""

    def __init__(self, message: str, site: FaultSite) -> None:
        super().__init__(719, "cudaErrorLaunchFailure", message, site)
