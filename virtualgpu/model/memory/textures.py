"""The table of a device's texture and surface objects, in the layout that generated code reads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from virtualgpu.cuda_errors import CUDARuntimeError

CAPACITY = 4096
"""Largest number of live objects; a power of two."""
# The CUDA runtime's enumerations (driver_types.h, texture_types.h), in the order of their numbers.
ENUMERATION_VALUES: dict[str, int] = {
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

# Address of texel (0, 0, 0) and distances of its neighbours, contents of a channel, and modes of reading.
TEXTURE_DTYPE = np.dtype(
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


def find_field_offset(name: str) -> int:
    """Return the byte offset of a field in the table entry of a texture object."""
    fields = TEXTURE_DTYPE.fields
    assert fields is not None
    return int(fields[name][1])


class Textures:
    """The table of the texture and surface objects of a device.

    The low bits of a handle are a table index, and the other bits make the handle unique.
    """

    def __init__(self) -> None:
        self.table = np.zeros(CAPACITY, TEXTURE_DTYPE)
        self._generations = np.zeros(CAPACITY, np.int64)
        self._free_slots = list(range(CAPACITY - 1, -1, -1))
        self._lock = threading.Lock()

    def add(self, **fields: Any) -> int:
        """Create a texture or surface object, and return its handle.

        Raises
        ------
        CUDARuntimeError
            Status 2 if the table is full.
        """
        with self._lock:
            if not self._free_slots:
                raise CUDARuntimeError(
                    2,
                    "cudaErrorMemoryAllocation",
                    f"out of memory: a virtual GPU can have at most {CAPACITY:,} texture or surface objects. "
                    "Delete unused ones.",
                )
            slot = self._free_slots.pop()
            self._generations[slot] += 1
            table_row = self.table[slot : slot + 1]
            table_row[:] = np.zeros(1, TEXTURE_DTYPE)
            for name, field_value in fields.items():
                table_row[name] = field_value
            table_row["handle"] = handle = int(self._generations[slot]) * CAPACITY + slot
            return handle

    def remove(self, handle: int) -> None:
        """Remove a texture or surface object. An unknown handle is ignored."""
        with self._lock:
            slot = handle % CAPACITY
            if self.table["handle"][slot] == handle and handle:
                self.table["handle"][slot] = 0
                self._free_slots.append(slot)
