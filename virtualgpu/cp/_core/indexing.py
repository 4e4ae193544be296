"""Index keys as CuPy reads them, and ``x.flat``.

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
    """A key that NumPy understands. ``advanced``: the result is a copy; ``masked``: its size depends
    on data; ``index_bytes``: what reading the index arrays moves."""

    key: tuple[Any, ...]
    advanced: bool
    masked: bool
    index_bytes: int


def host_key(key: Any, shape: tuple[int, ...], to_host: Callable[[Any], Any]) -> HostKey:
    """Translate `key` for an array of `shape`.

    Parameters
    ----------
    to_host : callable
        Returns the host view of a device array, and None for anything else.

    Raises
    ------
    IndexError
        For something that is no index, as in CuPy.
    """
    parts = [_part(part, to_host) for part in (key if isinstance(key, tuple) else (key,))]
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if any(array.dtype.kind not in "biu" for array in arrays):
        raise IndexError("arrays used as indices must be of integer or boolean type")
    if arrays:
        parts = _wrapped(parts, shape)
    elif not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)  # NumPy then answers with a view of any dimension, never with a scalar
    return HostKey(
        key=tuple(parts),
        advanced=bool(arrays),
        masked=any(array.dtype.kind == "b" for array in arrays),
        index_bytes=sum(array.nbytes for array in arrays),
    )


def _part(part: Any, to_host: Callable[[Any], Any]) -> Any:
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        return slice(*(_bound(bound, to_host) for bound in (part.start, part.stop, part.step)))
    host = to_host(part)
    if host is not None:
        return host
    if isinstance(part, (bool, np.bool_)):
        return np.asarray(part)
    if isinstance(part, (int, np.integer)):
        return int(part)
    if isinstance(part, (list, tuple, np.ndarray)):
        nested = [to_host(item) for item in part] if isinstance(part, (list, tuple)) else [None]
        array = np.asarray(
            [p if h is None else h for p, h in zip(part, nested, strict=True)]
            if any(h is not None for h in nested)
            else part
        )
        return array.astype(np.int32) if array.size == 0 and isinstance(part, (list, tuple)) else array
    if hasattr(part, "__index__"):
        return part.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays "
        "are valid indices"
    )


def _bound(bound: Any, to_host: Callable[[Any], Any]) -> Any:
    host = None if bound is None else to_host(bound)
    return bound if host is None else int(host)


def _consumed(part: Any) -> int:
    """Axes of the indexed array that one part of the key stands for."""
    if part is None:
        return 0
    if isinstance(part, np.ndarray) and part.dtype.kind == "b":
        return part.ndim
    return 1


def _wrapped(parts: list[Any], shape: tuple[int, ...]) -> list[Any]:
    used = sum(_consumed(part) for part in parts if part is not Ellipsis)
    if used > len(shape):
        raise IndexError("too many indices for array")
    axis = 0
    result: list[Any] = []
    for part in parts:
        if part is Ellipsis:
            axis += len(shape) - used
            result.append(part)
            continue
        if isinstance(part, np.ndarray) and part.dtype.kind != "b":
            extent = shape[axis]
            if extent == 0 and part.size:
                raise IndexError(f"cannot index axis {axis} of length 0")
            if part.size:
                part = part.astype(np.int64) % extent
        result.append(part)
        axis += _consumed(part)
    return result


class flatiter:  # noqa: N801 - CuPy's name
    """The elements of an array in C order: an iterator that takes integers and slices as indices."""

    def __init__(self, a: Any) -> None:
        self.base = a
        self._next = 0

    def __iter__(self) -> flatiter:
        return self

    def __next__(self) -> Any:
        if self._next == self.base.size:
            raise StopIteration
        self._next += 1
        return self[self._next - 1]

    def __len__(self) -> int:
        return int(self.base.size)

    def copy(self) -> Any:
        """The elements as a new one-dimensional array."""
        return self.base.flatten()

    def __getitem__(self, ind: Any) -> Any:
        if isinstance(ind, slice) or ind is Ellipsis:
            return self.base.ravel()[ind].copy()
        return self.base[self._place(ind)].copy()

    def __setitem__(self, ind: Any, value: Any) -> None:
        if isinstance(ind, slice) or ind is Ellipsis:
            every = np.arange(self.base.size)[ind]
            values = np.resize(np.asarray(value._host if hasattr(value, "_host") else value), every.size)
            flat = self.base.ravel().get()
            flat[every] = values
            self.base[...] = type(self.base)._stored(flat.reshape(self.base.shape))
        else:
            self.base[self._place(ind)] = value

    def _place(self, ind: Any) -> tuple[int, ...]:
        if isinstance(ind, bool) or not isinstance(ind, (int, np.integer)):
            raise IndexError("unsupported iterator index")
        number = int(ind)
        size = self.base.size
        if not -size <= number < size:
            raise IndexError(f"index {number} is out of bounds for size {size}")
        return tuple(int(i) for i in np.unravel_index(number % size, self.base.shape))
