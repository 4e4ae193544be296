"""The state of a trace at any step, against a plain replay of its events."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpulab.allocators.replay import replay
from gpulab.allocators.steps import keep_last_events, make_block_map, make_history
from gpulab.allocators.torch.allocator import TorchAllocator
from tests.allocators.traces import KIB, MIB, random_requests, random_rows, trace_of
from virtualgpu.records.memory import AllocatorTrace, Block, BlockMap, Segment

Tile = tuple[int, int, str, int]


def replayed(trace: AllocatorTrace, step: int) -> list[Tile]:
    """Return address, size, state and stack of all blocks after so many events."""
    mapped: set[tuple[int, int]] = set()  # start and end, cut at every edge that an event names
    blocks: dict[int, tuple[int, str, int]] = {}
    for action, address, size, _, _, _, stack in list(trace.events.rows())[:step]:
        if action == "alloc":
            blocks[address] = size, "used", stack
        elif action == "free_requested":
            blocks[address] = blocks[address][0], "waiting", blocks[address][2]
        elif action == "free_completed":
            del blocks[address]
        elif action in ("segment_alloc", "segment_map"):
            mapped |= {(page, page + 2 * MIB) for page in range(address, address + size, 2 * MIB)}
        elif action in ("segment_free", "segment_unmap"):
            mapped -= {(page, page + 2 * MIB) for page in range(address, address + size, 2 * MIB)}
    tiles = [(start, size, state, stack) for start, (size, state, stack) in blocks.items()]
    edges = sorted((start, end) for start, end in mapped)
    expandable = "segment_map" in {row[0] for row in trace.events.rows()}
    whole: list[tuple[int, int]] = []
    for start, end in edges:
        if whole and expandable and whole[-1][1] == start:
            whole[-1] = whole[-1][0], end
        else:
            whole.append((start, end))
    for start, end in whole:
        place = start
        for low, (size, _, _) in sorted(blocks.items()):
            if start <= low < end:
                tiles += [(place, low - place, "free", -1)] * (low > place)
                place = low + size
        tiles += [(place, end - place, "free", -1)] * (place < end)
    return sorted(tiles)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("expandable", [False, True])
def test_block_map_at_any_step_equals_a_plain_replay(seed: int, expandable: bool) -> None:
    trace = trace_of(random_rows(seed, 400, expandable=expandable))
    lives = make_history(trace)
    order = list(range(401))
    random.Random(seed).shuffle(order)
    for step in order[:60]:
        block_map = make_block_map(lives, step)
        tiles = [(b.address, b.size_bytes, b.state, b.stack) for b in block_map.blocks if not b.is_unmapped]
        assert tiles == replayed(trace, step), step
        for segment in block_map.segments:
            ends = [segment.address, *(block.end for block in segment.blocks)]
            assert [block.address for block in segment.blocks] == ends[:-1], "blocks tile their segment"
            assert ends[-1] == segment.address + segment.size_bytes
        assert lives.used_bytes[step] == block_map.used_bytes
        assert lives.reserved_bytes[step] == block_map.total_bytes


def test_a_block_refers_to_the_event_that_last_changed_it() -> None:
    base = 1 << 30
    lives = make_history(
        trace_of(
            [
                ("segment_alloc", base, 2 * MIB, 0, 7, -1),
                ("alloc", base, 512, 300, 7, 3),
                ("free_requested", base, 512, 300, 7, -1),
                ("free_completed", base, 512, 300, 7, -1),
            ]
        )
    )
    used = make_block_map(lives, 2).blocks[0]
    waiting = make_block_map(lives, 3).blocks[0]
    assert (used.state, used.event, used.requested_bytes, used.stack) == ("used", 1, 300, 3)
    assert (waiting.state, waiting.event) == ("waiting", 2)
    assert (
        make_block_map(lives, 1).blocks
        == make_block_map(lives, 4).blocks
        == (Block(address=base, size_bytes=2 * MIB, is_free=True),)
    )
    assert make_block_map(lives, 4).segments[0].stream == 7
    assert lives.event_blocks.tolist() == [-1, 0, 0, 0]
    with pytest.raises(IndexError, match="0 to 4"):
        make_block_map(lives, 5)


def test_blocks_of_unknown_segments_are_joined() -> None:
    """Adjacent blocks whose segment is not in the trace form one segment; freed, they stay as free memory."""
    base = 1 << 30
    lives = make_history(
        trace_of(
            [
                ("alloc", base, 4 * KIB, 4 * KIB, 0, -1),
                ("alloc", base + 4 * KIB, 4 * KIB, 4 * KIB, 0, -1),
                ("free_completed", base + 64 * KIB, KIB, KIB, 0, -1),
                ("free_completed", base, 4 * KIB, 0, 0, -1),
                ("alloc", base, 16 * KIB, 16 * KIB, 0, -1),
                ("segment_free", base, 2 * MIB, 0, 0, -1),
            ]
        )
    )
    (segment,) = make_block_map(lives, 2).segments
    assert (segment.address, segment.size_bytes) == (base, 8 * KIB)
    assert [block.state for block in make_block_map(lives, 4).blocks] == ["free", "used"]
    assert not lives.segments.is_seen[0]
    numbers = lives.event_blocks.tolist()
    assert (numbers[2], numbers[5]) == (-1, -1), "of no block that is known"
    assert numbers[3] == numbers[0] != numbers[1]
    assert make_block_map(lives, 6).segments == ()


@pytest.mark.parametrize(("reach", "segments"), [(6, [6, 4]), (10, [12]), (12, [12]), (14, [14])])
def test_a_block_across_unknown_segments_joins_them(reach: int, segments: list[int]) -> None:
    base = 1 << 30
    allocations = [("alloc", base + at * KIB, 4 * KIB, 4 * KIB, 0, -1) for at in (0, 8)]
    frees = [("free_completed", base + at * KIB, 4 * KIB, 0, 0, -1) for at in (0, 8)]
    lives = make_history(trace_of([*allocations, *frees, ("alloc", base, reach * KIB, reach * KIB, 0, -1)]))
    block_map = make_block_map(lives, 5)
    assert [segment.size_bytes // KIB for segment in block_map.segments] == segments
    first, *later_blocks = block_map.blocks
    assert (first.address, first.size_bytes, first.state) == (base, reach * KIB, "used")
    assert sum(block.size_bytes for block in later_blocks if block.is_free) == (sum(segments) - reach) * KIB
    assert (lives.used_bytes[5], lives.reserved_bytes[5]) == (reach * KIB, sum(segments) * KIB)


@pytest.mark.parametrize("most", [0, 1, 150, 400, 1000])
def test_final_maps_are_the_same_with_only_the_last_events(most: int) -> None:
    trace = trace_of(random_rows(3, 400))
    whole = make_history(trace)
    cut = make_history(keep_last_events(trace, most))
    assert cut.last_step == min(most, 400)
    for distance in (0, min(most, 100)):
        block_map = make_block_map(cut, cut.last_step - distance)
        expected = make_block_map(whole, 400 - distance)
        assert [replace(b, event=0) for b in block_map.blocks] == [
            replace(b, event=0) for b in expected.blocks
        ]
        assert [s.stream for s in block_map.segments] == [s.stream for s in expected.segments]
    assert ("400 events" in cut.trace.note) == (most < 400)


def test_initial_blocks_can_be_freed_before_the_kept_events() -> None:
    """One of four blocks stays, one is freed, one has a pending free, and one's address is reused."""
    base = 1 << 30
    blocks = tuple(
        Block(
            address=base + at * MIB, size_bytes=MIB, is_free=False, requested_bytes=MIB, label=f"block {at}"
        )
        for at in range(4)
    )
    first = replace(
        make_block_map(make_history(trace_of([])), 0), segments=(Segment(base, 4 * MIB, 0, blocks),)
    )
    second, third, fourth = (base + at * MIB for at in (1, 2, 3))
    rows = [
        ("free_requested", second, MIB, 0, 0, -1),
        ("free_completed", second, MIB, 0, 0, -1),
        ("free_requested", third, MIB, 0, 0, -1),
        ("free_completed", fourth, MIB, 0, 0, -1),
        ("alloc", fourth, 4 * KIB, 4 * KIB, 0, 5),
    ]
    for most in range(5):
        cut = make_history(keep_last_events(trace_of(rows, first), most))
        block_map = make_block_map(cut, 0)
        expected = make_block_map(make_history(trace_of(rows, first)), 5 - most)
        assert [replace(b, event=0) for b in block_map.blocks] == [
            replace(b, event=0) for b in expected.blocks
        ]


def test_a_hole_in_an_expandable_segment_is_not_mapped() -> None:
    base = 1 << 40
    lives = make_history(
        trace_of(
            [
                ("segment_map", base, 60 * MIB, 0, 0, -1),
                ("segment_unmap", base + 20 * MIB, 20 * MIB, 0, 0, -1),
                ("segment_map", base + 20 * MIB, 20 * MIB, 0, 0, -1),
            ],
            allocator="PyTorch's caching allocator",
        )
    )
    assert [b.state for b in make_block_map(lives, 2).blocks] == ["free", "unmapped", "free"]
    (segment,) = make_block_map(lives, 2).segments
    assert (segment.is_expandable, segment.pool, segment.size_bytes) == (True, "large", 60 * MIB)
    assert make_block_map(lives, 3).blocks == (Block(address=base, size_bytes=60 * MIB, is_free=True),)
    assert lives.reserved_bytes.tolist() == [0, 60 * MIB, 40 * MIB, 60 * MIB]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_the_last_step_equals_the_allocators_block_map(seed: int, settings: str) -> None:
    model = TorchAllocator(settings, capacity_bytes=150 * MIB)
    lives = make_history(replay(random_requests(seed, 250), model))

    def contents(now: BlockMap) -> list[object]:
        result: list[object] = []
        for segment in now.segments:
            blocks = [
                (b.address, b.size_bytes, b.state, 0 if b.state == "free" else b.requested_bytes)
                for b in segment.blocks
                if not b.is_unmapped
            ]
            result += [(segment.stream, segment.pool, segment.is_expandable, blocks)] if blocks else []
        return result

    assert contents(make_block_map(lives, lives.last_step)) == contents(model.block_map())


def test_an_overlapping_block_does_not_shorten_its_segment() -> None:
    """In a damaged trace, a block inside another one shortens neither that block nor its segment."""
    base = 1 << 30
    blocks = (
        Block(address=base, size_bytes=4 * MIB, is_free=False, requested_bytes=4 * MIB),
        Block(address=base + MIB, size_bytes=MIB, is_free=False, requested_bytes=MIB),
    )
    first = replace(
        make_block_map(make_history(trace_of([])), 0), segments=(Segment(base, 4 * MIB, 0, blocks),)
    )
    lives = make_history(trace_of([("alloc", base + 6 * MIB, MIB, MIB, 0, -1)], first))
    for step in (0, 1):
        segment = make_block_map(lives, step).segments[0]
        assert (segment.address, segment.size_bytes) == (base, 4 * MIB)
        assert [block.state for block in segment.blocks] == ["used", "used"]


def test_a_block_map_has_the_time_of_its_event() -> None:
    trace = trace_of(random_rows(1, 20))
    first = replace(trace.first, time_ns=-5)
    lives = make_history(replace(trace, first=first))
    assert [make_block_map(lives, step).time_ns for step in range(21)] == [-5, *trace.events.time_ns.tolist()]
