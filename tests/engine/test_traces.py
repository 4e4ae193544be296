"""Traces of warps and blocks: registers, stores and shared memory at any step, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine import ptx_runner
from tests.trace_state import registers_at, shared_at, shared_changes
from virtualgpu.compile import nvrtc
from virtualgpu.engine import LaunchResult, TraceRequest
from virtualgpu.records import BlockTrace, WarpTrace

HEAD = 'extern "C" __global__ void k'

SCAN = """extern "C" __global__ void k(float* x, int n)
{
    extern __shared__ float two[];
    int t = threadIdx.x, from = 0;
    two[t] = x[t];
    __syncthreads();
    for (int gap = 1; gap < n; gap *= 2) {
        float sum = two[from * n + t];
        if (t >= gap) sum += two[from * n + t - gap];
        two[(1 - from) * n + t] = sum;
        from = 1 - from;
        __syncthreads();
    }
    x[t] = two[from * n + t];
}
"""


def traced(
    code: str,
    arrays: list[npt.NDArray[Any]],
    numbers: tuple[int, ...] = (),
    request: TraceRequest | None = None,
    **options: Any,
) -> tuple[LaunchResult, list[npt.NDArray[Any]]]:
    """Run a kernel ``k`` with a trace; pointers first, then 32-bit numbers."""
    ptx = nvrtc.compile_ptx(code, target=80).ptx
    trace = request or TraceRequest(is_whole_block=True)
    return ptx_runner.run(ptx, "k", arrays, numbers=numbers, source=code, trace=trace, **options)


def block_of(result: LaunchResult) -> BlockTrace:
    assert result.block_trace is not None
    return result.block_trace


def no_pointers(trace: WarpTrace, count: int) -> npt.NDArray[Any]:
    """Results of the first steps but for 64-bit ones, which hold addresses that change from run to run."""
    assert trace.value is not None
    narrow = np.array([not kind.endswith("64") for kind in trace.value_type])
    return np.where(narrow[trace.text_index[:count], None], trace.value[:count], 0)


def places_of(trace: WarpTrace, text: str) -> list[int]:
    """Steps whose instruction contains a text."""
    return [n for n, index in enumerate(trace.text_index.tolist()) if text in trace.instruction[index]]


def barriers(trace: BlockTrace) -> list[int]:
    """For each barrier: the last place in the block's order of a warp's arrival."""
    arrivals = [w.detail.sequence[places_of(w, "bar.sync")] for w in trace.warps]  # type: ignore[union-attr]
    return np.max(arrivals, axis=0).tolist()


def test_shared_memory_at_each_barrier_of_a_scan_equals_numpy() -> None:
    n = 128
    x = np.random.default_rng(5).random(n, np.float32)
    result, (contents,) = traced(SCAN, [x], (n,), block=n, shared_bytes=8 * n)
    trace = block_of(result)
    assert [w.warp_index for w in trace.warps] == [0, 1, 2, 3]
    buffers = np.full((2, n), np.nan, np.float32)
    buffers[0], known, current = x, {0}, 0
    stages = barriers(trace)
    assert len(stages) == 8
    for stage, place in enumerate(stages):
        memory, written = shared_at(trace.shared, place)
        got = memory.view(np.float32).reshape(2, n)
        for buffer in range(2):
            assert written.reshape(2, -1)[buffer].all() == (buffer in known)
            assert written.reshape(2, -1)[buffer].any() == (buffer in known)
            if buffer in known:
                np.testing.assert_array_equal(got[buffer], buffers[buffer])
        gap = 1 << stage
        shifted = np.where(np.arange(n) >= gap, np.roll(buffers[current], gap), np.float32(0))
        buffers[1 - current] = buffers[current] + shifted
        current = 1 - current
        known.add(current)
    np.testing.assert_array_equal(contents, np.asarray(buffers[1 - current]))
    final, _ = shared_at(trace.shared, trace.steps)
    np.testing.assert_array_equal(final, trace.shared.final)


def test_inactive_lanes_keep_their_values() -> None:
    code = """extern "C" __global__ void k(int* x)
{
    int v = x[threadIdx.x];
    if (threadIdx.x & 1) { v = v * 3; x[threadIdx.x + 32] = v; }
    else { v = v + 1000; x[threadIdx.x + 64] = v; }
    x[threadIdx.x] = v;
}"""
    x = np.arange(96, dtype=np.int32)
    result, (contents,) = traced(code, [x])
    trace = result.trace
    assert trace is not None
    assert trace.value is not None
    for step in range(len(trace)):
        state = registers_at(trace, step)
        # The same by brute force: play every step so far.
        for name, register in state.items():
            value = np.zeros(32, np.uint64)
            written = np.zeros(32, bool)
            for n in range(step + 1):
                if trace.value_register[int(trace.text_index[n])] == name:
                    lanes = (int(trace.executed_mask[n]) >> np.arange(32) & 1).astype(bool)
                    value = np.where(lanes, trace.value[n], value)
                    written |= lanes
            np.testing.assert_array_equal(register.value, value)
            np.testing.assert_array_equal(register.written, written)
    odd = np.arange(32) % 2 == 1
    np.testing.assert_array_equal(contents[:32], np.where(odd, x[:32] * 3, x[:32] + 1000))


def test_traces_have_stored_values_and_all_loaded_components() -> None:
    code = HEAD + "(float4* a, float4* b) { float4 v = a[threadIdx.x]; v.x += v.w; b[threadIdx.x] = v; }"
    a = np.random.default_rng(0).random((32, 4), np.float32)
    result, (_, contents) = traced(code, [a, np.zeros_like(a)])
    trace = result.trace
    assert trace is not None
    detail = trace.detail
    assert detail is not None
    (load,), (store,) = places_of(trace, "ld.global.v4"), places_of(trace, "st.global.v4")
    rows = np.flatnonzero(detail.stored_step == store)
    assert detail.stored_part[rows].tolist() == [0, 1, 2, 3]
    stored = detail.stored_value[rows].astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(stored.T, contents.reshape(32, 4))
    assert detail.stored_type[int(trace.text_index[store])] == "f32"
    assert trace.value is not None
    loaded = [trace.value[load], *detail.extra_value[detail.extra_step == load]]
    np.testing.assert_array_equal(np.array(loaded).astype(np.uint32).view(np.float32).T, a)
    names = [trace.value_register[int(trace.text_index[load])]]
    names += [detail.extra_register[n] for n in detail.extra_name[detail.extra_step == load]]
    state = registers_at(trace, store)
    assert all(state[name].type == "f32" for name in (names[0], names[3]))
    np.testing.assert_array_equal(state[names[3]].value.astype(np.uint32).view(np.float32), a[:, 3])


def test_shared_atomics_and_narrow_stores_are_replayed_correctly() -> None:
    code = """extern "C" __global__ void k(int* x)
{
    __shared__ int bins[8];
    __shared__ unsigned char bytes[64];
    __shared__ double wide[32];
    if (threadIdx.x < 8) bins[threadIdx.x] = 100;
    __syncthreads();
    atomicAdd(&bins[x[threadIdx.x] & 7], x[threadIdx.x]);
    bytes[63 - threadIdx.x] = threadIdx.x;
    if (threadIdx.x < 32) wide[threadIdx.x] = 0.5 * threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = bins[threadIdx.x & 7] + bytes[threadIdx.x] + (int)wide[threadIdx.x & 31];
}"""
    x = np.random.default_rng(2).integers(0, 99, 64).astype(np.int32)
    result, (contents,) = traced(code, [x], block=64)
    trace = block_of(result)
    bins = np.full(8, 100)
    np.add.at(bins, x & 7, x)
    t = np.arange(64)
    np.testing.assert_array_equal(contents, bins[t & 7] + (63 - t) + (0.5 * (t & 31)).astype(int))
    memory, written = shared_at(trace.shared, trace.steps)
    assert written.sum() == 32 + 64 + 256
    np.testing.assert_array_equal(memory[written], trace.shared.final[written])  # type: ignore[index]
    assert np.all(memory[~written] == 0xFF)
    # Each step's own changes add up to the same memory.
    rebuilt = np.full(memory.size, 0xFF, np.uint8)
    for place in np.unique(trace.shared.sequence).tolist():
        changed = shared_changes(trace.shared, place)
        rebuilt[changed] = shared_at(trace.shared, place)[0][changed]
    np.testing.assert_array_equal(rebuilt, memory)


def test_a_warp_trace_includes_shared_stores_of_other_warps() -> None:
    n = 128
    x = np.random.default_rng(6).random(n, np.float32)
    whole, _ = traced(SCAN, [x], (n,), block=n, shared_bytes=8 * n)
    alone, _ = traced(
        SCAN, [x], (n,), block=n, shared_bytes=8 * n, request=TraceRequest(warp_index=2, max_steps=4000)
    )
    warp_trace = alone.trace
    same = block_of(whole).warps[2]
    assert alone.block_trace is None
    assert warp_trace is not None
    assert warp_trace.detail is not None
    assert same.detail is not None
    np.testing.assert_array_equal(no_pointers(warp_trace, len(warp_trace)), no_pointers(same, len(same)))
    for column in ("pc", "active_mask", "executed_mask", "sectors", "wavefronts"):
        np.testing.assert_array_equal(getattr(warp_trace, column), getattr(same, column))
    for step in places_of(warp_trace, "bar.sync"):
        own_memory = shared_at(warp_trace.detail.shared, int(warp_trace.detail.sequence[step]))
        block_memory = shared_at(same.detail.shared, int(same.detail.sequence[step]))
        np.testing.assert_array_equal(own_memory, block_memory)


def test_called_functions_have_their_own_registers() -> None:
    code = """
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void k(int* x)
{
    int kept = x[threadIdx.x] * 3;
    x[threadIdx.x] = fib(threadIdx.x & 7) + kept;
}
"""
    x = np.arange(32, dtype=np.int32)
    result, (contents,) = traced(code, [x])
    trace = result.trace
    assert trace is not None
    assert trace.detail is not None
    fib = [0, 1, 1, 2, 3, 5, 8, 13]
    np.testing.assert_array_equal(contents, np.array([fib[n & 7] for n in range(32)]) + 3 * x)
    assert trace.detail.depth.max() == 7
    last = len(trace) - 1
    assert trace.detail.depth[last] == 0
    kernel = {r for r, d in zip(trace.value_register, trace.detail.order, strict=True) if r}
    assert set(registers_at(trace, last)) <= kernel
    deep = int(np.argmax(trace.detail.depth))
    state = registers_at(trace, deep)
    assert all(register.last_step <= deep for register in state.values())
    kernel_state = registers_at(trace, int(np.flatnonzero(trace.detail.depth == 0)[0]))
    assert set(kernel_state) != set(state) or state == {}


def test_the_count_of_a_barrier_is_traced_in_its_register() -> None:
    code = HEAD + "(int* x) { x[threadIdx.x] = __syncthreads_count(x[threadIdx.x] > 4) + 7; }"
    x = np.random.default_rng(1).integers(0, 10, 96).astype(np.int32)
    result, (contents,) = traced(code, [x], block=96)
    count = int((x > 4).sum())
    assert set(contents.tolist()) == {count + 7}
    for warp in block_of(result).warps:
        (step,) = places_of(warp, "bar.red.popc") or places_of(warp, "barrier.red")
        name = warp.value_register[int(warp.text_index[step])]
        assert set(registers_at(warp, len(warp) - 1)[name].value.tolist()) == {count}


def test_loops_contain_their_iterations() -> None:
    code = """extern "C" __global__ void k(int* x)
{
    int sum = 0;
    #pragma unroll 1
    for (int i = 0; i < 5; ++i) {
        #pragma unroll 1
        for (int j = 0; j <= i; ++j) sum += x[i * 5 + j];
    }
    x[threadIdx.x] = sum;
}"""
    result, _ = traced(code, [np.arange(32, dtype=np.int32)])
    trace = result.trace
    assert trace is not None
    assert trace.detail is not None
    place = trace.detail.order[trace.text_index]
    visits = {int(first): int((place == first).sum()) for first, _ in trace.detail.loops}
    assert sorted(visits.values()) == [5, 15]
    (outer, inner) = sorted(trace.detail.loops.tolist(), key=lambda pair: pair[1] - pair[0], reverse=True)
    assert outer[0] <= inner[0]
    assert inner[1] <= outer[1]


@pytest.mark.parametrize("steps", [50, 51, 60, 200])
def test_a_truncated_trace_contains_whole_steps_only(steps: int) -> None:
    n = 128
    x = np.random.default_rng(5).random(n, np.float32)
    result, (contents,) = traced(
        SCAN,
        [x],
        (n,),
        block=n,
        shared_bytes=8 * n,
        request=TraceRequest(max_steps=steps, is_whole_block=True),
    )
    full, (whole,) = traced(SCAN, [x], (n,), block=n, shared_bytes=8 * n)
    trace = block_of(result)
    assert trace.truncated
    assert sum(len(w) for w in trace.warps) == trace.steps == steps
    np.testing.assert_array_equal(contents, whole)
    for cut, uncut in zip(trace.warps, block_of(full).warps, strict=True):
        np.testing.assert_array_equal(no_pointers(cut, len(cut)), no_pointers(uncut, len(cut)))
        np.testing.assert_array_equal(cut.executed_mask, uncut.executed_mask[: len(cut)])
    np.testing.assert_array_equal(
        shared_at(trace.shared, steps - 1), shared_at(block_of(full).shared, steps - 1)
    )


def test_a_block_that_waits_for_others_is_traced_to_its_end() -> None:
    code = """
#include <cooperative_groups.h>
extern "C" __global__ void k(int* x)
{
    __shared__ int mine[32];
    mine[threadIdx.x] = 5 * x[threadIdx.x];
    cooperative_groups::this_grid().sync();
    x[32 * (blockIdx.x + 1) + threadIdx.x] = mine[threadIdx.x] + 1;
}
"""
    x = np.zeros(160, np.int32)
    x[:32] = np.arange(32)
    request = TraceRequest((1, 0, 0), is_whole_block=True)
    result, (contents,) = traced(code, [x], request=request, grid=4, cooperative=True)
    np.testing.assert_array_equal(contents[32:].reshape(4, 32), np.tile(5 * np.arange(32) + 1, (4, 1)))
    trace = result.trace
    assert trace is not None
    assert trace.block_index == (1, 0, 0)
    assert trace.detail is not None
    assert "ret" in trace.instruction[int(trace.text_index[-1])]
    memory, written = shared_at(trace.detail.shared, len(trace))
    assert written.all()
    np.testing.assert_array_equal(memory.view(np.int32), 5 * np.arange(32))
