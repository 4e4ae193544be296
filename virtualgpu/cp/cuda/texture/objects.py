"""Texture and surface objects, which kernels take as ``cudaTextureObject_t`` and ``cudaSurfaceObject_t``."""

from __future__ import annotations

import sys
from typing import Any

from virtualgpu.cp.cuda.texture.channels import TexelFormat, make_invalid_value_error, parse_texel
from virtualgpu.cp.cuda.texture.descriptors import (
    ARRAY_RESOURCE,
    LINEAR_RESOURCE,
    PITCH_2D_RESOURCE,
    ResourceDescriptor,
    TextureDescriptor,
)
from virtualgpu.errors import NotSupportedError
from virtualgpu.launch.arguments import TextureHandle
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.textures import ENUMERATION_VALUES, FLOAT
from virtualgpu.records.device.attributes import MOST_LINEAR_TEXELS, PITCH_ALIGNMENT, TEXTURE_ALIGNMENT


class _TextureTableEntry(TextureHandle):
    """An entry in the device's table of textures; destroying the object removes the entry."""

    def _register(self, device: VirtualDevice, **entry_fields: Any) -> None:
        self.device = device
        self.address = entry_fields["address"]
        self.size_bytes = entry_fields.pop("size_bytes")
        self.ptr = device.memory.textures.add(**entry_fields)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) and not sys.is_finalizing():
            self.device.memory.textures.remove(self.ptr)
            self.ptr = 0


class TextureObject(_TextureTableEntry):
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
        device, texel_format, entry_fields = _describe_memory(ResDesc)
        texture_descriptor = TexDesc
        if texture_descriptor.srgb:
            raise NotSupportedError(
                "The virtual GPU does not support sRGB textures. Convert the picture to linear values first."
            )
        allowed_values = (
            ("addressModes", texture_descriptor.address_modes, 4),
            ("filterMode", (texture_descriptor.filter_mode,), 2),
            ("readMode", (texture_descriptor.read_mode,), 2),
        )
        for parameter_name, mode_values, value_count in allowed_values:
            if any(not 0 <= mode_value < value_count for mode_value in mode_values):
                raise make_invalid_value_error(
                    f"`{parameter_name}` is {mode_values}, but valid values are 0 to {value_count - 1}."
                )
        is_normalized_read = texture_descriptor.read_mode == ENUMERATION_VALUES["cudaReadModeNormalizedFloat"]
        is_integer = texel_format.value_kind != FLOAT
        if is_normalized_read and is_integer and texel_format.channel_bytes == 4:
            raise make_invalid_value_error(
                "cudaReadModeNormalizedFloat supports only integers of 8 and 16 bits."
            )
        is_interpolated = texture_descriptor.filter_mode == ENUMERATION_VALUES["cudaFilterModeLinear"]
        if is_interpolated and is_integer and not is_normalized_read:
            raise make_invalid_value_error(
                "cudaFilterModeLinear returns floats, so a texture of integers also "
                "needs cudaReadModeNormalizedFloat."
            )
        if ResDesc.restype == LINEAR_RESOURCE and (is_interpolated or texture_descriptor.normalized):
            raise make_invalid_value_error(
                "a texture of linear memory supports only integer indices (tex1Dfetch). For filtering or "
                "normalized coordinates, use a CUDAarray or cudaResourceTypePitch2D."
            )
        self._register(
            device,
            **entry_fields,
            normalized_read=int(is_normalized_read and is_integer),
            normalized_coordinates=int(bool(texture_descriptor.normalized)),
            interpolated=int(is_interpolated),
            modes=texture_descriptor.address_modes,
            border=texture_descriptor.border_colour,
        )
        self.ResDesc = ResDesc
        self.TexDesc = TexDesc


class SurfaceObject(_TextureTableEntry):
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
        store_flag = ENUMERATION_VALUES["cudaArraySurfaceLoadStore"]
        if ResDesc.restype != ARRAY_RESOURCE or array is None or not array.flags & store_flag:
            raise make_invalid_value_error(
                "a surface needs a CUDAarray that was created with "
                "flags=cp.cuda.runtime.cudaArraySurfaceLoadStore."
            )
        device, _, entry_fields = _describe_memory(ResDesc)
        self._register(device, **entry_fields, is_surface=1)
        self.ResDesc = ResDesc


def _describe_memory(resource: ResourceDescriptor) -> tuple[VirtualDevice, TexelFormat, dict[str, Any]]:
    """Return the device, the texel format, and the table entry for a resource descriptor."""
    if resource.restype == ARRAY_RESOURCE:
        array = resource.cuArr
        assert array is not None
        texel_format = array.texel_format
        device = array.device
        address = array.ptr
        array_size = array.width, max(1, array.height), max(1, array.depth)
        pitch_bytes = array.width * texel_format.size_bytes
        needed_bytes = pitch_bytes * array_size[1] * array_size[2]
    elif resource.restype in (LINEAR_RESOURCE, PITCH_2D_RESOURCE):
        assert resource.arr is not None
        assert resource.chDesc is not None
        texel_format = parse_texel(resource.chDesc)
        device = resource.arr._mem.owner
        address = resource.arr.data.ptr
        if address % TEXTURE_ALIGNMENT:
            raise make_invalid_value_error(
                f"a texture's memory must start at a multiple of {TEXTURE_ALIGNMENT} "
                f"bytes, but it starts at {address:#x}."
            )
        if resource.restype == LINEAR_RESOURCE:
            array_size = (resource.size_bytes // texel_format.size_bytes, 1, 1)
            pitch_bytes = 0
            if not 0 < array_size[0] <= MOST_LINEAR_TEXELS:
                raise make_invalid_value_error(
                    f"a texture of linear memory must have 1 to {MOST_LINEAR_TEXELS:,} texels, not "
                    f"{array_size[0]:,}."
                )
            needed_bytes = resource.size_bytes
        else:
            array_size = (resource.width, resource.height, 1)
            pitch_bytes = resource.pitch_bytes
            row_bytes = resource.width * texel_format.size_bytes
            if (
                not row_bytes
                or not resource.height
                or pitch_bytes < row_bytes
                or pitch_bytes % PITCH_ALIGNMENT
            ):
                raise make_invalid_value_error(
                    f"the texture has {resource.height} rows of {resource.width} texels "
                    f"of {texel_format.size_bytes} bytes, and its pitch is {pitch_bytes} bytes. "
                    f"`pitchInBytes` must be a multiple of {PITCH_ALIGNMENT} and at least "
                    "as long as a row."
                )
            needed_bytes = pitch_bytes * (resource.height - 1) + row_bytes
        device.memory.check_range(address, needed_bytes)
    else:
        raise make_invalid_value_error(f"textures do not support the resource type {resource.restype}.")
    return (
        device,
        texel_format,
        {
            "address": address,
            "pitch_bytes": pitch_bytes,
            "slice_bytes": pitch_bytes * array_size[1],
            "size": array_size,
            "channels": texel_format.channel_count,
            "channel_bytes": texel_format.channel_bytes,
            "kind": texel_format.value_kind,
            "size_bytes": needed_bytes,
            "in_linear_memory": int(resource.restype == LINEAR_RESOURCE),
        },
    )
