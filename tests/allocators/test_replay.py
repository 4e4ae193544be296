"""Requests replayed on allocator models, and read back from the trace."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gpulab.allocators.replay import RequestError, reconstruct_requests, replay
from gpulab.allocators.torch import TorchAllocator
from tests.allocators.traces import trace_of
from virtualgpu.records.memory import AllocatorTrace, BlockMap, Request

MIB = 1 << 20


def program(seed: int, length: int = 120) -> list[Request]:
    """Return random requests on three streams, with shared blocks and emptied caches."""
    rng = random.Random(seed)
    requests: list[Request] = []
    alive: list[int] = []
    for number in range(length):
        now = number * 10
        choice = rng.random()
        if choice < 0.55 or not alive:
            size = int(2 ** rng.uniform(6, 26))
            requests.append(Request("alloc", number, size, rng.choice((0, 0, 7, 9)), now, number % 5))
            alive.append(number)
        elif choice < 0.95:
            number_freed = alive.pop(rng.randrange(len(alive)))
            if rng.random() < 0.2:
                requests.append(Request("record_stream", number_freed, stream=8, time_ns=now))
            requests.append(Request("free", number_freed, time_ns=now))
        elif choice < 0.97:
            requests.append(Request("complete", stream=8, time_ns=now))
        else:
            requests.append(Request("empty_cache", time_ns=now))
    return requests


def check_map(block_map: BlockMap) -> None:
    """Check that segments do not overlap, blocks tile them, and free neighbours are merged."""
    end = 0
    for segment in block_map.segments:
        assert segment.address >= end
        end = segment.address
        before = "used"
        for block in segment.blocks:
            assert block.address == end
            assert block.size_bytes > 0
            assert block.state in ("used", "waiting") or block.state != before
            end = block.end
            before = block.state
        assert end == segment.address + segment.size_bytes


def outcome(trace: AllocatorTrace) -> list[tuple[object, ...]]:
    return [row[:5] for row in trace.events.rows()]


def request_times(trace: AllocatorTrace) -> list[tuple[int, int]]:
    return [row[5:] for row in trace.events.rows() if row[0] in ("alloc", "free_requested")]


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:20"])
def test_requests_can_be_read_back_from_a_trace(settings: str) -> None:
    for seed in range(25):
        first = replay(program(seed), TorchAllocator(settings))
        pool = TorchAllocator(settings)
        second = replay(reconstruct_requests(first), pool)
        assert outcome(second) == outcome(first)
        assert request_times(second) == request_times(first)
        check_map(pool.block_map())


def test_blocks_in_use_at_the_start_are_allocated_first() -> None:
    pool = TorchAllocator()
    used_address = pool.malloc(3 * MIB - 100, 0)
    waiting_address = pool.malloc(5 * MIB, 0)
    pool.record_stream(waiting_address, 4)
    pool.free(waiting_address)
    trace = replay([Request("alloc", 1, 100, 0)], pool)
    assert [(r.kind, r.number, r.size_bytes) for r in reconstruct_requests(trace)] == [
        ("alloc", 0, 3 * MIB - 100),
        ("alloc", 1, 5 * MIB),
        ("record_stream", 1, 0),
        ("free", 1, 0),
        ("alloc", 2, 100),
    ]
    assert used_address < waiting_address


def test_failed_requests_are_repeated_on_a_larger_device() -> None:
    requests = [
        Request("alloc", 0, 40 * MIB),
        Request("alloc", 1, 40 * MIB),
        Request("record_stream", 1, stream=3),
        Request("free", 1),
        Request("free", 0),
        Request("alloc", 2, 90 * MIB),
    ]
    small = replay(requests, TorchAllocator(capacity_bytes=64 * MIB))
    assert [row[0] for row in small.events.rows()].count("oom") == 2
    large = replay(reconstruct_requests(small), TorchAllocator(capacity_bytes=640 * MIB))
    rows = [row[0] for row in large.events.rows()]
    assert rows.count("alloc") == 3
    assert rows.count("free_requested") == 2  # the last one stays


@pytest.mark.parametrize(
    ("requests", "part"),
    [
        ([Request("alloc", 0, -1)], "-1 bytes"),
        ([Request("alloc", 0, 8), Request("alloc", 0, 8)], "in use"),
        ([Request("free", 3)], "Allocation 3 is freed"),
        ([Request("alloc", 0, 8), Request("free", 0), Request("free", 0)], "not in use"),
        ([Request("record_stream", 3, stream=1)], "another stream"),
        ([Request("alloc", 0, 1 << 50), Request("free", 0), Request("free", 0)], "not in use"),
    ],
)
def test_impossible_requests_are_refused(requests: list[Request], part: str) -> None:
    with pytest.raises(RequestError, match=part):
        replay(requests, TorchAllocator())


def test_failed_requests_are_freed_at_once_except_the_last() -> None:
    """A program continues after an error that it catches; the last one may have ended it."""
    requests = [
        Request("alloc", 0, 90 * MIB, time_ns=10),
        Request("alloc", 1, MIB, time_ns=20),
        Request("alloc", 2, 80 * MIB, time_ns=30),
    ]
    result = reconstruct_requests(replay(requests, TorchAllocator(capacity_bytes=64 * MIB)))
    assert [(r.kind, r.number, r.time_ns) for r in result] == [
        ("alloc", 0, 10),
        ("free", 0, 10),
        ("alloc", 1, 20),
        ("alloc", 2, 30),
    ]


@pytest.mark.parametrize(
    ("later_rows", "kinds"),
    [
        ([], ["complete", "empty_cache"]),
        ([("alloc", 1 << 31, 512, 512, 0, -1)], ["complete", "alloc"]),
        (
            [("free_requested", 1 << 30, 512, 512, 0, -1)],
            ["complete", "empty_cache", "record_stream", "free"],
        ),
        ([("oom", 0, 512, 512, 0, -1)], ["complete", "alloc"]),
        (
            [("oom", 0, 512, 512, 0, -1), ("alloc", 1 << 31, 512, 512, 0, -1)],
            ["complete", "alloc", "free", "alloc"],
        ),
    ],
)
def test_a_pending_free_completes_where_it_did_in_the_trace(later_rows: list[Any], kinds: list[str]) -> None:
    """Allocators complete pending frees when they allocate; at other times, this needs a request."""
    first = 1 << 29
    second = 1 << 30
    rows = [
        ("alloc", second, 512, 512, 0, -1),
        ("alloc", first, 512, 512, 0, -1),
        ("free_requested", first, 512, 512, 0, -1),
        ("alloc", 1 << 32, 512, 512, 0, -1),
        ("free_completed", first, 512, 512, 0, -1),
        *later_rows,
    ]
    result = [request.kind for request in reconstruct_requests(trace_of(rows))]
    assert result == ["alloc", "alloc", "record_stream", "free", "alloc", *kinds]


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_each_request_has_the_time_of_its_event(settings: str) -> None:
    for seed in range(6):
        trace = replay(program(seed), TorchAllocator(settings))
        times_and_kinds = [(r.time_ns, r.kind) for r in reconstruct_requests(trace)]
        assert [time_ns for time_ns, _ in times_and_kinds] == sorted(
            time_ns for time_ns, _ in times_and_kinds
        )
        emptied = {r.time_ns for r in program(seed) if r.kind == "empty_cache"}
        assert {time_ns for time_ns, kind in times_and_kinds if kind == "empty_cache"} <= {
            *emptied,
            *(time_ns for time_ns, kind in times_and_kinds if kind == "complete"),
        }
