"""Measures of fragmentation, against arithmetic on paper and requests to a pool."""

from __future__ import annotations

import pytest

from gpulab.allocators.fragments import measure_fragmentation
from gpulab.allocators.replay import OutOfMemory, replay
from gpulab.allocators.torch.allocator import TorchAllocator
from tests.allocators.test_replay import check_map
from tests.allocators.traces import KIB, MIB, MODELLED, random_requests
from virtualgpu.records.memory import Block, BlockMap, Segment


def segment(
    start: int, stream: int, *pieces: tuple[int, bool], pool: str = "", expandable: bool = False
) -> Segment:
    """Return a segment of pieces: sizes in MiB, and whether they are free."""
    blocks = []
    place = start
    for size, free in pieces:
        blocks.append(
            Block(
                address=place,
                size_bytes=int(size * MIB),
                is_free=free,
                requested_bytes=0 if free else int(size * MIB) - 100,
            )
        )
        place += int(size * MIB)
    return Segment(start, place - start, stream, tuple(blocks), pool, expandable)


def test_fragmentation_measures_of_a_known_block_map() -> None:
    result = measure_fragmentation(
        BlockMap(
            MODELLED,
            0,
            0,
            100 * MIB,
            (
                segment(1 << 30, 0, (10, False), (6, True), (4, False), (2, True)),
                segment(2 << 30, 0, (8, True)),
                segment(3 << 30, 7, (30, False), (16, True)),
            ),
        )
    )
    assert (result.reserved_bytes, result.used_bytes, result.free_bytes) == (76 * MIB, 44 * MIB, 32 * MIB)
    assert result.largest_free_bytes == 16 * MIB
    assert result.external == 0.5
    assert result.rounding_bytes == 300
    assert (result.releasable_bytes, result.held_bytes, result.room_bytes) == (8 * MIB, 24 * MIB, 24 * MIB)
    main, side = result.arenas
    assert (main.stream, main.free_bytes, main.largest_free_bytes, main.free_blocks) == (
        0,
        16 * MIB,
        8 * MIB,
        3,
    )
    assert (main.largest_request_bytes, side.largest_request_bytes) == (32 * MIB, 32 * MIB)


def test_free_blocks_of_other_streams_do_not_count() -> None:
    full = BlockMap(
        MODELLED,
        0,
        0,
        40 * MIB,
        (segment(1 << 30, 0, (1, False), (19, True)), segment(2 << 30, 7, (16, False), (4, True))),
    )
    main, side = measure_fragmentation(full).arenas
    assert (main.largest_request_bytes, side.largest_request_bytes) == (19 * MIB, 4 * MIB)
    assert measure_fragmentation(full, capacity_bytes=60 * MIB).room_bytes == 0
    no_limit = BlockMap(MODELLED, 0, 0, 0, full.segments)
    assert measure_fragmentation(no_limit).largest_request_bytes is None
    assert measure_fragmentation(no_limit, 60 * MIB).largest_request_bytes == 20 * MIB


@pytest.mark.parametrize(
    ("pool", "pieces", "limit", "released", "most"),
    [
        # Whole pages of 20 MiB, or of 2, go back; what is left of a tail joins what is mapped behind it.
        ("large", [(5, False), (40, True), (15, False)], 100, 20, 60),
        ("large", [(15, False), (25, True)], 100, 20, 85),
        ("small", [(1, False), (5, True), (2, False)], 10, 4, 1),
        ("small", [(1, False), (0.5, True), (0.5, False)], 3.9, 0, 0.5),
    ],
)
def test_releasable_pages_of_expandable_segments(
    pool: str, pieces: list[tuple[float, bool]], limit: float, released: int, most: float
) -> None:
    one = segment(1 << 40, 0, *pieces, pool=pool, expandable=True)  # type: ignore[arg-type]
    result = measure_fragmentation(BlockMap(MODELLED, 0, 0, int(limit * MIB), (one,)))
    assert result.releasable_bytes == released * MIB
    (arena,) = (candidate for candidate in result.arenas if candidate.pool == pool)
    assert arena.largest_request_bytes == most * MIB


def test_an_empty_pool_is_not_fragmented() -> None:
    result = measure_fragmentation(BlockMap(MODELLED, 0, 0, 0, ()))
    assert (result.external, result.free_bytes, result.arenas) == (0, 0, ())
    assert measure_fragmentation(BlockMap(MODELLED, 0, 0, MIB, ())).largest_request_bytes == MIB


@pytest.mark.parametrize("seed", range(5))
def test_largest_request_of_the_virtual_pool_is_exact(seed: int) -> None:
    """In a random state, that request succeeds, and one that is larger by a unit fails."""
    import random

    from virtualgpu import cp
    from virtualgpu.cp.cuda.memory import OutOfMemoryError

    for excess in (0, 512):
        for stream_index in (0, 1):
            draw = random.Random(seed)
            pool = cp.cuda.MemoryPool()
            pool.set_limit(size=64 * MIB)
            streams = [cp.cuda.Stream.null, cp.cuda.Stream(non_blocking=True)]
            blocks = []
            for _ in range(60):
                with streams[draw.randint(0, 1)]:
                    if draw.random() < 0.6:
                        try:
                            blocks.append(pool.malloc(draw.randint(1, 6 * MIB)))
                        except OutOfMemoryError:
                            continue
                    elif blocks:
                        del blocks[draw.randrange(len(blocks))]
            block_map = pool.block_map()
            check_map(block_map)
            used_and_total = (block_map.used_bytes, block_map.total_bytes)
            assert used_and_total == (pool.used_bytes(), pool.total_bytes())
            assert sum(block.is_free for block in block_map.blocks) == pool.n_free_blocks()
            arenas = {a.stream: a for a in measure_fragmentation(block_map).arenas}
            arena = arenas.get(streams[stream_index].ptr)
            if arena is None:
                continue
            with streams[stream_index]:
                if excess:
                    with pytest.raises(OutOfMemoryError):
                        pool.malloc(arena.largest_request_bytes + excess)
                else:
                    assert pool.malloc(arena.largest_request_bytes).mem.size == arena.largest_request_bytes
            blocks.clear()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_largest_request_of_pytorchs_allocator_is_exact(seed: int, settings: str) -> None:
    """In a random state, that request succeeds, and one that is larger by two units fails."""
    requests = random_requests(seed, 250)

    def left() -> TorchAllocator:
        model = TorchAllocator(settings, capacity_bytes=150 * MIB)
        replay(requests, model)
        model.event_sink = lambda *_: None
        return model

    result = measure_fragmentation(left().block_map(), 150 * MIB)
    assert result.arenas
    for arena in result.arenas:
        most = arena.largest_request_bytes or 0
        if most:
            left().malloc(most, arena.stream)
        if most and (arena.pool, most) != ("small", MIB):  # what is larger is served from the other pool
            with pytest.raises(OutOfMemory):
                left().malloc(most + KIB, arena.stream)
