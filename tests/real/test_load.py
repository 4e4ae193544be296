"""What a GPU does, read from a `pynvml` that answers from a table: units, gaps, a GPU that is lost."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import Any

import pytest

from gpulab.real import load
from gpulab.real.load import GpuLostError, LoadReader
from gpulab.real.nvml import NvmlDevice
from gpulab.sampler import Sampler
from tests.real import fake_nvml
from virtualgpu.records.device.load import GPM_COLUMNS, LOAD_COLUMNS


def reader() -> LoadReader:
    return LoadReader(NvmlDevice(fake_nvml.BUS_ID.format(0)))


def row(read: LoadReader) -> dict[str, float | None]:
    return dict(zip(LOAD_COLUMNS, read(), strict=True))


def test_gpu_without_gpm_has_nvml_readings_and_reasons(nvml: Any) -> None:
    read = reader()
    values = row(read)
    assert {name: values[name] for name in LOAD_COLUMNS if values[name] is not None} == {
        "utilization": 37,
        "memory_utilization": 11,
        "power": 56.7,
        "temperature": 41,
        "sm_clock": 2040,
        "memory_clock": 6251,
        "memory_used": 3072,
        "clock_reasons": 0x24,
        "processes": 2,
    }
    assert all("Hopper" in read.missing[name] for name in GPM_COLUMNS)
    assert read.missing["energy"] == "this GPU does not report it"
    assert [memory_mib for _, memory_mib in read.processes] == [1024, None]
    assert read.facts()["power_limit_w"] == 72
    assert read.facts()["mig"] is None


def test_gpm_columns_have_nvidias_metric_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml: Any = pytest.importorskip("pynvml")
    of_nvidia = {
        "sm_active": "SM_UTIL",
        "sm_occupancy": "SM_OCCUPANCY",
        "integer": "INTEGER_UTIL",
        "tensor": "ANY_TENSOR_UTIL",
        "dram": "DRAM_BW_UTIL",
        "fp64": "FP64_UTIL",
        "fp32": "FP32_UTIL",
        "fp16": "FP16_UTIL",
        "pcie_tx": "PCIE_TX_PER_SEC",
        "pcie_rx": "PCIE_RX_PER_SEC",
        "nvlink_rx": "NVLINK_TOTAL_RX_PER_SEC",
        "nvlink_tx": "NVLINK_TOTAL_TX_PER_SEC",
    }
    numbers = {name: getattr(pynvml, f"NVML_GPM_METRIC_{constant}") for name, constant in of_nvidia.items()}
    fake = fake_nvml.with_gpm(fake_nvml.module(), lambda sample: {n: 1.0 * n * sample for n in range(100)})
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    times_s = iter((1.0, 1.0, 2.0, 2.0))
    monkeypatch.setattr(load.time, "monotonic", lambda: next(times_s))
    read = reader()
    read()
    values = row(read)
    assert {name: values[name] for name in GPM_COLUMNS} == numbers


def test_an_unsupported_reading_is_requested_once(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = []

    def energy(device: int) -> int:
        queries.append(device)
        raise nvml.NVMLError(fake_nvml.NOT_SUPPORTED)

    monkeypatch.setattr(nvml, "nvmlDeviceGetTotalEnergyConsumption", energy)
    read = reader()
    read(), read(), read()
    assert len(queries) == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        *((code, "gone") for code in (1, 9, 15, 16)),
        (3, "this GPU does not report it"),
        (4, "it needs administrator rights"),
        (13, "this driver does not support it"),
        *((code, None) for code in (2, 5, 8, 10, 14, 17, 999)),
    ],
)
def test_errors_are_temporary_permanent_or_mean_a_lost_gpu(
    code: int, reason: str | None, nvml: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = []

    def power(device: int) -> int:
        queries.append(device)
        raise nvml.NVMLError(code)

    monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", power)
    read = reader()
    if reason == "gone":
        with pytest.raises(
            GpuLostError, match=f"NVML no longer reports values of this GPU: .*{code}|is lost"
        ):
            read()
        return
    read()
    assert row(read)["power"] is None
    assert read.missing.get("power") == reason
    assert len(queries) == (1 if reason else 2)


def test_refused_gpm_counters_are_all_marked_missing(nvml: Any) -> None:
    queries = []

    def refuses(device: int, sample: object) -> None:
        queries.append(sample)
        raise nvml.NVMLError(4)

    fake_nvml.with_gpm(nvml, lambda number: {2: 1.0})
    nvml.nvmlGpmSampleGet = refuses
    freed = []
    nvml.nvmlGpmSampleFree = freed.append
    read = reader()
    assert "sm_active" not in read.missing
    values = row(read)
    assert len(freed) == 2, "its samples are of no use any more"
    read()
    assert len(queries) == 1
    assert {read.missing[name] for name in GPM_COLUMNS} == {"it needs administrator rights"}
    assert {values[name] for name in GPM_COLUMNS} == {None}
    assert values["utilization"] == 37


def test_facts_without_a_reading_are_none(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader()
    assert read.facts() == {"memory_mib": 24576, "power_limit_w": 72, "mig": None, "driver": "580.65"}
    del nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlDeviceGetEnforcedPowerLimit

    def none() -> str:
        raise nvml.NVMLError(9)

    monkeypatch.setattr(nvml, "nvmlSystemGetDriverVersion", none)
    assert read.facts() == {"memory_mib": None, "power_limit_w": None, "mig": None, "driver": ""}
    del nvml.nvmlDeviceGetClockInfo
    assert row(read)["sm_clock"] is None
    assert read.missing["sm_clock"] == "this version of nvidia-ml-py does not support it"


def test_gpm_values_are_means_between_samples(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr(load.time, "monotonic", lambda: clock_s[0])
    # SM active 50 % more with each sample, and a metric (3) that this GPU does not count.
    fake_nvml.with_gpm(nvml, lambda number: {2: 50.0 * number**2})
    read = reader()
    means = []
    for time_s in (10.0, 10.2, 10.3, 10.4):
        clock_s[0] = time_s
        means.append(row(read)["sm_active"])
    # The third comes too early for a mean of its own.
    assert means == [None, 50, 50, 150]
    assert row(read)["sm_occupancy"] is None
    assert "sm_active" not in read.missing
    assert read.missing["sm_occupancy"] == "this GPU does not count it"


def test_slow_readings_are_taken_less_often(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [10.0]
    heat = [40]
    monkeypatch.setattr(load.time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(nvml, "nvmlDeviceGetTemperatureV", lambda device, sensor: heat[0])
    read = reader()
    temperatures = []
    for time_s in (10.0, 10.1, 10.6):
        clock_s[0] = time_s
        temperatures.append(row(read)["temperature"])
        heat[0] += 1
    assert temperatures == [40, 40, 42]


def test_lost_gpu_is_reported_and_readings_resume(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader()
    sampler = Sampler(read, len(LOAD_COLUMNS))
    sampler.take_reading()
    answer = nvml.nvmlDeviceGetUtilizationRates
    lost = nvml.NVMLError(fake_nvml.GPU_IS_LOST)

    def gone(device: int) -> Any:
        raise lost

    monkeypatch.setattr(nvml, "nvmlDeviceGetUtilizationRates", gone)
    with pytest.raises(GpuLostError, match="GPU is lost"):
        read()
    sampler.take_reading()
    assert "GPU is lost" in sampler.failure
    assert math.isnan(sampler.rows()[1, 1])
    monkeypatch.setattr(nvml, "nvmlDeviceGetUtilizationRates", answer)
    sampler.take_reading()
    assert not sampler.failure
    assert sampler.rows()[2, 1] == 37


def test_hanging_nvml_call_does_not_block_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    hanging = threading.Event()
    calls = []

    def read() -> list[float]:
        calls.append(time.monotonic())
        if len(calls) > 1:
            hanging.set()
            free.wait(30)
        return [1.0]

    sampler = Sampler(read, 1, rate_hz=50)
    sampler.start()
    assert hanging.wait(10)
    try:
        assert sampler.stop() is False
    finally:
        free.set()
