"""Capability and limits of a device, and its current readings."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.kernel import WARP_SIZE, Dim3
from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """The properties and limits of one device. A value is None if it is unknown on this machine."""

    provenance: Provenance
    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    fp32_lanes_per_sm: int
    max_threads_per_block: int
    max_block_dim: Dim3
    max_grid_dim: Dim3
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    shared_per_sm_bytes: int
    shared_per_block_bytes: int
    shared_per_block_optin_bytes: int
    reserved_shared_per_block_bytes: int
    l2_bytes: int
    memory_bytes: int
    memory_type: str | None
    memory_bus_bits: int | None
    memory_clock_mhz: float | None
    memory_bandwidth_gbps: float | None
    boost_clock_mhz: float | None
    copy_engines: int | None
    fp32_tflops: float | None = None
    fp16_tensor_tflops: float | None = None
    pcie_gbps: float | None = None
    nvlink_gbps: float | None = None
    driver: str | None = None
    notes: str = ""

    @property
    def max_threads_per_sm(self) -> int:
        """Largest number of threads that can be resident on an SM."""
        return self.max_warps_per_sm * WARP_SIZE

    @property
    def as_virtual(self) -> Provenance:
        """The provenance of modelled numbers for a virtual GPU with these properties."""
        return Provenance("modelled", f"virtual {self.name}")

    @property
    def capability(self) -> str:
        """The compute capability as text, such as ``9.0`` or ``12.0``."""
        return f"{self.compute_capability[0]}.{self.compute_capability[1]}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One reading of a device metric. If the metric is not available, the value is None and the field ``why``
    gives the reason.
    """

    name: str
    value: float | str | None
    unit: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class DeviceMetrics:
    """All readings that NVML reports at one moment."""

    provenance: Provenance
    time_ns: int
    metrics: tuple[Metric, ...]
