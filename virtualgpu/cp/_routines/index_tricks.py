"""Index helpers of the ``cp`` namespace: ``r_``, ``ix_``, triangles and diagonals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import index_exp, ndindex, s_

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._routines import functions
from virtualgpu.cp._routines.creation import array, indices
from virtualgpu.cp._routines.from_numpy import lift

__all__ = [
    "apply_along_axis",
    "c_",
    "diag_indices",
    "diag_indices_from",
    "flatiter",
    "fromfunction",
    "index_exp",
    "ix_",
    "mask_indices",
    "ndindex",
    "r_",
    "ravel_multi_index",
    "s_",
    "tril_indices",
    "tril_indices_from",
    "triu_indices",
    "triu_indices_from",
]

from virtualgpu.cp._core.array_methods import flatiter


class _Joined:
    """``cp.r_`` and ``cp.c_``: arrays, numbers and ranges joined by indexing."""

    def __init__(self, maker: Any, name: str) -> None:
        self._maker = maker
        self._name = name

    def __repr__(self) -> str:
        return f"<cp.{self._name}: index it with arrays, numbers and slices>"

    def __getitem__(self, key: Any) -> ndarray:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, str) for part in parts):
            raise NotImplementedError("string directives are not supported, as in CuPy")
        joined = lift(lambda *hosts: self._maker[hosts], name=self._name, operands=0)
        return joined(*parts)  # type: ignore[no-any-return]


r_, c_ = _Joined(np.r_, "r_"), _Joined(np.c_, "c_")


def ix_(*args: Any) -> tuple[ndarray, ...]:
    """Index arrays for the cross product of one-dimensional sequences."""
    device = [arg if isinstance(arg, ndarray) else array(arg) for arg in args]
    return tuple(lift(np.ix_)(*device))


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function of a few integers, its index arrays on the device."""

    def call(*args: Any, **kwargs: Any) -> tuple[ndarray, ...]:
        return tuple(array(part) for part in function(*args, **kwargs))

    call.__name__ = call.__qualname__ = function.__name__
    call.__doc__ = f"Like ``numpy.{function.__name__}``, with index arrays on the device."
    return call


tril_indices, triu_indices = _of_numbers(np.tril_indices), _of_numbers(np.triu_indices)
diag_indices = _of_numbers(np.diag_indices)


def _of_square(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(arr: ndarray, k: int = 0) -> tuple[ndarray, ...]:
        if not isinstance(arr, ndarray):
            raise TypeError(f"Argument must be a cupy.ndarray, not {type(arr).__name__}")
        if arr.ndim != 2:
            raise ValueError("input array must be 2-d")
        return tuple(function(arr.shape[0], k, arr.shape[1]))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Like ``numpy.{name}``, with index arrays on the device."
    return call


tril_indices_from = _of_square(tril_indices, "tril_indices_from")
triu_indices_from = _of_square(triu_indices, "triu_indices_from")


def diag_indices_from(arr: ndarray) -> tuple[ndarray, ...]:
    """Indices of the main diagonal of an array with equal sides."""
    if not isinstance(arr, ndarray):
        raise TypeError(f"Argument must be a cupy.ndarray, not {type(arr).__name__}")
    if arr.ndim < 2 or len(set(arr.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length, and at least two")
    return diag_indices(arr.shape[0], arr.ndim)  # type: ignore[no-any-return]


def mask_indices(n: int, mask_func: Callable[..., ndarray], k: int = 0) -> tuple[ndarray, ...]:
    """Indices that `mask_func`, such as `cp.triu`, leaves of an ``n`` by ``n`` array."""
    ones = functions.reshape(array(np.ones(n * n, dtype=np.int8)), (n, n))
    return functions.nonzero(mask_func(ones, k))  # type: ignore[no-any-return]


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "wrap", order: Any = "C") -> ndarray:
    """Flat indices of index arrays, as `numpy.ravel_multi_index`; they wrap by default, as in CuPy."""
    flat = lift(np.ravel_multi_index)
    return flat(tuple(multi_index), dims, mode=mode, order=order)  # type: ignore[no-any-return]


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """What `function` gives for the index arrays of a grid."""
    return function(*indices(shape, dtype=dtype), **kwargs)


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ndarray, *args: Any, **kwargs: Any) -> Any:
    """Apply a function of one-dimensional device arrays along an axis."""
    moved = functions.moveaxis(arr, axis, -1)
    outer = moved.shape[:-1]
    if 0 in outer:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    results = [array(func1d(moved[place], *args, **kwargs)) for place in np.ndindex(*outer)]
    joined = functions.stack(results).reshape(outer + results[0].shape)
    for step in range(results[0].ndim):
        joined = functions.moveaxis(joined, len(outer) + step, axis % arr.ndim + step)
    return joined
