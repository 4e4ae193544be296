"""Launches as learners pass them beside others: tuples and steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtualgpu.protocol import Launch

_WANTED = ("kernel", "grid", "block", "args", "shared_bytes")
_WRITE = "write it as (kernel, grid, block, args), as for gl.count"


def launch_of(what: str, given: Any) -> Launch:
    """A launch given as ``(kernel, grid, block, args)``, with `shared_bytes` as a fifth, or by these names.

    Raises
    ------
    TypeError
        For anything else; `what` names it in the message.
    """
    if isinstance(given, Mapping):
        unknown = [str(name) for name in given if name not in _WANTED]
        missing = [name for name in _WANTED[:3] if name not in given]
        if unknown or missing:
            wrong = (
                f"has no {missing[0]!r}" if missing else f"has {unknown[0]!r}, which is none of a launch's"
            )
            raise TypeError(f"{what} {wrong}: its names are {', '.join(_WANTED)}.")
        given = (*(given[name] for name in _WANTED[:3]), given.get("args", ()), given.get("shared_bytes", 0))
    if not isinstance(given, tuple | list):
        raise TypeError(f"{what} is a launch, not {type(given).__name__}: {_WRITE}.")
    if not 3 <= len(given) <= len(_WANTED):
        raise TypeError(f"{what} has {len(given)} parts: {_WRITE}.")
    return Launch.of(*given, *((), 0)[len(given) - 3 :])
