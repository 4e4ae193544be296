"""``cp.cuda.texture``: texture and surface objects, and their arrays, as in CuPy."""

from __future__ import annotations

from virtualgpu.cp.cuda.texture.arrays import CUDAarray
from virtualgpu.cp.cuda.texture.descriptors import (
    ChannelFormatDescriptor,
    ResourceDescriptor,
    TextureDescriptor,
)
from virtualgpu.cp.cuda.texture.objects import SurfaceObject, TextureObject

__all__ = [
    "CUDAarray",
    "ChannelFormatDescriptor",
    "ResourceDescriptor",
    "SurfaceObject",
    "TextureDescriptor",
    "TextureObject",
]
