"""gpulab: how an NVIDIA GPU works, live, on a real device or on a virtual one.

Names load on first use, so that ``import gpulab`` costs milliseconds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpulab._names import declared, load

if TYPE_CHECKING:
    from gpulab.diagnosis import doctor as doctor
    from gpulab.lab.access import access as access
    from gpulab.lab.device import compare as compare
    from gpulab.lab.device import device as device
    from gpulab.lab.faults.history import who_wrote as who_wrote
    from gpulab.lab.faults.sandbox import sandbox as sandbox
    from gpulab.lab.fusion.traffic import traffic as traffic
    from gpulab.lab.graphs import graph as graph
    from gpulab.lab.kernels import as_run as as_run
    from gpulab.lab.kernels import before_volta as before_volta
    from gpulab.lab.kernels import block_order as block_order
    from gpulab.lab.kernels import count as count
    from gpulab.lab.kernels import launch as launch
    from gpulab.lab.kernels import occupancy as occupancy
    from gpulab.lab.kernels import sanitize as sanitize
    from gpulab.lab.kernels import warps as warps
    from gpulab.lab.libraries.calls import calls as calls
    from gpulab.lab.libraries.follow import follow as follow
    from gpulab.lab.libraries.tune import tune as tune
    from gpulab.lab.links.collective import collective as collective
    from gpulab.lab.links.peers import peers as peers
    from gpulab.lab.memory.allocator import allocator as allocator
    from gpulab.lab.memory.allocator import open_allocator as open_allocator
    from gpulab.lab.memory.chart import memory as memory
    from gpulab.lab.memory.ladder import ladder as ladder
    from gpulab.lab.memory.pinned import host_memory as host_memory
    from gpulab.lab.memory.report import memory_report as memory_report
    from gpulab.lab.monitor.monitor import monitor as monitor
    from gpulab.lab.precision.numbers import precision as precision
    from gpulab.lab.profiling.profile import profile as profile
    from gpulab.lab.recorded import recorded as recorded
    from gpulab.lab.streams import check_streams as check_streams
    from gpulab.lab.timeline import open_timeline as open_timeline
    from gpulab.lab.timeline import timeline as timeline
    from gpulab.lab.timeline import timelines as timelines
    from gpulab.lab.why.diagnose import diagnose as diagnose
    from gpulab.lab.why.roofline import roofline as roofline
    from gpulab.session import use_device as use_device
    from gpulab.session import which_device as which_device
    from gpulab_course.teach import check as check
    from gpulab_course.teach import predict as predict
    from gpulab_course.teach import quiz as quiz
    from gpulab_course.teach import reveal as reveal
    from gpulab_course.teach.interview import interview as interview
    from gpulab_course.teach.names import names as names
    from gpulab_course.teach.progress import progress as progress
    from virtualgpu import errors as errors

    cp: Any
    cupyx: Any
    __version__: str

_HOMES = declared(__file__)

__all__ = sorted([*_HOMES, "cp", "cupyx"])


def __getattr__(name: str) -> Any:
    if name in ("cp", "cupyx"):
        # Asked anew each time: a switch between a real and a virtual device changes the answer.
        return load("gpulab.session", name)()
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(_unknown(name), name=name)
    value = globals()[name] = load(_HOMES[name], name)
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
    load("gpulab.lab.messages", "use_in_ipython")()
