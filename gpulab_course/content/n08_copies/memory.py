"""Allocation of device arrays in managed memory, and views of pinned host memory as device arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gpulab import session
from virtualgpu.errors import GpulabError


def managed(shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Return an array in managed memory, which the host and the device can both access.

    Raises
    ------
    GpulabError
        If the array is larger than the free memory of the device. CUDA would allow it, but it can hang a GPU.

    Examples
    --------
    >>> x = managed(1 << 20)
    >>> np.from_dlpack(x)[...] = 1      # NumPy shares the memory
    """
    cp = session.cp()
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    size_bytes = prod(extents) * np.dtype(dtype).itemsize
    free_bytes, _ = cp.cuda.runtime.memGetInfo()
    if size_bytes > free_bytes:
        raise GpulabError(
            f"{size_bytes / 2**30:.1f} GiB of managed memory were requested, but only "
            f"{free_bytes / 2**30:.1f} GiB are free on the device. CUDA would allow it, but it can hang a "
            "GPU. Allocate less, or work in pieces."
        )
    return cp.ndarray(extents, dtype, cp.cuda.malloc_managed(size_bytes))


def mapped(host_array: Any) -> Any:
    """Return a device array that shares the memory of a pinned NumPy array."""
    cp = session.cp()
    pinned_memory = cp.cuda.UnownedMemory(host_array.ctypes.data, host_array.nbytes, host_array)
    return cp.ndarray(host_array.shape, host_array.dtype, cp.cuda.MemoryPointer(pinned_memory, 0))
