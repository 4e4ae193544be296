"""gpulab: how an NVIDIA GPU works, live, on a real device or on a virtual one.

Names load on first use, so that ``import gpulab`` costs milliseconds.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpulab.diagnosis import doctor
    from gpulab.lab.access import access
    from gpulab.lab.device import compare, device
    from gpulab.lab.graphs import graph
    from gpulab.lab.kernels import (
        as_run,
        before_volta,
        block_order,
        count,
        launch,
        occupancy,
        sanitize,
        warps,
    )
    from gpulab.lab.memory.allocator import allocator, open_allocator
    from gpulab.lab.memory.chart import memory
    from gpulab.lab.memory.ladder import ladder
    from gpulab.lab.memory.pinned import host_memory
    from gpulab.lab.memory.report import memory_report
    from gpulab.lab.recorded import recorded
    from gpulab.lab.streams import check_streams
    from gpulab.lab.timeline import open_timeline, timeline, timelines
    from gpulab.session import use_device, which_device
    from gpulab.teach import check, predict, quiz, reveal
    from gpulab.teach.progress import progress
    from virtualgpu import errors

    cp: Any
    cupyx: Any
    __version__: str

__all__ = [
    "access",
    "allocator",
    "as_run",
    "before_volta",
    "block_order",
    "check",
    "check_streams",
    "compare",
    "count",
    "cp",
    "cupyx",
    "device",
    "doctor",
    "errors",
    "graph",
    "host_memory",
    "ladder",
    "launch",
    "memory",
    "memory_report",
    "occupancy",
    "open_allocator",
    "open_timeline",
    "predict",
    "progress",
    "quiz",
    "recorded",
    "reveal",
    "sanitize",
    "timeline",
    "timelines",
    "use_device",
    "warps",
    "which_device",
]

_MODULES = {
    "gpulab.diagnosis": "doctor",
    "gpulab.lab.access": "access",
    "gpulab.lab.device": "compare device",
    "gpulab.lab.graphs": "graph",
    "gpulab.lab.kernels": "as_run before_volta block_order count launch occupancy sanitize warps",
    "gpulab.lab.memory.allocator": "allocator open_allocator",
    "gpulab.lab.memory.chart": "memory",
    "gpulab.lab.memory.ladder": "ladder",
    "gpulab.lab.memory.pinned": "host_memory",
    "gpulab.lab.memory.report": "memory_report",
    "gpulab.lab.recorded": "recorded",
    "gpulab.lab.streams": "check_streams",
    "gpulab.lab.timeline": "open_timeline timeline timelines",
    "gpulab.session": "use_device which_device",
    "gpulab.teach": "check predict quiz reveal",
    "gpulab.teach.progress": "progress",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in ("cp", "cupyx"):
        # Asked anew each time: a switch between a real and a virtual device changes the answer.
        return getattr(importlib.import_module("gpulab.session"), name)()
    if name == "errors":
        return importlib.import_module("virtualgpu.errors")
    if name == "__version__":
        return _version()
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(_unknown(name), name=name)
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def _unknown(name: str) -> str:
    """What is said of a name that is not there, with the one that was meant."""
    text = f"module 'gpulab' has no attribute {name!r}."
    if name.startswith("_"):
        return text
    from virtualgpu.errors import did_you_mean

    if any(hasattr(sys.modules.get(module), name) for module in ("cupy", "virtualgpu.cp")):
        return f"{text} It is one of cp's: write cp.{name}, after `from gpulab import cp`."
    near = did_you_mean(name, __all__, cutoff=0.6).replace("'", "'gl.", 1)
    return text + (near or f" It has {', '.join(__all__)}.")


def _version() -> str:
    """Return the installed version, or "0+unknown" where the package is only on the path."""
    from importlib import metadata

    try:
        return metadata.version("gpulab")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def __dir__() -> list[str]:
    # What completion offers after `gl.`: the public names, not what this module imports.
    return sorted({*__all__, "__version__", *(name for name in globals() if name.startswith("__"))})


if "IPython" in sys.modules:
    importlib.import_module("gpulab.lab.messages").use_in_ipython()
