"""The state of an allocator at any step of its trace, forwards and backwards.

Each block and each mapped range has a life, from the step that began it to the one that ended it. What was
there at a step is then a comparison of two columns, in any order of steps and without going through the
events before it.
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
    """Return the lifetimes of a trace's blocks and segments. Takes some microseconds per event.

    A block outside all known segments (the trace began too late to see them) gets a segment of its own that
    grows with its neighbours; the free of a block that is not known changes nothing.

    Examples
    --------
    >>> at(history(trace), 3).used_bytes
    4096
    """
    return _Lives(trace).history()


def at(history: AllocatorHistory, step: int) -> BlockMap:
    """Return the map after the first `step` events.

    Raises
    ------
    IndexError
        If the trace has fewer events.
    """
    trace = history.trace
    last = history.last_step
    if not 0 <= step <= last:
        raise IndexError(f"Step {step:,} is outside this trace, which has {last:,} events: 0 to {last:,}.")
    events = trace.events
    time_ns = int(events.time_ns[step - 1]) if step else trace.first.time_ns
    blocks = _blocks(history, step)
    segments = [
        _segment(history, number, spans, blocks.get(number, []))
        for number, spans in _spans(history.ranges, step).items()
    ]
    segments.sort(key=lambda segment: segment.address)
    return replace(trace.first, time_ns=time_ns, segments=tuple(segments))


def tail(trace: AllocatorTrace, most: int) -> AllocatorTrace:
    """Return the last `most` events of a trace; the map before them replaces the earlier events."""
    events = trace.events
    cut = len(trace.events) - most
    if cut <= 0:
        return trace
    # What is alive at the cut was allocated by the last event, but for frees, that its address has.
    codes = events.actions[:cut]
    addresses = events.addresses[:cut]
    alloc, asked, freed = (ACTIONS.index(name) for name in ("alloc", "free_requested", "free_completed"))
    about = np.flatnonzero((codes == alloc) | (codes == asked) | (codes == freed))
    last = _last_of_each(addresses, about)
    waiting = last[codes[last] == asked]
    gone = addresses[last[codes[last] == freed]]
    made = _last_of_each(addresses, np.flatnonzero(codes == alloc))
    made = made[~np.isin(addresses[made], gone)]
    segments = np.flatnonzero((codes != alloc) & (codes != asked) & (codes != freed))
    kept = np.concatenate((segments, np.sort(made), np.sort(waiting)))
    first = _without(trace.first, {*gone.tolist(), *addresses[made].tolist()})
    before = history(replace(trace, first=first, events=_rows_of(events, kept)))
    time_ns = int(events.time_ns[cut - 1])
    first = replace(at(before, before.last_step), time_ns=time_ns)
    said = f"Only the last {most:,} of {len(events):,} events are shown."
    note = " ".join(part for part in (trace.note, said) if part)
    return replace(trace, first=first, events=_rows_of(events, np.arange(cut, cut + most)), note=note)


def _last_of_each(addresses: Column, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the last row of each address, of rows in order."""
    _, back = np.unique(addresses[rows][::-1], return_index=True)
    found: npt.NDArray[np.intp] = rows[::-1][back]
    return found


def _rows_of(events: AllocatorEvents, rows: npt.NDArray[np.intp]) -> AllocatorEvents:
    return AllocatorEvents(
        **{each.name: getattr(events, each.name)[rows] for each in fields(AllocatorEvents)}
    )


def _without(first: BlockMap, gone: set[int]) -> BlockMap:
    """Return a map without the blocks in use at some addresses."""
    segments = tuple(
        replace(
            s,
            blocks=tuple(
                Block(address=b.address, size_bytes=b.size_bytes, is_free=True)
                if b.address in gone and not b.is_unmapped
                else b
                for b in s.blocks
            ),
        )
        for s in first.segments
    )
    return replace(first, segments=segments)


def _spans(ranges: RangeLives, step: int) -> dict[int, list[tuple[int, int]]]:
    """Return start and end of the mapped ranges of each segment, sorted by address, neighbours joined."""
    rows = np.flatnonzero((ranges.begins <= step) & (step < ranges.ends))
    found: dict[int, list[tuple[int, int]]] = {}
    columns = (ranges.segments, ranges.addresses, ranges.size_bytes)
    for number, start, size in zip(*(column[rows].tolist() for column in columns), strict=True):
        spans = found.setdefault(number, [])
        if spans and spans[-1][1] >= start:
            spans[-1] = (spans[-1][0], max(spans[-1][1], start + size))
        else:
            spans.append((start, start + size))
    return found


def _blocks(history: AllocatorHistory, step: int) -> dict[int, list[Block]]:
    """Return the blocks of each segment that are in use or wait, sorted by address."""
    lives = history.blocks
    rows = np.flatnonzero((lives.begins <= step) & (step < lives.ends))
    found: dict[int, list[Block]] = {}
    columns = (
        lives.segments,
        lives.addresses,
        lives.size_bytes,
        lives.requested_bytes,
        lives.stacks,
        lives.begins,
        lives.freed,
    )
    picked = (column[rows].tolist() for column in columns)
    for row, number, address, size, asked, stack, begin, freed in zip(rows.tolist(), *picked, strict=True):
        waiting = freed <= step
        label = lives.labels.get(row, "")
        event = (freed if waiting else begin) - 1
        block = Block(
            address=address,
            size_bytes=size,
            is_free=False,
            requested_bytes=asked,
            label=label,
            is_waiting=waiting,
            stack=stack,
            event=event,
        )
        found.setdefault(number, []).append(block)
    return found


def _segment(
    history: AllocatorHistory, number: int, spans: list[tuple[int, int]], blocks: list[Block]
) -> Segment:
    tiles = tuple(_tiles(spans, blocks))
    kinds = history.segments
    start = spans[0][0]
    return Segment(
        start,
        spans[-1][1] - start,
        kinds.streams[number],
        tiles,
        kinds.pools[number],
        kinds.is_expandable[number],
    )


def _tiles(spans: list[tuple[int, int]], blocks: list[Block]) -> Iterator[Block]:
    """Return the blocks together with the free and the unmapped ranges between them."""
    place = spans[0][0]
    later = 0
    for start, end in spans:
        if place < start:
            yield Block(address=place, size_bytes=start - place, is_free=False, is_unmapped=True)
            place = start
        while later < len(blocks) and blocks[later].address < end:
            block = blocks[later]
            if place < block.address:
                yield Block(address=place, size_bytes=block.address - place, is_free=True)
            yield block
            place = max(place, block.end)
            later = later + 1
        if place < end:
            yield Block(address=place, size_bytes=end - place, is_free=True)
            place = end


class _Lives:
    """Determines all lifetimes in one pass over a trace."""

    def __init__(self, trace: AllocatorTrace) -> None:
        self.trace = trace
        self.never = len(trace.events) + 1
        self.of_torch = "PyTorch" in trace.allocator
        # Rows of the tables to come; a row's place is its number until they are sorted.
        self.blocks: list[list[int]] = []  # address, size, asked, stream, stack, segment, begin, freed, end
        self.ranges: list[list[int]] = []  # address, size, segment, begin, end
        self.kinds: list[tuple[int, str, bool, bool]] = []  # of each segment
        self.joined: list[int] = []  # of each segment, the one that it turned out to be a part of
        self.held: list[int] = []  # blocks in use, of each segment
        self.labels: dict[int, str] = {}
        # Present state.
        self.used: dict[int, int] = {}  # address -> row of blocks
        self.starts: list[int] = []  # of mapped ranges, in order
        self.mapped: dict[int, int] = {}  # start -> row of ranges
        for segment in trace.first.segments:
            self._first(segment)
        self.event_blocks = [self._event(step, *row) for step, row in enumerate(trace.events.rows(), 1)]

    def _first(self, segment: Segment) -> None:
        kind = (segment.stream, segment.pool, segment.is_expandable, True)
        number = self._kind(*kind)
        spans: list[list[int]] = []  # mapped stretches; blocks of a damaged trace may overlap
        for block in segment.blocks:
            if block.is_unmapped:
                continue
            if spans and spans[-1][1] >= block.address:
                spans[-1][1] = max(spans[-1][1], block.end)
            else:
                spans.append([block.address, block.end])
        for low, high in spans:
            self._unmap(low, high - low, 0)
            self._map(low, high - low, number, 0)
        for block in segment.blocks:
            if block.state in ("used", "waiting"):
                row = self._use(
                    block.address,
                    block.size_bytes,
                    block.requested_bytes,
                    segment.stream,
                    block.stack,
                    number,
                    0,
                )
                if block.is_waiting:
                    self.blocks[row][7] = 0
                if block.label:
                    self.labels[row] = block.label

    def _event(
        self, step: int, action: str, address: int, size: int, asked: int, stream: int, _: int, stack: int
    ) -> int:
        if size <= 0 and not action.startswith("free"):
            return -1  # a damaged trace
        match action:
            case "alloc":
                old = self.used.pop(address, None)
                if old is not None:
                    self._end(old, step)
                number = self._around(address, size, stream, step)
                return self._use(address, size, asked, stream, stack, number, step)
            case "free_requested":
                row = self.used.get(address, -1)
                if row >= 0:
                    self.blocks[row][7] = min(step, self.blocks[row][7])
                return row
            case "free_completed":
                row = self.used.pop(address, -1)
                if row >= 0:
                    self._end(row, step)
                return row
            case "segment_alloc":
                self._unmap(address, size, step)
                self._map(address, size, self._kind(stream, self._pool(size), False, True), step)
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

    def _use(
        self, address: int, size: int, asked: int, stream: int, stack: int, number: int, step: int
    ) -> int:
        row = self.used[address] = len(self.blocks)
        self.held[number] += 1
        self.blocks.append([address, size, asked, stream, stack, number, step, self.never, self.never])
        return row

    def _end(self, row: int, step: int) -> None:
        block = self.blocks[row]
        block[7], block[8] = min(step, block[7]), step
        self.held[self._root(block[5])] -= 1

    # Segments and ranges

    def _kind(self, stream: int, pool: str, is_expandable: bool, is_seen: bool) -> int:
        self.kinds.append((stream, pool, is_expandable, is_seen))
        self.joined.append(len(self.joined))
        self.held.append(0)
        return len(self.joined) - 1

    def _root(self, number: int) -> int:
        while self.joined[number] != number:
            number = self.joined[number]
        return number

    def _map(self, address: int, size: int, number: int, step: int) -> None:
        if size <= 0:
            return
        insort(self.starts, address)
        self.mapped[address] = len(self.ranges)
        self.ranges.append([address, size, number, step, self.never])

    def _grow(self, address: int, size: int, stream: int, step: int, *, is_expandable: bool) -> int:
        """Map a range as a part of the segment of its kind that it touches.

        An expandable segment has all addresses of its stream and pool, holes between them or not.
        """
        place = bisect_right(self.starts, address)
        pool = self._pool(size) if is_expandable else ""
        kind = (stream, pool, is_expandable, is_expandable)
        touched = []
        for start in self.starts[max(0, place - 1) : place + 1]:
            _, wide, number, *_ = self.ranges[self.mapped[start]]
            number = self._root(number)
            near = start + wide >= address and start <= address + size
            if self.kinds[number] == kind and (near or is_expandable) and number not in touched:
                touched.append(number)
        if touched:
            number = touched[0]
            for other in touched[1:]:
                self.joined[other] = number
                self.held[number] += self.held[other]
        else:
            number = self._kind(*kind)
        self._map(address, size, number, step)
        return number

    def _around(self, address: int, size: int, stream: int, step: int) -> int:
        """Return the segment that contains a new block; parts that were not recorded are mapped now."""
        found = -1
        place = address
        while place < address + size:
            later = bisect_right(self.starts, place)
            start = self.starts[later - 1] if later else -1
            row = self.ranges[self.mapped[start]] if later else None
            if row is not None and start + row[1] > place:
                found = self._root(row[2]) if found < 0 else found
                place = start + row[1]
                continue
            end = min(self.starts[later], address + size) if later < len(self.starts) else address + size
            number = self._grow(place, end - place, stream, step, is_expandable=False)
            found = number if found < 0 else found
            place = end
        return found

    def _unmap(self, address: int, size: int, step: int) -> None:
        """End all mappings and blocks within a range; the frees of these blocks were not recorded."""
        end = address + size
        place = max(0, bisect_right(self.starts, address) - 1)
        gone = self.starts[place : bisect_left(self.starts, end)]
        for start in gone:
            row = self.ranges[self.mapped[start]]
            last = start + row[1]
            if last <= address:
                continue
            del self.starts[bisect_left(self.starts, start)]
            del self.mapped[start]
            row[4] = step
            # The remaining parts on both sides continue as separate ranges.
            self._map(start, address - start, row[2], step)
            self._map(end, last - end, row[2], step)
            if self.held[self._root(row[2])]:
                self._forget(max(start, address), min(last, end), step)

    def _forget(self, low: int, high: int, step: int) -> None:
        for address in [each for each in self.used if low <= each < high]:
            self._end(self.used.pop(address), step)

    # Tables

    def history(self) -> AllocatorHistory:
        blocks = np.array(self.blocks, np.int64).reshape(-1, 9)
        ranges = np.array(self.ranges, np.int64).reshape(-1, 5)
        order = np.lexsort((blocks[:, 6], blocks[:, 0]))
        blocks = blocks[order]
        ranges = ranges[np.lexsort((ranges[:, 3], ranges[:, 0]))]
        new = np.full(len(blocks) + 1, -1, np.int32)  # the last one stands for none
        new[order] = np.arange(len(order), dtype=np.int32)
        roots = np.array([self._root(number) for number in range(len(self.joined))] or [0], np.int32)
        streams, pools, expandable, seen = zip(*self.kinds, strict=True) if self.kinds else ((), (), (), ())

        def wide(table: Column, at: int) -> Column:
            return np.ascontiguousarray(table[:, at])

        def narrow(table: Column, at: int) -> Steps:
            return table[:, at].astype(np.int32)

        lives = BlockLives(
            addresses=wide(blocks, 0),
            size_bytes=wide(blocks, 1),
            requested_bytes=wide(blocks, 2),
            streams=wide(blocks, 3),
            stacks=narrow(blocks, 4),
            segments=roots[blocks[:, 5]],
            begins=narrow(blocks, 6),
            freed=narrow(blocks, 7),
            ends=narrow(blocks, 8),
            labels={int(new[row]): label for row, label in self.labels.items()},
        )
        return AllocatorHistory(
            self.trace,
            lives,
            RangeLives(
                wide(ranges, 0), wide(ranges, 1), roots[ranges[:, 2]], narrow(ranges, 3), narrow(ranges, 4)
            ),
            SegmentLives(streams, pools, expandable, seen),
            new[np.array(self.event_blocks, np.int64)] if self.event_blocks else np.empty(0, np.int32),
        )
