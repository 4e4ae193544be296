"""Device arrays over the memory of other objects: the CUDA array interface and DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dtypes import check_dtype, parse_shape
from virtualgpu.cp._core.exports import DLPACK_CUDA
from virtualgpu.cp.cuda._memory.pointer import MemoryPointer, UnownedMemory
from virtualgpu.model import machine as _machine


def from_interface(obj: Any) -> ndarray:
    """Return a device array for the memory that ``obj.__cuda_array_interface__`` describes.

    Raises
    ------
    ValueError
        If that memory does not belong to a virtual GPU, or is a masked array.
    """
    interface = obj.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise ValueError("CuPy does not support masked arrays.")
    shape = parse_shape(interface["shape"])
    dtype = check_dtype(interface["typestr"])
    address = int(interface["data"][0])
    strides = interface.get("strides")
    byte_strides = strides or tuple(
        dtype.itemsize * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))
    )
    size_bytes = sum((n - 1) * stride for n, stride in zip(shape, byte_strides, strict=True)) + dtype.itemsize
    if 0 in shape:
        return ndarray(shape, dtype)
    for device in _machine.current().devices:
        base_address = device.memory.base_address
        if base_address <= address and address + size_bytes <= base_address + device.memory.arena_bytes:
            memory = UnownedMemory(address, size_bytes, obj, device.id)
            return ndarray(shape, dtype, MemoryPointer(memory, 0), strides)
    raise ValueError(
        f"The memory at {address:#x} does not belong to a virtual GPU. Copy the "
        f"{type(obj).__name__} to the host with its own library, and pass the copy to "
        "cp.asarray."
    )


def from_dlpack(array: Any, *, device: Any = None, copy: bool | None = None) -> ndarray:
    """Return an array that shares the memory of another device array.

    Raises
    ------
    TypeError
        For arrays in host memory: `cp.asarray` copies those.
    BufferError
        For arrays on a real GPU.
    """
    if device is not None:
        raise NotImplementedError("from_dlpack() does not support device yet.")
    if isinstance(array, ndarray):
        if copy:
            raise BufferError("copy=True only supported for copy to CPU.")
        return array.view()
    dlpack_device = array.__dlpack_device__() if hasattr(array, "__dlpack_device__") else None
    if dlpack_device is not None and dlpack_device[0] == DLPACK_CUDA:
        raise BufferError(
            f"This {type(array).__name__} is in the memory of a real GPU, which a virtual "
            "GPU cannot use. Copy it to the host with its own library, and pass the copy "
            "to cp.asarray."
        )
    raise TypeError(
        "CPU arrays cannot be directly imported to CuPy. Use `cupy.array(numpy.from_dlpack(input))` instead, "
        "which copies the data to the device."
    )
