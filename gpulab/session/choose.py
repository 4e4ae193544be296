"""Parsing of the device names that `use_device` accepts, and the sentence that describes the choice."""

from __future__ import annotations

import html
import importlib
import os
import re
from dataclasses import dataclass
from typing import Any, Literal

from virtualgpu.errors import UnknownDeviceError
from virtualgpu.model.choice import DEFAULT_DEVICE

DEVICE_VARIABLE = "GPULAB_DEVICE"
WATCHDOG_VARIABLE = "GPULAB_WATCHDOG_S"
MAX_VIRTUAL_DEVICES = 16

DeviceKind = Literal["auto", "cuda", "virtual"]
_LINK_PHRASES = {
    "nvswitch": "NVLink between all of them",
    "pairs": "in pairs by NVLink",
    "host": "through the host only",
}


@dataclass(frozen=True, slots=True, repr=False)
class DeviceChoice:
    """The device in use and the reason for its choice, displayed as one sentence. The attribute ``.cp`` is
    the array module.
    """

    kind: Literal["cuda", "virtual"]
    device: str
    compute_capability: tuple[int, int]
    index: int = 0
    count: int = 1
    links: str = ""
    reason: str = ""
    caution: str = ""

    @property
    def cp(self) -> Any:
        """The array module of the device, which is CuPy or the module of the virtual GPU with the same
        interface.
        """
        return import_array_module(self.kind)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence)}</p>"

    @property
    def sentence(self) -> str:
        capability = ".".join(str(number) for number in self.compute_capability)
        other_device = "H200" if self.device == "T4" else "T4"
        change_hint = (
            f'gl.use_device("virtual:{other_device}") or the environment variable {DEVICE_VARIABLE} '
            "changes that."
        )
        if self.kind == "cuda":
            caution_text = f" (note: {self.caution})" if self.caution else ""
            return (
                f"This session uses the real {self.device} (cuda:{self.index}, compute capability "
                f"{capability}){caution_text}: times and block placements are measured on it; {change_hint}"
            )
        links_text = f", joined {_LINK_PHRASES[self.links]}," if self.links else ""
        device_text = f"{self.count} virtual {self.device} GPUs{links_text}"
        devices_text = device_text if self.count > 1 else f"a virtual {self.device}"
        reason_text = f", because {self.reason}" if self.reason else ""
        return (
            f"This session uses {devices_text} (compute capability {capability}){reason_text}: "
            "kernels are executed on the CPU, and their times are modelled, not "
            f"measured; {change_hint}"
        )

    def __str__(self) -> str:
        return self.sentence

    __repr__ = __str__


def import_array_module(kind: Literal["cuda", "virtual"], name: str = "cupy") -> Any:
    """Return the array module for real or virtual devices, or the corresponding ``cupyx`` module."""
    virtual_modules = {"cupy": "virtualgpu.cp", "cupyx": "virtualgpu.cupyx"}
    return importlib.import_module(name if kind == "cuda" else virtual_modules[name])


def parse_device(text: Any) -> tuple[DeviceKind, str]:
    """Divide a device name such as ``virtual:T4`` into the kind of device and the name or number of the
    GPU.
    """
    if not isinstance(text, str):
        raise TypeError(f'A device must be a str such as "cuda:0" or "virtual:T4", not {text!r}.')
    kind_text, _, name_text = text.strip().partition(":")
    device_kind = kind_text.strip().lower()
    name = name_text.strip()
    if device_kind == "auto" and not name:
        return "auto", ""
    if device_kind in ("cuda", "gpu"):
        if name and not re.fullmatch(r"\d+", name):
            raise UnknownDeviceError(
                f'"{text}" is not a CUDA device. CUDA devices have a number, as in '
                f'"cuda:0". For a virtual GPU, write "virtual:{name}".'
            )
        return "cuda", name or "0"
    if device_kind == "virtual":
        return "virtual", name or DEFAULT_DEVICE
    return "virtual", text.strip()


def read_initial_watchdog() -> float | None:
    """Return the time limit in seconds from the environment variable ``GPULAB_WATCHDOG_S``, or None if it is
    not set.
    """
    seconds_text = os.environ.get(WATCHDOG_VARIABLE, "").strip()
    if not seconds_text:
        return None
    try:
        return check_watchdog(float(seconds_text))
    except ValueError as error:
        raise ValueError(f"{WATCHDOG_VARIABLE}={seconds_text} is not a number of seconds above 0.") from error


def check_watchdog(seconds: float | None) -> float | None:
    """Return the time limit in seconds if it is positive or None, and raise ValueError otherwise."""
    if seconds is not None and not seconds > 0:
        raise ValueError(f"watchdog_s must be a number of seconds above 0, not {seconds!r}.")
    return seconds


def check_count(count: Any) -> int:
    """Return the number of devices if it is between 1 and ``MAX_VIRTUAL_DEVICES``, and raise ValueError
    otherwise.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_VIRTUAL_DEVICES:
        raise ValueError(
            f"`count` must be an integer number of devices from 1 to {MAX_VIRTUAL_DEVICES}, not {count!r}."
        )
    return count
