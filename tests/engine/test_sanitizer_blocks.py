"""Other orders of blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from virtualgpu.compile import nvrtc
from virtualgpu.sanitizer import ORDERS, block_sequence

needs_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

TICKETS = """extern "C" __global__ void k(int* next, int* order) {
  if (threadIdx.x == 0) order[atomicAdd(next, 1)] = blockIdx.x;
}"""


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        yield


def ran(grid: int) -> list[int]:
    """The order in which blocks of a kernel run, as they note it themselves."""
    taken, order = gl.cp.zeros(1, dtype=np.int32), gl.cp.zeros(grid, dtype=np.int32)
    gl.cp.RawKernel(TICKETS, "k")((grid,), (32,), (taken, order))
    return [int(block) for block in order.get()]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", [1, 2, 1000])
def test_every_block_runs_once(order: str, blocks: int) -> None:
    assert sorted(block_sequence(order, blocks, 5).tolist()) == list(range(blocks))


def test_seeds_give_different_orders_and_the_same_ones_again() -> None:
    first, again, other = (block_sequence("random", 100, seed).tolist() for seed in (1, 1, 2))
    assert first == again != other
    with pytest.raises(ValueError, match="'in order', 'reversed', 'random', not 'shuffled'"):
        block_sequence("shuffled", 4)


@needs_nvrtc
def test_block_order_holds_inside_the_with_statement() -> None:
    assert ran(9) == list(range(9))
    with gl.block_order("reversed"):
        assert ran(9) == list(range(8, -1, -1))
        with gl.block_order("random", seed=4):
            assert ran(9) == block_sequence("random", 9, 4).tolist() != list(range(9))
        assert ran(9) == list(range(8, -1, -1))
    with pytest.raises(RuntimeError, match="on purpose"), gl.block_order("reversed"):
        raise RuntimeError("on purpose")
    assert ran(9) == list(range(9))
    with pytest.raises(ValueError, match="not 'sideways'"), gl.block_order("sideways"):
        pass
    assert ran(9) == list(range(9))
