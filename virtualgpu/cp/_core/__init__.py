"""Implementation of `cp.ndarray`: an array in device memory that follows CuPy's rules."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "core":  # with the compiler, so only when it is first used
        return importlib.import_module("virtualgpu.cp._core.core")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
