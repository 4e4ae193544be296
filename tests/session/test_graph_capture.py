"""``gl.graph``: captures, launches, changes and refusals. `tests/real` runs the same on a real GPU."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from virtualgpu.errors import GpulabError

ADD = 'extern "C" __global__ void add(float* x, float y) { x[blockIdx.x * blockDim.x + threadIdx.x] += y; }'
PUT = 'extern "C" __global__ void put(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x]; }'
N = 64


@pytest.fixture(autouse=True)
def a_device() -> Iterator[None]:
    gl.use_device("virtual:H200")
    yield
    gl.use_device("auto")


def ones(value: float = 1) -> Any:
    return gl.cp.full(N, value, gl.cp.float32)


def kernel(code: str, name: str) -> Any:
    return gl.cp.RawKernel(code, name)


def add(x: Any, y: float = 1, stream: Any = None) -> None:
    kernel(ADD, "add")((2,), (N // 2,), (x, np.float32(y)), stream=stream)


def all_are(array: Any, value: float) -> None:
    np.testing.assert_allclose(gl.cp.asnumpy(array), np.full(N, value), rtol=1e-6)


class TestLaunch:
    def test_the_capture_waits_for_earlier_work_of_the_stream(self) -> None:
        x = ones()
        x *= 3
        g = gl.graph(lambda x: x + 1, x)
        all_are(g(), 4)

    def test_call_recomputes_and_returns_the_result_of_fn(self) -> None:
        x = ones()
        g = gl.graph(lambda x: {"twice": x * 2, "both": (x, x + 1)}, x)
        x[...] = 5
        out = g()
        all_are(out["twice"], 10)
        all_are(out["both"][1], 6)
        assert out["both"][0] is x
        assert g.result is out

    def test_capture_and_comparison_do_not_change_the_arrays(self) -> None:
        x = ones()
        total = ones(0)

        def work(x: Any) -> None:
            total[...] += x
            x[...] *= 2

        g = gl.graph(work, x)
        g.compare(repeats=2)
        all_are(x, 1)
        all_are(total, 0)

    def test_comparison_causes_no_stream_races(self) -> None:
        x = ones()
        g = gl.graph(add, x)
        with gl.check_streams() as report:
            g.compare(repeats=2)
        assert report.findings == ()

    def test_arrays_of_the_graph_are_kept_alive(self) -> None:
        g = gl.graph(lambda x: gl.cp.sqrt(x * 2) + 1, ones(8))
        gc.collect()
        others = [ones(50) for _ in range(20)]
        all_are(g(), 5)
        for other in others:
            all_are(other, 50)

    def test_launch_and_upload_accept_a_stream(self) -> None:
        x = ones()
        stream = gl.cp.cuda.Stream(non_blocking=True)
        g = gl.graph(add, x)
        g.upload(stream)
        g.launch(stream)
        stream.synchronize()
        all_are(x, 2)

    @pytest.mark.parametrize("use", [lambda g: g.launch("x"), lambda g: g.upload(3), lambda g: g(add)])
    def test_stream_argument_of_another_type_is_refused(self, use: Any) -> None:
        with pytest.raises(TypeError, match=r"a cp\.cuda\.Stream, not a"):
            use(gl.graph(add, ones()))

    def test_launch_after_a_device_change_is_refused(self) -> None:
        if gl.which_device().kind == "cuda":
            pytest.skip("one device")
        g = gl.graph(add, ones())
        gl.use_device("virtual:T4")
        with pytest.raises(GpulabError, match="another device has been selected"):
            g.launch()

    def test_use_after_reset_is_refused(self) -> None:
        g = gl.graph(add, ones())
        g.reset()
        for use in (g.launch, g.compare, lambda: g.record, lambda: g.result):
            with pytest.raises(GpulabError, match="was reset"):
                use()
        assert repr(g) == "A graph that was reset."


class TestRecord:
    def test_nodes_and_edges(self) -> None:
        x = ones()
        y = ones()
        other = gl.cp.cuda.Stream(non_blocking=True)

        def fork(x: Any, y: Any) -> None:
            stream = gl.cp.cuda.get_current_stream()
            add(x, 2)
            other.wait_event(stream.record())
            add(y, 3, stream=other)
            kernel(PUT, "put")((1,), (N,), (x, y), stream=other)
            y.data.memset_async(0, 4 * N, stream)
            stream.wait_event(other.record())
            x.data.copy_from_device_async(y.data, 4 * N, stream)

        record = gl.graph(fork, x, y).record
        nodes = Counter((n.kind, n.name, n.grid, n.block) for n in record.nodes)
        assert nodes == {
            ("KERNEL", "add", (2, 1, 1), (32, 1, 1)): 2,
            ("KERNEL", "put", (1, 1, 1), (64, 1, 1)): 1,
            ("MEMSET", "Memset", None, None): 1,
            ("MEMCPY", "Memcpy DtoD", None, None): 1,
        }
        assert (len(record.edges), record.depth) == (6 - 1, 4)
        copy = next(n for n in record.nodes if n.kind == "MEMCPY")
        memset = next(n for n in record.nodes if n.kind == "MEMSET")
        assert (copy.size_bytes, copy.copy_kind, memset.size_bytes) == (256, "DtoD", 256)
        ends = {p.name: p.addresses for p in copy.parameters}
        assert ends == {"source": (y.data.ptr,), "destination": (x.data.ptr,)}

    def test_kernel_parameters_have_exact_bytes(self) -> None:
        x = ones()
        record = gl.graph(lambda x: add(x, 2.5), x).record
        pointer, number = record.nodes[0].parameters
        assert pointer.data == int(x.data.ptr).to_bytes(8, "little")
        assert pointer.addresses == (x.data.ptr,)
        assert (number.data, number.offset, number.addresses) == (np.float32(2.5).tobytes(), 8, ())

    def test_layers_follow_the_longest_path(self) -> None:
        assert gl.graph(lambda x: ((x + 1) * 2) - x, ones()).record.layers == (0, 1, 2)


class TestUpdate:
    def test_array_is_replaced_by_name(self) -> None:
        x = ones()
        y = ones(0)
        other = ones(10)
        g = gl.graph(lambda x, y: kernel(PUT, "put")((1,), (N,), (y, x)), x, y)
        g.update(x=other)
        g.launch()
        all_are(y, 10)
        assert g.record.nodes[0].parameters[1].addresses == (other.data.ptr,)
        assert g.check() == ()

    def test_update_replaces_the_array_in_all_nodes_and_views(self) -> None:
        x = gl.cp.arange(N, dtype=np.float32)
        other = gl.cp.arange(N, dtype=np.float32) * 100
        halves = gl.cp.zeros(N // 2, np.float32)
        copied = ones(0)

        def work(x: Any) -> Any:
            add(x, 1)
            copied.data.copy_from_device_async(x.data, 4 * N)
            x[1::2] += 1
            halves[...] = x[::-2]
            x.data.memset_async(0, 4)
            return x * 2

        g = gl.graph(work, x)
        g.update(x=other)
        out = g()
        expected = np.arange(N) * 100.0 + 1
        np.testing.assert_allclose(gl.cp.asnumpy(copied), expected)
        expected[1::2] += 1
        np.testing.assert_allclose(gl.cp.asnumpy(halves), expected[::-2])
        expected[0] = 0
        np.testing.assert_allclose(gl.cp.asnumpy(out), expected * 2)
        np.testing.assert_allclose(gl.cp.asnumpy(x), np.arange(N))

    def test_update_with_another_function_of_the_same_topology(self) -> None:
        x = ones()
        y = ones(3)
        g = gl.graph(lambda x: add(x, 1), x)
        executable = g.graph.graphExec
        g.update(lambda y: add(y, 5), y)
        g.launch()
        all_are(x, 1)
        all_are(y, 8)
        assert g.graph.graphExec == executable
        g.update(y=x)
        g.launch()
        all_are(x, 6)

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (lambda x: (add(x), add(x)), "different nodes or edges"),
            (lambda x: x.data.memset_async(0, 4), "node 0 would become a Memset"),
            (lambda x: None, "different nodes or edges"),
        ],
        ids=["more nodes", "another kind", "none"],
    )
    @pytest.mark.filterwarnings("ignore:fn gave the stream nothing")
    def test_another_topology_is_cudas_error_and_the_graph_stays(self, other: Any, message: str) -> None:
        x = ones()
        g = gl.graph(add, x)
        with pytest.raises(gl.cp.cuda.driver.CUDADriverError) as error:
            g.update(other, x)
        assert error.value.status == 910
        assert message in str(error.value)
        g.launch()
        all_are(x, 2)

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            (lambda g, x: g.update(q=x), TypeError, "no array called 'q'. It has 'x'"),
            (lambda g, x: g.update(x=x[:3]), ValueError, "has shape (3,)"),
            (lambda g, x: g.update(x=x.astype(np.float64)), ValueError, "dtype float64"),
            (lambda g, x: g.update(x=np.zeros(N)), TypeError, "cp.asarray"),
            (lambda g, x: g.update(), TypeError, "g.update(x=other)"),
            (lambda g, x: g.check(q=x), TypeError, "no array called 'q'"),
        ],
    )
    def test_wrong_updates_are_named(self, change: Any, error: type[Exception], message: str) -> None:
        x = ones()
        g = gl.graph(add, x)
        with pytest.raises(error) as raised:
            change(g, x)
        assert message in str(raised.value)
        g.launch()
        all_are(x, 2)


class TestAddresses:
    def test_rebound_name_is_reported_as_dangling(self) -> None:
        x = ones(3)
        y = ones(0)
        g = gl.graph(lambda x: kernel(PUT, "put")((1,), (N,), (y, x)), x)
        assert g.check(x=x) == ()
        before = x.data.ptr
        (dangling,) = g.check(x=(new := ones(7)))
        assert (dangling.array.name, dangling.array.address, dangling.address_now) == (
            "x",
            before,
            new.data.ptr,
        )
        assert (dangling.nodes, dangling.in_graph[0], dangling.now[0]) == ((0,), 3, 7)
        (gone,) = g.check(x=None)
        assert (gone.address_now, gone.now) == (None, ())

    def test_variables_of_a_notebook_are_looked_up(self) -> None:
        cell = {"gl": gl, "x": ones(3), "factor": ones(2)}
        exec("g = gl.graph(lambda a: a * factor, x)", cell)
        assert cell["g"].check() == ()
        cell["x"] = ones(9)
        assert [dangling.array.name for dangling in cell["g"].check()] == ["x"]
        cell["factor"] = ones(9)
        assert [dangling.array.name for dangling in cell["g"].record.dangling] == ["x", "factor"]
        all_are(cell["g"](), 6)
        cell["g"].update(x=cell["x"], factor=cell["factor"])
        all_are(cell["g"](), 81)
        assert cell["g"].check() == ()
        cell["g"].update(x=ones(4))  # which no variable means
        assert cell["g"].check() == ()
        all_are(cell["g"](), 36)

    def test_arrays_of_called_functions_have_their_names(self) -> None:
        cell = {"gl": gl, "x": ones(3), "weights": ones(2), "_kept": ones(9)}
        exec("def model(a): return a * weights + _kept\ng = gl.graph(lambda a: model(a), x)", cell)
        assert [array.name for array in cell["g"].record.arrays] == ["x", "weights", "result"]
        cell["weights"] = ones(5)
        assert [dangling.array.name for dangling in cell["g"].check()] == ["weights"]

    def test_an_array_that_no_node_uses_may_change(self) -> None:
        cell = {"gl": gl, "x": ones(), "y": ones(), "f": lambda x, y: add(x)}
        exec("g = gl.graph(f, x, y)", cell)
        cell["y"] = ones()
        assert cell["g"].check() == ()


class TestCallable:
    def test_inputs_are_copied_into_the_graphs_own_arrays(self) -> None:
        sample = ones(0)
        g = gl.graph(lambda x: x * 2 + 1, sample)
        for value in (3, 4):
            array = ones(value)
            out = g.callable(array)
            all_are(out, 2 * value + 1)
            all_are(array, value)
            assert out is g.result

    @pytest.mark.parametrize(
        ("arrays", "error", "message"),
        [
            (lambda: (), TypeError, "takes 1 array, but got 0"),
            (lambda: (ones()[:5],), ValueError, "has shape (5,)"),
            (lambda: (ones().astype(np.int32),), ValueError, "dtype int32"),
            (lambda: (np.zeros(N, np.float32),), TypeError, "not a device array"),
        ],
    )
    def test_inputs_of_other_shapes_are_refused(
        self, arrays: Any, error: type[Exception], message: str
    ) -> None:
        g = gl.graph(lambda x: x * 2, ones())
        with pytest.raises(error) as raised:
            g.callable(*arrays())
        assert message in str(raised.value)


class TestPool:
    def test_temporaries_come_from_the_graphs_own_pool(self) -> None:
        default = gl.cp.get_default_memory_pool()
        x = ones()
        used = default.used_bytes()
        g = gl.graph(lambda x: (x + 1) * 2, x)
        assert default.used_bytes() == used
        assert g.pool.total_bytes() == 2 * 512
        assert g.pool.used_bytes() == 512  # the result

    def test_graphs_that_share_a_pool_share_the_memory_of_temporaries(self) -> None:
        def work(x: Any) -> None:
            x[...] = gl.cp.sqrt((x + 1) * 2)

        x = ones(7)
        first = gl.graph(work, x)
        alone = first.pool.total_bytes()
        second = gl.graph(work, x, pool=first.pool)
        assert second.pool is first.pool
        assert first.pool.total_bytes() == alone
        first.launch()
        second.launch()
        all_are(x, np.sqrt((4 + 1) * 2))


class TestRefusals:
    @pytest.mark.parametrize(
        ("fn", "error", "message"),
        [
            (lambda x: float(x[0]), RuntimeError, "capturing"),
            (lambda x: x.get(), RuntimeError, "capturing"),
            (lambda x: gl.cp.cuda.get_current_stream().synchronize(), RuntimeError, "capturing"),
            (lambda x: gl.cp.cuda.Device().synchronize(), RuntimeError, "capturing"),
            (lambda x: x.reshape(8, 8) @ x.reshape(8, 8), NotImplementedError, "cuBLAS"),
            (lambda x: gl.cp.random.rand(3), NotImplementedError, "cuRAND"),
            (lambda x: gl.graph(add, x), GpulabError, "already capturing a graph"),
            (lambda x: 1 / 0, ZeroDivisionError, "division"),
        ],
    )
    def test_calls_that_a_capture_does_not_support_are_refused(
        self, fn: Any, error: type[Exception], message: str
    ) -> None:
        x = ones()

        def work(x: Any) -> None:
            if gl.cp.cuda.get_current_stream().is_capturing():
                fn(x)

        with pytest.raises(error, match=message):
            gl.graph(work, x)
        add(x)  # the context lives, and the stream captures no more
        all_are(x, 2)

    def test_a_capture_that_failed_leaves_a_shared_pool_usable(self) -> None:
        x = ones()
        first = gl.graph(add, x)
        with pytest.raises(RuntimeError, match="capturing"):
            gl.graph(
                lambda x: float(x[0]) if gl.cp.cuda.get_current_stream().is_capturing() else None,
                x,
                pool=first.pool,
            )
        gl.graph(add, x, pool=first.pool).launch()
        all_are(x, 2)

    def test_suppressed_capture_error_still_fails_the_graph(self) -> None:
        def work(x: Any) -> None:
            add(x)
            with contextlib.suppress(RuntimeError):
                gl.cp.cuda.Device().synchronize()

        x = ones()
        with pytest.raises(RuntimeError, match="previous error during capture") as error:
            gl.graph(work, x)
        # In the message of the virtual GPU, in a note of a real one.
        text = " ".join([str(error.value), *getattr(error.value, "__notes__", ())])
        assert f"line {work.__code__.co_firstlineno + 3}" in text
        assert "gl.cp.cuda.Device().synchronize()" in text
        add(x)
        all_are(x, 2)

    def test_work_on_an_unjoined_stream_is_refused(self) -> None:
        other = gl.cp.cuda.Stream(non_blocking=True)

        def work(x: Any) -> None:
            other.wait_event(gl.cp.cuda.get_current_stream().record())
            add(x, stream=other)

        with pytest.raises(RuntimeError, match="unjoined"):
            gl.graph(work, ones())

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: gl.graph(3), "needs a function"),
            (lambda: gl.graph(add, np.ones(N)), "cp.asarray"),
            (lambda: gl.graph(add, ones(), 2), "functools.partial"),
            (lambda: gl.graph(add, ones(), pool=gl.cp.cuda.MemoryPool()), "pool=other.pool"),
        ],
    )
    def test_wrong_arguments_are_named(self, call: Any, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            call()

    def test_shape_that_changes_in_the_second_run_is_refused(self) -> None:
        sizes = iter((N, N // 2))
        with pytest.raises(ValueError, match="the shapes of a graph must not change"):
            gl.graph(lambda x: x[: next(sizes)] * 2, ones())

    def test_an_empty_graph_gives_a_warning(self) -> None:
        with pytest.warns(UserWarning, match="launched no work"):
            g = gl.graph(lambda x: None, ones())
        g.launch()
        assert (g.record.nodes, g.record.depth) == ((), 0)


class TestCompare:
    def test_each_node_costs_less_in_a_graph(self) -> None:
        x = ones()

        def work(x: Any) -> None:
            for _ in range(50):
                add(x)

        comparison = gl.graph(work, x).compare(repeats=3).record
        all_are(x, 1)
        assert (comparison.nodes, comparison.repeats) == (50, 3)
        assert comparison.graph_node_ns == comparison.graph_device_ns / 50
        self.check(comparison)

    def check(self, comparison: Any) -> None:
        assert comparison.speedup > 3
        assert comparison.eager_host_ns > 10 * comparison.graph_host_ns

    def test_times_are_per_run_for_any_number_of_repeats(self) -> None:
        x = ones()
        few, many = (gl.graph(add, x).compare(repeats=repeats).record for repeats in (4, 40))
        names = ["eager_device_ns", "graph_device_ns"]
        if few.provenance.source == "modelled":  # a real host also runs other programs
            names += ["eager_host_ns", "graph_host_ns"]
        for name in names:
            assert getattr(many, name) == pytest.approx(getattr(few, name), rel=0.5), name
