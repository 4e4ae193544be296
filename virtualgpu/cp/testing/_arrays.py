"""Arrays for tests, on the host or on the device as `xp` says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp._core.array import ndarray


def _module(xp: Any) -> Any:
    return ndarray._module if xp is None else xp


def _counted(numbers: npt.NDArray[Any], dtype: Any, shape: Any) -> npt.NDArray[Any]:
    """Whole numbers as a dtype: of a bool whether they are even, of a complex both parts."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        numbers = numbers % 2 == 0
    elif kind.kind == "c":
        numbers = numbers * (1 + 1j)
    return numbers.astype(kind).reshape(shape)


def _extent(shape: Any) -> int:
    return math.prod(shape) if isinstance(shape, (tuple, list)) else int(shape)


def shaped_arange(shape: Any, xp: Any = None, dtype: Any = np.float32, order: str = "C") -> Any:
    """The numbers 1, 2, ... in a shape; of a bool, False and True in turn."""
    return _module(xp).array(_counted(np.arange(1, _extent(shape) + 1), dtype, shape), order=order)


def shaped_reverse_arange(shape: Any, xp: Any = None, dtype: Any = np.float32) -> Any:
    """The numbers down to 1 in a shape."""
    return _module(xp).array(_counted(np.arange(_extent(shape), 0, -1), dtype, shape))


def shaped_random(
    shape: Any,
    xp: Any = None,
    dtype: Any = np.float32,
    scale: float = 10,
    seed: int = 0,
    order: str = "C",
) -> Any:
    """Numbers evenly distributed from 0 to `scale`, the same ones for the same seed."""
    random = np.random.RandomState(seed)
    kind = np.dtype(dtype)
    values: Any
    if kind.kind == "b":
        values = random.randint(2, size=shape)
    else:
        values = random.random_sample(shape)
        if kind.kind == "c":
            values = values + 1j * random.random_sample(shape)
        values = values * scale
    return _module(xp).asarray(values, dtype=kind, order=order)


def shaped_linspace(start: float, stop: float, shape: Any, xp: Any = None, dtype: Any = np.float32) -> Any:
    """Numbers evenly spaced between two, as far as the dtype has them."""
    kind = np.dtype(dtype)
    if kind.kind in "bu":
        start = max(start, 0)
    if kind.kind == "b":
        stop = min(stop, 1)
    return _module(xp).array(np.linspace(start, stop, _extent(shape)).astype(kind).reshape(shape))


def generate_matrix(shape: Any, xp: Any = None, dtype: Any = np.float32, *, singular_values: Any) -> Any:
    """Random matrices with given singular values.

    Parameters
    ----------
    shape : tuple of int
        At least two axes; the last two are the matrix's.
    singular_values : array_like
        Real and not negative, of the smaller of those two (and of each matrix, if it is of more axes).
    """
    module = _module(xp)
    kind = np.dtype(dtype)
    if len(shape) < 2:
        raise ValueError(f"a matrix has two axes at least, and the shape is {shape}")
    if kind.kind not in "fc":
        raise TypeError(f"matrices of {kind} have no singular values to choose; use a float or complex dtype")
    values = module.asarray(singular_values)
    if values.dtype.kind == "c":
        raise TypeError("singular values are real")
    if bool((values < 0).any()):
        raise ValueError("singular values are not negative")
    start = module.random.standard_normal(shape)
    if kind.kind == "c":
        start = start + 1j * module.random.standard_normal(shape)
    left, own, right = module.linalg.svd(start, full_matrices=False)
    return (left * module.broadcast_to(values, own.shape)[..., None, :] @ right).astype(kind)
