"""The memory pool against sequences worked by hand from CuPy's documented rules.

Rules: sizes round up to 512 bytes; the smallest free block that fits is taken and split; a freed block
merges with its free neighbours; only whole segments return to the device; each stream has its own
free blocks.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import virtualgpu.cp as cp
from virtualgpu.allocators.chunks import Arena, Chunk
from virtualgpu.cp.cuda._memory.pool import MemoryPool
from virtualgpu.cuda_errors import OutOfMemoryError
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")
KIB = 1024
GIB = 1 << 30


@pytest.fixture
def pool(machine: Machine) -> MemoryPool:
    return MemoryPool()


def state(pool: MemoryPool) -> tuple[int, int, int]:
    return pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks()


def test_sizes_round_up_to_512(pool: MemoryPool) -> None:
    pointers = [pool.malloc(size) for size in (1, 512, 513)]
    assert state(pool) == (512 + 512 + 1024, 2048, 0)
    del pointers
    assert state(pool) == (0, 2048, 3)
    assert pool.free_bytes() == 2048


def test_nothing_is_no_allocation(pool: MemoryPool) -> None:
    assert pool.malloc(0).ptr == 0
    assert state(pool) == (0, 0, 0)


def test_freed_memory_stays_in_the_pool_and_is_reused(pool: MemoryPool) -> None:
    pointer = pool.malloc(4 * KIB)
    address = pointer.ptr
    del pointer
    assert state(pool) == (0, 4 * KIB, 1)
    assert pool.malloc(4 * KIB - 3).ptr == address
    pool.free_all_blocks()


@pytest.mark.parametrize("others", [0, 1])
def test_memory_of_an_array_that_dies_in_a_cycle_comes_back_whole(others: int) -> None:
    """As an array does that the frames of an exception hold."""
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
        again = cp.arange(128, dtype=cp.float32)
        assert again.tolist() == list(range(128))
        del again


def test_split_and_merge(pool: MemoryPool) -> None:
    whole = pool.malloc(4 * KIB)
    base = whole.ptr
    del whole
    first = pool.malloc(1 * KIB)
    assert first.ptr == base
    assert state(pool) == (1 * KIB, 4 * KIB, 1)
    second = pool.malloc(2 * KIB)
    assert second.ptr == base + 1 * KIB
    assert state(pool) == (3 * KIB, 4 * KIB, 1)
    del first
    assert state(pool) == (2 * KIB, 4 * KIB, 2)  # free: 1 KiB before, 1 KiB behind: not neighbours
    pool.free_all_blocks()
    assert pool.total_bytes() == 4 * KIB  # the segment still has a part in use
    del second
    assert state(pool) == (0, 4 * KIB, 1)  # merged to one
    pool.free_all_blocks()
    assert state(pool) == (0, 0, 0)


def test_best_fit_takes_the_smallest_that_fits(pool: MemoryPool) -> None:
    large = pool.malloc(8 * KIB)
    small = pool.malloc(2 * KIB)
    medium = pool.malloc(4 * KIB)
    addresses = {"large": large.ptr, "medium": medium.ptr}
    del large, small, medium
    kept = [pool.malloc(3 * KIB), pool.malloc(5 * KIB)]
    assert [pointer.ptr for pointer in kept] == [addresses["medium"], addresses["large"]]
    # free now: 2 KiB, 4-3 = 1 KiB, 8-5 = 3 KiB
    assert state(pool) == (8 * KIB, 14 * KIB, 3)
    assert pool.malloc(1 * KIB).ptr == addresses["medium"] + 3 * KIB


def test_fragmentation_makes_a_new_segment(pool: MemoryPool) -> None:
    whole = pool.malloc(4 * KIB)
    del whole
    pieces = [pool.malloc(1 * KIB) for _ in range(4)]
    del pieces[2], pieces[0]
    assert state(pool) == (2 * KIB, 4 * KIB, 2)
    kept = pool.malloc(2 * KIB)  # 2 KiB are free, but in two pieces
    assert state(pool) == (4 * KIB, 6 * KIB, 2)
    del kept, pieces
    assert state(pool) == (0, 6 * KIB, 2)


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
    """CuPy tells them apart, though they have one handle."""

    def use() -> int:
        with cp.cuda.Stream.ptds:
            return pool.malloc(1 * KIB).ptr

    mine = use()
    theirs: list[int] = []
    thread = threading.Thread(target=lambda: theirs.append(use()))
    thread.start()
    thread.join()
    assert theirs != [mine]
    assert use() == mine
    assert state(pool) == (0, 2 * KIB, 2)
    pool.free_all_blocks(stream=cp.cuda.Stream.ptds)
    assert state(pool) == (0, 1 * KIB, 1)


def test_limits(pool: MemoryPool) -> None:
    assert pool.get_limit() == 0
    pool.set_limit(size=2 * KIB)
    assert pool.get_limit() == 2 * KIB
    kept = pool.malloc(1 * KIB)
    with pytest.raises(
        OutOfMemoryError, match=r"Out of memory allocating 1,536 bytes .*1,024 bytes.*2,048 bytes"
    ):
        pool.malloc(1025)
    with pytest.raises(OutOfMemoryError):
        pool.malloc(1 << 50)
    spare = pool.malloc(1 * KIB)
    del spare
    assert pool.malloc(512).ptr  # from the free block: the limit is on what the device gave
    del kept
    assert pool.malloc(2 * KIB).ptr  # free blocks go back first when the limit is in the way
    pool.set_limit(fraction=0.5)
    assert pool.get_limit() == cp.cuda.Device().mem_info[1] // 2
    pool.set_limit()
    assert pool.get_limit() == 0


@pytest.mark.parametrize(
    "arguments", [{"fraction": 1.5}, {"fraction": -0.1}, {"size": -1}, {"size": 1, "fraction": 0.5}]
)
def test_bad_limits(pool: MemoryPool, arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"limit|cannot be specified"):
        pool.set_limit(**arguments)  # type: ignore[arg-type]


def test_limit_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_GPU_MEMORY_LIMIT", "50%")
    assert MemoryPool().get_limit() == cp.cuda.Device().mem_info[1] // 2
    monkeypatch.setenv("CUPY_GPU_MEMORY_LIMIT", "4096")
    assert MemoryPool().get_limit() == 4096


def test_free_blocks_go_back_before_the_device_counts_as_full(pool: MemoryPool) -> None:
    half = pool.malloc(45 * GIB)
    del half
    assert pool.total_bytes() == 45 * GIB
    most = pool.malloc(60 * GIB)  # would not fit beside the cached 45 GiB
    assert state(pool) == (60 * GIB, 60 * GIB, 0)
    with pytest.raises(OutOfMemoryError) as error:
        pool.malloc(30 * GIB)
    assert isinstance(error.value, cp.cuda.memory.OutOfMemoryError)
    assert state(pool) == (60 * GIB, 60 * GIB, 0)
    del most


def test_freeing_by_hand_is_safe_twice(pool: MemoryPool) -> None:
    pointer = pool.malloc(512)
    pointer.mem.free()
    pointer.mem.free()
    assert state(pool) == (0, 512, 1)


def test_arrays_use_and_return_the_default_pool() -> None:
    pool = cp.get_default_memory_pool()
    a = cp.zeros(1000, dtype=cp.float32)
    view = a[10:20]
    assert pool.used_bytes() == 4096
    del a
    assert pool.used_bytes() == 4096  # the view keeps it
    del view
    assert pool.used_bytes() == 0
    assert pool.total_bytes() == 4096
    pool.free_all_blocks()
    assert pool.total_bytes() == 0


def test_device_memory_counts_what_the_pool_holds(machine: Machine) -> None:
    free, total = cp.cuda.Device().mem_info
    assert total == machine.devices[0].info.memory_bytes
    a = cp.empty(1 << 28, dtype=cp.uint8)
    assert cp.cuda.Device().mem_info == (free - (1 << 28), total)
    del a
    assert cp.cuda.Device().mem_info[0] == free - (1 << 28)
    cp.get_default_memory_pool().free_all_blocks()
    assert cp.cuda.Device().mem_info[0] == free


def test_kernels_may_touch_exactly_the_requested_bytes(machine: Machine) -> None:
    a = cp.empty(3, dtype=cp.float32)
    starts, ends = machine.devices[0].memory.live()
    assert starts.tolist() == [a.data.ptr]
    assert ends.tolist() == [a.data.ptr + 12]
    found = machine.devices[0].memory.nearest(a.data.ptr + 100)
    assert found is not None
    assert found.label == "float32 array of shape (3,)"
    del a
    assert machine.devices[0].memory.live()[0].size == 0


def test_own_allocator_and_no_pool() -> None:
    sizes: list[int] = []

    def counting(size: int) -> object:
        sizes.append(size)
        return cp.get_default_memory_pool().malloc(size)

    with cp.cuda.using_allocator(counting):
        kept = cp.zeros(10, dtype=cp.int64)
    assert sizes == [80]
    cp.cuda.set_allocator(None)
    raw = cp.ones(5)
    assert cp.get_default_memory_pool().used_bytes() == 512
    assert float(raw.sum()) == 5.0
    del raw, kept
    cp.cuda.set_allocator(cp.get_default_memory_pool().malloc)


def test_each_device_has_its_own_part(two_gpus: Machine) -> None:
    pool = cp.get_default_memory_pool()
    with cp.cuda.Device(1):
        a = cp.empty(100, dtype=cp.uint8)
        assert pool.used_bytes() == 512
    assert pool.used_bytes() == 0
    assert a.device == cp.cuda.Device(1)


def test_pinned_pool_rounds_to_powers_of_two_and_reuses() -> None:
    pool = cp.get_default_pinned_memory_pool()
    first = cp.cuda.alloc_pinned_memory(3000)
    address = first.ptr
    assert first.size() == 4096
    assert pool.n_free_blocks() == 0
    del first
    assert pool.n_free_blocks() == 1
    assert cp.cuda.alloc_pinned_memory(4000).ptr == address
    pool.free_all_blocks()
    assert pool.n_free_blocks() == 0


def test_kernels_may_touch_what_a_pool_gave_by_hand(machine: Machine, pool: MemoryPool) -> None:
    pointer = pool.malloc(700)
    found = machine.devices[0].memory.allocation(pointer.ptr)
    assert found is not None
    assert (found.size_bytes, found.label) == (700, "700-byte allocation")
    pointer.mem.free()
    assert machine.devices[0].memory.allocation(found.address) is None


def test_a_free_does_not_wait_for_a_thread_that_holds_the_pool(pool: MemoryPool) -> None:
    pointer = pool.malloc(512)
    single = pool.device_pool()
    held = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with single._chunks.alone():
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    freed = threading.Thread(target=pointer.mem.free)
    freed.start()
    freed.join(5)
    waits = freed.is_alive()
    done.set()
    thread.join()
    freed.join()
    assert not waits
    assert state(pool) == (0, 512, 1)


def test_blocks_that_die_after_their_segment_are_let_go() -> None:
    """The garbage collector finalises a pool, its segments and the blocks of a cycle in any order."""
    pool = MemoryPool()
    pool.malloc(2048).mem.free()
    first = pool.malloc(512)
    second = pool.malloc(512)
    assert first.mem.chunk.mem is second.mem.chunk.mem
    first.mem.chunk.mem.__del__()
    second.mem.free()
    first.mem.free()


def test_a_free_within_a_free_waits_for_its_end(pool: MemoryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector may free an array while the pool sorts another one's chunk in."""
    blocks = [pool.malloc(512).mem for _ in range(3)]
    depths: list[int] = []
    give = Arena.give

    def counted(self: Arena[Any], chunk: Chunk[Any]) -> None:
        depths.append(depths[-1] + 1 if depths else 1)
        if blocks:
            blocks.pop().free()
        give(self, chunk)
        depths.append(depths[-1] - 1)

    monkeypatch.setattr(Arena, "give", counted)
    blocks.pop().free()
    assert depths == [1, 0] * 3
    assert state(pool) == (0, 1536, 3)
