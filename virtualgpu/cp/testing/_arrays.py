"""Arrays for tests, on the host or on the device, depending on `xp`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp._core.array import ndarray


def _select_module(xp: Any) -> Any:
    return ndarray._module if xp is None else xp


def _convert_integers(integers: npt.NDArray[Any], dtype: Any, shape: Any) -> npt.NDArray[Any]:
    """Convert integers to a dtype: even numbers become True, complex numbers have two equal parts."""
    target_dtype = np.dtype(dtype)
    if target_dtype.kind == "b":
        integers = integers % 2 == 0
    elif target_dtype.kind == "c":
        integers = integers * (1 + 1j)
    return integers.astype(target_dtype).reshape(shape)


def _count_elements(shape: Any) -> int:
    return math.prod(shape) if isinstance(shape, (tuple, list)) else int(shape)


def shaped_arange(shape: Any, xp: Any = None, dtype: Any = np.float32, order: str = "C") -> Any:
    """Return an array with the numbers 1, 2, 3 and so on. For bool arrays, False and True alternate."""
    return _select_module(xp).array(
        _convert_integers(np.arange(1, _count_elements(shape) + 1), dtype, shape), order=order
    )


def shaped_reverse_arange(shape: Any, xp: Any = None, dtype: Any = np.float32) -> Any:
    """Return an array with the numbers n, n - 1, ..., 1, where n is its number of elements."""
    return _select_module(xp).array(_convert_integers(np.arange(_count_elements(shape), 0, -1), dtype, shape))


def shaped_random(
    shape: Any,
    xp: Any = None,
    dtype: Any = np.float32,
    scale: float = 10,
    seed: int = 0,
    order: str = "C",
) -> Any:
    """Return an array of uniformly distributed random numbers from 0 to `scale`. Equal seeds produce equal
    arrays.
    """
    generator = np.random.RandomState(seed)
    target_dtype = np.dtype(dtype)
    values: Any
    if target_dtype.kind == "b":
        values = generator.randint(2, size=shape)
    else:
        values = generator.random_sample(shape)
        if target_dtype.kind == "c":
            values = values + 1j * generator.random_sample(shape)
        values = values * scale
    return _select_module(xp).asarray(values, dtype=target_dtype, order=order)


def shaped_linspace(start: float, stop: float, shape: Any, xp: Any = None, dtype: Any = np.float32) -> Any:
    """Return an array of evenly spaced numbers, with limits that the dtype can represent."""
    target_dtype = np.dtype(dtype)
    if target_dtype.kind in "bu":
        start = max(start, 0)
    if target_dtype.kind == "b":
        stop = min(stop, 1)
    return _select_module(xp).array(
        np.linspace(start, stop, _count_elements(shape)).astype(target_dtype).reshape(shape)
    )


def generate_matrix(shape: Any, xp: Any = None, dtype: Any = np.float32, *, singular_values: Any) -> Any:
    """Return random matrices with the given singular values.

    Parameters
    ----------
    shape : tuple of int
        Shape with at least two axes; the last two are those of a matrix.
    singular_values : array_like
        Non-negative real values, as many as the smaller of the last two axes; further axes select the matrix.
    """
    module = _select_module(xp)
    target_dtype = np.dtype(dtype)
    if len(shape) < 2:
        raise ValueError(f"a matrix needs at least two axes, but the shape is {shape}")
    if target_dtype.kind not in "fc":
        raise TypeError(
            f"matrices of {target_dtype} cannot have given singular values. Use a float or complex dtype."
        )
    values = module.asarray(singular_values)
    if values.dtype.kind == "c":
        raise TypeError("singular values must be real")
    if bool((values < 0).any()):
        raise ValueError("singular values must not be negative")
    random_matrices = module.random.standard_normal(shape)
    if target_dtype.kind == "c":
        random_matrices = random_matrices + 1j * module.random.standard_normal(shape)
    left_vectors, singular, right_vectors = module.linalg.svd(random_matrices, full_matrices=False)
    return (left_vectors * module.broadcast_to(values, singular.shape)[..., None, :] @ right_vectors).astype(
        target_dtype
    )
