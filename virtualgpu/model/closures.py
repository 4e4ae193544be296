"""Addresses of the device memory that a Python function uses, and copies of it that use other addresses.

A library kernel of the virtual GPU is a closure over NumPy views of device memory; these views are its
parameters. Device arrays are recognized by ``_make_outside_view``, which returns the array at another
address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.model.memory import DeviceMemory

ArrayView = npt.NDArray[Any]


def address_of(view: ArrayView) -> int:
    """Return the address of the first element of an array view."""
    return int(view.__array_interface__["data"][0])


def copy_without_views(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function that does not keep its device arrays alive."""
    function_copy: Callable[..., Any] = _FunctionCopier(lambda view: view).copy_value(function)
    return function_copy


def find_addresses(function: Callable[..., Any], memory: DeviceMemory) -> tuple[tuple[int, int], ...]:
    """Return the address and size in bytes of each device array that a function uses."""
    sizes: dict[int, int] = {}
    memory_start = memory.base_address
    memory_end = memory.base_address + memory.arena_bytes

    def note_view(view: ArrayView) -> ArrayView:
        address = address_of(view)
        if view.size and memory_start <= address < memory_end:
            sizes[address] = max(sizes.get(address, 0), view.nbytes)
        return view

    _FunctionCopier(note_view).copy_value(function)
    return tuple(sizes.items())


def copy_with_moved_views(
    function: Callable[..., Any], moves: Mapping[int, int], memory: DeviceMemory
) -> Callable[..., Any]:
    """Return a copy of a function that uses its device arrays at other addresses. The dictionary `moves` maps
    old addresses to new ones.
    """
    function_copy: Callable[..., Any] = _FunctionCopier(
        lambda view: _move_view(view, moves, memory)
    ).copy_value(function)
    return function_copy


def move_views(
    views: Iterable[ArrayView], moves: Mapping[int, int], memory: DeviceMemory
) -> tuple[ArrayView, ...]:
    """Return views of the same arrays at other addresses. The dictionary `moves` maps old addresses to new
    ones.
    """
    return tuple(_move_view(view, moves, memory) for view in views)


def _move_view(view: ArrayView, moves: Mapping[int, int], memory: DeviceMemory) -> ArrayView:
    address = moves.get(address_of(view)) if view.size else None
    return view if address is None else _make_view(address, view, memory)


def _make_view(address: int, original_view: ArrayView, memory: DeviceMemory) -> ArrayView:
    """Return a view of the memory at an address with the shape and strides of another view."""
    axis_extents_bytes = [
        (length - 1) * stride
        for length, stride in zip(original_view.shape, original_view.strides, strict=True)
    ]
    bytes_before = -sum(
        axis_extent_bytes for axis_extent_bytes in axis_extents_bytes if axis_extent_bytes < 0
    )
    size_bytes = (
        bytes_before
        + sum(axis_extent_bytes for axis_extent_bytes in axis_extents_bytes if axis_extent_bytes > 0)
        + original_view.itemsize
    )
    buffer = memory.view(address - bytes_before, size_bytes)
    return np.ndarray(
        original_view.shape,
        original_view.dtype,
        buffer=buffer,
        offset=bytes_before,
        strides=original_view.strides,
    )


class _FunctionCopier:
    """A copier of functions that applies `change_view` to arrays in their cells, defaults and containers."""

    def __init__(self, change_view: Callable[[ArrayView], ArrayView]) -> None:
        self._change_view = change_view
        self._copies_by_id: dict[int, tuple[Any, Any]] = {}  # original and copy by id of the original

    def copy_value(self, value: Any) -> Any:
        if id(value) not in self._copies_by_id:
            self._copies_by_id[id(value)] = value, value  # for a function that refers to itself
            self._copies_by_id[id(value)] = value, self._make_copy(value)
        return self._copies_by_id[id(value)][1]

    def _make_copy(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._change_view(value)
        if hasattr(value, "_make_outside_view"):
            return value._make_outside_view(self.copy_value(value._host))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.copy_value, value))
        if type(value) in (list, tuple):
            return type(value)(map(self.copy_value, value))
        if type(value) is dict:
            return {key: self.copy_value(element) for key, element in value.items()}
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self.copy_value(value.__self__))
        if not isinstance(value, FunctionType) or not (value.__closure__ or value.__defaults__):
            return value
        cells = tuple(CellType(self.copy_value(cell.cell_contents)) for cell in value.__closure__ or ())
        defaults = value.__defaults__ and tuple(map(self.copy_value, value.__defaults__))
        function_copy = FunctionType(value.__code__, value.__globals__, value.__name__, defaults, cells)
        function_copy.__kwdefaults__ = value.__kwdefaults__
        return function_copy
