"""Record data for notebook 08 without a GPU: copies, managed memory, IPC, cuFile.

``python -m tools.recordings.moving_data --out FILE`` on a machine with a GPU, CuPy and, if it is there, torch
and cuFile. Each part runs in a process of its own with a limit on its time, so that one that fails or hangs
takes nothing along. Never more than 64 MiB of managed memory.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpulab_course.content.n08_copies import processes, storage

LIMIT_S = 20
SIZES = tuple(1 << k for k in (12, 14, 16, 18, 20, 22, 24, 26, 28))
BIG_BYTES = 64 << 20
REPEATS = 5

_KERNELS_CODE = r"""
extern "C" __global__ void twice(const float* x, float* y, long long n, int rounds) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        float sum = 0;
        for (int r = 0; r < rounds; ++r) sum += ((volatile const float*)x)[i];
        y[i] = 2 * sum;
    }
}
// Plain loads, so that a cache may serve them: `rounds` passes over all of x, one after the other.
extern "C" __global__ void passes(const float* x, float* y, long long n, int rounds) {
    for (int r = 0; r < rounds; ++r)
        for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
             i += (long long)gridDim.x * blockDim.x) y[i] = x[i] + (r ? y[i] : 0);
}
extern "C" __global__ void every(float* x, long long n, long long step) {
    long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * step;
    if (i < n) x[i] += 1;
}
extern "C" __global__ void gather(const float* x, const int* at, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[at[i]];
}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts and write their results; return the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file for the results, as JSON")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        print(json.dumps(PARTS[options.part](), separators=(",", ":")))
        return 0
    results = {name: _run_in_process(name) for name in PARTS if name not in UNTIMED}
    with ThreadPoolExecutor() as pool:
        results |= dict(zip(UNTIMED, pool.map(_run_in_process, UNTIMED), strict=True))
    results_json = json.dumps(results, separators=(",", ":"))
    if options.out:
        options.out.write_text(f"{results_json}\n", encoding="utf-8")
    print(
        f"{len(results_json):,} bytes; "
        + ", ".join(f"{k}: {v.get('failed', 'ok')}" for k, v in results.items())
    )
    return 0


def _run_in_process(part: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.recordings.moving_data", "--part", part]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {LIMIT_S} s"}
    try:
        results: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"failed": (process.stderr.strip().splitlines() or ["no output"])[-1][:300]}
    return results


def _import_cupy() -> Any:
    import cupy

    cupy.zeros(1)
    return cupy


def _measure_median_us(run: Callable[[], float], repeats: int = REPEATS) -> float:
    run()
    return round(statistics.median(run() for _ in range(repeats)), 2)


class Watch:
    """A timer of calls. It measures with events on the device, and with the clock of the host."""

    def __init__(self, cp: Any) -> None:
        self.cp = cp
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.events = cp.cuda.Event(), cp.cuda.Event()

    def both(self, call: Callable[[], Any], repeats: int = REPEATS) -> dict[str, float]:
        """Return two median times of a call in µs: on the device, and until the call returned."""
        rows = [self.once(call) for _ in range(repeats + 1)][1:]
        device_us, host_us = (round(statistics.median(column), 2) for column in zip(*rows, strict=True))
        return {"device_us": device_us, "call_us": host_us}

    def once(self, call: Callable[[], Any]) -> tuple[float, float]:
        self.cp.cuda.Device().synchronize()
        begin_event, end_event = self.events
        with self.stream:
            begin_event.record()
            start_s = time.perf_counter()
            call()
            call_s = time.perf_counter() - start_s
            end_event.record()
        end_event.synchronize()
        return self.cp.cuda.get_elapsed_time(begin_event, end_event) * 1e3, call_s * 1e6


def describe_device() -> dict[str, Any]:
    """Return the device's name and the attributes of its memory."""
    cp = _import_cupy()
    runtime = cp.cuda.runtime
    attributes = cp.cuda.Device().attributes
    names = (
        "ConcurrentManagedAccess PageableMemoryAccess PageableMemoryAccessUsesHostPageTables "
        "CanMapHostMemory DirectManagedMemAccessFromHost HostNativeAtomicSupported "
        "CanUseHostPointerForRegisteredMem AsyncEngineCount HostRegisterSupported UnifiedAddressing"
    )
    return {
        "device": runtime.getDeviceProperties(0)["name"].decode(),
        "date": time.strftime("%Y-%m-%d"),
        "cupy": cp.__version__,
        "driver": runtime.driverGetVersion(),
        "host": platform.machine(),
        "cpus": os.cpu_count(),
        "attributes": {name: attributes.get(name) for name in names.split()},
        "pcie": _read_pcie_link(),
    }


def _read_pcie_link() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
        device_handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return {
            "generation": pynvml.nvmlDeviceGetMaxPcieLinkGeneration(device_handle),
            "width": pynvml.nvmlDeviceGetMaxPcieLinkWidth(device_handle),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
        }
    except Exception as error:
        return f"not available: {error}"


def time_rates() -> dict[str, Any]:
    """Time copies by kind and size, in microseconds: on the device, and until the call returned."""
    cp = _import_cupy()
    import cupyx

    runtime = cp.cuda.runtime
    timer = Watch(cp)
    device = cp.empty(SIZES[-1], cp.uint8)
    second_array = cp.empty(SIZES[-1], cp.uint8)
    host_arrays = {
        "pinned": cupyx.zeros_pinned(SIZES[-1], np.uint8),
        "pageable": np.ones(SIZES[-1], np.uint8),
    }
    results: dict[str, Any] = {"sizes": SIZES}

    def copies(target: int, source: int, kind: int) -> list[dict[str, float]]:
        return [
            timer.both(partial(runtime.memcpyAsync, target, source, size, kind, timer.stream.ptr))
            for size in SIZES
        ]

    for name, host_array in host_arrays.items():
        results[f"HtoD {name}"] = copies(device.data.ptr, host_array.ctypes.data, runtime.memcpyHostToDevice)
        results[f"DtoH {name}"] = copies(host_array.ctypes.data, device.data.ptr, runtime.memcpyDeviceToHost)
    results["DtoD"] = copies(second_array.data.ptr, device.data.ptr, runtime.memcpyDeviceToDevice)
    return results


def time_arrays() -> dict[str, Any]:
    """Time copies of CuPy's arrays, of 64 MiB unless the name gives another size."""
    cp = _import_cupy()
    import cupyx

    timer = Watch(cp)
    n = BIG_BYTES // 4
    pageable_array = np.ones(n, np.float32)
    pinned_array = cupyx.zeros_pinned(n, np.float32)
    x = cp.ones(n, cp.float32)
    output_array = np.ones(n, np.float32)
    staging_array = cupyx.zeros_pinned(1024 * 1000, np.float32)
    small_rows = staging_array.reshape(1000, 1024)
    call_by_name: dict[str, Callable[[], Any]] = {
        "asarray pageable": lambda: cp.asarray(pageable_array),
        "asarray pageable blocking": lambda: cp.asarray(pageable_array, blocking=True),
        "asarray pinned": lambda: cp.asarray(pinned_array),
        "set pageable": lambda: x.set(pageable_array),
        "set pinned": lambda: x.set(pinned_array),
        "get": lambda: x.get(),
        "get out pageable": lambda: x.get(out=output_array),
        "get out pinned": lambda: x.get(out=pinned_array),
        "get out pinned blocking=False": lambda: x.get(out=pinned_array, blocking=False),
        "get out pageable blocking=False": lambda: x.get(out=output_array, blocking=False),
        "there and back": lambda: cp.asarray(x.get()),
        "copy": lambda: x.copy(),
        "1000 x 4 KiB": lambda: [cp.asarray(small_row) for small_row in small_rows],
        "1 x 4 MB": lambda: cp.asarray(staging_array),
        "every 32nd of 64 MiB": lambda: x[::32].get(),
        "float(x[0])": lambda: float(x[0]),
    }
    results: dict[str, Any] = {name: timer.both(call) for name, call in call_by_name.items()}
    results["set in the null stream"] = _time_null_set(cp, x, pinned_array)
    host_array = np.ones(n, np.float32)

    def numpy_copy() -> float:
        start_s = time.perf_counter()
        pinned_array[...] = host_array
        return (time.perf_counter() - start_s) * 1e6

    results["numpy into pinned"] = {"call_us": _measure_median_us(numpy_copy)}
    start_s = time.perf_counter()
    cp.cuda.alloc_pinned_memory(128 << 20)
    results["first 128 MiB of pinned memory"] = {"call_us": round((time.perf_counter() - start_s) * 1e6, 2)}
    return results


def _time_null_set(cp: Any, x: Any, pinned: Any) -> dict[str, float]:
    cp.cuda.Device().synchronize()
    x.set(pinned)
    cp.cuda.Device().synchronize()
    start_s = time.perf_counter()
    x.set(pinned)
    call_s = time.perf_counter() - start_s
    cp.cuda.Device().synchronize()
    return {"call_us": round(call_s * 1e6, 2), "done_us": round((time.perf_counter() - start_s) * 1e6, 2)}


def time_busy() -> dict[str, Any]:
    """Return the time in µs of a call that starts a copy while a kernel is running for about 5 ms."""
    cp = _import_cupy()
    import cupyx

    runtime = cp.cuda.runtime
    stream = cp.cuda.Stream(non_blocking=True)
    spin_kernel = cp.RawKernel(
        r"""extern "C" __global__ void spin(long long clocks) {
            long long begin = clock64();
            while (clock64() - begin < clocks) { }
        }""",
        "spin",
    )
    x = cp.zeros(64 << 20, cp.uint8)
    host_arrays = {"pinned": cupyx.zeros_pinned(64 << 20, np.uint8), "pageable": np.ones(64 << 20, np.uint8)}
    results: dict[str, Any] = {}

    def call_us(call: Callable[[], Any]) -> float:
        cp.cuda.Device().synchronize()
        with stream:
            spin_kernel((1,), (1,), (np.int64(8_000_000),))
            start_s = time.perf_counter()
            call()
            took_us = (time.perf_counter() - start_s) * 1e6
        stream.synchronize()
        return round(took_us, 1)

    def time_copy(target: int, source: int, size: int, kind: int) -> float:
        return min(
            call_us(partial(runtime.memcpyAsync, target, source, size, kind, stream.ptr)) for _ in range(2)
        )

    for name, host_array in host_arrays.items():
        address = host_array.ctypes.data
        for size in (1 << 12, 1 << 16, (1 << 16) + 1, 1 << 20, 1 << 22, 1 << 24, 1 << 26):
            results[f"HtoD {name} {size}"] = time_copy(x.data.ptr, address, size, runtime.memcpyHostToDevice)
            results[f"DtoH {name} {size}"] = time_copy(address, x.data.ptr, size, runtime.memcpyDeviceToHost)
    host_array = host_arrays["pageable"]
    pinned_array = host_arrays["pinned"]
    results["asarray pageable 64 MiB"] = call_us(lambda: cp.asarray(host_array))
    results["asarray pinned 64 MiB"] = call_us(lambda: cp.asarray(pinned_array))
    results["set pageable 64 MiB"] = call_us(lambda: x.set(host_array))
    results["set pinned 64 MiB"] = call_us(lambda: x.set(pinned_array))
    results["set pinned 64 MiB, stream="] = call_us(lambda: x.set(pinned_array, stream=stream))
    results["get(out=pinned, blocking=False)"] = call_us(lambda: x.get(out=pinned_array, blocking=False))
    results["get(out=pageable, blocking=False)"] = call_us(lambda: x.get(out=host_array, blocking=False))
    results["malloc_managed 1 MiB"] = call_us(lambda: cp.cuda.malloc_managed(1 << 20))
    results["cudaMalloc 1 MiB"] = call_us(lambda: cp.cuda.Memory(1 << 20))
    results["hostAlloc 1 MiB"] = call_us(lambda: runtime.freeHost(runtime.hostAlloc(1 << 20, 0)))
    results["memset device memory"] = call_us(lambda: x.data.memset_async(0, 1 << 20, stream))
    return results


def time_zero_copy() -> dict[str, Any]:
    """Time kernels that read pinned memory over the bus: 64 MiB, once or 8 times, or 4,096 elements."""
    cp = _import_cupy()
    import cupyx

    timer = Watch(cp)
    module = cp.RawModule(code=_KERNELS_CODE)
    twice_kernel, passes_kernel, gather_kernel = (
        module.get_function(name) for name in ("twice", "passes", "gather")
    )
    n = BIG_BYTES // 4
    pinned_array = cupyx.zeros_pinned(n, np.float32)
    pinned_array[...] = 1
    memory = cp.cuda.UnownedMemory(pinned_array.ctypes.data, pinned_array.nbytes, pinned_array)
    mapped_array = cp.ndarray(n, cp.float32, cp.cuda.MemoryPointer(memory, 0))
    x = cp.ones(n, cp.float32)
    y = cp.empty(n, cp.float32)
    positions = cp.asarray(np.random.default_rng(1).integers(0, n, 4096).astype(np.int32))
    element_count = np.int64(n)
    blocks = 8 * cp.cuda.Device().attributes["MultiProcessorCount"]
    results: dict[str, Any] = {}
    for name, source_array in (("zero-copy", mapped_array), ("device", x)):
        for round_count in (1, 8):
            arguments = (source_array, y, element_count, np.int32(round_count))
            results[f"{name}, {round_count} reads"] = timer.both(
                partial(twice_kernel, (blocks,), (256,), arguments)
            )
        for round_count in (1, 8):
            arguments = (source_array, y, np.int64(n // 8), np.int32(round_count))
            results[f"{name}, 8 MiB in {round_count} passes"] = timer.both(
                partial(passes_kernel, (blocks,), (256,), arguments)
            )
        arguments = (source_array, positions, y, np.int32(4096))
        results[f"{name}, 4096 of {n}"] = timer.both(partial(gather_kernel, (16,), (256,), arguments))
        results[f"{name}, sum"] = timer.both(source_array.sum)
    results["zero-copy, written"] = timer.both(
        lambda: twice_kernel((blocks,), (256,), (x, mapped_array, element_count, np.int32(1)))
    )
    results["zero-copy right"] = bool((mapped_array[:100] == 2).all())
    small_array = cp.ndarray(1024, cp.float32, mapped_array.data)
    results["zero-copy, 4 KiB"] = timer.both(
        lambda: twice_kernel((4,), (256,), (small_array, y, np.int64(1024), np.int32(1)))
    )
    results["device, 4 KiB"] = timer.both(
        lambda: twice_kernel((4,), (256,), (x, y, np.int64(1024), np.int32(1)))
    )
    return results


def time_managed() -> dict[str, Any]:
    """Time 64 MiB of managed memory, used by the host and by kernels in turn."""
    cp = _import_cupy()
    runtime = cp.cuda.runtime
    timer = Watch(cp)
    module = cp.RawModule(code=_KERNELS_CODE)
    twice_kernel = module.get_function("twice")
    every_kernel = module.get_function("every")
    n = BIG_BYTES // 4
    element_count = np.int64(BIG_BYTES // 4)
    y = cp.empty(n, cp.float32)
    blocks = 8 * cp.cuda.Device().attributes["MultiProcessorCount"]
    results: dict[str, Any] = {}

    def make_managed_array() -> tuple[Any, Any]:
        pointer = cp.cuda.malloc_managed(BIG_BYTES)
        x = cp.ndarray(n, cp.float32, pointer)
        host = np.ctypeslib.as_array((ctypes.c_float * n).from_address(pointer.ptr))
        return x, host

    def time_host_writes(host: Any) -> float:
        start_s = time.perf_counter()
        host[...] = 1
        return round((time.perf_counter() - start_s) * 1e6, 1)

    def read(host: Any) -> float:
        start_s = time.perf_counter()
        float(host.sum())
        return round((time.perf_counter() - start_s) * 1e6, 1)

    def time_kernel(x: Any) -> float:
        return round(
            timer.once(lambda: twice_kernel((blocks,), (256,), (x, y, element_count, np.int32(1))))[0], 1
        )

    def time_kernel_writes(x: Any) -> float:
        return round(
            timer.once(lambda: twice_kernel((blocks,), (256,), (y, x, element_count, np.int32(1))))[0], 1
        )

    def time_prefetch(x: Any, device: int) -> float:
        pointer = x.data.ptr
        stream = timer.stream.ptr
        return round(timer.once(lambda: runtime.memPrefetchAsync(pointer, BIG_BYTES, device, stream))[0], 1)

    def time_strided(x: Any, step: int) -> float:
        threads = -(-n // step)
        blocks = -(-threads // 32)
        arguments = (x, element_count, np.int64(step))
        return round(timer.once(lambda: every_kernel((blocks,), (32,), arguments))[0], 1)

    warm_up_array, host = make_managed_array()
    (
        time_kernel(warm_up_array),
        time_host_writes(host),
        time_kernel(warm_up_array),
        time_strided(warm_up_array, 1024),
    )
    for repetition in range(3):
        x, host = make_managed_array()
        times_by_step: dict[str, Any] = {
            "host writes first": time_host_writes(host),
            "host writes again": time_host_writes(host),
        }
        times_by_step["kernel, pages on the host"] = time_kernel(x)
        times_by_step["kernel again"] = time_kernel(x)
        times_by_step["host reads, pages on the device"] = read(host)
        times_by_step["host reads again"] = read(host)
        times_by_step["kernel, back again"] = time_kernel(x)
        time_host_writes(host)
        times_by_step["prefetch"] = time_prefetch(x, 0)
        times_by_step["kernel after prefetch"] = time_kernel(x)
        host[0] = 1
        times_by_step["kernel after one page went back"] = time_kernel(x)
        try:
            times_by_step["prefetch to the host"] = time_prefetch(x, -1)
            times_by_step["host reads after prefetch"] = read(host)
        except Exception as error:
            times_by_step["prefetch to the host"] = f"{type(error).__name__}: {error}"
        time_host_writes(host)
        try:
            x.data.mem.advise(runtime.cudaMemAdviseSetReadMostly, cp.cuda.Device(0))
            times_by_step["kernel, read mostly"] = time_kernel(x)
            times_by_step["host reads, read mostly"] = read(host)
            times_by_step["kernel again, read mostly"] = time_kernel(x)
        except Exception as error:
            times_by_step["read mostly"] = f"{type(error).__name__}: {error}"
        x, host = make_managed_array()
        times_by_step["kernel writes first"] = time_kernel_writes(x)
        times_by_step["kernel writes again"] = time_kernel_writes(x)
        for stride_elements in (1024, 16384, 524288):
            x, host = make_managed_array()
            time_host_writes(host)
            times_by_step[f"kernel, one of every {4 * stride_elements:,} bytes"] = time_strided(
                x, stride_elements
            )
            times_by_step[f"all after one of every {4 * stride_elements:,} bytes"] = time_kernel(x)
        results[f"run {repetition + 1}"] = times_by_step
    results["device memory, kernel"] = time_kernel(cp.ones(n, cp.float32))
    x, host = make_managed_array()
    numpy_view = np.from_dlpack(x)
    numpy_view[0] = 7
    results["numpy shares by DLPack"] = bool(float(x[0]) == 7 and numpy_view.ctypes.data == x.data.ptr)
    results["dlpack device"] = [int(dlpack_number) for dlpack_number in x.__dlpack_device__()]
    pool = cp.cuda.MemoryPool(cp.cuda.malloc_managed)
    with cp.cuda.using_allocator(pool.malloc):
        results["pool of managed memory"] = cp.cuda.runtime.pointerGetAttributes(cp.ones(10).data.ptr).type
    return results


def record_refusals() -> dict[str, Any]:
    """Record CUDA's errors for impossible copies and registrations."""
    cp = _import_cupy()
    import cupyx

    runtime = cp.cuda.runtime
    host_array = np.zeros(1 << 20, np.uint8)
    host_address = host_array.ctypes.data
    pinned_array = cupyx.zeros_pinned(1 << 16, np.uint8)
    x = cp.zeros(1 << 16, cp.uint8)

    def describe_call(call: Callable[[], Any]) -> str:
        try:
            return f"ok: {call()}"
        except Exception as error:
            return f"{type(error).__name__} {getattr(error, 'status', '')}: {error}"[:200]

    call_by_name: dict[str, Callable[[], Any]] = {
        "register 0 bytes": lambda: runtime.hostRegister(host_address, 0, 0),
        "register null": lambda: runtime.hostRegister(0, 4096, 0),
        "register": lambda: runtime.hostRegister(host_address, 1 << 19, 0),
        "register twice": lambda: runtime.hostRegister(host_address, 1 << 19, 0),
        "register overlapping": lambda: runtime.hostRegister(host_address + 4096, 1 << 19, 0),
        "register inside": lambda: runtime.hostRegister(host_address + 4096, 4096, 0),
        "type of registered": lambda: runtime.pointerGetAttributes(host_address).type,
        "device of registered": lambda: runtime.pointerGetAttributes(host_address).device,
        "device pointer is host pointer": lambda: (
            runtime.pointerGetAttributes(host_address).devicePointer == host_address
        ),
        "register pinned": lambda: runtime.hostRegister(pinned_array.ctypes.data, 4096, 0),
        "register device": lambda: runtime.hostRegister(x.data.ptr, 4096, 0),
        "register flags 64": lambda: runtime.hostRegister(host_address + (1 << 19) + 8192, 4096, 64),
        "unregister inside": lambda: runtime.hostUnregister(host_address + 4096),
        "unregister": lambda: runtime.hostUnregister(host_address),
        "unregister twice": lambda: runtime.hostUnregister(host_address),
        "unregister pinned": lambda: runtime.hostUnregister(pinned_array.ctypes.data),
        "hostAlloc 0": lambda: runtime.hostAlloc(0, 0),
        "hostAlloc flags 64": lambda: runtime.hostAlloc(4096, 64),
        "freeHost of pageable": lambda: runtime.freeHost(host_address),
        "mallocManaged 0": lambda: runtime.mallocManaged(0),
        "mallocManaged flags 4": lambda: runtime.mallocManaged(4096, 4),
        "prefetch device memory": lambda: runtime.memPrefetchAsync(x.data.ptr, 4096, 0, 0),
        "memcpy 0 bytes": lambda: runtime.memcpy(x.data.ptr, host_address, 0, 1),
        "memcpy wrong kind": lambda: runtime.memcpy(x.data.ptr, host_address, 16, 2),
        "memcpy beyond": lambda: runtime.memcpy(x.data.ptr, host_address, 1 << 20, 1),
        "memcpy freed": lambda: runtime.memcpy(_find_freed_address(runtime), host_address, 16, 1),
        "ipc of pool memory": lambda: len(runtime.ipcGetMemHandle(x.data.ptr)),
        "ipc of host memory": lambda: len(runtime.ipcGetMemHandle(pinned_array.ctypes.data)),
        "ipc open here": lambda: runtime.ipcOpenMemHandle(runtime.ipcGetMemHandle(x.data.ptr)),
        "ipc open nonsense": lambda: runtime.ipcOpenMemHandle(bytes(64)),
        "ipc close nonsense": lambda: runtime.ipcCloseMemHandle(x.data.ptr),
        "peer with itself": lambda: runtime.deviceCanAccessPeer(0, 0),
        "enable peer with itself": lambda: runtime.deviceEnablePeerAccess(0),
        "from_dlpack of numpy": lambda: cp.from_dlpack(np.zeros(3)),
        "numpy from_dlpack of device": lambda: np.from_dlpack(cp.zeros(3)),
        "numpy from_dlpack cpu": lambda: np.from_dlpack(cp.zeros(3), device="cpu"),
        "pageable to a kernel": lambda: (
            cp.ndarray(
                4, cp.uint8, cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(host_address, 4096, host_array), 0)
            ).device
        ),
        "set from a view": lambda: cp.zeros(4, cp.uint8).set(host_array[::262144]),
        "set needs the dtype": lambda: cp.zeros(4).set(np.zeros(4, np.float32)),
        "dlpack stream 0": lambda: cp.zeros(3).__dlpack__(stream=0),
        "dlpack stream -1": lambda: type(cp.zeros(3).__dlpack__(stream=-1)).__name__,
    }
    results: dict[str, Any] = {}
    for name, call in call_by_name.items():
        results[name] = describe_call(call)
        print(json.dumps(results), flush=True)  # keeps the results before a call that ends the process
    return results


def _find_freed_address(runtime: Any) -> int:
    address = int(runtime.malloc(1 << 16))
    runtime.free(address)
    return address


def time_torch_copies() -> dict[str, Any]:
    """Record whether torch's ``.to`` of 64 MiB returns before the copy has ended."""
    torch: Any = importlib.import_module("torch")

    x = torch.ones(BIG_BYTES // 4, device="cuda")
    pageable_tensor = torch.ones(BIG_BYTES // 4)
    pinned_tensor = torch.ones(BIG_BYTES // 4).pin_memory()
    results: dict[str, Any] = {"torch": torch.__version__}

    def time_call(call: Callable[[], Any]) -> dict[str, float]:
        time_rows = []
        for _ in range(REPEATS + 1):
            torch.cuda.synchronize()
            start_s = time.perf_counter()
            copy = call()
            call_s = time.perf_counter() - start_s
            torch.cuda.synchronize()
            time_rows.append((call_s * 1e6, (time.perf_counter() - start_s) * 1e6))
            del copy
        called_us, done_us = (round(statistics.median(c), 1) for c in zip(*time_rows[1:], strict=True))
        return {"call_us": called_us, "done_us": done_us}

    for name, call in {
        "pageable to cuda": lambda: pageable_tensor.to("cuda"),
        "pageable to cuda, non_blocking": lambda: pageable_tensor.to("cuda", non_blocking=True),
        "pinned to cuda": lambda: pinned_tensor.to("cuda"),
        "pinned to cuda, non_blocking": lambda: pinned_tensor.to("cuda", non_blocking=True),
        "cuda to cpu": lambda: x.to("cpu"),
        "cuda to cpu, non_blocking": lambda: x.to("cpu", non_blocking=True),
        "copy_ into pageable, non_blocking": lambda: pageable_tensor.copy_(x, non_blocking=True),
        "cpu().to(cuda)": lambda: x.cpu().to("cuda"),
        "clone": lambda: x.clone(),
    }.items():
        results[name] = time_call(call)
    results["to cpu non_blocking is pinned"] = x.to("cpu", non_blocking=True).is_pinned()
    torch.cuda.synchronize()
    large_tensor = torch.ones(1 << 14, 1 << 14, device="cuda")
    torch.cuda.synchronize()
    for _ in range(4):
        large_tensor = large_tensor @ large_tensor * 0 + 5
    unfinished_copy = large_tensor[0].to("cpu", non_blocking=True)
    results["read before it came"] = float(unfinished_copy[0])
    torch.cuda.synchronize()
    results["read after synchronize"] = float(unfinished_copy[0])
    import cupy

    cupy_view = cupy.from_dlpack(x)
    results["cupy shares with torch"] = cupy_view.data.ptr == x.data_ptr()
    return results


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "about": describe_device,
    "rates": time_rates,
    "arrays": time_arrays,
    "busy": time_busy,
    "zero-copy": time_zero_copy,
    "managed": time_managed,
    "refusals": record_refusals,
    "ipc": processes.measure_shared_array,
    "cufile": storage.measure_file_reads,
    "torch": time_torch_copies,
}
UNTIMED = ("about", "refusals", "ipc")  # these may run side by side

if __name__ == "__main__":
    raise SystemExit(main())
