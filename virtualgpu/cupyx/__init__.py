"""The supported part of ``cupyx``: pinned arrays, scatter operations, profiling, and parts of SciPy."""

from __future__ import annotations

import importlib
from typing import Any

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda._runtime.sync_detection import DeviceSynchronized, allow_synchronize
from virtualgpu.cupyx import profiler, scipy, time
from virtualgpu.cupyx._error_state import errstate, geterr, seterr
from virtualgpu.cupyx._functions import get_runtime_info, rsqrt, scatter_add, scatter_max, scatter_min
from virtualgpu.cupyx._pinned_array import empty_like_pinned, empty_pinned, zeros_like_pinned, zeros_pinned

__all__ = [
    "DeviceSynchronized",
    "allow_synchronize",
    "empty_like_pinned",
    "empty_pinned",
    "errstate",
    "get_runtime_info",
    "geterr",
    "profiler",
    "rsqrt",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scipy",
    "seterr",
    "time",
    "zeros_like_pinned",
    "zeros_pinned",
]

_NO_LIBRARY = "the virtual GPU has none of NVIDIA's libraries; use cp.linalg, cp.fft or a kernel of your own"
_REMEDY_BY_NAME = {
    "jit": "write the kernel in CUDA C++ with cp.RawKernel, or with cp.ElementwiseKernel",
    "optimizing": "remove the tuning; kernels of the virtual GPU have no parameters to tune",
    "linalg": "cp.linalg has the common functions",
    "cusparse": _NO_LIBRARY,
    "cusolver": _NO_LIBRARY,
    "cutensor": _NO_LIBRARY,
    "cudnn": _NO_LIBRARY,
    "lapack": _NO_LIBRARY,
    "GeneralizedUFunc": "loop over the leading axes, or write a cp.RawKernel",
}
_raise_missing_name = make_module_getattr("cupyx", globals(), _REMEDY_BY_NAME)


def __getattr__(name: str) -> Any:
    if name == "distributed":  # seldom used, so it is loaded at its first use
        return importlib.import_module("virtualgpu.cupyx.distributed")
    return _raise_missing_name(name)
