"""Functions that are not inlined and wait for other threads: barriers, locks and flags inside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine import ptx_runner
from tests.fuzz import generator, virtual_run
from tests.trace_state import registers_at
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import inline, ir, parser
from virtualgpu.compile.ptx.flow import callgraph
from virtualgpu.cuda_errors import IllegalAddressError, LaunchFailure, LaunchTimeoutError
from virtualgpu.engine import LaunchResult, Program, TraceRequest
from virtualgpu.engine.run import program
from virtualgpu.errors import NotSupportedError

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

Ints = npt.NDArray[np.int32]
HEAD = 'extern "C" __global__ void k'
ROTATE = """
__device__ __noinline__ int next_of(int* s, int v) {
    s[threadIdx.x] = v;
    __syncthreads();
    int r = s[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    return r;
}
"""


def launch(
    code: str, *arrays: np.ndarray, grid: int = 1, block: int = 96, target: int = 80, **options: Any
) -> tuple[LaunchResult, list[np.ndarray]]:
    """Run a kernel of pointers; its counters and the arrays after it."""
    ptx = nvrtc.compile_ptx(code, target=target).ptx
    return ptx_runner.run(ptx, "k", arrays, grid, block, source=code, **options)


def ints(count: int) -> Ints:
    return np.random.default_rng(count).integers(0, 1000, count).astype(np.int32)


@pytest.mark.parametrize("target", [75, 90, 120])
def test_a_barrier_in_a_function_called_in_a_loop(target: int) -> None:
    code = (
        ROTATE
        + HEAD
        + """(int* x, const int* turns) {
        __shared__ int s[96];
        int v = x[threadIdx.x];
        #pragma unroll 1
        for (int i = 0; i < *turns; ++i) v = 3 * next_of(s, v) + i;
        x[threadIdx.x] = v;
    }"""
    )
    x = ints(96)
    _, (out, _) = launch(code, x, np.array([7], np.int32), target=target)
    expected = x.copy()
    for i in range(7):
        expected = 3 * np.roll(expected, -1) + np.int32(i)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("target", [75, 100])
def test_a_waiting_function_called_twice_and_nested(target: int) -> None:
    code = (
        ROTATE
        + """
    __device__ __noinline__ int twice(int* s, int v, int k) {
        int a = next_of(s, v);
        if (k & 1) return a;
        return next_of(s, a + k) - a;
    }
    """
        + HEAD
        + """(int* x, int* y) {
        __shared__ int s[96];
        int v = twice(s, x[threadIdx.x], x[0]);
        y[threadIdx.x] = v;
        x[threadIdx.x] = twice(s, v, 1) + next_of(s, 5 * v);
    }"""
    )
    for first in (4, 5):
        x = ints(96)
        x[0] = first
        _, (out, middle) = launch(code, x, np.zeros_like(x), target=target)
        a = np.roll(x, -1)
        v = a if first & 1 else np.roll(a + first, -1) - a
        np.testing.assert_array_equal(middle, v)
        np.testing.assert_array_equal(out, np.roll(v, -1) + np.roll(5 * v, -1))


def test_waiting_functions_with_structures_arrays_and_switches() -> None:
    code = """
    struct Summary { int least, most; double mean; int order[5]; };
    __device__ __noinline__ Summary summarise(int* s, Summary old, int how) {
        __shared__ int least, most, total;
        int mine[8];
        for (int i = 0; i < 8; ++i) mine[i] = s[(threadIdx.x + i * how) % blockDim.x];
        if (threadIdx.x == 0) { least = 1 << 30; most = -1; total = 0; }
        __syncthreads();
        switch (how) {
            case 0: atomicMin(&least, mine[0]); break;
            case 1: atomicMax(&most, mine[how]); break;
            case 2: atomicAdd(&total, mine[how * 3]); break;
            case 3: atomicAdd(&total, 1); atomicMin(&least, mine[3]); break;
            case 4: atomicMax(&most, mine[4] + 1); break;
            default: atomicAdd(&total, how);
        }
        __syncthreads();
        Summary out = old;
        out.least = least; out.most = most; out.mean = total / 4.0;
        out.order[how % 5] = mine[(threadIdx.x + how) % 8];
        __syncthreads();
        return out;
    }
    extern "C" __global__ void k(int* x, double* means) {
        extern __shared__ int s[];
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        Summary all = {};
        #pragma unroll 1
        for (int how = 0; how < 7; ++how) {
            all = summarise(s, all, how);
            if (threadIdx.x == 0) { means[3 * how] = all.mean; means[3 * how + 1] = all.least;
                                    means[3 * how + 2] = all.most; }
        }
        x[threadIdx.x] = all.order[0] + 10 * all.order[1] + 100 * all.order[2] + all.order[3] - all.order[4];
    }"""
    n = 96
    x = ints(n)
    _, (out, means) = launch(code, x, np.zeros(21), shared_bytes=4 * n)
    order = np.zeros((5, n), np.int64)
    t = np.arange(n)
    rows = []
    for case in range(7):
        own_values = np.array([x[(t + i * case) % n] for i in range(8)])
        smallest = 1 << 30
        largest = -1
        total = 0
        if case == 0:
            smallest = x.min()
        elif case == 1:
            largest = x.max()
        elif case == 2:
            total = own_values[6].sum()
        elif case == 3:
            total = n
            smallest = x.min()
        elif case == 4:
            largest = x.max() + 1
        else:
            total = n * case
        order[case % 5] = own_values[(t + case) % 8, t]
        rows += [total / 4, smallest, largest]
    np.testing.assert_array_equal(means, rows)
    np.testing.assert_array_equal(out, order[0] + 10 * order[1] + 100 * order[2] + order[3] - order[4])


def test_a_waiting_function_is_called_by_some_blocks_only() -> None:
    code = (
        ROTATE
        + HEAD
        + """(int* x) {
        __shared__ int s[96];
        int* mine = x + blockIdx.x * blockDim.x;
        int v = mine[threadIdx.x];
        if (blockIdx.x % 2) v = next_of(s, v); else if (blockIdx.x == 2) v = -next_of(s, v + 1);
        mine[threadIdx.x] = v;
    }"""
    )
    x = ints(5 * 96)
    _, (out,) = launch(code, x, grid=5)
    blocks = x.reshape(5, 96)
    rolled = np.roll(blocks, -1, axis=1)
    np.testing.assert_array_equal(
        out.reshape(5, 96), [blocks[0], rolled[1], -(rolled[2] + 1), rolled[3], blocks[4]]
    )


def test_threads_can_exit_before_others_reach_the_barrier() -> None:
    code = """
    __device__ __noinline__ int count_over(int v, int limit) {
        if (v < 0) asm volatile("exit;");
        return __syncthreads_count(v > limit);
    }
    extern "C" __global__ void k(int* x) { x[threadIdx.x] = count_over(x[threadIdx.x], 400); }"""
    x = ints(96)
    x[::7] = -5
    _, (out,) = launch(code, x)
    np.testing.assert_array_equal(out, np.where(x < 0, -5, (x > 400).sum()))


@pytest.mark.skipif(
    nvrtc.is_available() and not nvrtc.find_include_options(), reason="the CUDA headers are not installed"
)
def test_a_grid_wide_barrier_in_a_function() -> None:
    code = """#include <cooperative_groups.h>
    namespace cg = cooperative_groups;
    __device__ __noinline__ int left_neighbour(int* all, int v) {
        cg::grid_group grid = cg::this_grid();
        all[grid.thread_rank()] = v;
        grid.sync();
        int r = all[(grid.thread_rank() + grid.size() - 1) % grid.size()];
        grid.sync();
        return r;
    }
    extern "C" __global__ void k(int* x, int* all) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        int v = x[i];
        for (int n = 0; n < 3; ++n) v = 2 * left_neighbour(all, v) + n;
        x[i] = v;
    }"""
    x = ints(320) % 50
    _, (out, _) = launch(code, x, np.zeros_like(x), grid=5, block=64, cooperative=True)
    expected = x
    for n in range(3):
        expected = 2 * np.roll(expected, 1) + n
    np.testing.assert_array_equal(out, expected)


@pytest.mark.skipif(
    nvrtc.is_available() and not nvrtc.find_include_options(), reason="the CUDA headers are not installed"
)
def test_a_split_barrier_in_a_function() -> None:
    code = """#include <cuda/barrier>
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __device__ __noinline__ int across(barrier& b, int* s, int v) {
        s[threadIdx.x] = v;
        auto token = b.arrive();
        b.wait(cuda::std::move(token));
        int r = s[blockDim.x - 1 - threadIdx.x];
        b.arrive_and_wait();
        return r;
    }
    extern "C" __global__ void k(int* x) {
        __shared__ barrier b;
        __shared__ int s[96];
        if (threadIdx.x == 0) init(&b, blockDim.x);
        __syncthreads();
        int v = across(b, s, x[threadIdx.x]);
        x[threadIdx.x] = v + 2 * across(b, s, v + (int)threadIdx.x);
    }"""
    x = ints(96)
    _, (out,) = launch(code, x)
    np.testing.assert_array_equal(out, x[::-1] + 2 * (x + np.arange(96)[::-1]))


LOCKS = {
    "in one": "__device__ __noinline__ void lock(int* l) { while (atomicCAS(l, 0, 1) != 0) {} }",
    "in two": """
    __device__ __noinline__ bool try_lock(int* l) { return atomicCAS(l, 0, 1) == 0; }
    __device__ __noinline__ void lock(int* l) { while (!try_lock(l)) {} }""",
}


@pytest.mark.parametrize("name", LOCKS)
def test_lanes_of_a_warp_take_a_lock_in_a_function(name: str) -> None:
    code = (
        LOCKS[name]
        + """
    __device__ __noinline__ void unlock(int* l) { __threadfence(); atomicExch(l, 0); }
    """
        + HEAD
        + "(int* l, volatile int* count) { lock(l); *count = *count + 1; unlock(l); }"
    )
    _, (lock, count) = launch(code, np.zeros(1, np.int32), np.zeros(1, np.int32), grid=2, block=64)
    assert (lock[0], count[0]) == (0, 128)


def test_a_warp_waits_for_another_in_a_function() -> None:
    code = """
    __device__ __noinline__ int wait_for(volatile int* flag) { while (*flag == 0) {} return *flag; }
    extern "C" __global__ void k(int* x) {
        __shared__ volatile int flag;
        if (threadIdx.x == 0) flag = 0;
        __syncthreads();
        if (threadIdx.x < 32) x[threadIdx.x] = wait_for(&flag);
        else if (threadIdx.x == 70) flag = 9;
    }"""
    _, (out,) = launch(code, np.zeros(32, np.int32))
    assert (out == 9).all()


# -- faults ---------------------------------------------------------------------------------------------


def test_a_divergent_barrier_in_a_function_is_named_with_its_line() -> None:
    code = """
    __device__ __noinline__ void meet(int* s) {
        s[threadIdx.x] = 1;
        if (threadIdx.x < 40)
            __syncthreads();
        else
            asm volatile("bar.sync 0;");
    }
    extern "C" __global__ void k(int* x) { __shared__ int s[96]; meet(s); x[0] = s[95]; }
    """
    with pytest.raises(LaunchFailure, match=r"different barriers \(lines 5, 7\)") as caught:
        launch(code, np.zeros(1, np.int32))
    assert caught.value.site.line == 5
    assert caught.value.site.source_text == "__syncthreads();"


def test_a_function_that_part_of_a_block_calls_is_a_deadlock() -> None:
    code = (
        ROTATE
        + HEAD
        + """(int* x) {
        __shared__ int s[96];
        if (threadIdx.x < 64) x[threadIdx.x] = next_of(s, x[threadIdx.x]);
        asm volatile("bar.sync 1, 96;");
    }"""
    )
    with pytest.raises(LaunchFailure, match="96 threads wait for more threads than can arrive") as caught:
        launch(code, ints(96))
    assert caught.value.site.line == 4


def test_an_illegal_access_in_a_function_names_line_and_array() -> None:
    code = """
    __device__ __noinline__ int shift(int* a, int v) {
        a[threadIdx.x] = v;
        __syncthreads();
        return a[threadIdx.x +
                 100000000];
    }
    extern "C" __global__ void k(int* x, int* y, int* z) {
        x[threadIdx.x] = shift(threadIdx.x == 500 ? nullptr : y, x[threadIdx.x]);
    }
    """
    with pytest.raises(
        IllegalAddressError, match=r"past the end of the int32 array of shape \(97,\)"
    ) as caught:
        launch(code, ints(96), np.zeros(97, np.int32), ints(98))
    assert caught.value.site.line in (5, 6)


@pytest.mark.parametrize(
    "code",
    [
        """__device__ __noinline__ int f(int n) { __syncthreads(); return n < 1 ? 0 : f(n - 1) * f(n - 2); }
        extern "C" __global__ void k(int* x) { x[threadIdx.x] = f(x[0]); }""",
        """__device__ __noinline__ int f(int n) { __syncthreads(); return n; }
        __device__ __noinline__ int g(int n) { return -n; }
        extern "C" __global__ void k(int* x) { int (*p)(int) = x[0] ? f : g; x[threadIdx.x] = p(1); }""",
    ],
)
def test_recursion_and_pointers_are_refused_clearly(code: str) -> None:
    with pytest.raises(NotSupportedError, match="calls itself or is called through a pointer"):
        launch(code, np.ones(96, np.int32))


def test_a_hang_in_a_function_is_stopped_and_reported() -> None:
    code = """
    __device__ __noinline__ void wait_for(volatile int* flag) {
        while (*flag == 0) {}
    }
    extern "C" __global__ void k(int* x) { wait_for(x); }
    """
    with pytest.raises(LaunchTimeoutError) as caught:
        launch(code, np.zeros(1, np.int32), watchdog_s=0.3)
    assert caught.value.site.line == 3


# -- counters and traces --------------------------------------------------------------------------------


def test_counters_add_up_over_all_calls() -> None:
    code = (
        ROTATE
        + HEAD
        + """(int* x) {
        __shared__ int s[96];
        int v = next_of(s, x[threadIdx.x]);
        v += next_of(s, v);
        x[threadIdx.x] = next_of(s, v);
    }"""
    )
    x = ints(2 * 96)
    result, _ = launch(code, x[:96], grid=2)
    counters = result.counters
    assert counters is not None
    warps = 2 * 3
    calls = 3
    shared = [a for a in counters.accesses if a.space in ("shared", "generic")]
    assert [(a.line, a.kind, a.requests) for a in shared] == [
        (3, "store", warps * calls),
        (5, "load", warps * calls),
    ]
    assert all(a.bytes_requested == 4 * 32 * warps * calls for a in shared)
    assert counters.line_warp_instructions[4] == warps * calls
    # The same steps as without barriers, where the function is called and not copied.
    plain, _ = launch(
        code.replace("__syncthreads();", 'asm volatile("bar.arrive 1, 3200;");'), x[:96], grid=2
    )
    assert plain.counters is not None
    assert counters.warp_instructions == plain.counters.warp_instructions
    assert counters.line_warp_instructions == plain.counters.line_warp_instructions


def test_a_trace_shows_the_function_as_a_call() -> None:
    code = (
        ROTATE
        + """
    __device__ __noinline__ int twice(int* s, int v) { return next_of(s, next_of(s, v)); }
    """
        + HEAD
        + """(int* x) {
        __shared__ int s[32];
        x[threadIdx.x] = twice(s, x[threadIdx.x]) + 1;
    }"""
    )
    x = ints(32)
    request = TraceRequest(is_whole_block=True)
    result, (out,) = launch(code, x, block=32, trace=request)
    called, _ = launch(code.replace("__syncthreads", "__syncwarp"), x, block=32, trace=request)
    np.testing.assert_array_equal(out, np.roll(x, -2) + 1)
    inlined_trace = result.trace
    called_trace = called.trace
    assert inlined_trace is not None
    assert called_trace is not None
    assert inlined_trace.detail is not None
    assert called_trace.detail is not None
    inlined_steps = [
        n for n, index in enumerate(inlined_trace.text_index) if "bar" not in inlined_trace.instruction[index]
    ]
    called_steps = [
        n for n, index in enumerate(called_trace.text_index) if "bar" not in called_trace.instruction[index]
    ]
    assert int(inlined_trace.detail.depth.max()) == 2
    assert inlined_trace.line[inlined_steps].tolist() == called_trace.line[called_steps].tolist()
    assert (
        inlined_trace.detail.depth[inlined_steps].tolist() == called_trace.detail.depth[called_steps].tolist()
    )
    deepest = int(np.flatnonzero(inlined_trace.detail.depth == 2)[-1])
    state = registers_at(inlined_trace, deepest)
    assert state
    assert all(name.startswith("%") and "@" not in name for name in state)
    values = {tuple(register.value.view(np.int64)[:32].tolist()) for register in state.values()}
    assert tuple(np.roll(x, -2).tolist()) in values


def test_only_functions_that_wait_are_copied() -> None:
    code = (
        ROTATE
        + """
    __device__ __noinline__ int plain(int v) { return v * v + 1; }
    __device__ __noinline__ int around(int* s, int v) { return plain(next_of(s, v)); }
    """
        + HEAD
        + "(int* x) { __shared__ int s[96]; x[threadIdx.x] = plain(around(s, x[threadIdx.x])); }"
    )
    module = parser.parse(nvrtc.compile_ptx(code, target=80).ptx)
    names = {
        name.split("P")[0].lstrip("_Z0123456789") for name in callgraph.find_waiting_functions(module, "k")
    }
    assert {n.rstrip("i") for n in names} == {"next_of", "around"}
    merged = inline.inline_waiting_functions(module, "k").functions["k"]
    assert {i.root for i in merged.instructions if i.call_depth == 0 and i.opcode.startswith("call")} == {
        "bra",
        "call",
    }
    assert merged.registers.keys() > module.functions["k"].registers.keys()
    assert inline.inline_waiting_functions(module, "k") is not module
    harmless = parser.parse(nvrtc.compile_ptx(code.replace("__syncthreads();", ""), target=80).ptx)
    assert inline.inline_waiting_functions(harmless, "k") is harmless


def test_too_many_copies_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "_MAX_INSTRUCTIONS", 30)
    code = ROTATE + HEAD + "(int* x) { __shared__ int s[96]; x[0] = next_of(s, next_of(s, next_of(s, 1))); }"
    with pytest.raises(NotSupportedError, match="too large"):
        launch(code, ints(96))


def every_function(module: ir.Module, entry: str) -> set[str]:
    """All functions below a kernel that do not call themselves."""
    below = callgraph.find_reachable(module, callgraph.list_callees(module.functions[entry]))
    return {
        n
        for n in below
        if n not in callgraph.find_reachable(module, callgraph.list_callees(module.functions[n]))
    }


def forget_code() -> None:
    """What is kept by a kernel's text holds only while the same functions are copied."""
    program._compile_kernel_for_processor.cache_clear()
    program._compute_kernel_amounts.cache_clear()


@pytest.fixture
def fresh_code() -> Iterator[None]:
    forget_code()
    yield
    forget_code()


def test_copied_functions_have_the_results_of_called_functions(
    monkeypatch: pytest.MonkeyPatch, fresh_code: None
) -> None:
    """Generated kernels give the same answers and counts when every function is copied."""
    loaded, kernels = virtual_run.compiled(200, 100)
    calling = [k for k in kernels.values() if every_function(loaded.module, k.name)]
    assert len(calling) >= 3
    results: list[LaunchResult] = []

    class Listening(Program):
        def launch(self, *given: Any, **named: Any) -> LaunchResult:
            results.append(super().launch(*given, **named))
            return results[-1]

    monkeypatch.setattr(virtual_run, "Program", Listening)
    answers = [generator.digest(virtual_run.run(loaded, k, instrument="counters")) for k in calling]
    forget_code()
    monkeypatch.setattr(callgraph, "find_waiting_functions", every_function)
    assert [generator.digest(virtual_run.run(loaded, k, instrument="counters")) for k in calling] == answers
    for called, copied in zip(results[: len(calling)], results[len(calling) :], strict=True):
        assert called.counters is not None
        assert copied.counters is not None
        assert copied.counters.thread_instructions == called.counters.thread_instructions
        assert copied.counters.line_warp_instructions == called.counters.line_warp_instructions
        assert {*copied.counters.branches} == {*called.counters.branches}
        assert {*copied.counters.accesses} == {*called.counters.accesses}
