"""Live readings through a made-up NVML: values, units, and what stands where there is none."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gpulab.real.nvml import NvmlDevice
from virtualgpu.records import Provenance
from virtualgpu.records.device_attributes import READINGS

MIB = 1 << 20
WANTED = {
    "GPU utilization": 7.0,
    "memory controller utilization": 3.0,
    "memory used": 1024.0,
    "memory total": 4096.0,
    "temperature": 41.0,
    "power": 75.5,
    "power limit": 700.0,
    "SM clock": 1980.0,
    "memory clock": 3201.0,
    "clocks held back by": "idle, software power cap",
    "fan": None,
    "compute processes": 2.0,
    "PCIe link": "gen 5 x16",
}


class NVMLError(Exception):
    """What NVML raises where a device has no such sensor."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    def no_fan(handle: object) -> int:
        raise NVMLError("Not Supported")

    clocks = {1: 1980, 2: 3201}
    made = ModuleType("pynvml")
    made.__dict__.update(
        NVMLError=NVMLError,
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        nvmlSystemGetDriverVersion=lambda: b"580.1",
        nvmlDeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=7, memory=3),
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(used=1024 * MIB, total=4096 * MIB),
        nvmlDeviceGetTemperature=lambda h, sensor: 41,
        nvmlDeviceGetPowerUsage=lambda h: 75_500,
        nvmlDeviceGetEnforcedPowerLimit=lambda h: 700_000,
        nvmlDeviceGetClockInfo=lambda h, kind: clocks[kind],
        nvmlDeviceGetCurrentClocksEventReasons=lambda h: 0x5,
        nvmlDeviceGetFanSpeed=no_fan,
        nvmlDeviceGetComputeRunningProcesses=lambda h: [1, 2],
        nvmlDeviceGetCurrPcieLinkGeneration=lambda h: 5,
        nvmlDeviceGetCurrPcieLinkWidth=lambda h: 16,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda h: 4,
        nvmlDeviceGetMaxPcieLinkWidth=lambda h: 16,
    )
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_every_reading_has_its_value_and_unit(nvml: ModuleType) -> None:
    metrics = NvmlDevice("0000:06:00.0").metrics(Provenance("measured", "x")).metrics
    assert [(metric.name, metric.unit) for metric in metrics] == list(READINGS)
    assert {metric.name: metric.value for metric in metrics} == WANTED


def test_a_reading_that_a_device_lacks_says_why(nvml: ModuleType) -> None:
    del nvml.nvmlDeviceGetPowerUsage
    found = {
        metric.name: metric
        for metric in NvmlDevice("0000:06:00.0").metrics(Provenance("measured", "x")).metrics
    }
    assert found["fan"].why == "Not Supported"
    assert (found["power"].value, found["power"].why) == (None, "this nvidia-ml-py does not know it")
    assert found["temperature"].value == 41.0


def test_the_link_s_peak(nvml: ModuleType) -> None:
    device = NvmlDevice("0000:06:00.0")
    assert device.pcie_gbps == 31.5  # PCIe 4.0 x16
    assert device.driver_version == "580.1"
