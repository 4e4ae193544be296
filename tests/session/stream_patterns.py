"""Programs with streams, right ones and wrong ones: each is checked as a whole, and takes what it names.

`a`, `b`, `c`, `main` and `other` are streams that do not wait for the default stream, as `blocking` does.
`x`, `y` and `z` are arrays of zeros, `buffer` is page-locked memory. A wrong program declares the kinds of
findings that it must give, and gives no others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

N = 4_096
Program = Callable[[Any], object]
RIGHT: dict[str, Program] = {}
WRONG: dict[str, tuple[Program, set[str]]] = {}

RAW = "read after write"
WAR = "write after read"
WAW = "write after write"
FREED = "freed too early"
REUSED = "reused too early"
USED = "used after it was freed"
CHANGED = "host changed too early"


def taking_arguments(program: Callable[..., None]) -> Program:
    """Return a function of `cp` that calls the program, and waits for the device before and after it."""

    def argument(cp: Any, name: str) -> Any:
        if name in ("x", "y", "z"):
            return cp.zeros(N, cp.float32)
        if name == "buffer":
            return pinned(cp)
        return cp if name == "cp" else cp.cuda.Stream(non_blocking=name != "blocking")

    def run(cp: Any) -> None:
        arguments = [argument(cp, name) for name in inspect.signature(program).parameters]
        cp.cuda.Device().synchronize()
        program(*arguments)
        cp.cuda.Device().synchronize()

    return run


def right(program: Callable[..., None]) -> None:
    RIGHT[program.__name__] = taking_arguments(program)


def wrong(*kinds: str) -> Callable[[Callable[..., None]], None]:
    def note(program: Callable[..., None]) -> None:
        WRONG[program.__name__] = taking_arguments(program), set(kinds)

    return note


def two(cp: Any) -> tuple[Any, Any]:
    return cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)


def idle_arrays(cp: Any, *count: int) -> Any:
    """Return arrays whose work has ended."""
    arrays = [cp.zeros(n, cp.float32) for n in count or (N,)]
    cp.cuda.Device().synchronize()
    return arrays if len(arrays) > 1 else arrays[0]


def pinned(cp: Any, n: int = N) -> Any:
    memory = cp.cuda.alloc_pinned_memory(4 * n)
    array = np.frombuffer(memory, np.float32, n)
    array[:] = 1
    return array


def twice(cp: Any) -> Any:
    return cp.RawKernel(
        'extern "C" __global__ void twice(const float* x, float* y, int n) {'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }",
        "twice",
    )


def part(cp: Any) -> Any:
    """Return a kernel that writes `count` elements of an array from the index `first` on, `step` apart."""
    return cp.RawKernel(
        'extern "C" __global__ void part(float* x, int first, int count, int step) {'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < count) x[first + i * step] = i; }",
        "part",
    )


# One array, two streams


@wrong(RAW)
def published_example(cp: Any, a: Any) -> None:
    """The array is made on the default stream and used on another that does not wait for it."""
    x = cp.arange(N, dtype=cp.float32)
    with a:
        y = cp.sqrt(x)
    a.synchronize()
    y.get()


@right
def published_example_mended(cp: Any, a: Any) -> None:
    x = cp.arange(N, dtype=cp.float32)
    a.wait_event(cp.cuda.Stream.null.record())
    with a:
        y = cp.sqrt(x)
    a.synchronize()
    y.get()


@right
def made_on_the_default_stream_used_on_a_blocking_one(cp: Any, blocking: Any) -> None:
    x = cp.arange(N, dtype=cp.float32)
    with blocking:
        y = cp.sqrt(x)
    z = y + 1
    z.get()


@wrong(WAW)
def both_write(a: Any, b: Any, x: Any) -> None:
    with a:
        x += 1
    with b:
        x[...] = 2


@wrong(WAR)
def overwritten_while_read(cp: Any, a: Any, b: Any, x: Any, y: Any) -> None:
    with a:
        cp.multiply(x, 2, out=y)
    with b:
        x.fill(0)


@right
def both_read(cp: Any, a: Any, b: Any, x: Any, y: Any, z: Any) -> None:
    with a:
        cp.multiply(x, 2, out=y)
    with b:
        cp.multiply(x, 3, out=z)


@wrong(RAW)
def copied_to_the_host_by_another_stream(a: Any, b: Any, x: Any) -> None:
    with a:
        x += 1
    with b:
        x.get()
    a.synchronize()


# Legacy and per-thread default streams


@right
def default_stream_writes_under_a_blocking_reader(cp: Any, blocking: Any, x: Any, y: Any) -> None:
    with blocking:
        cp.multiply(x, 2, out=y)
    x.fill(1)


@right
def default_stream_between_two_blocking_ones(cp: Any) -> None:
    a = cp.cuda.Stream()
    b = cp.cuda.Stream()
    x, y = idle_arrays(cp, N, N)
    with a:
        x += 1
    y += 1  # on the default stream: after a's work, before b's
    with b:
        x *= 2


@wrong(RAW)
def two_blocking_streams_alone(cp: Any) -> None:
    a = cp.cuda.Stream()
    b = cp.cuda.Stream()
    x = idle_arrays(cp)
    with a:
        x += 1
    with b:
        x *= 2


@right
def per_thread_default_stream_and_the_legacy_one(cp: Any, x: Any) -> None:
    with cp.cuda.Stream.ptds:
        x += 1
    x *= 2


@wrong(RAW)
def per_thread_default_stream_and_another(cp: Any, a: Any, x: Any) -> None:
    with cp.cuda.Stream.ptds:
        x += 1
    with a:
        x *= 2


# Events


@wrong(RAW)
def recorded_before_the_work(cp: Any, a: Any, b: Any, x: Any, y: Any) -> None:
    ready = cp.cuda.Event()
    ready.record(a)
    with a:
        x += 1
    b.wait_event(ready)
    with b:
        cp.multiply(x, 2, out=y)


@wrong(RAW)
def waited_for_before_it_was_recorded(cp: Any, a: Any, b: Any, x: Any, y: Any) -> None:
    ready = cp.cuda.Event()
    b.wait_event(ready)
    with a:
        x += 1
        ready.record()
    with b:
        cp.multiply(x, 2, out=y)


@right
def recorded_again_after_the_wait(cp: Any, a: Any, b: Any, x: Any, y: Any, z: Any) -> None:
    ready = cp.cuda.Event()
    with a:
        x += 1
        ready.record()
    b.wait_event(ready)
    with a:
        z += 1
        ready.record()
    with b:
        cp.multiply(x, 2, out=y)


@wrong(RAW)
def recorded_again_by_another_stream_before_the_wait(
    cp: Any, a: Any, b: Any, c: Any, x: Any, y: Any, z: Any
) -> None:
    ready = cp.cuda.Event()
    with a:
        x += 1
        ready.record()
    with c:
        z += 1
        ready.record()
    b.wait_event(ready)
    with b:
        cp.multiply(x, 2, out=y)


@wrong(RAW)
def work_after_the_wait_that_the_event_does_not_cover(
    cp: Any, a: Any, b: Any, x: Any, y: Any, z: Any
) -> None:
    with a:
        x += 1
        ready = a.record()
        z += 1
    b.wait_event(ready)
    with b:
        cp.multiply(x, 2, out=y)
        cp.add(y, z, out=y)


@right
def host_waits_for_an_event(cp: Any, a: Any, b: Any, x: Any, y: Any) -> None:
    with a:
        x += 1
        ready = a.record()
    ready.synchronize()
    with b:
        cp.multiply(x, 2, out=y)
    b.synchronize()


@right
def host_asks_until_an_event_is_done(cp: Any, a: Any, b: Any, x: Any, y: Any) -> None:
    with a:
        x += 1
        ready = a.record()
    while not ready.done:
        pass
    with b:
        cp.multiply(x, 2, out=y)
    b.synchronize()


@wrong(RAW)
def host_asks_once_and_goes_on(cp: Any, a: Any, b: Any) -> None:
    x, y = idle_arrays(cp, 1 << 20, 1 << 20)
    with a:
        for _ in range(20):
            x += 1
        ready = a.record()
    ready.done  # noqa: B018 - the answer is not heeded
    with b:
        cp.multiply(x, 2, out=y)
    cp.cuda.Device().synchronize()


@right
def three_streams_in_a_row(cp: Any, a: Any, b: Any, c: Any, x: Any, y: Any, z: Any) -> None:
    with a:
        x += 1
    b.wait_event(a.record())
    with b:
        y += 1
    c.wait_event(b.record())
    with c:
        cp.add(x, y, out=z)
    c.synchronize()
    z.get()


@right
def order_through_a_stream_without_work(cp: Any, a: Any, b: Any, c: Any, x: Any, y: Any) -> None:
    with a:
        x += 1
    c.wait_event(a.record())
    b.wait_event(c.record())
    with b:
        cp.multiply(x, 2, out=y)


@right
def host_waits_for_both_producers(a: Any, b: Any, x: Any, y: Any) -> None:
    with a:
        x += 1
    with b:
        y += 1
    a.synchronize()
    b.synchronize()
    z = x + y
    z.get()


@right
def fan_out_and_in(cp: Any, main: Any) -> None:
    workers = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    x = idle_arrays(cp, 4 * N)
    with main:
        x += 1
        begin = main.record()
    for k, worker in enumerate(workers):
        worker.wait_event(begin)
        with worker:
            x[k * N : (k + 1) * N] *= k
        main.wait_event(worker.record())
    with main:
        total = x.sum()
    main.synchronize()
    total.get(stream=main)


# Views and parts of arrays


@right
def disjoint_slices(a: Any, b: Any, x: Any) -> None:
    with a:
        x[: N // 2] += 1
    with b:
        x[N // 2 :] += 2


@wrong(WAW)
def slices_that_share_one_element(a: Any, b: Any, x: Any) -> None:
    with a:
        x[: N // 2 + 1].fill(1)
    with b:
        x[N // 2 :].fill(2)


@right
def columns_of_a_matrix(a: Any, b: Any, x: Any) -> None:
    x = x.reshape(64, 64)
    with a:
        x[:, :32] += 1
    with b:
        x[:, 32:] += 1


@wrong(WAW)
def row_and_column(a: Any, b: Any, x: Any) -> None:
    x = x.reshape(64, 64)
    with a:
        x[3, :].fill(1)
    with b:
        x[:, 5].fill(2)


@wrong(WAW)
def a_view_of_the_same_memory(a: Any, b: Any, x: Any) -> None:
    turned = x.reshape(64, 64).T
    with a:
        x.fill(1)
    with b:
        turned.fill(2)


@right
def kernels_with_the_whole_array_that_interleave(cp: Any, a: Any, b: Any, x: Any) -> None:
    kernel = part(cp)
    kernel((8,), (256,), (x, 0, N // 2, 2), stream=a)
    kernel((8,), (256,), (x, 1, N // 2, 2), stream=b)


@wrong(WAW)
def kernels_whose_parts_meet(cp: Any, a: Any, b: Any, x: Any) -> None:
    kernel = part(cp)
    kernel((9,), (256,), (x, 0, N // 2 + 1, 1), stream=a)
    kernel((8,), (256,), (x, N // 2, N // 2, 1), stream=b)


@right
def kernels_that_share_their_input(cp: Any, a: Any, b: Any, x: Any, y: Any, z: Any) -> None:
    kernel = twice(cp)
    kernel((16,), (256,), (x, y, N), stream=a)
    kernel((16,), (256,), (x, z, N), stream=b)


@wrong(RAW)
def kernel_reads_what_another_writes(cp: Any, a: Any, b: Any, x: Any, y: Any, z: Any) -> None:
    kernel = twice(cp)
    kernel((16,), (256,), (x, y, N), stream=a)
    kernel((16,), (256,), (y, z, N), stream=b)


@right
def atomics_of_two_streams_on_one_counter(cp: Any, a: Any, b: Any) -> None:
    count = cp.RawKernel(
        'extern "C" __global__ void count(int* bins) { atomicAdd(bins + threadIdx.x % 4, 1); }', "count"
    )
    bins = cp.zeros(4, cp.int32)
    cp.cuda.Device().synchronize()
    count((4,), (64,), (bins,), stream=a)
    count((4,), (64,), (bins,), stream=b)
    cp.cuda.Device().synchronize()
    bins.get()


@wrong(WAW)
def counter_cleared_while_another_stream_counts(cp: Any, a: Any, b: Any) -> None:
    count = cp.RawKernel(
        'extern "C" __global__ void count(int* bins) { atomicAdd(bins + threadIdx.x % 4, 1); }', "count"
    )
    bins = cp.zeros(4, cp.int32)
    cp.cuda.Device().synchronize()
    count((4,), (64,), (bins,), stream=a)
    with b:
        bins.fill(0)
    cp.cuda.Device().synchronize()


@wrong(RAW)
def matrix_product_reads_too_early(cp: Any, a: Any, b: Any) -> None:
    x = idle_arrays(cp).reshape(64, 64)
    y = idle_arrays(cp).reshape(64, 64)
    with a:
        cp.matmul(x, x, out=y)
    with b:
        z = y @ x
    cp.cuda.Device().synchronize()
    del z


@wrong(RAW)
def elementwise_kernel_reads_too_early(cp: Any, a: Any, b: Any, x: Any, y: Any) -> None:
    scale = cp.ElementwiseKernel("T x, T f", "T y", "y = f * x", "scale")
    with a:
        x += 1
    with b:
        scale(x, np.float32(3), y)


# Memory that comes and goes


@wrong(FREED)
def temporary_freed_too_early(cp: Any, a: Any) -> None:
    y = idle_arrays(cp)
    x = idle_arrays(cp)
    with a:
        cp.multiply(x, 2, out=y)
    del x
    a.synchronize()


@right
def temporary_freed_after_its_stream_waits(cp: Any, a: Any) -> None:
    y = idle_arrays(cp)
    x = idle_arrays(cp)
    with a:
        cp.multiply(x, 2, out=y)
    cp.cuda.Stream.null.wait_event(a.record())
    del x
    z = cp.ones(N, cp.float32)
    z.get()


@wrong(REUSED)
def block_reused_while_another_stream_reads_it(cp: Any, a: Any) -> None:
    y = idle_arrays(cp)
    x = idle_arrays(cp)
    with a:
        cp.multiply(x, 2, out=y)
    del x
    z = cp.ones(N, cp.float32)
    cp.cuda.Device().synchronize()
    del z


@right
def temporaries_of_an_expression(cp: Any, a: Any, b: Any, x: Any) -> None:
    with a:
        y = (x * 2 + 1) / (x + 3)
    with b:
        z = (x * 3 + 1) / (x + 4)
    cp.cuda.Device().synchronize()
    del y, z


@right
def blocking_stream_reads_an_array_that_is_freed(cp: Any, blocking: Any) -> None:
    y = idle_arrays(cp)
    x = idle_arrays(cp)
    with blocking:
        cp.multiply(x, 2, out=y)
    del x  # the default stream's arena: its next work waits for blocking streams
    z = cp.ones(N, cp.float32)
    z.get()


@wrong(FREED)
def freed_and_given_back_to_the_device(cp: Any, a: Any) -> None:
    y = idle_arrays(cp)
    x = idle_arrays(cp)
    with a:
        cp.multiply(x, 2, out=y)
    del x
    cp.get_default_memory_pool().free_all_blocks()
    a.synchronize()


@right
def segments_given_back_after_the_work(cp: Any, a: Any) -> None:
    y = idle_arrays(cp)
    x = idle_arrays(cp)
    with a:
        cp.multiply(x, 2, out=y)
    a.synchronize()
    del x
    cp.get_default_memory_pool().free_all_blocks()
    z = cp.ones(N, cp.float32)
    z.get()


@wrong(FREED)
def async_pool_freed_in_another_stream(cp: Any, a: Any, b: Any) -> None:
    y = idle_arrays(cp)
    pool = cp.cuda.MemoryAsyncPool()
    with cp.cuda.using_allocator(pool.malloc):
        with a:
            x = cp.ones(N, cp.float32)
        b.wait_event(a.record())
        with b:
            cp.multiply(x, 2, out=y)
        del x  # in the order of a, which does not wait for b
    cp.cuda.Device().synchronize()


@right
def async_pool_freed_in_order(cp: Any, a: Any, b: Any) -> None:
    y = idle_arrays(cp)
    pool = cp.cuda.MemoryAsyncPool()
    with cp.cuda.using_allocator(pool.malloc):
        with a:
            x = cp.ones(N, cp.float32)
        b.wait_event(a.record())
        with b:
            cp.multiply(x, 2, out=y)
        a.wait_event(b.record())
        del x
        with a:
            z = cp.ones(N, cp.float32)
    cp.cuda.Device().synchronize()
    del z


@right
def allocator_without_a_pool(cp: Any, a: Any) -> None:
    y = idle_arrays(cp)
    with cp.cuda.using_allocator(None):
        x = cp.ones(N, cp.float32)
        cp.cuda.Device().synchronize()
        with a:
            cp.multiply(x, 2, out=y)
        del x  # cudaFree waits for the device
    y.get(stream=a)


# Page-locked buffers


@wrong(CHANGED)
def buffer_refilled_in_a_loop_too_early(cp: Any, a: Any, buffer: Any) -> None:
    x = idle_arrays(cp, 8 * N)
    for k in range(8):
        buffer[:] = k
        x[k * N : (k + 1) * N].set(buffer, stream=a)
    a.synchronize()


@right
def two_buffers_in_turn(cp: Any, a: Any) -> None:
    buffers = [pinned(cp), pinned(cp)]
    x = idle_arrays(cp, 8 * N)
    done = [cp.cuda.Event(), cp.cuda.Event()]
    for k in range(8):
        if k >= 2:
            done[k % 2].synchronize()
        buffers[k % 2][:] = k
        x[k * N : (k + 1) * N].set(buffers[k % 2], stream=a)
        done[k % 2].record(a)
    a.synchronize()


@right
def pageable_buffer_refilled_at_once(cp: Any, a: Any) -> None:
    buffer = np.zeros(N, np.float32)
    x = idle_arrays(cp, 4 * N)
    for k in range(4):
        buffer[:] = k
        x[k * N : (k + 1) * N].set(buffer, stream=a)
    a.synchronize()


@right
def buffer_changed_by_a_host_function(a: Any, x: Any, buffer: Any) -> None:
    def refill(_: Any) -> None:
        buffer[:] = 7

    x.set(buffer, stream=a)
    a.launch_host_func(refill, None)
    x.set(buffer, stream=a)
    a.synchronize()


@wrong(WAR)
def host_function_in_another_stream(a: Any, b: Any, x: Any, buffer: Any) -> None:
    def refill(_: Any) -> None:
        buffer[:] = 7

    x.set(buffer, stream=a)
    b.launch_host_func(refill, None)


@right
def buffer_there_and_back(a: Any, x: Any, buffer: Any) -> None:
    for _ in range(3):
        x.set(buffer, stream=a)
        with a:
            x += 1
        x.get(stream=a, out=buffer, blocking=False)
    a.synchronize()
    buffer += 1


@wrong(WAR)
def result_lands_where_another_stream_reads(a: Any, b: Any, x: Any, y: Any, buffer: Any) -> None:
    x.set(buffer, stream=a)
    y.get(stream=b, out=buffer, blocking=False)


# Double buffering on the device


def _ping_pong(cp: Any, heeds: bool) -> None:
    load, compute = two(cp)
    source = pinned(cp, 6 * N)
    result = idle_arrays(cp, 6 * N)
    buffers = idle_arrays(cp, N, N)
    loaded = [cp.cuda.Event(), cp.cuda.Event()]
    used = [cp.cuda.Event(), cp.cuda.Event()]
    for k in range(6):
        if heeds:
            load.wait_event(used[k % 2])  # not recorded in the first two rounds: no wait, and none needed
        buffers[k % 2].set(source[k * N : (k + 1) * N], stream=load)
        loaded[k % 2].record(load)
        compute.wait_event(loaded[k % 2])
        with compute:
            cp.multiply(buffers[k % 2], 2, out=result[k * N : (k + 1) * N])
        used[k % 2].record(compute)
    compute.synchronize()
    load.synchronize()


@right
def ping_pong(cp: Any) -> None:
    _ping_pong(cp, heeds=True)


@wrong(WAR)
def ping_pong_loads_over_what_is_used(cp: Any) -> None:
    _ping_pong(cp, heeds=False)


# Graphs


def _captured(cp: Any, joins: bool = True) -> Any:
    a, b = two(cp)
    x, y, z = idle_arrays(cp, N, N, N)
    a.begin_capture()
    with a:
        x += 1
        fork = a.record()
        b.wait_event(fork)
        with b:
            cp.multiply(x, 2, out=y) if joins else x.fill(9)
        cp.multiply(x, 3, out=z)
        a.wait_event(b.record())
        cp.add(y, z, out=x)
    return a, a.end_capture(), (x, y, z)


@wrong(RAW)
def graph_whose_branches_clash(cp: Any) -> None:
    a, graph, arrays = _captured(cp, joins=False)
    graph.launch(stream=a)
    a.synchronize()
    del arrays


@wrong(RAW)
def result_of_a_graph_read_by_another_stream(cp: Any) -> None:
    a, graph, arrays = _captured(cp)
    other = cp.cuda.Stream(non_blocking=True)
    graph.launch(stream=a)
    with other:
        w = arrays[0] * 2
    cp.cuda.Device().synchronize()
    del w


@right
def result_of_a_graph_after_its_event(cp: Any) -> None:
    a, graph, arrays = _captured(cp)
    other = cp.cuda.Stream(non_blocking=True)
    graph.launch(stream=a)
    other.wait_event(a.record())
    with other:
        w = arrays[0] * 2
    other.synchronize()
    a.wait_event(other.record())
    del w


@right
def graph_in_two_streams(cp: Any) -> None:
    """Launches of one graph never overlap."""
    a, graph, arrays = _captured(cp)
    other = cp.cuda.Stream(non_blocking=True)
    graph.launch(stream=a)
    graph.launch(stream=other)
    cp.cuda.Device().synchronize()
    del arrays


@wrong(RAW, WAR, WAW)
def static_input_refilled_under_a_running_graph(cp: Any) -> None:
    a, graph, arrays = _captured(cp)
    for _ in range(2):
        graph.launch(stream=a)
        arrays[1].fill(1)
    a.synchronize()


# Programs of whole devices


@wrong(RAW)
def streams_that_are_gone_have_not_ended(cp: Any, x: Any) -> None:
    with cp.cuda.Stream(non_blocking=True):
        x += 1
    with cp.cuda.Stream(non_blocking=True):
        x += 2


# Graphs and the memory that they use


def _with_temporaries(cp: Any, stream: Any, x: Any, pool: Any) -> Any:
    stream.begin_capture()
    with stream, cp.cuda.using_allocator(pool.malloc):
        x[...] = cp.sqrt(x * 2 + 1)
    return stream.end_capture()


@right
def temporaries_of_a_graph_in_a_pool_of_its_own(cp: Any, a: Any, x: Any) -> None:
    pool = cp.cuda.MemoryPool()
    graph = _with_temporaries(cp, a, x, pool)
    other = cp.full(N, 5, cp.float32)
    for _ in range(3):
        graph.launch(stream=a)
    a.synchronize()
    other.get()


@wrong(USED)
def temporaries_of_a_graph_in_a_pool_that_others_use(cp: Any, a: Any, x: Any) -> None:
    pool = cp.cuda.MemoryPool()
    graph = _with_temporaries(cp, a, x, pool)
    with a, cp.cuda.using_allocator(pool.malloc):
        other = cp.full(N, 5, cp.float32)
        graph.launch()
        other.get()


@wrong(USED)
def input_of_a_graph_freed_after_the_capture(cp: Any, a: Any) -> None:
    x, y = idle_arrays(cp, N, N)
    a.begin_capture()
    with a:
        cp.multiply(x, 2, out=y)
    graph = a.end_capture()
    x = cp.ones(N, cp.float32)  # the graph still reads where the old one was
    cp.cuda.Device().synchronize()
    graph.launch(stream=a)
    a.synchronize()


# More of page-locked memory


@wrong(FREED)
def buffer_let_go_too_early(cp: Any, a: Any, x: Any) -> None:
    buffer = pinned(cp)
    x.set(buffer, stream=a)
    del buffer
    a.synchronize()


@wrong(RAW)
def host_function_fills_what_another_stream_sends(a: Any, b: Any, x: Any, buffer: Any) -> None:
    def fill(_: Any) -> None:
        buffer[:] = 7

    a.launch_host_func(fill, None)
    x.set(buffer, stream=b)


@right
def parts_of_a_buffer_in_turn(cp: Any, a: Any) -> None:
    buffer = pinned(cp, 4 * N)
    x = idle_arrays(cp, 4 * N)
    for k in range(4):
        part = slice(k * N, (k + 1) * N)
        buffer[part] = k
        x[part].set(buffer[part], stream=a)
    a.synchronize()


def _mapped(cp: Any, array: Any) -> Any:
    """Page-locked memory as a kernel's argument: it is read where it lies."""
    memory = cp.cuda.UnownedMemory(array.ctypes.data, array.nbytes, array, cp.cuda.Device().id)
    return cp.ndarray(array.shape, array.dtype, cp.cuda.MemoryPointer(memory, 0))


@wrong(CHANGED)
def zero_copy_changed_under_a_kernel(cp: Any, a: Any, y: Any, buffer: Any) -> None:
    twice(cp)((16,), (256,), (_mapped(cp, buffer), y, N), stream=a)
    buffer[7] = 3
    a.synchronize()


@right
def zero_copy_changed_after_a_kernel(cp: Any, a: Any, y: Any, buffer: Any) -> None:
    twice(cp)((16,), (256,), (_mapped(cp, buffer), y, N), stream=a)
    a.synchronize()
    buffer[7] = 3
    twice(cp)((16,), (256,), (_mapped(cp, buffer), y, N), stream=a)
    a.synchronize()


@right
def buffer_of_a_function_that_waits(cp: Any, a: Any, x: Any) -> None:
    """The pool of page-locked memory gives the same block again."""

    def send(value: float) -> None:
        buffer = pinned(cp)
        buffer[:] = value
        x.set(buffer, stream=a)
        a.synchronize()

    for value in range(3):
        send(value)
