"""``cp.memoize``: results kept for each argument, and for each device if wanted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from virtualgpu.model import machine as _machine


def memoize(for_each_device: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function keep its results for each argument; ``for_each_device`` keeps those of devices apart.

    Examples
    --------
    >>> @cp.memoize()
    ... def kernel_for(dtype): ...
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        results: dict[Any, Any] = {}

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            device = _machine.current().current_device_id if for_each_device else -1
            key = device, args, frozenset(kwargs.items())
            if key not in results:
                results[key] = function(*args, **kwargs)
            return results[key]

        return call

    return decorate
