"""Functions that create device arrays from shapes, ranges and host data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import Traceable, make_type_error
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dlpack import from_interface
from virtualgpu.cp._core.dtypes import check_dtype, parse_shape
from virtualgpu.cp._routines.from_numpy import lift_to_device
from virtualgpu.cp._routines.functions import stack
from virtualgpu.cp.cuda._memory.pool import check_free_memory
from virtualgpu.cp.cuda.stream import get_current_stream
from virtualgpu.model import machine as _machine


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Return an uninitialized array. On the virtual GPU, the elements are NaN or arbitrary numbers."""
    return _mark_uninitialized(ndarray(shape, dtype, order=order))


def _mark_uninitialized(array: ndarray) -> ndarray:
    # Deferred work may still use the previous contents of this memory.
    if array.nbytes and array._mem.owner.clock.deferral is None:
        array._mem.owner.memory.mark_unwritten(array.data.ptr, array.nbytes)
    return array


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Return a new array of zeros."""
    return full(shape, 0, dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Return a new array of ones."""
    return full(shape, 1, dtype, order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    """Return a new array in which all elements have the same value, by default with the value's dtype."""
    if dtype is None:
        dtype = fill_value.dtype if hasattr(fill_value, "dtype") else np.array(fill_value).dtype
    return _fill_array(ndarray(shape, dtype, order=order), fill_value)


def _fill_array(array: ndarray, value: Any) -> ndarray:
    if isinstance(value, ndarray) and value.ndim:
        array[...] = value
    else:
        array.fill(value)
    return array


def empty_like(
    prototype: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    """Return an uninitialized array with the shape and dtype of another array."""
    return _mark_uninitialized(_make_array_like(prototype, dtype, order, shape))


def _make_array_like(prototype: Any, dtype: Any, order: Any, shape: Any) -> ndarray:
    host_prototype = prototype._host if isinstance(prototype, ndarray) else prototype
    if not isinstance(host_prototype, np.ndarray):
        raise make_type_error(prototype)
    new_dtype = check_dtype(host_prototype.dtype if dtype is None else dtype)
    extents = host_prototype.shape if shape is None else parse_shape(shape)
    if len(extents) != host_prototype.ndim and order.upper() == "K":
        order = "C"
    # Only the strides of this NumPy array are used. It is never written, so it takes no physical memory.
    strides = np.empty_like(host_prototype, dtype=new_dtype, order=order, subok=False, shape=extents).strides
    return ndarray(extents, new_dtype, strides=strides)


def zeros_like(
    a: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    """Return an array of zeros with the shape and dtype of another array."""
    return _fill_array(_make_array_like(a, dtype, order, shape), 0)


def ones_like(
    a: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    """Return an array of ones with the shape and dtype of another array."""
    return _fill_array(_make_array_like(a, dtype, order, shape), 1)


def full_like(
    a: ndarray, fill_value: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    """Return an array filled with one value, with the shape and dtype of another array."""
    return _fill_array(_make_array_like(a, dtype, order, shape), fill_value)


# From data


def _contains_device_array(obj: Any) -> bool:
    if isinstance(obj, ndarray):
        return True
    return isinstance(obj, (list, tuple)) and any(_contains_device_array(item) for item in obj)


def _stack_nested_arrays(obj: Any) -> ndarray:
    if isinstance(obj, ndarray):
        return obj
    if isinstance(obj, (list, tuple)):
        stacked_array: ndarray = stack([_stack_nested_arrays(item) for item in obj])
        return stacked_array
    return array(obj)


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> ndarray:
    """Return a new device array from a NumPy array, nested lists, a scalar or another device array.

    Raises
    ------
    ValueError
        ``Unsupported dtype`` for strings, objects, dates and records.
    """
    order = order or "K"
    if _contains_device_array(obj):
        result = _stack_nested_arrays(obj)
        result_dtype = result.dtype if dtype is None else check_dtype(dtype)
        device = _machine.current().current_device
        if result._mem.owner is not device:
            result = result.copy().astype(result_dtype, order=order, copy=False)
        elif result is not obj:
            result = result.astype(result_dtype, order=order, copy=False)
        else:
            result = result.astype(result_dtype, order=order, copy=bool(copy))
        return result.reshape((1,) * (ndmin - result.ndim) + result.shape) if result.ndim < ndmin else result
    if hasattr(obj, "__cuda_array_interface__"):
        return array(from_interface(obj), dtype, copy, order, subok, ndmin)
    host_array = np.array(obj, dtype=dtype, copy=None, ndmin=ndmin)
    if not host_array.dtype.isnative:
        host_array = host_array.astype(host_array.dtype.newbyteorder("="))
    check_dtype(host_array.dtype)
    memory_order = (
        "F" if order.upper() == "F" or (order.upper() in "KA" and _is_only_f_contiguous(host_array)) else "C"
    )
    result = ndarray(host_array.shape, host_array.dtype, order=memory_order)
    result._copy_from_host(
        host_array, is_staged=True
    )  # CuPy copies through a pinned buffer, so the host does not wait
    if blocking:
        get_current_stream(result._mem.owner.id).synchronize()
    return result


def _is_only_f_contiguous(host_array: np.ndarray[Any, Any]) -> bool:
    return bool(host_array.flags.f_contiguous and not host_array.flags.c_contiguous)


def asarray(
    a: Any, dtype: Any = None, order: str | None = "K", *, copy: bool | None = None, blocking: bool = False
) -> ndarray:
    """Convert `a` to a device array. A device array that already has the requested dtype is returned
    unchanged.

    With ``copy=True`` they are copied too. With ``copy=False`` a necessary copy raises ``ValueError``.
    """
    result = array(a, dtype, copy=bool(copy), order=order or "K", blocking=blocking)
    if copy is False and isinstance(a, ndarray) and result is not a:
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    return result


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    """Convert `a` to a C-ordered device array with at least one dimension."""
    result = asarray(a, dtype)
    if not result.flags.c_contiguous:
        result = result.copy()
    return result if result.ndim else result.reshape(1)


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    """Convert `a` to a Fortran-ordered device array."""
    result = asarray(a, dtype)
    return result if result.flags.f_contiguous else result.copy(order="F")


def copy(a: ndarray, order: str = "K") -> ndarray:
    """Return a copy of a device array on the current device."""
    if isinstance(a, Traceable):
        return a.copy()
    return asarray(a).copy(order=order)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> ndarray:
    """Return a device array with a copy of the bytes of a buffer."""
    return array(np.frombuffer(buffer, dtype, count, offset))


def asnumpy(
    a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True
) -> np.ndarray[Any, Any]:
    """Convert `a` to a NumPy array. Device arrays are copied to the host."""
    if isinstance(a, ndarray):
        return a.get(stream=stream, order=order, out=out, blocking=blocking)
    layout: Any = order
    host_array = np.asarray(a, order=layout)
    if out is None:
        return host_array
    out[...] = host_array
    result: np.ndarray[Any, Any] = out
    return result


# From numbers


def _compute_from_numbers(function: Callable[..., Any], *args: Any, **kwargs: Any) -> ndarray:
    """Launch a kernel that computes an array from a few numbers, and return the array."""
    args = tuple(argument.item() if isinstance(argument, ndarray) else argument for argument in args)
    host_array = function(*args, **kwargs)
    check_dtype(host_array.dtype)
    name = f"cupy_{function.__name__}__{host_array.dtype.name}"
    order = "F" if _is_only_f_contiguous(host_array) else "C"
    return ndarray._from_library_kernel(name, host_array, lambda: function(*args, **kwargs), order=order)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> ndarray:
    """Return evenly spaced values in ``[start, stop)``, or in ``[0, start)`` if `stop` is not given."""
    if stop is None:
        start, stop = 0, start
    element_count = (float(stop) - float(start)) / float(step) if step else 0.0
    check_free_memory(math.ceil(max(0.0, element_count)) * np.dtype(dtype or np.float64).itemsize)
    return _compute_from_numbers(np.arange, start, stop, step, dtype=dtype)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Return `num` evenly spaced values from `start` to `stop`. The limits can be numbers or arrays."""
    if np.ndim(start) or np.ndim(stop):
        array_linspace = lift_to_device(np.linspace, operand_count=0)
        return array_linspace(start, stop, num, endpoint, retstep, dtype, axis)
    check_free_memory(num * np.dtype(dtype or np.float64).itemsize)
    result = _compute_from_numbers(np.linspace, start, stop, num, endpoint=endpoint, dtype=dtype, axis=axis)
    if not retstep:
        return result
    interval_count = num - 1 if endpoint else num
    return result, (stop - start) / interval_count if interval_count > 0 else float("nan")


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> ndarray:
    """Return `num` values spaced evenly on a log scale."""
    if np.ndim(start) or np.ndim(stop):
        result: ndarray = base ** linspace(start, stop, num, endpoint, axis=axis)
        return result if dtype is None else result.astype(dtype)
    check_free_memory(num * np.dtype(dtype or np.float64).itemsize)
    return _compute_from_numbers(
        np.logspace, start, stop, num, endpoint=endpoint, base=base, dtype=dtype, axis=axis
    )


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C") -> ndarray:  # noqa: N803
    """Return a matrix with ones on a diagonal and zeros elsewhere."""
    check_free_memory(N * (N if M is None else M) * np.dtype(dtype).itemsize)
    return _compute_from_numbers(np.eye, N, M, k, dtype=dtype, order=order)


def identity(n: int, dtype: Any = float) -> ndarray:
    """Return the identity matrix."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float) -> ndarray:  # noqa: N803
    """Return a matrix with ones at and below a diagonal and zeros elsewhere."""
    check_free_memory(N * (N if M is None else M) * np.dtype(dtype).itemsize)
    return _compute_from_numbers(np.tri, N, M, k, dtype=dtype)


def indices(dimensions: Any, dtype: Any = int) -> ndarray:
    """Return the index arrays of a grid, one array per axis."""
    return _compute_from_numbers(np.indices, dimensions, dtype)


def meshgrid(*xi: Any, indexing: Any = "xy", sparse: bool = False, copy: bool = True) -> tuple[ndarray, ...]:
    """Return the coordinate arrays of a grid from one-dimensional coordinates."""
    grids = lift_to_device(np.meshgrid, operand_count=len(xi))(
        *xi, indexing=indexing, sparse=sparse, copy=copy
    )
    return tuple(grids)


class _GridIndexer:
    """The class of ``cp.mgrid`` and ``cp.ogrid``, which create coordinate grids from slices."""

    def __init__(self, numpy_grid: Any, name: str) -> None:
        self._numpy_grid = numpy_grid
        self._name = name

    def __repr__(self) -> str:
        return f"<cp.{self._name}: index it with slices>"

    def __getitem__(self, key: Any) -> Any:
        grid = self._numpy_grid[key]
        return [array(axis_grid) for axis_grid in grid] if isinstance(grid, (list, tuple)) else array(grid)


mgrid = _GridIndexer(np.mgrid, "mgrid")
ogrid = _GridIndexer(np.ogrid, "ogrid")


def get_array_module(*args: Any) -> Any:
    """Return ``cp`` if any argument is a device array, and ``numpy`` otherwise."""
    return ndarray._module if any(isinstance(argument, ndarray) for argument in args) else np


__all__ = [
    _name
    for _name, _value in list(globals().items())
    if not _name.startswith("_")
    and (getattr(_value, "__module__", "") in (__name__,) or isinstance(_value, _GridIndexer))
]
