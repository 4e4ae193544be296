"""CUDA arrays: memory for textures, which programs can copy but not address."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import check_device
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp.cuda._memory.copies import enqueue_copy
from virtualgpu.cp.cuda.stream import _BaseStream
from virtualgpu.cp.cuda.texture.channels import ChannelFormatDescriptor, make_invalid_value_error, parse_texel
from virtualgpu.errors import NotSupportedError
from virtualgpu.model import machine as _machine

# Maximum extents of all GPUs since compute capability 6.0, in texels.
_MAX_EXTENTS = {1: (131_072,), 2: (131_072, 65_536), 3: (16_384, 16_384, 16_384)}
# cudaArrayLayered, cudaArraySurfaceLoadStore
_LAYERED_FLAG = 1
_SURFACE_FLAG = 2


class CUDAarray:
    """A CUDA array of one, two or three dimensions, which textures and surfaces use.

    On a GPU, texels are stored in an internal order; on the virtual GPU, they are stored in rows.

    Parameters
    ----------
    desc : ChannelFormatDescriptor
        Format of a texel.
    width, height, depth : int
        Extents in texels; 0 where the array has fewer dimensions.
    flags : int
        ``cp.cuda.runtime.cudaArrayLayered`` (`depth` layers) and ``cudaArraySurfaceLoadStore``, or 0.
    """

    def __init__(
        self, desc: ChannelFormatDescriptor, width: int, height: int = 0, depth: int = 0, flags: int = 0
    ) -> None:
        self.ptr = 0
        if width == 0:
            raise ValueError("To create a CUDA array, width must be nonzero.")
        if height == 0 and depth > 0:
            raise ValueError("To create a 2D CUDA array, height must be nonzero.")
        if flags & ~(_LAYERED_FLAG | _SURFACE_FLAG):
            raise NotSupportedError(
                f"The virtual GPU does not support CUDA arrays with the flags {flags}, "
                "such as cube maps. Use an array of layers or a three-dimensional array."
            )
        self.desc = desc
        self.width = width
        self.height = height
        self.depth = depth
        self.flags = flags
        self.ndim = 1 + (height > 0) + (depth > 0)
        self.texel_format = parse_texel(desc)
        extents = (width, height, depth)[: self.ndim]
        if any(
            not 0 < extent <= max_extent
            for extent, max_extent in zip(extents, _MAX_EXTENTS[self.ndim], strict=True)
        ):
            raise make_invalid_value_error(
                f"the array has {extents} texels, but the maximum is {_MAX_EXTENTS[self.ndim]}."
            )
        self.device = _machine.current().current_device
        size_bytes = width * max(1, height) * max(1, depth) * self.texel_format.size_bytes
        self.ptr = self.device.memory.malloc(size_bytes)
        shape_text = " × ".join(map(str, extents[::-1]))
        label = f"CUDA array of {shape_text} texels of {self.texel_format.size_bytes} bytes"
        self.device.memory.track_allocation(self.ptr, size_bytes, label)
        self._bytes = self.device.memory.view(self.ptr, size_bytes)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.device.memory.untrack_allocation(self.ptr)
            self.device.memory.free(self.ptr)
            self.ptr = 0

    def copy_from(self, in_arr: Any, stream: _BaseStream | None = None) -> None:
        """Copy a device or host array into this array, in a stream (default: the current one).

        Parameters
        ----------
        in_arr : cp.ndarray or numpy.ndarray
            Array of shape ``(depth, height, channels * width)``, without the axes that this array does not
            have.
        stream : Stream, optional
            Stream of the copy.

        Raises
        ------
        ValueError
            For another shape or dtype.
        """
        if isinstance(in_arr, ndarray):
            in_arr = in_arr if in_arr.flags.c_contiguous else in_arr.copy()
        else:
            in_arr = np.ascontiguousarray(in_arr)
        self._copy_texels(in_arr, stream, to_texture=True)

    def copy_to(self, out_arr: Any, stream: _BaseStream | None = None) -> None:
        """Copy this array to a C-contiguous device or host array, in a stream (default: the current one)."""
        if not out_arr.flags.c_contiguous:
            raise ValueError("The output array must be C-contiguous")
        self._copy_texels(out_arr, stream, to_texture=False)

    def _copy_texels(self, array: Any, stream: _BaseStream | None, to_texture: bool) -> None:
        shape = (*(self.depth, self.height)[3 - self.ndim :], self.texel_format.channel_count * self.width)
        if array.shape != shape:
            raise ValueError(
                f"shape mismatch: the array has the shape {array.shape}, but the CUDA array needs {shape}."
            )
        if array.dtype != self.texel_format.dtype:
            raise ValueError(
                f"dtype mismatch: the array has the dtype {array.dtype}, but the CUDA array "
                f"needs {self.texel_format.dtype}."
            )
        memory_device = None
        if isinstance(array, ndarray):
            check_device(array, self.device)
            memory_device = self.device
            array_bytes = memory_device.memory.view(array.data.ptr, array.nbytes)
        else:
            array_bytes = array.reshape(-1).view(np.uint8)
        target_bytes, source_bytes = (self._bytes, array_bytes) if to_texture else (array_bytes, self._bytes)
        enqueue_copy(
            lambda: np.copyto(target_bytes, source_bytes),
            target_bytes.nbytes,
            target=self.device if to_texture else memory_device,
            source=memory_device if to_texture else self.device,
            host_array=array_bytes if memory_device is None else None,
            stream=stream,
            arrays=(target_bytes, source_bytes),
        )
