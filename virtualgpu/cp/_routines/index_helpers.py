"""Arrays and indices made from brackets (``r_``, ``c_``, ``ix_``) and sizes, and functions along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._routines.creation import array, asarray
from virtualgpu.cp._routines.from_numpy import lift
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

bartlett = lift(np.bartlett, operands=0)
blackman = lift(np.blackman, operands=0)
kaiser = lift(np.kaiser, operands=0)
hamming = lift(np.hamming, operands=0)
hanning = lift(np.hanning, operands=0)
diag_indices = lift(np.diag_indices, operands=0)
tril_indices = lift(np.tril_indices, operands=0)
triu_indices = lift(np.triu_indices, operands=0)


class _Joiner:
    """Slices (as ranges), numbers and arrays in brackets, joined as NumPy's `how` joins them."""

    def __init__(self, how: Any, name: str) -> None:
        self._name = name
        self._join = lift(lambda *parts: how[parts], name=name, operands=0)

    def __getitem__(self, key: Any) -> ndarray:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, str) for part in parts):
            raise NotImplementedError(f"cp.{self._name} takes no directives in words, such as 'r' or '0,2'.")
        lists = [array(part) if isinstance(part, (list, np.ndarray)) else part for part in parts]
        return self._join(*lists)  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return 0


r_ = _Joiner(np.r_, "r_")
c_ = _Joiner(np.c_, "c_")


def ix_(*args: Any) -> tuple[ndarray, ...]:
    """Index arrays for all combinations of indices: ``x[cp.ix_(rows, columns)]`` is a smaller matrix."""
    parts = [part if isinstance(part, ndarray) else array(part) for part in args]
    parts = [part.astype(np.intp) if not part.size else part for part in parts]  # [] is an index, too
    return _crossed(*parts)  # type: ignore[no-any-return]


_crossed = lift(np.ix_, name="ix_", waits=True)


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ndarray, *args: Any, **kwargs: Any
) -> ndarray:
    """A function of one-dimensional arrays for every line along an axis.

    Each call is one on the device; a function of whole arrays takes far fewer.
    """
    if not isinstance(arr, ndarray):
        raise TypeError(f"`arr` is a device array, not {type(arr).__name__}: cp.asarray(a) makes one.")
    lines = moveaxis(arr, axis, -1)
    outer = lines.shape[:-1]
    if 0 in outer:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    found = [func1d(lines[at], *args, **kwargs) for at in np.ndindex(outer)]
    results = [one if isinstance(one, ndarray) else array(one) for one in found]
    joined: ndarray = stack(results)
    joined = joined.reshape(outer + results[0].shape)
    place = axis if axis >= 0 else axis + arr.ndim
    own = results[0].ndim
    # The axes of a result take the place of the axis.
    order = (*range(place), *range(len(outer), len(outer) + own), *range(place, len(outer)))
    return joined.transpose(order)


def apply_over_axes(func: Callable[[ndarray, int], Any], a: ndarray, axes: Any) -> ndarray:
    """A function of an array and an axis for one axis after the other, as a sum over some would be.

    `func` may keep the axis, with length 1, or drop it; the result keeps all.
    """
    result = asarray(a)
    for given in axes if isinstance(axes, (tuple, list)) else (int(axes),):
        axis = given + a.ndim if given < 0 else given
        one = func(result, axis)
        if one.ndim == result.ndim - 1:
            one = expand_dims(one, axis)
        if one.ndim != result.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        result = one
    return result
