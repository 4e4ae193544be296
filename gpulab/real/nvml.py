"""Current readings of one GPU from NVML. MIG, VMs and containers do not support all of them.

Costs on an H200, per call: 2 to 12 microseconds for the readings of `NvmlDevice.metrics`, but 21 ms for PCIe
throughput (NVML samples for 20 ms), which is therefore not read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpulab.words import count
from virtualgpu.records import DeviceMetrics, Metric, Provenance
from virtualgpu.records.device.attributes import READINGS
from virtualgpu.records.device.load import clock_reasons

# GB/s a lane and direction after encoding, by PCIe generation (PCI-SIG, 1.0 to 6.0).
PCIE_LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}

_EXCLUSIVE_PROCESS = 3  # NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.h


class NvmlError(RuntimeError):
    """Error raised if NVML is not available or cannot be initialized. The message contains the reason."""


class NvmlDevice:
    """A GPU that is queried through NVML.

    Parameters
    ----------
    pci_bus_id
        The PCI address from CuPy (``Device.pci_bus_id``), because NVML's numbers include GPUs that
        ``CUDA_VISIBLE_DEVICES`` hides from CUDA. None means the first GPU of the machine.

    Raises
    ------
    NvmlError
        If `pynvml` is not installed, or NVML finds no driver or no such device.
    """

    def __init__(self, pci_bus_id: str | None = None) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise NvmlError("nvidia-ml-py is not installed: run `pip install nvidia-ml-py`") from error
        self.nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self.handle = (
                pynvml.nvmlDeviceGetHandleByIndex(0)
                if pci_bus_id is None
                else pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
            )
            self.name = decode_text(pynvml.nvmlDeviceGetName(self.handle))
        except pynvml.NVMLError as error:
            raise NvmlError(str(error)) from error

    def call_or_none(self, function: str, *args: Any) -> Any:
        """Call an ``nvmlDevice...`` function for this device. Return None if the function fails or is not
        supported.
        """
        try:
            return self.call(function, *args)
        except (self.nvml.NVMLError, AttributeError):
            return None

    def call(self, function: str, *args: Any) -> Any:
        """Call an ``nvmlDevice...`` function for this device, and return its result."""
        return getattr(self.nvml, function)(self.handle, *args)

    @property
    def driver_version(self) -> str | None:
        try:
            return decode_text(self.nvml.nvmlSystemGetDriverVersion())
        except self.nvml.NVMLError:
            return None

    @property
    def pcie_gbps(self) -> float | None:
        """Return the peak rate of the PCIe link in GB/s for one direction. The rate is computed from the
        width and the speed of the link.
        """
        generation = self.call_or_none("nvmlDeviceGetMaxPcieLinkGeneration")
        lane_count = self.call_or_none("nvmlDeviceGetMaxPcieLinkWidth")
        if not generation or not lane_count or generation not in PCIE_LANE_GBPS:
            return None
        return round(PCIE_LANE_GBPS[generation] * int(lane_count), 1)

    @property
    def mig_enabled(self) -> bool | None:
        mig_modes = self.call_or_none("nvmlDeviceGetMigMode")
        return None if mig_modes is None else bool(mig_modes[0])

    def setup(self) -> tuple[Metric, ...]:
        """Return facts about the setup of the device: MIG, active NVLinks and performance counters."""
        mig_enabled = self.mig_enabled
        gpm_support = self.call_or_none("nvmlGpmQueryDeviceSupport")
        max_links = getattr(self.nvml, "NVML_NVLINK_MAX_LINKS", 0)
        link_states = [self.call_or_none("nvmlDeviceGetNvLinkState", link) for link in range(max_links)]
        setup_values: dict[str, float | str | None] = {
            "MIG": None if mig_enabled is None else "on" if mig_enabled else "off",
            "NVLinks that are up": None if {*link_states} <= {None} else float(sum(map(bool, link_states))),
            "GPM counters": None if gpm_support is None else "yes" if gpm_support.isSupportedDevice else "no",
        }
        missing_reason = "this NVML, device or virtual machine does not report it"
        return tuple(
            Metric(name, value, why=missing_reason if value is None else "")
            for name, value in setup_values.items()
        )

    def metrics(self, provenance: Provenance) -> DeviceMetrics:
        """Read all metrics that can be queried fast enough for a live chart."""
        return DeviceMetrics(
            provenance, time.time_ns(), tuple(self._read_metric(*reading) for reading in READINGS)
        )

    def _read_metric(self, name: str, unit: str) -> Metric:
        nvml = self.nvml
        try:
            return Metric(name, _NVML_READERS[name](nvml, self.handle), unit)
        except nvml.NVMLError as error:
            reason = str(error)
        except AttributeError:
            reason = "this version of nvidia-ml-py does not support it"
        return Metric(name, None, unit, reason)


@dataclass(frozen=True, slots=True)
class GpuSharing:
    """Information on whether a GPU is shared with other programs. Unknown values are None."""

    name: str
    driver_version: str | None
    is_mig_enabled: bool | None
    is_exclusive: bool | None
    other_processes: int | None

    @property
    def phrase(self) -> str:
        """Return the reasons why times can vary or work can be rejected, or an empty string."""
        reasons = []
        if self.is_mig_enabled:
            reasons.append("MIG is on, so this may be only a part of the GPU")
        if self.other_processes:
            process_text = count(self.other_processes, "other process", "other processes")
            reasons.append(f"{process_text} on this GPU, so times vary")
        if self.is_exclusive:
            reasons.append("exclusive mode allows one process at a time")
        return "; ".join(reasons)


def query_sharing(pci_bus_id: str | None = None) -> GpuSharing:
    """Return how a GPU is shared with other programs. The GPU is given by its PCI address, and the first GPU
    is the default.

    Raises
    ------
    NvmlError
        If `pynvml` is not installed, or NVML finds no driver or no such device.
    """
    device = NvmlDevice(pci_bus_id)
    compute_mode = device.call_or_none("nvmlDeviceGetComputeMode")
    process_infos = device.call_or_none("nvmlDeviceGetComputeRunningProcesses")
    return GpuSharing(
        device.name,
        device.driver_version,
        device.mig_enabled,
        is_exclusive=None if compute_mode is None else compute_mode == _EXCLUSIVE_PROCESS,
        other_processes=None
        if process_infos is None
        else sum(process.pid != os.getpid() for process in process_infos),
    )


def decode_text(value: str | bytes) -> str:
    """Convert a text from NVML or CUDA to a string. Some versions of these libraries return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def read_temperature(nvml: Any, handle: Any) -> float:
    """Return the temperature of the GPU in °C."""
    # The older call is deprecated, the newer one is missing from older drivers.
    try:
        return float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))
    except (nvml.NVMLError, AttributeError):
        return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))


def read_clock_reason_bits(nvml: Any, handle: Any) -> float:
    """Return NVML's bit mask of the reasons why the clock rates are currently reduced."""
    read_reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return float((read_reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))


def _read_pcie_link(nvml: Any, handle: Any) -> str:
    generation = nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)
    return f"gen {generation} x{nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)}"


# How each of `READINGS` is read.
_NVML_READERS: dict[str, Callable[[Any, Any], float | str]] = {
    "GPU utilization": lambda n, h: float(n.nvmlDeviceGetUtilizationRates(h).gpu),
    "memory controller utilization": lambda n, h: float(n.nvmlDeviceGetUtilizationRates(h).memory),
    "memory used": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).used / 2**20,
    "memory total": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).total / 2**20,
    "temperature": read_temperature,
    "power": lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1e3,
    "power limit": lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,
    "SM clock": lambda n, h: float(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),
    "memory clock": lambda n, h: float(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM)),
    "clocks held back by": lambda n, h: clock_reasons(read_clock_reason_bits(n, h)),
    "fan": lambda n, h: float(n.nvmlDeviceGetFanSpeed(h)),
    "compute processes": lambda n, h: float(len(n.nvmlDeviceGetComputeRunningProcesses(h))),
    "PCIe link": _read_pcie_link,
}
