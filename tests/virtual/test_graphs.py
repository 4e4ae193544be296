"""CUDA graphs: recorded nodes, refused calls, results of launches, and modelled times.

The errors have the class and status that an H200 returned (driver 580, CUDA 13.0, CuPy 14.2).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from tests.virtual.conftest import fresh
from virtualgpu.backend import VirtualBackend
from virtualgpu.cp.cuda import runtime
from virtualgpu.cuda_errors import CUDADriverError, CUDARuntimeError, KernelFault
from virtualgpu.errors import NotSupportedError
from virtualgpu.model.machine import Machine
from virtualgpu.protocol import Counters, Launch

pytestmark = pytest.mark.usefixtures("machine")

ADD = 'extern "C" __global__ void add(float* x, float y) { x[blockIdx.x * blockDim.x + threadIdx.x] += y; }'
COPY = 'extern "C" __global__ void copy(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x]; }'
Stream = cp.cuda.Stream
Event = cp.cuda.Event


@pytest.fixture
def add() -> Callable[..., None]:
    kernel = cp.RawKernel(ADD, "add")

    def launch(x: Any, y: float = 1.0, stream: Any = None) -> None:
        kernel((x.size // 32,), (32,), (x, np.float32(y)), stream=stream)

    return launch


def captured(work: Callable[[Any], object], stream: Any = None) -> Any:
    stream = stream or Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        work(stream)
        return stream.end_capture()


def nodes_of(dot: str) -> dict[int, str]:
    """Return the label of each node by its number."""
    return {int(n): label for n, label in re.findall(r'label="(\d+)\n([^\n"]*)', dot)}


def edges_of(dot: str) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in re.findall(r"node_(\d+)\" -> \"graph_\d+_node_(\d+)\"", dot)}


class TestReplay:
    def test_nothing_runs_before_the_launch(self, machine: Machine, add: Any) -> None:
        x = cp.zeros(64, cp.float32)
        y = cp.zeros(64, cp.float32)
        logged = len(machine.devices[0].work_queue.log)
        launches = machine.kernel_launches

        def work(stream: Any) -> None:
            assert stream.is_capturing()
            add(x, 2)
            y[...] = x * 10

        stream = Stream(non_blocking=True)
        graph = captured(work, stream)
        assert not stream.is_capturing()
        assert (float(x.sum()), float(y.sum())) == (0, 0)
        assert machine.kernel_launches == launches + 2  # the two sums
        assert [a.name for a in list(machine.devices[0].work_queue.log)[logged:]].count("add") == 0
        for turn in (1, 2, 3):
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(x.get(), np.full(64, 2 * turn))
            np.testing.assert_array_equal(y.get(), np.full(64, 20 * turn))

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, i: x + 1,
            lambda x, i: cp.sqrt(x),
            lambda x, i: x.sum(axis=0),
            lambda x, i: cp.concatenate([x, x]),
            lambda x, i: cp.sort(x, axis=None),
            lambda x, i: cp.cumsum(x),
            lambda x, i: x.astype(cp.float64).T.copy(),
            lambda x, i: x[i],
            lambda x, i: cp.where(x > 3, x, -x),
            lambda x, i: cp.argmax(x, axis=1),
            lambda x, i: cp.full_like(x, 7) * x,
            lambda x, i: cp.clip(x, 2, 5),
            lambda x, i: cp.divmod(x, 3)[1],
            lambda x, i: cp.ElementwiseKernel("T x", "T y", "y = x * x", "square")(x),
            lambda x, i: cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")(x, axis=1),
            lambda x, i: cp.fuse(kernel_name="square_plus")(lambda a: a * a + 1)(x),
        ],
    )
    def test_a_launch_uses_the_inputs_at_launch_time(self, function: Any) -> None:
        values = np.arange(12, dtype=np.float32).reshape(3, 4)[::-1] * 1.5
        x = cp.asarray(values)
        index = cp.array([2, 0])
        expected = function(x, index).get()
        results = []
        x.fill(0)
        index.fill(1)
        graph = captured(lambda _: results.append(function(x, index)))
        assert not np.array_equal(results[0].get(), expected)
        x.set(values)
        index.set(np.array([2, 0]))
        graph.launch()
        np.testing.assert_array_equal(results[0].get(), expected)

    def test_writing_in_place_waits_for_the_launch(self) -> None:
        x = cp.arange(6, dtype=cp.float32)[::-1].copy()
        y = cp.ones(6, cp.float32)
        index = cp.array([0, 0, 5])
        bins = cp.zeros(6, cp.float32)

        def work(stream: Any) -> None:
            x.sort()
            cp.multiply(x, 2, out=y)
            cp.add.at(bins, index, cp.float32(1))
            cp.copyto(x, y)
            x[1:3] = 9
            cp.put(y, index, cp.float32(5))
            cp.fill_diagonal(y.reshape(2, 3), 0)

        before = [a.get() for a in (x, y, bins)]
        graph = captured(work)
        for array, contents in zip((x, y, bins), before, strict=True):
            np.testing.assert_array_equal(array.get(), contents)
        graph.launch()
        np.testing.assert_array_equal(x.get(), [0, 9, 9, 6, 8, 10])
        np.testing.assert_array_equal(bins.get(), [2, 0, 0, 0, 0, 1])
        np.testing.assert_array_equal(y.get(), [0, 2, 4, 6, 0, 5])

    def test_copies_memory_sets_and_host_functions_are_nodes(self, machine: Machine, add: Any) -> None:
        memory = cp.cuda.alloc_pinned_memory(256)
        host = np.frombuffer(memory, np.float32, 64)
        host[:] = 1
        x = cp.zeros(64, cp.float32)
        y = cp.ones(64, cp.float32)
        sums: list[float] = []

        def work(stream: Any) -> None:
            runtime.memcpyAsync(x.data.ptr, host.ctypes.data, 256, runtime.memcpyHostToDevice, stream.ptr)
            add(x)
            y.data.memset_async(0, 128)
            y.data.copy_from_device_async(x.data, 64)
            runtime.memcpyAsync(host.ctypes.data, y.data.ptr, 256, runtime.memcpyDeviceToHost, stream.ptr)
            stream.launch_host_func(lambda array: sums.append(float(array.sum())), host)

        graph = captured(work)
        assert sums == []
        assert nodes_of(graph.debug_dot_str()) == {
            0: "MEMCPY",
            1: "add",
            2: "MEMSET",
            3: "MEMCPY",
            4: "MEMCPY",
            5: "HOST",
        }
        host[:] = 4
        graph.launch()
        assert sums == [16 * 5 + 16 * 0 + 32 * 1]
        ran = list(machine.devices[0].work_queue.log)[-6:]
        assert [a.kind for a in ran] == [
            "MEMCPY",
            "CONCURRENT_KERNEL",
            "MEMSET",
            "MEMCPY",
            "MEMCPY",
            "HOST_LAUNCH",
        ]
        assert {a.graph_id for a in ran} == {ran[0].graph_id} != {0}
        assert [a.graph_node_id for a in ran] == list(range(6))

    @pytest.mark.parametrize(
        ("use", "result"),
        [
            (lambda out, x: cp.add(x, 1, out=out), 100),
            (lambda out, x: out.__setitem__(slice(None), x), 99),
            (lambda out, x: cp.RawKernel(COPY, "copy")((1,), (64,), (out, x)), 99),
            (lambda out, x: cp.copyto(out, x * 2), 198),
            (lambda out, x: out.data.copy_from_device_async(x.data, 256), 99),
        ],
    )
    def test_a_graph_stores_addresses_and_no_array_references(self, use: Any, result: int) -> None:
        out = cp.zeros(64, cp.float32)
        arrays = [cp.full(64, 3, cp.float32)]
        graph = captured(lambda _: use(out, arrays[0]))
        arrays.clear()
        arrays += [cp.full(64, 99, cp.float32) for _ in range(2)]  # one takes its place
        graph.launch()
        np.testing.assert_array_equal(out.get(), np.full(64, result))

    def test_a_fault_in_a_node_is_raised_by_the_launch(self, machine: Machine) -> None:
        kernel = cp.RawKernel('extern "C" __global__ void bad(float* x) { x[1 << 20] = 1; }', "bad")
        x = cp.zeros(4, cp.float32)
        graph = captured(lambda _: kernel((1,), (1,), (x,)))
        with pytest.raises(KernelFault):
            graph.launch()

    def test_launches_are_in_stream_order(self, machine: Machine, add: Any) -> None:
        x = cp.zeros(64, cp.float32)
        graph = captured(lambda _: [add(x) for _ in range(3)])
        stream = Stream(non_blocking=True)
        with stream:
            add(x)
            before = machine.devices[0].work_queue.log[-1]
            graph.launch()
            add(x)
        first, *_, after = list(machine.devices[0].work_queue.log)[-4:]
        assert before.end_ns <= first.start_ns
        assert first.after == (before.correlation_id,)
        last_node = machine.devices[0].work_queue.log[-2]
        assert after.start_ns >= last_node.end_ns
        assert after.after == (last_node.correlation_id,)

    def test_a_graph_over_two_devices_runs_on_both(self) -> None:
        for machine in fresh("H200", "H200"):
            x = cp.zeros(64, cp.float32)
            with cp.cuda.Device(1):
                y = cp.zeros(64, cp.float32)
                other = Stream(non_blocking=True)
            stream = Stream(non_blocking=True)
            stream.begin_capture()
            with stream:
                x.fill(3)
            ready = stream.record()
            other.wait_event(ready)
            with cp.cuda.Device(1), other:
                y.fill(4)
                done = other.record()
            stream.wait_event(done)
            graph = stream.end_capture()
            assert edges_of(graph.debug_dot_str()) == {(0, 1)}
            graph.launch(stream)
            assert [d.work_queue.log[-1].name for d in machine.devices] == ["cupy_fill__float32"] * 2
            assert (float(x[0]), float(y.get()[0])) == (3, 4)


class TestMemoryNodes:
    """``cudaMallocAsync`` in a capture, as an H200 does it (CUDA 13.0)."""

    @staticmethod
    def kinds(graph: Any) -> list[str]:
        return list(nodes_of(graph.debug_dot_str()).values())

    def test_arrays_of_an_async_pool_are_memory_nodes(self, add: Any) -> None:
        out = cp.zeros(64, cp.float32)
        pool = cp.cuda.MemoryAsyncPool()

        def work(stream: Any) -> None:
            with cp.cuda.using_allocator(pool.malloc):
                x = cp.zeros(64, cp.float32)
                add(x, 3)
                cp.copyto(out, x)

        graph = captured(work)
        first, *between, last = self.kinds(graph)
        assert (first, last) == ("MEM_ALLOC", "MEM_FREE")
        assert "add" in between
        for _ in range(3):
            out.fill(0)
            graph.launch()
            np.testing.assert_array_equal(out.get(), np.full(64, 3))

    def test_a_graph_with_unfreed_memory_cannot_be_launched_again(self, machine: Machine) -> None:
        addresses: list[int] = []

        def work(stream: Any) -> None:
            addresses.append(runtime.mallocAsync(4096, stream.ptr))
            runtime.memsetAsync(addresses[0], 7, 4096, stream.ptr)

        stream = Stream(non_blocking=True)
        graph = captured(work, stream)
        with pytest.raises(CUDARuntimeError):
            runtime.freeAsync(addresses[0], stream.ptr)  # it does not live before the first launch
        for _ in range(2):
            graph.launch(stream)
            operations = len(machine.devices[0].work_queue.log)
            with pytest.raises(CUDARuntimeError) as error:
                graph.launch(stream)
            assert error.value.status == 1
            assert str(error.value).startswith("cudaErrorInvalidValue: invalid argument")
            assert len(machine.devices[0].work_queue.log) == operations
            assert machine.devices[0].memory.view(addresses[0], 4096).tolist() == [7] * 4096
            runtime.freeAsync(addresses[0], stream.ptr)

    def test_graph_memory_is_not_reused_while_the_graph_exists(self) -> None:
        addresses: list[int] = []

        def work(stream: Any) -> None:
            addresses.append(runtime.mallocAsync(4096, stream.ptr))
            runtime.freeAsync(addresses[-1], stream.ptr)

        first = captured(work)
        second = captured(work)
        stream = Stream(non_blocking=True)
        outside = [runtime.mallocAsync(4096, stream.ptr) for _ in range(4)]
        assert len({*addresses, *outside}) == 6
        del first
        third = captured(work)  # takes the place of the one that is gone
        assert addresses[2] == addresses[0]
        for graph in (second, third):
            graph.launch(stream)
        for address in outside:
            runtime.freeAsync(address, stream.ptr)

    def test_a_capture_cannot_free_memory_from_outside_the_graph(self) -> None:
        stream = Stream(non_blocking=True)
        address = runtime.mallocAsync(64, stream.ptr)
        stream.begin_capture()
        with pytest.raises(CUDARuntimeError) as error:
            runtime.freeAsync(address, stream.ptr)
        assert error.value.status == 1
        stream.end_capture()
        runtime.freeAsync(address, stream.ptr)


def test_each_launch_continues_the_random_generator() -> None:
    """CuPy's generators are kernels; only cuRAND (``cp.random.rand``) cannot be captured."""
    generator = cp.random.default_rng(5)
    results = []
    graph = captured(lambda _: results.append(generator.random(1000)))
    numbers = []
    for _ in range(2):
        graph.launch()
        numbers.append(results[0].get())
    numbers.append(generator.random(1000).get())
    other = cp.random.default_rng(5)
    np.testing.assert_array_equal(numbers, [other.random(1000).get() for _ in range(3)])


class TestForkAndJoin:
    def test_redundant_edges_are_kept(self, add: Any) -> None:
        """As CUDA 13.0 draws them."""
        x = cp.zeros(64, cp.float32)
        other = Stream(non_blocking=True)

        def work(stream: Any) -> None:
            add(x)
            other.wait_event(stream.record())
            add(x)
            stream.wait_event(other.record())
            add(x)

        assert edges_of(captured(work).debug_dot_str()) == {(0, 1), (0, 2), (1, 2)}


def array() -> Any:
    return cp.zeros(32, cp.float32)


def null_wait(stream: Any, x: Any) -> None:
    Stream.null.wait_event(stream.record())


def merge(stream: Any, x: Any) -> None:
    other = Stream(non_blocking=True)
    other.begin_capture()
    try:
        stream.wait_event(other.record())
    finally:
        with contextlib.suppress(CUDARuntimeError):
            other.end_capture()


def end_of_a_guest(stream: Any, x: Any) -> None:
    other = Stream(non_blocking=True)
    other.wait_event(stream.record())
    other.end_capture()


def earlier_event(stream: Any, x: Any) -> None:
    stream.wait_event(Stream.null.record())


# What is done in a capture, its error's status, and whether the graph is lost with it.
REFUSED: dict[str, tuple[Callable[[Any, Any], object], int, bool]] = {
    "synchronize": (lambda s, x: s.synchronize(), 900, True),
    "device synchronize": (lambda s, x: cp.cuda.Device().synchronize(), 900, True),
    "runtime synchronize": (lambda s, x: runtime.streamSynchronize(s.ptr), 900, True),
    "callback": (lambda s, x: s.add_callback(lambda *_: None, 0), 900, True),
    "graph in graph": (lambda s, x: captured(lambda _: x.fill(1)).launch(s), 900, True),
    "begin again": (lambda s, x: s.begin_capture(), 401, False),
    "merge": (merge, 902, True),
    "end of a guest": (end_of_a_guest, 903, True),
    "earlier event": (earlier_event, 905, True),
    "legacy waits": (null_wait, 906, True),
    "event synchronize": (lambda s, x: s.record().synchronize(), 907, True),
    "elapsed time": (lambda s, x: cp.cuda.get_elapsed_time(s.record(), s.record()), 907, False),
}


@pytest.mark.parametrize(
    ("spoil", "called"),
    [
        (lambda s: s.synchronize(), "synchronize"),
        (lambda s: s.done, "done"),
        (lambda s: s.record().done, "done"),
        (lambda s: s.add_callback(print, 0), "add_callback"),
        (lambda s: cp.cuda.Device().synchronize(), "synchronize"),
    ],
)
def test_the_call_that_invalidated_the_capture_is_named(spoil: Any, called: str) -> None:
    x = array()
    stream = Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with contextlib.suppress(CUDARuntimeError):
            spoil(stream)
        with pytest.raises(CUDADriverError) as later:
            x.fill(1)
        with pytest.raises(CUDARuntimeError) as end:
            stream.end_capture()
    line = spoil.__code__.co_firstlineno
    for error in (later, end):
        assert f"error during capture: {called} in test_graphs.py, line {line}, `(lambda s: " in str(
            error.value
        )


@pytest.mark.parametrize("rejoins", [True, False])
def test_a_stream_that_joined_a_capture_can_go_out_of_scope(rejoins: bool) -> None:
    """As on an H200, the stream's work is in the graph if the origin stream waits for it."""

    def fork(origin: Stream, x: Any) -> None:
        joined = Stream(non_blocking=True)
        joined.wait_event(origin.record())
        with joined:
            x.fill(1)
        if rejoins:
            origin.wait_event(joined.record())

    x = cp.zeros(8)
    stream = Stream(non_blocking=True)
    stream.begin_capture()
    fork(stream, x)
    if not rejoins:
        with pytest.raises(CUDARuntimeError, match="unjoined work"):
            stream.end_capture()
        return
    graph = stream.end_capture()
    assert not x.any()
    graph.launch(stream)
    stream.synchronize()
    assert x.all()


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSED)
    def test_illegal_calls_return_cudas_status_and_may_invalidate(self, name: str) -> None:
        call, status, lost = REFUSED[name]
        x = array()
        stream = Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            with pytest.raises(CUDARuntimeError) as error:
                call(stream, x)
            assert error.value.status == status
            if not lost:
                x.fill(1)
                stream.end_capture().launch(stream)
                assert float(x[0]) == 1
                return
            with pytest.raises(CUDADriverError) as later:
                x.fill(1)
            assert later.value.status == 901
            assert str(later.value).startswith("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: operation failed")
            with pytest.raises(RuntimeError, match="an error has invalidated"):
                stream.is_capturing()
            with pytest.raises(CUDARuntimeError) as end:
                stream.end_capture()
            assert end.value.status == 901
            assert str(end.value).startswith("cudaErrorStreamCaptureInvalidated: operation failed")
            assert not stream.is_capturing()
            x.fill(2)
            assert float(x[0]) == 2

    @pytest.mark.parametrize(
        ("does", "message"),
        [
            (lambda s, x: x.get(), "D2H transfers"),
            (lambda s, x: x.get(out=np.zeros(32, np.float32), blocking=False), "D2H transfers"),
            (lambda s, x: float(x[0]), "D2H transfers"),
            (lambda s, x: cp.nonzero(x), "D2H transfers"),
            (lambda s, x: x[x > 0], "D2H transfers"),
            (lambda s, x: x.set(np.zeros(32, np.float32)), "H2D transfers"),
            (lambda s, x: cp.asarray(np.zeros(32)), "H2D transfers"),
            (lambda s, x: x.data.copy_from_device(x.data, 64), "synchronous API calls"),
            (lambda s, x: x.data.copy_from_host(np.zeros(64).ctypes.data, 64), "synchronous API calls"),
            (lambda s, x: x.data.copy_to_host(np.zeros(64).ctypes.data, 64), "synchronous API calls"),
            (lambda s, x: x.data.memset(0, 64), "synchronous API calls"),
            (lambda s, x: x.data.copy_from_host_async(np.zeros(64).ctypes.data, 64), "H2D transfers"),
            (lambda s, x: x.data.copy_to_host_async(np.zeros(64).ctypes.data, 64), "D2H transfers"),
            (lambda s, x: x.data.copy_to_host_async(np.zeros(64).ctypes.data, 64, s), "D2H transfers"),
        ],
    )
    def test_errors_raised_by_cupy_do_not_invalidate_the_capture(self, does: Any, message: str) -> None:
        x = array()
        stream = Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            with pytest.raises(
                RuntimeError, match=f"the current stream is capturing, so {message} are disallowed"
            ):
                does(stream, x)
            x.fill(1)
            stream.end_capture().launch()
        stream.synchronize()  # the default stream does not wait for it
        assert float(x[0]) == 1

    @pytest.mark.parametrize(
        ("does", "library"),
        [
            (lambda m: m @ m, "cuBLAS"),
            (lambda m: cp.dot(m, m), "cuBLAS"),
            (lambda m: cp.linalg.inv(m), "cuSOLVER"),
            (lambda m: cp.random.rand(4), "cuRAND"),
        ],
    )
    def test_library_calls_are_refused_during_capture(self, does: Any, library: str) -> None:
        m = cp.eye(4)
        stream = Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            with pytest.raises(NotImplementedError, match=f"calling {library} API during stream capture"):
                does(m)
            stream.end_capture()

    @pytest.mark.parametrize(
        ("does", "error_class"),
        [
            (lambda x: x.fill(1), "CUDADriverError"),
            (lambda x: Stream.null.synchronize(), "CUDARuntimeError"),
            (lambda x: runtime.memcpy(x.data.ptr, x.data.ptr, 64, 3), "CUDARuntimeError"),
            (lambda x: Stream.null.record(), "CUDARuntimeError"),
        ],
    )
    @pytest.mark.parametrize("non_blocking", [True, False])
    def test_the_legacy_stream_depends_on_blocking_streams(
        self, does: Any, error_class: str, non_blocking: bool
    ) -> None:
        x = array()
        stream = Stream(non_blocking=non_blocking)
        stream.begin_capture()
        if non_blocking:
            does(x)
            stream.end_capture()
            return
        with pytest.raises(RuntimeError) as error:
            does(x)
        assert (type(error.value).__name__, getattr(error.value, "status", 0)) == (error_class, 906)
        with pytest.raises(CUDARuntimeError, match="previous error"):
            stream.end_capture()

    def test_graph_launch_on_the_legacy_stream_fails_during_a_capture(self) -> None:
        x = cp.zeros(32)
        graph = captured(lambda _: x.fill(1))
        for non_blocking in (True, False):
            stream = Stream(non_blocking=non_blocking)
            with stream:
                stream.begin_capture()
            if non_blocking:
                graph.launch(cp.cuda.Stream.null)
                with stream:
                    stream.end_capture()
                continue
            with pytest.raises(CUDARuntimeError) as error:
                graph.launch(cp.cuda.Stream.null)
            assert error.value.status == 906
            with stream, contextlib.suppress(CUDARuntimeError):
                stream.end_capture()

    def test_querying_the_legacy_stream_fails_but_keeps_the_capture(self) -> None:
        stream = Stream()
        stream.begin_capture()
        with pytest.raises(CUDARuntimeError) as error:
            Stream.null.is_capturing()
        assert error.value.status == 906
        stream.end_capture()

    def test_other_blocking_streams_run_during_a_capture(self) -> None:
        x = array()
        stream = Stream()
        other = Stream()
        stream.begin_capture()
        with other:
            x.fill(4)
        other.synchronize()
        assert not other.is_capturing()
        stream.end_capture()

    @pytest.mark.parametrize("mode", ["Global", "ThreadLocal", "Relaxed"])
    @pytest.mark.parametrize("elsewhere", [False, True], ids=["own thread", "other thread"])
    def test_a_capture_forbids_allocations_by_mode_and_thread(self, mode: str, elsewhere: bool) -> None:
        """Global mode applies to all threads, ThreadLocal only to the capturing one (CUDA Runtime API)."""
        stream = Stream(non_blocking=True)
        statuses = []
        messages = []
        stream.begin_capture(getattr(runtime, f"streamCaptureMode{mode}"))

        def allocate() -> None:
            try:
                runtime.free(runtime.malloc(64))
            except CUDARuntimeError as error:
                statuses.append(error.status)
                messages.append(str(error))

        if elsewhere:
            thread = threading.Thread(target=allocate)
            thread.start()
            thread.join()
        else:
            allocate()
        refused = mode == "Global" or (mode == "ThreadLocal" and not elsewhere)
        if refused:
            with pytest.raises(CUDARuntimeError, match="previous error"):
                stream.end_capture()
        else:
            stream.end_capture()
        assert statuses == ([900] if refused else [])
        assert all("cudaErrorStreamCaptureUnsupported" in text for text in messages)

    def test_another_thread_cannot_end_a_strict_capture(self) -> None:
        stream = Stream(non_blocking=True)
        raised = []
        stream.begin_capture(runtime.streamCaptureModeThreadLocal)

        def end() -> None:
            try:
                stream.end_capture()
            except CUDARuntimeError as error:
                raised.append(error.status)

        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert raised == [908]
        assert not stream.is_capturing()

    def test_calls_without_a_capture_are_refused(self) -> None:
        with pytest.raises(RuntimeError, match="cannot capture on the default"):
            Stream.null.begin_capture()
        with pytest.raises(CUDARuntimeError) as error:
            Stream().end_capture()
        assert error.value.status == 401
        with pytest.raises(NotImplementedError, match="must be created via stream capture"):
            cp.cuda.Graph()
        with pytest.raises(CUDARuntimeError):
            Stream().begin_capture(7)

    def test_an_event_recorded_in_a_finished_capture_is_invalid(self) -> None:
        x = array()
        stream = Stream(non_blocking=True)
        event = Event()
        with stream:
            stream.begin_capture()
            x.fill(1)
            event.record()
            stream.end_capture()
            with pytest.raises(CUDARuntimeError) as error:
                event.synchronize()
            assert error.value.status == 1
            with pytest.raises(CUDARuntimeError) as error:
                Stream(non_blocking=True).wait_event(event)
            assert error.value.status == 1
            event.record()
            event.synchronize()

    def test_deleting_a_stream_ends_its_capture(self) -> None:
        stream = Stream(non_blocking=True)
        stream.begin_capture()
        del stream
        cp.cuda.Device().synchronize()


class TestRuntimeFunctions:
    def test_runtime_functions_capture_and_launch_a_graph(self, add: Any) -> None:
        x = array()
        stream = Stream(non_blocking=True)
        runtime.streamBeginCapture(stream.ptr)
        assert runtime.streamIsCapturing(stream.ptr)
        add(x, stream=stream)
        graph = runtime.streamEndCapture(stream.ptr)
        launchable = runtime.graphInstantiate(graph)
        runtime.graphDestroy(graph)
        runtime.graphUpload(launchable, stream.ptr)
        runtime.graphLaunch(launchable, stream.ptr)
        assert float(x[0]) == 1
        runtime.graphExecDestroy(launchable)
        with pytest.raises(CUDARuntimeError) as error:
            runtime.graphLaunch(launchable, stream.ptr)
        assert error.value.status == 1


class TestDotOutput:
    def test_dot_text_equals_that_of_cuda(self, add: Any) -> None:
        """CUDA 13.0's text for this graph, except the graph's number."""
        x = cp.zeros(32, cp.float32)
        y = cp.zeros(32, cp.float32)
        other = Stream(non_blocking=True)

        def work(stream: Any) -> None:
            add(x)
            other.wait_event(stream.record())
            y.data.memset_async(0, 64, other)
            runtime.memcpyAsync(y.data.ptr, x.data.ptr, 64, runtime.memcpyDeviceToDevice, other.ptr)
            stream.wait_event(other.record())
            stream.launch_host_func(print, 0)

        text = re.sub(r"(graph|cluster)_\d+", r"\1_1", captured(work).debug_dot_str())
        assert text == (
            'digraph dot {\nsubgraph cluster_1 {\nlabel="graph_1" graph[style="dashed"];\n'
            '"graph_1_node_0"[style="bold" shape="octagon" label="0\nadd\n"];\n\n'
            '"graph_1_node_1"[style="solid" shape="invtrapezium"label="1\nMEMSET\n(0,64)\n"];\n\n'
            '"graph_1_node_2"[style="solid" shape="trapezium"label="2\nMEMCPY\n(DtoD,64)\n"];\n\n'
            '"graph_1_node_3"[style="solid" shape="rectangle" label="3\nHOST\n"];\n\n'
            '"graph_1_node_0" -> "graph_1_node_1";\n'
            '"graph_1_node_0" -> "graph_1_node_3";\n'
            '"graph_1_node_1" -> "graph_1_node_2";\n'
            '"graph_1_node_2" -> "graph_1_node_3";\n'
            "}\n}\n"
        )

    @pytest.mark.parametrize(
        ("grid", "block", "text"),
        [
            ((3,), (32,), r"3,32,128"),
            ((2, 3), (32,), r"\{2,3\},32,128"),
            ((4,), (8, 4), r"4,\{8,4\},128"),
            ((2, 3, 4), (8, 4, 2), r"\{2,3,4\},\{8,4,2\},128"),
        ],
    )
    def test_dot_text_shows_launch_shapes_on_request(self, grid: Any, block: Any, text: str) -> None:
        x = cp.zeros(4096, cp.float32)
        kernel = cp.RawKernel(ADD, "add")
        graph = captured(lambda _: kernel(grid, block, (x, np.float32(1)), shared_mem=128))
        shape = rf"add\<\<\<{text}\>\>\>"
        assert "<" not in graph.debug_dot_str()
        assert shape in graph.debug_dot_str(1)
        label = f'label="0\n{shape}"]'.replace("add", "add\n")
        assert label in graph.debug_dot_str(4)


def machine_clock() -> Any:
    from virtualgpu.model import machine as slot

    return slot.current().clock


class TestCost:
    """Between two events, an H200 took 3.5, 13.3, 106.5 and 1,041 us for graphs of small kernels; in a
    stream they follow each other at 6.0 us."""

    @staticmethod
    def us(work: Callable[[], object]) -> float:
        start = Event()
        end = Event()
        stream = Stream(non_blocking=True)
        with stream:
            start.record()
            work()
            end.record()
        end.synchronize()
        return float(1000 * cp.cuda.get_elapsed_time(start, end))

    @pytest.fixture(autouse=True)
    def h200(self) -> Iterator[None]:
        for _ in fresh("H200"):
            yield

    @staticmethod
    def uploaded(work: Callable[[Any], object]) -> Callable[[], None]:
        """Return the launch function of an uploaded graph."""
        graph = captured(work)
        graph.upload()
        launch: Callable[[], None] = graph.launch
        return launch

    @pytest.mark.parametrize(("nodes", "measured_us"), [(1, 3.49), (10, 13.28), (100, 106.5), (1000, 1041)])
    def test_graph_times_are_close_to_h200_measurements(
        self, add: Any, nodes: int, measured_us: float
    ) -> None:
        x = array()
        launch = self.uploaded(lambda _: [add(x) for _ in range(nodes)])
        assert self.us(launch) == pytest.approx(measured_us, rel=0.15)

    def test_a_stream_of_small_kernels_is_five_times_slower(self, add: Any) -> None:
        x = array()
        launch = self.uploaded(lambda _: [add(x) for _ in range(100)])
        assert 4.5 < self.us(lambda: [add(x) for _ in range(100)]) / self.us(launch) < 7

    def test_large_kernels_take_the_same_time_in_graph_and_stream(self) -> None:
        """20 additions over 64 MiB: 1,614 us in a graph, 1,655 in a stream."""
        z = cp.zeros(1 << 24, cp.float32)
        cp.cuda.Device().synchronize()

        def add() -> None:
            for _ in range(4):
                cp.add(z, 1, out=z)

        assert self.us(captured(lambda _: add()).launch) == pytest.approx(self.us(add), rel=0.05)

    @pytest.mark.parametrize(
        ("nodes", "capture_us", "end_us", "first_us", "later_us"),
        [(10, 18.5, 62.7, 12.8, 2.4), (100, 168, 243, 110, 3.8), (1000, 1_999, 3_616, 882, 11.1)],
    )
    def test_host_times_of_capture_and_launches_match_an_h200(
        self, add: Any, nodes: int, capture_us: float, end_us: float, first_us: float, later_us: float
    ) -> None:
        """Measured on the host of an H200 for small kernels. One launch in a stream took 4.9 us."""
        x = array()
        stream = Stream(non_blocking=True)
        clock = machine_clock()
        times = [clock.now_ns]
        with stream:
            stream.begin_capture()
            for _ in range(nodes):
                add(x)
            times.append(clock.now_ns)
            graph = stream.end_capture()
            times.append(clock.now_ns)
            graph.launch()
            times.append(clock.now_ns)
            graph.launch()
            times.append(clock.now_ns)
        took = np.diff(times) / 1000
        assert took[:3] == pytest.approx([capture_us, end_us, first_us], rel=0.35)
        assert took[3] < 1.2 * later_us

    def test_an_upload_moves_its_time_from_the_first_launch(self, add: Any) -> None:
        x = array()
        clock = machine_clock()
        spent = []
        for upload in (False, True):
            graph = captured(lambda _: [add(x) for _ in range(50)])
            before = clock.now_ns
            if upload:
                graph.upload()
            after = clock.now_ns
            graph.launch()
            spent.append((after - before, clock.now_ns - after))
        (no_upload_ns, first_ns), (upload_ns, later_ns) = spent
        assert no_upload_ns == 0
        assert first_ns == pytest.approx(upload_ns + later_ns)
        assert first_ns > 10 * later_ns

    def test_branches_overlap(self, add: Any) -> None:
        """Four branches of 25 small kernels took 33 us, 100 in a row 106.5."""
        xs = [array() for _ in range(4)]
        others = [Stream(non_blocking=True) for _ in range(4)]

        def work(stream: Any) -> None:
            begin = stream.record()
            for x, other in zip(xs, others, strict=True):
                other.wait_event(begin)
                for _ in range(25):
                    add(x, stream=other)
                stream.wait_event(other.record())

        assert self.us(self.uploaded(work)) == pytest.approx(33, rel=0.2)


def test_a_kernel_cannot_be_observed_during_a_capture(machine: Machine) -> None:
    kernel = cp.RawKernel(ADD, "add")
    x = array()
    stream = Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(NotSupportedError, match="capturing a graph"):
            VirtualBackend(machine).observe(Launch.of(kernel, 1, 32, (x, np.float32(1))), Counters())
        stream.end_capture()
