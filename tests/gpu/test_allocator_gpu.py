"""``gl.allocator`` on a real GPU: what CuPy's hooks told adds up to what its pool says."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from typing import Any

import pytest

import gpulab as gl

MIB = 1 << 20

pytestmark = [pytest.mark.gpu]


@pytest.fixture
def fresh() -> Iterator[Any]:
    """CuPy with an empty pool and a limit."""
    cp = gl.use_device("cuda").cp
    gc.collect()
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + 300 * MIB)
    yield cp
    pool.set_limit(size=0)


@pytest.mark.parametrize("seed", range(3))
def test_block_map_totals_equal_the_pools_totals(fresh: Any, seed: int) -> None:
    cp = fresh
    draw = random.Random(seed)
    pool = cp.get_default_memory_pool()
    side = cp.cuda.Stream(non_blocking=True)
    before = pool.total_bytes()
    kept: list[Any] = []
    refused = 0
    with gl.allocator() as a:
        for _ in range(400):
            act = draw.random()
            if act < 0.55:
                with draw.choice((cp.cuda.Stream.null, side)):
                    try:
                        kept.append(cp.empty(draw.randint(1, 30 * MIB), cp.uint8))
                    except cp.cuda.memory.OutOfMemoryError:
                        refused += 1
            elif act < 0.95 and kept:
                del kept[draw.randrange(len(kept))]
            elif act > 0.98:
                pool.free_all_blocks(draw.choice((None, side)))
        now = pool.total_bytes(), pool.used_bytes(), pool.free_bytes(), pool.n_free_blocks()
    found = a.fragmentation()
    told = found.reserved_bytes, found.used_bytes, found.free_bytes, sum(x.free_blocks for x in found.arenas)
    print(len(a.events), "events,", refused, "refused;", repr(a), a.record.note)
    assert found.provenance.source == "measured"
    if before == 0:
        assert told == now
    assert [row[0] for row in a.events.rows()].count("oom") == refused > 0
    assert "returned to the device are still shown" not in a.record.note


def test_a_map_of_the_current_pool_shows_live_arrays_and_a_note(fresh: Any) -> None:
    cp = fresh
    kept = cp.zeros((300, 300), cp.float32)
    cp.zeros(5 * MIB, cp.uint8)
    a = gl.allocator()
    (block,) = [b for b in a.at(0).blocks if b.address == kept.data.ptr]
    assert (block.size_bytes, block.label) == (360_448, "kept: float32 array of shape (300, 300)")
    assert "does not report its segments" in a.record.note
    assert "bytes of it are not shown" in a.record.note


def test_replay_in_the_model_of_cupys_pool_equals_the_real_pool(fresh: Any) -> None:
    """The model of CuPy's pool ends as the real one did."""
    cp = fresh
    pool = cp.get_default_memory_pool()
    before = pool.total_bytes()  # of other tests' arrays: where they lie is not known
    with gl.allocator() as a:
        kept = [cp.empty(n * MIB, cp.uint8) for n in (6, 10, 4, 8)]
        del kept[1]
        kept.append(cp.empty(7 * MIB, cp.uint8))
    view = a.compare("CuPy")
    real, model = (panel.map_after(panel.find_step(view.maps.last_position)) for panel in view.panels)
    if before == 0:
        assert real.total_bytes == pool.total_bytes()
        assert sorted(b.size_bytes for b in real.blocks) == sorted(b.size_bytes for b in model.blocks)
    assert a.compare("PyTorch").panels[1].history.last_step > 0
    view.close()
