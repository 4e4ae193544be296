"""NVML's readings, in the units that gpulab says, from a `pynvml` that answers from a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpulab.real.nvml import NvmlDevice, NvmlError, query_sharing
from tests.real import fake_nvml
from virtualgpu.records import DeviceMetrics, Provenance
from virtualgpu.records.device.attributes import READINGS

HERE = Provenance("measured", "NVIDIA L4")


def values(metrics: DeviceMetrics) -> dict[str, tuple[float | str | None, str]]:
    return {metric.name: (metric.value, metric.unit) for metric in metrics.metrics}


def test_readings_are_converted_to_their_units(nvml: Any) -> None:
    readings = values(NvmlDevice(fake_nvml.BUS_ID.format(0)).metrics(HERE))
    assert readings == {
        "GPU utilization": (37, "%"),
        "memory controller utilization": (11, "%"),
        "memory used": (3072, "MiB"),
        "memory total": (24576, "MiB"),
        "temperature": (41, "°C"),
        "power": (56.7, "W"),
        "power limit": (72, "W"),
        "SM clock": (2040, "MHz"),
        "memory clock": (6251, "MHz"),
        "clocks held back by": ("software power cap, software thermal slowdown", ""),
        "fan": (None, "%"),
        "compute processes": (2, ""),
        "PCIe link": ("gen 3 x8", ""),
    }
    assert [(name, unit) for name, (_, unit) in readings.items()] == list(READINGS)


def test_missing_reading_reports_the_reason(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = NvmlDevice(fake_nvml.BUS_ID.format(0))
    fan = next(metric for metric in device.metrics(HERE).metrics if metric.name == "fan")
    assert fan.why == "Not Supported"
    del nvml.nvmlDeviceGetFanSpeed, nvml.nvmlDeviceGetTemperatureV
    fan = next(metric for metric in device.metrics(HERE).metrics if metric.name == "fan")
    assert "does not support it" in fan.why
    monkeypatch.setattr(nvml, "nvmlDeviceGetTemperature", lambda handle, sensor: 43)
    assert values(device.metrics(HERE))["temperature"] == (43, "°C")


def test_facts_of_a_device_from_nvml(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = NvmlDevice(fake_nvml.BUS_ID.format(1))
    assert device.driver_version == "580.65"
    monkeypatch.setattr(nvml, "nvmlSystemGetDriverVersion", lambda: b"535.1")
    assert device.driver_version == "535.1"
    assert device.pcie_gbps == 31.5  # 16 lanes of the fourth generation
    assert device.mig_enabled is None
    monkeypatch.setattr(nvml, "nvmlDeviceGetMigMode", lambda handle: [handle == 1, 0])
    assert device.mig_enabled is True
    assert NvmlDevice(fake_nvml.BUS_ID.format(0)).mig_enabled is False


def test_setup_reports_mig_nvlink_and_gpm(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = NvmlDevice(fake_nvml.BUS_ID.format(0))
    mig, links, gpm = device.setup()
    assert (mig.value, links.value, gpm.value) == (None, 3, "no")
    assert "does not report it" in mig.why
    monkeypatch.setattr(nvml, "nvmlDeviceGetMigMode", lambda handle: [0, 1])
    monkeypatch.setattr(
        nvml, "nvmlGpmQueryDeviceSupport", lambda handle: SimpleNamespace(isSupportedDevice=1)
    )
    del nvml.nvmlDeviceGetNvLinkState
    assert [metric.value for metric in device.setup()] == ["off", None, "yes"]


def test_other_processes_are_counted(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use = query_sharing(fake_nvml.BUS_ID.format(0))
    assert use.other_processes == 1
    assert use.is_exclusive is False
    assert use.phrase == "1 other process on this GPU, so times vary"
    monkeypatch.setattr(nvml, "nvmlDeviceGetComputeMode", lambda handle: 3)
    assert "exclusive" in query_sharing().phrase


def test_unknown_device_and_missing_driver_are_errors(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NvmlError, match="Not Found"):
        NvmlDevice("0000:FF:00.0")

    def fail() -> None:
        raise nvml.NVMLError(fake_nvml.NOT_FOUND)

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    for ask in (lambda: NvmlDevice(fake_nvml.BUS_ID.format(0)), query_sharing):
        with pytest.raises(NvmlError):
            ask()
