"""Descriptors of textures: the memory that a texture reads, and its addressing and filtering modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp.cuda.texture.arrays import CUDAarray
from virtualgpu.cp.cuda.texture.channels import ChannelFormatDescriptor
from virtualgpu.model.memory.textures import ENUMERATION_VALUES

__all__ = ["ChannelFormatDescriptor", "ResourceDescriptor", "TextureDescriptor"]

ARRAY_RESOURCE = ENUMERATION_VALUES["cudaResourceTypeArray"]
MIPMAPPED_RESOURCE = ENUMERATION_VALUES["cudaResourceTypeMipmappedArray"]
LINEAR_RESOURCE = ENUMERATION_VALUES["cudaResourceTypeLinear"]
PITCH_2D_RESOURCE = ENUMERATION_VALUES["cudaResourceTypePitch2D"]


class ResourceDescriptor:
    """A description of the memory of a texture, such as a CUDA array or linear memory.

    Parameters
    ----------
    restype : int
        ``cp.cuda.runtime.cudaResourceTypeArray``, ``...Linear`` or ``...Pitch2D``.
    cuArr : CUDAarray
        The memory, for an array.
    arr : cp.ndarray
        The memory, for device memory.
    chDesc : ChannelFormatDescriptor
        Format of its texels.
    sizeInBytes : int
        Size of linear memory.
    width, height : int
        Width and number of rows, in texels.
    pitchInBytes : int
        Bytes from row to row.
    """

    def __init__(  # the names are CuPy's
        self,
        restype: int,
        cuArr: CUDAarray | None = None,  # noqa: N803
        arr: ndarray | None = None,
        chDesc: ChannelFormatDescriptor | None = None,  # noqa: N803
        sizeInBytes: int = 0,  # noqa: N803
        width: int = 0,
        height: int = 0,
        pitchInBytes: int = 0,  # noqa: N803
    ) -> None:
        if restype == MIPMAPPED_RESOURCE:
            raise NotImplementedError("cudaResourceTypeMipmappedArray is currently not supported.")
        required_arguments = {"cuArr": cuArr} if restype == ARRAY_RESOURCE else {"arr": arr, "chDesc": chDesc}
        for name, argument in required_arguments.items():
            if argument is None:
                raise TypeError(f"A resource of type {restype} needs the argument `{name}`.")
        self.restype = restype
        self.cuArr = cuArr
        self.arr = arr
        self.chDesc = chDesc
        self.size_bytes = sizeInBytes
        self.width = width
        self.height = height
        self.pitch_bytes = pitchInBytes

    def get_resource_desc(self) -> dict[str, Any]:
        """Return the fields of the resource descriptor as a dictionary."""
        descriptor_fields: dict[str, Any] = {"resType": self.restype}
        if self.cuArr is not None and self.restype == ARRAY_RESOURCE:
            descriptor_fields["array"] = {"array": self.cuArr.ptr}
        elif self.arr is not None and self.chDesc is not None:
            memory_fields: dict[str, Any] = {
                "devPtr": self.arr.data.ptr,
                "desc": self.chDesc.get_channel_format(),
            }
            if self.restype == LINEAR_RESOURCE:
                descriptor_fields["linear"] = memory_fields | {"sizeInBytes": self.size_bytes}
            elif self.restype == PITCH_2D_RESOURCE:
                descriptor_fields["pitch2D"] = memory_fields | {
                    "width": self.width,
                    "height": self.height,
                    "pitchInBytes": self.pitch_bytes,
                }
        return descriptor_fields


class TextureDescriptor:
    """The settings for reading a texture, such as its addressing mode and its filter.

    Parameters
    ----------
    addressModes : sequence of int
        For each dimension ``cp.cuda.runtime.cudaAddressModeWrap``, ``...Clamp``, ``...Mirror`` or
        ``...Border``; wrap by default. Without normalized coordinates, wrap and mirror act as clamp.
    filterMode : int
        ``cudaFilterModePoint`` or ``...Linear``.
    readMode : int
        ``cudaReadModeElementType`` or ``...NormalizedFloat``.
    sRGB : int
        Not supported.
    borderColors : sequence of float
        Values outside the texture, for ``cudaAddressModeBorder``.
    normalizedCoords : int
        Whether coordinates run from 0 to 1.
    maxAnisotropy : int
        Without effect, since there are no mipmaps.
    """

    def __init__(
        self,
        addressModes: Sequence[int] | None = None,  # noqa: N803
        filterMode: int = 0,  # noqa: N803
        readMode: int = 0,  # noqa: N803
        sRGB: int | None = None,  # noqa: N803
        borderColors: Sequence[float] | None = None,  # noqa: N803
        normalizedCoords: int | None = None,  # noqa: N803
        maxAnisotropy: int | None = None,  # noqa: N803
    ) -> None:
        address_modes = tuple(addressModes or ())
        border_colours = tuple(borderColors or ())
        if len(address_modes) > 3 or len(border_colours) > 4:
            raise AssertionError("A texture has at most 3 address modes and 4 border colours.")
        self.address_modes = (
            *(int(address_mode) for address_mode in address_modes),
            *(0,) * (3 - len(address_modes)),
        )
        self.border_colour = (
            *(float(border_component) for border_component in border_colours),
            *(0.0,) * (4 - len(border_colours)),
        )
        self.filter_mode, self.read_mode = int(filterMode), int(readMode)
        self.srgb, self.normalized = int(sRGB or 0), int(normalizedCoords or 0)
        self.max_anisotropy = int(maxAnisotropy or 0)

    def get_texture_desc(self) -> dict[str, Any]:
        """Return the fields of the texture descriptor as a dictionary."""
        return {
            "addressMode": self.address_modes,
            "filterMode": self.filter_mode,
            "readMode": self.read_mode,
            "sRGB": self.srgb,
            "borderColor": self.border_colour,
            "normalizedCoords": self.normalized,
            "maxAnisotropy": self.max_anisotropy,
        }
