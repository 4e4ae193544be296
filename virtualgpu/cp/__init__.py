"""The CuPy-compatible module of the virtual GPU; ``from gpulab import cp`` imports it without a GPU.

Arrays are in the memory of the virtual device, functions run at once on the host, and durations are
modelled. A name that exists in CuPy but not here raises ``AttributeError`` with an alternative.
"""

# ruff: noqa: F401, F403 - the imported names are the interface of cp
from __future__ import annotations

import importlib as _importlib
import sys as _sys
from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import numpy as _np
from numpy import (
    bool_,
    broadcast_shapes,
    complex64,
    complex128,
    complexfloating,
    dtype,
    e,
    euler_gamma,
    finfo,
    float16,
    float32,
    float64,
    floating,
    generic,
    get_printoptions,
    iinfo,
    index_exp,
    inexact,
    inf,
    int8,
    int16,
    int32,
    int64,
    integer,
    intp,
    issubdtype,
    nan,
    ndindex,
    newaxis,
    number,
    pi,
    printoptions,
    promote_types,
    s_,
    set_printoptions,
    signedinteger,
    uint8,
    uint16,
    uint32,
    uint64,
    uintp,
    unsignedinteger,
)

from virtualgpu.cp import _util, cuda, exceptions, fft, lib, linalg, random, testing
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dlpack import from_dlpack
from virtualgpu.cp._core.operators import FunctionMethods as _FunctionMethods
from virtualgpu.cp._missing_names import make_missing_name_error as _missing_attribute
from virtualgpu.cp._routines.creation import *
from virtualgpu.cp._routines.documented import add_examples as _add_examples
from virtualgpu.cp._routines.documented import document_methods as _document_methods
from virtualgpu.cp._routines.files import *
from virtualgpu.cp._routines.functions import *
from virtualgpu.cp._routines.index_helpers import *
from virtualgpu.cp._routines.memoize import clear_memo, memoize
from virtualgpu.cp._routines.ufunc import ufunc
from virtualgpu.cp._routines.vectorize import vectorize
from virtualgpu.cp.cuda._memory.pool import MemoryPool as _MemoryPool
from virtualgpu.cp.cuda._memory.pool import get_default_pool as _default_memory_pool
from virtualgpu.cp.cuda.pinned_memory import PinnedMemoryPool as _PinnedMemoryPool
from virtualgpu.cp.cuda.pinned_memory import get_default_pinned_pool as _default_pinned_pool
from virtualgpu.cp.exceptions import AxisError
from virtualgpu.model import machine as _machine

if _TYPE_CHECKING:
    from virtualgpu.cp._core.raw_kernel import RawKernel, RawModule
    from virtualgpu.cp._elementwise.elementwise import ElementwiseKernel
    from virtualgpu.cp._elementwise.fusion import fuse
    from virtualgpu.cp._elementwise.reduction import ReductionKernel

# The CuPy version whose interface this module follows, with a local version label (PEP 440).
__version__ = "14.0.0+virtualgpu"

# Names that need the compiler and the engine; their modules are loaded at the first use.
_LAZY_NAMES = {
    "RawKernel": "_core.raw_kernel",
    "RawModule": "_core.raw_kernel",
    "ElementwiseKernel": "_elementwise.elementwise",
    "ReductionKernel": "_elementwise.reduction",
    "fuse": "_elementwise.fusion",
}

_REMEDY_BY_NAME = {
    "poly1d": "keep the coefficients in an array and write cp.polyval(coefficients, x)",
    "int": "use Python's int, or a type such as cp.int64",
    "float": "use Python's float, or a type such as cp.float32",
    "object": "device arrays contain only numbers",
    "bool8": "write cp.bool_",
    "ma": (
        "CuPy has no masked arrays; use a second array of bool as a mask, and select elements with cp.where"
    ),
    "nditer": (
        "a loop over elements waits for the device at each element; use operations on whole "
        "arrays, or a kernel"
    ),
    "ndenumerate": (
        "a loop over elements waits for the device at each element; cp.ndindex only returns the indices"
    ),
    "prof": "measure times with cp.cuda.Event; the times are modelled",
}

bool = bool_
int_ = _np.int_
uint = _np.uint
float_ = float64
complex_ = complex128
half = float16
single = float32
double = float64
byte = _np.byte
short = _np.short
intc = _np.intc
longlong = _np.longlong
ubyte = _np.ubyte
ushort = _np.ushort
uintc = _np.uintc
ulonglong = _np.ulonglong
csingle = complex64
cdouble = complex128


def get_default_memory_pool() -> _MemoryPool:
    """Return the default memory pool. New arrays use this pool unless the allocator was changed."""
    return _default_memory_pool()


def get_default_pinned_memory_pool() -> _PinnedMemoryPool:
    """Return the default pool of pinned (page-locked) host memory."""
    return _default_pinned_pool()


def is_available() -> _Any:
    """Return whether kernels can run: always True on the virtual GPU."""
    return cuda.is_available()


def show_config() -> None:
    """Print the current device and its compute capability."""
    info = _machine.current().current_device.info
    print(f"cp is gpulab's virtual GPU: {info.as_virtual.label}, compute capability {info.capability}.")


# A pickle contains the module name of a function (for an array: of `array`), so loading one imports all of
# cp.
for _value in [*globals().values()]:
    _is_own_function = isinstance(_value, _FunctionType) and _value.__module__.startswith("virtualgpu.")
    if _is_own_function and globals().get(_value.__name__) is _value:
        _value.__module__ = __name__
ndarray._module = _sys.modules[__name__]
_add_examples({"cp": ndarray._module, "cp.fft": fft, "cp.linalg": linalg, "cp.random": random})
_document_methods(_FunctionMethods, ndarray._module)


def __getattr__(name: str) -> _Any:
    if name in _LAZY_NAMES:
        return getattr(_importlib.import_module(f"virtualgpu.cp.{_LAZY_NAMES[name]}"), name)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise _missing_attribute("cp", name, __dir__(), _REMEDY_BY_NAME.get(name, ""))


def __dir__() -> list[str]:
    public_names = {name for name in globals() if not name.startswith("_")} - {"annotations"}
    return sorted(public_names | set(_LAZY_NAMES))
