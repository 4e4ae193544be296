"""NumPy arrays in pinned (page-locked) host memory, from which copies are asynchronous."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from virtualgpu import cp


def empty_pinned(shape: Any, dtype: Any = float, order: Any = "C") -> np.ndarray[Any, Any]:
    """Return an uninitialized array in pinned memory, like ``numpy.empty``."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    memory: Any = cp.cuda.alloc_pinned_memory(prod(shape) * np.dtype(dtype).itemsize)
    return np.ndarray(shape, dtype, buffer=memory, order=order)


def empty_like_pinned(
    a: Any, dtype: Any = None, order: Any = "K", subok: None = None, shape: Any = None
) -> np.ndarray[Any, Any]:
    """Return an uninitialized array in pinned memory, with the shape and dtype of another array.

    Raises
    ------
    TypeError
        If `subok` is given, as in CuPy.
    """
    if subok is not None:
        raise TypeError("subok is not supported yet")
    # An array of the same shape and strides over one element of memory, from which NumPy derives the layout.
    layout_array = np.lib.stride_tricks.as_strided(np.empty(1, a.dtype), a.shape, a.strides, writeable=False)
    template_array = np.empty_like(layout_array, dtype, order, False, shape)
    memory: Any = cp.cuda.alloc_pinned_memory(template_array.nbytes)
    return np.ndarray(
        template_array.shape, template_array.dtype, buffer=memory, strides=template_array.strides
    )


def zeros_pinned(shape: Any, dtype: Any = float, order: Any = "C") -> np.ndarray[Any, Any]:
    """Return an array of zeros in pinned memory, like ``numpy.zeros``."""
    out = empty_pinned(shape, dtype, order)
    out[...] = 0
    return out


def zeros_like_pinned(
    a: Any, dtype: Any = None, order: Any = "K", subok: None = None, shape: Any = None
) -> np.ndarray[Any, Any]:
    """Return an array of zeros in pinned memory, with the shape and dtype of another array."""
    out = empty_like_pinned(a, dtype, order, subok, shape)
    out[...] = 0
    return out
