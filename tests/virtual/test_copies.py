"""Copies: their times depend on where both ends are, not on the function that is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from tests.virtual.conftest import fresh
from virtualgpu.cp.cuda import runtime
from virtualgpu.cp.cuda._memory import copies
from virtualgpu.model.machine import Machine

SIZE = 16 << 20
# By hand, for an A100 (PCIe 4.0 x16: 31.5 GB/s, of which pinned copies reach 26) and one CPU core's copy,
# which
# keeps up with half of that; latencies of a few microseconds are lost in 16 MiB.
PINNED_NS = SIZE / 26.0
PAGEABLE_NS = {"to device": SIZE / 12.9, "to host": SIZE / 12.5}

Buffer = np.ndarray[Any, Any]
Door = Callable[[Any, Buffer], object]

TO_DEVICE: dict[str, Door] = {
    "set": lambda x, h: x.set(h),
    "copy_from_host": lambda x, h: x.data.copy_from_host(h.ctypes.data, SIZE),
    "copy_from_host_async": lambda x, h: x.data.copy_from_host_async(h.ctypes.data, SIZE),
    "copy_from": lambda x, h: x.data.copy_from(h.ctypes.data, SIZE),
    "copy_from_async": lambda x, h: x.data.copy_from_async(h.ctypes.data, SIZE),
    "asarray": lambda x, h: cp.asarray(h),
    "memcpy": lambda x, h: runtime.memcpy(x.data.ptr, h.ctypes.data, SIZE, runtime.memcpyHostToDevice),
    "memcpyAsync": lambda x, h: runtime.memcpyAsync(
        x.data.ptr, h.ctypes.data, SIZE, runtime.memcpyDefault, 0
    ),
}
TO_HOST: dict[str, Door] = {
    "get": lambda x, h: x.get(out=h),
    "get without waiting": lambda x, h: x.get(out=h, blocking=False),
    "asnumpy": lambda x, h: cp.asnumpy(x, out=h),
    "copy_to_host": lambda x, h: x.data.copy_to_host(h.ctypes.data, SIZE),
    "copy_to_host_async": lambda x, h: x.data.copy_to_host_async(h.ctypes.data, SIZE),
    "memcpy": lambda x, h: runtime.memcpy(h.ctypes.data, x.data.ptr, SIZE, runtime.memcpyDeviceToHost),
    "memcpyAsync": lambda x, h: runtime.memcpyAsync(
        h.ctypes.data, x.data.ptr, SIZE, runtime.memcpyDeviceToHost, 0
    ),
}
WAIT_ALWAYS = {"copy_from_host", "copy_from", "memcpy", "get", "asnumpy", "copy_to_host"}


def host_buffer(pinned: bool) -> Buffer:
    memory = cp.cuda.alloc_pinned_memory(SIZE) if pinned else bytearray(SIZE)
    return np.frombuffer(memory, np.uint8, SIZE)


def last(machine: Machine, device: int = 0) -> Any:
    return machine.devices[device].work_queue.log[-1]


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "pageable"])
@pytest.mark.parametrize(
    "door", [*(f"to device: {d}" for d in TO_DEVICE), *(f"to host: {d}" for d in TO_HOST)]
)
def test_copy_times_depend_on_the_memory_not_on_the_function(
    machine: Machine, door: str, pinned: bool
) -> None:
    way, name = door.split(": ")
    x = cp.full(SIZE, 7, dtype=cp.uint8)
    host = host_buffer(pinned)
    host[:] = 9
    cp.cuda.Device().synchronize()
    begin = machine.clock.now_ns
    (TO_DEVICE if way == "to device" else TO_HOST)[name](x, host)
    host_ns = machine.clock.now_ns - begin
    done = last(machine)
    expected = ("HtoD", 9) if way == "to device" else ("DtoH", 7)
    assert (done.kind, done.name, done.copy_kind) == ("MEMCPY", f"Memcpy {expected[0]}", expected[0])
    assert done.size_bytes == SIZE
    if name == "asarray" and not pinned:  # CuPy copies to a page-locked buffer of its own, then goes on
        assert done.pinned
        assert done.duration_ns == pytest.approx(PINNED_NS, rel=0.01)
        assert host_ns == pytest.approx(SIZE / copies.STAGING_GBPS, rel=0.05)
        return
    assert done.pinned is pinned
    assert done.duration_ns == pytest.approx(PINNED_NS if pinned else PAGEABLE_NS[way], rel=0.03)
    # Pageable memory holds up the host, page-locked memory only where the function waits.
    waits = not pinned or name in WAIT_ALWAYS
    assert host_ns == pytest.approx(done.duration_ns if waits else 0, rel=0.05, abs=10_000)
    assert int(host[-1]) == expected[1]
    if name != "asarray":
        assert int(x[-1]) == expected[1]


@pytest.mark.parametrize(
    ("offset", "size", "pinned"), [(0, 4096, True), (2048, 2048, True), (2048, 2049, False)]
)
def test_a_partly_pinned_copy_is_pageable(machine: Machine, offset: int, size: int, pinned: bool) -> None:
    host = np.zeros(8192, np.uint8)
    machine.pinned_ranges[host.ctypes.data] = 4096  # its first half
    x = cp.empty(8192, dtype=cp.uint8)
    runtime.memcpyAsync(x.data.ptr, host.ctypes.data + offset, size, runtime.memcpyHostToDevice, 0)
    assert last(machine).pinned is pinned


def test_only_pageable_copies_to_the_host_wait_for_the_device(machine: Machine) -> None:
    """On an H200, after a kernel of 10 ms, a call for 1 MiB to the device took 79 us, to the host 10.3 ms."""
    x = cp.zeros(SIZE, dtype=cp.uint8)
    host = host_buffer(pinned=False)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()

    def host_ns(door: Callable[[], object]) -> int:
        with stream:
            stream.enqueue("CONCURRENT_KERNEL", "busy", lambda: 1e6)
            kernel = last(machine)
            begin = machine.clock.now_ns
            door()
        end = machine.clock.now_ns
        assert last(machine).start_ns >= kernel.end_ns
        stream.synchronize()
        return end - begin

    upload_ns = host_ns(lambda: x.data.copy_from_host_async(host.ctypes.data, 1 << 16, stream))
    download_ns = host_ns(lambda: x.data.copy_to_host_async(host.ctypes.data, 1 << 16, stream))
    assert upload_ns < 20_000
    assert download_ns > 500_000


DEVICE_TO_DEVICE: dict[str, Callable[[Any, Any], object]] = {
    "copy_from_device": lambda y, x: y.data.copy_from_device(x.data, SIZE),
    "copy_from_device_async": lambda y, x: y.data.copy_from_device_async(x.data, SIZE),
    "copy_from": lambda y, x: y.data.copy_from(x.data, SIZE),
    "memcpy": lambda y, x: runtime.memcpy(y.data.ptr, x.data.ptr, SIZE, runtime.memcpyDeviceToDevice),
    "memcpyAsync": lambda y, x: runtime.memcpyAsync(y.data.ptr, x.data.ptr, SIZE, runtime.memcpyDefault, 0),
    "memcpyPeer": lambda y, x: runtime.memcpyPeer(y.data.ptr, y.device.id, x.data.ptr, x.device.id, SIZE),
    "memcpyPeerAsync": lambda y, x: runtime.memcpyPeerAsync(
        y.data.ptr, y.device.id, x.data.ptr, x.device.id, SIZE, 0
    ),
    "asarray": lambda y, x: cp.array(x) if x.device == y.device else cp.asarray(x),
    "copy": lambda y, x: x.copy(),
}


def two(name: str) -> Iterator[Machine]:
    return fresh(name, name)


@pytest.mark.parametrize("door", DEVICE_TO_DEVICE)
@pytest.mark.parametrize(
    ("device", "low_gbps", "high_gbps"),
    # NVLink of an A100: 600 GB/s both ways; a T4 has none, and goes twice over PCIe 3.0 x16 of 15.75 GB/s.
    [("A100", 220, 300), ("T4", 7.5, 15.75)],
)
def test_copies_between_gpus_have_the_bandwidth_of_the_link(
    door: str, device: str, low_gbps: float, high_gbps: float
) -> None:
    for machine in two(device):
        x = cp.full(SIZE, 3, dtype=cp.uint8)
        with cp.cuda.Device(1):
            if runtime.deviceCanAccessPeer(1, 0):
                runtime.deviceEnablePeerAccess(0)
            y = cp.zeros(SIZE, dtype=cp.uint8)
            DEVICE_TO_DEVICE[door](y, x)
            done = last(machine, 1)
            if door not in ("asarray", "copy"):
                assert int(y[-1]) == 3
        assert (done.kind, done.name, done.copy_kind) == ("MEMCPY2", "Memcpy PtoP", "PtoP")
        assert low_gbps < SIZE / done.duration_ns < high_gbps


@pytest.mark.parametrize("names", [("A100", "T4"), ("T4", "A100")])
@pytest.mark.parametrize("into", [0, 1])
def test_different_gpus_copy_at_the_bandwidth_of_the_slower_link(names: tuple[str, str], into: int) -> None:
    for machine in fresh(*names):
        arrays = []
        for device in (0, 1):
            with cp.cuda.Device(device):
                arrays.append(cp.full(SIZE, device, dtype=cp.uint8))
        with cp.cuda.Device(into):
            DEVICE_TO_DEVICE["memcpyPeer"](arrays[into], arrays[1 - into])
            done = last(machine, into)
            assert int(arrays[into].max()) == int(arrays[into].min()) == 1 - into
        assert 7.5 < SIZE / done.duration_ns < 15.75


@pytest.mark.parametrize("door", [d for d in DEVICE_TO_DEVICE if d != "asarray"])
def test_copies_within_a_gpu_have_its_memory_bandwidth(machine: Machine, door: str) -> None:
    x = cp.full(SIZE, 3, dtype=cp.uint8)
    y = cp.zeros(SIZE, dtype=cp.uint8)
    DEVICE_TO_DEVICE[door](y, x)
    done = last(machine)
    assert (done.kind, done.name, done.copy_kind, done.pinned) == ("MEMCPY", "Memcpy DtoD", "DtoD", None)
    # Read and written: an A100 with 80 GB has 2,039 GB/s, with 40 GB 1,555; some of it stays in L2.
    peak = machine.devices[0].info.memory_bandwidth_gbps or 0
    assert 0.7 < 2 * SIZE / done.duration_ns / peak < 1.3


@pytest.mark.parametrize(
    "door",
    [
        lambda x: x.data.memset(0, SIZE),
        lambda x: x.data.memset_async(0, SIZE),
        lambda x: runtime.memset(x.data.ptr, 0, SIZE),
        lambda x: runtime.memsetAsync(x.data.ptr, 0, SIZE, 0),
        lambda x: x.fill(0),
    ],
)
def test_all_memset_functions_take_the_same_time(machine: Machine, door: Callable[[Any], object]) -> None:
    x = cp.full(SIZE, 5, dtype=cp.uint8)
    door(x)
    done = last(machine)
    assert (done.kind, done.name, done.size_bytes) == ("MEMSET", "Memset", SIZE)
    peak = machine.devices[0].info.memory_bandwidth_gbps or 0
    assert 0.7 < SIZE / done.duration_ns / peak < 1.3
    assert int(x.max()) == 0


WORDS = np.zeros(512, np.int64)
ADDRESS = WORDS.ctypes.data
# An H200 refuses each of these on an array of 64 bytes, whose allocation has 512.
BEYOND: dict[str, Callable[[Any, Any], object]] = {
    "memset": lambda a, b: a.data.memset(255, 4096),
    "memset, one byte": lambda a, b: a.data.memset(255, 513),
    "memset in a stream": lambda a, b: a.data.memset_async(0, 4096, cp.cuda.Stream.null),
    "memset behind": lambda a, b: (a.data + 128).memset(0, 512),
    "from the host": lambda a, b: a.data.copy_from_host(ADDRESS, 4096),
    "from a device": lambda a, b: a.data.copy_from_device(b.data, 4096),
    "to a device": lambda a, b: b.data.copy_from_device(a.data, 4096),
    "in a stream": lambda a, b: b.data.copy_from_device_async(a.data, 4096, cp.cuda.Stream.null),
    "to the host": lambda a, b: a.data.copy_to_host(ADDRESS, 4096),
    "to the host in a stream": lambda a, b: a.data.copy_to_host_async(ADDRESS, 4096, cp.cuda.Stream.null),
    "runtime.memset": lambda a, b: runtime.memset(a.data.ptr, 0, 513),
    "runtime.memset of nothing": lambda a, b: runtime.memset(0, 0, 16),
    "runtime.memset anywhere": lambda a, b: runtime.memset(12345678, 0, 16),
    "runtime.memcpy": lambda a, b: runtime.memcpy(b.data.ptr, a.data.ptr, 4096, runtime.memcpyDefault),
}


@pytest.mark.parametrize("name", BEYOND)
def test_copies_stay_within_an_allocation(machine: Machine, name: str) -> None:
    a = cp.zeros(16, np.float32)
    b = cp.full(4096, 7, np.uint8)
    with pytest.raises(
        runtime.CUDARuntimeError, match=r"cudaErrorInvalidValue: invalid argument: .*bytes at 0x"
    ):
        BEYOND[name](a, b)
    assert not a.any()
    assert (b == 7).all()


def test_copies_up_to_the_end_of_an_allocation_pass(machine: Machine) -> None:
    a = cp.zeros(16, np.float32)
    b = cp.zeros(512, np.uint8)
    a.data.memset(255, 512)
    b.data.copy_from_device(a.data, 512)
    (a.data + 256).copy_from_host(ADDRESS, 256)
    runtime.memset(0, 0, 0)
    assert (b == 255).all()
    with pytest.raises(
        runtime.CUDARuntimeError, match=r"513 bytes at .* float32 array of shape \(16,\).* 64 bytes"
    ):
        a.data.memset(0, 513)
