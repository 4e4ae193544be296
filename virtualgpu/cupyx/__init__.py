"""The part of ``cupyx`` that the virtual GPU has: pinned arrays, scattering, profiling, parts of SciPy."""

from __future__ import annotations

import importlib
from typing import Any

from virtualgpu.cp._missing_names import module_getattr
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

_LIBRARY = "the virtual GPU has none of NVIDIA's libraries; use cp.linalg, cp.fft or a kernel of your own"
_REMEDIES = {
    "jit": "write the kernel in CUDA C++ with cp.RawKernel, or with cp.ElementwiseKernel",
    "optimizing": "leave the tuning out; kernels of the virtual GPU have nothing to tune",
    "linalg": "cp.linalg has the common functions",
    "cusparse": _LIBRARY,
    "cusolver": _LIBRARY,
    "cutensor": _LIBRARY,
    "cudnn": _LIBRARY,
    "lapack": _LIBRARY,
    "GeneralizedUFunc": "loop over the leading axes, or write a cp.RawKernel",
}
_explain = module_getattr("cupyx", globals(), _REMEDIES)


def __getattr__(name: str) -> Any:
    if name == "distributed":  # seldom used: loads when it is first asked for
        return importlib.import_module("virtualgpu.cupyx.distributed")
    return _explain(name)
