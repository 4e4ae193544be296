"""CUDA's device attributes and NVML's readings: one table of names, numbers and the records they fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from virtualgpu.records.device import DeviceInfo
from virtualgpu.records.kernel import WARP_SIZE

CONSTANT_MEMORY_BYTES = 65536


@dataclass(frozen=True, slots=True)
class DeviceAttribute:
    """One entry of ``cudaDeviceAttr`` (driver_types.h).

    Parameters
    ----------
    number, name
        CUDA's; the name without ``cudaDevAttr``.
    property
        The key of the same quantity in CuPy's ``getDeviceProperties``, "" if there is none.
    field
        The field of `DeviceInfo` that holds it, "" for what is the same on every virtual GPU: `value`.
    per
        How many of CUDA's units make one of the field's: 1000 for clocks, kHz against MHz.
    index
        Which element of the field, where that is a tuple.
    """

    number: int
    name: str
    property: str = ""
    field: str = ""
    per: int = 1
    index: int | None = None
    value: int = 0

    def of(self, info: DeviceInfo) -> int:
        """The attribute of a device as CUDA would give it."""
        if not self.field:
            return self.value
        found = getattr(info, self.field)
        return round((found if self.index is None else found[self.index]) * self.per) if found else 0


_A = DeviceAttribute
ATTRIBUTES: tuple[DeviceAttribute, ...] = (
    _A(1, "MaxThreadsPerBlock", "maxThreadsPerBlock", "max_threads_per_block"),
    _A(2, "MaxBlockDimX", "", "max_block_dim", index=0),
    _A(3, "MaxBlockDimY", "", "max_block_dim", index=1),
    _A(4, "MaxBlockDimZ", "", "max_block_dim", index=2),
    _A(5, "MaxGridDimX", "", "max_grid_dim", index=0),
    _A(6, "MaxGridDimY", "", "max_grid_dim", index=1),
    _A(7, "MaxGridDimZ", "", "max_grid_dim", index=2),
    _A(8, "MaxSharedMemoryPerBlock", "sharedMemPerBlock", "shared_per_block_bytes"),
    _A(9, "TotalConstantMemory", "totalConstMem", value=CONSTANT_MEMORY_BYTES),
    _A(10, "WarpSize", "warpSize", value=WARP_SIZE),
    _A(12, "MaxRegistersPerBlock", "regsPerBlock", "registers_per_block"),
    _A(13, "ClockRate", "clockRate", "boost_clock_mhz", per=1000),
    _A(16, "MultiProcessorCount", "multiProcessorCount", "sm_count"),
    _A(17, "KernelExecTimeout", "kernelExecTimeoutEnabled", value=1),  # the watchdog
    _A(18, "Integrated", "integrated"),
    _A(19, "CanMapHostMemory", "canMapHostMemory"),
    _A(20, "ComputeMode", "computeMode"),
    _A(31, "ConcurrentKernels", "concurrentKernels", value=1),
    _A(32, "EccEnabled", "ECCEnabled"),
    _A(35, "TccDriver", "tccDriver"),
    _A(36, "MemoryClockRate", "memoryClockRate", "memory_clock_mhz", per=1000),
    _A(37, "GlobalMemoryBusWidth", "memoryBusWidth", "memory_bus_bits"),
    _A(38, "L2CacheSize", "l2CacheSize", "l2_bytes"),
    _A(39, "MaxThreadsPerMultiProcessor", "maxThreadsPerMultiProcessor", "max_warps_per_sm", per=WARP_SIZE),
    _A(40, "AsyncEngineCount", "asyncEngineCount", "copy_engines"),
    _A(41, "UnifiedAddressing", "unifiedAddressing", value=1),
    _A(75, "ComputeCapabilityMajor", "major", "compute_capability", index=0),
    _A(76, "ComputeCapabilityMinor", "minor", "compute_capability", index=1),
    _A(78, "StreamPrioritiesSupported", "streamPrioritiesSupported", value=1),
    _A(81, "MaxSharedMemoryPerMultiprocessor", "sharedMemPerMultiprocessor", "shared_per_sm_bytes"),
    _A(82, "MaxRegistersPerMultiprocessor", "regsPerMultiprocessor", "registers_per_sm"),
    _A(83, "ManagedMemory", "managedMemory"),
    _A(84, "IsMultiGpuBoard", "isMultiGpuBoard"),
    _A(88, "PageableMemoryAccess", "pageableMemoryAccess"),
    _A(89, "ConcurrentManagedAccess", "concurrentManagedAccess"),
    _A(95, "CooperativeLaunch", "cooperativeLaunch", value=1),
    _A(96, "CooperativeMultiDeviceLaunch", "cooperativeMultiDeviceLaunch"),
    _A(97, "MaxSharedMemoryPerBlockOptin", "sharedMemPerBlockOptin", "shared_per_block_optin_bytes"),
    _A(106, "MaxBlocksPerMultiprocessor", "maxBlocksPerMultiProcessor", "max_blocks_per_sm"),
    _A(111, "ReservedSharedMemoryPerBlock", "reservedSharedMemPerBlock", "reserved_shared_per_block_bytes"),
    _A(115, "MemoryPoolsSupported"),
)

# What `DeviceInfo` may leave open.
_OPTIONAL = {field.name for field in fields(DeviceInfo) if "None" in str(field.type)}


def info_fields(ask: Callable[[int], int | None]) -> dict[str, Any]:
    """The fields of `DeviceInfo` that CUDA's attributes tell.

    Parameters
    ----------
    ask
        Gives an attribute by number, None where the driver does not know it. Such a field is None if it
        may be, 0 otherwise.
    """
    found: dict[str, Any] = {}
    for attribute in ATTRIBUTES:
        name = attribute.field
        if not name:
            continue
        answer = ask(attribute.number)
        if attribute.index is not None:
            found[name] = (*found.get(name, ()), answer or 0)
        elif name in _OPTIONAL and not answer:
            found[name] = answer if attribute.per == 1 else None  # no GPU has a clock of 0
        else:
            clock = name in _OPTIONAL and attribute.per != 1
            found[name] = (answer or 0) / attribute.per if clock else (answer or 0) // attribute.per
    return found


# What NVML reads quickly enough for a chart that ticks, with its unit.
READINGS: tuple[tuple[str, str], ...] = (
    ("GPU utilization", "%"),
    ("memory controller utilization", "%"),
    ("memory used", "MiB"),
    ("memory total", "MiB"),
    ("temperature", "°C"),
    ("power", "W"),
    ("power limit", "W"),
    ("SM clock", "MHz"),
    ("memory clock", "MHz"),
    ("clocks held back by", ""),
    ("fan", "%"),
    ("compute processes", ""),
    ("PCIe link", ""),
)
