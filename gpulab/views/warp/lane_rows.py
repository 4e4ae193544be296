"""Rows of 32 register values in few bytes: most are the same in all lanes or grow evenly with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WARP_SIZE

_LANE = np.arange(WARP_SIZE, dtype=np.int64)
_HALF = np.uint64(0xFFFFFFFF)


def encode(values: npt.NDArray[np.uint64], lanes: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[Any]]:
    """Pack rows of bits, of which only the chosen lanes matter.

    Returns
    -------
    dict
        Columns for `parts.pack`. A row is ``base[~at] + stride[~at] * lane`` where its ``at`` is
        negative; otherwise ``at >> 1`` is its place in ``table``, which holds the low halves of 32 lanes
        and, if ``at`` is odd, the high halves after them. ``LaneRows`` in ``record.js`` reads it.
    """
    signed = values.view(np.int64)
    count = len(signed)
    first = np.argmax(lanes, axis=1)
    later = lanes & (first[:, None] < _LANE)
    more = later.any(axis=1)
    second = np.where(more, np.argmax(later, axis=1), first + 1)
    rows = np.arange(count)
    start = signed[rows, first]
    rise = np.where(more, signed[rows, second % WARP_SIZE] - start, 0)
    stride = rise // (second - first)
    base = start - stride * first
    even = np.all((base[:, None] + stride[:, None] * _LANE == signed) | ~lanes, axis=1)
    rest = values[~even]
    wide = (rest >> np.uint64(32)).any(axis=1)
    place = np.concatenate([[0], np.cumsum(1 + wide)])
    table = np.zeros((int(place[-1]), WARP_SIZE), np.uint32)
    table[place[:-1]] = rest & _HALF
    table[place[:-1][wide] + 1] = rest[wide] >> np.uint64(32)
    at = np.empty(count, np.int32)
    at[even] = ~np.arange(int(even.sum()), dtype=np.int32)
    at[~even] = place[:-1] << 1 | wide
    return {"at": at, "base": base[even].view(np.uint64), "stride": stride[even], "table": table.reshape(-1)}
