"""``cp.cuda.runtime``: constants of CUDA's header, and devices, memory and streams by handle."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.compile import nvrtc
from virtualgpu.model.machine import Machine
from virtualgpu.records.device.attributes import ATTRIBUTES

pytestmark = pytest.mark.usefixtures("machine")

runtime = cp.cuda.runtime
MIB = 1 << 20


def header() -> str:
    for option in nvrtc.find_include_options():
        path = Path(option.removeprefix("-I")) / "driver_types.h"
        if path.exists():
            return path.read_text(encoding="utf-8")
    pytest.skip("the CUDA headers are not installed")


def value_in(text: str, name: str) -> int:
    """Return the value of an enumeration's member or a macro in the header."""
    number = r"(?:\(\w+\))?\(?(?:\(\w+\))?(0x[0-9a-fA-F]+|\d+(?:\s*<<\s*\d+)?)"
    match = re.search(rf"\b{name}\s*=\s*{number}|#define\s+{name}\s+{number}", text)
    assert match, name
    return int(eval(match[1] or match[2]))


NAMES = (
    *(
        "memcpyHostToHost",
        "memcpyHostToDevice",
        "memcpyDeviceToHost",
        "memcpyDeviceToDevice",
        "memcpyDefault",
    ),
    *("streamDefault", "streamNonBlocking", "streamLegacy", "streamPerThread"),
    *("eventDefault", "eventBlockingSync", "eventDisableTiming", "eventInterprocess"),
    *("hostAllocDefault", "hostAllocPortable", "hostAllocMapped", "hostAllocWriteCombined"),
    *("streamCaptureModeGlobal", "streamCaptureModeThreadLocal", "streamCaptureModeRelaxed"),
    *("cudaGraphDebugDotFlagsVerbose", "cudaGraphDebugDotFlagsKernelNodeParams"),
    *("errorInvalidValue", "errorMemoryAllocation"),
)


def test_constants_equal_those_of_the_cuda_header() -> None:
    text = header()
    for name in NAMES:
        full = name if name.startswith("cuda") else f"cuda{name[0].upper()}{name[1:]}"
        assert getattr(runtime, name) == value_in(text, full), name
    for attribute in ATTRIBUTES:
        if attribute.name == "CooperativeMultiDeviceLaunch":
            continue  # up to CUDA 12
        assert attribute.number == value_in(text, f"cudaDevAttr{attribute.name}"), attribute.name
    for number, name in ((0, "StackSize"), (1, "PrintfFifoSize"), (2, "MallocHeapSize")):
        assert value_in(text, f"cudaLimit{name}") == number
    for status, name in ((600, "NotReady"), (400, "InvalidResourceHandle"), (215, "UnsupportedLimit")):
        assert value_in(text, f"cudaError{name}") == status


def test_attributes_agree_with_properties() -> None:
    properties = runtime.getDeviceProperties(0)
    attributes = cp.cuda.Device(0).attributes
    compared = 0
    for attribute in ATTRIBUTES:
        value = runtime.deviceGetAttribute(attribute.number, 0)
        assert attributes[attribute.name] == value
        if attribute.property:
            assert properties[attribute.property] == value
            compared += 1
    assert compared >= 18
    for n, axis in enumerate("XYZ"):
        assert attributes[f"MaxBlockDim{axis}"] == properties["maxThreadsDim"][n]
        assert attributes[f"MaxGridDim{axis}"] == properties["maxGridSize"][n]
    with pytest.raises(runtime.CUDARuntimeError, match="does not model device attribute 9999") as error:
        runtime.deviceGetAttribute(9999, 0)
    assert error.value.status == 1


def test_versions_limits_and_devices(two_gpus: Machine) -> None:
    assert runtime.runtimeGetVersion() == runtime.driverGetVersion() == 13000
    assert (runtime.getDeviceCount(), runtime.getDevice()) == (2, 0)
    runtime.setDevice(1)
    assert cp.arange(3).device.id == runtime.getDevice() == 1
    with pytest.raises(runtime.CUDARuntimeError) as error:
        runtime.setDevice(2)
    assert error.value.status == 101
    runtime.setDevice(0)
    assert [runtime.deviceGetLimit(n) for n in (0, 1, 2)] == [1024, MIB, 8 * MIB]
    runtime.deviceSetLimit(2, 32 * MIB)
    assert runtime.deviceGetLimit(2) == 32 * MIB
    runtime.deviceSetLimit(0, 4096)
    for call in (lambda: runtime.deviceGetLimit(3), lambda: runtime.deviceSetLimit(3, 1)):
        with pytest.raises(runtime.CUDARuntimeError, match="2 the device heap") as error:
            call()
        assert error.value.status == 215


def test_allocate_copy_and_set_memory_by_address() -> None:
    free, total = runtime.memGetInfo()
    address = runtime.malloc(MIB)
    assert runtime.memGetInfo() == (free - 2 * MIB, total)  # in steps of 2 MiB
    host = np.arange(MIB, dtype=np.uint8)
    result = np.zeros_like(host)
    runtime.memcpy(address, host.ctypes.data, MIB, runtime.memcpyHostToDevice)
    runtime.memset(address + 3, 0x1FF, 5)  # of a value the lowest byte counts
    runtime.memsetAsync(address + 20, 7, 2, 0)
    runtime.memcpy(result.ctypes.data, address, MIB, runtime.memcpyDeviceToHost)
    host[3:8], host[20:22] = 255, 7
    np.testing.assert_array_equal(result, host)
    runtime.memcpy(address + 512, address, 100, runtime.memcpyDeviceToDevice)
    runtime.memcpy(result.ctypes.data, address + 512, 100, runtime.memcpyDefault)
    np.testing.assert_array_equal(result[:100], host[:100])
    for kind in (runtime.memcpyDeviceToHost, runtime.memcpyDeviceToDevice, runtime.memcpyHostToHost):
        with pytest.raises(runtime.CUDARuntimeError, match="does not match the addresses") as error:
            runtime.memcpy(address, host.ctypes.data, 16, kind)
        assert error.value.status == 1
    runtime.free(address)
    assert runtime.memGetInfo() == (free, total)
    with pytest.raises(runtime.CUDARuntimeError):
        runtime.free(address)


def test_peer_copies_check_the_devices_of_both_addresses(two_gpus: Machine) -> None:
    source = runtime.malloc(64)
    runtime.memset(source, 9, 64)
    runtime.setDevice(1)
    target = runtime.malloc(64)
    runtime.memcpyPeer(target, 1, source, 0, 64)
    result = np.zeros(64, np.uint8)
    runtime.memcpy(result.ctypes.data, target, 64, runtime.memcpyDeviceToHost)
    assert (result == 9).all()
    for wrong in ((target, 0, source, 0), (target, 1, source, 1)):
        with pytest.raises(runtime.CUDARuntimeError, match="is not in the memory of device"):
            runtime.memcpyPeer(*wrong, 64)
    runtime.memcpyPeer(0, 1, 0, 0, 0)  # of nothing, anywhere


def test_runtime_functions_accept_handles_of_cupy_events() -> None:
    event = cp.cuda.Event()
    later = cp.cuda.Event()
    place = runtime.malloc(64 * MIB)
    event.record()
    runtime.memsetAsync(place, 1, 64 * MIB, 0)
    runtime.eventRecord(later.ptr, 0)
    assert runtime.eventQuery(later.ptr) == 600
    runtime.eventSynchronize(later.ptr)
    assert runtime.eventQuery(later.ptr) == 0
    assert runtime.eventElapsedTime(event.ptr, later.ptr) == cp.cuda.get_elapsed_time(event, later) > 0
    handle = event.ptr
    del event
    with pytest.raises(runtime.CUDARuntimeError, match="is not the handle of a live event"):
        runtime.eventQuery(handle)


def test_runtime_streams_and_events_work_by_handle() -> None:
    stream = runtime.streamCreate()
    other = runtime.streamCreateWithFlags(runtime.streamNonBlocking)
    event = runtime.eventCreate()
    assert runtime.streamQuery(stream) == runtime.streamQuery(other) == runtime.eventQuery(event) == 0
    place = runtime.malloc(64 * MIB)
    runtime.memsetAsync(place, 1, 64 * MIB, stream)
    runtime.eventRecord(event, stream)
    runtime.streamWaitEvent(other, event)
    done: list[str] = []
    runtime.launchHostFunc(other, done.append, "waited")
    for query, handle in ((runtime.streamQuery, stream), (runtime.eventQuery, event)):
        assert query(handle) == 600  # cudaErrorNotReady is returned, as by CuPy
    runtime.streamSynchronize(other)
    assert done == ["waited"]
    assert runtime.eventQuery(event) == runtime.streamQuery(stream) == 0
    for end, handle in ((runtime.streamDestroy, stream), (runtime.eventDestroy, event)):
        end(handle)
        with pytest.raises(runtime.CUDARuntimeError, match=r"handle of a live (stream|event)") as error:
            end(handle)
        assert error.value.status == 400
    with pytest.raises(runtime.CUDARuntimeError, match="is not the handle of a live event"):
        runtime.eventSynchronize(other)  # a stream


def test_timing_may_be_switched_off() -> None:
    off = runtime.eventCreateWithFlags(runtime.eventDisableTiming)
    on = runtime.eventCreateWithFlags(runtime.eventBlockingSync)
    timed = runtime.eventCreate()
    for event in (off, on, timed):
        runtime.eventRecord(event, 0)
        runtime.eventSynchronize(event)
    assert runtime.eventElapsedTime(on, timed) >= 0
    with pytest.raises(runtime.CUDARuntimeError):
        runtime.eventElapsedTime(off, timed)


@pytest.mark.parametrize("value", [0, 0x1FF])
def test_memset_of_a_pointer(value: int) -> None:
    x = cp.full(100, 3, cp.uint8)
    x.data.memset(value, 60)
    np.testing.assert_array_equal(x.get(), [value & 0xFF] * 60 + [3] * 40)
    stream = cp.cuda.Stream()
    x.data.memset_async(value, 80, stream)
    stream.synchronize()
    np.testing.assert_array_equal(x.get(), [value & 0xFF] * 80 + [3] * 20)
