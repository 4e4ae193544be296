"""Texture and surface objects, which kernels take as ``cudaTextureObject_t`` and ``cudaSurfaceObject_t``."""

from __future__ import annotations

import sys
from typing import Any

from virtualgpu.cp.cuda.texture.channels import Texel, invalid, texel_of
from virtualgpu.cp.cuda.texture.descriptors import (
    ARRAY,
    LINEAR,
    PITCH_2D,
    ResourceDescriptor,
    TextureDescriptor,
)
from virtualgpu.errors import NotSupportedError
from virtualgpu.launch.arguments import TextureHandle
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.textures import FLOAT, NUMBERS
from virtualgpu.records.device.attributes import MOST_LINEAR_TEXELS, PITCH_ALIGNMENT, TEXTURE_ALIGNMENT


class _Object(TextureHandle):
    """An entry in the device's table of textures; destroying the object removes the entry."""

    def _register(self, device: VirtualDevice, **fields: Any) -> None:
        self.device = device
        self.address = fields["address"]
        self.size_bytes = fields.pop("size_bytes")
        self.ptr = device.memory.textures.add(**fields)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.device.memory.textures.remove(self.ptr)
            self.ptr = 0


class TextureObject(_Object):
    """A texture that kernels can read. Kernels receive a texture as a ``cudaTextureObject_t``.

    Parameters
    ----------
    ResDesc : ResourceDescriptor
        The memory of the texture, which stays alive as long as the texture.
    TexDesc : TextureDescriptor
        Addressing, filtering and conversion.

    Raises
    ------
    CUDARuntimeError
        Status 1 or 20, for parameters that CUDA does not accept; the message names them.
    NotSupportedError
        For sRGB.

    Examples
    --------
    >>> from cp.cuda import runtime, texture
    >>> channels = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    >>> picture = texture.CUDAarray(channels, 64, 48)
    >>> picture.copy_from(cp.zeros((48, 64), cp.float32))
    >>> resource = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, picture)
    >>> texture.TextureObject(resource, texture.TextureDescriptor())
    """

    def __init__(self, ResDesc: ResourceDescriptor, TexDesc: TextureDescriptor) -> None:  # noqa: N803
        device, texel, fields = _memory_of(ResDesc)
        descriptor = TexDesc
        if descriptor.srgb:
            raise NotSupportedError(
                "The virtual GPU does not support sRGB textures. Convert the picture to linear values first."
            )
        ranges = (
            ("addressModes", descriptor.modes, 4),
            ("filterMode", (descriptor.filter_mode,), 2),
            ("readMode", (descriptor.read_mode,), 2),
        )
        for name, values, value_count in ranges:
            if any(not 0 <= mode_value < value_count for mode_value in values):
                raise invalid(f"`{name}` is {values}, but valid values are 0 to {value_count - 1}.")
        normalized_read = descriptor.read_mode == NUMBERS["cudaReadModeNormalizedFloat"]
        is_integer = texel.kind != FLOAT
        if normalized_read and is_integer and texel.channel_bytes == 4:
            raise invalid("cudaReadModeNormalizedFloat supports only integers of 8 and 16 bits.")
        interpolated = descriptor.filter_mode == NUMBERS["cudaFilterModeLinear"]
        if interpolated and is_integer and not normalized_read:
            raise invalid(
                "cudaFilterModeLinear returns floats, so a texture of integers also "
                "needs cudaReadModeNormalizedFloat."
            )
        if ResDesc.restype == LINEAR and (interpolated or descriptor.normalized):
            raise invalid(
                "a texture of linear memory supports only integer indices (tex1Dfetch). For filtering or "
                "normalized coordinates, use a CUDAarray or cudaResourceTypePitch2D."
            )
        self._register(
            device,
            **fields,
            normalized_read=int(normalized_read and is_integer),
            normalized_coordinates=int(bool(descriptor.normalized)),
            interpolated=int(interpolated),
            modes=descriptor.modes,
            border=descriptor.border,
        )
        self.ResDesc = ResDesc
        self.TexDesc = TexDesc


class SurfaceObject(_Object):
    """A surface that kernels can write. Kernels receive a surface as a ``cudaSurfaceObject_t``.

    Parameters
    ----------
    ResDesc : ResourceDescriptor
        A CUDA array made with ``cp.cuda.runtime.cudaArraySurfaceLoadStore``.

    Raises
    ------
    CUDARuntimeError
        Status 1 for any other memory.
    """

    def __init__(self, ResDesc: ResourceDescriptor) -> None:  # noqa: N803
        array = ResDesc.cuArr
        stores = NUMBERS["cudaArraySurfaceLoadStore"]
        if ResDesc.restype != ARRAY or array is None or not array.flags & stores:
            raise invalid(
                "a surface needs a CUDAarray that was created with "
                "flags=cp.cuda.runtime.cudaArraySurfaceLoadStore."
            )
        device, _, fields = _memory_of(ResDesc)
        self._register(device, **fields, is_surface=1)
        self.ResDesc = ResDesc


def _memory_of(resource: ResourceDescriptor) -> tuple[VirtualDevice, Texel, dict[str, Any]]:
    """Return the device, the texel format, and the table entry for a resource descriptor."""
    if resource.restype == ARRAY:
        array = resource.cuArr
        assert array is not None
        texel = array.texel
        device = array.device
        address = array.ptr
        size = array.width, max(1, array.height), max(1, array.depth)
        pitch = array.width * texel.size_bytes
        needed_bytes = pitch * size[1] * size[2]
    elif resource.restype in (LINEAR, PITCH_2D):
        assert resource.arr is not None
        assert resource.chDesc is not None
        texel = texel_of(resource.chDesc)
        device = resource.arr._mem.owner
        address = resource.arr.data.ptr
        if address % TEXTURE_ALIGNMENT:
            raise invalid(
                f"a texture's memory must start at a multiple of {TEXTURE_ALIGNMENT} "
                f"bytes, but it starts at {address:#x}."
            )
        if resource.restype == LINEAR:
            size = (resource.size_bytes // texel.size_bytes, 1, 1)
            pitch = 0
            if not 0 < size[0] <= MOST_LINEAR_TEXELS:
                raise invalid(
                    f"a texture of linear memory must have 1 to {MOST_LINEAR_TEXELS:,} texels, not "
                    f"{size[0]:,}."
                )
            needed_bytes = resource.size_bytes
        else:
            size = (resource.width, resource.height, 1)
            pitch = resource.pitch_bytes
            row_bytes = resource.width * texel.size_bytes
            if not row_bytes or not resource.height or pitch < row_bytes or pitch % PITCH_ALIGNMENT:
                raise invalid(
                    f"the texture has {resource.height} rows of {resource.width} texels "
                    f"of {texel.size_bytes} bytes, and its pitch is {pitch} bytes. "
                    f"`pitchInBytes` must be a multiple of {PITCH_ALIGNMENT} and at least "
                    "as long as a row."
                )
            needed_bytes = pitch * (resource.height - 1) + row_bytes
        device.memory.check(address, needed_bytes)
    else:
        raise invalid(f"textures do not support the resource type {resource.restype}.")
    return (
        device,
        texel,
        {
            "address": address,
            "pitch_bytes": pitch,
            "slice_bytes": pitch * size[1],
            "size": size,
            "channels": texel.channels,
            "channel_bytes": texel.channel_bytes,
            "kind": texel.kind,
            "size_bytes": needed_bytes,
            "in_linear_memory": int(resource.restype == LINEAR),
        },
    )
