"""``gl.host_memory``: what it counts of page-locked memory, against sums of what the program did."""

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


@pytest.mark.parametrize("seed", range(4))
def test_figures_of_a_random_program(seed: int) -> None:
    draw = random.Random(seed)
    cupyx = gl.cupyx
    held: list[int] = []
    kept: dict[int, int] = {}  # free buffers by size
    arrays = []
    used = 0
    peak = 0
    given = 0
    locked = 0
    unlocked = 0
    with gl.host_memory() as h:
        for _ in range(60):
            if draw.random() < 0.55:
                size = draw.choice([0, 1, 512, 513, 5000, draw.randint(1, 100_000)])
                arrays.append(cupyx.empty_pinned(size, "i1"))
                held.append(rounded(size))
                if not size:
                    continue
                given += rounded(size)
                locked += 0 if kept.get(rounded(size)) else 1
                kept[rounded(size)] = max(0, kept.get(rounded(size), 0) - 1)
            elif arrays:
                at = draw.randrange(len(arrays))
                del arrays[at]
                size = held.pop(at)
                kept[size] = kept.get(size, 0) + bool(size)
            elif draw.random() < 0.5:
                h.free_all_blocks()
                unlocked += sum(kept.values())
                kept.clear()
            used = sum(held)
            peak = max(peak, used)
            found = h.statistics().nested()
            assert found["active_bytes"]["current"] == used
            assert found["active_bytes"]["peak"] == peak
            assert found["active_bytes"]["allocated"] == given
            assert found["active_requests"]["current"] == sum(map(bool, held))
            assert (found["num_host_alloc"], found["num_host_free"]) == (locked, unlocked)
            assert found["allocated_bytes"]["current"] == used + sum(k * v for k, v in kept.items())


def test_only_its_block_counts_and_its_memory_ends_with_it() -> None:
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


def test_what_it_says() -> None:
    with gl.host_memory() as h:
        kept = gl.cupyx.empty_pinned(3 << 20, "u1")
    assert repr(h) == (
        "<Pinned host memory summary: 4,194,304 bytes in use (at most 4,194,304), 4,194,304 held "
        "(at most 4,194,304), modelled on virtual T4>"
    )
    lines = h.summary().splitlines()
    assert {len(line) for line in lines[:-1]} == {77}
    assert lines[7] == "| Pinned memory         |   4096 KiB |   4096 KiB |   4096 KiB |      0 B   |"
    assert lines[-1] == "Modelled on virtual T4."
    shown, _ = h._repr_mimebundle_() or ({}, {})
    assert shown["text/plain"] == h.describe()
    assert "modelled on virtual T4" in shown["text/html"]
    assert re.search(r"active bytes +4 MiB +4 MiB +4 MiB +0 B", h.describe())
    del kept
