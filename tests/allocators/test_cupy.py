"""The model of CuPy's pool: against its documented rules, and through replays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpulab.allocators.cupy import CuPyAllocator
from gpulab.allocators.replay import OutOfMemory, RequestError, reconstruct_requests, replay
from gpulab.allocators.steps import make_block_map, make_history
from tools.recordings.pool_programs import Reference, Step, program
from virtualgpu.records.memory import BlockMap, Request

CAPACITY = 1 << 40


def requests(seed: int) -> Iterator[Request]:
    """Return a random program, without the steps that a model lacks."""
    for kind, *arguments in program(seed, CAPACITY, steps=120)[1]:
        if kind == "malloc":
            name, stream, size = arguments
            yield Request("alloc", name, size, stream)
        elif kind in ("free", "lose"):
            yield Request("free", arguments[0])
        elif kind == "empty":
            yield Request("empty_cache")
        elif kind in ("limit", "fraction"):
            yield Request(
                "set_limit", size_bytes=arguments[0] if kind == "limit" else int(arguments[0] * CAPACITY)
            )


def layout(block_map: BlockMap) -> list[tuple[int, list[tuple[int, bool]]]]:
    return sorted(
        (segment.stream, [(block.size_bytes, block.is_free) for block in segment.blocks])
        for segment in block_map.segments
    )


@pytest.mark.parametrize("seeds", [range(start, start + 40) for start in (0, 40, 80)])
def test_pool_follows_the_documented_rules_after_every_request(seeds: range) -> None:
    refused = split = 0
    for seed in seeds:
        pool = CuPyAllocator(capacity_bytes=CAPACITY)
        model = Reference(CAPACITY)
        addresses: dict[int, int] = {}
        for request in requests(seed):
            if request.kind == "alloc":
                if len(model.fitting(-(-request.size_bytes // 512) * 512, request.stream)) > 1:
                    continue  # which of them CuPy takes depends on the host's memory
                try:
                    address = pool.malloc(request.size_bytes, request.stream)
                except OutOfMemory:
                    refused += 1
                    assert not model.malloc(request.number, request.size_bytes, request.stream)
                else:
                    assert model.malloc(request.number, request.size_bytes, request.stream)
                    addresses[request.number] = address
            elif request.kind == "free":
                pool.free(addresses.pop(request.number, 0))
                model.free(request.number)
            elif request.kind == "empty_cache":
                pool.empty_cache()
                model.empty()
            else:
                pool.set_limit(request.size_bytes)
                model.limit = request.size_bytes
            assert (pool.used_bytes, pool.total_bytes, pool.n_free_blocks) == model.state()
        expected = sorted((s, [(size, name < 0) for size, name in blocks]) for s, blocks in model.segments)
        assert layout(pool.block_map()) == expected
        split += sum(len(blocks) > 1 for _, blocks in expected)
    assert refused > 20
    assert split > 10


def test_block_map_rebuilt_from_events_equals_the_pool() -> None:
    for seed in range(30):
        pool = CuPyAllocator(capacity_bytes=CAPACITY)
        trace = replay(requests(seed), pool)
        lives = make_history(trace)
        block_map = pool.block_map()
        end = make_block_map(make_history(trace), lives.last_step)
        assert layout(end) == layout(block_map)
        assert [s.address for s in end.segments] == [s.address for s in block_map.segments]
        assert (end.used_bytes, end.total_bytes) == (pool.used_bytes, pool.total_bytes)
        second_trace = replay(reconstruct_requests(trace), CuPyAllocator(capacity_bytes=CAPACITY))
        kinds = ("alloc", "free_requested", "free_completed")
        # Limits are no events: a request that one refused may find room the second time.
        if "oom" not in [row[0] for row in trace.events.rows()] and not _limited(seed):
            assert [row[:5] for row in second_trace.events.rows() if row[0] in kinds] == [
                row[:5] for row in trace.events.rows() if row[0] in kinds
            ]


def _limited(seed: int) -> bool:
    steps: list[Step] = program(seed, CAPACITY, steps=120)[1]
    return any(step[0] in ("limit", "fraction") for step in steps)


def test_invalid_frees_limits_and_sizes_are_refused() -> None:
    pool = CuPyAllocator(limit_bytes=4096)
    assert pool.malloc(0, 0) == 0
    pool.free(0)
    block = pool.malloc(1, 3)
    pool.free(block)
    for wrong in (block, block + 512, 7):
        with pytest.raises(RequestError, match="No block in use starts at"):
            pool.free(wrong)
    with pytest.raises(RequestError, match="must not be negative"):
        pool.set_limit(-1)
    with pytest.raises(OutOfMemory, match=r"4,097 bytes do not fit: .* 512 bytes, .* 0 .* limit is 4,096"):
        pool.malloc(4097, 3)
    with pytest.raises(OutOfMemory, match="the device is full"):
        CuPyAllocator(capacity_bytes=1 << 30).malloc((1 << 30) + 1, 0)
