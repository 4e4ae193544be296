"""Functions of device arrays made of SciPy's, when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from virtualgpu.cp._missing_names import module_getattr
from virtualgpu.cp._routines.from_numpy import lift

_MISSING = (
    "The virtual GPU's cupyx.scipy.{part} computes with SciPy, which is not installed: "
    'pip install "gpulab[scipy]", or pip install scipy.'
)
_PLACE = "As SciPy's function of this name, on device arrays; the result stays on the device."


def lifted(
    part: str,
    names: Mapping[str, int],
    namespace: dict[str, Any],
    made: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] | None = None,
) -> Callable[[str], Any]:
    """A module's ``__getattr__``, which makes functions of SciPy's functions of the same names.

    Parameters
    ----------
    part
        Of SciPy, such as ``"ndimage"``.
    names
        The functions, and how many of their leading arguments are device arrays.
    namespace
        The module's, where a function stays once it is made.
    made
        What is done to a function that is not as SciPy has it.
    """
    namespace["__all__"] = sorted(names)
    explain = module_getattr(f"cupyx.scipy.{part}", namespace)

    def get(name: str) -> Any:
        if name not in names:
            return explain(name)
        try:
            module = importlib.import_module(f"scipy.{part}")
        except ModuleNotFoundError:
            raise ModuleNotFoundError(_MISSING.format(part=part), name="scipy") from None
        title = f"{part}_{name}"
        theirs = getattr(module, name)
        function = lift(theirs, name=title, operand_count=names[name], place_note=_PLACE)
        function.__name__ = function.__qualname__ = name
        change = (made or {}).get(name)
        namespace[name] = change(function) if change else function
        return namespace[name]

    return get
