"""``cp.lib.stride_tricks``: views of device arrays with user-defined strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._missing_names import make_module_getattr as _module_getattr
from virtualgpu.cp._routines.creation import array

__all__ = ["as_strided", "sliding_window_view"]


def as_strided(x: ndarray, shape: Any = None, strides: Any = None) -> ndarray:
    """Return a view of an array's memory with another shape and other strides. The strides are in bytes.

    Raises
    ------
    ValueError
        If the view extends beyond the allocation; CuPy does not check this.
    """
    extents = x.shape if shape is None else tuple(shape)
    byte_strides = x.strides if strides is None else tuple(strides)
    if len(extents) != len(byte_strides):
        raise ValueError(
            f"`shape` has {len(extents)} axes, but `strides` has {len(byte_strides)}. "
            "Pass one stride per axis."
        )
    axis_extents = [(int(n) - 1) * int(stride) for n, stride in zip(extents, byte_strides, strict=True)]
    low_offset = sum(min(extent, 0) for extent in axis_extents)
    high_offset = sum(max(extent, 0) for extent in axis_extents) + x.itemsize
    if 0 not in extents:
        start_address = x.data.ptr
        base_memory = x.data.mem
        if (
            start_address + low_offset < base_memory.ptr
            or start_address + high_offset > base_memory.ptr + base_memory.size
        ):
            raise ValueError(
                f"A view with the shape {extents} and the strides {byte_strides} would extend from byte "
                f"{start_address + low_offset - base_memory.ptr:,} to "
                f"{start_address + high_offset - base_memory.ptr:,} of an allocation that has "
                f"{base_memory.size:,} bytes. Use the strides of x (x.strides), and a shape that ends "
                "within x."
            )
    return x._make_view(np.lib.stride_tricks.as_strided(x._host, extents, byte_strides))


def sliding_window_view(
    x: Any,
    window_shape: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> ndarray:
    """Return a view of all sliding windows over an array. The last axes of the view are the axes of a single
    window.

    Parameters
    ----------
    window_shape : int or tuple of int
        Window length along each axis in `axis`.
    axis : int or tuple of int, optional
        All axes by default.
    subok, writeable : bool
        As in ``numpy.lib.stride_tricks.sliding_window_view``; CuPy has no writeable views.
    """
    if writeable:
        raise NotImplementedError("Writeable views are not supported.")
    source_array = array(x, copy=False, subok=subok)
    # NumPy checks the arguments and computes shape and strides, on an array without memory.
    host_view = np.lib.stride_tricks.as_strided(
        np.empty(0, source_array.dtype), source_array.shape, source_array.strides
    )
    windows = np.lib.stride_tricks.sliding_window_view(host_view, window_shape, axis)
    return as_strided(source_array, windows.shape, windows.strides)


__getattr__ = _module_getattr("cp.lib.stride_tricks", globals())
