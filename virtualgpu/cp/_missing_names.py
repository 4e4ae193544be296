"""Errors for names that CuPy has and the virtual GPU has not: what to use instead."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

# What people write who come from PyTorch, Numba or PyCUDA, and what CuPy calls it.
_HABITS = {
    "cp": {
        "tensor": "write cp.array(data)",
        "from_numpy": "write cp.asarray(a)",
        "cat": "write cp.concatenate(arrays)",
        "mm": "write a @ b",
        "bmm": "write a @ b",
        "manual_seed": "write cp.random.seed(n)",
        "device": "write cp.cuda.Device(0), in `with cp.cuda.Device(0):` for a block",
        "no_grad": "cp computes no gradients, so leave it out",
        "relu": "write cp.maximum(x, 0)",
        "sigmoid": "write 1 / (1 + cp.exp(-x))",
        "long": "write cp.int64",
        "to_device": "write cp.asarray(a)",
        "synchronize": "write cp.cuda.Device().synchronize()",
        "to_numpy": "write cp.asnumpy(x)",
    },
    "cp.cuda": {
        "synchronize": "write cp.cuda.Device().synchronize(), or .synchronize() of a stream",
        "device_count": "write cp.cuda.runtime.getDeviceCount()",
        "current_device": "write cp.cuda.Device(), or cp.cuda.get_device_id() for its number",
        "set_device": "write cp.cuda.Device(n).use()",
        "get_device_name": 'write cp.cuda.runtime.getDeviceProperties(0)["name"]',
        "get_device_properties": "write cp.cuda.runtime.getDeviceProperties(0)",
        "current_stream": "write cp.cuda.get_current_stream()",
        "memory_allocated": "write cp.get_default_memory_pool().used_bytes()",
        "memory_reserved": "write cp.get_default_memory_pool().total_bytes()",
        "empty_cache": "write cp.get_default_memory_pool().free_all_blocks()",
        "mem_get_info": "write cp.cuda.Device().mem_info",
        "to_device": "write cp.asarray(a)",
        "device_array": "write cp.empty(shape, dtype)",
        "elapsed_time": "write cp.cuda.get_elapsed_time(start, end), in ms",
    },
    "cp.random": {"manual_seed": "write cp.random.seed(n)"},
}
_GET = "write x.get(), or cp.asnumpy(x), to copy it to the host as a NumPy array"
_THERE = "cp's arrays lie on the GPU already; cp.asarray(a) copies a NumPy array there"
_GRADIENTS = "cp computes no gradients; "
_ARRAY_HABITS = {
    "cpu": _GET,
    "numpy": _GET,
    "to_numpy": _GET,
    "copy_to_host": _GET,
    "cuda": _THERE,
    "gpu": _THERE,
    "to": f"{_THERE}, x.astype(cp.float32) converts, and x.get() copies to the host",
    "is_cuda": "it is always so; isinstance(x, cp.ndarray) tells it from a NumPy array",
    "detach": f"{_GRADIENTS}leave it out",
    "backward": f"{_GRADIENTS}that takes a framework such as PyTorch",
    "grad": f"{_GRADIENTS}that takes a framework such as PyTorch",
    "requires_grad": f"{_GRADIENTS}that takes a framework such as PyTorch",
    "clone": "write x.copy()",
    "numel": "write x.size",
    "dim": "write x.ndim",
    "element_size": "write x.itemsize",
    "data_ptr": "write x.data.ptr",
    "permute": "write x.transpose(axes)",
    "contiguous": "write cp.ascontiguousarray(x)",
    "is_contiguous": "write x.flags.c_contiguous",
    "unsqueeze": "write cp.expand_dims(x, axis)",
    "expand": "write cp.broadcast_to(x, shape)",
    "t": "write x.T",
    "mm": "write x @ y",
    "matmul": "write x @ y",
    "fill_": "write x.fill(value)",
    "zero_": "write x.fill(0)",
    "add_": "write x += y",
    "half": "write x.astype(cp.float16)",
    "float": "write x.astype(cp.float32)",
    "double": "write x.astype(cp.float64)",
    "int": "write x.astype(cp.int32)",
    "long": "write x.astype(cp.int64)",
    "bool": "write x.astype(bool)",
}


def absent(where: str, name: str, known: Iterable[str], remedy: str = "") -> AttributeError:
    """The error for a missing attribute `name` of the module ``cp.<where>``.

    Parameters
    ----------
    where
        Such as ``"cp.linalg"``.
    known
        What the module has, to suggest the nearest.
    remedy
        What to do instead; found out if not given.
    """
    text = f"the virtual GPU's {where} has no {name!r}"
    remedy = remedy or _HABITS.get(where, {}).get(name, "")
    if remedy:
        return AttributeError(f"{text}: {remedy}.", name=name)
    host: Any = np
    for part in [*where.split(".")[1:], name]:
        host = getattr(host, part, None)
    near = difflib.get_close_matches(name, [n for n in known if not n.startswith("_")], n=1, cutoff=0.75)
    others = [other for other in _places_of(name) if other != f"{where}.{name}"]
    path = f"numpy{where.removeprefix('cp')}.{name}"
    if isinstance(host, type | ModuleType) or (host is not None and not callable(host)):
        text += f"; {path} is for arrays on the host: cp.asnumpy(x) makes one, cp.asarray copies back"
    elif host is not None:
        text += f"; {path} has it: copy with cp.asnumpy(x), compute on the host, copy back with cp.asarray"
    elif others:
        text += f": write {others[0]}"
    elif near:
        text += f". Did you mean {where}.{near[0]}?"
        return AttributeError(text, name=name)
    else:
        text += f"; dir({where}) lists what it has. With CuPy on an NVIDIA GPU more is there"
    return AttributeError(f"{text}.", name=name)


def _places_of(name: str) -> list[str]:
    """Where in ``cp`` something has this name: ``cp.random.rand`` for ``rand``."""
    found = []
    for place in ("cp", "cp.random", "cp.linalg", "cp.fft", "cp.cuda", "cp.cuda.runtime"):
        module = sys.modules.get(f"virtualgpu.{place}")
        if module is not None and name in module.__dict__.get("__dir__", list)():
            found.append(f"{place}.{name}")
    return found


def no_attribute(kind: Any, name: str) -> str:
    """What is said of an attribute that device arrays have not."""
    text = f"'cupy.ndarray' object has no attribute {name!r}"
    if name.startswith("_"):
        return text
    if name in _ARRAY_HABITS:
        return f"{text}: {_ARRAY_HABITS[name]}."
    if hasattr(np.ndarray, name):
        return f"{text}. NumPy arrays have it: copy the array to the host first, x.get().{name}"
    near = difflib.get_close_matches(name, [n for n in dir(kind) if not n.startswith("_")], n=1, cutoff=0.75)
    if near:
        return f"{text}. Did you mean {near[0]!r}?"
    if callable(kind._module.__dict__.get(name)):
        return f"{text}: it is a function, cp.{name}(x)."
    return f"{text}. See dir(x) for what device arrays have."


def module_getattr(
    where: str, namespace: dict[str, Any], remedies: dict[str, str] | None = None
) -> Callable[[str], Any]:
    """A module's ``__getattr__``, which explains what is missing, and a ``__dir__`` of its public names."""

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {where!r} has no attribute {name!r}", name=name)
        raise absent(where, name, public_names(namespace), (remedies or {}).get(name, ""))

    namespace.setdefault("__dir__", lambda: public_names(namespace))
    return missing


def public_names(namespace: dict[str, Any]) -> list[str]:
    """A module's ``__all__``, or else what it defines itself: no typing, no helpers of other modules."""
    if "__all__" in namespace:
        return sorted(namespace["__all__"])
    own = (namespace["__name__"], "virtualgpu.cuda_errors")
    return sorted(
        name
        for name, value in namespace.items()
        if not name.startswith("_") and (isinstance(value, int) or getattr(value, "__module__", "") in own)
    )


class Namespace(ModuleType):
    """A submodule such as ``cp.cuda.driver``: names given one by one, and what is said of others."""

    def __init__(self, where: str, **members: Any) -> None:
        super().__init__(f"virtualgpu.{where}")
        self.__dict__.update(members)
        self._where = where

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__dict__.get('_where')!r} has no attribute {name!r}")
        raise absent(self._where, name, dir(self))

    def __dir__(self) -> list[str]:
        return sorted(name for name in self.__dict__ if not name.startswith("_"))

    def __repr__(self) -> str:
        return f"<{self._where} of the virtual GPU>"
