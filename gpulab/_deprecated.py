"""Old names of functions, parameters and methods, which work for one release with a `DeprecationWarning`."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Modules whose frames are not the learner's; importlib is between `from gpulab import name` and gpulab.
_OWN_MODULES = ("gpulab", "gpulab_course", "importlib", "_frozen_importlib")

RENAMED_FUNCTIONS = {
    "as_run": "machine_code",
    "before_volta": "lockstep_warps",
    "calls": "library_calls",
    "follow": "call_layers",
    "ladder": "memory_hierarchy",
}

RENAMED_PARAMETERS: dict[str, dict[str, str]] = {
    "call_layers": {"function": "fn"},
    "library_calls": {"what": "fn"},
    "sandbox": {"function": "fn"},
    "traffic": {"function": "fn"},
    "who_wrote": {"function": "fn"},
    "access": {"shared_bytes": "shared_mem"},
    "count": {"shared_bytes": "shared_mem"},
    "diagnose": {"shared_bytes": "shared_mem", "beside": "baseline"},
    "launch": {"shared_bytes": "shared_mem"},
    "machine_code": {"shared_bytes": "shared_mem"},
    "occupancy": {"shared_bytes": "shared_mem"},
    "sanitize": {"shared_bytes": "shared_mem"},
    "warps": {"shared_bytes": "shared_mem"},
}


def warn_about_old_name(old_name: str, new_name: str) -> None:
    """Warn that `old_name` was renamed to `new_name`. The warning refers to the line of the learner's code
    that uses the old name.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in _OWN_MODULES:
        frame = frame.f_back
    warnings.warn_explicit(
        f"{old_name} is now {new_name}. The old name will be removed in the next release.",
        DeprecationWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals["__name__"],
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def accept_old_parameters(function: Callable[P, T]) -> Callable[P, T]:
    """Return a wrapper of a function that also accepts the old names of its parameters. The dictionary
    `RENAMED_PARAMETERS` contains the old names.
    """
    name = function.__name__
    new_names = RENAMED_PARAMETERS[name]

    @functools.wraps(function)
    def wrapper(*args: P.args, **options: P.kwargs) -> T:
        for old_name, new_name in new_names.items():
            if old_name in options:
                if new_name in options:
                    raise TypeError(
                        f"gl.{name} got both {new_name!r} and its old name {old_name!r}. Pass only "
                        f"{new_name!r}."
                    )
                warn_about_old_name(f"{old_name}= of gl.{name}", f"{new_name}=")
                options[new_name] = options.pop(old_name)
        return function(*args, **options)

    return wrapper


def make_old_property(old_name: str, new_name: str) -> property:
    """Return a property for the old name of an attribute. The property returns the value of the attribute
    with the new name.
    """

    def deprecated(self: Any) -> Any:
        warn_about_old_name(f".{old_name}", f".{new_name}")
        return getattr(self, new_name)

    return property(deprecated, doc=f"Deprecated: use `{new_name}`.")


def make_old_method(old_name: str, new_name: str) -> Callable[..., Any]:
    """Return a function for the old name of a method. The function calls the method with the new name."""

    def deprecated(self: Any, *args: Any, **options: Any) -> Any:
        warn_about_old_name(f".{old_name}()", f".{new_name}()")
        return getattr(self, new_name)(*args, **options)

    deprecated.__name__ = old_name
    deprecated.__doc__ = f"Deprecated: use `{new_name}`."
    return deprecated
