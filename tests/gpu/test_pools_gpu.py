"""CuPy's pools on this GPU against the virtual GPU's, with programs that no recording has."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import gpulab as gl
import virtualgpu.cp as virtual
from tools.recordings import pool_programs
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.gpu
SEEDS = range(50_000, 50_060)


@pytest.fixture
def capacity(cp: Any) -> Iterator[int]:
    """Bytes of this GPU, which the virtual one has, too; garbage is collected when programs say so."""
    total = int(cp.cuda.runtime.memGetInfo()[1])
    previous = slot._current_machine.machine
    slot.use(Machine([replace(device_info("H200"), memory_bytes=total)]))
    gc.disable()
    yield total
    gc.enable()
    slot._current_machine.machine = previous


def test_memory_pool(cp: Any, capacity: int) -> None:
    for seed in SEEDS:
        here, there = (pool_programs.run(xp, seed, capacity) for xp in (cp, virtual))
        assert here.tolist() == there.tolist(), f"seed {seed}"


@pytest.mark.parametrize("kind", ["pinned", "nested"])
def test_pinned_pool_and_changes_of_the_allocator(cp: Any, capacity: int, kind: str) -> None:
    run = getattr(pool_programs, kind)
    for seed in SEEDS:
        here, there = (run(xp, seed) for xp in (cp, virtual))
        assert here.tolist() == there.tolist(), f"seed {seed}"


def test_host_memory(cp: Any) -> None:
    cupyx = gl.cupyx
    with gl.host_memory() as h:
        kept = cupyx.empty_pinned(3000, "u1")
        gone = cupyx.empty_pinned(100, "u1")
        del gone
        again = cupyx.empty_pinned(200, "u1")
    found = h.statistics().flat()
    assert (found["active_bytes.current"], found["active_bytes.allocated"]) == (4096 + 512, 4096 + 1024)
    assert (found["num_host_alloc"], found["active_requests.allocated"]) == (2, 3)
    assert h.summary().splitlines()[-1].startswith("Measured on this computer")
    assert cp.cuda.pinned_memory.is_memory_pinned(again.ctypes.data)
    address = kept.ctypes.data
    del kept, again, h
    gc.collect()
    assert not cp.cuda.pinned_memory.is_memory_pinned(address)
