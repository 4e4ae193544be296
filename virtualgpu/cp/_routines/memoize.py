"""``cp.memoize``: results cached per argument, and optionally per device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from virtualgpu.model import machine as _machine


class _CachedResults(dict[Any, Any]):
    """The cached results of all memoized functions on one machine."""


def memoize(for_each_device: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Cache the results of a function for its arguments. With ``for_each_device``, the results are cached
    separately for each device.

    Examples
    --------
    >>> @cp.memoize()
    ... def kernel_for(dtype): ...
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            machine = _machine.current()
            device_key = machine.current_device_id if for_each_device else -1
            cached_results = machine.get_component(_CachedResults)
            key = function, device_key, args, frozenset(kwargs.items())
            if key not in cached_results:
                cached_results[key] = function(*args, **kwargs)
            return cached_results[key]

        return call

    return decorate


def clear_memo() -> None:
    """Delete the cached results of all functions that are decorated with `memoize`."""
    _machine.current().get_component(_CachedResults).clear()
