"""Peer access and copies between GPUs: CUDA's status codes, recorded times, and shared ports."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tests.nccl.conftest import Gpus, on
from virtualgpu import cp, cupyx
from virtualgpu.cuda_errors import CUDARuntimeError, IllegalAddressError
from virtualgpu.errors import GpulabError
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording import ports
from virtualgpu.records.traffic.ports import Crossing

runtime = cp.cuda.runtime
READ = cp.RawKernel(
    r"""
extern "C" __global__ void add_one(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1;
}
""",
    "add_one",
)


def quiet() -> None:
    """Wait for all devices."""
    for device in range(runtime.getDeviceCount()):
        cp.cuda.Device(device).synchronize()


def status_of(call: Any) -> int:
    with pytest.raises(CUDARuntimeError) as error:
        call()
    return int(error.value.status)


@pytest.mark.parametrize(
    ("links", "joined"),
    [
        ("nvswitch", {(a, b) for a in range(4) for b in range(4) if a != b}),
        ("pairs", {(0, 1), (1, 0), (2, 3), (3, 2)}),
        ("host", set()),
    ],
)
def test_peer_access_follows_the_links(gpus: Gpus, links: Any, joined: set[tuple[int, int]]) -> None:
    gpus(4, links)
    can = {(a, b) for a in range(4) for b in range(4) if runtime.deviceCanAccessPeer(a, b)}
    assert can == joined
    for peer in (1, 2, 3):
        if (0, peer) in joined:
            runtime.deviceEnablePeerAccess(peer)
        else:
            assert status_of(lambda peer=peer: runtime.deviceEnablePeerAccess(peer)) == 217


def test_peer_access_is_enabled_once_and_one_way(gpus: Gpus) -> None:
    gpus()
    assert status_of(lambda: runtime.deviceDisablePeerAccess(1)) == 705
    runtime.deviceEnablePeerAccess(1)
    assert (
        status_of(lambda: runtime.deviceEnablePeerAccess(1)) == 704 == runtime.errorPeerAccessAlreadyEnabled
    )
    assert status_of(lambda: runtime.deviceEnablePeerAccess(0)) == 101
    assert status_of(lambda: runtime.deviceCanAccessPeer(0, 2)) == 101
    with cp.cuda.Device(1):
        assert status_of(lambda: runtime.deviceDisablePeerAccess(0)) == 705, "the other way was not enabled"
        runtime.deviceEnablePeerAccess(0)
    runtime.deviceDisablePeerAccess(1)
    assert status_of(lambda: runtime.deviceDisablePeerAccess(1)) == 705


@pytest.mark.parametrize(
    ("size", "direct", "gbps"),
    [
        (256 << 20, False, 38),
        (1 << 20, False, 16),
        (4096, False, 0.22),
        (256 << 20, True, 388),
        (1 << 20, True, 68),
        (4096, True, 0.31),
    ],
)
def test_copy_times_equal_those_recorded_on_two_h200(
    gpus: Gpus, size: int, direct: bool, gbps: float
) -> None:
    """The times are from the recordings to which the model was fitted."""
    gpus()
    x = cp.full(size, 7, cp.uint8)
    y = on(1, lambda: cp.zeros(size, cp.uint8))
    if direct:
        runtime.deviceEnablePeerAccess(1)
    quiet()
    begin = cp.cuda.Event()
    end = cp.cuda.Event()
    begin.record()
    runtime.memcpyPeerAsync(y.data.ptr, 1, x.data.ptr, 0, size, 0)
    end.record()
    end.synchronize()
    assert size / cp.cuda.get_elapsed_time(begin, end) / 1e6 == pytest.approx(gbps, rel=0.05)
    assert on(1, lambda: int(y.min())) == 7


def test_a_kernel_reads_another_gpu_at_the_recorded_rate(gpus: Gpus) -> None:
    """366 GB/s for 256 MiB; with 16 MiB the start takes a larger part."""
    machine = gpus()
    n = 4 << 20
    x = on(1, lambda: cp.arange(n, dtype=cp.float32))
    y = cp.empty(n, cp.float32)
    runtime.deviceEnablePeerAccess(1)
    with machine.links.collect_crossings() as crossings:
        READ((n // 256,), (256,), (x, y, n))
    np.testing.assert_array_equal(y.get(), np.arange(n, dtype=np.float32) + 1)
    assert [(c.source, c.target, c.size_bytes, c.over) for c in crossings] == [(1, 0, 4 * n, "NVLink")]
    rate = machine.devices[0].work_queue.log
    taken_ns = next(a.duration_ns for a in reversed(rate) if a.name == "add_one")
    assert 0.8 * 366 < 4 * n / taken_ns < 366


def test_a_kernel_writes_another_gpu(gpus: Gpus) -> None:
    """The direction follows the kernel's accesses, not the declaration of its parameters."""
    machine = gpus()
    x = cp.arange(1000, dtype=cp.float32)
    y = on(1, lambda: cp.zeros(1000, cp.float32))
    runtime.deviceEnablePeerAccess(1)
    with machine.links.collect_crossings() as crossings:
        READ((4,), (256,), (x, y, 1000))
    np.testing.assert_array_equal(y.get(), np.arange(1000, dtype=np.float32) + 1)
    assert [(c.source, c.target, c.size_bytes) for c in crossings] == [(0, 1, 4000)]


def test_a_kernel_without_peer_access_faults_with_a_reason(gpus: Gpus) -> None:
    gpus()
    x = on(1, lambda: cp.zeros(256, cp.float32))
    y = cp.zeros(256, cp.float32)
    with pytest.raises(IllegalAddressError, match=r"memory of device 1.*deviceEnablePeerAccess\(1\)"):
        READ((1,), (256,), (x, y, 256))
    with cp.cuda.Device(1):
        runtime.deviceEnablePeerAccess(0)
    with pytest.raises(IllegalAddressError):  # device 1 may reach 0 now, not the other way
        READ((1,), (256,), (x, y, 256))
    runtime.deviceEnablePeerAccess(1)
    READ((1,), (256,), (x, y, 256))
    assert float(y.sum()) == 256
    runtime.deviceDisablePeerAccess(1)
    with pytest.raises(IllegalAddressError):
        READ((1,), (256,), (x, y, 256))


USES: dict[str, Any] = {
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "in place": (lambda x, y: x.__iadd__(y), lambda x, y: x + y),
    "elementwise": (
        lambda x, y: cp.ElementwiseKernel("T a, T b", "T c", "c = a * b", "mul")(x, y),
        lambda x, y: x * y,
    ),
    "sum": (lambda x, y: cp.sum(y), lambda x, y: y.sum()),
    "assign": (lambda x, y: x.__setitem__(slice(None), y) or x, lambda x, y: y),
    "fill": (lambda x, y: y.fill(3) or y, lambda x, y: np.full_like(y, 3)),
    "index": (lambda x, y: y[[1, 2]], lambda x, y: y[[1, 2]]),
    "astype": (lambda x, y: y.astype("f4"), lambda x, y: y.astype("f4")),
    "sort": (lambda x, y: y.sort() or y, lambda x, y: np.sort(y)),
}


@pytest.mark.parametrize("use", USES)
def test_functions_take_arrays_of_two_gpus_with_a_warning(gpus: Gpus, use: str) -> None:
    """As in CuPy, which enables peer access with a PerformanceWarning."""
    machine = gpus()
    hosts = np.arange(8.0), np.arange(8.0)[::-1].copy()
    x = cp.asarray(hosts[0])
    y = on(1, lambda: cp.asarray(hosts[1]))
    call, reference = USES[use]
    before = machine.devices[1].work_queue.log[-1].correlation_id
    with pytest.warns(cp._util.PerformanceWarning, match="activated automatically"):
        result = call(x, y)
    np.testing.assert_array_equal(result.get(), reference(*hosts))
    kernels = [
        a for a in machine.devices[1].work_queue.log if a.correlation_id > before and a.copy_kind is None
    ]
    assert kernels == [], "kernels run on the current device"
    assert status_of(lambda: runtime.deviceEnablePeerAccess(1)) == 704


@pytest.mark.parametrize("use", USES)
def test_functions_refuse_arrays_of_gpus_without_a_link(gpus: Gpus, use: str) -> None:
    gpus(2, "host")
    x = cp.arange(8.0)
    y = on(1, lambda: cp.arange(8.0))
    with pytest.raises(ValueError, match="Peer access is unavailable"):
        USES[use][0](x, y)
    np.testing.assert_array_equal(y.get(), np.arange(8.0))


@pytest.mark.parametrize("links", ["nvswitch", "host"])
@pytest.mark.parametrize("kind", ["same", "cast", "strided"])
def test_arrays_are_copied_between_gpus_either_way(gpus: Gpus, links: Any, kind: str) -> None:
    gpus(2, links)
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = cp.asarray(data)
    source = x[:, ::2] if kind == "strided" else x
    with cp.cuda.Device(1):
        y = cp.zeros(source.shape, cp.float64 if kind == "cast" else cp.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cp.copyto(y, source)
        moved = on(1, lambda: cp.asarray(source))
    assert y.device.id == moved.device.id == 1
    np.testing.assert_array_equal(y.get(), data[:, ::2] if kind == "strided" else data)
    np.testing.assert_array_equal(moved.get(), data[:, ::2] if kind == "strided" else data)


def test_empty_arrays_can_be_copied(gpus: Gpus) -> None:
    gpus(2, "nvswitch")
    nothing = on(1, lambda: cp.empty(0))
    cp.copyto(cp.empty(0), nothing)
    assert cp.asarray(nothing).size == 0


def copies(machine: Machine, *ways: tuple[int, int], size: int = 16 << 20) -> list[Crossing]:
    """Submit copies at the same time in separate streams, and return their crossings."""
    devices = range(len(machine.devices))
    sources = [on(d, lambda: cp.zeros(size, cp.uint8)) for d in devices]
    targets = [on(target, lambda: cp.zeros(size, cp.uint8)) for _, target in ways]
    streams = [on(source, lambda: cp.cuda.Stream(non_blocking=True)) for source, _ in ways]
    quiet()
    with machine.links.collect_crossings() as crossings:
        for (source, target), y, stream in zip(ways, targets, streams, strict=True):
            runtime.memcpyPeerAsync(y.data.ptr, target, sources[source].data.ptr, source, size, stream.ptr)
    quiet()
    return crossings


def overlap(first: Crossing, second: Crossing) -> bool:
    return first.start_ns < second.end_ns and second.start_ns < first.end_ns


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    ("ways", "together"),
    [
        (((0, 1), (1, 0)), True),  # both directions of one link
        (((0, 1), (2, 3)), True),
        (((0, 1), (0, 2)), False),  # out of one port
        (((1, 0), (2, 0)), False),  # into one port
    ],
)
def test_copies_share_a_port_only_in_the_same_direction(
    gpus: Gpus, direct: bool, ways: Any, together: bool
) -> None:
    machine = gpus(4)
    for source, target in ways if direct else ():
        with cp.cuda.Device(source):
            machine.links.enable_access(source, target)
    first, second = copies(machine, *ways)
    assert (first.over, second.over) == ("NVLink" if direct else "PCIe",) * 2
    assert overlap(first, second) == together


def test_copies_through_the_host_share_its_port_with_uploads(gpus: Gpus) -> None:
    machine = gpus(2, "host")
    size = 16 << 20
    upload = cp.cuda.Stream(non_blocking=True)
    x = cp.zeros(size, cp.uint8)
    y = on(1, lambda: cp.zeros(size, cp.uint8))
    download = on(1, lambda: cp.cuda.Stream(non_blocking=True))
    host = cupyx.empty_pinned(size, np.uint8)
    z = cp.empty(size, cp.uint8)
    quiet()
    with machine.links.collect_crossings() as crossings:
        z.set(host, stream=upload)  # into device 0, as is the copy from 1
        with cp.cuda.Device(1):
            runtime.memcpyPeerAsync(x.data.ptr, 0, y.data.ptr, 1, size, download.ptr)
    done = next(a for a in reversed(machine.devices[0].work_queue.log) if a.copy_kind == "HtoD")
    assert crossings[0].start_ns >= done.end_ns


def test_a_copy_in_the_default_stream_waits_for_both_devices(gpus: Gpus) -> None:
    machine = gpus()
    x = cp.zeros(1 << 20, cp.uint8)
    y = on(1, lambda: cp.zeros(64 << 20, cp.uint8))
    quiet()
    on(1, lambda: y.__iadd__(1))
    long = machine.devices[1].work_queue.log[-1]
    runtime.memcpyPeerAsync(y.data.ptr, 1, x.data.ptr, 0, x.nbytes, 0)
    copy = machine.devices[0].work_queue.log[-1]
    assert (copy.device_id, copy.between) == (0, (0, 1))
    assert copy.start_ns >= long.end_ns
    on(1, lambda: y.__iadd__(1))
    assert machine.devices[1].work_queue.log[-1].start_ns >= copy.end_ns


def test_transfers_beyond_the_recorder_limit_are_counted(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = gpus(2)
    recorder = ports.PortRecorder(machine)
    with pytest.raises(GpulabError, match="has not started"):
        recorder.stop()
    monkeypatch.setattr(ports, "MAX_CROSSINGS", 2)
    recorder.start()
    for size in (100, 200, 300):
        copies(machine, (0, 1), size=size)
    record = recorder.stop()
    assert (record.links, record.devices, record.lost) == (machine.links.topology, 2, 1)
    assert [crossing.size_bytes for crossing in record.crossings] == [100, 200]
    assert record.provenance.source == "modelled"


@pytest.mark.parametrize("name", ["A100", "T4", "RTX 4090", "H100", "V100"])
def test_every_gpu_has_the_links_of_its_data_sheet(gpus: Gpus, name: str) -> None:
    machine = gpus(2, name=name)
    has_nvlink = bool(machine.devices[0].info.nvlink_gbps)
    assert bool(runtime.deviceCanAccessPeer(0, 1)) == has_nvlink
    x = cp.arange(1000.0)
    y = on(1, lambda: cp.zeros(1000))
    with machine.links.collect_crossings() as crossings:
        cp.copyto(y, x)
    np.testing.assert_array_equal(y.get(), np.arange(1000.0))
    assert [(c.source, c.target, c.size_bytes, c.over) for c in crossings] == [
        (0, 1, 8000, "NVLink" if has_nvlink else "PCIe")
    ]
    if not has_nvlink:
        with pytest.raises(ValueError, match="has no NVLink"):
            gpus(2, "pairs", name)
