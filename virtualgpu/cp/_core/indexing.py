"""Index keys with CuPy's rules, and ``x.flat``.

CuPy differs from NumPy in one rule: integer *arrays* used as indices wrap around instead of raising
(a kernel cannot raise). Plain integers out of range raise ``IndexError`` in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class HostKey:
    """An index of a device array, converted to an index that NumPy accepts.

    Attributes
    ----------
    key : tuple
        The index for NumPy.
    is_advanced : bool
        Whether the result is a copy instead of a view.
    has_mask : bool
        Whether the size of the result depends on data, because a part of the index is a boolean array.
    index_bytes : int
        Bytes that are moved to read the index arrays.
    """

    key: tuple[Any, ...]
    is_advanced: bool
    has_mask: bool
    index_bytes: int


def make_host_key(key: Any, shape: tuple[int, ...], to_host: Callable[[Any], Any]) -> HostKey:
    """Convert an index of a device array with a given shape to an index that NumPy accepts.

    Parameters
    ----------
    to_host : callable
        Returns the host view of a device array, and None for anything else.

    Raises
    ------
    IndexError
        For an object that is not an index, as in CuPy.
    """
    key_parts = [
        _convert_key_part(key_part, to_host) for key_part in (key if isinstance(key, tuple) else (key,))
    ]
    index_arrays = [key_part for key_part in key_parts if isinstance(key_part, np.ndarray)]
    if any(array.dtype.kind not in "biu" for array in index_arrays):
        raise IndexError("arrays used as indices must be of integer or boolean type")
    if index_arrays:
        key_parts = _wrap_indices(key_parts, shape)
    elif not any(key_part is Ellipsis for key_part in key_parts):
        key_parts.append(Ellipsis)  # NumPy then returns a view of any dimension, never a scalar
    return HostKey(
        key=tuple(key_parts),
        is_advanced=bool(index_arrays),
        has_mask=any(array.dtype.kind == "b" for array in index_arrays),
        index_bytes=sum(array.nbytes for array in index_arrays),
    )


def _convert_key_part(key_part: Any, to_host: Callable[[Any], Any]) -> Any:
    if key_part is None or key_part is Ellipsis:
        return key_part
    if isinstance(key_part, slice):
        return slice(
            *(_convert_bound(bound, to_host) for bound in (key_part.start, key_part.stop, key_part.step))
        )
    host_key_part = to_host(key_part)
    if host_key_part is not None:
        return host_key_part
    if isinstance(key_part, (bool, np.bool_)):
        return np.asarray(key_part)
    if isinstance(key_part, (int, np.integer)):
        return int(key_part)
    if isinstance(key_part, (list, tuple, np.ndarray)):
        if isinstance(key_part, (list, tuple)):
            host_items = [to_host(item) for item in key_part]
            if any(item is not None for item in host_items):
                key_part = [
                    item if host_key_part is None else host_key_part
                    for item, host_key_part in zip(key_part, host_items, strict=True)
                ]
        array = np.asarray(key_part)
        return array.astype(np.int32) if array.size == 0 and isinstance(key_part, (list, tuple)) else array
    if hasattr(key_part, "__index__"):
        return key_part.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays "
        "are valid indices"
    )


def _convert_bound(bound: Any, to_host: Callable[[Any], Any]) -> Any:
    host_bound = None if bound is None else to_host(bound)
    return bound if host_bound is None else int(host_bound)


def _count_axes(key_part: Any) -> int:
    """Return the number of array axes to which one part of an index applies."""
    if key_part is None:
        return 0
    if isinstance(key_part, np.ndarray) and key_part.dtype.kind == "b":
        return key_part.ndim
    return 1


def _wrap_indices(key_parts: list[Any], shape: tuple[int, ...]) -> list[Any]:
    used_axis_count = sum(_count_axes(key_part) for key_part in key_parts if key_part is not Ellipsis)
    if used_axis_count > len(shape):
        raise IndexError("too many indices for array")
    axis = 0
    wrapped_parts: list[Any] = []
    for key_part in key_parts:
        if key_part is Ellipsis:
            axis += len(shape) - used_axis_count
            wrapped_parts.append(key_part)
            continue
        if isinstance(key_part, np.ndarray) and key_part.dtype.kind != "b":
            extent = shape[axis]
            if extent == 0 and key_part.size:
                raise IndexError(f"cannot index axis {axis} of length 0")
            if key_part.size:
                key_part = key_part.astype(np.int64) % extent
        wrapped_parts.append(key_part)
        axis += _count_axes(key_part)
    return wrapped_parts


class flatiter:  # noqa: N801 - CuPy's name
    """Iterator over the elements of an array in C order. The iterator also accepts integers and slices as
    indices.
    """

    def __init__(self, a: Any) -> None:
        self.base = a
        self._next_index = 0

    def __iter__(self) -> flatiter:
        return self

    def __next__(self) -> Any:
        if self._next_index == self.base.size:
            raise StopIteration
        self._next_index += 1
        return self[self._next_index - 1]

    def __len__(self) -> int:
        return int(self.base.size)

    def copy(self) -> Any:
        """Return the elements as a new one-dimensional array."""
        return self.base.flatten()

    def __getitem__(self, ind: Any) -> Any:
        if isinstance(ind, slice) or ind is Ellipsis:
            return self.base.ravel()[ind].copy()
        return self.base[self._unravel_index(ind)].copy()

    def __setitem__(self, ind: Any, value: Any) -> None:
        if isinstance(ind, slice) or ind is Ellipsis:
            indices = np.arange(self.base.size)[ind]
            values = np.resize(np.asarray(value._host if hasattr(value, "_host") else value), indices.size)
            flat_values = self.base.ravel().get()
            flat_values[indices] = values
            self.base[...] = type(self.base)._from_host(flat_values.reshape(self.base.shape))
        else:
            self.base[self._unravel_index(ind)] = value

    def _unravel_index(self, ind: Any) -> tuple[int, ...]:
        if isinstance(ind, bool) or not isinstance(ind, (int, np.integer)):
            raise IndexError("unsupported iterator index")
        index = int(ind)
        size = self.base.size
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of bounds for size {size}")
        return tuple(int(i) for i in np.unravel_index(index % size, self.base.shape))
