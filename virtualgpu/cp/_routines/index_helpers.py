"""Helpers that build arrays and indices (``r_``, ``c_``, ``ix_``), and functions that work along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._routines.creation import array, asarray
from virtualgpu.cp._routines.from_numpy import lift_to_device
from virtualgpu.cp._routines.functions import expand_dims, moveaxis, stack

__all__ = [
    *(
        "apply_along_axis",
        "apply_over_axes",
        "bartlett",
        "blackman",
        "c_",
        "diag_indices",
        "hamming",
        "hanning",
        "ix_",
        "kaiser",
    ),
    *("kaiser", "r_", "tril_indices", "triu_indices"),
]

bartlett = lift_to_device(np.bartlett, operand_count=0)
blackman = lift_to_device(np.blackman, operand_count=0)
kaiser = lift_to_device(np.kaiser, operand_count=0)
hamming = lift_to_device(np.hamming, operand_count=0)
hanning = lift_to_device(np.hanning, operand_count=0)
diag_indices = lift_to_device(np.diag_indices, operand_count=0)
tril_indices = lift_to_device(np.tril_indices, operand_count=0)
triu_indices = lift_to_device(np.triu_indices, operand_count=0)


class _Joiner:
    """The class of ``cp.r_`` and ``cp.c_``, which join slices, numbers and arrays in brackets."""

    def __init__(self, numpy_joiner: Any, name: str) -> None:
        self._name = name
        self._join_arrays = lift_to_device(lambda *parts: numpy_joiner[parts], name=name, operand_count=0)

    def __getitem__(self, key: Any) -> ndarray:
        key_parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(key_part, str) for key_part in key_parts):
            raise NotImplementedError(
                f"cp.{self._name} does not support directives as strings, such as 'r' or '0,2'."
            )
        joined_lists = [
            array(key_part) if isinstance(key_part, (list, np.ndarray)) else key_part
            for key_part in key_parts
        ]
        return self._join_arrays(*joined_lists)  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return 0


r_ = _Joiner(np.r_, "r_")
c_ = _Joiner(np.c_, "c_")


def ix_(*args: Any) -> tuple[ndarray, ...]:
    """Return index arrays that select rows and columns of a matrix, as in ``x[cp.ix_(rows, columns)]``."""
    axis_arrays = [
        axis_array if isinstance(axis_array, ndarray) else array(axis_array) for axis_array in args
    ]
    axis_arrays = [
        axis_array.astype(np.intp) if not axis_array.size else axis_array for axis_array in axis_arrays
    ]  # [] is an index, too
    return _lifted_ix(*axis_arrays)  # type: ignore[no-any-return]


_lifted_ix = lift_to_device(np.ix_, name="ix_", synchronizes=True)


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ndarray, *args: Any, **kwargs: Any
) -> ndarray:
    """Apply a function of one-dimensional arrays to every one-dimensional slice along an axis.

    The function is called once per slice, so a function of whole arrays needs far fewer launches.
    """
    if not isinstance(arr, ndarray):
        raise TypeError(
            f"`arr` must be a device array, not {type(arr).__name__}. Convert it with cp.asarray(a)."
        )
    lines_along_axis = moveaxis(arr, axis, -1)
    outer_shape = lines_along_axis.shape[:-1]
    if 0 in outer_shape:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    line_results = [func1d(lines_along_axis[index], *args, **kwargs) for index in np.ndindex(outer_shape)]
    results = [
        function_result if isinstance(function_result, ndarray) else array(function_result)
        for function_result in line_results
    ]
    stacked_results: ndarray = stack(results)
    stacked_results = stacked_results.reshape(outer_shape + results[0].shape)
    axis_position = axis if axis >= 0 else axis + arr.ndim
    result_ndim = results[0].ndim
    # The axes of a result replace the axis.
    axis_order = (
        *range(axis_position),
        *range(len(outer_shape), len(outer_shape) + result_ndim),
        *range(axis_position, len(outer_shape)),
    )
    return stacked_results.transpose(axis_order)


def apply_over_axes(func: Callable[[ndarray, int], Any], a: ndarray, axes: Any) -> ndarray:
    """Apply a function such as ``cp.sum`` along several axes of an array, one axis after another.

    The result has as many axes as `a`, even if `func` removes the reduced axis.
    """
    result = asarray(a)
    for signed_axis in axes if isinstance(axes, (tuple, list)) else (int(axes),):
        axis = signed_axis + a.ndim if signed_axis < 0 else signed_axis
        reduced_array = func(result, axis)
        if reduced_array.ndim == result.ndim - 1:
            reduced_array = expand_dims(reduced_array, axis)
        if reduced_array.ndim != result.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        result = reduced_array
    return result
