"""`pynvml` for one GPU, with readings of a table in NVML's own units."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

BUS_ID = "0000:{:02X}:00.0"
NOT_SUPPORTED = 3
NOT_FOUND = 6
GPU_IS_LOST = 15


class NVMLError(Exception):
    """Like ``pynvml.NVMLError``."""

    def __init__(self, value: int) -> None:
        words = {NOT_SUPPORTED: "Not Supported", NOT_FOUND: "Not Found", GPU_IS_LOST: "GPU is lost"}
        super().__init__(words.get(value, f"Error {value}"))
        self.value = value


# What each nvmlDevice... function answers: an object, or a function of its further arguments.
READINGS: dict[str, Any] = {
    "GetName": "NVIDIA L4",
    "GetNumGpuCores": 58 * 128,
    "GetMaxPcieLinkGeneration": 4,
    "GetMaxPcieLinkWidth": 16,
    "GetCurrPcieLinkGeneration": 3,
    "GetCurrPcieLinkWidth": 8,
    "GetUtilizationRates": SimpleNamespace(gpu=37, memory=11),
    "GetMemoryInfo": SimpleNamespace(used=3 << 30, total=24 << 30),
    "GetTemperatureV": lambda sensor: 41,
    "GetPowerUsage": 56_700,  # mW
    "GetEnforcedPowerLimit": 72_000,  # mW
    "GetClockInfo": lambda clock: {1: 2_040, 2: 6_251}[clock],  # MHz
    "GetCurrentClocksEventReasons": 0x4 | 0x20,
    "GetComputeRunningProcesses": [
        SimpleNamespace(pid=os.getpid(), usedGpuMemory=1 << 30),
        SimpleNamespace(pid=1, usedGpuMemory=None),
    ],
    "GetComputeMode": 0,
    "GetNvLinkState": lambda link: int(link < 3),
}


def module(readings: dict[str, Any] | None = None) -> Any:
    """The module, with readings of its own; what is not among them, such as a fan, is not supported."""
    known = READINGS if readings is None else readings
    pynvml: Any = ModuleType("pynvml")
    pynvml.NVMLError = NVMLError
    pynvml.NVML_TEMPERATURE_GPU = 0
    pynvml.NVML_CLOCK_SM = 1
    pynvml.NVML_CLOCK_MEM = 2
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
    pynvml.NVML_NVLINK_MAX_LINKS = 18
    pynvml.nvmlGpmQueryDeviceSupport = lambda device: SimpleNamespace(isSupportedDevice=0)
    pynvml.nvmlInit = pynvml.nvmlShutdown = lambda: None
    pynvml.nvmlSystemGetDriverVersion = lambda: "580.65"
    pynvml.nvmlDeviceGetHandleByIndex = lambda index: index
    pynvml.nvmlDeviceGetHandleByPciBusId = handle
    for name in (*READINGS, "GetFanSpeed", "GetMigMode", "GetTemperature", "GetTotalEnergyConsumption"):
        setattr(pynvml, f"nvmlDevice{name}", _reader(known.get(name)))
    return pynvml


def with_gpm(module: Any, metrics: Callable[[int], dict[int, float]]) -> Any:
    """Give a module GPM: `metrics` tells by number what was counted up to a sample, of which each is one."""
    numbers = itertools.count()
    module.NVML_GPM_METRICS_GET_VERSION = 1
    module.nvmlGpmQueryDeviceSupport = lambda device: SimpleNamespace(isSupportedDevice=1)
    module.nvmlGpmSampleAlloc = lambda: SimpleNamespace(number=-1)
    module.nvmlGpmSampleFree = lambda sample: None
    module.nvmlGpmSampleGet = lambda device, sample: setattr(sample, "number", next(numbers))
    module.c_nvmlGpmMetricsGet_t = lambda: SimpleNamespace(metrics=[SimpleNamespace() for _ in range(98)])

    def get(request: Any) -> None:
        earlier = metrics(request.sample1.number)
        later = metrics(request.sample2.number)
        for metric in request.metrics[: request.numMetrics]:
            known = metric.metricId in later
            metric.nvmlReturn = 0 if known else NOT_SUPPORTED
            metric.value = later[metric.metricId] - earlier[metric.metricId] if known else 0.0

    module.nvmlGpmMetricsGet = get
    return module


def handle(bus_id: str) -> int:
    """The number of the device at a bus id."""
    for index in range(8):
        if BUS_ID.format(index) == bus_id:
            return index
    raise NVMLError(NOT_FOUND)


def _reader(answer: Any) -> Callable[..., Any]:
    def read(device: int, *arguments: Any) -> Any:
        if answer is None:
            raise NVMLError(NOT_SUPPORTED)
        return answer(*arguments) if callable(answer) else answer

    return read
