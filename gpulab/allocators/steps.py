"""State of an allocator at any step of its trace, without a replay of the earlier events.

Each block and each mapped range has a lifetime, from its first step to its last. The state at a step is then
a comparison of two columns, which does not need the events before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from virtualgpu.records.memory import (
    ACTIONS,
    AllocatorEvents,
    AllocatorHistory,
    AllocatorTrace,
    Block,
    BlockLives,
    BlockMap,
    RangeLives,
    Segment,
    SegmentLives,
)
from virtualgpu.records.memory.history import Column, Steps

# PyTorch takes 2 MiB from the device for small blocks and more for others, so that a size tells the pool.
TORCH_SMALL_BYTES = 2 << 20


def history(trace: AllocatorTrace) -> AllocatorHistory:
    """Return the lifetimes of the blocks and segments in an allocator trace. The computation takes a few
    microseconds per event.

    A block outside all known segments, which were allocated before the trace began, gets a new segment that
    grows with its neighbours. A free of an unknown block changes nothing.

    Examples
    --------
    >>> at(history(trace), 3).used_bytes
    4096
    """
    return _Lifetimes(trace).history()


def at(history: AllocatorHistory, step: int) -> BlockMap:
    """Return the segments and blocks after the first `step` events of an allocator trace.

    Raises
    ------
    IndexError
        If the trace has fewer events.
    """
    trace = history.trace
    last_step = history.last_step
    if not 0 <= step <= last_step:
        raise IndexError(f"Step {step:,} is outside this trace. Its steps are 0 to {last_step:,}.")
    events = trace.events
    time_ns = int(events.time_ns[step - 1]) if step else trace.first.time_ns
    blocks = _blocks(history, step)
    segments = [
        _segment(history, segment_index, spans, blocks.get(segment_index, []))
        for segment_index, spans in _spans(history.ranges, step).items()
    ]
    segments.sort(key=lambda segment: segment.address)
    return replace(trace.first, time_ns=time_ns, segments=tuple(segments))


def tail(trace: AllocatorTrace, max_events: int) -> AllocatorTrace:
    """Return an allocator trace that contains only the last `max_events` events. Its first state is the state
    before these events.
    """
    events = trace.events
    start = len(trace.events) - max_events
    if start <= 0:
        return trace
    # A block is alive at the start if the last event of its address, without frees, is its allocation.
    codes = events.actions[:start]
    addresses = events.addresses[:start]
    alloc_code, request_code, free_code = (
        ACTIONS.index(name) for name in ("alloc", "free_requested", "free_completed")
    )
    block_rows = np.flatnonzero((codes == alloc_code) | (codes == request_code) | (codes == free_code))
    last_rows = _last_rows(addresses, block_rows)
    waiting_rows = last_rows[codes[last_rows] == request_code]
    freed_addresses = addresses[last_rows[codes[last_rows] == free_code]]
    allocations = _last_rows(addresses, np.flatnonzero(codes == alloc_code))
    allocations = allocations[~np.isin(addresses[allocations], freed_addresses)]
    segments = np.flatnonzero((codes != alloc_code) & (codes != request_code) & (codes != free_code))
    rows = np.concatenate((segments, np.sort(allocations), np.sort(waiting_rows)))
    first_map = _remove_blocks(trace.first, {*freed_addresses.tolist(), *addresses[allocations].tolist()})
    earlier_history = history(replace(trace, first=first_map, events=_select_rows(events, rows)))
    time_ns = int(events.time_ns[start - 1])
    first_map = replace(at(earlier_history, earlier_history.last_step), time_ns=time_ns)
    limit_note = f"Only the last {max_events:,} of {len(events):,} events are shown."
    note = " ".join(text for text in (trace.note, limit_note) if text)
    return replace(
        trace, first=first_map, events=_select_rows(events, np.arange(start, start + max_events)), note=note
    )


def _last_rows(addresses: Column, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the last of the rows of each address; `rows` are sorted."""
    _, reverse_rows = np.unique(addresses[rows][::-1], return_index=True)
    result: npt.NDArray[np.intp] = rows[::-1][reverse_rows]
    return result


def _select_rows(events: AllocatorEvents, rows: npt.NDArray[np.intp]) -> AllocatorEvents:
    return AllocatorEvents(
        **{column.name: getattr(events, column.name)[rows] for column in fields(AllocatorEvents)}
    )


def _remove_blocks(first_map: BlockMap, addresses: set[int]) -> BlockMap:
    """Return a copy of a block map in which the blocks at some addresses are free."""
    segments = tuple(
        replace(
            segment,
            blocks=tuple(
                Block(address=block.address, size_bytes=block.size_bytes, is_free=True)
                if block.address in addresses and not block.is_unmapped
                else block
                for block in segment.blocks
            ),
        )
        for segment in first_map.segments
    )
    return replace(first_map, segments=segments)


def _spans(ranges: RangeLives, step: int) -> dict[int, list[tuple[int, int]]]:
    """Return the mapped ranges (start, end) of each segment at a step, sorted by address and merged."""
    rows = np.flatnonzero((ranges.begins <= step) & (step < ranges.ends))
    result: dict[int, list[tuple[int, int]]] = {}
    columns = (ranges.segments, ranges.addresses, ranges.size_bytes)
    for segment_index, start, size in zip(*(column[rows].tolist() for column in columns), strict=True):
        spans = result.setdefault(segment_index, [])
        if spans and spans[-1][1] >= start:
            spans[-1] = (spans[-1][0], max(spans[-1][1], start + size))
        else:
            spans.append((start, start + size))
    return result


def _blocks(history: AllocatorHistory, step: int) -> dict[int, list[Block]]:
    """Return the blocks of each segment that are in use or wait, sorted by address."""
    block_lives = history.blocks
    rows = np.flatnonzero((block_lives.begins <= step) & (step < block_lives.ends))
    result: dict[int, list[Block]] = {}
    columns = (
        block_lives.segments,
        block_lives.addresses,
        block_lives.size_bytes,
        block_lives.requested_bytes,
        block_lives.stacks,
        block_lives.begins,
        block_lives.freed,
    )
    selected_columns = (column[rows].tolist() for column in columns)
    for row, segment_index, address, size, requested_bytes, stack, allocated_step, freed_step in zip(
        rows.tolist(), *selected_columns, strict=True
    ):
        is_waiting = freed_step <= step
        label = block_lives.labels.get(row, "")
        event = (freed_step if is_waiting else allocated_step) - 1
        block = Block(
            address=address,
            size_bytes=size,
            is_free=False,
            requested_bytes=requested_bytes,
            label=label,
            is_waiting=is_waiting,
            stack=stack,
            event=event,
        )
        result.setdefault(segment_index, []).append(block)
    return result


def _segment(
    history: AllocatorHistory, segment_index: int, spans: list[tuple[int, int]], blocks: list[Block]
) -> Segment:
    tiles = tuple(_fill_spans(spans, blocks))
    kinds = history.segments
    start = spans[0][0]
    return Segment(
        start,
        spans[-1][1] - start,
        kinds.streams[segment_index],
        tiles,
        kinds.pools[segment_index],
        kinds.is_expandable[segment_index],
    )


def _fill_spans(spans: list[tuple[int, int]], blocks: list[Block]) -> Iterator[Block]:
    """Return the blocks of a segment together with the free and the unmapped ranges between them."""
    address = spans[0][0]
    index = 0
    for start, end in spans:
        if address < start:
            yield Block(address=address, size_bytes=start - address, is_free=False, is_unmapped=True)
            address = start
        while index < len(blocks) and blocks[index].address < end:
            block = blocks[index]
            if address < block.address:
                yield Block(address=address, size_bytes=block.address - address, is_free=True)
            yield block
            address = max(address, block.end)
            index = index + 1
        if address < end:
            yield Block(address=address, size_bytes=end - address, is_free=True)
            address = end


class _Lifetimes:
    """Search for the lifetimes of all blocks, ranges and segments in one pass over a trace."""

    def __init__(self, trace: AllocatorTrace) -> None:
        self.trace = trace
        self.never = len(trace.events) + 1
        self.of_torch = "PyTorch" in trace.allocator
        # Rows of the tables; the index of a row is its number until they are sorted.
        self.blocks: list[
            list[int]
        ] = []  # address, size, requested, stream, stack, segment, begin, freed, end
        self.ranges: list[list[int]] = []  # address, size, segment, begin, end
        self.kinds: list[tuple[int, str, bool, bool]] = []  # of each segment
        self.parents: list[int] = []  # of each segment, the segment of which it is a part, or itself
        self.used_blocks: list[int] = []  # number of blocks in use, of each segment
        self.labels: dict[int, str] = {}
        # Present state.
        self.used: dict[int, int] = {}  # address -> row of blocks
        self.starts: list[int] = []  # of mapped ranges, in order
        self.range_rows: dict[int, int] = {}  # start -> row of ranges
        for segment in trace.first.segments:
            self._add_first_segment(segment)
        self.event_blocks = [
            self._handle_event(step, *row) for step, row in enumerate(trace.events.rows(), 1)
        ]

    def _add_first_segment(self, segment: Segment) -> None:
        segment_kind = (segment.stream, segment.pool, segment.is_expandable, True)
        segment_index = self._add_segment(*segment_kind)
        spans: list[list[int]] = []  # mapped stretches; blocks of a damaged trace may overlap
        for block in segment.blocks:
            if block.is_unmapped:
                continue
            if spans and spans[-1][1] >= block.address:
                spans[-1][1] = max(spans[-1][1], block.end)
            else:
                spans.append([block.address, block.end])
        for span_start, span_end in spans:
            self._unmap(span_start, span_end - span_start, 0)
            self._map(span_start, span_end - span_start, segment_index, 0)
        for block in segment.blocks:
            if block.state in ("used", "waiting"):
                row = self._add_block(
                    block.address,
                    block.size_bytes,
                    block.requested_bytes,
                    segment.stream,
                    block.stack,
                    segment_index,
                    0,
                )
                if block.is_waiting:
                    self.blocks[row][7] = 0
                if block.label:
                    self.labels[row] = block.label

    def _handle_event(
        self, step: int, action: str, address: int, size: int, requested: int, stream: int, _: int, stack: int
    ) -> int:
        if size <= 0 and not action.startswith("free"):
            return -1  # a damaged trace
        match action:
            case "alloc":
                replaced_row = self.used.pop(address, None)
                if replaced_row is not None:
                    self._end_block(replaced_row, step)
                segment_index = self._segment_around(address, size, stream, step)
                return self._add_block(address, size, requested, stream, stack, segment_index, step)
            case "free_requested":
                row = self.used.get(address, -1)
                if row >= 0:
                    self.blocks[row][7] = min(step, self.blocks[row][7])
                return row
            case "free_completed":
                row = self.used.pop(address, -1)
                if row >= 0:
                    self._end_block(row, step)
                return row
            case "segment_alloc":
                self._unmap(address, size, step)
                self._map(address, size, self._add_segment(stream, self._pool(size), False, True), step)
            case "segment_map":
                self._unmap(address, size, step)
                self._grow(address, size, stream, step, is_expandable=True)
            case "segment_free" | "segment_unmap":
                self._unmap(address, size, step)
        return -1

    def _pool(self, size: int) -> str:
        if not self.of_torch:
            return ""
        return "small" if size == TORCH_SMALL_BYTES else "large"

    # Blocks

    def _add_block(
        self, address: int, size: int, requested: int, stream: int, stack: int, segment_index: int, step: int
    ) -> int:
        row = self.used[address] = len(self.blocks)
        self.used_blocks[segment_index] += 1
        self.blocks.append(
            [address, size, requested, stream, stack, segment_index, step, self.never, self.never]
        )
        return row

    def _end_block(self, row: int, step: int) -> None:
        block = self.blocks[row]
        block[7], block[8] = min(step, block[7]), step
        self.used_blocks[self._root_segment(block[5])] -= 1

    # Segments and ranges

    def _add_segment(self, stream: int, pool: str, is_expandable: bool, is_seen: bool) -> int:
        self.kinds.append((stream, pool, is_expandable, is_seen))
        self.parents.append(len(self.parents))
        self.used_blocks.append(0)
        return len(self.parents) - 1

    def _root_segment(self, segment_index: int) -> int:
        while self.parents[segment_index] != segment_index:
            segment_index = self.parents[segment_index]
        return segment_index

    def _map(self, address: int, size: int, segment_index: int, step: int) -> None:
        if size <= 0:
            return
        insort(self.starts, address)
        self.range_rows[address] = len(self.ranges)
        self.ranges.append([address, size, segment_index, step, self.never])

    def _grow(self, address: int, size: int, stream: int, step: int, *, is_expandable: bool) -> int:
        """Add a mapped range to the segment of its kind that it touches, or to a new segment.

        An expandable segment contains all ranges of its stream and pool, even with holes between them.
        """
        index = bisect_right(self.starts, address)
        pool = self._pool(size) if is_expandable else ""
        segment_kind = (stream, pool, is_expandable, is_expandable)
        neighbours = []
        for start in self.starts[max(0, index - 1) : index + 1]:
            _, length, segment_index, *_ = self.ranges[self.range_rows[start]]
            segment_index = self._root_segment(segment_index)
            is_adjacent = start + length >= address and start <= address + size
            if (
                self.kinds[segment_index] == segment_kind
                and (is_adjacent or is_expandable)
                and segment_index not in neighbours
            ):
                neighbours.append(segment_index)
        if neighbours:
            segment_index = neighbours[0]
            for other_segment in neighbours[1:]:
                self.parents[other_segment] = segment_index
                self.used_blocks[segment_index] += self.used_blocks[other_segment]
        else:
            segment_index = self._add_segment(*segment_kind)
        self._map(address, size, segment_index, step)
        return segment_index

    def _segment_around(self, address: int, size: int, stream: int, step: int) -> int:
        """Return the segment that contains a new block; parts that were not recorded are added now."""
        segment = -1
        position = address
        while position < address + size:
            index = bisect_right(self.starts, position)
            start = self.starts[index - 1] if index else -1
            row = self.ranges[self.range_rows[start]] if index else None
            if row is not None and start + row[1] > position:
                segment = self._root_segment(row[2]) if segment < 0 else segment
                position = start + row[1]
                continue
            end_address = (
                min(self.starts[index], address + size) if index < len(self.starts) else address + size
            )
            grown_segment = self._grow(position, end_address - position, stream, step, is_expandable=False)
            segment = grown_segment if segment < 0 else segment
            position = end_address
        return segment

    def _unmap(self, address: int, size: int, step: int) -> None:
        """End all mappings and blocks within a range; the frees of these blocks were not recorded."""
        end_address = address + size
        index = max(0, bisect_right(self.starts, address) - 1)
        overlapping = self.starts[index : bisect_left(self.starts, end_address)]
        for start in overlapping:
            row = self.ranges[self.range_rows[start]]
            range_end = start + row[1]
            if range_end <= address:
                continue
            del self.starts[bisect_left(self.starts, start)]
            del self.range_rows[start]
            row[4] = step
            # The remaining parts on both sides continue as separate ranges.
            self._map(start, address - start, row[2], step)
            self._map(end_address, range_end - end_address, row[2], step)
            if self.used_blocks[self._root_segment(row[2])]:
                self._end_blocks(max(start, address), min(range_end, end_address), step)

    def _end_blocks(self, start_address: int, end_address: int, step: int) -> None:
        for address in [start for start in self.used if start_address <= start < end_address]:
            self._end_block(self.used.pop(address), step)

    # Tables

    def history(self) -> AllocatorHistory:
        blocks = np.array(self.blocks, np.int64).reshape(-1, 9)
        ranges = np.array(self.ranges, np.int64).reshape(-1, 5)
        order = np.lexsort((blocks[:, 6], blocks[:, 0]))
        blocks = blocks[order]
        ranges = ranges[np.lexsort((ranges[:, 3], ranges[:, 0]))]
        new_rows = np.full(len(blocks) + 1, -1, np.int32)  # the last one stands for none
        new_rows[order] = np.arange(len(order), dtype=np.int32)
        roots = np.array(
            [self._root_segment(segment_index) for segment_index in range(len(self.parents))] or [0], np.int32
        )
        streams, pools, is_expandable, is_seen = (
            zip(*self.kinds, strict=True) if self.kinds else ((), (), (), ())
        )

        def column_of(table: Column, column: int) -> Column:
            return np.ascontiguousarray(table[:, column])

        def steps_of(table: Column, column: int) -> Steps:
            return table[:, column].astype(np.int32)

        block_lives = BlockLives(
            addresses=column_of(blocks, 0),
            size_bytes=column_of(blocks, 1),
            requested_bytes=column_of(blocks, 2),
            streams=column_of(blocks, 3),
            stacks=steps_of(blocks, 4),
            segments=roots[blocks[:, 5]],
            begins=steps_of(blocks, 6),
            freed=steps_of(blocks, 7),
            ends=steps_of(blocks, 8),
            labels={int(new_rows[row]): label for row, label in self.labels.items()},
        )
        return AllocatorHistory(
            self.trace,
            block_lives,
            RangeLives(
                column_of(ranges, 0),
                column_of(ranges, 1),
                roots[ranges[:, 2]],
                steps_of(ranges, 3),
                steps_of(ranges, 4),
            ),
            SegmentLives(streams, pools, is_expandable, is_seen),
            new_rows[np.array(self.event_blocks, np.int64)] if self.event_blocks else np.empty(0, np.int32),
        )
