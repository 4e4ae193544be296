"""``gl.host_memory``: counts of pinned memory, compared with sums of the program's own actions."""

from __future__ import annotations

import gc
import random
import re
from collections.abc import Iterator

import pytest

import gpulab as gl


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    gl.use_device("virtual:T4")
    yield
    gl.use_device("virtual:T4")


def rounded(size: int) -> int:
    return max(512, 1 << (size - 1).bit_length()) if size else 0


@pytest.mark.parametrize("seed", range(3))
def test_statistics_of_a_random_program(seed: int) -> None:
    draw = random.Random(seed)
    arrays = []
    sizes: list[int] = []
    free: dict[int, int] = {}  # free buffers by size
    peak = allocated = locked = unlocked = 0
    with gl.host_memory() as h:
        for _ in range(60):
            if draw.random() < 0.55:
                size = draw.choice([0, 1, 512, 513, 5000, draw.randint(1, 100_000)])
                arrays.append(gl.cupyx.empty_pinned(size, "i1"))
                size = rounded(size)
                sizes.append(size)
                if not size:
                    continue
                allocated += size
                locked += 0 if free.get(size) else 1
                free[size] = max(0, free.get(size, 0) - 1)
            elif arrays:
                index = draw.randrange(len(arrays))
                del arrays[index]
                size = sizes.pop(index)
                free[size] = free.get(size, 0) + bool(size)
            elif draw.random() < 0.5:
                h.free_all_blocks()
                unlocked += sum(free.values())
                free.clear()
            used = sum(sizes)
            peak = max(peak, used)
            statistics = h.statistics().nested()
            assert statistics["active_bytes"]["current"] == used
            assert statistics["active_bytes"]["peak"] == peak
            assert statistics["active_bytes"]["allocated"] == allocated
            assert statistics["active_requests"]["current"] == sum(map(bool, sizes))
            assert (statistics["num_host_alloc"], statistics["num_host_free"]) == (locked, unlocked)
            cached = sum(size * number for size, number in free.items())
            assert statistics["allocated_bytes"]["current"] == used + cached


def test_counts_only_its_with_block_and_frees_its_memory() -> None:
    cp = gl.cp
    cupyx = gl.cupyx
    pool = cp.get_default_pinned_memory_pool()
    with gl.host_memory() as h:
        inside = cupyx.empty_pinned(1000)
        address = inside.ctypes.data
    outside = cupyx.empty_pinned(1000)
    assert h.statistics().flat()["active_requests.allocated"] == 1
    del outside
    assert pool.n_free_blocks() >= 1
    assert cp.cuda.pinned_memory.is_memory_pinned(address)
    del inside
    assert h.statistics().flat()["active_requests.current"] == 0
    assert h.statistics().flat()["allocations.current"] == 1
    del h
    gc.collect()
    assert not cp.cuda.pinned_memory.is_memory_pinned(address)


def test_summary_shows_bytes_in_use_and_provenance() -> None:
    with gl.host_memory() as h:
        kept = gl.cupyx.empty_pinned(3 << 20, "u1")
    for part in ("4,194,304 bytes in use", "modelled on virtual T4"):
        assert part in repr(h)
    lines = h.summary().splitlines()
    assert len({len(line) for line in lines[:-1]}) == 1
    assert "| Pinned memory         |   4096 KiB |   4096 KiB |   4096 KiB |      0 B   |" in lines
    bundle, _ = h._repr_mimebundle_() or ({}, {})
    assert bundle["text/plain"] == h.describe()
    assert "modelled on virtual T4" in bundle["text/html"]
    assert re.search(r"active bytes +4 MiB +4 MiB +4 MiB +0 B", h.describe())
    del kept
