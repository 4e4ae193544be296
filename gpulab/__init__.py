"""gpulab: see how an NVIDIA GPU works, with live views of a real device or a virtual one.

Public names are loaded at first use, so that ``import gpulab`` takes only milliseconds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpulab import _moved
from gpulab._names import find_course_functions, load_attribute, make_missing_message

if TYPE_CHECKING:
    from gpulab.diagnosis import doctor as doctor
    from gpulab.lab.access import access as access
    from gpulab.lab.device import compare as compare
    from gpulab.lab.device import device as device
    from gpulab.lab.faults.history import who_wrote as who_wrote
    from gpulab.lab.faults.sandbox import sandbox as sandbox
    from gpulab.lab.fragments import fragments as fragments
    from gpulab.lab.fusion.traffic import traffic as traffic
    from gpulab.lab.graphs import graph as graph
    from gpulab.lab.kernels import block_order as block_order
    from gpulab.lab.kernels import count as count
    from gpulab.lab.kernels import lockstep_warps as lockstep_warps
    from gpulab.lab.kernels import machine_code as machine_code
    from gpulab.lab.kernels import occupancy as occupancy
    from gpulab.lab.kernels import sanitize as sanitize
    from gpulab.lab.kernels import warps as warps
    from gpulab.lab.libraries.calls import library_calls as library_calls
    from gpulab.lab.libraries.follow import call_layers as call_layers
    from gpulab.lab.libraries.tune import tune as tune
    from gpulab.lab.links.collective import collective as collective
    from gpulab.lab.links.peers import peers as peers
    from gpulab.lab.memory.allocator import allocator as allocator
    from gpulab.lab.memory.allocator import open_allocator as open_allocator
    from gpulab.lab.memory.chart import memory as memory
    from gpulab.lab.memory.ladder import memory_hierarchy as memory_hierarchy
    from gpulab.lab.memory.pinned import host_memory as host_memory
    from gpulab.lab.memory.report import memory_report as memory_report
    from gpulab.lab.monitor.monitor import monitor as monitor
    from gpulab.lab.pipeline import pipeline as pipeline
    from gpulab.lab.precision.numbers import precision as precision
    from gpulab.lab.profiling.profile import profile as profile
    from gpulab.lab.recorded import recorded as recorded
    from gpulab.lab.run import launch as launch
    from gpulab.lab.streams import check_streams as check_streams
    from gpulab.lab.timeline import open_timeline as open_timeline
    from gpulab.lab.timeline import timeline as timeline
    from gpulab.lab.timeline import timelines as timelines
    from gpulab.lab.why.diagnose import diagnose as diagnose
    from gpulab.lab.why.roofline import roofline as roofline
    from gpulab.session import use_device as use_device
    from gpulab.session import which_device as which_device
    from virtualgpu import errors as errors

    cp: Any
    cupyx: Any
    __version__: str

_MODULE_OF_NAME = {
    "doctor": "gpulab.diagnosis",
    "access": "gpulab.lab.access",
    "compare": "gpulab.lab.device",
    "device": "gpulab.lab.device",
    "who_wrote": "gpulab.lab.faults.history",
    "sandbox": "gpulab.lab.faults.sandbox",
    "fragments": "gpulab.lab.fragments",
    "traffic": "gpulab.lab.fusion.traffic",
    "graph": "gpulab.lab.graphs",
    "block_order": "gpulab.lab.kernels",
    "count": "gpulab.lab.kernels",
    "lockstep_warps": "gpulab.lab.kernels",
    "machine_code": "gpulab.lab.kernels",
    "occupancy": "gpulab.lab.kernels",
    "sanitize": "gpulab.lab.kernels",
    "warps": "gpulab.lab.kernels",
    "library_calls": "gpulab.lab.libraries.calls",
    "call_layers": "gpulab.lab.libraries.follow",
    "tune": "gpulab.lab.libraries.tune",
    "collective": "gpulab.lab.links.collective",
    "peers": "gpulab.lab.links.peers",
    "allocator": "gpulab.lab.memory.allocator",
    "open_allocator": "gpulab.lab.memory.allocator",
    "memory": "gpulab.lab.memory.chart",
    "memory_hierarchy": "gpulab.lab.memory.ladder",
    "host_memory": "gpulab.lab.memory.pinned",
    "memory_report": "gpulab.lab.memory.report",
    "monitor": "gpulab.lab.monitor.monitor",
    "pipeline": "gpulab.lab.pipeline",
    "precision": "gpulab.lab.precision.numbers",
    "profile": "gpulab.lab.profiling.profile",
    "recorded": "gpulab.lab.recorded",
    "launch": "gpulab.lab.run",
    "check_streams": "gpulab.lab.streams",
    "open_timeline": "gpulab.lab.timeline",
    "timeline": "gpulab.lab.timeline",
    "timelines": "gpulab.lab.timeline",
    "diagnose": "gpulab.lab.why.diagnose",
    "roofline": "gpulab.lab.why.roofline",
    "use_device": "gpulab.session",
    "which_device": "gpulab.session",
    "errors": "virtualgpu",
}


def __getattr__(name: str) -> Any:
    if name in ("cp", "cupyx"):
        # Not stored, because a switch between a real and a virtual device changes it.
        return load_attribute("gpulab.session", name)()
    if name == "__version__":
        return _read_version()
    if name == "__all__":
        return _list_public_names()
    if name in _MODULE_OF_NAME:
        value = load_attribute(_MODULE_OF_NAME[name], name)
    elif not name.startswith("_") and name in (entry_points := find_course_functions()):
        value = entry_points[name].load()
    elif not name.startswith("_") and name in (
        renamed_functions := load_attribute("gpulab._deprecated", "RENAMED_FUNCTIONS")
    ):
        load_attribute("gpulab._deprecated", "warn_about_old_name")(
            f"gl.{name}", f"gl.{renamed_functions[name]}"
        )
        return getattr(sys.modules[__name__], renamed_functions[name])
    else:
        raise AttributeError(make_missing_message(name) or _make_unknown_message(name), name=name)
    globals()[name] = value
    return value


def _list_public_names() -> list[str]:
    """Return the public names, which include the names of the course if it is installed."""
    return sorted([*_MODULE_OF_NAME, "cp", "cupyx", *find_course_functions()])


def _make_unknown_message(name: str) -> str:
    """Return the error message for an unknown name, with a similar known name."""
    message = f"module 'gpulab' has no attribute {name!r}."
    if name.startswith("_"):
        return message
    from virtualgpu.errors import did_you_mean

    if any(hasattr(sys.modules.get(module), name) for module in ("cupy", "virtualgpu.cp")):
        return f"{message} cp has this attribute: write cp.{name} after `from gpulab import cp`."
    public_names = _list_public_names()
    suggestion = did_you_mean(name, public_names, cutoff=0.6).replace("'", "'gl.", 1)
    return message + (suggestion or f" Its public names are {', '.join(public_names)}.")


def _read_version() -> str:
    """Return the installed version, or "0+unknown" if the package is only on the import path."""
    from importlib import metadata

    try:
        return metadata.version("gpulab")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def load_ipython_extension(shell: Any) -> None:
    """Register gpulab's magic commands and error display when IPython runs ``%load_ext gpulab``."""
    load_attribute("gpulab.lab.messages", "use_in_ipython")(shell)


def __dir__() -> list[str]:
    # Names that completion offers after `gl.`: the public ones, without this module's imports.
    return sorted(
        {*__getattr__("__all__"), "__version__", *(name for name in globals() if name.startswith("__"))}
    )


_moved.install_finder()
if "IPython" in sys.modules:
    load_attribute("gpulab.lab.messages", "use_in_ipython")()
