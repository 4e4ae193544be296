"""The public functions from end to end on the virtual GPU: kernel in, picture and numbers out."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.lab.graph_cost import numbered
from gpulab.views.tables.count import CounterTable
from tests.session.kernels import COLUMN_SUM, COUNT_UP, FOREVER, NO_TAIL_CHECK, VECTOR_ADD
from virtualgpu.compile import sass
from virtualgpu.records import (
    Activity,
    BlockTrace,
    DeviceInfo,
    GraphNode,
    GraphRecord,
    KernelCounters,
    LaunchTrace,
    Occupancy,
    Provenance,
    SanitizerReport,
    Timeline,
    WarpTrace,
)

N = 10_000
MEASURED = Provenance("measured", "a GPU")
BLOCK = 256
GRID = -(-N // BLOCK)


@pytest.fixture(autouse=True)
def on_a_virtual_a100() -> None:
    gl.use_device("virtual:A100")


@pytest.fixture
def addition() -> tuple[Any, tuple[Any, ...], np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, N), dtype=np.float32)
    cp = gl.cp
    return (
        cp.RawKernel(VECTOR_ADD, "vector_add"),
        (cp.asarray(a), cp.asarray(b), cp.zeros(N, cp.float32), np.int32(N)),
        a + b,
    )


def test_launch_runs_the_kernel_and_places_every_block(addition: Any) -> None:
    kernel, args, expected = addition
    chart = gl.launch(kernel, GRID, BLOCK, args)
    np.testing.assert_array_equal(args[2].get(), expected)
    trace = chart.trace
    assert (trace.grid, trace.block, trace.sm_count) == ((GRID, 1, 1), (BLOCK, 1, 1), 108)
    assert sorted(trace.block_index) == list(range(GRID))
    assert trace.occupancy.blocks_per_sm == 8, "2,048 threads a SM of capability 8.0 in blocks of 256"
    assert trace.provenance.label == "modelled on virtual A100-SXM4-80GB"
    assert "modelled on virtual A100-SXM4-80GB" in repr(chart)
    assert chart.png().startswith(b"\x89PNG")


def test_the_slider_keeps_the_work_and_the_arrays(addition: Any) -> None:
    kernel, args, _ = addition
    chart = gl.launch(kernel, GRID, BLOCK, args)
    args[2].fill(7)
    chart.block_threads = 64
    assert chart.error == ""
    assert chart.trace.block == (64, 1, 1)
    assert chart.trace.grid == (-(-GRID * BLOCK // 64), 1, 1)
    assert (args[2].get() == 7).all(), "moving a slider leaves the learner's arrays as they were"


def test_a_chart_keeps_no_arrays() -> None:
    """Of earlier cells, too, whose views stay open."""
    kernel = gl.cp.RawKernel(VECTOR_ADD, "vector_add")
    pool = gl.cp.get_default_memory_pool()
    before = pool.used_bytes()
    charts = []
    for _ in range(3):
        x = gl.cp.ones(1 << 16, gl.cp.float32)
        charts.append(gl.launch(kernel, 1 << 8, 256, (x, x, gl.cp.zeros_like(x), np.int32(x.size))))
    trace = charts[-1].trace
    del x
    gc.collect()
    assert pool.used_bytes() - before == 3 * (1 << 18), "arrays without a name, which are small"
    for _ in range(8):
        gl.launch(kernel, 1, 32, (*[gl.cp.ones(32, gl.cp.float32) for _ in range(3)], np.int32(0)))
    gc.collect()
    assert pool.used_bytes() - before <= 8 * 3 * 512
    charts[-1].block_threads = 64
    assert "The arrays of this launch are gone" in charts[-1].error
    assert charts[-1].trace is trace


def test_arrays_without_a_name_stay_for_the_slider() -> None:
    kernel = gl.cp.RawKernel(VECTOR_ADD, "vector_add")
    size = np.int32(1024)
    chart = gl.launch(kernel, 4, 256, (*[gl.cp.ones(size, gl.cp.float32) for _ in range(3)], size))
    gc.collect()
    chart.block_threads = 64
    assert chart.error == ""
    large = gl.cp.zeros(1 << 21, gl.cp.float32)
    held = weakref.ref(large)
    gl.launch(kernel, 1, 32, (large, large[5:], large[:9], size))
    del large
    gc.collect()
    assert held() is None, "a view is small, and its memory is not"


def test_the_slider_shows_a_fault_instead_of_raising_it() -> None:
    x = gl.cp.ones(1024, gl.cp.float32)
    chart = gl.launch(gl.cp.RawKernel(NO_TAIL_CHECK, "double_all"), 4, 256, (x,))
    chart.block_threads = 768
    assert "double_all" in chart.error
    assert "IllegalAddress" in chart.error
    np.testing.assert_array_equal(x.get(), 2)
    chart.block_threads = 128
    assert chart.error == ""


def test_a_slider_from_before_a_change_of_device_says_so(addition: Any) -> None:
    kernel, args, _ = addition
    chart = gl.launch(kernel, GRID, BLOCK, args)
    gl.use_device("T4")
    chart.block_threads = 64
    assert "run its cell again" in chart.error


def test_a_two_dimensional_launch_has_no_slider() -> None:
    x = gl.cp.zeros(64, gl.cp.int32)
    chart = gl.launch(gl.cp.RawKernel(COUNT_UP, "count_up"), (2, 2), (8, 8), (x, np.int32(64)))
    assert not chart.controls


def test_warps_follows_the_chosen_warp(addition: Any) -> None:
    kernel, args, expected = addition
    stepper = gl.warps(kernel, GRID, BLOCK, args, block_index=GRID - 1, warp=0)
    trace = stepper.trace
    assert (trace.block_index, trace.warp_index) == ((GRID - 1, 0, 0), 0)
    inside = N - (GRID - 1) * BLOCK
    assert inside == 16, "so that half of the last block's first warp passes the tail check"
    stores = [i for i in range(len(trace)) if trace.access_is_store is not None and trace.access_is_store[i]]
    assert [int(trace.executed_mask[i]) for i in stores] == [0xFFFF]
    np.testing.assert_array_equal(args[2].get(), expected)
    assert "executed on virtual A100" in repr(stepper)


def test_count_matches_arithmetic_on_the_back_of_an_envelope() -> None:
    cp = gl.cp
    x = cp.arange(64 * 32, dtype=cp.float32)
    y = cp.zeros(64, cp.float32)
    table = gl.count(cp.RawKernel(COLUMN_SUM, "column"), 1, 64, (x, y, np.int32(32)))
    assert isinstance(table, CounterTable)
    # 2 warps load with a stride of 128 bytes: each lane its own sector. They store 128 bytes: 4.
    assert table.total("requests", "global", "load") == 2
    assert table.total("sectors", "global", "load") == 64
    assert table.total("bank_conflicts", "shared") == 0
    stores = table.total("sectors", "global", "store")
    assert stores in (8, 16), "4 sectors a warp and store; one store, or one for each side of the branch"
    assert "part[i] = x[i * stride];" in repr(table)
    assert "modelled on virtual A100-SXM4-80GB" in repr(table)
    index = np.arange(64)
    np.testing.assert_array_equal(y.get(), x.get()[(index - index % 2) * 32])


def test_occupancy_of_one_kernel_at_every_block_size(addition: Any) -> None:
    kernel, _, _ = addition
    chart = gl.occupancy(kernel, block=100)
    sizes = [point.block_threads for point in chart.points]
    assert sizes == sorted({*range(32, 1025, 32), 100})
    assert chart.point.block_threads == 100
    full = {point.block_threads: point.fraction for point in chart.points}
    assert full[256] == 1.0
    assert full[32] == 0.5, "32 blocks of one warp on an SM that holds 64 warps"
    with pytest.raises(ValueError, match="2,048 threads is over this kernel's limit of 1,024"):
        gl.occupancy(kernel, block=(64, 32))


def test_device_and_compare() -> None:
    assert "A100-SXM4-80GB" in repr(gl.device())
    assert gl.device("H200").info.sm_count == 132
    assert [info.name for info in gl.compare("T4", "H200", "B200").record] == ["T4", "H200", "B200"]
    beside = [info.name for info in gl.compare("T4").record]
    assert beside == ["A100-SXM4-80GB", "T4"], "one name is compared with the device in use"
    assert gl.compare("A100", "a100").title == "A100-SXM4"
    with pytest.raises(gl.errors.UnknownDeviceError, match="Did you mean 'H200'"):
        gl.compare("T4", "H20O")
    with pytest.raises(TypeError, match="Name the GPUs"):
        gl.compare()


@pytest.mark.parametrize("function", ["launch", "warps", "count"])
def test_mistakes_are_short_errors_and_later_calls_work(addition: Any, function: str) -> None:
    kernel, args, expected = addition
    run = getattr(gl, function)
    with pytest.raises(TypeError, match="divide with //"):
        run(kernel, N / BLOCK, BLOCK, args)
    with pytest.raises(TypeError, match="`args` is a tuple"):
        run(kernel, GRID, BLOCK, args[0])
    with pytest.raises(TypeError, match="carries no CUDA C"):
        run(len, GRID, BLOCK, args)
    with pytest.raises(Exception, match=r"invalid configuration|InvalidValue|INVALID_VALUE|1,?024"):
        run(kernel, GRID, 2048, args)
    with pytest.raises(TypeError, match="4"):
        run(kernel, GRID, BLOCK, args[:3])
    fault = gl.cp.RawKernel(NO_TAIL_CHECK, "double_all")
    with pytest.raises(RuntimeError, match=r"double_all.*line 4.*block.*thread") as caught:
        run(fault, GRID, BLOCK, (gl.cp.ones(N, gl.cp.float32),))
    assert caught.value.status == 700  # type: ignore[attr-defined]
    run(kernel, GRID, BLOCK, args)
    np.testing.assert_array_equal(args[2].get(), expected)


def test_an_endless_loop_ends_with_the_watchdog() -> None:
    gl.use_device(watchdog_s=0.5)
    kernel = gl.cp.RawKernel(FOREVER, "forever")
    with pytest.raises(RuntimeError, match="forever") as caught:
        gl.launch(kernel, 1, 32, (gl.cp.zeros(1, gl.cp.int32),))
    assert caught.value.status == 702  # type: ignore[attr-defined]


def test_each_function_runs_the_kernel_exactly_once() -> None:
    x = gl.cp.zeros(100, gl.cp.int32)
    kernel = gl.cp.RawKernel(COUNT_UP, "count_up")
    for times, function in enumerate((gl.launch, gl.warps, gl.count), start=1):
        function(kernel, 1, 128, (x, np.int32(100)))
        assert (x.get() == times).all(), function.__name__


def test_every_result_has_its_record(addition: Any) -> None:
    kernel, args, _ = addition
    launch = (kernel, GRID, BLOCK, args)
    counted = gl.count(*launch)
    checked = gl.sanitize(*launch)
    found = {
        LaunchTrace: gl.launch(*launch).record,
        WarpTrace: gl.warps(*launch).record,
        BlockTrace: gl.warps(*launch, whole_block=True).record,
        KernelCounters: counted.record,
        SanitizerReport: checked.record,
        DeviceInfo: gl.device("T4").record,
        Occupancy: gl.occupancy(kernel).record,
    }
    for kind, record in found.items():
        assert type(record[0] if isinstance(record, tuple) else record) is kind
    assert counted.record.total("requests") == counted.total("requests") > 0
    assert checked.record.clean


def test_what_is_left_out_of_an_access_is_the_first_warp_and_neighbours() -> None:
    pattern = gl.access().access
    assert (pattern.memory().sectors, pattern.banks().wavefronts) == (4, 1)
    code = """extern "C" __global__ void k(float* x) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        x[(1 + warp) * lane] = 1.0f;
    }"""
    args = (gl.cp.zeros(64, np.float32),)
    assert gl.access(gl.cp.RawKernel(code, "k"), 1, 64, args).access.memory().sectors == 4
    assert gl.access(gl.cp.RawKernel(code, "k"), 1, 64, args, warp=1).access.memory().sectors == 8


def test_counts_as_run_stand_beside_the_programs_lines() -> None:
    if not sass.available():
        pytest.skip("needs nvdisasm")
    table = gl.machine_code(
        gl.cp.RawKernel(COUNT_UP, "count_up"), 1, 32, (gl.cp.zeros(32, np.int32), np.int32(32))
    )
    assert "if (i < n) x[i] += 1;" in str(table)


def test_a_graph_takes_an_array_that_was_put_in_by_name_for_its_own() -> None:
    x = gl.cp.ones(32, np.float32)
    other = gl.cp.full(32, 5, np.float32)
    g = gl.graph(lambda x: x + 1, x)
    g.update(x=other)
    assert [array is other for array in g.arrays] == [True]
    assert float(g()[0]) == 6


def test_nodes_of_a_launch_that_cupti_saw_are_numbered_as_the_graphs() -> None:
    """CUPTI's numbers are its own; another launch's operations keep theirs."""
    kinds: Any = (("KERNEL", "add", None), ("MEMCPY", "copy", "DtoD"), ("KERNEL", "add", None))
    nodes = tuple(
        GraphNode(number=k, kind=kind, name=name, copy_kind=way) for k, (kind, name, way) in enumerate(kinds)
    )
    graph = GraphRecord(MEASURED, nodes, ((0, 1), (1, 2)))
    launched: Any = ("CONCURRENT_KERNEL", "add", None)
    seen: Any = ((*launched, 7), ("MEMCPY", "copy", "DtoD", 7), (*launched, 0), (*launched, 7))
    activities = tuple(
        Activity(
            kind=kind,
            name=name,
            device_id=0,
            stream_id=7,
            correlation_id=10 + k,
            start_ns=k,
            end_ns=k + 1,
            copy_kind=way,
            graph_id=of,
            graph_node_id=99,
        )
        for k, (kind, name, way, of) in enumerate(seen)
    )
    told = Timeline(provenance=MEASURED, method="CUPTI", start_ns=0, end_ns=9, activities=activities)
    assert [each.graph_node_id for each in numbered(told, graph).activities] == [0, 1, 99, 2]
    modelled = replace(told, provenance=Provenance("modelled", "a device"))
    assert numbered(modelled, graph) is modelled
