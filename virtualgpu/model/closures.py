"""Device memory that a Python function holds on to: which addresses, and the same function on others.

A library kernel of the virtual GPU is a closure over NumPy views of device memory; these views are its
parameters. Device arrays are recognized by ``_view_anywhere``, which returns the array at another address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.model.memory import DeviceMemory

View = npt.NDArray[Any]


def address_of(view: View) -> int:
    """Of a view's first element."""
    return int(view.__array_interface__["data"][0])


def released(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without its hold on memory: arrays in it may die, their addresses stay."""
    changed: Callable[..., Any] = _Walk(lambda view: view).changed(function)
    return changed


def addresses(function: Callable[..., Any], memory: DeviceMemory) -> tuple[tuple[int, int], ...]:
    """Address and size in bytes of every array in device memory that a function uses, each once."""
    found: dict[int, int] = {}
    low = memory.base_address
    high = memory.base_address + memory.arena_bytes

    def note(view: View) -> View:
        address = address_of(view)
        if view.size and low <= address < high:
            found[address] = max(found.get(address, 0), view.nbytes)
        return view

    _Walk(note).changed(function)
    return tuple(found.items())


def moved(function: Callable[..., Any], moves: Mapping[int, int], memory: DeviceMemory) -> Callable[..., Any]:
    """The function with its arrays at other addresses, old to new."""
    changed: Callable[..., Any] = _Walk(lambda view: _moved_view(view, moves, memory)).changed(function)
    return changed


def moved_views(views: Iterable[View], moves: Mapping[int, int], memory: DeviceMemory) -> tuple[View, ...]:
    """The arrays at other addresses, old to new."""
    return tuple(_moved_view(view, moves, memory) for view in views)


def _moved_view(view: View, moves: Mapping[int, int], memory: DeviceMemory) -> View:
    to = moves.get(address_of(view)) if view.size else None
    return view if to is None else _view_at(to, view, memory)


def _view_at(address: int, like: View, memory: DeviceMemory) -> View:
    steps = [(n - 1) * step for n, step in zip(like.shape, like.strides, strict=True)]
    below = -sum(step for step in steps if step < 0)
    size = below + sum(step for step in steps if step > 0) + like.itemsize
    buffer = memory.view(address - below, size)
    return np.ndarray(like.shape, like.dtype, buffer=buffer, offset=below, strides=like.strides)


class _Walk:
    """Copies a function with what `change` makes of the views in its cells, defaults and containers."""

    def __init__(self, change: Callable[[View], View]) -> None:
        self._change = change
        self._done: dict[int, tuple[Any, Any]] = {}  # the first keeps the id in use

    def changed(self, value: Any) -> Any:
        if id(value) not in self._done:
            self._done[id(value)] = value, value  # for a function that refers to itself
            self._done[id(value)] = value, self._copied(value)
        return self._done[id(value)][1]

    def _copied(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._change(value)
        if hasattr(value, "_view_anywhere"):
            return value._view_anywhere(self.changed(value._host))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.changed, value))
        if type(value) in (list, tuple):
            return type(value)(map(self.changed, value))
        if type(value) is dict:
            return {key: self.changed(item) for key, item in value.items()}
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self.changed(value.__self__))
        if not isinstance(value, FunctionType) or not (value.__closure__ or value.__defaults__):
            return value
        cells = tuple(CellType(self.changed(cell.cell_contents)) for cell in value.__closure__ or ())
        defaults = value.__defaults__ and tuple(map(self.changed, value.__defaults__))
        copy = FunctionType(value.__code__, value.__globals__, value.__name__, defaults, cells)
        copy.__kwdefaults__ = value.__kwdefaults__
        return copy
