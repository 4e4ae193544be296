"""Conversion of a display list for the browser: JSON, and one binary buffer with its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.parts.boxes import Box
from gpulab.views.parts.items import Item

ALIGNMENT_BYTES = 8


def _choose_wire_type(column: npt.NDArray[Any]) -> np.dtype[Any]:
    """Return the type of a column in the browser: 8-byte integers become 4-byte ones or doubles."""
    if column.dtype == np.bool_:
        return np.dtype(np.uint8)
    if column.dtype != np.int64:
        return column.dtype
    fits_int32 = not column.size or max(-int(column.min()), int(column.max())) < 1 << 31
    return np.dtype(np.int32 if fits_int32 else np.float64)


def pack(tree: Any) -> tuple[Any, bytes]:
    """Convert `tree` to JSON, and store its NumPy arrays in one buffer.

    Returns
    -------
    tree, data
        In the tree, an array is ``{"$": [type code, offset in bytes, number of elements]}``. In the data, its
        elements are little-endian and start at a multiple of 8 bytes, as typed arrays require. An array that
        occurs twice in the tree is stored once. ``unpack`` in ``frame.js`` reads both.
    """
    array_bytes: list[bytes] = []
    array_references: dict[int, dict[str, list[str | int]]] = {}
    kept_arrays: list[Any] = []  # so that no id is reused during the traversal
    offset_bytes = 0

    def convert(node: Any) -> Any:
        nonlocal offset_bytes
        if isinstance(node, Item | Box):
            node = node.wire()
        if isinstance(node, dict):
            return {str(key): convert(value) for key, value in node.items()}
        if isinstance(node, (list, tuple)):
            return [convert(value) for value in node]
        if isinstance(node, np.generic):
            return node.item()
        if not isinstance(node, np.ndarray):
            return node
        if id(node) not in array_references:
            wire_type = _choose_wire_type(node)
            node_bytes = np.ascontiguousarray(node, dtype=wire_type.newbyteorder("<")).tobytes()
            padding = -len(node_bytes) % ALIGNMENT_BYTES
            array_references[id(node)] = {
                "$": [f"{wire_type.kind}{wire_type.itemsize}", offset_bytes, int(node.size)]
            }
            kept_arrays.append(node)
            array_bytes.extend((node_bytes, bytes(padding)))
            offset_bytes += len(node_bytes) + padding
        return array_references[id(node)]

    return convert(tree), b"".join(array_bytes)
