"""Loops found in steps, and the stepper over all warps of a block, on traces of real kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from gpulab.views import WarpStepper
from gpulab.views.warp.steps import WarpSteps
from virtualgpu import cuda_errors
from virtualgpu.protocol import Block, Launch, Warp
from virtualgpu.records import BlockTrace, WarpTrace
from virtualgpu.records.warp.loops import WarpLoops, find_loops

CODE = """
extern "C" __global__ void nested(int* x, int turns)
{
    int sum = 0;
    #pragma unroll 1
    for (int i = 0; i < turns; ++i)
        #pragma unroll 1
        for (int j = 0; j <= (threadIdx.x & 3); ++j) sum += x[i] * j;
    x[threadIdx.x] = sum;
}
__device__ __noinline__ int power(int base, int times)
{
    int result = 1;
    #pragma unroll 1
    for (int k = 0; k < times; ++k) result *= base;
    return result;
}
extern "C" __global__ void calls(int* x)
{
    int v = x[threadIdx.x];
    x[threadIdx.x] = power(v, 4) + power(~v, 5);
}
extern "C" __global__ void endless(volatile int* x)
{
    while (threadIdx.x < 32 || x[0] == 0) x[threadIdx.x] = threadIdx.x + 1;
}
extern "C" __global__ void waiting(volatile int* x)
{
    if (threadIdx.x > 31) while (x[0] == 0) {}
    __syncthreads();
}
extern "C" __global__ void reversed(float* x)
{
    __shared__ float tile[96];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[95 - threadIdx.x];
}
"""


@pytest.fixture(autouse=True)
def on_a_virtual_gpu() -> Iterator[None]:
    gl.use_device("virtual:A100")
    yield
    session.use_device("auto")


def nested(turns: int, max_steps: int = 20_000) -> WarpTrace:
    kernel = cp.RawKernel(CODE, "nested")
    args = (cp.arange(64, dtype=np.int32), np.int32(turns))
    return session.backend().observe(Launch.of(kernel, 1, 32, args), Warp(max_steps=max_steps))


def block() -> BlockTrace:
    args = (cp.arange(96, dtype=np.float32),)
    return session.backend().observe(Launch.of(cp.RawKernel(CODE, "reversed"), 1, 96, args), Block())


def heads(loops: WarpLoops, run: int) -> list[int]:
    """Where the turns of a run begin, its first step aside."""
    return [int(loops.turn_begin[turn]) for turn in loops.turns(run)]


def test_every_iteration_of_nested_loops_is_identified() -> None:
    trace = nested(6)
    loops = find_loops(trace)
    assert [len(loops.turns(run)) for run in range(len(loops))] == [6, *[4] * 6]
    assert loops.run_outer.tolist() == [-1, *loops.turns(0)]
    outer = heads(loops, 0)
    # A turn begins at the same instruction, and each has the inner loop in it once.
    assert len(set(trace.pc[outer].tolist())) == 1
    for turn, run in zip(loops.turns(0), range(1, 7), strict=True):
        inside = loops.turns(run)
        assert loops.turn_begin[turn] <= loops.turn_begin[inside[0]]
        assert loops.turn_end[inside[-1]] <= loops.turn_end[turn]
        assert len(set(trace.pc[heads(loops, run)].tolist())) == 1
        for before, after in pairwise(inside):
            assert loops.turn_end[before] + 1 == loops.turn_begin[after]
    assert loops.words[loops.turns(3)[1]] == "iteration 3 of 6, inside it 2 of 4"
    assert loops.alone[loops.turns(3)[1]] == "iteration 2 of 4\n2/4"
    assert loops.turn[0] == -1
    assert not [text for text in loops.words if "+" in text]


def test_moves_to_next_and_previous_iteration_and_past_the_loop() -> None:
    steps = WarpSteps(nested(6))
    loops = steps.loops
    outer = heads(loops, 0)
    inner = heads(loops, 2)
    on, back, past = (steps.moves[name] for name in ("next_iteration", "previous_iteration", "past_loop"))
    assert on[outer[1]] == outer[2]
    assert on[inner[0]] == inner[1]
    assert back[inner[1] + 1] == inner[1]
    assert past[inner[0]] == loops.turn_end[loops.turns(2)[-1]] + 1
    assert past[outer[0]] == loops.turn_end[loops.turns(0)[-1]] + 1
    assert on[0] == back[0] == past[0] == 0
    assert ", iteration 2 of 6, inside it 1 of 4: " in steps.sentence(inner[0])


def test_a_truncated_loop_is_marked_as_incomplete() -> None:
    trace = nested(6, max_steps=60)
    assert trace.truncated
    loops = find_loops(trace)
    turns = len(loops.turns(0))
    assert loops.words[loops.turn[59]].startswith(f"iteration {turns} of {turns}+")


def test_loops_of_separate_calls_are_separate() -> None:
    kernel = cp.RawKernel(CODE, "calls")
    args = (cp.arange(32, dtype=np.int32),)
    trace = session.backend().observe(Launch.of(kernel, 1, 32, args), Warp())
    loops = find_loops(trace)
    sizes = [len(loops.turns(run)) for run in range(len(loops))]
    assert trace.detail is not None
    assert trace.detail.depth.any()  # both calls depend on data and are made
    assert sizes == [4, 5]


def test_traces_without_loops_or_detail_have_no_loops() -> None:
    trace = nested(6)
    assert len(find_loops(replace(trace, detail=None))) == 0
    assert len(find_loops(block().warps[0])) == 0


def test_other_warps_are_shown_at_the_same_moment() -> None:
    trace = block()
    view = WarpStepper(trace, warp=1)
    assert view.title == "3 warps of block (0, 0, 0) in reversed"
    assert view.warp == view.trace.warp_index == 1
    stores = np.flatnonzero(view.trace.access_is_store)
    view.step = int(stores[0])
    assert view.trace.detail is not None
    now = view.trace.detail.sequence[view.step]
    view.warp = 0
    assert view.trace.warp_index == 0
    view.step = int(np.searchsorted(view.trace.detail.sequence, now, side="right")) - 1
    assert view.trace.detail.sequence[view.step] <= now
    assert view.step == len(view.trace) - 1 or view.trace.detail.sequence[view.step + 1] > now
    # Warp 0 waits at the barrier since before warp 1 stored: its last step saw its own stores only.
    assert "Shared memory: 128 of 384 bytes written so far." in view.describe()
    view.step += 1
    assert "Shared memory: 384 of 384 bytes written so far" in view.describe()
    with pytest.raises(Exception, match="no warp 3"):
        view.warp = 3
    view.close()


def test_the_course_call_traces_a_whole_block() -> None:
    x = cp.arange(96, dtype=np.float32)
    view = gl.warps(cp.RawKernel(CODE, "reversed"), 1, 96, (x,), warp=2, whole_block=True)
    assert view.warp == 2
    np.testing.assert_array_equal(x.get(), np.arange(96)[::-1])
    assert [warp for warp, *_ in view.contents["warps"]] == [0, 1, 2]
    assert view.contents["shared"]["word_events"]["$"][2] == 384 // 4 + 1
    single = gl.warps(cp.RawKernel(CODE, "reversed"), 1, 96, (x,), warp=2)
    assert [warp for warp, *_ in single.contents["warps"]] == [2]
    np.testing.assert_array_equal(single.trace.pc, view.trace.pc)
    cut = gl.warps(cp.RawKernel(CODE, "reversed"), 1, 96, (x,), max_steps=20, whole_block=True)
    assert "The trace stops after 20 steps of all warps; the block continued." in cut.describe()
    for view_ in (view, single, cut):
        assert view_.png().startswith(b"\x89PNG")
        view_.close()


@pytest.mark.parametrize("whole_block", [False, True])
def test_a_trace_of_an_infinite_loop_is_shown_up_to_the_limit(whole_block: bool) -> None:
    gl.use_device("virtual:A100", watchdog_s=1)
    x = cp.zeros(64, dtype=np.int32)
    view = gl.warps(cp.RawKernel(CODE, "endless"), 3, 64, (x,), max_steps=900, whole_block=whole_block)
    assert len(view.record.warps[0] if whole_block else view.record) > 300
    assert "The trace stops after 900 steps" in view.describe()
    assert "The kernel was stopped" in view.describe()
    assert int(x[31]) == 32  # what it wrote until then
    assert re.search(r", iteration \d+ of \d+\+: ", view.steps.sentence(40, by_line=True))
    view.close()


def test_a_warp_waiting_for_an_infinite_loop_is_shown() -> None:
    gl.use_device("virtual:A100", watchdog_s=1)
    view = gl.warps(cp.RawKernel(CODE, "waiting"), 1, 64, (cp.zeros(64, dtype=np.int32),))
    assert "The kernel was stopped" in view.describe()
    assert view.trace.instruction[view.trace.text_index[-1]].startswith("bar")
    view.close()


def test_faults_other_than_the_traced_timeout_are_raised() -> None:
    gl.use_device("virtual:A100", watchdog_s=1)
    with pytest.raises(cuda_errors.IllegalAddressError):
        gl.warps(cp.RawKernel(CODE, "reversed"), 1, 96, (cp.zeros(8, dtype=np.float32),))
    with pytest.raises(cuda_errors.LaunchTimeoutError):  # of a block that is not the traced one
        gl.warps(cp.RawKernel(CODE, "endless"), 3, 64, (cp.zeros(64, dtype=np.int32),), block_index=1)
