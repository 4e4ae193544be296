"""Functions of device arrays, which are built from SciPy's functions at their first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp._routines.from_numpy import lift_to_device

_MISSING_MESSAGE = (
    "The virtual GPU's cupyx.scipy.{part} computes with SciPy, which is not installed: "
    'pip install "gpulab[scipy]", or pip install scipy.'
)
_PLACE_NOTE = "Like SciPy's function of the same name, but for device arrays. The result stays on the device."


def make_lifted_getattr(
    submodule: str,
    names: Mapping[str, int],
    namespace: dict[str, Any],
    decorators: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] | None = None,
) -> Callable[[str], Any]:
    """Return a function ``__getattr__`` for a module that provides functions of SciPy. This function creates
    each of the module's functions from the SciPy function of the same name.

    Parameters
    ----------
    submodule
        Module of SciPy, such as ``"ndimage"``.
    names
        Names of the functions, and the number of leading arguments that are device arrays.
    namespace
        The module's namespace, which stores each function after its first use.
    decorators
        Decorators of functions that differ from SciPy's.
    """
    namespace["__all__"] = sorted(names)
    raise_missing_name = make_module_getattr(f"cupyx.scipy.{submodule}", namespace)

    def get_lifted_function(name: str) -> Any:
        if name not in names:
            return raise_missing_name(name)
        try:
            module = importlib.import_module(f"scipy.{submodule}")
        except ModuleNotFoundError:
            raise ModuleNotFoundError(_MISSING_MESSAGE.format(part=submodule), name="scipy") from None
        full_name = f"{submodule}_{name}"
        scipy_function = getattr(module, name)
        function = lift_to_device(
            scipy_function, name=full_name, operand_count=names[name], place_note=_PLACE_NOTE
        )
        function.__name__ = function.__qualname__ = name
        decorator = (decorators or {}).get(name)
        namespace[name] = decorator(function) if decorator else function
        return namespace[name]

    return get_lifted_function
