"""Errors of gpulab. Each message names the cause and the remedy in one or two sentences."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from virtualgpu.records import Dim3


class GpulabError(Exception):
    """Base class of the errors that gpulab itself defines."""


class UnknownDeviceError(GpulabError, ValueError):
    """Error for a device name that is not in the device table. The error message suggests the most similar
    name.
    """


class UnknownProcessorError(GpulabError, ValueError):
    """Error for a processor for which kernels cannot be compiled. The error message lists the supported
    processors.
    """


class ArgumentWarning(UserWarning):
    """Warning about a kernel argument that is ignored, or interpreted differently than with CuPy."""


class SourceWarning(ArgumentWarning):
    """Warning of NVRTC about a kernel's source, such as an unused variable."""


class NotSupportedError(GpulabError, NotImplementedError):
    """Error for an operation that the virtual GPU does not support. The error message suggests an
    alternative.
    """


class ToolMissingError(GpulabError, RuntimeError):
    """Error for an NVIDIA tool that is not installed. The error message describes how to install the tool."""


class PtxError(GpulabError, ValueError):
    """Error for PTX code that cannot be parsed. The error message contains the line."""


class WatchError(GpulabError, ValueError):
    """Error for a watch expression or stop condition that cannot be parsed or evaluated."""


@dataclass(frozen=True, slots=True)
class FaultSite:
    """The source line, block and thread that caused a kernel fault."""

    kernel: str
    line: int
    source_text: str
    block: Dim3
    thread: Dim3
    address: int | None = None

    def __str__(self) -> str:
        location = f"kernel '{self.kernel}'"
        if self.line:
            location += f", line {self.line}"
        location += f", block {self.block}, thread {self.thread}"
        if self.address is not None:
            location += f", address {self.address:#x}"
        return location


def did_you_mean(name: str, known_names: Iterable[str], cutoff: float = 0.3) -> str:
    """Return a suggestion such as ``" Did you mean 'x'?"`` for the most similar known name, or an empty
    string.

    The argument `cutoff` is passed to `difflib.get_close_matches`.
    """
    similar_names = difflib.get_close_matches(name, list(known_names), n=1, cutoff=cutoff)
    return f" Did you mean {similar_names[0]!r}?" if similar_names else ""


_PACKAGES = ("virtualgpu", "gpulab", "gpulab_course")


def warn(message: str, category: type[Warning] = ArgumentWarning) -> None:
    """Issue a warning for the line of the program that called this package."""
    stack_level = 1
    frame = sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _PACKAGES:
        stack_level = stack_level + 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=stack_level)
