"""Texture and surface objects of one device: what a handle stands for, as generated code reads it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from virtualgpu.cuda_errors import CUDARuntimeError

CAPACITY = 4096
"""Objects that live at once; a power of two."""
# The CUDA runtime's enumerations (driver_types.h, texture_types.h), in the order of their numbers.
NUMBERS: dict[str, int] = {
    f"cuda{kind}{name}": number
    for kind, names in (
        ("ResourceType", ("Array", "MipmappedArray", "Linear", "Pitch2D")),
        ("AddressMode", ("Wrap", "Clamp", "Mirror", "Border")),
        ("FilterMode", ("Point", "Linear")),
        ("ReadMode", ("ElementType", "NormalizedFloat")),
        ("ChannelFormatKind", ("Signed", "Unsigned", "Float", "None")),
    )
    for number, name in enumerate(names)
} | {"cudaArrayDefault": 0, "cudaArrayLayered": 1, "cudaArraySurfaceLoadStore": 2}
WRAP, CLAMP, MIRROR, BORDER = range(4)
SIGNED, UNSIGNED, FLOAT = range(3)

# Where the texel (0, 0, 0) lies and how far its neighbours, what a channel holds, and how it is read.
OBJECT = np.dtype(
    [
        ("handle", "<u8"),
        ("address", "<u8"),
        ("pitch_bytes", "<i8"),
        ("slice_bytes", "<i8"),
        ("size", "<i4", 3),
        ("channels", "<i4"),
        ("channel_bytes", "<i4"),
        ("kind", "<i4"),
        ("normalized_read", "<i4"),
        ("normalized_coordinates", "<i4"),
        ("interpolated", "<i4"),
        ("modes", "<i4", 3),
        ("border", "<f4", 4),
        ("in_linear_memory", "<i4"),
        ("is_surface", "<i4"),
    ],
    align=True,
)


def offset(name: str) -> int:
    """Byte offset of a field of `OBJECT`."""
    fields = OBJECT.fields
    assert fields is not None
    return int(fields[name][1])


class Textures:
    """The table of a device's texture and surface objects.

    A handle's low bits are its place, the others count how often the place has been given: the handle of an
    object that is gone is no other one's.
    """

    def __init__(self) -> None:
        self.table = np.zeros(CAPACITY, OBJECT)
        self._given = np.zeros(CAPACITY, np.int64)
        self._free = list(range(CAPACITY - 1, -1, -1))
        self._lock = threading.Lock()

    def add(self, **fields: Any) -> int:
        """Make an object and return its handle.

        Raises
        ------
        CUDARuntimeError
            Status 2 where there is no room for one more.
        """
        with self._lock:
            if not self._free:
                raise CUDARuntimeError(
                    2,
                    "cudaErrorMemoryAllocation",
                    f"out of memory: a virtual GPU keeps {CAPACITY:,} textures and surfaces; drop some.",
                )
            place = self._free.pop()
            self._given[place] += 1
            row = self.table[place : place + 1]
            row[:] = np.zeros(1, OBJECT)
            for name, value in fields.items():
                row[name] = value
            row["handle"] = handle = int(self._given[place]) * CAPACITY + place
            return handle

    def remove(self, handle: int) -> None:
        """End an object; a handle that there is not is ignored."""
        with self._lock:
            place = handle % CAPACITY
            if self.table["handle"][place] == handle and handle:
                self.table["handle"][place] = 0
                self._free.append(place)
