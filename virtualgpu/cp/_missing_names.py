"""Errors for names that CuPy has and the virtual GPU does not have, with alternatives."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

# Names of PyTorch, Numba and PyCUDA, and what to write with CuPy instead.
_NAMES_ELSEWHERE = {
    "cp": {
        "tensor": "write cp.array(data)",
        "from_numpy": "write cp.asarray(a)",
        "cat": "write cp.concatenate(arrays)",
        "mm": "write a @ b",
        "bmm": "write a @ b",
        "manual_seed": "write cp.random.seed(n)",
        "device": "write cp.cuda.Device(0), in `with cp.cuda.Device(0):` for a block",
        "no_grad": "cp does not compute gradients, so remove the call",
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
_TO_NUMPY_REMEDY = "write x.get(), or cp.asnumpy(x), to copy it to the host as a NumPy array"
_ALREADY_ON_GPU_NOTE = "arrays of cp are already on the GPU; cp.asarray(a) copies a NumPy array to the GPU"
_NO_GRADIENTS_NOTE = "cp does not compute gradients; "
_ARRAY_NAMES_ELSEWHERE = {
    "cpu": _TO_NUMPY_REMEDY,
    "numpy": _TO_NUMPY_REMEDY,
    "to_numpy": _TO_NUMPY_REMEDY,
    "copy_to_host": _TO_NUMPY_REMEDY,
    "cuda": _ALREADY_ON_GPU_NOTE,
    "gpu": _ALREADY_ON_GPU_NOTE,
    "to": f"{_ALREADY_ON_GPU_NOTE}, x.astype(cp.float32) converts, and x.get() copies to the host",
    "is_cuda": "it would always be True; write isinstance(x, cp.ndarray) to exclude NumPy arrays",
    "detach": f"{_NO_GRADIENTS_NOTE}remove the call",
    "backward": f"{_NO_GRADIENTS_NOTE}use a framework such as PyTorch",
    "grad": f"{_NO_GRADIENTS_NOTE}use a framework such as PyTorch",
    "requires_grad": f"{_NO_GRADIENTS_NOTE}use a framework such as PyTorch",
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


def make_missing_name_error(
    module_name: str, name: str, known_names: Iterable[str], remedy: str = ""
) -> AttributeError:
    """Return the error for a missing attribute `name` of the module `module_name`.

    Parameters
    ----------
    module_name
        Name of the module, such as ``"cp.linalg"``.
    known_names
        Names that the module has, to suggest the nearest one.
    remedy
        Alternative to suggest; determined here if it is empty.
    """
    message = f"the virtual GPU's {module_name} has no {name!r}"
    remedy = remedy or _NAMES_ELSEWHERE.get(module_name, {}).get(name, "")
    if remedy:
        return AttributeError(f"{message}: {remedy}.", name=name)
    numpy_object: Any = np
    for attribute_name in [*module_name.split(".")[1:], name]:
        numpy_object = getattr(numpy_object, attribute_name, None)
    similar_names = difflib.get_close_matches(
        name, [n for n in known_names if not n.startswith("_")], n=1, cutoff=0.75
    )
    other_paths = [path for path in _find_full_names(name) if path != f"{module_name}.{name}"]
    path = f"numpy{module_name.removeprefix('cp')}.{name}"
    if isinstance(numpy_object, type | ModuleType) or (
        numpy_object is not None and not callable(numpy_object)
    ):
        message += f"; {path} works on the host: copy arrays with cp.asnumpy(x), and back with cp.asarray"
    elif numpy_object is not None:
        message += f"; use {path} on the host: copy arrays with cp.asnumpy(x), and back with cp.asarray"
    elif other_paths:
        message += f": write {other_paths[0]}"
    elif similar_names:
        message += f". Did you mean {module_name}.{similar_names[0]}?"
        return AttributeError(message, name=name)
    else:
        message += f"; dir({module_name}) lists the supported names. CuPy on an NVIDIA GPU supports more"
    return AttributeError(f"{message}.", name=name)


def _find_full_names(name: str) -> list[str]:
    """Return the full names in ``cp`` of objects with this name, such as ``cp.random.rand`` for ``rand``."""
    paths = []
    for module_path in ("cp", "cp.random", "cp.linalg", "cp.fft", "cp.cuda", "cp.cuda.runtime"):
        module = sys.modules.get(f"virtualgpu.{module_path}")
        if module is not None and name in module.__dict__.get("__dir__", list)():
            paths.append(f"{module_path}.{name}")
    return paths


def describe_missing_attribute(array_class: Any, name: str) -> str:
    """Return the error message for an attribute that device arrays do not have."""
    message = f"'cupy.ndarray' object has no attribute {name!r}"
    if name.startswith("_"):
        return message
    if name in _ARRAY_NAMES_ELSEWHERE:
        return f"{message}: {_ARRAY_NAMES_ELSEWHERE[name]}."
    if hasattr(np.ndarray, name):
        return f"{message}. NumPy arrays have this attribute: copy the array to the host with x.get().{name}"
    similar_names = difflib.get_close_matches(
        name, [n for n in dir(array_class) if not n.startswith("_")], n=1, cutoff=0.75
    )
    if similar_names:
        return f"{message}. Did you mean {similar_names[0]!r}?"
    if callable(array_class._module.__dict__.get(name)):
        return f"{message}: it is a function, cp.{name}(x)."
    return f"{message}. dir(x) lists the attributes of device arrays."


def make_module_getattr(
    module_name: str, namespace: dict[str, Any], remedies: dict[str, str] | None = None
) -> Callable[[str], Any]:
    """Return a ``__getattr__`` function that raises the errors for missing names of a module. These errors
    suggest alternative names.
    """

    def raise_missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module_name!r} has no attribute {name!r}", name=name)
        raise make_missing_name_error(
            module_name, name, list_public_names(namespace), (remedies or {}).get(name, "")
        )

    namespace.setdefault("__dir__", lambda: list_public_names(namespace))
    return raise_missing


def list_public_names(namespace: dict[str, Any]) -> list[str]:
    """Return the names in a module's ``__all__``. Without ``__all__``, return the public names that the
    module defines.
    """
    if "__all__" in namespace:
        return sorted(namespace["__all__"])
    own_modules = (namespace["__name__"], "virtualgpu.cuda_errors")
    return sorted(
        name
        for name, value in namespace.items()
        if not name.startswith("_")
        and (isinstance(value, int) or getattr(value, "__module__", "") in own_modules)
    )


class AttributeNamespace(ModuleType):
    """A submodule such as ``cp.cuda.driver``. Errors for missing names suggest alternatives."""

    def __init__(self, module_name: str, **members: Any) -> None:
        super().__init__(f"virtualgpu.{module_name}")
        self.__dict__.update(members)
        self._module_name = module_name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__dict__.get('_module_name')!r} has no attribute {name!r}")
        raise make_missing_name_error(self._module_name, name, dir(self))

    def __dir__(self) -> list[str]:
        return sorted(name for name in self.__dict__ if not name.startswith("_"))

    def __repr__(self) -> str:
        return f"<{self._module_name} of the virtual GPU>"
