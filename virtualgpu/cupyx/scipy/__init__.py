"""``cupyx.scipy``: image, signal and special functions, which SciPy computes on the host."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._missing_names import make_module_getattr

__all__ = ["fft", "get_array_module", "ndimage", "signal", "special"]
_MODULES = ("fft", "ndimage", "signal", "special")
_ON_HOST_REMEDY = "use SciPy on the host: copy arrays with cp.asnumpy(x), and back with cp.asarray(y)"
_REMEDY_BY_NAME = {
    "sparse": "the virtual GPU has no cuSPARSE; keep a dense array, write a cp.RawKernel over data, indices "
    "and indptr, or use scipy.sparse on the host",
    "linalg": "cp.linalg has the common functions",
    **dict.fromkeys(("interpolate", "integrate", "optimize", "spatial", "stats", "cluster"), _ON_HOST_REMEDY),
}
_raise_missing_name = make_module_getattr("cupyx.scipy", globals(), _REMEDY_BY_NAME)


def get_array_module(*args: Any) -> ModuleType:
    """Return ``cupyx.scipy`` if any argument is a device array, and else SciPy."""
    if any(isinstance(argument, ndarray) for argument in args):
        return sys.modules[__name__]
    return importlib.import_module("scipy")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    return _raise_missing_name(name)
