"""Pinned, registered and managed memory, DLPack and IPC: contents, times and errors."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from tests.virtual.conftest import fresh
from virtualgpu import cupyx
from virtualgpu.compile import nvrtc
from virtualgpu.cp.cuda import runtime
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import bus
from virtualgpu.model.machine import Machine
from virtualgpu.model.memory.host import view_host_memory
from virtualgpu.model.memory.managed import PAGE_BYTES, ManagedPages

HOST_REFUSED = "prefetch to the host"  # by CuPy with CUDA 13
N = 4 << 20  # floats: 16 MiB
BLOCK = 2 << 20

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


def modelled_ns(machine: Machine, call: Callable[[], object]) -> int:
    """Return the modelled time of the kernel or copy that a call submits."""
    call()
    return machine.current_device.work_queue.log[-1].duration_ns


def mapped(host: np.ndarray[Any, Any]) -> Any:
    """Return a device array over page-locked host memory."""
    memory = cp.cuda.UnownedMemory(host.ctypes.data, host.nbytes, host)
    return cp.ndarray(host.shape, host.dtype, cp.cuda.MemoryPointer(memory, 0))


def managed(n: int = N) -> Any:
    return cp.ndarray(n, cp.float32, cp.cuda.malloc_managed(4 * n))


# Page-locked memory


def test_kernels_access_pinned_memory_at_bus_bandwidth(machine: Machine) -> None:
    host = cupyx.zeros_pinned(N, np.float32)
    x = mapped(host)
    inside = cp.zeros(N, cp.float32)
    over_bus = modelled_ns(machine, lambda: cp.add(x, 1, out=x))
    at_home = modelled_ns(machine, lambda: cp.add(inside, 1, out=inside))
    assert (host == 1).all()
    assert over_bus == pytest.approx(
        2 * host.nbytes / (26.0 * bus.ZERO_COPY_SHARE), rel=0.05
    )  # A100: 26 GB/s
    assert over_bus > 20 * at_home
    assert machine.current_device.memory.bus_bytes == 2 * host.nbytes


def test_bus_traffic_includes_every_pinned_argument(machine: Machine) -> None:
    first, second = cupyx.zeros_pinned(N, np.float32), cupyx.zeros_pinned(N, np.float32)
    cp.add(mapped(first), 1, out=mapped(second))
    assert machine.current_device.memory.bus_bytes == first.nbytes + second.nbytes


@pytest.mark.parametrize(
    "pick", [lambda x, indices: x[indices], lambda x, indices: cp.take(x, indices, axis=0)]
)
def test_indexing_pinned_memory_moves_only_the_selected_rows(
    machine: Machine, pick: Callable[[Any, Any], Any]
) -> None:
    host = cupyx.zeros_pinned((50_000, 16), np.float32)
    host[:, 0] = np.arange(50_000)
    indices = cp.asarray(np.array([7, 49_999, 7], np.int32))
    assert (pick(mapped(host), indices).get()[:, 0] == [7, 49_999, 7]).all()
    assert 0 < machine.current_device.memory.bus_bytes < 1000


@needs_nvrtc
def test_time_of_pinned_access_depends_on_the_bytes_read(machine: Machine) -> None:
    code = r"""extern "C" __global__ void gather(const float* x, const int* at, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[at[i]];
    }"""
    host = cupyx.empty_pinned(N, np.float32)
    host[:] = np.arange(N)
    indices = np.random.default_rng(1).integers(0, N, 1024).astype(np.int32)
    y = cp.empty(1024, cp.float32)
    gather = cp.RawKernel(code, "gather")
    took = modelled_ns(
        machine, lambda: gather((4,), (256,), (mapped(host), cp.asarray(indices), y, np.int32(1024)))
    )
    assert (y.get() == indices).all()
    assert took < 10_000
    assert machine.current_device.memory.bus_bytes < 64 * 1024


@needs_nvrtc
def test_a_kernel_cannot_use_freed_pinned_memory(machine: Machine) -> None:
    code = 'extern "C" __global__ void one(float* x) { x[threadIdx.x] = 1; }'
    host = cupyx.empty_pinned(1024, np.float32)
    x = mapped(host)
    cp.RawKernel(code, "one")((1,), (32,), (x,))
    assert (host[:32] == 1).all()
    memory = machine.current_device.memory
    address = host.ctypes.data
    assert memory.is_host_address(address)
    x._mem._owner = None
    del host
    cp.cuda.PinnedMemoryPool()
    from virtualgpu.cp.cuda.pinned_memory import get_default_pinned_pool

    get_default_pinned_pool().free_all_blocks()
    assert not memory.is_host_address(address)
    with pytest.raises(CUDARuntimeError):
        cp.RawKernel(code, "one")((1,), (32,), (x,))


@needs_nvrtc
@pytest.mark.parametrize("function", ["hostAlloc", "alloc_pinned_memory", "empty_pinned", "hostRegister"])
def test_kernels_accept_raw_addresses_of_pinned_memory(machine: Machine, function: str) -> None:
    """With unified addressing, inside a structure as well as alone."""
    code = r"""struct Both { float* x; int n; };
    extern "C" __global__ void one(Both b) { if (threadIdx.x < b.n) b.x[threadIdx.x] += 1; }
    extern "C" __global__ void two(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 2; }"""
    module = cp.RawModule(code=code)
    n = 1 << 20
    owned: Any = np.zeros(n, np.float32) if function == "hostRegister" else None
    if function == "hostAlloc":
        address = runtime.hostAlloc(4 * n, runtime.hostAllocMapped)
    elif function == "alloc_pinned_memory":
        address = (owned := cp.cuda.alloc_pinned_memory(4 * n)).ptr
    elif function == "empty_pinned":
        address = (owned := cupyx.empty_pinned(n, np.float32)).ctypes.data
    else:
        runtime.hostRegister(address := owned.ctypes.data, owned.nbytes)
    host = view_host_memory(address, 4 * n).view(np.float32)
    host[:] = np.arange(n)
    arrays_before = machine.current_device.memory.memory_totals.array_bytes
    both = np.array((address, 32), np.dtype([("x", "u8"), ("n", "i4")], align=True))
    module.get_function("one")((1,), (64,), (both,))
    module.get_function("two")((n // 1024,), (1024,), (np.uint64(address),))
    assert (host == np.arange(n) + 2 + (np.arange(n) < 32)).all()
    last = machine.current_device.work_queue.log[-1]
    assert last.duration_ns > 4 * n / 26.0  # over the bus of an A100, there and back
    assert machine.current_device.memory.memory_totals.array_bytes == arrays_before  # not the device's
    with pytest.raises(CUDARuntimeError, match=r"right after the end of the page-locked host memory"):
        module.get_function("two")((1,), (32,), (np.uint64(address + 4 * n),))
    if function == "hostAlloc":
        runtime.freeHost(address)
    elif function == "hostRegister":
        runtime.hostUnregister(address)
        with pytest.raises(CUDARuntimeError, match=r"host memory of 4,194,304 bytes that has been freed"):
            module.get_function("two")((1,), (32,), (np.uint64(address),))


@needs_nvrtc
def test_raw_addresses_of_managed_memory_migrate_pages(machine: Machine) -> None:
    code = 'extern "C" __global__ void one(char* x) { x[threadIdx.x] = 1; }'
    address = runtime.mallocManaged(65 * PAGE_BYTES - 7)  # the driver's granularity is larger
    cp.RawKernel(code, "one")((1,), (32,), (np.uint64(address),))
    pages = machine.current_device.memory.managed_pages[address]
    assert pages.is_on_device.sum() == 1
    runtime.free(address)


def test_copies_of_mapped_pinned_arrays_are_host_to_device(machine: Machine) -> None:
    host = cupyx.zeros_pinned(N, np.float32)
    host[:] = 5
    copied = mapped(host).copy()
    last = machine.current_device.work_queue.log[-1]
    assert (last.copy_kind, last.pinned, last.size_bytes) == ("HtoD", True, host.nbytes)
    assert float(copied[7]) == 5


def test_a_kernel_cannot_use_pageable_memory(machine: Machine) -> None:
    host = np.zeros(8, np.float32)
    with pytest.raises(ValueError, match="hostRegister"):
        mapped(host)


def test_registered_memory_is_pinned_until_it_is_unregistered(machine: Machine) -> None:
    host = np.zeros(1 << 20, np.uint8)
    x = cp.zeros(1 << 20, cp.uint8)

    def pinned() -> Any:
        x.set(host)
        return machine.current_device.work_queue.log[-1].pinned

    assert pinned() is False
    runtime.hostRegister(host.ctypes.data, host.nbytes, 0)
    assert pinned() is True
    assert runtime.pointerGetAttributes(host.ctypes.data).type == runtime.memoryTypeHost
    mapped(host).fill(3)
    runtime.hostUnregister(host.ctypes.data)
    assert pinned() is False
    assert (host == 3).all()


@pytest.mark.parametrize("n", [5, 1 << 20])
@pytest.mark.usefixtures("machine")
def test_fill_writes_pinned_memory_in_place(n: int) -> None:
    host = cupyx.zeros_pinned(n + 2, np.float32)
    x = mapped(host)
    x.fill(3)
    x[1:-1] = 0
    assert (host == [3, *np.zeros(n), 3]).all()


@pytest.mark.parametrize(
    ("call", "status"),
    [
        (lambda address: runtime.hostRegister(address, 0, 0), 1),
        (lambda address: runtime.hostRegister(0, 4096, 0), 1),
        (lambda address: runtime.hostRegister(address, -4096, 0), 1),
        (lambda address: runtime.hostRegister(address, 4096, 0), 712),
        (lambda address: runtime.hostRegister(address + 2048, 4096, 0), 712),
        (lambda address: runtime.hostRegister(address + 8192, 64, 64), 1),
        (lambda address: runtime.hostRegister(cp.zeros(3).data.ptr, 24, 0), 1),
        (lambda address: runtime.hostRegister(cupyx.zeros_pinned(3).ctypes.data, 24, 0), 1),
        (lambda address: runtime.hostUnregister(address + 8), 1),
        (lambda address: runtime.hostUnregister(cupyx.zeros_pinned(3).ctypes.data), 1),
        (lambda address: runtime.hostAlloc(64, 64), 1),
        (lambda address: (runtime.hostUnregister(address), runtime.hostUnregister(address)), 713),
        (lambda address: runtime.ipcGetMemHandle(address), 801),
        (lambda address: runtime.ipcOpenMemHandle(bytes(64)), 801),
        (lambda address: runtime.ipcGetEventHandle(cp.cuda.Event().ptr), 801),
    ],
)
def test_invalid_registrations_and_handles(
    machine: Machine, call: Callable[[int], object], status: int
) -> None:
    host = np.zeros(8192, np.uint8)
    runtime.hostRegister(host.ctypes.data, 4096, 0)
    with pytest.raises(CUDARuntimeError) as raised:
        call(host.ctypes.data)
    assert raised.value.status == status
    assert "\n" not in str(raised.value)


# Managed memory


def by_hand(script: list[tuple[str, int, int]], pages: int, read_mostly: bool) -> list[tuple[int, int, int]]:
    """Apply the rules for one page to one page after another."""
    device = set[int]()
    host = set[int]()
    moves = []
    for side, first, last in script:
        side_pages, other_pages = (device, host) if side == "device" else (host, device)
        copied = 0
        new = 0
        blocks = set()
        for page in range(first, last):
            if page in side_pages:
                continue
            blocks.add(page * PAGE_BYTES // BLOCK)
            side_pages.add(page)
            if page in other_pages:
                copied += PAGE_BYTES
                if not read_mostly:
                    other_pages.discard(page)
            else:
                new += PAGE_BYTES
        moves.append((copied, new, len(blocks)))
    return moves


@pytest.mark.parametrize("read_mostly", [False, True])
def test_managed_pages_migrate_to_the_accessing_side(read_mostly: bool) -> None:
    rng = np.random.default_rng(3)
    pages = 200
    script = []
    for _ in range(60):
        first, last = sorted(rng.integers(0, pages + 1, 2).tolist())
        if last > first:
            script.append((str(rng.choice(["device", "host"])), first, last))
    managed_pages = ManagedPages(pages * PAGE_BYTES)
    managed_pages.advise(read_mostly)
    moves = []
    for side, first, last in script:
        bring = managed_pages.move_to_device if side == "device" else managed_pages.move_to_host
        moved = bring(first * PAGE_BYTES, (last - first) * PAGE_BYTES)
        moves.append((moved.copied_bytes, moved.new_bytes, moved.faulted_blocks))
    assert moves == by_hand(script, pages, read_mostly)


def test_a_partial_last_page_counts_only_its_bytes() -> None:
    pages = ManagedPages(PAGE_BYTES + 100)
    pages.move_to_host(0, PAGE_BYTES + 100)
    assert pages.move_to_device(PAGE_BYTES, 100).copied_bytes == 100
    assert pages.move_to_device(0, PAGE_BYTES + 100).copied_bytes == PAGE_BYTES


def test_a_kernel_waits_once_for_pages_on_the_host(machine: Machine) -> None:
    x = managed()
    view = np.from_dlpack(x)
    view[:] = 2
    y = cp.empty(N, cp.float32)
    times = [modelled_ns(machine, lambda: cp.multiply(x, 3, out=y)) for _ in range(2)]
    assert float(y[-1]) == 6
    faults_ns = 8 * bus.FAULT_BLOCK_NS + 256 * bus.FAULT_PAGE_NS  # 16 MiB: 8 blocks, 256 pages
    assert times[0] - times[1] == pytest.approx(faults_ns + x.nbytes / 26.0, rel=0.02)
    assert machine.current_device.memory.page_faults == 8
    np.from_dlpack(x)[0] = 1
    assert modelled_ns(machine, lambda: cp.multiply(x, 3, out=y)) > 2 * times[1]


def test_a_prefetch_moves_the_pages_without_faults(machine: Machine) -> None:
    x = managed()
    np.from_dlpack(x)[:] = 2
    stream = cp.cuda.Stream()
    x.data.mem.prefetch(stream)
    done = machine.current_device.work_queue.log[-1]
    assert (done.copy_kind, done.size_bytes, done.stream_id) == ("HtoD", x.nbytes, stream.ptr)
    assert done.duration_ns == pytest.approx(8 * bus.PREFETCH_BLOCK_NS + x.nbytes / 26.0, rel=0.05)
    resident = cp.zeros(N, cp.float32)
    y = cp.empty(N, cp.float32)
    after = modelled_ns(machine, lambda: cp.multiply(x, 3, out=y))
    assert after == modelled_ns(machine, lambda: cp.multiply(resident, 3, out=y))
    assert machine.current_device.memory.page_faults == 0
    runtime.memPrefetchAsync(x.data.ptr, x.nbytes, 0, stream.ptr)  # all there already
    assert machine.current_device.work_queue.log[-1].duration_ns < 20_000


def test_read_mostly_memory_is_duplicated_on_both_sides(machine: Machine) -> None:
    x = managed()
    np.from_dlpack(x)[:] = 2
    x.data.mem.advise(runtime.cudaMemAdviseSetReadMostly, cp.cuda.Device())
    y = cp.empty(N, cp.float32)
    cp.multiply(x, 3, out=y)
    begin = machine.clock.now_ns
    np.from_dlpack(x)
    assert machine.clock.now_ns - begin < 20_000
    assert modelled_ns(machine, lambda: cp.multiply(x, 3, out=y)) < 100_000


def test_a_dlpack_view_shares_managed_memory_and_keeps_it_alive(machine: Machine) -> None:
    x = managed(1000)
    x[:] = 4
    newer = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # earlier ones ask for no device
    view = np.from_dlpack(x, device="cpu") if newer else np.from_dlpack(x)
    assert view.ctypes.data == x.data.ptr
    view[3] = 9
    assert float(x[3]) == 9
    assert x.__dlpack_device__() == (13, 0)
    assert (view == np.from_dlpack(x)).all()
    address = x.data.ptr
    del x
    other = managed(1000)
    other.fill(0)
    assert other.data.ptr != address
    assert view[3] == 9


def test_dlpack_makes_the_consumer_stream_wait_for_the_producer(machine: Machine) -> None:
    x = managed(1000)
    consumer = cp.cuda.Stream(non_blocking=True)
    producer = cp.cuda.Stream(non_blocking=True)
    with producer:
        cp.zeros(1 << 24, cp.float32)
        x.__dlpack__(stream=consumer.ptr)
        written = machine.current_device.work_queue.log[-1].correlation_id
    with consumer:
        x.fill(1)
    assert written in machine.current_device.work_queue.log[-1].after


# What the host waits for


def test_asarray_stages_pageable_data_and_set_waits(machine: Machine) -> None:
    stream = cp.cuda.Stream(non_blocking=True)
    host = np.ones(N, np.float32)
    x = cp.zeros(N, cp.float32)

    def waited(call: Callable[[], object]) -> bool:
        cp.cuda.Device().synchronize()
        with stream:
            stream.enqueue("CONCURRENT_KERNEL", "busy", lambda: 5e6)
            busy_until = machine.current_device.work_queue.log[-1].end_ns
            call()
        return machine.clock.now_ns >= busy_until

    assert not waited(lambda: cp.asarray(host[: 1 << 20]))
    assert waited(lambda: cp.asarray(host[: 1 << 20], blocking=True))
    assert waited(lambda: x.set(host))
    assert waited(lambda: x.get(out=host, blocking=False))


RECORDED = Path(__file__).parents[1] / "recordings" / "data"


KERNELS = r"""
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void every(float* x, int n, int step) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * step;
    if (i < n) x[i] += 1;
}"""


def modelled_us(machine: Machine) -> dict[str, float]:
    """Return the modelled times of all accesses to 64 MiB, under the recording's names."""
    n = np.int32(16 << 20)
    module = cp.RawModule(code=KERNELS)
    twice = module.get_function("twice")
    every = module.get_function("every")
    y = cp.empty(int(n), cp.float32)

    def kernel(x: Any) -> float:
        return modelled_ns(machine, lambda: twice((65536,), (256,), (x, y, n))) / 1e3

    def strided(step: int) -> float:
        x = managed(int(n))
        threads = -(-int(n) // step)
        np.from_dlpack(x)
        arguments = (x, n, np.int32(step))
        return modelled_ns(machine, lambda: every((-(-threads // 32),), (32,), arguments)) / 1e3

    def host(x: Any) -> float:
        begin = machine.clock.now_ns
        np.from_dlpack(x)
        return (machine.clock.now_ns - begin) / 1e3

    x = managed(int(n))
    times_us = {"host writes first": host(x), "kernel, pages on the host": kernel(x)}
    times_us["host reads, pages on the device"] = host(x)
    times_us["prefetch"] = (
        modelled_ns(machine, lambda: x.data.mem.prefetch(cp.cuda.get_current_stream())) / 1e3
    )
    times_us["kernel writes first"] = kernel(managed(int(n)))
    times_us["kernel, one of every 65,536 bytes"] = strided(16384)
    times_us["kernel, one of every 2,097,152 bytes"] = strided(524288)
    times_us["zero-copy"] = kernel(mapped(cupyx.zeros_pinned(int(n), np.float32)))
    return times_us


@needs_nvrtc
@pytest.mark.parametrize("gpu", ["h200", "h100"])
def test_data_movement_times_are_close_to_recorded_times(gpu: str) -> None:
    record = json.loads((RECORDED / f"moving_data_{gpu}.json").read_text())
    runs = [steps for name, steps in record["managed"].items() if name.startswith("run")]
    measured = {key: statistics.median(run[key] for run in runs) for key in runs[0] if key != HOST_REFUSED}
    # Of the host's steps only the faults count, not NumPy's work.
    measured["host writes first"] -= measured["host writes again"]
    measured["host reads, pages on the device"] -= measured["host reads again"]
    measured["zero-copy"] = record["zero-copy"]["zero-copy, 1 reads"]["device_us"]
    for machine in fresh(gpu.upper()):
        ratios = {key: value / measured[key] for key, value in modelled_us(machine).items()}
    assert all(1 / 1.8 < ratio < 1.8 for ratio in ratios.values()), ratios
    assert statistics.median(max(ratio, 1 / ratio) for ratio in ratios.values()) < 1.2, ratios
