"""Search for the segments that a pool returned to the device, if only their total size is known."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from virtualgpu.records.memory import ACTIONS, AllocatorEvents, BlockMap

_SEGMENT_FREE_CODE = ACTIONS.index("segment_free")
EventRow = tuple[int, int, int, int, int, int, int]


def name_released_segments(first_map: BlockMap, events: AllocatorEvents) -> tuple[AllocatorEvents, int]:
    """Determine which segments a memory pool released. The recorded events contain only the total number of
    released bytes.

    CuPy's pool calls no hook when it returns segments. It returns all segments without a block in use, of all
    streams or of one. This function searches for segments whose sizes add up to the released bytes.

    Parameters
    ----------
    first_map
        The segments and blocks of the pool before the events.
    events
        The events, with ``segment_free`` events of address 0, whose size is the decrease of the pool's total.

    Returns
    -------
    events, unnamed_bytes
        The events with the addresses and sizes of segments; and the number of bytes without such segments,
        for which there is no event.
    """
    segments = _Segments(first_map)
    event_rows = list[EventRow]()
    unnamed_bytes = 0
    event_columns = (
        events.addresses,
        events.size_bytes,
        events.requested_bytes,
        events.streams,
        events.time_ns,
        events.stacks,
    )
    for action_code, *event_fields in zip(
        events.actions.tolist(), *(column.tolist() for column in event_columns), strict=True
    ):
        address, size, _, stream, time_ns, stack_number = event_fields
        if action_code != _SEGMENT_FREE_CODE or address:
            segments.handle_event(ACTIONS[action_code], address, size, stream)
            event_rows.append((action_code, *event_fields))
            continue
        released_starts = segments.find_released_starts(size)
        unnamed_bytes += 0 if released_starts else size
        for start in released_starts:
            size, stream = segments.segments[start]
            segments.handle_event("segment_free", start, size, stream)
            event_rows.append((_SEGMENT_FREE_CODE, start, size, 0, stream, time_ns, stack_number))
    event_table = np.array(event_rows, np.int64).reshape(-1, 7)
    address_column, sizes, requested_sizes, streams, times = (
        np.ascontiguousarray(event_table[:, index]) for index in range(1, 6)
    )
    named_events = AllocatorEvents(
        actions=event_table[:, 0].astype(np.uint8),
        addresses=address_column,
        size_bytes=sizes,
        requested_bytes=requested_sizes,
        streams=streams,
        time_ns=times,
        stacks=event_table[:, 6].astype(np.int32),
    )
    return named_events, unnamed_bytes


class _Segments:
    """The segments of a pool, with the number of blocks in use in each."""

    def __init__(self, first_map: BlockMap) -> None:
        self.segments: dict[int, tuple[int, int]] = {}  # address -> size, stream
        self.segment_starts: list[int] = []
        self.block_counts: dict[int, int] = {}
        for segment in first_map.segments:
            self.handle_event("segment_alloc", segment.address, segment.size_bytes, segment.stream)
            for block in segment.blocks:
                if block.state == "used":
                    self.handle_event("alloc", block.address, block.size_bytes, segment.stream)

    def handle_event(self, action: str, address: int, size: int, stream: int) -> None:
        match action:
            case "segment_alloc":
                insort(self.segment_starts, address)
                self.segments[address] = size, stream
                self.block_counts[address] = 0
            case "segment_free":
                self.segment_starts.remove(address)
                del self.segments[address], self.block_counts[address]
            case "alloc" | "free_completed":
                index = bisect_right(self.segment_starts, address) - 1
                if (
                    index >= 0
                    and address < self.segment_starts[index] + self.segments[self.segment_starts[index]][0]
                ):
                    self.block_counts[self.segment_starts[index]] += 1 if action == "alloc" else -1

    def find_released_starts(self, size: int) -> list[int]:
        """Return unused segments whose sizes add up to `size` bytes, from as many streams as possible. If
        there are no such segments, return an empty list.
        """
        unused_starts = [start for start, block_count in self.block_counts.items() if block_count <= 0]
        for streams in self._list_stream_sets({self.segments[start][1] for start in unused_starts}):
            chosen_starts = [start for start in unused_starts if self.segments[start][1] in streams]
            if sum(self.segments[start][0] for start in chosen_starts) == size:
                return sorted(chosen_starts)
        return []

    def _list_stream_sets(self, streams: set[int]) -> Iterator[tuple[int, ...]]:
        """Yield sets of streams. The set of all streams comes first. Its subsets follow, the largest first;
        if there are more than ten streams, these are only the sets of one stream.
        """
        max_stream_count = len(streams) if len(streams) <= 10 else 1
        yield tuple(streams)
        for stream_count in range(max_stream_count, 0, -1):
            yield from combinations(sorted(streams), stream_count)
