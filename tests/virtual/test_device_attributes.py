"""The table of device attributes against CuPy on an H200, and read back as a device record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from virtualgpu import cp
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info, list_device_names
from virtualgpu.model.machine import Machine
from virtualgpu.records import DeviceInfo, Provenance
from virtualgpu.records.device.attributes import ATTRIBUTES, info_fields

pytestmark = pytest.mark.usefixtures("machine")

# ``getDeviceProperties`` of CuPy 14.2 on an NVIDIA H200, without ECC, which the virtual GPU lacks, and the
# size of memory, of which the driver keeps a part.
H200_PROPERTIES = {
    "sharedMemPerBlock": 49152,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsDim": (1024, 1024, 64),
    "maxGridSize": (2147483647, 65535, 65535),
    "clockRate": 1980000,
    "totalConstMem": 65536,
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "integrated": 0,
    "computeMode": 0,
    "concurrentKernels": 1,
    "tccDriver": 0,
    "memoryClockRate": 3201000,
    "memoryBusWidth": 6016,
    "l2CacheSize": 62914560,
    "maxThreadsPerMultiProcessor": 2048,
    "isMultiGpuBoard": 0,
    "cooperativeLaunch": 1,
    "cooperativeMultiDeviceLaunch": 0,
    "asyncEngineCount": 3,
    "unifiedAddressing": 1,
    "streamPrioritiesSupported": 1,
    "sharedMemPerMultiprocessor": 233472,
    "regsPerMultiprocessor": 65536,
    "pageableMemoryAccess": 0,
    "sharedMemPerBlockOptin": 232448,
    "maxBlocksPerMultiProcessor": 32,
    "reservedSharedMemPerBlock": 1024,
    "deviceOverlap": 1,
}


def test_a_virtual_h200_has_the_attributes_of_an_h200() -> None:
    slot.use(Machine([device_info("H200")]))
    properties = cp.cuda.runtime.getDeviceProperties(0)
    assert {name: properties[name] for name in H200_PROPERTIES} == H200_PROPERTIES
    assert properties["totalGlobalMem"] == 150_109_880_320


ODD = replace(
    device_info("A100"),
    max_block_dim=(7, 8, 9),
    max_grid_dim=(10, 11, 12),
    registers_per_block=13,
    shared_per_block_bytes=14,
)


@pytest.mark.parametrize(
    "info", [*map(device_info, list_device_names()), ODD], ids=[*list_device_names(), "odd"]
)
def test_a_device_record_can_be_read_back_from_its_attributes(info: DeviceInfo) -> None:
    """`gpulab.real.device` reads a real GPU in the same way."""
    values = {known.number: known.find_value(info) for known in ATTRIBUTES}
    read = info_fields(values.get)
    lost = {"memory_clock_mhz", "boost_clock_mhz", "copy_engines"} - {
        field for field in read if getattr(info, field) is not None
    }
    assert {field: getattr(info, field) for field in read if field not in lost} == {
        field: value for field, value in read.items() if field not in lost
    }
    assert len(read) == 18


def test_unknown_attributes_are_none_or_zero() -> None:
    read = info_fields(lambda number: 0)
    assert (read["boost_clock_mhz"], read["memory_clock_mhz"]) == (None, None)  # no GPU stands still
    assert read["copy_engines"] == 0
    read = info_fields(lambda number: None)
    missing = {"memory_bus_bits", "memory_clock_mhz", "boost_clock_mhz", "copy_engines"}
    assert {field for field, value in read.items() if value is None} == missing
    assert read["max_grid_dim"] == (0, 0, 0)
    assert read["sm_count"] == 0


def test_attributes_by_number_and_by_name() -> None:
    runtime = cp.cuda.runtime
    info = replace(device_info("A100"), copy_engines=None, provenance=Provenance("modelled", "x"))
    slot.use(Machine([info]))
    assert runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, 0) == 108
    assert runtime.deviceGetAttribute(runtime.cudaDevAttrAsyncEngineCount, 0) == 0
    assert runtime.deviceGetAttribute(115, 0) == 1  # stream-ordered pools
    with pytest.raises(CUDARuntimeError, match="does not model device attribute 5000"):
        runtime.deviceGetAttribute(5000, 0)
    with pytest.raises(AttributeError, match="cudaDevAttrNothing"):
        runtime.cudaDevAttrNothing  # noqa: B018
