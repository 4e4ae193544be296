"""Load of a real GPU, one row at a time: readings of NVML, and of GPM if the GPU supports it.

Costs on an H200: a GPM sample takes 52 microseconds, eleven metrics of two samples 0.9 ms or more, and each
of NVML's readings 2 to 12 microseconds. A row of all readings took 3.5 ms of processor time. GPM is therefore
queried five times per second, and slowly changing values twice. NVML's own PCIe throughput takes 21 ms and is
not queried, since GPM counts it, too.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from gpulab.real.nvml import NvmlDevice, read_clock_reason_bits, read_temperature
from virtualgpu.records.device.load import GPM_COLUMNS, LOAD_COLUMNS

# Metric numbers of nvml.h (nvmlGpmMetricId_t).
_GPM_METRICS = {
    "sm_active": 2,
    "sm_occupancy": 3,
    "integer": 4,
    "tensor": 5,
    "dram": 10,
    "fp64": 11,
    "fp32": 12,
    "fp16": 13,
    "pcie_tx": 20,
    "pcie_rx": 21,
    "nvlink_rx": 60,
    "nvlink_tx": 61,
}
_NVML_SUCCESS = 0
_MIN_SAMPLE_INTERVAL_S = 0.19  # between two samples, which cost the most of a row; NVIDIA asks for 0.1 s
_SLOW_READING_INTERVAL_S = 0.5
_SLOW_READINGS = ("temperature", "memory_clock", "memory_used", "processes")
# Codes of nvml.h that mean: this GPU has no such reading, now or later ...
_PERMANENT_ERRORS = {
    3: "this GPU does not report it",
    4: "it needs administrator rights",
    13: "this driver does not support it",
}
# ... and that NVML or the GPU has gone: uninitialized, driver not loaded, GPU is lost, reset required.
_DEVICE_LOST_ERRORS = (1, 9, 15, 16)
_NO_GPM_REASON = "only Hopper (compute capability 9.0) and newer GPUs count it"


class GpuLostError(RuntimeError):
    """Error raised if NVML no longer responds. The message contains the error from NVML."""


class LoadReader:
    """A function object that queries NVML for the load of a GPU. Each call returns a row of `LOAD_COLUMNS`,
    in which missing values are None.

    Attributes
    ----------
    missing
        Reasons why columns are never available. They are not queried again.
    processes
        Process number and MiB of each compute process at the last reading.
    """

    def __init__(self, device: NvmlDevice) -> None:
        self._device = device
        self.missing: dict[str, str] = {}
        self.processes: tuple[tuple[int, float | None], ...] = ()
        self._slow_reading_values: dict[str, float | None] = {}
        self._last_slow_reading_s = -_SLOW_READING_INTERVAL_S
        self._gpm = _GpmReader.of(device)
        if self._gpm is None:
            self.missing.update(dict.fromkeys(GPM_COLUMNS, _NO_GPM_REASON))

    def facts(self) -> dict[str, Any]:
        """Return properties of the GPU that do not change, such as memory, power limit, MIG and driver
        version.
        """
        memory_info = self._device.call_or_none("nvmlDeviceGetMemoryInfo")
        limit_mw = self._device.call_or_none("nvmlDeviceGetEnforcedPowerLimit")
        return {
            "memory_mib": memory_info and memory_info.total / 2**20,
            "power_limit_w": limit_mw and limit_mw / 1e3,
            "mig": self._device.mig_enabled,
            "driver": self._device.driver_version or "",
        }

    def __call__(self) -> list[float | None]:
        """Return one row of readings.

        Raises
        ------
        GpuLostError
            If NVML reports that the GPU or the driver was lost.
        """
        readings = dict(self._try_reading("sm_active", self._gpm) or {}) if self._gpm else {}
        self.missing.update(
            {name: "this GPU does not count it" for name in readings if readings[name] is None}
        )
        now_s = time.monotonic()
        is_slow_due = now_s - self._last_slow_reading_s >= _SLOW_READING_INTERVAL_S
        for name, read_value in _NVML_READERS.items():
            if is_slow_due or name not in _SLOW_READINGS:
                readings[name] = self._try_reading(
                    name, partial(read_value, self._device.nvml, self._device.handle)
                )
        utilization_rates = self._try_reading(
            "utilization", partial(self._device.call, "nvmlDeviceGetUtilizationRates")
        )
        if utilization_rates is not None:
            readings["utilization"], readings["memory_utilization"] = (
                float(utilization_rates.gpu),
                float(utilization_rates.memory),
            )
        if is_slow_due:
            readings["processes"] = self._count_processes()
            self._last_slow_reading_s, self._slow_reading_values = (
                now_s,
                {name: readings.get(name) for name in _SLOW_READINGS},
            )
        return [readings.get(name, self._slow_reading_values.get(name)) for name in LOAD_COLUMNS]

    def _count_processes(self) -> float | None:
        process_infos = self._try_reading(
            "processes", partial(self._device.call, "nvmlDeviceGetComputeRunningProcesses")
        )
        if process_infos is None:
            return None
        self.processes = tuple(
            (int(process.pid), _to_mib(process.usedGpuMemory)) for process in process_infos
        )
        return float(len(process_infos))

    def _try_reading(self, name: str, read_value: Callable[[], Any]) -> Any:
        """Return a reading, or None if it fails. Unsupported readings are not tried again."""
        if name in self.missing:
            return None
        try:
            return read_value()
        except AttributeError:
            self.missing[name] = "this version of nvidia-ml-py does not support it"
        except self._device.nvml.NVMLError as error:
            error_code = getattr(error, "value", None)
            if error_code in _DEVICE_LOST_ERRORS:
                raise GpuLostError(f"NVML no longer reports values of this GPU: {error}.") from error
            if error_code in _PERMANENT_ERRORS:
                self.missing[name] = _PERMANENT_ERRORS[error_code]
                if name == "sm_active":
                    self._gpm = None
                    self.missing.update(dict.fromkeys(GPM_COLUMNS, _PERMANENT_ERRORS[error_code]))
        return None


class _GpmReader:
    """Reader of the GPU's performance counters (GPM) over intervals of at least `_MIN_SAMPLE_INTERVAL_S`."""

    def __init__(self, device: NvmlDevice) -> None:
        nvml = device.nvml
        self._device = device
        self._gpm_samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        for gpm_sample in self._gpm_samples:
            weakref.finalize(self, nvml.nvmlGpmSampleFree, gpm_sample).atexit = False
        self._metrics_request = nvml.c_nvmlGpmMetricsGet_t()  # 477 metrics wide: made once
        self._metrics_request.version, self._metrics_request.numMetrics = (
            nvml.NVML_GPM_METRICS_GET_VERSION,
            len(_GPM_METRICS),
        )
        for metric_index, metric_id in enumerate(_GPM_METRICS.values()):
            self._metrics_request.metrics[metric_index].metricId = metric_id
        self._last_sample_s = -1.0
        self._last_metrics: dict[str, float | None] = {}

    @classmethod
    def of(cls, device: NvmlDevice) -> _GpmReader | None:
        """Return a reader of GPM counters for a GPU, or None if the GPU does not support GPM."""
        try:
            gpm_support = device.nvml.nvmlGpmQueryDeviceSupport(device.handle)
            return cls(device) if gpm_support.isSupportedDevice else None
        except (device.nvml.NVMLError, AttributeError):
            return None

    def __call__(self) -> dict[str, float | None]:
        now_s = time.monotonic()
        nvml = self._device.nvml
        if self._last_sample_s >= 0 and now_s - self._last_sample_s < _MIN_SAMPLE_INTERVAL_S:
            return self._last_metrics
        new_sample, last_sample = self._gpm_samples
        nvml.nvmlGpmSampleGet(self._device.handle, new_sample)  # the one before is behind it from now on
        self._gpm_samples = [last_sample, new_sample]
        is_first_sample = self._last_sample_s < 0
        self._last_sample_s = now_s
        if not is_first_sample:
            self._last_metrics = self._compute_metrics(last_sample, new_sample)
        return self._last_metrics

    def _compute_metrics(self, first_sample: Any, second_sample: Any) -> dict[str, float | None]:
        metrics_request = self._metrics_request
        metrics_request.sample1 = first_sample
        metrics_request.sample2 = second_sample
        self._device.nvml.nvmlGpmMetricsGet(metrics_request)
        return {
            name: float(metrics_request.metrics[metric_index].value)
            if metrics_request.metrics[metric_index].nvmlReturn == _NVML_SUCCESS
            else None
            for metric_index, name in enumerate(_GPM_METRICS)
        }


def _to_mib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 2**20


_NVML_READERS: dict[str, Callable[[Any, Any], float]] = {
    "power": lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1e3,
    "energy": lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3,
    "temperature": read_temperature,
    "sm_clock": lambda n, h: float(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),
    "memory_clock": lambda n, h: float(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM)),
    "memory_used": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).used / 2**20,
    "clock_reasons": read_clock_reason_bits,
}
