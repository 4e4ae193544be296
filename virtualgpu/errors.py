"""Errors a learner meets. Each message names the cause and the remedy in a sentence or two."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from virtualgpu.records import Dim3


class GpulabError(Exception):
    """Base of gpulab's own errors."""


class UnknownDeviceError(GpulabError, ValueError):
    """A device name that is in no table; the message suggests the nearest."""


class UnknownProcessorError(GpulabError, ValueError):
    """A processor that kernels cannot be compiled for, or not on this computer; the message lists those."""


class ArgumentWarning(UserWarning):
    """An argument that a kernel reads as another one or not at all, which CuPy passes without a word."""


class NotSupportedError(GpulabError, NotImplementedError):
    """Something the virtual GPU does not do; the message says what to use instead."""


class ToolMissingError(GpulabError, RuntimeError):
    """A tool of NVIDIA's that is not installed here; the message says how to get it."""


class PtxError(GpulabError, ValueError):
    """PTX that cannot be read; the message names the line."""


class WatchError(GpulabError, ValueError):
    """A watch expression or a stop that cannot be read or evaluated; the message says what to write."""


@dataclass(frozen=True, slots=True)
class FaultSite:
    """Where on the device a kernel fault happened."""

    kernel: str
    line: int
    source_text: str
    block: Dim3
    thread: Dim3
    address: int | None = None

    def __str__(self) -> str:
        where = f"kernel '{self.kernel}'"
        if self.line:
            where += f", line {self.line}"
        where += f", block {self.block}, thread {self.thread}"
        if self.address is not None:
            where += f", address {self.address:#x}"
        return where


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.3) -> str:
    """``" Did you mean 'x'?"`` with the nearest of the known names, or nothing; `cutoff` is `difflib`'s."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f" Did you mean {near[0]!r}?" if near else ""


_PACKAGES = ("virtualgpu", "gpulab", "gpulab_course")


def warn(message: str) -> None:
    """Give an `ArgumentWarning` for the line that called this package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _PACKAGES:
        level = level + 1
        frame = frame.f_back
    warnings.warn(message, ArgumentWarning, stacklevel=level)
