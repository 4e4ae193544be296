"""``cp.memoize``: results kept for each argument, and for each device if wanted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from virtualgpu.model import machine as _machine


class _Results(dict[Any, Any]):
    """What functions have given, on one machine."""


def memoize(for_each_device: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function keep its results for each argument; ``for_each_device`` keeps those of devices apart.

    Examples
    --------
    >>> @cp.memoize()
    ... def kernel_for(dtype): ...
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            machine = _machine.current()
            device = machine.current_device_id if for_each_device else -1
            results = machine.own(_Results)
            key = function, device, args, frozenset(kwargs.items())
            if key not in results:
                results[key] = function(*args, **kwargs)
            return results[key]

        return call

    return decorate


def clear_memo() -> None:
    """Forget the results of all functions that `memoize` decorates."""
    _machine.current().own(_Results).clear()
