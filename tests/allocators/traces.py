"""Random traces of allocators that follow the rules."""

from __future__ import annotations

import random

import numpy as np

from virtualgpu.records import Provenance
from virtualgpu.records.memory import ACTIONS, AllocatorEvents, AllocatorTrace, BlockMap, Frame, Request

KIB = 1 << 10
MIB = 1 << 20
MODELLED = Provenance("modelled", "a device", "a random trace")
Row = tuple[str, int, int, int, int, int]
"""Action, address, size, requested bytes, stream, stack."""


def trace_of(
    rows: list[Row], first: BlockMap | None = None, allocator: str = "CuPy's pool", **options: int
) -> AllocatorTrace:
    columns = [np.array([row[at] for row in rows], np.int64) for at in range(1, 6)]
    addresses, sizes, requested, streams, stacks = columns
    events = AllocatorEvents(
        actions=np.array([ACTIONS.index(row[0]) for row in rows], np.uint8),
        addresses=addresses,
        size_bytes=sizes,
        requested_bytes=requested,
        streams=streams,
        time_ns=np.arange(len(rows), dtype=np.int64) * 1000,
        stacks=stacks.astype(np.int32),
    )
    empty = BlockMap(MODELLED, 0, 0, options.pop("limit_bytes", 0), ())
    lines = tuple(
        (Frame("train.py", 10 + 7 * at, "step"), Frame("train.py", 3, "<module>")) for at in range(8)
    )
    return AllocatorTrace(
        provenance=MODELLED,
        device_id=0,
        allocator=allocator,
        first=first or empty,
        events=events,
        stacks=lines,
        **options,
    )


def random_rows(seed: int, events: int, *, expandable: bool = False, waits: bool = True) -> list[Row]:
    """Return events of a best-fit pool with segments of 2 MiB per stream, or expandable ones."""
    draw = random.Random(seed)
    rows: list[Row] = []
    free: dict[int, list[tuple[int, int]]] = {0: [], 7: []}  # stream -> start and end of free pieces
    segments: dict[int, tuple[int, int, int]] = {}  # start -> size, stream, mapped pages as bits
    used: dict[int, tuple[int, int, int]] = {}
    waiting: dict[int, tuple[int, int, int]] = {}
    top = 1 << 32

    def give(stream: int, start: int, end: int) -> None:
        pieces = sorted([*free[stream], (start, end)])
        joined: list[tuple[int, int]] = []
        for low, high in pieces:
            if joined and joined[-1][1] == low and low not in segments:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        free[stream] = joined

    while len(rows) < events:
        stream = draw.choice((0, 0, 7))
        act = draw.random()
        if act < 0.45:
            requested = draw.choice((300, 5_000, 70_000, 400_000)) * draw.randint(1, 4)
            size = -(-requested // 512) * 512
            fits = [piece for piece in free[stream] if piece[1] - piece[0] >= size]
            if not fits:
                if len(segments) >= 12:
                    rows.append(("oom", 5 * MIB, size, requested, stream, -1))
                    continue
                stream_segments = [s for s, (_, owner, _) in segments.items() if owner == stream]
                if expandable and stream_segments and draw.random() < 0.7:
                    start = stream_segments[-1] + segments[stream_segments[-1]][0]
                    segments[stream_segments[-1]] = (segments[stream_segments[-1]][0] + 2 * MIB, stream, 0)
                else:
                    top += 64 * MIB
                    start = top
                    segments[start] = (2 * MIB, stream, 0)
                rows.append(("segment_map" if expandable else "segment_alloc", start, 2 * MIB, 0, stream, -1))
                give(stream, start, start + 2 * MIB)
                continue
            low, high = min(fits, key=lambda piece: (piece[1] - piece[0], piece[0]))
            free[stream].remove((low, high))
            if low + size < high:
                free[stream].append((low + size, high))
            used[low] = (size, requested, stream)
            rows.append(("alloc", low, size, requested, stream, draw.randint(-1, 7)))
        elif act < 0.8 and used:
            address = draw.choice(list(used))
            size, requested, owner = used.pop(address)
            rows.append(("free_requested", address, size, requested, owner, -1))
            if waits and draw.random() < 0.3:
                waiting[address] = (size, requested, owner)
            else:
                rows.append(("free_completed", address, size, requested, owner, -1))
                give(owner, address, address + size)
        elif act < 0.9 and waiting:
            address = draw.choice(list(waiting))
            size, requested, owner = waiting.pop(address)
            rows.append(("free_completed", address, size, requested, owner, -1))
            give(owner, address, address + size)
        elif act > 0.97:
            for start, (size, owner, _) in list(segments.items()):
                if not expandable and (start, start + size) in free[owner]:
                    free[owner].remove((start, start + size))
                    del segments[start]
                    rows.append(("segment_free", start, size, 0, owner, -1))
                elif expandable:  # whole pages from the start of a free piece
                    for low, high in list(free[owner]):
                        first = -(-low // (2 * MIB)) * 2 * MIB
                        last = high // (2 * MIB) * 2 * MIB
                        if start < first < last == start + size:
                            free[owner].remove((low, high))
                            if low < first:
                                free[owner].append((low, first))
                            segments[start] = (first - start, owner, 0)
                            rows.append(("segment_unmap", first, last - first, 0, owner, -1))
    return rows[:events]


def many_rows(events: int = 100_000, per_program: int = 5_000) -> list[Row]:
    """Return many events quickly: one program after another, each at its own addresses."""
    rows = random_rows(1, per_program)
    return [
        (kind, address + (index << 36), *fields)
        for index in range(events // per_program)
        for kind, address, *fields in rows
    ]


def random_requests(seed: int, count: int) -> list[Request]:
    """Return requests of a program on two streams for small, medium and large blocks."""
    draw = random.Random(seed)
    alive: list[int] = []
    requests: list[Request] = []
    sizes = (700, 50_000, 900_000, 3 * MIB, 7 * MIB, 15 * MIB)
    for number in range(count):
        act = draw.random()
        if act < 0.55:
            requests.append(Request("alloc", number, draw.choice(sizes), draw.choice((0, 0, 7)), number))
            alive.append(number)
        elif alive and act < 0.9:
            requests.append(Request("free", alive.pop(draw.randrange(len(alive))), time_ns=number))
        elif alive and act < 0.94:
            requests.append(Request("record_stream", draw.choice(alive), stream=7, time_ns=number))
        elif act < 0.96:
            requests.append(Request("complete", stream=7, time_ns=number))
        elif act > 0.985:
            requests.append(Request("empty_cache", time_ns=number))
    return requests
