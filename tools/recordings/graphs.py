"""Record graphs on a GPU: nodes of a capture, updates and their errors, memory nodes, costs.

``python -m tools.recordings.graphs --out FILE`` on a machine with a GPU, CuPy and cuda-bindings. Parts stand
alone: one that fails is told and takes nothing along.
"""

from __future__ import annotations

import argparse
import faulthandler
import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.json_rows import json_rows

LIMIT_S = 28
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
N = 1024
CODE = r"""
extern "C" __global__ void add(float* x, float y) { x[blockIdx.x * blockDim.x + threadIdx.x] += y; }
extern "C" __global__ void put(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void late(float* x, long long clocks) {
    long long from = clock64();
    while (clock64() - from < clocks) {}
    x[0] += 1;
}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts and write their results; return the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file for the results, as JSON")
    parser.add_argument("--parts", default="", help="names of parts, by commas; all by default")
    options = parser.parse_args(arguments)
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    results: dict[str, Any] = {"python": platform.python_version(), "errors": {}}
    for name in options.parts.split(",") if options.parts else PARTS:
        start_s = time.perf_counter()
        try:
            results[name] = PARTS[name]()
        except Exception as error:
            results["errors"][name] = f"{type(error).__name__}: {error}"
        print(
            f"{name}: {time.perf_counter() - start_s:.1f} s {results['errors'].get(name, '')[:200]}",
            flush=True,
        )
        if options.out:
            options.out.write_text(json_rows(results, 2))
    return 0


def _import_cupy() -> Any:
    import cupy

    return cupy


def _load_kernel(name: str) -> Any:
    return _import_cupy().RawModule(code=CODE).get_function(name)


def _capture(work: Callable[[Any], object]) -> tuple[Any, Any]:
    stream = _import_cupy().cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            work(stream)
        finally:
            graph = stream.end_capture()
    return graph, stream


def describe_machine() -> dict[str, Any]:
    """Return the versions of the driver and the packages."""
    from importlib import metadata

    cp = _import_cupy()
    package_names = ("cupy-cuda13x", "cupy-cuda12x", "cuda-bindings", "cuda-core", "cuda-python")
    versions = {}
    for name in package_names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    driver = cp.cuda.runtime.driverGetVersion()
    runtime = cp.cuda.runtime.runtimeGetVersion()
    properties = cp.cuda.runtime.getDeviceProperties(0)
    return {"gpu": properties["name"].decode(), "driver": driver, "runtime": runtime, **versions}


def record_nodes() -> list[Any]:
    """Record a forked capture as `gpulab.real.graphs` reads it, and CUDA's own drawing of it."""
    from gpulab.real import graphs
    from virtualgpu.records import Provenance

    cp = _import_cupy()
    add_kernel = _load_kernel("add")
    put_kernel = _load_kernel("put")
    x = cp.zeros(64, np.float32)
    y = cp.zeros(64, np.float32)
    second_stream = cp.cuda.Stream(non_blocking=True)
    pinned_memory = cp.cuda.alloc_pinned_memory(256)

    def work(stream: Any) -> None:
        add_kernel((2,), (32,), (x, np.float32(2)))
        second_stream.wait_event(stream.record())
        with second_stream:
            add_kernel((2,), (32,), (y, np.float32(3)))
            put_kernel((1,), (64,), (x, y), shared_mem=512)
            z = x * 2 + y
            z.sum()
        y.data.memset_async(0, 128, stream)
        stream.wait_event(second_stream.record())
        x.data.copy_from_device_async(y.data, 64, stream)
        cp.cuda.runtime.memcpyAsync(
            pinned_memory.ptr, x.data.ptr, 256, cp.cuda.runtime.memcpyDefault, stream.ptr
        )
        cp.cuda.runtime.memcpyAsync(
            x.data.ptr, pinned_memory.ptr, 256, cp.cuda.runtime.memcpyHostToDevice, stream.ptr
        )
        stream.launch_host_func(print, "")

    graph, _ = _capture(work)
    record = graphs.read_graph(graph, Provenance("measured", "gpu"))
    node_rows = [
        {
            "kind": node.kind,
            "name": node.name,
            "grid": node.grid,
            "block": node.block,
            "shared": node.shared_bytes,
            "size": node.size_bytes,
            "copy": node.copy_kind,
            "parameters": [
                (parameter.offset, parameter.data.hex(), parameter.addresses) for parameter in node.parameters
            ],
        }
        for node in record.nodes
    ]
    raw_nodes = []
    driver = graphs._import_driver()
    for node_handle in graphs._read_handles(graph):
        node_type = driver.cuGraphNodeGetType(node_handle)[1].name
        if "MEMCPY" in node_type:
            raw_nodes.append(str(driver.cuGraphMemcpyNodeGetParams(node_handle)[1]))
        elif "MEMSET" in node_type:
            raw_nodes.append(str(driver.cuGraphMemsetNodeGetParams(node_handle)[1]))
    addresses = {"x": x.data.ptr, "y": y.data.ptr, "pinned": pinned_memory.ptr}
    return [node_rows, record.edges, record.note, graph.debug_dot_str(0), raw_nodes, addresses]


def record_updates() -> dict[str, Any]:
    """Record the changes that an executable graph accepts, and CUDA's messages for the others."""
    from gpulab.real import graphs

    cp = _import_cupy()
    driver = graphs._import_driver()
    add_kernel = _load_kernel("add")
    kernel = _load_kernel("put")
    x = cp.zeros(64, np.float32)
    y = cp.ones(64, np.float32)
    pinned_memory = cp.cuda.alloc_pinned_memory(256)
    host_to = cp.cuda.runtime.memcpyHostToDevice
    work_by_name: dict[str, Callable[[Any], object]] = {
        "add": lambda s: add_kernel((2,), (32,), (x, np.float32(1))),
        "another value": lambda s: add_kernel((2,), (32,), (x, np.float32(5))),
        "another array": lambda s: add_kernel((2,), (32,), (y, np.float32(5))),
        "another shape": lambda s: add_kernel((1,), (64,), (x, np.float32(5))),
        "another kernel": lambda s: kernel((1,), (64,), (x, y)),
        "a memset": lambda s: x.data.memset_async(0, 256, s),
        "another memset": lambda s: y.data.memset_async(1, 128, s),
        "a copy": lambda s: x.data.copy_from_device_async(y.data, 256, s),
        "a copy back": lambda s: y.data.copy_from_device_async(x.data, 128, s),
        "a copy from the host": lambda s: cp.cuda.runtime.memcpyAsync(
            x.data.ptr, pinned_memory.ptr, 256, host_to, s.ptr
        ),
        "two kernels": lambda s: [add_kernel((2,), (32,), (x, np.float32(1))) for _ in range(2)],
        "nothing": lambda s: None,
    }
    results: dict[str, Any] = {}
    for base_name in ("add", "a memset", "a copy", "two kernels"):
        for name, work in work_by_name.items():
            graph, _ = _capture(work_by_name[base_name])
            changed_graph, _ = _capture(work)
            status, info = driver.cuGraphExecUpdate(
                driver.CUgraphExec(graph.graphExec), driver.CUgraph(changed_graph.graph)
            )
            results[f"{base_name} -> {name}"] = (status.name, str(getattr(info, "result", info)))
    try:
        graphs.check_result((driver.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,))
    except Exception as error:
        results["words"] = f"{type(error).__name__} {getattr(error, 'status', '')}: {error}"
    return results


def _measure_host_ns(run: Callable[[], object], repeats: int) -> float:
    start_ns = time.perf_counter_ns()
    for _ in range(repeats):
        run()
    return (time.perf_counter_ns() - start_ns) / repeats


def time_costs() -> dict[int, Any]:
    """Time launches with and without a graph, and the creation and upload of graphs, by number of nodes."""
    cp = _import_cupy()
    add_kernel = _load_kernel("add")
    x = cp.zeros(N, np.float32)
    rows_by_count: dict[int, Any] = {}
    for count in COUNTS:
        argument = (x, np.float32(1))

        def work(stream: Any, count: int = count, argument: Any = argument) -> None:
            for _ in range(count):
                add_kernel((4,), (256,), argument)

        repeats = max(3, 300 // count)
        stream = cp.cuda.Stream(non_blocking=True)
        costs_ns: dict[str, Any] = {}
        with stream:
            work(stream)
            stream.synchronize()
            begin_event = cp.cuda.Event()
            end_event = cp.cuda.Event()
            begin_event.record()
            costs_ns["eager_host"] = _measure_host_ns(partial(work, stream), repeats)
            end_event.record()
            end_event.synchronize()
            costs_ns["eager_device"] = cp.cuda.get_elapsed_time(begin_event, end_event) * 1e6 / repeats
            for is_uploaded in (False, True):
                stream.begin_capture()
                start_ns = time.perf_counter_ns()
                work(stream)
                costs_ns["capture_host"] = time.perf_counter_ns() - start_ns
                start_ns = time.perf_counter_ns()
                graph = stream.end_capture()
                costs_ns["end_capture_host"] = time.perf_counter_ns() - start_ns
                if is_uploaded:
                    costs_ns["upload_host"] = _measure_host_ns(partial(graph.upload, stream), 1)
                    stream.synchronize()
                costs_ns[f"first_launch_host_{'uploaded' if is_uploaded else 'not_uploaded'}"] = (
                    _measure_host_ns(graph.launch, 1)
                )
                stream.synchronize()
                costs_ns.setdefault("second_launch_host", _measure_host_ns(graph.launch, 1))
                stream.synchronize()
            begin_event.record()
            costs_ns["launch_host"] = _measure_host_ns(graph.launch, repeats)
            end_event.record()
            end_event.synchronize()
            costs_ns["launch_device"] = cp.cuda.get_elapsed_time(begin_event, end_event) * 1e6 / repeats
            single_times_ns = []
            for _ in range(10):
                begin_event.record()
                graph.launch()
                end_event.record()
                end_event.synchronize()
                single_times_ns.append(cp.cuda.get_elapsed_time(begin_event, end_event) * 1e6)
            costs_ns["launch_between_events"] = sorted(single_times_ns)[5]
        rows_by_count[count] = {name: round(cost_ns) for name, cost_ns in costs_ns.items()}
    return rows_by_count


def record_memory() -> dict[str, Any]:
    """Record stream-ordered allocations within a capture: their nodes, and the memory after launches."""
    from gpulab.real import graphs

    cp = _import_cupy()
    runtime = _import_cupy().cuda.runtime
    results: dict[str, Any] = {}
    add_kernel = _load_kernel("add")
    kept_objects: list[Any] = []

    def with_free(stream: Any) -> None:
        address = runtime.mallocAsync(4096, stream.ptr)
        runtime.memsetAsync(address, 0, 4096, stream.ptr)
        runtime.freeAsync(address, stream.ptr)
        kept_objects.append(address)

    def without_free(stream: Any) -> None:
        address = runtime.mallocAsync(4096, stream.ptr)
        runtime.memsetAsync(address, 0, 4096, stream.ptr)
        kept_objects.append(address)

    def by_arrays(stream: Any) -> None:
        with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
            x = cp.zeros(N, np.float32)
            add_kernel((4,), (256,), (x, np.float32(1)))

    def by_pool(stream: Any) -> None:
        with cp.cuda.using_allocator(cp.cuda.MemoryPool().malloc):
            kept_objects.append(cp.zeros(1 << 22, np.float32) + 1)

    for work in (with_free, without_free, by_arrays, by_pool):
        result: dict[str, Any] = {}
        results[work.__name__] = result
        try:
            graph, stream = _capture(work)
            driver = graphs._import_driver()
            result["nodes"] = [
                driver.cuGraphNodeGetType(node_handle)[1].name for node_handle in graphs._read_handles(graph)
            ]
            result["dot"] = graph.debug_dot_str(0)
            for launch_number in range(3):
                try:
                    graph.launch(stream)
                    stream.synchronize()
                    result[f"launch {launch_number}"] = "ok"
                except Exception as error:
                    result[f"launch {launch_number}"] = (
                        f"{type(error).__name__} {getattr(error, 'status', '')}: {error}"
                    )
        except Exception as error:
            result["error"] = f"{type(error).__name__} {getattr(error, 'status', '')}: {error}"
    results["address"] = [hex(a) for a in kept_objects if isinstance(a, int)]
    return results


def record_refusals() -> dict[str, str]:
    """Record further calls that a capture refuses, and whether the graph is then invalid."""
    cp = _import_cupy()
    runtime = _import_cupy().cuda.runtime
    x = cp.zeros(16, np.float32)
    second_stream = cp.cuda.Stream(non_blocking=True)
    add_kernel = _load_kernel("add")
    blocking_stream = cp.cuda.Stream()
    work_by_name: dict[str, Callable[[Any], object]] = {
        "begin of another stream": lambda s: [second_stream.begin_capture(), second_stream.end_capture()],
        "work on another stream": lambda s: add_kernel((1,), (16,), (x, np.float32(1)), stream=second_stream),
        "work on a blocking stream": lambda s: add_kernel(
            (1,), (16,), (x, np.float32(1)), stream=blocking_stream
        ),
        "work on the default stream": lambda s: add_kernel(
            (1,), (16,), (x, np.float32(1)), stream=cp.cuda.Stream.null
        ),
        "sync of another stream": lambda s: second_stream.synchronize(),
        "cudaMalloc": lambda s: runtime.free(runtime.malloc(1 << 20)),
        "cudaFree of an array": lambda s: runtime.free(runtime.malloc(1 << 20)),
        "compile": lambda s: cp.RawKernel(CODE.replace("add", "fresh"), "fresh")(
            (1,), (16,), (x, np.float32(1))
        ),
        "event query outside": lambda s: cp.cuda.Event().done,
        "matmul": lambda s: x.reshape(4, 4) @ x.reshape(4, 4),
        "fft": lambda s: cp.fft.fft(x),
        "sort": lambda s: cp.sort(x),
        "sum": lambda s: x.sum(),
        "argmax": lambda s: cp.argmax(x),
        "cumsum": lambda s: cp.cumsum(x),
        "random": lambda s: cp.random.rand(4),
        "generator": lambda s: cp.random.default_rng(1).random(4),
        "float()": lambda s: float(x[0]),
        "print": lambda s: repr(x),
        "where": lambda s: cp.where(x > 0, x, -x),
        "nonzero": lambda s: cp.nonzero(x),
        "item assignment from Python": lambda s: x.__setitem__(slice(None), 3),
        "from numpy": lambda s: cp.asarray(np.ones(4)),
        "scalar times array": lambda s: x * 2.5,
        "arange": lambda s: cp.arange(16),
        "einsum": lambda s: cp.einsum("i,i", x, x),
    }
    results = {}
    for name, work in work_by_name.items():
        stream = cp.cuda.Stream(non_blocking=True)
        outcome = "ok"
        with stream:
            stream.begin_capture()
            try:
                work(stream)
            except Exception as error:
                outcome = f"{type(error).__name__} {getattr(error, 'status', '')}: {str(error)[:160]}"
            try:
                stream.end_capture()
                outcome += " | graph kept"
            except Exception as error:
                outcome += f" | end: {type(error).__name__} {getattr(error, 'status', '')}"
        results[name] = outcome
    cp.cuda.Device().synchronize()
    return results


def record_gpulab() -> dict[str, Any]:
    """Record `gl.graph` as a learner uses it."""
    import gpulab as gl

    gl.use_device("cuda")
    cp = gl.cp
    add_kernel = _load_kernel("add")
    x = cp.ones(64, np.float32)

    def work(x: Any) -> Any:
        add_kernel((2,), (32,), (x, np.float32(2)))
        return cp.sqrt(x * 2) + 1

    graph = gl.graph(work, x)
    results: dict[str, Any] = {"repr": repr(graph), "pool": repr(graph.pool)}
    results["first"] = float(graph()[0])
    results["check"] = str(graph.check(x=cp.full(64, 9, np.float32)))
    new_input = cp.full(64, 6, np.float32)
    graph.update(x=new_input)
    results["updated"] = float(graph()[0])
    results["expected"] = [float(np.sqrt(v * 2) + 1) for v in (3, 8)]
    comparison = gl.graph(lambda x: [work(x) for _ in range(20)], x).compare(repeats=10)
    results["compare"] = repr(comparison)
    replay = comparison.record.replay
    activities = replay.activities if replay else ()
    results["replay"] = [
        (activity.name, activity.graph_id, activity.graph_node_id, activity.duration_ns)
        for activity in activities[:9]
    ]
    results["replayed"] = (replay.method if replay else "", len(activities), replay.note if replay else "")
    results["names"] = [node.name for node in graph.record.nodes]
    return results


def record_conditional() -> dict[str, Any]:
    """Record whether cuda.core builds graphs with conditional nodes, and the names of its functions."""
    import cuda.core as core

    names_by_module = {"version": core.__version__, "names": [name for name in dir(core) if "raph" in name]}
    for name in ("cuda.core.graph", "cuda.core.experimental"):
        try:
            module = __import__(name, fromlist=["x"])
            names_by_module[name] = [name for name in dir(module) if not name.startswith("_")]
        except ImportError as error:
            names_by_module[name] = str(error)
    return names_by_module


PARTS: dict[str, Callable[[], Any]] = {
    "machine": describe_machine,
    "gpulabs": record_gpulab,
    "nodes": record_nodes,
    "updates": record_updates,
    "memory": record_memory,
    "refusals": record_refusals,
    "costs": time_costs,
    "conditional": record_conditional,
}

if __name__ == "__main__":
    sys.exit(main())
