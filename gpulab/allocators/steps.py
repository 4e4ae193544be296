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


def make_history(trace: AllocatorTrace) -> AllocatorHistory:
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


def make_block_map(history: AllocatorHistory, step: int) -> BlockMap:
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
    blocks = _find_live_blocks(history, step)
    segments = [
        _make_segment(history, segment_index, spans, blocks.get(segment_index, []))
        for segment_index, spans in _find_mapped_spans(history.ranges, step).items()
    ]
    segments.sort(key=lambda segment: segment.address)
    return replace(trace.first, time_ns=time_ns, segments=tuple(segments))


def keep_last_events(trace: AllocatorTrace, max_events: int) -> AllocatorTrace:
    """Return an allocator trace that contains only the last `max_events` events. Its first state is the state
    before these events.
    """
    events = trace.events
    first_kept = len(trace.events) - max_events
    if first_kept <= 0:
        return trace
    # A block is alive at the start if the last event of its address, without frees, is its allocation.
    action_codes = events.actions[:first_kept]
    addresses = events.addresses[:first_kept]
    alloc_code, request_code, free_code = (
        ACTIONS.index(name) for name in ("alloc", "free_requested", "free_completed")
    )
    block_rows = np.flatnonzero(
        (action_codes == alloc_code) | (action_codes == request_code) | (action_codes == free_code)
    )
    last_event_rows = _find_last_rows(addresses, block_rows)
    waiting_rows = last_event_rows[action_codes[last_event_rows] == request_code]
    freed_addresses = addresses[last_event_rows[action_codes[last_event_rows] == free_code]]
    allocation_rows = _find_last_rows(addresses, np.flatnonzero(action_codes == alloc_code))
    allocation_rows = allocation_rows[~np.isin(addresses[allocation_rows], freed_addresses)]
    segment_rows = np.flatnonzero(
        (action_codes != alloc_code) & (action_codes != request_code) & (action_codes != free_code)
    )
    kept_rows = np.concatenate((segment_rows, np.sort(allocation_rows), np.sort(waiting_rows)))
    first_map = _remove_blocks(trace.first, {*freed_addresses.tolist(), *addresses[allocation_rows].tolist()})
    earlier_history = make_history(replace(trace, first=first_map, events=_select_rows(events, kept_rows)))
    time_ns = int(events.time_ns[first_kept - 1])
    first_map = replace(make_block_map(earlier_history, earlier_history.last_step), time_ns=time_ns)
    limit_note = f"Only the last {max_events:,} of {len(events):,} events are shown."
    note = " ".join(text for text in (trace.note, limit_note) if text)
    return replace(
        trace,
        first=first_map,
        events=_select_rows(events, np.arange(first_kept, first_kept + max_events)),
        note=note,
    )


def _find_last_rows(addresses: Column, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return, for each address, the last of the given rows. The rows must be sorted."""
    _, reverse_rows = np.unique(addresses[rows][::-1], return_index=True)
    last_rows: npt.NDArray[np.intp] = rows[::-1][reverse_rows]
    return last_rows


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


def _find_mapped_spans(ranges: RangeLives, step: int) -> dict[int, list[tuple[int, int]]]:
    """Return the mapped ranges (start, end) of each segment at a step, sorted by address and merged."""
    live_rows = np.flatnonzero((ranges.begins <= step) & (step < ranges.ends))
    spans_of_segment: dict[int, list[tuple[int, int]]] = {}
    range_columns = (ranges.segments, ranges.addresses, ranges.size_bytes)
    for segment_index, start_address, size_bytes in zip(
        *(column[live_rows].tolist() for column in range_columns), strict=True
    ):
        spans = spans_of_segment.setdefault(segment_index, [])
        if spans and spans[-1][1] >= start_address:
            spans[-1] = (spans[-1][0], max(spans[-1][1], start_address + size_bytes))
        else:
            spans.append((start_address, start_address + size_bytes))
    return spans_of_segment


def _find_live_blocks(history: AllocatorHistory, step: int) -> dict[int, list[Block]]:
    """Return the blocks of each segment that are in use or wait, sorted by address."""
    block_lifetimes = history.blocks
    live_rows = np.flatnonzero((block_lifetimes.begins <= step) & (step < block_lifetimes.ends))
    blocks_of_segment: dict[int, list[Block]] = {}
    lifetime_columns = (
        block_lifetimes.segments,
        block_lifetimes.addresses,
        block_lifetimes.size_bytes,
        block_lifetimes.requested_bytes,
        block_lifetimes.stacks,
        block_lifetimes.begins,
        block_lifetimes.freed,
    )
    selected_columns = (column[live_rows].tolist() for column in lifetime_columns)
    for (
        block_row,
        segment_index,
        address,
        size_bytes,
        requested_bytes,
        stack_index,
        allocated_step,
        freed_step,
    ) in zip(live_rows.tolist(), *selected_columns, strict=True):
        is_waiting = freed_step <= step
        label = block_lifetimes.labels.get(block_row, "")
        event_index = (freed_step if is_waiting else allocated_step) - 1
        block = Block(
            address=address,
            size_bytes=size_bytes,
            is_free=False,
            requested_bytes=requested_bytes,
            label=label,
            is_waiting=is_waiting,
            stack=stack_index,
            event=event_index,
        )
        blocks_of_segment.setdefault(segment_index, []).append(block)
    return blocks_of_segment


def _make_segment(
    history: AllocatorHistory, segment_index: int, spans: list[tuple[int, int]], blocks: list[Block]
) -> Segment:
    segment_blocks = tuple(_fill_spans(spans, blocks))
    segment_lifetimes = history.segments
    segment_address = spans[0][0]
    return Segment(
        segment_address,
        spans[-1][1] - segment_address,
        segment_lifetimes.streams[segment_index],
        segment_blocks,
        segment_lifetimes.pools[segment_index],
        segment_lifetimes.is_expandable[segment_index],
    )


def _fill_spans(spans: list[tuple[int, int]], blocks: list[Block]) -> Iterator[Block]:
    """Return the blocks of a segment together with the free and the unmapped ranges between them."""
    address = spans[0][0]
    block_index = 0
    for span_start, span_end in spans:
        if address < span_start:
            yield Block(address=address, size_bytes=span_start - address, is_free=False, is_unmapped=True)
            address = span_start
        while block_index < len(blocks) and blocks[block_index].address < span_end:
            block = blocks[block_index]
            if address < block.address:
                yield Block(address=address, size_bytes=block.address - address, is_free=True)
            yield block
            address = max(address, block.end)
            block_index = block_index + 1
        if address < span_end:
            yield Block(address=address, size_bytes=span_end - address, is_free=True)
            address = span_end


class _Lifetimes:
    """Search for the lifetimes of all blocks, ranges and segments in one pass over a trace."""

    def __init__(self, trace: AllocatorTrace) -> None:
        self.trace = trace
        self.never_step = len(trace.events) + 1
        self.is_torch = "PyTorch" in trace.allocator
        # Rows of the tables; the index of a row is its number until they are sorted.
        self.block_table: list[
            list[int]
        ] = []  # address, size, requested, stream, stack, segment, begin, freed, end
        self.range_table: list[list[int]] = []  # address, size, segment, begin, end
        self.segment_kinds: list[tuple[int, str, bool, bool]] = []  # of each segment
        self.parent_segments: list[int] = []  # of each segment, the segment of which it is a part, or itself
        self.used_block_counts: list[int] = []  # number of blocks in use, of each segment
        self.label_of_row: dict[int, str] = {}
        # Present state.
        self.used_block_rows: dict[int, int] = {}  # address -> row of blocks
        self.range_starts: list[int] = []  # of mapped ranges, in order
        self.range_rows: dict[int, int] = {}  # start -> row of ranges
        for segment in trace.first.segments:
            self._add_first_segment(segment)
        self.event_block_rows = [
            self._handle_event(step, *event_row) for step, event_row in enumerate(trace.events.rows(), 1)
        ]

    def _add_first_segment(self, segment: Segment) -> None:
        segment_kind = (segment.stream, segment.pool, segment.is_expandable, True)
        segment_index = self._add_segment(*segment_kind)
        mapped_spans: list[list[int]] = []  # mapped stretches; blocks of a damaged trace may overlap
        for block in segment.blocks:
            if block.is_unmapped:
                continue
            if mapped_spans and mapped_spans[-1][1] >= block.address:
                mapped_spans[-1][1] = max(mapped_spans[-1][1], block.end)
            else:
                mapped_spans.append([block.address, block.end])
        for span_start, span_end in mapped_spans:
            self._end_ranges(span_start, span_end - span_start, 0)
            self._add_range(span_start, span_end - span_start, segment_index, 0)
        for block in segment.blocks:
            if block.state in ("used", "waiting"):
                block_row = self._add_block(
                    block.address,
                    block.size_bytes,
                    block.requested_bytes,
                    segment.stream,
                    block.stack,
                    segment_index,
                    0,
                )
                if block.is_waiting:
                    self.block_table[block_row][7] = 0
                if block.label:
                    self.label_of_row[block_row] = block.label

    def _handle_event(
        self,
        step: int,
        action: str,
        address: int,
        size: int,
        requested_bytes: int,
        stream: int,
        _: int,
        stack: int,
    ) -> int:
        if size <= 0 and not action.startswith("free"):
            return -1  # a damaged trace
        match action:
            case "alloc":
                replaced_block_row = self.used_block_rows.pop(address, None)
                if replaced_block_row is not None:
                    self._end_block(replaced_block_row, step)
                segment_index = self._find_block_segment(address, size, stream, step)
                return self._add_block(address, size, requested_bytes, stream, stack, segment_index, step)
            case "free_requested":
                block_row = self.used_block_rows.get(address, -1)
                if block_row >= 0:
                    self.block_table[block_row][7] = min(step, self.block_table[block_row][7])
                return block_row
            case "free_completed":
                block_row = self.used_block_rows.pop(address, -1)
                if block_row >= 0:
                    self._end_block(block_row, step)
                return block_row
            case "segment_alloc":
                self._end_ranges(address, size, step)
                self._add_range(
                    address, size, self._add_segment(stream, self._guess_pool(size), False, True), step
                )
            case "segment_map":
                self._end_ranges(address, size, step)
                self._extend_segment(address, size, stream, step, is_expandable=True)
            case "segment_free" | "segment_unmap":
                self._end_ranges(address, size, step)
        return -1

    def _guess_pool(self, size: int) -> str:
        if not self.is_torch:
            return ""
        return "small" if size == TORCH_SMALL_BYTES else "large"

    # Blocks

    def _add_block(
        self,
        address: int,
        size: int,
        requested_bytes: int,
        stream: int,
        stack: int,
        segment_index: int,
        step: int,
    ) -> int:
        block_row = self.used_block_rows[address] = len(self.block_table)
        self.used_block_counts[segment_index] += 1
        self.block_table.append(
            [
                address,
                size,
                requested_bytes,
                stream,
                stack,
                segment_index,
                step,
                self.never_step,
                self.never_step,
            ]
        )
        return block_row

    def _end_block(self, block_row: int, step: int) -> None:
        block = self.block_table[block_row]
        block[7], block[8] = min(step, block[7]), step
        self.used_block_counts[self._find_root_segment(block[5])] -= 1

    # Segments and ranges

    def _add_segment(self, stream: int, pool: str, is_expandable: bool, is_seen: bool) -> int:
        self.segment_kinds.append((stream, pool, is_expandable, is_seen))
        self.parent_segments.append(len(self.parent_segments))
        self.used_block_counts.append(0)
        return len(self.parent_segments) - 1

    def _find_root_segment(self, segment_index: int) -> int:
        while self.parent_segments[segment_index] != segment_index:
            segment_index = self.parent_segments[segment_index]
        return segment_index

    def _add_range(self, address: int, size: int, segment_index: int, step: int) -> None:
        if size <= 0:
            return
        insort(self.range_starts, address)
        self.range_rows[address] = len(self.range_table)
        self.range_table.append([address, size, segment_index, step, self.never_step])

    def _extend_segment(self, address: int, size: int, stream: int, step: int, *, is_expandable: bool) -> int:
        """Add a mapped range to an adjacent segment of the same kind, or to a new segment.

        An expandable segment contains all ranges of its stream and pool, even with holes between them.
        """
        next_range_index = bisect_right(self.range_starts, address)
        pool = self._guess_pool(size) if is_expandable else ""
        segment_kind = (stream, pool, is_expandable, is_expandable)
        adjacent_segments = []
        for range_start in self.range_starts[max(0, next_range_index - 1) : next_range_index + 1]:
            _, range_bytes, segment_index, *_ = self.range_table[self.range_rows[range_start]]
            segment_index = self._find_root_segment(segment_index)
            is_adjacent = range_start + range_bytes >= address and range_start <= address + size
            if (
                self.segment_kinds[segment_index] == segment_kind
                and (is_adjacent or is_expandable)
                and segment_index not in adjacent_segments
            ):
                adjacent_segments.append(segment_index)
        if adjacent_segments:
            segment_index = adjacent_segments[0]
            for other_segment in adjacent_segments[1:]:
                self.parent_segments[other_segment] = segment_index
                self.used_block_counts[segment_index] += self.used_block_counts[other_segment]
        else:
            segment_index = self._add_segment(*segment_kind)
        self._add_range(address, size, segment_index, step)
        return segment_index

    def _find_block_segment(self, address: int, size: int, stream: int, step: int) -> int:
        """Return the segment that contains a new block; parts that were not recorded are added now."""
        block_segment = -1
        next_address = address
        while next_address < address + size:
            next_range_index = bisect_right(self.range_starts, next_address)
            range_start = self.range_starts[next_range_index - 1] if next_range_index else -1
            range_row = self.range_table[self.range_rows[range_start]] if next_range_index else None
            if range_row is not None and range_start + range_row[1] > next_address:
                block_segment = self._find_root_segment(range_row[2]) if block_segment < 0 else block_segment
                next_address = range_start + range_row[1]
                continue
            end_address = (
                min(self.range_starts[next_range_index], address + size)
                if next_range_index < len(self.range_starts)
                else address + size
            )
            grown_segment = self._extend_segment(
                next_address, end_address - next_address, stream, step, is_expandable=False
            )
            block_segment = grown_segment if block_segment < 0 else block_segment
            next_address = end_address
        return block_segment

    def _end_ranges(self, address: int, size: int, step: int) -> None:
        """End all mappings and blocks within a range; the frees of these blocks were not recorded."""
        end_address = address + size
        first_range_index = max(0, bisect_right(self.range_starts, address) - 1)
        overlapping_starts = self.range_starts[
            first_range_index : bisect_left(self.range_starts, end_address)
        ]
        for range_start in overlapping_starts:
            range_row = self.range_table[self.range_rows[range_start]]
            range_end = range_start + range_row[1]
            if range_end <= address:
                continue
            del self.range_starts[bisect_left(self.range_starts, range_start)]
            del self.range_rows[range_start]
            range_row[4] = step
            # The remaining parts on both sides continue as separate ranges.
            self._add_range(range_start, address - range_start, range_row[2], step)
            self._add_range(end_address, range_end - end_address, range_row[2], step)
            if self.used_block_counts[self._find_root_segment(range_row[2])]:
                self._end_blocks(max(range_start, address), min(range_end, end_address), step)

    def _end_blocks(self, start_address: int, end_address: int, step: int) -> None:
        for address in [
            block_address
            for block_address in self.used_block_rows
            if start_address <= block_address < end_address
        ]:
            self._end_block(self.used_block_rows.pop(address), step)

    # Tables

    def history(self) -> AllocatorHistory:
        blocks = np.array(self.block_table, np.int64).reshape(-1, 9)
        ranges = np.array(self.range_table, np.int64).reshape(-1, 5)
        block_order = np.lexsort((blocks[:, 6], blocks[:, 0]))
        blocks = blocks[block_order]
        ranges = ranges[np.lexsort((ranges[:, 3], ranges[:, 0]))]
        new_rows = np.full(len(blocks) + 1, -1, np.int32)  # the last one stands for none
        new_rows[block_order] = np.arange(len(block_order), dtype=np.int32)
        root_of_segment = np.array(
            [self._find_root_segment(segment_index) for segment_index in range(len(self.parent_segments))]
            or [0],
            np.int32,
        )
        streams, pool_names, is_expandable, is_seen = (
            zip(*self.segment_kinds, strict=True) if self.segment_kinds else ((), (), (), ())
        )

        def copy_column(table: Column, column: int) -> Column:
            return np.ascontiguousarray(table[:, column])

        def convert_steps(table: Column, column: int) -> Steps:
            return table[:, column].astype(np.int32)

        block_lifetimes = BlockLives(
            addresses=copy_column(blocks, 0),
            size_bytes=copy_column(blocks, 1),
            requested_bytes=copy_column(blocks, 2),
            streams=copy_column(blocks, 3),
            stacks=convert_steps(blocks, 4),
            segments=root_of_segment[blocks[:, 5]],
            begins=convert_steps(blocks, 6),
            freed=convert_steps(blocks, 7),
            ends=convert_steps(blocks, 8),
            labels={int(new_rows[row]): label for row, label in self.label_of_row.items()},
        )
        return AllocatorHistory(
            self.trace,
            block_lifetimes,
            RangeLives(
                copy_column(ranges, 0),
                copy_column(ranges, 1),
                root_of_segment[ranges[:, 2]],
                convert_steps(ranges, 3),
                convert_steps(ranges, 4),
            ),
            SegmentLives(streams, pool_names, is_expandable, is_seen),
            new_rows[np.array(self.event_block_rows, np.int64)]
            if self.event_block_rows
            else np.empty(0, np.int32),
        )
