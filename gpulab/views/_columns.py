"""Columns of a record as one binary buffer for the browser, with a small layout beside it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Layout = dict[str, list[str | int]]

ALIGNMENT_BYTES = 8


def pack(columns: Mapping[str, npt.NDArray[np.generic]]) -> tuple[bytes, Layout]:
    """Join `columns` little-endian, each at a multiple of 8 bytes as typed arrays require.

    Returns
    -------
    data, layout
        `layout` maps each name to ``[NumPy type code, offset in bytes, number of elements]``;
        ``columns()`` in ``static/base.js`` reads it.
    """
    pieces: list[bytes] = []
    layout: Layout = {}
    offset = 0
    for name, column in columns.items():
        kind = np.dtype(np.uint8) if column.dtype == np.bool_ else column.dtype
        piece = np.ascontiguousarray(column, dtype=kind.newbyteorder("<")).tobytes()
        layout[name] = [f"{kind.kind}{kind.itemsize}", offset, int(column.size)]
        padding = -len(piece) % ALIGNMENT_BYTES
        pieces += [piece, bytes(padding)]
        offset += len(piece) + padding
    return b"".join(pieces), layout
