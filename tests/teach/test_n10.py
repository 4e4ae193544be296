"""Notebook 10: numbers compared with models of the allocators, and memory counts of the judge."""

from __future__ import annotations

from typing import Any

import pytest

import gpulab as gl
from gpulab.allocators.torch import TorchAllocator
from gpulab_course.content.n10_allocator import exercises, figures, pool, pool_rules
from gpulab_course.teach.judge import DataGenerator, NotYet
from gpulab_course.teach.judge.python.memory_use import MemoryUse

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, *exercises._EDGE_SIZES_BYTES, *range(MIB - 1500, MIB + 1500, 499)])
def test_used_and_reserved_bytes_are_those_of_both_pools(size: int) -> None:
    cp = gl.use_device("virtual:A100").cp
    own = cp.cuda.MemoryPool()
    block = own.malloc(size)
    torch = TorchAllocator()
    torch.malloc(size, 0)
    blocks = torch.block_map()
    assert exercises.after_one(size) == (
        own.used_bytes(),
        own.total_bytes(),
        blocks.used_bytes,
        blocks.total_bytes,
    )
    del block


def test_sizes_in_the_nested_memory_boxes_add_up() -> None:
    caption = repr(figures.nested({"used": 2 * MIB, "reserved": 8 * MIB, "device": 520 * MIB}))
    assert "2 MiB are used by arrays, within 8 MiB" in caption
    assert "The other 512 MiB of the device" in caption


def test_the_picture_of_a_race_depends_on_the_addresses() -> None:
    assert repr(figures.reused(0x7000, 0x7000)).endswith("Both use the memory at 0x7000: a race.")
    assert repr(figures.reused(0x7000, 0x8000)).endswith("so there is no race.")


def test_the_lifetime_picture_of_attention_shows_the_memory_peak() -> None:
    gl.use_device("virtual:A100")
    h = figures.tokens(1024)
    with gl.allocator() as trace:
        output = figures.attention(h)
        del output
    names = "h @ h.T", "scores", "scores - max", "powers", "weights", "output"
    caption = repr(figures.lifetimes(trace.record, names))
    assert "At the peak of 12.1 MiB" in caption
    assert caption.endswith("alive (orange): scores, powers, weights, output.")


def test_checkpoints_are_evenly_spaced() -> None:
    assert "keeps the input and output 2, 4, and computes" in repr(figures.kept_outputs(6, 2))


def counted(program: Any) -> MemoryUse:
    cp = gl.use_device("virtual:A100").cp
    from gpulab import session

    use = MemoryUse()
    with use.count_memory(session.backend().machine.current_device):  # type: ignore[attr-defined]
        program(cp)
    return use


def test_segments_driver_calls_and_peaks_are_counted() -> None:
    def program(cp: Any) -> None:
        own = cp.cuda.MemoryPool()
        with cp.cuda.using_allocator(own.malloc):
            a = cp.empty(1000, dtype=cp.uint8)
            b = cp.empty(3 * MIB, dtype=cp.uint8)
            del a
            c = cp.empty(1024, dtype=cp.uint8)
            del b, c
            own.free_all_blocks()

    use = counted(program)
    assert (use.segments, use.driver_calls) == (2, 4)
    assert use.peak_used_bytes == 3 * MIB + 1024
    assert use.peak_reserved_bytes == 4 * MIB + 1024  # cudaMalloc gives pages of 2 MiB
    assert use.wasted_bytes == MIB


def test_allocations_without_a_pool_count_as_driver_calls() -> None:
    def program(cp: Any) -> None:
        for _ in range(5):
            cp.cuda.runtime.free(cp.cuda.runtime.malloc(100))

    use = counted(program)
    assert (use.segments, use.driver_calls, use.peak_reserved_bytes, use.peak_used_bytes) == (5, 10, 512, 100)


@pytest.mark.parametrize("pool", ["default", "own", "ordered", "managed", "none"])
def test_arrays_of_every_kind_of_pool_are_counted(pool: str) -> None:
    def program(cp: Any) -> None:
        allocators = {
            "default": cp.get_default_memory_pool().malloc,
            "own": cp.cuda.MemoryPool().malloc,
            "ordered": cp.cuda.MemoryAsyncPool().malloc,
            "managed": cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc,
            "none": None,
        }
        with cp.cuda.using_allocator(allocators[pool]):
            blocks = [cp.empty(1000, dtype=cp.uint8) for _ in range(7)]
            del blocks[:5]
            blocks.append(cp.empty(100, dtype=cp.uint8))

    assert 7000 <= counted(program).peak_used_bytes <= 7024


def test_random_allocation_traces_are_valid() -> None:
    """Only live blocks are freed, all are freed at the end, and the ids of two streams differ in one bit."""
    asks = pool.draw_requests(DataGenerator(3), 300)
    alive: set[int] = set()
    for ask in asks:
        if ask.kind == "malloc":
            assert ask.number not in alive
            assert ask.size > 0
            alive.add(ask.number)
        elif ask.kind == "free":
            alive.remove(ask.number)
    assert not alive
    null, some, third = sorted({ask.stream for ask in asks})
    assert null == 0 < some < third
    assert (some ^ third).bit_count() == 1
    assert {ask.pool for ask in asks} == {0, 1}


def test_overlap_with_a_block_of_another_stream_is_detected() -> None:
    gl.use_device("virtual:A100")

    class Shares(pool.MyPool):
        """A wrong pool that returns part of a free block of another stream."""

        def malloc(self, size: int, stream: int) -> int:
            if stream == 1:
                for block in self.blocks.values():
                    if block[3]:
                        block[1] = 1
            return super().malloc(size, stream)

    asks = (
        pool.PoolRequest("malloc", 0, 4096),
        pool.PoolRequest("free", 0),
        pool.PoolRequest("malloc", 1, 512, 1),
    )
    with pytest.raises(NotYet, match="stream 0 has used"):
        pool_rules.check_log(asks, tuple(pool.replay_requests(Shares, asks)))
    longer = (*asks, pool.PoolRequest("free", 1), pool.PoolRequest("empty"))
    pool_rules.check_log(longer, tuple(pool.replay_requests(pool.MyPool, longer)))
