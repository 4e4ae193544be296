"""Valid stream orders: a correct program has the same results in all of them, a wrong program does not."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from gpulab import session
from gpulab.analysis.hazards import StreamChecker
from tests.session.stream_patterns import RIGHT, idle_arrays, pinned, two
from virtualgpu.model.orders.deferral import StreamDeferral
from virtualgpu.model.orders.late_faults import LateFaults

ORDERS = [("last first", 0), ("random", 1), ("random", 2)]
N = 256


def results(program: Callable[[Any], Any], order: str = "as given", seed: int = 0) -> Any:
    with session.use_bench_device(session.find_table_info("T4")) as side:
        if order == "as given":
            return program(side.cp)
        with side.machine.use_stream_order(order, seed):
            return program(side.cp)


def differs(program: Callable[[Any], Any]) -> bool:
    """Return whether any stream order changes the results of the program."""
    expected = results(program)
    return any(not np.array_equal(results(program, *order), expected) for order in ORDERS)


@pytest.mark.parametrize("name", RIGHT)
def test_correct_programs_finish_in_every_stream_order(name: str) -> None:
    for order in ORDERS:
        results(RIGHT[name], *order)


def reads_too_early(cp: Any) -> Any:
    a, b = two(cp)
    x, y = idle_arrays(cp, N, N)
    with a:
        x += 1
    with b:
        cp.multiply(x, 2, out=y)
    return y.get(stream=b)


def is_overwritten_too_early(cp: Any) -> Any:
    a, b = two(cp)
    x, y = idle_arrays(cp, N, N)
    with a:
        cp.add(x, 1, out=y)
    with b:
        x.fill(5)
    cp.cuda.Device().synchronize()
    return y.get()


def is_written_twice(cp: Any) -> Any:
    a, b = two(cp)
    x = idle_arrays(cp, N)
    with a:
        x.fill(1)
    with b:
        x.fill(2)
    cp.cuda.Device().synchronize()
    return x.get()


def refills_too_early(cp: Any) -> Any:
    a, _ = two(cp)
    buffer = pinned(cp, N)
    x = idle_arrays(cp, 4 * N)
    for k in range(4):
        buffer[:] = k
        x[k * N : (k + 1) * N].set(buffer, stream=a)
    return x.get(stream=a)


def looks_too_early(cp: Any) -> Any:
    a, _ = two(cp)
    buffer = pinned(cp, N)
    x = idle_arrays(cp, N)
    with a:
        x += 7
    x.get(stream=a, out=buffer, blocking=False)
    result = buffer.copy()
    a.synchronize()
    return result


def waits_for_an_event_that_is_too_old(cp: Any) -> Any:
    a, b = two(cp)
    x, y = idle_arrays(cp, N, N)
    before = a.record()
    kernel = cp.RawKernel('extern "C" __global__ void one(float* x) { x[threadIdx.x] = 1; }', "one")
    kernel((1,), (N,), (x,), stream=a)
    b.wait_event(before)
    with b:
        cp.add(x, x, out=y)
    return y.get(stream=b)


def graph_lacks_an_edge(cp: Any) -> Any:
    a, b = two(cp)
    x, y = idle_arrays(cp, N, N)
    a.begin_capture()
    with a:
        fork = a.record()
        x += 1
    b.wait_event(fork)
    with b:
        cp.add(x, 1, out=y)
    a.wait_event(b.record())
    graph = a.end_capture()
    graph.launch(stream=a)
    return y.get(stream=a)


def result_is_read_by_the_default_stream(cp: Any) -> Any:
    a, _ = two(cp)
    x = idle_arrays(cp, N)
    with a:
        x += 3
    return x.get()


WRONG = [
    reads_too_early,
    is_overwritten_too_early,
    is_written_twice,
    refills_too_early,
    looks_too_early,
    waits_for_an_event_that_is_too_old,
    graph_lacks_an_edge,
    result_is_read_by_the_default_stream,
]


@pytest.mark.parametrize("program", WRONG, ids=lambda program: program.__name__)
def test_a_missing_wait_changes_the_results(program: Callable[[Any], Any]) -> None:
    assert differs(program)


def many_functions(cp: Any) -> Any:
    """Run every kind of operation of the virtual GPU in one stream."""
    a, _ = two(cp)
    with a:
        x = cp.arange(64, dtype=cp.float32).reshape(8, 8)
        x[x > 40] = 3
        x[cp.asarray([1, 2])] += 1
        x[2:4] = x[:2]
        y = cp.sort(x.ravel())[::-1].reshape(8, 8).copy()
        z = cp.matmul(x, y.astype(cp.float64).T)
        z = cp.where(z > 5, z, -z)
        z -= z.mean(axis=1, keepdims=True)
        cp.add.at(z, (0, cp.asarray([0, 0, 1])), 2.0)
        total = cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")(z)
        z = cp.ElementwiseKernel("T x, T t", "T y", "y = x + t", "shift")(z, total)
        host = np.arange(64, dtype=np.float64).reshape(8, 8)
        z += cp.asarray(host)
        host[:] = 0
        picked = z[cp.nonzero(z > 0)[0][:3]]
        return np.concatenate([z.get().ravel(), picked.get().ravel(), [float(total)]])


def test_a_program_in_one_stream_has_one_result() -> None:
    assert not differs(many_functions)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_program_without_hazards_has_one_result(seed: int) -> None:
    """If the checker finds no hazard in a random program, its result does not depend on the order."""

    def program(cp: Any) -> Any:
        draw = random.Random(seed)
        streams = [
            cp.cuda.Stream.null,
            cp.cuda.Stream(),
            cp.cuda.Stream(non_blocking=True),
            cp.cuda.Stream(non_blocking=True),
        ]
        arrays = [cp.zeros(16, cp.float32) for _ in range(3)]
        events = [cp.cuda.Event() for _ in range(3)]
        scale = cp.RawKernel(
            'extern "C" __global__ void scale(const float* x, float* y, int n) {'
            " if (threadIdx.x < n) y[threadIdx.x] = 3 * x[threadIdx.x] + 1; }",
            "scale",
        )
        cp.cuda.Device().synchronize()
        for number in range(draw.randint(4, 12)):
            stream = draw.choice(streams)
            chance = draw.random()
            x, y = draw.sample(arrays, 2)
            low = draw.choice([0, 8])
            with stream:
                if chance < 0.2:
                    x[low : low + 8].fill(number)
                elif chance < 0.4:
                    x[low : low + 8] += y[low : low + 8]
                elif chance < 0.5:
                    scale((1,), (16,), (x, y, 16))
                elif chance < 0.6:
                    x[:] = y
                elif chance < 0.75:
                    draw.choice(events).record()
                elif chance < 0.95:
                    stream.wait_event(draw.choice(events))
                else:
                    stream.synchronize()
        cp.cuda.Device().synchronize()
        return np.stack([array.get() for array in arrays])

    with session.use_bench_device(session.find_table_info("T4")) as side:
        checker = StreamChecker()
        watcher = side.stream_watcher()
        watcher.start(checker.handle_act)
        program(side.cp)
        watcher.stop()
    if checker.report(side.provenance).clean:
        assert not differs(program)


def test_unordered_work_runs_last_first() -> None:
    runs: list[int] = []
    deferral = StreamDeferral("last first")
    for number, after in [(1, ()), (2, (1,)), (3, ()), (4, (3,)), (5, ())]:
        deferral.delay_operation(number, partial(runs.append, number), after)
    deferral.run_required([4, 2])
    assert runs == [3, 4, 1, 2]
    deferral.run_required()
    assert runs[4:] == [5]
    with pytest.raises(ValueError, match="'last first' or 'random'"):
        StreamDeferral("backwards")


def test_deferred_work_does_not_reduce_free_memory() -> None:
    """The memory of a deleted array is free at once, even if kernels that use it have not run yet."""

    def in_turns(cp: Any) -> Any:
        x = cp.arange(4 * N, dtype=np.float32)
        results_array = cp.zeros(4, dtype=np.float32)
        pool = cp.get_default_memory_pool()
        pool.set_limit(size=pool.total_bytes() + x.nbytes)  # enough for one more array, but not for two
        root = cp.RawKernel(
            'extern "C" __global__ void root(const float* x, float* y) '
            "{ int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = sqrtf(x[i]); }",
            "root",
        )
        last = cp.RawKernel(
            f'extern "C" __global__ void last(const float* x, float* y) {{ *y = x[{4 * N - 1}]; }}', "last"
        )
        for k in range(4):
            work = cp.empty(4 * N, dtype=np.float32)
            root((4,), (N,), (x, work))
            last((1,), (1,), (work, results_array[k:]))
            del work
        return results_array.get()

    assert not differs(in_turns)
    assert results(in_turns).tolist() == [np.sqrt(np.float32(4 * N - 1))] * 4


def test_a_graph_runs_after_its_arrays_were_deleted() -> None:
    """A graph does not keep its arrays alive, but the bytes of freed arrays remain readable, as on a GPU."""

    def launched(cp: Any) -> Any:
        add = cp.RawKernel(
            'extern "C" __global__ void add(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x]; }',
            "add",
        )
        with cp.cuda.Stream(non_blocking=True) as stream:
            y = cp.zeros(N, dtype=np.float32)
            one = cp.ones(N, dtype=np.float32)
            stream.begin_capture()
            add((1,), (N,), (y, one))
            graph = stream.end_capture()
            graph.launch(stream)
            graph.launch(stream)
            del one
            return y.get()

    assert not differs(launched)
    assert results(launched).tolist() == [2.0] * N


@pytest.mark.parametrize(
    "deferral", [StreamDeferral("last first"), LateFaults(is_blocking=False)], ids=["late", "faults"]
)
def test_freeing_an_array_within_an_operation_does_not_deadlock(deferral: StreamDeferral) -> None:
    freed = []

    def free() -> None:
        deferral.run_before_free()
        freed.append(True)

    def run() -> None:
        thread = threading.Thread(target=free, daemon=True)
        thread.start()
        thread.join(20)

    deferral.delay_operation(1, run, ())
    deferral.run_required()
    assert freed
