"""The memory pool: arenas of streams, arrays, devices, threads and the garbage collector.

`test_pool_recorded` compares splitting, merging and limits with CuPy's pool.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import virtualgpu.cp as cp
from virtualgpu.allocators.chunks import Arena, Chunk
from virtualgpu.cp.cuda._memory.pool import MemoryPool
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")
KIB = 1024


@pytest.fixture
def pool(machine: Machine) -> MemoryPool:
    return MemoryPool()


def state(pool: MemoryPool) -> tuple[int, int, int]:
    return pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks()


@pytest.mark.parametrize("others", [0, 1])
def test_memory_of_arrays_in_reference_cycles_is_reusable(others: int) -> None:
    """An example is an array in the frames of an exception."""
    alive = [cp.zeros(1) for _ in range(others)]
    pool = cp.get_default_memory_pool()

    class Frame:
        def __init__(self) -> None:
            self.array = cp.arange(128, dtype=cp.float32)
            self.frame = self

    for _ in range(5):
        used = pool.used_bytes()
        frame = Frame()
        assert pool.used_bytes() == used + 512
        del frame
        gc.collect()
        assert pool.used_bytes() == used == 512 * len(alive)
        second_array = cp.arange(128, dtype=cp.float32)
        assert second_array.tolist() == list(range(128))
        del second_array


def test_arenas_belong_to_streams(pool: MemoryPool) -> None:
    pointer = pool.malloc(1 * KIB)
    address = pointer.ptr
    del pointer
    stream = cp.cuda.Stream()
    with stream:
        other = pool.malloc(1 * KIB)
        assert other.ptr != address
    assert state(pool) == (1 * KIB, 2 * KIB, 1)
    del other  # goes back to its own stream's arena, whichever stream is current
    assert pool.malloc(1 * KIB).ptr == address
    pool.free_all_blocks(stream=stream)
    assert state(pool) == (0, 1 * KIB, 1)


def test_each_thread_has_an_arena_for_its_per_thread_default_stream(pool: MemoryPool) -> None:
    """As in CuPy, the arenas differ although all per-thread streams have the same handle."""

    def use() -> int:
        with cp.cuda.Stream.ptds:
            return pool.malloc(1 * KIB).ptr

    address = use()
    other_addresses: list[int] = []
    thread = threading.Thread(target=lambda: other_addresses.append(use()))
    thread.start()
    thread.join()
    assert other_addresses != [address]
    assert use() == address
    assert state(pool) == (0, 2 * KIB, 2)
    pool.free_all_blocks(stream=cp.cuda.Stream.ptds)
    assert state(pool) == (0, 1 * KIB, 1)


def test_mem_info_counts_memory_kept_by_the_pool_as_used(machine: Machine) -> None:
    free, total = cp.cuda.Device().mem_info
    assert total == machine.devices[0].info.memory_bytes
    a = cp.empty(1 << 28, dtype=cp.uint8)
    assert cp.cuda.Device().mem_info == (free - (1 << 28), total)
    del a
    assert cp.cuda.Device().mem_info[0] == free - (1 << 28)
    cp.get_default_memory_pool().free_all_blocks()
    assert cp.cuda.Device().mem_info[0] == free


def test_live_ranges_cover_exactly_the_requested_bytes(machine: Machine) -> None:
    a = cp.empty(3, dtype=cp.float32)
    starts, ends = machine.devices[0].memory.find_live_ranges()
    assert starts.tolist() == [a.data.ptr]
    assert ends.tolist() == [a.data.ptr + 12]
    allocation = machine.devices[0].memory.find_nearest_allocation(a.data.ptr + 100)
    assert allocation is not None
    assert allocation.label == "float32 array of shape (3,)"
    del a
    assert machine.devices[0].memory.find_live_ranges()[0].size == 0


def test_used_bytes_are_counted_per_device(two_gpus: Machine) -> None:
    pool = cp.get_default_memory_pool()
    with cp.cuda.Device(1):
        a = cp.empty(100, dtype=cp.uint8)
        assert pool.used_bytes() == 512
    assert pool.used_bytes() == 0
    assert a.device == cp.cuda.Device(1)


def test_free_does_not_wait_for_the_lock_of_the_pool(pool: MemoryPool) -> None:
    pointer = pool.malloc(512)
    single = pool.device_pool()
    is_held = threading.Event()
    may_end = threading.Event()

    def hold() -> None:
        with single._chunks.lock_pool():
            is_held.set()
            may_end.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait(20)
    freed = threading.Thread(target=pointer.mem.free)
    freed.start()
    freed.join(5)
    waits = freed.is_alive()
    may_end.set()
    thread.join()
    freed.join()
    assert not waits
    assert state(pool) == (0, 512, 1)


def test_blocks_can_be_freed_after_their_segment() -> None:
    """The garbage collector finalises a pool, its segments and the blocks of a cycle in any order."""
    pool = MemoryPool()
    pool.malloc(2048).mem.free()
    first = pool.malloc(512)
    second = pool.malloc(512)
    assert first.mem.chunk.mem is second.mem.chunk.mem
    first.mem.chunk.mem.__del__()
    second.mem.free()
    first.mem.free()


def test_a_nested_free_is_deferred_until_the_outer_one_ends(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector can free an array while the pool inserts the chunk of another array."""
    blocks = [pool.malloc(512).mem for _ in range(3)]
    depths: list[int] = []
    add_chunk = Arena.add_chunk

    def counted(self: Arena[Any], chunk: Chunk[Any]) -> None:
        depths.append(depths[-1] + 1 if depths else 1)
        if blocks:
            blocks.pop().free()
        add_chunk(self, chunk)
        depths.append(depths[-1] - 1)

    monkeypatch.setattr(Arena, "add_chunk", counted)
    blocks.pop().free()
    assert depths == [1, 0] * 3
    assert state(pool) == (0, 1536, 3)
