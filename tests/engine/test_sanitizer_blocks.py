"""Other orders of blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from virtualgpu.compile import nvrtc
from virtualgpu.sanitizer import ORDERS, block_sequence

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

TICKETS = """extern "C" __global__ void k(int* next, int* order) {
  if (threadIdx.x == 0) order[atomicAdd(next, 1)] = blockIdx.x;
}"""


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        yield


NOTED = r"""
extern "C" __global__ void k(int* noted, int* found) {
    if (threadIdx.x == 0) atomicExch(noted, blockIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) found[blockIdx.x] = atomicAdd(noted, 0);
}"""
CHAIN = r"""
extern "C" __global__ void k(int* state, int* sums) {
    __shared__ int tile;
    if (threadIdx.x == 0) tile = atomicAdd(state, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int before = 0;
        while (tile && !(before = atomicAdd(sums + tile, 0))) { }
        atomicExch(sums + tile + 1, before + 1);
    }
}"""


def ran(grid: int) -> list[int]:
    """The order in which blocks of a kernel run, as they note it themselves."""
    counter = gl.cp.zeros(1, dtype=np.int32)
    order = gl.cp.zeros(grid, dtype=np.int32)
    gl.cp.RawKernel(TICKETS, "k")((grid,), (32,), (counter, order))
    return [int(block) for block in order.get()]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", [1, 2, 1000])
def test_every_block_runs_once(order: str, blocks: int) -> None:
    assert sorted(block_sequence(order, blocks, 5).tolist()) == list(range(blocks))


def test_block_orders_are_reproducible_from_their_seed() -> None:
    first, repeated, other = (block_sequence("random", 100, seed).tolist() for seed in (1, 1, 2))
    assert first == repeated != other
    with pytest.raises(ValueError, match="'random', 'in turns', not 'shuffled'"):
        block_sequence("shuffled", 4)


@needs_nvrtc
def test_interleaved_blocks_run_while_one_waits_at_a_barrier() -> None:
    kernel = gl.cp.RawKernel(NOTED, "k")
    unchanged = {}
    for order in ORDERS:
        last_block = gl.cp.zeros(1, dtype=np.int32)
        values = gl.cp.zeros(40, dtype=np.int32)
        with gl.block_order(order, 1):
            kernel((40,), (64,), (last_block, values))
        unchanged[order] = int((values == gl.cp.arange(40)).sum())
    assert unchanged["in turns"] < 40 == unchanged["in order"] == unchanged["reversed"] == unchanged["random"]


@needs_nvrtc
def test_a_chain_of_waiting_blocks_ends_if_interleaved() -> None:
    """Each block waits for the one before it. The scheduler starts more blocks only while that helps."""
    state = gl.cp.zeros(1, dtype=np.int32)
    sums = gl.cp.zeros(501, dtype=np.int32)
    with gl.block_order("in turns", 3):
        gl.cp.RawKernel(CHAIN, "k")((500,), (32,), (state, sums))
    np.testing.assert_array_equal(sums.get(), np.arange(501))


@needs_nvrtc
def test_block_order_applies_only_inside_the_with_statement() -> None:
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


PASSED_ON = """extern "C" __global__ void k(QUALIFIER int* data, int* flag, int* out) {
  if (threadIdx.x == 0 && blockIdx.x == 0) { data[0] = 42; FENCE atomicExch(flag, 1); }
  if (threadIdx.x == 0 && blockIdx.x == 1) { while (atomicAdd(flag, 0) == 0) { } BEHIND out[0] = data[0]; }
}"""


@needs_nvrtc
@pytest.mark.parametrize("qualifier", ["", "volatile"])
def test_volatile_is_no_fence_between_blocks(qualifier: str) -> None:
    for fence, clean in (("__threadfence();", True), ("", False)):
        assert passed_on(qualifier, fence, fence) == clean


@needs_nvrtc
@pytest.mark.parametrize("read", ["atomicAdd(flag, 0)", "atomicOr(flag, 0)", "*(volatile int*)flag"])
@pytest.mark.parametrize("qualifier", ["", "volatile"])
def test_only_a_volatile_store_that_a_loop_polls_is_a_flag(qualifier: str, read: str) -> None:
    stored = "*(volatile int*)flag = 1"
    for fence, clean in (("__threadfence();", True), ("", False)):
        assert passed_on(qualifier, fence, fence, stored, read) == clean
    assert not passed_on(qualifier, "__threadfence();", "__threadfence();", "*flag = 1", read)


def passed_on(
    qualifier: str, fence: str, fence_after: str, stored: str = "atomicExch(flag, 1)", read: str = ""
) -> bool:
    """Whether a number passed on with these fences before and behind its flag is found to be in order."""
    code = PASSED_ON.replace("QUALIFIER", qualifier).replace("FENCE", fence).replace("BEHIND", fence_after)
    code = code.replace("atomicExch(flag, 1)", stored).replace(
        "atomicAdd(flag, 0)", read or "atomicAdd(flag, 0)"
    )
    data = [gl.cp.zeros(1, dtype=np.int32) for _ in range(3)]
    return gl.sanitize(gl.cp.RawKernel(code, "k"), 2, 32, tuple(data)).clean


@needs_nvrtc
def test_flags_between_blocks_need_device_fences_on_both_sides() -> None:
    """PTX's causality order requires a release and an acquire pattern whose scope includes both threads."""
    wide = "__threadfence();"
    narrow = "__threadfence_block();"
    assert passed_on("", wide, wide)
    assert not passed_on("", wide, "")
    assert not passed_on("", narrow, narrow)
    assert not passed_on("", narrow, wide)
    assert not passed_on("", wide, narrow)
