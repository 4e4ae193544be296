"""The public functions from end to end on the virtual GPU: a kernel in, a picture and numbers out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.lab.graph_cost import number_nodes
from gpulab.views.tables.count import CounterTable
from tests.session.kernels import COLUMN_SUM, COUNT_UP, NO_TAIL_CHECK, VECTOR_ADD
from virtualgpu.compile import sass
from virtualgpu.records import Activity, GraphNode, GraphRecord, Provenance, Timeline

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
    assert trace.occupancy.blocks_per_sm == 8, "2,048 threads per SM of capability 8.0 in blocks of 256"
    assert "modelled on virtual A100-SXM4-80GB" in repr(chart)
    assert chart.png().startswith(b"\x89PNG")


def test_the_slider_shows_a_fault_instead_of_raising_it() -> None:
    x = gl.cp.ones(1024, gl.cp.float32)
    chart = gl.launch(gl.cp.RawKernel(NO_TAIL_CHECK, "double_all"), 4, 256, (x,))
    chart.block_threads = 768
    assert "double_all" in chart.error
    assert "IllegalAddress" in chart.error
    np.testing.assert_array_equal(x.get(), 2)
    chart.block_threads = 128
    assert chart.error == ""


def test_a_two_dimensional_launch_has_no_slider() -> None:
    x = gl.cp.zeros(64, gl.cp.int32)
    chart = gl.launch(gl.cp.RawKernel(COUNT_UP, "count_up"), (2, 2), (8, 8), (x, np.int32(64)))
    assert not chart.controls


def test_warps_traces_the_selected_warp(addition: Any) -> None:
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


def test_counts_equal_values_computed_by_hand() -> None:
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
    assert "executed on virtual A100-SXM4-80GB" in repr(table)
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
    with pytest.raises(ValueError, match=r"2,048 threads is too large.*at most 1,024"):
        gl.occupancy(kernel, block=(64, 32))


def test_device_and_compare() -> None:
    assert "A100-SXM4-80GB" in repr(gl.device())
    assert gl.device("H200").info.sm_count == 132
    assert [info.name for info in gl.compare("T4", "H200", "B200").record] == ["T4", "H200", "B200"]
    names = [info.name for info in gl.compare("T4").record]
    assert names == ["A100-SXM4-80GB", "T4"], "one name is compared with the device in use"
    assert gl.compare("A100", "a100").title == "A100-SXM4"
    with pytest.raises(gl.errors.UnknownDeviceError, match="Did you mean 'H200'"):
        gl.compare("T4", "H20O")
    with pytest.raises(TypeError, match="Pass the names of GPUs"):
        gl.compare()


@pytest.mark.parametrize("function", [gl.launch, gl.warps, gl.count], ids=lambda f: f.__name__)
def test_wrong_arguments_raise_errors_and_later_calls_work(addition: Any, function: Any) -> None:
    kernel, args, expected = addition
    with pytest.raises(TypeError, match="Divide with //"):
        function(kernel, N / BLOCK, BLOCK, args)
    with pytest.raises(TypeError, match="`args` must be a tuple"):
        function(kernel, GRID, BLOCK, args[0])
    with pytest.raises(TypeError, match="has no CUDA C"):
        function(len, GRID, BLOCK, args)
    with pytest.raises(Exception, match=r"invalid configuration|InvalidValue|INVALID_VALUE|1,?024"):
        function(kernel, GRID, 2048, args)
    with pytest.raises(TypeError, match="4"):
        function(kernel, GRID, BLOCK, args[:3])
    fault = gl.cp.RawKernel(NO_TAIL_CHECK, "double_all")
    with pytest.raises(RuntimeError, match=r"double_all.*line 4.*block.*thread") as error:
        function(fault, GRID, BLOCK, (gl.cp.ones(N, gl.cp.float32),))
    assert error.value.status == 700  # type: ignore[attr-defined]
    function(kernel, GRID, BLOCK, args)
    np.testing.assert_array_equal(args[2].get(), expected)
    x = gl.cp.zeros(100, gl.cp.int32)
    function(gl.cp.RawKernel(COUNT_UP, "count_up"), 1, 128, (x, np.int32(100)))
    assert (x.get() == 1).all(), "the kernel runs exactly once"


def test_default_access_is_coalesced_and_of_the_first_warp() -> None:
    pattern = gl.access().access
    assert (pattern.memory().sectors, pattern.banks().wavefronts) == (4, 1)
    code = """extern "C" __global__ void k(float* x) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        x[(1 + warp) * lane] = 1.0f;
    }"""
    args = (gl.cp.zeros(64, np.float32),)
    assert gl.access(gl.cp.RawKernel(code, "k"), 1, 64, args).access.memory().sectors == 4
    assert gl.access(gl.cp.RawKernel(code, "k"), 1, 64, args, warp=1).access.memory().sectors == 8


def test_machine_code_is_shown_with_the_program_s_lines() -> None:
    if not sass.is_available():
        pytest.skip("needs nvdisasm")
    table = gl.machine_code(
        gl.cp.RawKernel(COUNT_UP, "count_up"), 1, 32, (gl.cp.zeros(32, np.int32), np.int32(32))
    )
    assert "if (i < n) x[i] += 1;" in str(table)


def test_activities_of_a_graph_have_the_numbers_of_its_nodes() -> None:
    """CUPTI numbers nodes differently. Operations outside the graph keep their numbers."""
    kinds: Any = (("KERNEL", "add", None), ("MEMCPY", "copy", "DtoD"), ("KERNEL", "add", None))
    nodes = tuple(
        GraphNode(number=k, kind=kind, name=name, copy_kind=way) for k, (kind, name, way) in enumerate(kinds)
    )
    graph = GraphRecord(MEASURED, nodes, ((0, 1), (1, 2)))
    launched: Any = ("CONCURRENT_KERNEL", "add", None)
    rows: Any = ((*launched, 7), ("MEMCPY", "copy", "DtoD", 7), (*launched, 0), (*launched, 7))
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
            graph_id=graph_id,
            graph_node_id=99,
        )
        for k, (kind, name, way, graph_id) in enumerate(rows)
    )
    line = Timeline(provenance=MEASURED, method="CUPTI", start_ns=0, end_ns=9, activities=activities)
    assert [activity.graph_node_id for activity in number_nodes(line, graph).activities] == [0, 1, 99, 2]
    modelled = replace(line, provenance=Provenance("modelled", "a device"))
    assert number_nodes(modelled, graph) is modelled
