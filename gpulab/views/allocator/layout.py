"""Layout of a memory map: rows of segments, in which a segment keeps its position while it exists."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.memory import AllocatorHistory

MAX_ROWS = 12
MAX_GROUPS = 5
# Smallest drawn widths of a segment, as shares of a row, so that a small one can be seen and pointed at.
MIN_ROW_SHARES = (1 / 40, 1 / 120, 1 / 400, 0.0)
MIN_CROWDED_BLOCKS = 60
OTHER_GROUP_KEY = (-1, "")


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows of a memory map that show the segments of one stream and pool."""

    stream: int
    pool: str
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class MapLayout:
    """The positions of the segments in a memory map. Each row of the map represents ``row_bytes`` bytes.

    Each segment begins ``start_bytes`` after the beginning of the first row, and is drawn ``drawn_bytes``
    long. It represents the ``size_bytes`` from address ``low_addresses`` on, which is its largest extent.
    """

    row_bytes: int
    groups: tuple[RowGroup, ...]
    start_bytes: npt.NDArray[np.float64]
    drawn_bytes: npt.NDArray[np.float64]
    low_addresses: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]

    @property
    def is_widened(self) -> npt.NDArray[np.bool_]:
        """An array that states which segments are drawn longer than their size, so that they are visible."""
        return self.drawn_bytes > self.size_bytes

    @property
    def rows(self) -> int:
        """The number of rows in the memory map."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True)
class _Extents:
    """The lowest address, size, first step, last step and group of each segment, as arrays."""

    low_addresses: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    first_steps: npt.NDArray[np.int64]
    last_steps: npt.NDArray[np.int64]
    group_keys: list[tuple[int, str]]
    most_blocks: int  # largest number in use at a time


def compute_layouts(histories: Sequence[AllocatorHistory], max_rows: int = MAX_ROWS) -> list[MapLayout]:
    """Return the layouts of memory maps that are shown together. All maps have the same number of bytes per
    row.
    """
    segment_extents = [_compute_extents(history) for history in histories]
    largest_bytes = max((int(extent.size_bytes.max(initial=0)) for extent in segment_extents), default=0) or 1
    is_crowded = max(extent.most_blocks for extent in segment_extents) > MIN_CROWDED_BLOCKS
    for row_doublings in range(64):
        for min_share in MIN_ROW_SHARES:
            layouts = [
                _compute_layout(extent, largest_bytes << row_doublings, min_share)
                for extent in segment_extents
            ]
            if sum(layout.rows for layout in layouts) > max_rows:
                continue
            while is_crowded and not row_doublings and sum(layout.rows for layout in layouts) * 2 <= max_rows:
                layouts = [
                    _compute_layout(extent, layouts[0].row_bytes // 2, min_share)
                    for extent in segment_extents
                ]
            return layouts
    raise AssertionError("there are more streams than rows")


def _compute_extents(history: AllocatorHistory) -> _Extents:
    segment_count = len(history.segments)
    ranges = history.ranges
    low_addresses = np.full(segment_count, 1 << 62, np.int64)
    high_addresses = np.zeros(segment_count, np.int64)
    first_steps = np.full(segment_count, 1 << 31, np.int64)
    last_steps = np.zeros(segment_count, np.int64)
    np.minimum.at(low_addresses, ranges.segments, ranges.addresses)
    np.maximum.at(high_addresses, ranges.segments, ranges.addresses + ranges.size_bytes)
    np.minimum.at(first_steps, ranges.segments, ranges.begins)
    np.maximum.at(last_steps, ranges.segments, ranges.ends)
    group_keys = list(zip(history.segments.streams, history.segments.pools, strict=True))
    # The streams with the most memory have their own rows.
    bytes_of_group: dict[tuple[int, str], int] = {}
    for group_key, size_bytes in zip(group_keys, (high_addresses - low_addresses).tolist(), strict=True):
        bytes_of_group[group_key] = bytes_of_group.get(group_key, 0) + max(0, size_bytes)
    if len(bytes_of_group) > MAX_GROUPS:
        shown_groups = set(sorted(bytes_of_group, key=lambda key: -bytes_of_group[key])[: MAX_GROUPS - 1])
        group_keys = [group_key if group_key in shown_groups else OTHER_GROUP_KEY for group_key in group_keys]
    block_changes = np.zeros(history.last_step + 3, np.int64)
    np.add.at(block_changes, history.blocks.begins, 1)
    np.add.at(block_changes, history.blocks.ends, -1)
    return _Extents(
        low_addresses,
        np.maximum(high_addresses - low_addresses, 0),
        first_steps,
        last_steps,
        group_keys,
        int(np.cumsum(block_changes).max()),
    )


def _compute_layout(extents: _Extents, row_bytes: int, min_share: float) -> MapLayout:
    start_bytes = np.zeros(len(extents.group_keys))
    drawn_bytes = np.maximum(extents.size_bytes, row_bytes * min_share)
    row_groups = []
    first_row = 0
    for group_key in sorted(
        set(extents.group_keys), key=lambda group_key: (group_key == OTHER_GROUP_KEY, group_key)
    ):
        segment_indices = [
            segment_index
            for segment_index, other_key in enumerate(extents.group_keys)
            if other_key == group_key and extents.size_bytes[segment_index]
        ]
        segment_indices.sort(key=lambda index: (extents.first_steps[index], extents.low_addresses[index]))
        end_bytes = _pack_segments(
            segment_indices, extents, drawn_bytes, row_bytes, start_bytes, first_row * row_bytes
        )
        group_row_count = max(1, int(np.ceil((end_bytes - first_row * row_bytes) / row_bytes - 1e-9)))
        row_groups.append(RowGroup(*group_key, first_row, group_row_count))
        first_row += group_row_count
    return MapLayout(
        row_bytes, tuple(row_groups), start_bytes, drawn_bytes, extents.low_addresses, extents.size_bytes
    )


def _pack_segments(
    segment_indices: list[int],
    extents: _Extents,
    drawn_bytes: npt.NDArray[np.float64],
    row_bytes: int,
    start_bytes: npt.NDArray[np.float64],
    end_bytes: float,
) -> float:
    """Write the position of each segment to `start_bytes`, and return the end of the last segment.

    A later segment can take the position of one that has ended if it fits well.
    """
    row_gaps: list[tuple[float, float]] = []  # bytes and place of what is not taken, in order
    packed_rows: list[tuple[int, float, float]] = []  # the end of each, its bytes and place
    for segment_index in segment_indices:
        while packed_rows and packed_rows[0][0] <= extents.first_steps[segment_index]:
            _, reserved_bytes, gap_start_bytes = heapq.heappop(packed_rows)
            insort(row_gaps, (reserved_bytes, gap_start_bytes))
        needed_bytes = float(drawn_bytes[segment_index])
        gap_index = bisect_left(row_gaps, (needed_bytes, -1.0))
        if gap_index < len(row_gaps) and row_gaps[gap_index][0] <= 2 * needed_bytes:
            reserved_bytes, gap_start_bytes = row_gaps.pop(gap_index)
        else:
            row_offset = end_bytes % row_bytes
            if (
                row_offset and row_offset + needed_bytes > row_bytes
            ):  # only segments longer than a row are divided
                insort(row_gaps, (row_bytes - row_offset, end_bytes))
                end_bytes += row_bytes - row_offset
            reserved_bytes = needed_bytes
            gap_start_bytes = end_bytes
            end_bytes += needed_bytes
        start_bytes[segment_index] = gap_start_bytes
        heapq.heappush(packed_rows, (int(extents.last_steps[segment_index]), reserved_bytes, gap_start_bytes))
    return end_bytes
