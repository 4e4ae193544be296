"""Layout of the segments of a memory map in rows; a segment keeps its place while it exists."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.memory import AllocatorHistory

MOST_ROWS = 12
MOST_GROUPS = 5
# A small segment is drawn so wide, as a part of a row, that it can be seen and pointed at.
LEAST_SHARES = (1 / 40, 1 / 120, 1 / 400, 0.0)
CROWDED_BLOCKS = 60
OTHERS = (-1, "")


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of the segments of one stream and pool."""

    stream: int
    pool: str
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class Places:
    """Rows of ``row_bytes``; each segment begins ``start`` bytes after the first row's beginning.

    It is drawn ``wide`` bytes long, for the ``size_bytes`` from address ``low`` on that it had at most.
    """

    row_bytes: int
    groups: tuple[Group, ...]
    start: npt.NDArray[np.float64]
    wide: npt.NDArray[np.float64]
    low: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True)
class _Extents:
    """Return lowest address, size, first and last step of each segment."""

    low: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    keys: list[tuple[int, str]]
    blocks: int  # largest number in use at a time


def places(histories: Sequence[AllocatorHistory], most_rows: int = MOST_ROWS) -> list[Places]:
    """Return the rows of maps that are shown together, with equal bytes per row, at most `most_rows`."""
    extents = [_extents(history) for history in histories]
    largest = max((int(each.size_bytes.max(initial=0)) for each in extents), default=0) or 1
    crowded = max(each.blocks for each in extents) > CROWDED_BLOCKS
    for doubled in range(64):
        for share in LEAST_SHARES:
            found = [_placed(each, largest << doubled, share) for each in extents]
            if sum(each.rows for each in found) > most_rows:
                continue
            while crowded and not doubled and sum(each.rows for each in found) * 2 <= most_rows:
                found = [_placed(each, found[0].row_bytes // 2, share) for each in extents]
            return found
    raise AssertionError("more streams than rows")


def _extents(history: AllocatorHistory) -> _Extents:
    many = len(history.segments)
    ranges = history.ranges
    low = np.full(many, 1 << 62, np.int64)
    high = np.zeros(many, np.int64)
    begin = np.full(many, 1 << 31, np.int64)
    end = np.zeros(many, np.int64)
    np.minimum.at(low, ranges.segments, ranges.addresses)
    np.maximum.at(high, ranges.segments, ranges.addresses + ranges.size_bytes)
    np.minimum.at(begin, ranges.segments, ranges.begins)
    np.maximum.at(end, ranges.segments, ranges.ends)
    keys = list(zip(history.segments.streams, history.segments.pools, strict=True))
    # The streams with the most memory have rows of their own.
    weight: dict[tuple[int, str], int] = {}
    for key, size in zip(keys, (high - low).tolist(), strict=True):
        weight[key] = weight.get(key, 0) + max(0, size)
    if len(weight) > MOST_GROUPS:
        kept = set(sorted(weight, key=lambda key: -weight[key])[: MOST_GROUPS - 1])
        keys = [key if key in kept else OTHERS for key in keys]
    change = np.zeros(history.last_step + 3, np.int64)
    np.add.at(change, history.blocks.begins, 1)
    np.add.at(change, history.blocks.ends, -1)
    return _Extents(low, np.maximum(high - low, 0), begin, end, keys, int(np.cumsum(change).max()))


def _placed(extents: _Extents, row_bytes: int, share: float) -> Places:
    start = np.zeros(len(extents.keys))
    wide = np.maximum(extents.size_bytes, row_bytes * share)
    groups = []
    first_row = 0
    for key in sorted(set(extents.keys), key=lambda key: (key == OTHERS, key)):
        mine = [at for at, other in enumerate(extents.keys) if other == key and extents.size_bytes[at]]
        mine.sort(key=lambda at: (extents.begin[at], extents.low[at]))
        reached = _pack(mine, extents, wide, row_bytes, start, first_row * row_bytes)
        rows = max(1, int(np.ceil((reached - first_row * row_bytes) / row_bytes - 1e-9)))
        groups.append(Group(*key, first_row, rows))
        first_row += rows
    return Places(row_bytes, tuple(groups), start, wide, extents.low, extents.size_bytes)


def _pack(
    numbers: list[int],
    extents: _Extents,
    wide: npt.NDArray[np.float64],
    row_bytes: int,
    start: npt.NDArray[np.float64],
    cursor: float,
) -> float:
    """Put segments into `start` one after the other; what one left is taken by a later one that fits well."""
    left: list[tuple[float, float]] = []  # bytes and place of what is not taken, in order
    living: list[tuple[int, float, float]] = []  # the end of each, its bytes and place
    for at in numbers:
        while living and living[0][0] <= extents.begin[at]:
            _, room, place = heapq.heappop(living)
            insort(left, (room, place))
        need = float(wide[at])
        found = bisect_left(left, (need, -1.0))
        if found < len(left) and left[found][0] <= 2 * need:
            room, place = left.pop(found)
        else:
            over = cursor % row_bytes
            if over and over + need > row_bytes:  # only segments longer than a row are divided
                insort(left, (row_bytes - over, cursor))
                cursor += row_bytes - over
            room = need
            place = cursor
            cursor += need
        start[at] = place
        heapq.heappush(living, (int(extents.end[at]), room, place))
    return cursor
