"""A display list for the browser: JSON, and one binary buffer with its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.parts.boxes import Box
from gpulab.views.parts.items import Item

ALIGNMENT_BYTES = 8


def _kind(column: npt.NDArray[Any]) -> np.dtype[Any]:
    """Return the type for the browser: integers get 4 bytes or become doubles, to avoid BigInt64Array."""
    if column.dtype == np.bool_:
        return np.dtype(np.uint8)
    if column.dtype != np.int64:
        return column.dtype
    fits = not column.size or max(-int(column.min()), int(column.max())) < 1 << 31
    return np.dtype(np.int32 if fits else np.float64)


def pack(tree: Any) -> tuple[Any, bytes]:
    """Move the NumPy arrays of `tree` into one buffer.

    Returns
    -------
    tree, data
        Each array has become ``{"$": [type code, offset in bytes, number of elements]}``, its elements
        little-endian at a multiple of 8 bytes, as typed arrays require. An array that occurs twice is
        there once. ``unpack`` in ``frame.js`` reads it.
    """
    pieces: list[bytes] = []
    places: dict[int, dict[str, list[str | int]]] = {}
    kept: list[Any] = []  # so that no id is reused during the traversal
    offset = 0

    def walk(node: Any) -> Any:
        nonlocal offset
        if isinstance(node, Item | Box):
            node = node.wire()
        if isinstance(node, dict):
            return {str(key): walk(value) for key, value in node.items()}
        if isinstance(node, (list, tuple)):
            return [walk(value) for value in node]
        if isinstance(node, np.generic):
            return node.item()
        if not isinstance(node, np.ndarray):
            return node
        if id(node) not in places:
            kind = _kind(node)
            piece = np.ascontiguousarray(node, dtype=kind.newbyteorder("<")).tobytes()
            padding = -len(piece) % ALIGNMENT_BYTES
            places[id(node)] = {"$": [f"{kind.kind}{kind.itemsize}", offset, int(node.size)]}
            kept.append(node)
            pieces.extend((piece, bytes(padding)))
            offset += len(piece) + padding
        return places[id(node)]

    return walk(tree), b"".join(pieces)
