"""Arrays whose memory lies elsewhere: managed, or the host's own."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gpulab import session
from virtualgpu.errors import GpulabError


def managed(shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
    """An array in managed memory, which host and device both use.

    Raises
    ------
    GpulabError
        If it is larger than what the device has free. CUDA would allow that, and it can hang a GPU.

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
            f"{size_bytes / 2**30:.1f} GiB of managed memory were asked for, and {free_bytes / 2**30:.1f} "
            "GiB are free on the device. CUDA would allow it, and it can hang a GPU: take less, or work in "
            "pieces."
        )
    return cp.ndarray(extents, dtype, cp.cuda.malloc_managed(size_bytes))


def mapped(host: Any) -> Any:
    """A device array over a pinned NumPy array: the same bytes, which kernels reach over the bus."""
    cp = session.cp()
    memory = cp.cuda.UnownedMemory(host.ctypes.data, host.nbytes, host)
    return cp.ndarray(host.shape, host.dtype, cp.cuda.MemoryPointer(memory, 0))
